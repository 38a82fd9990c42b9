"""`muse gc`: what no session needs goes, and everything else stays."""

import json
import os
import secrets
from contextlib import closing
from pathlib import Path

from muse.event.kinds import COMMANDS
from muse.log.sqlite import SqliteLog
from tests.ui.driving import WAITS, World, eventually, shell

LONG_AGO = 1_000_000_000


def session(world: World) -> str:
    """A finished session; its id."""
    model = world.script({"uses": [shell("echo hi")]}, {"text": "ok"})
    assert world.run("exec", "--yolo", "-q", "-m", model, "a task").code == 0
    return world.files()[-1].stem


def old(path: Path, content: bytes = b"x") -> Path:
    """A file that nobody has touched for long."""
    path.write_bytes(content)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def said(world: World, *args: str) -> dict[str, str]:
    """What goes, and what stays: path → why."""
    done = world.run("gc", "--json", *args)
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.out.splitlines()]
    return {line["path"]: line.get("stays", "goes") for line in lines}


def tree(world: World) -> set[Path]:
    """Every file and folder of the home, but what readers of logs come and go with."""
    beside = ("-wal", "-shm")
    return {path for path in world.home.rglob("*") if not path.name.endswith(beside) and "cache" not in path.parts}


def test_leftovers_go_and_sessions_are_as_they_were(world: World) -> None:
    name = session(world)
    before = [world.run("log", "--json").out, world.run("verify").out]
    folder = world.files()[0].parent
    goes = [
        old(folder / "20200101-000000-aaaaaaaa.lock"),
        old(folder / "20200101-000000-aaaaaaaa.muse-shm"),
        old(folder / "20200101-000000-aaaaaaaa.muse-wal", b""),
        old(folder / ".20200101-000000-bbbbbbbb.muse.0123abcd.new"),
    ]
    SqliteLog.create(folder / "20200101-000000-cccccccc.muse", "20200101-000000-cccccccc", commands=COMMANDS).close()
    goes.append(folder / "20200101-000000-cccccccc.muse")
    os.utime(goes[-1], (LONG_AGO, LONG_AGO))
    (world.home / "run" / "20200101-000000-dddddddd").mkdir()
    goes += [world.home / "run" / "20200101-000000-dddddddd", world.home / "run" / name]
    os.utime(goes[-2], (LONG_AGO, LONG_AGO))
    all_there = tree(world)
    planned = said(world, "--dry-run")
    assert planned == {str(path): "goes" for path in goes}
    assert tree(world) == all_there
    assert said(world) == planned
    assert [path for path in goes if path.exists()] == []
    assert {path.name for path in folder.iterdir() if path.suffix in (".muse", ".lock")} == {
        f"{name}.muse",
        f"{name}.lock",
    }
    assert said(world) == {}
    assert [world.run("log", "--json").out, world.run("verify").out] == before
    assert world.run("resume", name, "more", "-m", world.script({"uses": [shell("pwd")]}, {"text": "x"})).code == 0


def test_what_is_young_in_use_or_the_only_copy_stays(world: World) -> None:
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "x"}), "runs")
    world.begun()
    name = world.files()[0].stem
    folder = world.files()[0].parent
    (folder / "20200101-000000-aaaaaaaa.lock").write_bytes(b"")
    SqliteLog.create(folder / "20200101-000000-bbbbbbbb.muse", "20200101-000000-bbbbbbbb", commands=COMMANDS).close()
    wal = old(folder / "20200101-000000-cccccccc.muse-wal")
    calls = world.home / "run" / "20200101-000000-dddddddd" / "calls" / "main-1.1"
    calls.mkdir(parents=True)
    old(calls / "output", b"the only output")
    os.utime(calls.parent.parent, (LONG_AGO, LONG_AGO))
    found = said(world)
    assert "goes" not in found.values()
    assert set(found) == {str(world.home / "run" / name), str(wal), str(calls.parent.parent)}
    running.kill()
    running.communicate()
    assert "still running" in said(world)[str(world.home / "run" / name)]  # its command is
    (world.work / "go").touch()
    eventually(lambda: "resume the session" in said(world)[str(world.home / "run" / name)])
    assert world.run("resume", name).code == 0
    assert world.events()[-1]["type"] == "session.closed"
    assert (world.work / "count").read_text() == "start\nend\n"
    assert said(world)[str(world.home / "run" / name)] == "goes"


def test_how_a_background_process_ended_stays_until_the_log_holds_it(world: World) -> None:
    command = "(until [ -e go ]; do sleep 0.02; done; touch gone; exit 7) >/dev/null &"
    steps = world.script({"uses": [shell(command)]}, {"text": "x"}, {"text": "more"})
    assert world.run("exec", "--yolo", "-m", steps, "starts a server").code == 0
    folder = str(world.home / "run" / world.files()[0].stem)
    (world.work / "go").touch()
    eventually(lambda: "resume the session" in said(world).get(folder, ""))
    assert world.run("resume", "last", "and more", "-m", steps).code == 0
    assert "exit code 7" in [e["body"]["how"] for e in world.events() if e["type"] == "process.reaped"]
    assert said(world)[folder] == "goes"


def test_contents_that_no_event_names_go(world: World) -> None:
    session(world)
    path = world.files()[0]
    noise = secrets.token_bytes(300_000)
    with closing(SqliteLog.open(path, commands=COMMANDS)) as log:
        log.put_blob(noise, secrets.token_bytes(32))
    assert str(path) not in said(world)  # somebody may be about to name it
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert said(world, "-n")[str(path)] == "goes"
    (one,) = [json.loads(line) for line in world.run("gc", "--json").out.splitlines() if "blobs" in line]
    assert (one["what"], one["size"]) == ("blobs", 300_000)
    with closing(SqliteLog.open(path, commands=COMMANDS, read_only=True)) as log:
        assert log.unnamed_blobs() == (0, 0)
    assert world.run("verify").code == 0


def test_snapshots_of_a_folder_go_with_the_last_session_of_it(world: World) -> None:
    session(world)
    (folder,) = (world.home / "snapshots").iterdir()
    assert str(folder) not in said(world, "-n")
    other = world.root / "other"
    other.mkdir()
    model = world.script({"uses": [shell("echo new > b")]}, {"text": "ok"})
    assert world.run("exec", "--yolo", "-q", "-m", model, "elsewhere", cwd=other).code == 0
    (second,) = set((world.home / "snapshots").iterdir()) - {folder}
    third = world.run("exec", "--yolo", "-q", "-m", model, "once more", cwd=other)
    assert third.code == 0
    done = world.run("rm", world.files()[-1].stem, "--yes", "--json")
    assert [part["what"] for part in json.loads(done.out)["parts"]] == ["log", "run folder"]
    assert second.exists()
    done = world.run("rm", world.files()[-1].stem, "--yes", "--json")
    assert "snapshots" in [part["what"] for part in json.loads(done.out)["parts"]]
    assert not second.exists()
    world.files()[0].unlink()
    assert said(world)[str(folder)] == "goes"
    assert list((world.home / "snapshots").iterdir()) == []
