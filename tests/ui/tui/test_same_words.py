"""The screen, `--plain`, `--detail`, `--state` and `--json` say the same."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from muse.ui.cli import cli
from muse.view.visible import one_line
from tests.ui.tui.made import write_session
from tests.ui.tui.pilots import Reader, reads

STATES = (1, 20, 32, 43, 59, 62, 71)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 71 events."""
    path = tmp_path_factory.mktemp("session") / "story.muse"
    write_session(path)
    return path


def said(*args: str) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli, list(args), standalone_mode=False)
    assert done.exception is None, done.output
    return done.stdout


def by_event(printed: str) -> dict[int, list[str]]:
    """Rows with what stands below them, by their numbers."""
    found: dict[int, list[str]] = {}
    for line in printed.splitlines():
        if line.startswith("#"):
            found[int(line[1:].split()[0])] = [line]
        else:
            list(found.values())[-1].append(line)
    return found


def test_the_panes_say_what_plain_says(session: Path) -> None:
    printed = by_event(said("replay", str(session), "--detail"))
    states = {seq: said("replay", f"{session}@{seq}", "--state").splitlines() for seq in STATES}
    assert len(printed) == 71

    async def story(reader: Reader) -> None:
        for seq in range(1, 72):
            reader.screen.jump(seq)
            reader.screen.settle()
            words, *detail = reader.screen.detail.text.split("\n")
            row, *below = printed[seq]
            assert one_line(row).endswith(one_line(words)), seq
            assert [line.strip() for line in detail] == [line.strip() for line in below], seq
            if seq in states:
                assert [line.rstrip() for line in reader.screen.state.text.split("\n")] == states[seq], seq

    reads(session, story, size=(160, 40))


def test_replay_and_log_print_the_same_bytes(session: Path) -> None:
    assert said("replay", str(session), "--plain") == said("log", str(session))
    assert said("replay", str(session), "--json") == said("log", str(session), "--json")
    assert said("replay", f"{session}:main.2@40", "--plain", "--failed") == said(
        "log", f"{session}:main.2@40", "--failed"
    )


def test_a_state_as_json_names_what_is_open(session: Path) -> None:
    shown = json.loads(said("replay", f"{session}@59", "--state", "--json"))
    assert shown["seq"] == 59
    state = shown["state"]
    assert [(agent["agent"], agent["turn"]) for agent in state["agents"]] == [
        ("main", True), ("main.1", False), ("main.2", False)
    ]  # fmt: skip
    (call,) = state["agents"][0]["calls"]
    assert (call["call"], call["phase"], call["title"], call["since"]) == (
        "main/14", "running", "make deploy SHOP=test", 59
    )  # fmt: skip
    assert state["agents"][0]["request_tokens"] == 1_200 + 900 * 13
    waiting = json.loads(said("replay", f"{session}@57", "--state", "--json"))["state"]
    assert [(one["seq"], one["what"]) for one in waiting["approvals"]] == [(57, "shell make deploy SHOP=test")]
    closed = json.loads(said("replay", str(session), "--state", "--json"))["state"]
    assert (closed["closed"], closed["outcome"], closed["reason"]) == (True, "cancelled", "I look myself")


def test_a_state_takes_no_filter(session: Path) -> None:
    done = CliRunner().invoke(cli, ["replay", str(session), "--state", "--failed"], standalone_mode=False)
    assert "takes no filters" in str(done.exception)
