"""`muse agents` away from a terminal: a table, JSON, and lines as things change; and what stands below its screen."""

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muse.app.fleet import Watched, say
from muse.errors import UsageError
from muse.event import kinds
from muse.log.sqlite import SqliteLog
from muse.ui.cli.agents import NARROWEST_COLUMNS, within
from muse.view.fleet import SessionRows
from tests.ui.driving import World, eventually, shell
from tests.ui.tui.fanout import Fanout, write_fanout
from tests.ui.tui.made import SESSION

NOTHING = "no session of this folder runs or waits for anybody: muse agents --all shows the rest\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two fan-outs lie: one in the middle of its work, one that ended."""
    made = tmp_path_factory.mktemp("fanouts")
    for upto in ("work", "end"):
        write_fanout(made / f"{upto}.muse", upto)
    return made


def fan_out(world: World) -> str:
    """A model that spawns three: one ends, one wants something removed, one asks."""
    tasks = [{"task": f"{what} it", "name": what.lower(), "isolation": "shared"} for what in ("Look", "Clean", "Ask")]
    script = {
        "steps": [{"uses": [["spawn", {"agents": tasks}]]}, {"text": "All three have ended."}],
        "lanes": [
            {"when": "Look it", "steps": [{"text": "It looks well."}]},
            {"when": "Clean it", "steps": [{"text": "I clean.", "uses": [shell("rm -r build")]}, {"text": "Clean."}]},
            {"when": "Ask it", "steps": [{"uses": [["ask", {"question": "Which?"}]]}, {"text": "That one."}]},
        ],
    }
    path = world.root / "fan-out.json"
    path.write_text(json.dumps(script))
    return f"scripted/{path}"


def agents(world: World, *args: str) -> dict[str, Any]:
    """The agents of the one session, by id."""
    done = world.run("agents", "--json", *args)
    assert done.code == 0, done
    (session,) = map(json.loads, done.out.splitlines())
    return {row["agent"]: row for row in session["agents"]}


def states(world: World) -> list[str]:
    """What each does."""
    found = [json.loads(line)["agents"] for line in world.run("agents", "--json").out.splitlines()]
    return [f"{row['agent']} {row['state']} {row['about']}".rstrip() for rows in found for row in rows]


def test_a_running_fan_out_is_shown_and_followed_to_its_end(world: World) -> None:
    assert world.run("agents").err == NOTHING
    host = world.start("exec", "-m", fan_out(world), "do all")
    wanted = ["main waiting children", "main.1 done", "main.2 waiting approval", "main.3 waiting question"]
    eventually(lambda: states(world) == wanted)
    rows = agents(world)
    assert [rows[name]["name"] for name in ("main.1", "main.2", "main.3")] == ["look", "clean", "ask"]
    assert [rows["main.2"]["step"], rows["main.2"]["said"]] == ["shell rm -r build", "I clean."]
    asked = {event["type"]: event["seq"] for event in world.events() if event["type"].endswith(("requested", "asked"))}
    assert rows["main.2"]["approvals"] == [asked["approval.requested"]]
    assert rows["main.3"]["questions"] == [asked["question.asked"]]
    table = world.run("agents").out.splitlines()
    assert f"waiting ({host.pid})" in table[0]
    assert "4 agents: 3 waiting, 1 done" in table[0]
    assert [line.split()[0] for line in table[1:]] == ["main", "main.1", "main.2", "main.3"]
    follow = world.start("agents", "last", "-f")
    follow_json = world.start("agents", "last", "-f", "--json")
    for process in (follow, follow_json):
        assert process.stdout is not None
        assert process.stdout.readline()
    assert world.run("approve", f"last@{asked['approval.requested']}").code == 0
    assert world.run("answer", f"last@{asked['question.asked']}", "this").code == 0
    assert host.wait(60) == 0
    out, err = follow.communicate(timeout=60)
    assert (follow.returncode, err) == (0, "")
    ends = [line.split(maxsplit=2)[2] for line in out.splitlines() if ": " in line or " done" in line]
    assert "main     done: All three have ended." in ends
    assert "main.2   done: Clean." in ends
    assert "main.3   done: That one." in ends
    lines = [json.loads(line) for line in follow_json.communicate(timeout=60)[0].splitlines()]
    ended = {line["agent"]["agent"] for line in lines if line["agent"]["state"] == "done"}
    assert ended >= {"main", "main.2", "main.3"}
    assert states(world) == []
    assert agents(world, "--all")["main.3"]["said"] == "That one."


def test_a_table_of_a_fan_out_that_nobody_runs(world: World, folder: Path) -> None:
    head, *rows = world.run("agents", str(folder / "work.muse")).out.splitlines()
    assert "stopped (resume)" in head
    assert "7 agents: 2 running, 3 waiting, 1 paused, 1 done" in head
    assert [row.split("  ")[1:3] for row in rows][:1] == [["main", ""]]
    (cart,) = [row for row in rows if "main.1 " in row]
    assert cart.split(maxsplit=3) == ["main.1", "cart", "(reviewer)", cart.split(maxsplit=3)[3]]
    assert "1 changed  not each price." in cart
    below = world.run("agents", f"{folder / 'work.muse'}:main.4").out.splitlines()
    assert [line.split()[0] for line in below[1:]] == ["main.4"]


def test_what_cannot_be_shown_is_said(world: World, folder: Path) -> None:
    missing = world.run("agents", f"{folder / 'work.muse'}:main.9")
    assert (missing.code, "there is no agent main.9" in missing.err) == (2, True)
    then = world.run("agents", f"{folder / 'work.muse'}@3")
    assert (then.code, "muse replay @SEQ --state" in then.err) == (2, True)


def fresh(path: Path, now: datetime) -> SessionRows:
    """What somebody sees who only looks now."""
    with closing(Watched(path)) as watched:
        watched.look()
        return watched.rows(now)


def test_kept_up_by_what_is_new_it_is_what_a_fresh_look_gives(tmp_path: Path) -> None:
    path, now = tmp_path / "s.muse", datetime(2026, 3, 9, 10, 0, tzinfo=UTC)
    with closing(SqliteLog.create(path, SESSION, commands=kinds.COMMANDS)) as log:
        fanout = Fanout(log)
        watched = Watched(path)
        try:
            for moment in (fanout.begin, fanout.work, fanout.end):
                moment()
                assert watched.look()
                assert watched.rows(now) == fresh(path, now)
                assert not watched.look()
            assert [row.state for row in watched.rows(now).agents] == [
                "done", "done", "done", "done", "failed", "done", "cancelled",
            ]  # fmt: skip
        finally:
            watched.close()


def test_an_answer_that_came_too_late_is_told(tmp_path: Path) -> None:
    path = tmp_path / "s.muse"
    write_fanout(path, "work")
    with closing(SqliteLog.open(path, read_only=True)) as log:
        watched = Watched(path)
        (asked,) = watched.rows().agents[4].approvals
        event = watched.event(asked)
        watched.close()
        assert event is not None
        assert isinstance(event.body, kinds.ApprovalRequested)
        call, shown, head = event.body.call, event.body.shown_sha256, log.head().seq

    def answer(decision: str) -> int:
        return say(
            path, "main.4",
            lambda origin: kinds.ApprovalDecided(
                call=call, decision=decision, by="person", request=asked, shown_sha256=shown, origin=origin,  # type: ignore[arg-type]  # a literal
            ), "test", cause=asked,
        )  # fmt: skip

    assert answer("allow") == head + 1
    with pytest.raises(UsageError, match=f"too late: #{asked} was answered .*: allowed by .*\\(#{head + 1}\\)"):
        answer("deny")


def test_a_line_of_the_table_is_one_line_of_the_terminal() -> None:
    wide = (16, 28, 40, 7, 14, 9)
    assert within(wide, None) == wide
    for room in (80, 90, 120):
        assert sum(width + 2 for width in within(wide, room)) - 2 <= room
    assert within(wide, 120)[:2] == (16, 28)  # the step gives way first
    assert within((16, 9, 0, 7, 0, 0), 80) == (16, 9, 0, 7, 0, 0)
    assert min(within(wide, 10)[:3]) == NARROWEST_COLUMNS
