"""What a watcher's terminal shows of streams: every word once, whatever is missed, repeated, late or told otherwise."""

import io
import re
import sys
from typing import Any

import pytest

from muse.event.content import Block
from muse.event.envelope import Event
from muse.event.kinds import KINDS, ModelFailed, ModelRequested, ModelResponded, ToolFinished, ToolStarted
from muse.event.signal import Piece
from muse.ui.cli.watched import EARLY_MAX, Watched


class OnScreen(io.StringIO):
    """Standard error as a terminal takes it: lines, the last of which may be written over."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What stands there, without rows of events."""
        text = re.sub(r"[^\n]*\r\x1b\[K", "", self.getvalue())
        return [line for line in text.split("\n") if line and not line.startswith("#")]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> OnScreen:
    """A terminal of 60 columns without colour."""
    made = OnScreen()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    return made


@pytest.fixture
def live(screen: OnScreen) -> Watched:
    return Watched(as_json=False, quiet=False)


class Told:
    """Events in their order."""

    def __init__(self, live: Watched) -> None:
        self.live = live
        self.seq = 0

    def __call__(self, body: Any, agent: str = "") -> None:
        self.seq += 1
        lane = agent or body.call.partition("/")[0]
        time = "2026-11-30T09:00:00.000000Z"
        name = next(name for name, kind in KINDS.items() if kind.body is type(body))
        self.live.event(Event(self.seq, f"{self.seq:032}", time, name, 1, lane, 0, 1, body))


@pytest.fixture
def told(live: Watched) -> Told:
    return Told(live)


def asked(call: str, attempt: int = 1) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=attempt, provider="p", model="m", builder="b/1", items=1, request_sha256="0", request_bytes=1
    )


def answered(call: str, text: str, attempt: int = 1) -> ModelResponded:
    blocks = (Block(kind="text", text=text),)
    return ModelResponded(call=call, attempt=attempt, blocks=blocks, stop="end_turn")


def piece(call: str, at: int, text: str, attempt: int = 1, kind: Any = "text") -> Piece:
    return Piece(kind=kind, call=call, attempt=attempt, at=at, text=text)


def test_words_come_line_by_line_and_the_event_that_restates_them_shows_none_again(
    live: Watched, told: Told, screen: OnScreen
) -> None:
    told(asked("main/1"))
    live.piece(piece("main/1", 0, "First line.\nSec"))
    assert screen.lines == ["First line.", "Sec"]
    live.piece(piece("main/1", 15, "ond line."))
    assert screen.lines == ["First line.", "Second line."]
    told(answered("main/1", "First line.\nSecond line. The end."))
    assert screen.lines == ["First line.", "Second line. The end."]


def test_several_agents_speak_at_once_each_behind_its_name(live: Watched, told: Told, screen: OnScreen) -> None:
    told(asked("main.1/1"))
    told(asked("main.2/1"))
    live.piece(piece("main.1/1", 0, "I am the fi"))
    live.piece(piece("main.2/1", 0, "I am the second.\nAnd "))
    live.piece(piece("main.1/1", 11, "rst.\n"))
    assert screen.lines == ["main.2 > I am the second.", "main.1 > I am the first."]
    told(answered("main.1/1", "I am the first.\n"))
    told(answered("main.2/1", "I am the second.\nAnd well."))
    assert screen.lines == ["main.2 > I am the second.", "main.1 > I am the first.", "main.2 > And well."]


def test_a_long_line_is_wrapped_between_words_and_never_wider_than_the_terminal(
    live: Watched, told: Told, screen: OnScreen
) -> None:
    told(asked("main.1/1"))
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    for at in range(0, len(words), 3):
        live.piece(piece("main.1/1", at, words[at : at + 3]))
    told(answered("main.1/1", words))
    assert screen.lines == [
        "main.1 > one two three four five six seven eight nine ten",
        "main.1 > eleven twelve thirteen fourteen",
    ]
    parts = re.split(r"\n|\r\x1b\[K", screen.getvalue())
    assert max(map(len, parts)) <= 60


def test_what_was_missed_is_shown_from_the_event_and_nothing_twice(live: Watched, told: Told, screen: OnScreen) -> None:
    told(asked("main/1"))
    live.piece(piece("main/1", 0, "one\n"))
    live.piece(piece("main/1", 8, "three\n"))  # the one before was dropped
    live.piece(piece("main/1", 0, "one\n"))  # and this comes again, of a new connection
    told(answered("main/1", "one\ntwo\nthree\n"))
    assert screen.lines == ["one", "two", "three"]


def test_what_is_recorded_counts_where_it_was_told_otherwise(live: Watched, told: Told, screen: OnScreen) -> None:
    told(asked("main/1"))
    live.piece(piece("main/1", 0, "the key is sk-123"))
    told(answered("main/1", "the key is [api key], I think"))
    assert screen.lines == ["the key is sk-123", "the key is [api key], I think"]


def test_another_attempt_begins_anew_and_what_comes_late_is_passed_over(
    live: Watched, told: Told, screen: OnScreen
) -> None:
    told(asked("main/1"))
    live.piece(piece("main/1", 0, "half of"))
    told(ModelFailed(call="main/1", attempt=1, failure="cut", message="it broke"))
    told(asked("main/1", 2))
    live.piece(piece("main/1", 7, " it"))  # of the first attempt still
    live.piece(piece("main/1", 0, "whole", attempt=2))
    told(answered("main/1", "whole", 2))
    live.piece(piece("main/1", 5, " late", attempt=2))
    live.settle()
    assert screen.lines == ["half of", "whole"]


def test_what_comes_before_its_request_is_read_waits_for_it_within_a_limit(
    live: Watched, told: Told, screen: OnScreen
) -> None:
    for at, letter in enumerate("early"):
        live.piece(piece("main.3/1", at, letter))
    assert screen.lines == []
    told(asked("main.3/1"))
    live.settle()
    assert screen.lines == ["main.3 > early"]
    for at in range(EARLY_MAX + 10):
        live.piece(piece("main.4/1", at, "x"))
    assert len(live._early) == EARLY_MAX


def test_output_of_commands_stands_behind_a_bar_and_acts_on_no_terminal(
    live: Watched, told: Told, screen: OnScreen
) -> None:
    told(ToolStarted(call="main.1/2", attempt=1, tool="shell", args="{}", recovery="attachable"))
    live.piece(piece("main.1/2", 100, "\x1b[2Jred\x07\n50%\rdo", kind="output"))
    live.piece(piece("main.1/2", 120, "ne", kind="output"))
    told(ToolFinished(call="main.1/2", attempt=1, status="ok", text="done"))
    assert screen.lines == ["main.1 │ \\x1b[2Jred\\x07", "main.1 │ 50%\\x0ddone"]
    told(asked("main.1/3"))
    live.piece(piece("main.1/3", 0, "\x1b]0;title\x07\n"))
    assert screen.lines[-1] == "main.1 > \\x1b]0;title\\x07"


def test_without_a_terminal_there_are_whole_answers_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Watched(as_json=False, quiet=False)
    assert not live.streams
    told = Told(live)
    told(asked("main/1"))
    told(answered("main/1", "All of it."))
    shown = capsys.readouterr().err
    assert shown.count("All of it.") == 1
    assert "\r" not in shown
