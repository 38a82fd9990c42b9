"""`muse rm`: what goes, what stays, and what is left to know of what went; killed at every step."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from muse.event.kinds import COMMANDS, LogImported, SessionForked
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from tests.ui.driving import WAITS, World, eventually, shell

STEPS = [{"uses": [shell("echo hi")]}, {"text": "ok"}]


def session(world: World, prompt: str = "a task") -> str:
    """A finished session; its id."""
    assert world.run("exec", "--yolo", "-q", "-m", world.script(*STEPS), prompt).code == 0
    return world.files()[-1].stem


def kept(world: World, name: str) -> list[str]:
    """The files of the home that name a session, without tombstones."""
    found = [path for path in world.home.rglob("*") if name in str(path) and path.is_file()]
    return sorted(str(path.relative_to(world.home)) for path in found if path.parent.name != "removed")


def test_a_removed_session_leaves_nothing_but_its_tombstone(world: World) -> None:
    first, second = session(world, "first"), session(world, "second")
    head = world.run("verify", first).out.splitlines()[-1].split()[1]
    done = world.run("rm", first, "--yes", "--why", "spring cleaning")
    assert done.code == 0, done
    assert "first" in done.out
    assert first[-8:] in done.err
    assert kept(world, first) == []
    assert [path.stem for path in world.files()] == [second]
    for command in ("show", "log", "resume", "export", "verify"):
        shown = world.run(command, first)
        assert shown.code == 2
        assert "was removed on" in shown.err
        assert "spring cleaning" in shown.err
    (stone,) = (world.home / "removed").iterdir()
    said = json.loads(stone.read_text())
    assert (said["session"], said["why"]) == (first, "spring cleaning")
    assert f"{said['events']}:{said['hash']}" == head
    assert stone.stat().st_mode & 0o777 == 0o600


def test_what_would_go_is_said_and_nothing_goes_without_a_yes(world: World) -> None:
    name = session(world)
    before = kept(world, name)
    for args in (("rm",), ("rm", name), ("rm", "last"), ("rm", ""), ("rm", f"{name}@3"), ("rm", name, "--ended")):
        assert world.run(*args).code == 2, args
    done = world.run("rm", name, "--dry-run", "--json")
    said = json.loads(done.out)
    assert (said["session"], said["events"], said["removed"]) == (name, len(world.events()), False)
    run = world.home / "run" / name
    log = world.files()[0]
    beside = [path for path in log.parent.iterdir() if path.name.startswith(name)]
    whole = (*beside, *run.rglob("*"), *(world.home / "snapshots").rglob("*"))  # no other session is of this folder
    expected = sum(path.lstat().st_size for path in whole if not path.is_dir())
    assert (said["size"], said["prompt"]) == (expected, "a task")
    assert [path for path in before if not path.endswith(("-wal", "-shm"))] == [
        path for path in kept(world, name) if not path.endswith(("-wal", "-shm"))
    ]


def test_on_a_terminal_it_asks_and_no_is_no(world: World) -> None:
    name = session(world)
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        terminal = world.terminal("rm", name)
        terminal.expect("for good?")
        terminal.send(f"{answer}\n")
        assert terminal.end()[0] == code
        assert len(world.files()) == left


@pytest.mark.parametrize("command", ["rm", "archive"])
def test_what_went_on_while_a_person_thought_about_it_stays(world: World, command: str) -> None:
    name = session(world)
    terminal = world.terminal(command, name)
    terminal.expect("?")
    model = world.script({"text": "x"}, {"text": "x"}, {"text": "hours of work"})
    assert world.run("resume", name, "more", "-m", model).code == 0
    terminal.send("y\n")
    code, said = terminal.end()
    assert (code, "went on since it was shown" in said) == (7, True), said
    assert "hours of work" in world.run("log", name).out
    assert world.run("verify", name).code == 0


def test_a_running_session_stays(world: World) -> None:
    old = session(world, "old")
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "x"}), "runs")
    world.begun()
    name = world.files()[-1].stem
    done = world.run("rm", name, "--yes")
    assert done.code == 7, done
    assert str(running.pid) in done.err
    done = world.run("rm", "--older-than", "1h", "--yes")
    assert (done.code, len(world.files())) == (0, 2)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    done = world.run("rm", name, "--yes")  # the host is gone, its command is not
    assert done.code == 7
    assert "left processes running" in done.err
    (world.work / "go").touch()
    assert world.run("resume", name).code == 0
    assert world.run("rm", name, "--yes").code == 0
    assert [path.stem for path in world.files()] == [old]


@pytest.mark.parametrize("kind", ["forked", "imported"])
def test_what_a_fork_goes_on_from_stays(world: World, kind: str) -> None:
    parent, child = session(world), session(world)
    with closing(SqliteLog.open(world.files()[-1], commands=COMMANDS)) as log:
        if kind == "forked":
            log.submit(seal(SessionForked(parent=parent, at=3), "main", 0))
        else:
            held = log.hold()
            body = LogImported(source=f"/old/{parent}.muse", format_name="muse", events=3)
            log.append([seal(body, "main", 0)], [], log.head().seq, held.epoch)
    done = world.run("rm", parent, "--yes")
    assert done.code == 2
    assert child in done.err
    assert len(world.files()) == 2
    assert world.run("rm", child, "--yes").code == 0
    assert world.run("rm", parent, "--yes").code == 0
    assert world.files() == []


def test_several_by_age_and_state(world: World) -> None:
    name = session(world)
    stopped = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}), "stops")
    world.begun()
    stopped.kill()
    stopped.communicate()
    assert world.run("rm", "--older-than", "soon").code == 2
    assert world.run("rm", "--older-than", "30d", "--yes").out == ""
    assert [json.loads(line)["session"] for line in world.run("rm", "--ended", "-n", "--json").out.splitlines()] == [
        name
    ]
    other = world.root / "other"
    other.mkdir()
    assert world.run("rm", "--ended", "--yes", cwd=other).out == ""
    assert world.run("rm", "--ended", "--all", "--yes", cwd=other).code == 0
    assert len(world.files()) == 1


def test_a_damaged_session_can_be_removed_and_a_copy_elsewhere_is_not_ours(world: World) -> None:
    name = session(world)
    copy = world.root / "copy.muse"
    copy.write_bytes(world.files()[0].read_bytes())
    data = bytearray(copy.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    world.files()[0].write_bytes(data)
    assert world.run("rm", str(copy), "--yes").code == 2
    assert world.run("rm", name, "--yes").code == 0
    assert copy.exists()
    assert kept(world, name) == []


def test_a_copy_of_a_removed_session_that_comes_back_is_told_apart(world: World) -> None:
    name = session(world)
    path, data = world.files()[0], world.files()[0].read_bytes()
    assert world.run("rm", name, "--yes").code == 0
    path.write_bytes(data)
    (entry,) = [json.loads(line) for line in world.run("ls", "--json").out.splitlines()]
    assert entry["removed"].startswith("20")
    assert "came back" in world.run("ls").out
    assert world.run("log", name).code == 0
    assert world.run("rm", name, "--yes").code == 0
    assert world.files() == []


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_killed_at_any_step_there_is_the_session_or_its_tombstone(world: World, step: int) -> None:
    name = session(world)
    done = world.run("rm", name, "--yes", env={"MUSE_FAILPOINT": f"in_removal:{step}"})
    assert done.code == -signal.SIGKILL
    if world.files():
        assert step == 1
        assert world.run("verify", name).code == 0
        assert [json.loads(line)["removed"] for line in world.run("ls", "--json").out.splitlines()] == [""]
    else:
        assert "was removed on" in world.run("show", name).err
    assert world.run("gc").code == 0
    assert list(world.home.rglob("*.pending")) == []
    assert (name in world.run("ls", "--json").out) is (step == 1)
    if step == 1:
        assert world.run("rm", name, "--yes").code == 0
    assert "was removed on" in world.run("show", name).err
    old = [path for path in kept(world, name) if not path.endswith((".lock", "-wal", "-shm"))]
    assert old == []


def test_ls_tells_what_was_removed(world: World) -> None:
    name = session(world)
    world.run("rm", name, "--yes", "--why", "done with it")
    assert world.run("ls").out == ""
    assert "1 removed session: muse ls --removed" in world.run("ls", "--all").err
    (line,) = world.run("ls", "--removed").out.splitlines()
    assert all(word in line for word in (name[-8:], "removed", "done with it"))
    (stone,) = [json.loads(line) for line in world.run("ls", "--removed", "--json").out.splitlines()]
    assert (stone["session"], stone["why"]) == (name, "done with it")


@pytest.mark.parametrize("step", [1, 2, 3])
def test_gc_in_the_middle_of_a_removal_takes_no_tombstone_away(world: World, step: int) -> None:
    name = session(world)
    at = world.root / "stopped"
    with ThreadPoolExecutor(1) as other:
        removing = other.submit(
            world.run, "rm", name, "--yes", env={"MUSE_FAILPOINT": f"in_removal:{step}:stop:{at}"}
        )  # fmt: skip
        eventually(lambda: at.exists() and len(at.read_bytes().splitlines()) == step)
        collected = world.run("gc")
        os.kill(int(at.read_text().splitlines()[-1]), signal.SIGCONT)
        removed = removing.result()
    assert (collected.code, removed.code) == (0, 0), (collected, removed)
    assert world.files() == []
    assert [path.name for path in (world.home / "removed").iterdir()] == [f"{name}.json"]
    assert "was removed on" in world.run("show", name).err
