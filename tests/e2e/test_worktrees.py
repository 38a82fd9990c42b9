"""Children in working trees of their own: what they do stays apart, and what they did is taken over from the log."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muse import app
from muse.event.content import FileChange
from muse.event.envelope import Event
from muse.event.kinds import FilesChanged
from tests.e2e.rig import Rig

Step = dict[str, Any]


def spawn(*tasks: str, isolation: str = "worktree") -> Step:
    return {"uses": [["spawn", {"agents": [{"task": task, "isolation": isolation} for task in tasks]}]]}


def shell(command: str) -> list[Any]:
    return ["shell", {"command": command}]


def script(rig: Rig, steps: list[Step], **lanes: list[list[Any]]) -> str:
    """`main` follows the steps; each lane is the uses of one step after the other."""
    path = rig.folder / "script.json"
    made = [
        {"when": f"do {name}", "steps": [*({"uses": uses} for uses in lane), {"text": "over"}]}
        for name, lane in lanes.items()
    ]
    path.write_text(json.dumps({"steps": [*steps, {"text": "done"}], "lanes": made}))
    return f"scripted/{path}"


def finished(rig: Rig, agent: str, tool: str = "") -> list[tuple[str, str]]:
    """Status and text of the calls of an agent."""
    names = {event["body"]["call"]: event["body"]["tool"] for event in rig.of_type("tool.started")}
    return [
        (event["body"]["status"], event["body"].get("text", ""))
        for event in rig.of_type("tool.finished")
        if event["agent"] == agent and tool in ("", names.get(event["body"]["call"]))
    ]


def changed(rig: Rig, agent: str) -> set[str]:
    return {
        change["path"]
        for event in rig.of_type("files.changed")
        if event["agent"] == agent
        for change in event["body"]["changes"]
    }


def changes_of(event: Event) -> Iterator[FileChange]:
    """Of which the log is to hold a content."""
    if isinstance(event.body, FilesChanged):
        yield from (change for change in event.body.changes if change.after is not None)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two children: `alpha` tries to reach the parent's workspace, `beta` destroys what it sees; `main` applies."""
    with Rig(tmp_path_factory.mktemp("trees")) as rig:
        rig.environment["MUSE_SANDBOX"] = "workspace-write"
        (rig.workspace / "notes.txt").write_text("not committed\n")
        shop = rig.workspace
        model = script(
            rig,
            [
                spawn("do alpha", "do beta"),
                {"uses": [["diff", {"agent": "main.1"}]]},
                {"uses": [["apply", {"agent": "main.1"}]]},
            ],
            alpha=[
                [shell("cat notes.txt; git status --porcelain; sed -i s/total/summe/ src/shop.py; echo a > a.txt")],
                [
                    ["write", {"path": f"{shop}/evil.txt", "content": "x"}],
                    ["edit", {"path": "../../../../../shop/README.md", "old": "Shop", "new": "Evil"}],
                    shell(f"echo x > {shop}/evil.txt; rm -rf {shop}/src {shop}/.git/refs; echo x > {shop}/.git/HEAD"),
                ],
            ],
            beta=[[shell("rm -rf src tests; git checkout -q HEAD~0 -- README.md; rm README.md; echo b > b.txt")]],
        )
        done = rig.muse("exec", "--yolo", "--model", model, "go")
        if done.returncode == 2 and "cannot be had here" in done.stderr:
            pytest.skip("this machine has neither Landlock nor bubblewrap to confine commands with")
        assert done.returncode == 0, done.stderr
        yield rig


def test_a_child_begins_with_what_its_parent_has_not_committed(played: Rig) -> None:
    status, text = finished(played, "main.1", "shell")[0]
    assert status == "ok"
    assert text.startswith("not committed\n?? notes.txt\n")
    for agent in ("main.1", "main.2"):
        spawned = next(e for e in played.of_type("agent.spawned") if e["agent"] == agent)
        made = next(e for e in played.of_type("worktree.prepared") if e["agent"] == agent)
        assert (made["cause"], made["body"]["base"]) == (spawned["seq"], played.git("rev-parse", "HEAD").strip())


def test_the_changes_of_children_do_not_mix_and_are_known_to_be_theirs(played: Rig) -> None:
    assert changed(played, "main.1") == {"src/shop.py", "a.txt"}
    assert changed(played, "main.2") == {"src/shop.py", "src/tax.py", "tests/check.py", "README.md", "b.txt"}
    looks = [e for e in played.of_type("files.changed") if e["agent"] != "main"]
    assert {call.partition("/")[0] == e["agent"] for e in looks for call in e["body"]["calls"]} == {True}
    assert not any(event["body"].get("external") for event in looks)


def test_what_one_destroys_and_what_a_child_writes_elsewhere_leaves_the_parents_files_alone(played: Rig) -> None:
    assert played.read("README.md") == "# Shop\n\nAdds prices.\n"
    assert played.read("src/tax.py") == "RATE = 19\n"
    assert not (played.workspace / "evil.txt").exists()
    assert played.git("log", "--format=%s") == "start\n"


def test_a_refused_write_is_the_result_of_the_call_in_the_log(played: Rig) -> None:
    texts = [text for _, text in finished(played, "main.1")]
    refused = [e for e in played.of_type("approval.decided") if e["agent"] == "main.1"]
    assert [event["body"]["decision"] for event in refused] == ["deny", "deny"]
    assert all("outside the workspace" in event["body"]["rule"] for event in refused)
    by_sandbox = texts[-1]
    for path in ("evil.txt", "src/shop.py", ".git/HEAD"):
        assert f"{played.workspace}/{path}" in by_sandbox
    assert "Read-only file system" in by_sandbox or "Permission denied" in by_sandbox


def test_the_parent_is_told_what_changed_sees_it_and_takes_it_over(played: Rig) -> None:
    result = next(e for e in played.of_type("agent.finished") if e["agent"] == "main.1")["body"]["text"]
    assert "src/shop.py (changed)" in result
    assert "a.txt (new)" in result
    ((_, diff),) = finished(played, "main", "diff")
    assert "-def total(prices):\n+def summe(prices):\n" in diff
    assert finished(played, "main", "apply") == [
        ("ok", "applied the changes of main.1: a.txt (new), src/shop.py (changed)")
    ]
    assert played.read("src/shop.py").startswith("def summe(prices):")
    assert changed(played, "main") == {"src/shop.py", "a.txt"}


def test_trees_of_which_the_log_holds_everything_are_gone_when_the_session_has_closed(played: Rig) -> None:
    removed = played.of_type("worktree.removed")
    assert {(event["agent"], bool(event["body"].get("left"))) for event in removed} == {
        ("main.1", False), ("main.2", False),
    }  # fmt: skip
    assert played.git("worktree", "list").count("\n") == 1
    assert not list(played.muse_home.glob("worktrees/*"))
    assert played.events()[-1]["type"] == "session.closed"


def test_such_a_session_is_derived_again_from_its_log(played: Rig) -> None:
    played.verify()


def test_what_the_log_does_not_hold_keeps_its_tree_which_goes_with_the_session(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        (rig.workspace / ".gitignore").write_text("*.log\n__pycache__/\n")
        commit = "git -c user.name=c -c user.email=c@example.org commit -qam own"
        model = script(
            rig,
            [spawn("do alpha", "do beta", "do gamma", "do delta", "do epsilon")],
            alpha=[[shell(f"echo x >> README.md; {commit}")]],
            epsilon=[[shell("git init -q __pycache__/own && echo x > __pycache__/own/file")]],
            delta=[[shell("mkdir -p src/__pycache__; echo x > src/__pycache__/shop.pyc; echo x > new.txt")]],
            beta=[[shell("echo x > kept.log")]],
            gamma=[[shell("head -c 9000000 /dev/zero > large")]],
        )
        assert rig.muse("exec", "--yolo", "--model", model, "go").returncode == 0
        left = {e["agent"]: (e["body"].get("left"), e["body"].get("why")) for e in rig.of_type("worktree.removed")}
        assert left["main.1"][0] == [".git"]
        assert "commits of its own" in left["main.1"][1]
        assert left["main.2"][0] == ["kept.log"]
        assert left["main.3"][0] == ["large"]
        assert left["main.4"][0] is None, "a cache that any run makes again keeps no tree"
        assert left["main.5"][0], "a repository within is none, whatever its folder is called"
        place = rig.muse_home / "worktrees" / rig.session()
        assert sorted(os.listdir(place)) == ["main.1", "main.2", "main.3", "main.5"]
        said = rig.muse("gc", "--json").stdout
        assert str(place) in said
        assert f"muse rm {rig.session()}" in said
        assert rig.muse("rm", rig.session(), "--yes").returncode == 0
        assert not place.exists()
        assert rig.git("worktree", "list").count("\n") == 1


def test_without_a_sandbox_file_tools_still_keep_to_the_tree(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        model = script(
            rig, [spawn("do alpha")],
            alpha=[[["write", {"path": str(rig.workspace / "evil.txt"), "content": "x"}]]],
        )  # fmt: skip
        assert rig.muse("exec", "--yolo", "--model", model, "go").returncode == 0
        assert not (rig.workspace / "evil.txt").exists()


def test_what_is_behind_a_link_in_place_of_a_tree_is_recorded_nowhere_and_that_is_said(tmp_path: Path) -> None:
    """A command that no sandbox holds puts a link to other files in place of its own tree."""
    with Rig(tmp_path / "rig") as rig:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "diary.txt").write_text("nobody's business\n")
        swap = f'cd .. && mv shop kept && ln -s "{elsewhere}" shop'
        model = script(
            rig, [spawn("do alpha")], alpha=[[shell("echo a > a.txt")], [shell(swap)], [shell("ls shop/..")]]
        )
        assert rig.muse("exec", "-q", "--yolo", "-m", model, "go").returncode == 0
        assert changed(rig, "main.1") == {"a.txt"}
        unknown = [event["body"]["why"] for event in rig.of_type("files.unknown") if event["agent"] == "main.1"]
        assert unknown
        assert "something else was put, a symbolic link say" in unknown[0]
        (removed,) = rig.of_type("worktree.removed")
        assert removed["body"]["left"], "the tree is kept"
        assert (elsewhere / "diary.txt").exists()
        assert not [path for path in rig.muse_home.rglob("*") if path.is_file() and b"nobody's" in path.read_bytes()]
        with app.read_session(rig.path()) as reading:
            contents = [reading.content(change.after) for event in reading.events() for change in changes_of(event)]
        assert contents == [b"a\n"]
        rig.verify()


def test_apply_asks_with_the_files_it_is_about(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.settings('approval_timeout = 1\n[permissions]\nallow = ["shell(sed *)"]\n')
        model = script(
            rig, [spawn("do alpha"), {"uses": [["apply", {"agent": "main.1"}]]}],
            alpha=[[shell("sed -i s/Shop/Store/ README.md")]],
        )  # fmt: skip
        assert rig.muse("exec", "--model", model, "go").returncode == 3
        (asked,) = rig.of_type("approval.requested")
        assert asked["body"]["shown"].startswith(
            "apply what main.1 changed in its working tree:\n  README.md (changed)\n"
        )
        assert asked["body"]["remember"] == "edit(README.md)"
        assert rig.read("README.md").startswith("# Shop")
        rig.verify()


def killed(rig: Rig, model: str, where: str) -> None:
    process = rig.start("exec", "--yolo", "--model", model, "go", extra={"MUSE_FAILPOINT": where})
    assert process.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("where", ["worktree_begun:1", "worktree_added:2", "worktree_filled:1"])
def test_killed_while_trees_are_made_each_child_gets_one_and_runs_once(tmp_path: Path, where: str) -> None:
    with Rig(tmp_path) as rig:
        counted = rig.folder / "counted"
        model = script(
            rig, [spawn("do alpha", "do beta")],
            alpha=[[shell(f"echo a >> {counted}; echo a > a.txt")]],
            beta=[[shell(f"echo b >> {counted}; echo b > b.txt")]],
        )  # fmt: skip
        killed(rig, model, where)
        assert rig.muse("resume", "last").returncode == 0
        assert sorted(counted.read_text().split()) == ["a", "b"]
        assert [changed(rig, agent) for agent in ("main.1", "main.2")] == [{"a.txt"}, {"b.txt"}]
        assert rig.git("worktree", "list").count("\n") == 1
        rig.verify()


@pytest.mark.parametrize("where", ["worktree_begun:1", "worktree_filled:1"])
def test_who_is_cancelled_while_nobody_runs_the_session_gets_no_tree_and_leaves_none(
    tmp_path: Path, where: str
) -> None:
    with Rig(tmp_path) as rig:
        model = script(rig, [spawn("do alpha")], alpha=[[shell("echo a > a.txt")]])
        killed(rig, model, where)
        assert rig.muse("cancel", "last:main.1", "--agent").returncode == 0
        assert rig.muse("resume", "last").returncode == 0
        (finished,) = rig.of_type("agent.finished")
        assert (finished["agent"], finished["body"]["outcome"]) == ("main.1", "cancelled")
        assert rig.of_type("worktree.prepared", "worktree.removed") == []
        assert rig.git("worktree", "list").count("\n") == 1
        assert list(rig.muse_home.glob("worktrees/*")) == []
        rig.verify()


def test_killed_in_the_middle_of_an_apply_the_rest_of_the_plan_is_done_and_nothing_twice(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        model = script(
            rig, [spawn("do alpha"), {"uses": [["apply", {"agent": "main.1"}]]}],
            alpha=[[shell("echo a > a.txt; echo b > b.txt; rm src/tax.py; echo x >> README.md")]],
        )  # fmt: skip
        killed(rig, model, "apply_file:2")
        assert rig.muse("resume", "last").returncode == 0
        assert (rig.read("a.txt"), rig.read("b.txt")) == ("a\n", "b\n")
        assert rig.read("README.md").endswith("x\n")
        assert not (rig.workspace / "src/tax.py").exists()
        (verdict,) = rig.of_type("effect.reconciled")
        assert verdict["body"]["verdict"] == "done"
        assert [status for status, _ in finished(rig, "main", "apply")] == ["ok"]
        told: list[str] = [
            change["path"]
            for event in rig.of_type("files.changed")
            if event["agent"] == "main"
            for change in event["body"]["changes"]
        ]
        assert sorted(told) == ["README.md", "a.txt", "b.txt", "src/tax.py"]
        rig.verify()


def test_what_somebody_changes_while_an_apply_is_at_work_is_not_overwritten(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        model = script(
            rig, [spawn("do alpha"), {"uses": [["apply", {"agent": "main.1"}]]}],
            alpha=[[shell("echo a > a.txt; rm src/tax.py; for f in README.md src/shop.py; do echo x >> $f; done")]],
        )  # fmt: skip
        stop = {"MUSE_FAILPOINT": f"apply_file:2:stop:{rig.folder / 'hits'}"}
        host = rig.start("exec", "--yolo", "--model", model, "go", extra=stop)
        rig.wait_for(lambda: Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        (rig.workspace / "src/shop.py").write_text("of a person\n")
        host.send_signal(signal.SIGCONT)
        assert host.wait(60) == 0
        ((status, text),) = finished(rig, "main", "apply")
        assert status == "error"
        assert "src/shop.py: something else changed it" in text
        assert "were applied: src/tax.py, README.md, a.txt." in text
        assert rig.read("src/shop.py") == "of a person\n"
        rig.verify()


GONE = "until [ $(git worktree list | wc -l) = 1 ]; do sleep 0.02; done"


def test_a_child_that_is_spoken_to_when_its_tree_is_gone_goes_on_in_another_one(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        path = rig.folder / "script.json"
        steps: list[Step] = [
            spawn("do alpha"),
            {"uses": [shell(GONE)]},
            {"uses": [["message", {"to": "main.1", "text": "more"}]]},
            {"uses": [["wait", {"agents": ["main.1"]}]]},
            {"uses": [["apply", {"agent": "main.1"}]]},
            {"text": "done"},
        ]
        lane: list[Step] = [
            {"uses": [shell("echo 1 > one")]}, {"text": "first"},
            {"uses": [shell("cat one; echo 2 > two")]}, {"text": "second"},
        ]  # fmt: skip
        path.write_text(json.dumps({"steps": steps, "lanes": [{"when": "do alpha", "steps": lane}]}))
        assert rig.muse("exec", "--yolo", "--model", f"scripted/{path}", "go").returncode == 0
        kinds = [e["type"] for e in rig.of_type("worktree.prepared", "worktree.removed")]
        assert kinds == ["worktree.prepared", "worktree.removed"] * 2
        assert finished(rig, "main.1")[-1] == ("ok", "1\nexit code 0")
        assert (rig.read("one"), rig.read("two")) == ("1\n", "2\n")
        rig.verify()


def test_what_a_child_does_after_its_changes_were_taken_over_is_taken_over_too(tmp_path: Path) -> None:
    """The parent asks for another draft of the same lines, having changed others itself."""
    with Rig(tmp_path, {"text": "1\n2\n3\n4\n5\n"}) as rig:
        path = rig.folder / "script.json"
        apply: Step = {"uses": [["apply", {"agent": "main.1"}]]}
        steps: list[Step] = [
            spawn("do alpha"), apply, {"uses": [shell("sed -i s/5/mine/ text")]},
            {"uses": [["message", {"to": "main.1", "text": "more"}], ["wait", {}]]}, apply, {"text": "done"},
        ]  # fmt: skip
        lane: list[Step] = [
            {"uses": [shell("sed -i s/1/one/ text; echo a > new")]}, {"text": "first"},
            {"uses": [shell("sed -i s/one/uno/ text; echo b > new")]}, {"text": "second"},
        ]  # fmt: skip
        path.write_text(json.dumps({"steps": steps, "lanes": [{"when": "do alpha", "steps": lane}]}))
        assert rig.muse("exec", "--yolo", "--model", f"scripted/{path}", "go").returncode == 0
        assert [status for status, _ in finished(rig, "main", "apply")] == ["ok", "ok"]
        assert (rig.read("text"), rig.read("new")) == ("uno\n2\n3\n4\nmine\n", "b\n")
        rig.verify()
