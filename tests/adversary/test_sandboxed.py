"""An agent that turns against its own record, in every sandbox that this machine has: all of it fails, and stands in
the log."""

import os
import shutil

import pytest

from muse.effect.sandbox import choose, places_of, this_machine
from muse.errors import UsageError
from tests.adversary import attacks
from tests.e2e.rig import Rig

ENFORCERS = ["landlock", "bubblewrap", "landlock-alone"]


def with_sandbox(rig: Rig, enforcer: str) -> Rig:
    """A rig whose sessions have that sandbox ("": the best one), or a skip that says why there is none."""
    environment = {"HOME": str(rig.home)}
    places = places_of(rig.workspace, rig.muse_home, rig.muse_home / "x.muse", rig.home / ".config", environment)
    try:
        choose("workspace-write", True, this_machine(), places, "probe", enforcer)
    except UsageError as error:
        pytest.skip(str(error))
    rig.environment |= {"MUSE_SANDBOX": "workspace-write", "MUSE_SANDBOX_ENFORCER": enforcer}
    return rig


@pytest.fixture(params=ENFORCERS)
def sandboxed(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    return with_sandbox(rig, request.param)


@pytest.fixture
def best(rig: Rig) -> Rig:
    return with_sandbox(rig, "")


def test_whatever_its_shell_tries_the_session_ends_done_and_the_log_has_it(sandboxed: Rig) -> None:
    rig = sandboxed
    marker = rig.folder / "started-outside"
    tries = attacks.files(rig) | attacks.processes(rig) | attacks.words(rig)
    tries["start"] = attacks.to_runner(rig, attacks.start_request(rig, str(marker)))
    tries["stop"] = attacks.to_runner(rig, '{"do": "stop", "epoch": 1, "kill": true}')
    steps = [{"text": name, "uses": [["shell", {"command": command}]]} for name, command in tries.items()]
    done = rig.muse("exec", "--yolo", "-m", rig.script([*steps, {"text": "All tried."}]), "attack yourself")
    assert (done.returncode, done.stdout) == (0, "All tried.\n"), done.stderr

    events = rig.events()
    assert [one["body"]["args"] for one in events if one["type"] == "tool.started"] != []
    results = [one["body"] for one in events if one["type"] == "tool.finished"]
    assert len(results) == len(tries)
    for name, result in zip(tries, results, strict=True):
        assert "BROKEN" not in result["text"], (name, result["text"])
        assert "exit code" in result["text"], (name, result["text"])
    assert (
        results[0]["text"]
        .rpartition("\n")[2]
        .startswith("(sandbox: workspace-write; it can write only in the workspace and temporary folders")
    )
    opened = [one["body"] for one in events if one["type"] == "session.opened"]
    assert len(opened) == 1, "there was a second owner"
    assert opened[0]["sandbox"].startswith(f"workspace-write by {rig.environment['MUSE_SANDBOX_ENFORCER']}")
    assert not {"agent.steered", "cancel.requested", "log.redacted"} & {one["type"] for one in events}
    assert not marker.exists()
    assert not (rig.workspace / "mine").exists()
    assert not (rig.workspace / "linked").exists()
    rig.verify()


def test_an_approval_that_waits_is_not_given_by_the_agent_itself(best: Rig) -> None:
    rig = best
    muse = f"MUSE_HOME={rig.muse_home} {attacks.MUSE}"
    approve = f"for i in $(seq 2); do {muse} approve; done; exit 1"
    uses = [["shell", {"command": approve}], ["write", {"path": "wanted.txt", "content": "x"}]]
    script = rig.script([{"text": "Both.", "uses": uses}, {"text": "Well."}])
    done = rig.muse("exec", "--allow", f"shell({approve})", "--approval-timeout", "3", "-m", script, "do both")
    assert done.returncode == 3, done.stderr
    (decided,) = [one["body"] for one in rig.of_type("approval.decided") if one["body"]["by"] != "rule"]
    assert (decided["by"], decided["decision"]) == ("timeout", "deny")
    assert not (rig.workspace / "wanted.txt").exists()


def test_a_read_only_session_changes_no_file(best: Rig) -> None:
    rig = best
    before = {path: path.read_bytes() for path in rig.workspace.rglob("*") if path.is_file()}
    uses = [
        ["shell", {"command": "echo x > new; echo x >> README.md; echo in > $TMPDIR/t && cat $TMPDIR/t"}],
        ["write", {"path": "new.txt", "content": "x"}],
        ["edit", {"path": "README.md", "old": "# Shop", "new": "# Stop"}],
    ]
    script = rig.script([{"text": "All.", "uses": uses}, {"text": "No."}])
    assert rig.muse("exec", "--sandbox", "read-only", "--yolo", "-m", script, "change it").returncode == 0
    shell, write, edit = (one["body"] for one in rig.of_type("tool.finished"))
    assert "in\nexit code 0" in shell["text"]
    assert [one["status"] for one in (write, edit)] == ["error", "error"]
    assert "the sandbox is read-only" in write["text"]
    assert {path: path.read_bytes() for path in rig.workspace.rglob("*") if path.is_file()} == before
    assert shutil.which("git") is None or rig.git("status", "--short") == ""


def test_file_tools_leave_alone_what_could_run_later(best: Rig) -> None:
    rig = best
    paths = [".muse/config.toml", ".git/hooks/pre-commit", ".git/config", "src/new.py"]
    uses = [["write", {"path": path, "content": "x\n"}] for path in paths]
    script = rig.script([{"text": "All.", "uses": uses}, {"text": "Well."}])
    assert rig.muse("exec", "--permission-mode", "yolo", "-m", script, "write them").returncode == 0
    results = [one["body"] for one in rig.of_type("tool.finished")]
    assert [one["status"] for one in results] == ["error", "error", "error", "ok"]
    assert "kept as it is while the sandbox is on" in results[0]["text"]
    assert rig.read("src/new.py") == "x\n"
    assert not (rig.workspace / ".muse").exists()


def test_the_mode_of_the_log_holds_until_another_one_is_asked_for(best: Rig) -> None:
    rig = best
    script = rig.script([{"text": "One."}, {"text": "Two."}, {"text": "Three."}, {"text": "Four."}])
    off = {"MUSE_SANDBOX": "off"}
    assert rig.muse("exec", "--yolo", "--no-network", "-m", script, "one").returncode == 0
    assert rig.muse("resume", "last", "two", extra=off).returncode == 0
    assert rig.muse("resume", "last", "three", "--network", extra={"MUSE_SANDBOX": "read-only"}).returncode == 0
    assert rig.muse("resume", "last", "four", "--sandbox", "off").returncode == 0
    held = [
        (one["body"]["settings"].get("sandbox"), one["body"]["settings"].get("network", True))
        for one in rig.of_type("session.opened")
    ]
    assert held == [("workspace-write", False), ("workspace-write", False), ("read-only", True), ("off", True)]
    assert os.listdir(rig.workspace / ".git" / "hooks") != []


def test_muse_runs_no_program_that_the_agent_has_put_where_path_leads(best: Rig) -> None:
    rig = best
    names = ("git", "rg", "bwrap")
    body = f"#!/bin/sh\\ntouch {rig.muse_home}/ran-$(basename $0)\\n"
    plant = f"mkdir -p bin; for n in {' '.join(names)}; do printf '{body}' > bin/$n; chmod +x bin/$n; done"
    uses = [["shell", {"command": plant}], ["grep", {"pattern": "total"}]]
    script = rig.script(
        [
            {"text": "Plant.", "uses": uses[:1]},
            {"text": "Planted."},
            {"text": "Look.", "uses": uses[1:]},
            {"text": "Done."},
        ]
    )
    extra = {"PATH": f"{rig.workspace}/bin:{os.environ['PATH']}"}
    assert rig.muse("exec", "--yolo", "-m", script, "plant", extra=extra).returncode == 0
    assert rig.muse("resume", "last", "look", extra=extra).returncode == 0
    assert [name for name in names if (rig.muse_home / f"ran-{name}").exists()] == []
    assert [one["body"]["status"] for one in rig.of_type("tool.finished")] == ["ok", "ok"]


def test_what_a_command_leaves_running_makes_no_settings_and_hooks_when_the_session_is_over(best: Rig) -> None:
    rig = best
    shutil.rmtree(rig.workspace / ".git" / "hooks")
    once = "mkdir -p .muse .git/hooks; echo > .muse/config.toml; echo > .git/hooks/pre-commit; sleep 0.05"
    uses = [["shell", {"command": f"(for i in $(seq 100); do {once}; done; touch over) > /dev/null 2>&1 &"}]]
    script = rig.script([{"text": "Begin.", "uses": uses}, {"text": "Done."}])
    assert rig.muse("exec", "--yolo", "-m", script, "go").returncode == 0
    rig.wait_for(lambda: (rig.workspace / "over").exists())
    assert not (rig.workspace / ".muse" / "config.toml").exists()
    assert not (rig.workspace / ".git" / "hooks" / "pre-commit").exists()
    assert rig.muse("resume", "last", "-m", script, "again").returncode == 0
