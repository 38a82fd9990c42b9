"""Sessions are of their folder under whatever name it has now (field bug B61: sessions vanish)."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.ui.driving import World

HELLO = {"text": "All is well."}


def git(folder: Path, *args: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *name, "-C", str(folder), *args], check=True, capture_output=True)


def made_in(world: World, folder: Path, prompt: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    assert world.run("exec", "-q", "-m", world.script(HELLO), prompt, cwd=folder).code == 0
    return world.files()[-1].stem


def listed(world: World, folder: Path) -> list[str]:
    done = world.run("ls", "--json", cwd=folder)
    return [json.loads(line)["session"] for line in done.out.splitlines()]


@pytest.mark.parametrize("kind", ["renamed", "its parent renamed", "copied with its repository"])
def test_a_folder_with_a_new_name_keeps_its_sessions(world: World, kind: str) -> None:
    project, other = world.root / "projects" / "old name" / "sub", world.root / "other"
    project.mkdir(parents=True)
    if kind.startswith("copied"):
        git(project.parent, "init", "-q")
        git(project.parent, "commit", "-q", "--allow-empty", "-m", "x")
    name = made_in(world, project, "first")
    elsewhere = made_in(world, other, "second")
    if kind == "renamed":
        moved = project.rename(project.with_name("new name"))
    elif kind == "its parent renamed":
        moved = project.parent.rename(project.parent.with_name("new name")) / "sub"
    else:
        new = world.root / "elsewhere"
        subprocess.run(["cp", "-r", str(project.parent), str(new)], check=True)
        subprocess.run(["rm", "-r", str(project.parent)], check=True)
        moved = new / "sub"
    assert listed(world, moved) == [name]
    assert world.run("log", "-n", "1", "--json", cwd=moved).code == 0
    done = world.run("resume", "last", "go on", "-q", "-m", world.script(HELLO, {"text": "Here."}), cwd=moved)
    assert (done.code, done.out) == (0, "Here.\n"), done
    opened = [event for event in world.events(name) if event["type"] == "session.opened"]
    assert [Path(event["body"]["workspace"]) for event in opened] == [project, moved]
    assert listed(world, other) == [elsewhere]
    assert world.run("log", name[-8:], "-n", "1", cwd=Path("/")).code == 0  # by its id from anywhere


def test_a_folder_that_is_still_there_is_no_other_one(world: World) -> None:
    project = world.root / "one"
    project.mkdir()
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "x")
    name = made_in(world, project, "first")
    subprocess.run(["cp", "-r", str(project), str(world.root / "two")], check=True)
    assert listed(world, world.root / "two") == []
    assert listed(world, project) == [name]


def test_a_gone_folder_is_none_that_was_never_it(world: World) -> None:
    name = made_in(world, world.root / "one", "first")
    two = world.root / "two"
    two.mkdir()
    (world.root / "one").rmdir()
    assert listed(world, two) == []
    done = world.run("resume", name, "go on", cwd=two)
    assert done.code == 2
    assert "the folder of this session is gone" in done.err
