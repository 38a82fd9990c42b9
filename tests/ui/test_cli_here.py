"""What is left out of an address means this folder: `last`, the running session, and the listing."""

import json
import termios
from pathlib import Path

import pytest

from muse.event.kinds import QuestionAsked
from muse.ui.cli.inbox import Waiting, describe
from muse.view.visible import columns
from tests.ui.driving import WAITS, World, eventually, shell
from tests.view.made import event

HELLO = {"text": "All is well."}


def made_in(world: World, folder: Path, prompt: str) -> str:
    """The id of a finished session of that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set(world.files())
    assert world.run("exec", "-m", world.script(HELLO), prompt, cwd=folder).code == 0
    (file,) = set(world.files()) - before
    return file.stem


def prompt_of_last(world: World, folder: Path, *command: str) -> str:
    done = world.run(*(command or ("replay",)), "--json", cwd=folder)
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.out.splitlines()]
    return str(next(line["body"]["text"] for line in lines if line["type"] == "user.prompted"))


def test_last_is_the_last_session_of_this_folder(world: World) -> None:
    one, two = world.root / "one", world.root / "two"
    made_in(world, one, "first")
    made_in(world, two, "second")
    assert prompt_of_last(world, one) == "first"
    assert prompt_of_last(world, two) == "second"
    assert prompt_of_last(world, one, "log", "last") == "first"
    link = world.root / "link"
    link.symlink_to(one)
    assert prompt_of_last(world, link) == "first"


def test_a_resume_without_a_session_never_goes_on_in_another_folder(world: World) -> None:
    one, two = world.root / "one", world.root / "two"
    here = made_in(world, one, "first")
    there = made_in(world, two, "second")
    sizes = {file.stem: file.stat().st_size for file in world.files()}
    assert f"session {here}" in world.run("resume", cwd=one).err
    nowhere = world.root / "three"
    nowhere.mkdir()
    for command in (["resume"], ["resume", "last", "go on"], ["replay"], ["cancel"], ["steer", "", "hm"]):
        done = world.run(*command, cwd=nowhere)
        assert done.code == 2
        assert "there is no session of ~/three" in done.err
        assert there[-8:] in done.err
        assert "~/two" in done.err
    assert {file.stem: file.stat().st_size for file in world.files()} == sizes


def test_in_a_folder_below_the_project_its_last_session_is_meant(world: World) -> None:
    project = world.root / "project"
    made_in(world, project, "above")
    (project / ".git").mkdir()
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    assert prompt_of_last(world, deep) == "above"
    made_in(world, project / "src", "nearer")
    assert prompt_of_last(world, deep) == "nearer"
    assert prompt_of_last(world, project) == "above"


def test_a_session_above_the_repository_is_another_project(world: World) -> None:
    made_in(world, world.root / "all", "everything")
    inner = world.root / "all" / "inner"
    (inner / ".git").mkdir(parents=True)
    assert world.run("replay", cwd=inner).code == 2
    assert prompt_of_last(world, world.root / "all") == "everything"


def test_resume_of_a_session_of_another_folder_says_where_and_how(world: World) -> None:
    here = made_in(world, world.root / "one", "first")
    done = world.run("resume", here, "more", "-m", world.script(HELLO, HELLO), cwd=world.work)
    assert done.code == 0
    assert done.err.splitlines()[1] == "in ~/one, mode default"
    again = world.run("resume", here, "more", "-m", world.script(HELLO, HELLO, HELLO), cwd=world.root / "one")
    assert "in ~/one" not in again.err


def test_the_listing_is_of_this_folder_and_says_how_many_are_elsewhere(world: World) -> None:
    one, two = world.root / "one", world.root / "two"
    made_in(world, one, "first")
    made_in(world, two, "second")
    made_in(world, two, "third")
    done = world.run("ls", cwd=one)
    assert "first" in done.out
    assert len(done.out.splitlines()) == 1
    assert done.err == "2 sessions of other folders: muse ls --all\n"
    assert [json.loads(line)["prompt"] for line in world.run("ls", "--json", cwd=two).out.splitlines()] == [
        "third", "second",
    ]  # fmt: skip
    everything = world.run("ls", "--all", cwd=one)
    assert len(everything.out.splitlines()) == 3
    assert everything.err == ""
    none = world.run("ls", cwd=world.work)
    assert (none.out, "no session" in none.err, "3 sessions of other folders" in none.err) == ("", True, True)


def test_what_is_said_without_an_address_goes_to_the_session_that_runs_here(world: World) -> None:
    world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "runs")
    eventually((world.work / "begun").exists)
    made_in(world, world.root / "two", "elsewhere")
    ended = world.run("exec", "-m", world.script(HELLO), "ended since")
    assert ended.code == 0
    said = world.run("steer", "use make", "--json")
    assert said.code == 0, said
    running = world.files()[0].stem
    assert json.loads(said.out)["session"] == running
    assert world.run("cancel").code == 0
    with_text = [event["type"] for event in world.events(running)]
    assert {"agent.steered", "cancel.requested"} <= set(with_text)


@pytest.mark.parametrize("command", [["cancel"], ["steer", "hello"]])
def test_of_two_that_run_here_one_must_be_named(world: World, command: list[str]) -> None:
    for _ in range(2):
        world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "runs")
    eventually(lambda: len(world.files()) == 2 and (world.work / "begun").exists())
    eventually(lambda: world.run("ls").out.count("running (") == 2)
    done = world.run(*command)
    assert done.code == 2
    assert all(file.stem[-8:] in done.err for file in world.files())


def test_approve_alone_answers_only_what_waits_in_this_folder(world: World) -> None:
    world.start("exec", "-m", world.script({"uses": [shell("touch made")]}, HELLO), "asks")
    eventually(lambda: world.run("approvals").out)
    elsewhere = world.root / "two"
    elsewhere.mkdir()
    done = world.run("approve", cwd=elsewhere)
    assert done.code == 2
    assert f"{world.files()[0].stem[-8:]}@" in done.err
    assert "~/work" in done.err
    assert world.run("approve").code == 0


def test_what_an_agent_in_its_own_working_tree_asks_is_told_without_that_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = event(QuestionAsked(call="main.1/2", text="Which?"), 9, agent="main.1")
    for folder, words in ((str(tmp_path.resolve()), ""), ("/elsewhere", "  in /elsewhere")):
        one = Waiting("4f2k@9", "s", tmp_path / "s.muse", asked, folder, "/home/ada/worktrees/s/main.1/work")
        head = describe(one)[0]
        assert head.startswith("4f2k@9  main.1 asks  ")
        assert head.endswith(f"{words}  in a working tree of its own")


def test_of_sessions_with_one_name_the_newest_is_meant(world: World) -> None:
    for text in ("older", "newer"):
        assert world.run("exec", "--name", "tidy", "-m", world.script(HELLO), text).code == 0
    assert prompt_of_last(world, world.work, "replay", "tidy") == "newer"
    assert "newest" in world.run("exec", "--help").out


def test_a_newer_session_that_cannot_be_read_is_not_passed_over_in_silence(world: World) -> None:
    made_in(world, world.work, "good")
    foreign = world.files()[0].with_name("20990101-000000-aaaaaaaa.muse")
    foreign.write_bytes(b"no log at all, " * 100)
    assert prompt_of_last(world, world.work) == "good"
    assert "aaaaaaaa cannot be read" in world.run("replay").err


def test_a_listing_on_a_terminal_is_one_line_a_session_at_80_columns(world: World) -> None:
    deep = world.root / ("a-very-long-name-of-a-folder-" * 3) / "漢字"
    made_in(world, deep, "mend the failing tests of the date parser, and then everything else")
    world.start("exec", "-m", world.script({"uses": [shell("touch made")]}, HELLO), "asks, and waits for a person")
    eventually(lambda: world.run("approvals").out)
    for width in (80, 60, 40):
        on = world.terminal("ls", "--all", "--no-color")
        termios.tcsetwinsize(on.slave, (24, width))
        code, shown = on.end()
        lines = [line for line in shown.replace("\r", "").split("\n") if line]
        assert (code, len(lines)) == (0, 2)
        assert max(columns(line) for line in lines) <= width
        if width == 80:
            assert "waiting for approval" in shown


def test_the_last_line_of_replay_says_at_80_columns_how_to_get_help_and_how_to_leave(world: World) -> None:
    made_in(world, world.work, "do it")
    on = world.terminal("replay", "--no-color")
    termios.tcsetwinsize(on.slave, (24, 80))
    on.expect(f"#1/{len(world.events())} ")
    on.expect("? help · q quit")
    on.send("q")
    assert on.end()[0] == 0
