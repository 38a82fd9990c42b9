"""What a look starts, counted outside, and that what it spares itself changes nothing of what it finds."""

import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from muse.effect.snapshot import scan
from tests.effect.snapshot.conftest import Seen, World

FILE, NONE = 0o100644, 0


@pytest.fixture
def commands(world: World, tmp_path: Path) -> Path:
    """A file with a line for each git command that muse starts from now on."""
    told, program = tmp_path / "commands", tmp_path / "bin" / "git"
    program.parent.mkdir()
    real = shutil.which("git")
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in status|update-index|write-tree|diff-tree|cat-file|ls-files) "
        f'echo "$word" >> "{told}"; esac; done\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    world.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    world.snapshots.close()
    world.snapshots = world.owner()
    world.snapshots.take()
    told.write_text("")
    return told


def test_a_step_that_changes_a_few_files_starts_two_commands(world: World, commands: Path) -> None:
    for number in range(40):
        world.write(f"sub/{number}", str(number))
    world.repository()
    world.snapshots.take()
    world.snapshots.take()
    commands.write_text("")

    def do() -> None:
        world.write("sub/1", "changed")
        world.write("new/2", "new")
        (world.root / "sub" / "3").unlink()

    assert world.changed(do) == {
        b"sub/1": Seen(b"1", b"changed", (FILE, FILE)),
        b"new/2": Seen(None, b"new", (NONE, FILE)),
        b"sub/3": Seen(b"3", None, (FILE, NONE)),
    }
    assert commands.read_text().split() == ["status", "status"]
    assert world.changed(lambda: None) == {}
    assert commands.read_text().split() == ["status"] * 4


def test_many_changes_go_into_the_index_once(world: World, commands: Path) -> None:
    for number in range(scan.LAID_OVER_MAX + 1):
        world.write(f"{number}", "1")
    found = world.changed(lambda: world.write("one", "more"))
    assert found == {b"one": Seen(None, b"more", (NONE, FILE))}
    said = commands.read_text().split()
    assert (said.count("status"), said.count("update-index"), said.count("write-tree")) == (2, 1, 1)


def test_a_large_change_goes_into_the_index(world: World, commands: Path) -> None:
    data = bytes(scan.LAID_OVER_BYTES_MAX + 1)
    assert world.changed(lambda: world.write("a", data)) == {b"a": Seen(None, data, (NONE, FILE))}
    assert "update-index" in commands.read_text()
    commands.write_text("")
    assert world.changed(lambda: None) == {}
    assert commands.read_text().split() == ["status", "status"]


def test_an_index_that_somebody_else_changed_is_not_built_on(world: World) -> None:
    for name in ("a", "b", "c"):
        world.write(name, name)
    before = world.snapshots.take()
    (index,) = world.muse.glob("snapshots/*/owners/*/index")
    index.unlink()
    (world.root / "b").unlink()
    after = world.snapshots.take()
    assert world.between(before, after) == {b"b": Seen(b"b", None, (FILE, NONE))}


@pytest.mark.parametrize("laid_over", [True, False])
def test_a_folder_that_becomes_a_link_to_one_with_the_same_files(
    world: World, monkeypatch: pytest.MonkeyPatch, laid_over: bool
) -> None:
    monkeypatch.setattr(scan, "LAID_OVER_MAX", scan.LAID_OVER_MAX if laid_over else 0)
    world.write("a/x", "1")
    world.write("b/x", "2")

    def do() -> None:
        shutil.rmtree(world.root / "a")
        (world.root / "a").symlink_to("b")

    assert world.changed(do) == {
        b"a/x": Seen(b"1", None, (FILE, NONE)),
        b"a": Seen(None, b"b", (NONE, 0o120000)),
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_name_of_a_look_is_that_of_one_that_begins_afresh(world: World, tmp_path: Path, seed: int) -> None:
    """Whatever stays out of the index: an owner who reads everything anew finds the same tree."""
    chance = random.Random(seed)
    world.repository()
    (tmp_path / "other").mkdir()
    fresh = World(tmp_path / "other")
    for _ in range(25):
        for _ in range(chance.choice((0, 1, 1, 2, 40))):
            meddle(chance, world.root)
        mine = world.snapshots.take()
        fresh.close()
        shutil.rmtree(fresh.muse, ignore_errors=True)
        anew = fresh.owner(root=world.root)
        assert anew.take().id == mine.id
    fresh.close()


def meddle(chance: random.Random, root: Path) -> None:
    """Do something to a path of a small folder."""
    path = root.joinpath(*chance.choices(["a", "b", "a.b", "c"], k=chance.randint(1, 3)))
    for parent in reversed(path.parents):
        if parent.is_relative_to(root) and parent != root and (parent.is_symlink() or parent.is_file()):
            parent.unlink()
    what = chance.randrange(6)
    if path.is_dir() and not path.is_symlink():
        if what > 2:
            return
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == 0:
        path.unlink(missing_ok=True)
    elif what == 1:
        path.unlink(missing_ok=True)
        path.symlink_to(chance.choice(["a", "nowhere", ".."]))
    elif what == 2 and path.is_file() and not path.is_symlink():
        path.chmod(path.stat().st_mode ^ stat.S_IXUSR)
    else:
        path.unlink(missing_ok=True)
        path.write_bytes(bytes([chance.randrange(3)]) * chance.choice((0, 1, 300)))
