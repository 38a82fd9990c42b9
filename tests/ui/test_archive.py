"""`muse archive`: smaller, still readable, and back again byte for byte; killed at every step nothing is lost."""

import hashlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from muse.event.kinds import COMMANDS, SessionForked
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from tests.ui.driving import WAITS, World, eventually, shell


def session(world: World, prompt: str = "a task") -> str:
    """A finished session; its id."""
    model = world.script({"uses": [shell("seq 20000")]}, {"text": "ok"})
    assert world.run("exec", "--yolo", "-q", "-m", model, prompt).code == 0
    return world.files()[-1].stem


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(world: World, name: str) -> list[str]:
    """What the commands that read say of a session."""
    told = []
    for command in (
        ("log", name, "--json"), ("replay", name, "--json"), ("export", name), ("export", name, "--format", "md"),
        ("show", f"{name}@3"), ("verify", name),
    ):  # fmt: skip
        done = world.run(*command)
        assert done.code == 0, done
        told.append(done.out)
    return told


def test_an_archived_session_is_small_readable_and_comes_back_as_it_was(world: World) -> None:
    name = session(world, "keep this")
    other = session(world)
    path = world.files()[0]
    before = said(world, name)
    done = world.run("archive", name, "--yes")
    assert done.code == 0, done
    assert "→" in done.err
    assert [path.stem for path in world.files()] == [other]
    packed = world.home / "archive" / f"{name}.muse.zst"
    assert packed.stat().st_mode & 0o777 == 0o600
    assert name not in world.run("ls", "--json").out
    assert "1 archived session" in world.run("ls", "--all").err
    (record,) = [json.loads(line) for line in world.run("ls", "--archived", "--json").out.splitlines()]
    assert (record["session"], record["size"]) == (name, packed.stat().st_size)
    assert record["size"] < record["original_size"] / 3
    assert "keep this" in world.run("ls", "--archived").out
    assert said(world, name) == before
    assert exported(world, name[-8:]) == exported(world, str(packed)) == before[2]
    assert list((world.home / "cache" / "unpacked").iterdir()) == []
    for command in (("resume", name, "go on"), ("steer", name, "hello"), ("archive", name, "--yes")):
        done = world.run(*command)
        assert (done.code, "archive" in done.err) == (2, True), done
    assert world.run("archive", "--restore", name[-8:]).code == 0
    assert [path.stem for path in world.files()] == [name, other]
    assert digest(path) == record["sha256"]
    assert exported(world, name) == before[2]
    assert [path.name for path in (world.home / "archive").iterdir()] == []
    assert world.run("resume", name, "more", "-m", world.script({"text": "x"}, {"text": "x"}, {"text": "y"})).code == 0


def test_somewhere_else_and_removed_from_there(world: World) -> None:
    name = session(world)
    target = world.root / "disk two"
    assert world.run("archive", name, "--to", str(target), "--yes").code == 0
    packed = target / f"{name}.muse.zst"
    assert world.run("verify", name).code == 0
    data = packed.read_bytes()
    packed.write_bytes(data[: len(data) // 2])
    assert world.run("verify", name).code == 6
    assert world.run("archive", "--restore", name).code == 6
    packed.unlink()
    assert "was it moved?" in world.run("log", name).err
    packed.write_bytes(data)
    assert world.run("rm", name, "--dry-run").code == 0
    done = world.run("rm", name, "--yes", "--why", "no use")
    assert done.code == 0, done
    assert list(target.iterdir()) == []
    assert "was removed on" in world.run("verify", name).err


def test_what_runs_is_damaged_or_has_forks_stays(world: World) -> None:
    name, child = session(world), session(world)
    with closing(SqliteLog.open(world.files()[-1], commands=COMMANDS)) as log:
        log.submit(seal(SessionForked(parent=name, at=3), "main", 0))
    assert world.run("archive", name, "--yes").code == 2
    path = world.files()[-1]
    whole = path.read_bytes()
    at = whole.index(b"20000 bytes") if b"20000 bytes" in whole else whole.index(b'"seq":3,') + 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert world.run("archive", child, "--yes").code == 6
    assert path.exists()
    path.write_bytes(whole)
    running = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, {"text": "x"}), "runs")
    world.begun()
    assert world.run("archive", world.files()[-1].stem, "--yes").code == 7
    running.kill()
    running.communicate()
    assert not (world.home / "archive").exists() or list((world.home / "archive").iterdir()) == []


def exported(world: World, name: str) -> str:
    done = world.run("export", name)
    assert done.code == 0, done
    return done.out


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_killed_at_any_step_there_is_the_session_or_its_archive(world: World, step: int) -> None:
    name = session(world)
    before, sha256 = exported(world, name), digest(world.files()[0])
    env = {"MUSE_FAILPOINT": f"in_archiving:{step}"}
    assert world.run("archive", name, "--yes", env=env).code == -signal.SIGKILL
    if step < 4:
        assert digest(world.files()[0]) == sha256
    for path in world.home.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert world.run("gc").code == 0
    assert [path.name for path in (world.home / "archive").iterdir() if path.name.startswith(".")] == []
    if step < 4:
        assert world.run("archive", name, "--yes").code == 0
    assert exported(world, name) == before
    assert world.files() == []


@pytest.mark.parametrize("step", [1, 2, 3])
def test_what_is_said_to_a_session_while_it_is_put_away_is_not_lost(world: World, step: int) -> None:
    name = session(world)
    at = world.root / "stopped"
    with ThreadPoolExecutor(1) as other:
        setting = {"MUSE_FAILPOINT": f"in_archiving:{step}:stop:{at}"}
        archiving = other.submit(world.run, "archive", name, "--yes", env=setting)
        eventually(lambda: at.exists() and len(at.read_bytes().splitlines()) == step)
        said = world.run("steer", name, "do not forget this")
        os.kill(int(at.read_text().splitlines()[-1]), signal.SIGCONT)
        done = archiving.result()
    assert (said.code, done.code) == (0, 7), (said, done)
    assert "somebody spoke to" in done.err
    assert list((world.home / "archive").iterdir()) == []
    assert "do not forget this" in world.run("log", name).out
    assert world.run("verify", name).code == 0


@pytest.mark.parametrize("step", [1, 2])
def test_killed_while_it_is_brought_back_it_is_there(world: World, step: int) -> None:
    name = session(world)
    before = exported(world, name)
    assert world.run("archive", name, "--yes").code == 0
    done = world.run("archive", "--restore", name, env={"MUSE_FAILPOINT": f"in_archiving:{step}"})
    assert done.code == -signal.SIGKILL
    for path in world.home.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert world.run("gc").code == 0
    assert exported(world, name) == before
    assert [path.stem for path in world.files()] == [name]
    assert list((world.home / "archive").iterdir()) == []
