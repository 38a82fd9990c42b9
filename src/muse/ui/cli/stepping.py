"""Stepping through a session on a terminal: one event at a time, forwards and backwards.

What was printed stays on the screen and in its scrollback; only the line that asks for a key is overwritten.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from muse import app
from muse.errors import Damaged
from muse.event.envelope import Event
from muse.ui.cli.address import Place, require_event
from muse.ui.cli.output import Answers, answers
from muse.ui.cli.terminal import keys
from muse.view.detail import DETAIL_LINES_MAX, detailed
from muse.view.text import detail_text, paint, row_text
from muse.view.timeline import Context, learn, row
from muse.view.visible import fit, visible

KEPT_LINES: Final = 5
"""Lines of the terminal that a step leaves for its row, its note and the question."""
INPUT_CHARACTERS_MAX: Final = 200
FORWARD: Final = frozenset({"enter", " ", "n", "j", "down", "right"})
BACK: Final = frozenset({"b", "p", "k", "up", "left", "backspace"})
QUIT: Final = frozenset({"q", "Q", ""})
HELP: Final = "q quit · Enter next · b back · {seq}⏎ · /text⏎ · m whole · g G ends"
"""`seq` is an event of this log, to show how one is gone to. It fits into 80 columns with any place before it."""


def step_through(place: Place, *, colour: bool) -> int:
    """Show events one at a time until the user has enough. Returns the exit code."""
    with answers(colour=colour) as out, app.read_session(place.path) as reading:
        require_event(reading, place.address.seq)
        steps = _Steps(reading, place.address.agent, out)
        if not steps.seqs:
            if steps.damage is not None:
                raise steps.damage
            out.line("no events")
            return 0
        steps.to(place.address.seq or 1)
        with keys() as key:
            _run(steps, key)
        if steps.damage is not None:
            raise steps.damage
    return 0


def _run(steps: "_Steps", key: Callable[[], str]) -> None:
    steps.show()
    note = ""
    while True:
        steps.ask(note)
        note = ""
        pressed = key()
        if pressed in QUIT:
            steps.clear()
            return
        if pressed in FORWARD:
            note = "" if steps.move(1) else steps.last_words
        elif pressed in BACK:
            note = "" if steps.move(-1) else "this is the first event"
        elif pressed in ("g", "home", "G", "end"):
            steps.move(-len(steps.seqs) if pressed in ("g", "home") else len(steps.seqs))
        elif pressed == "m":
            steps.show(whole=True)
        elif pressed.isdecimal() or pressed == "/":
            note = _line_command(steps, key, pressed)
        elif pressed in ("h", "?"):
            note = steps.help


def _line_command(steps: "_Steps", key: Callable[[], str], first: str) -> str:
    """A number or a search, typed up to Enter. Returns a note, "" when it led somewhere."""
    typed = first
    while True:
        steps.ask(typed=typed)
        pressed = key()
        if pressed in ("", "escape"):
            return ""
        if pressed == "enter":
            break
        if pressed == "backspace":
            typed = typed[:-1]
            if not typed:
                return ""
        elif len(pressed) == 1 and len(typed) < INPUT_CHARACTERS_MAX:
            typed += pressed
    if typed.startswith("/"):
        return "" if steps.search(typed[1:]) else f"nothing more with {visible(typed[1:])}"
    if not typed.isascii() or not typed.isdecimal():
        return "a number, please"
    return "" if steps.go(int(typed[:16])) else f"there is no event {typed[:16]}"


class _Steps:
    """The events of one lane (or all), where we are, and how a step is shown."""

    def __init__(self, reading: app.Reading, lane: str, out: Answers) -> None:
        self._reading = reading
        self._out = out
        self._context = Context(home=str(Path.home()))
        self._at = 0
        self.seqs: list[int] = []
        self.damage: Damaged | None = None
        try:
            for event in reading.events():
                learn(self._context, event)
                if not lane or event.agent == lane:
                    self.seqs.append(event.seq)
        except Damaged as error:
            self.damage = error

    @property
    def help(self) -> str:
        """What can be pressed."""
        return HELP.format(seq=self.seqs[len(self.seqs) // 2])

    @property
    def last_words(self) -> str:
        """What is said to who would go beyond the last step."""
        return str(self.damage) if self.damage is not None else "this is the last event; q quits"

    def to(self, seq: int) -> None:
        """Stand at the first event from `seq` on, or at the last."""
        self._at = next((at for at, one in enumerate(self.seqs) if one >= seq), len(self.seqs) - 1)

    def move(self, by: int) -> bool:
        """Go and show; False at the end that was stood at already."""
        at = max(0, min(len(self.seqs) - 1, self._at + by))
        if at == self._at:
            return False
        self._at = at
        self.show()
        return True

    def go(self, seq: int) -> bool:
        """Go to this event and show it; False when there is none."""
        if seq not in self.seqs:
            return False
        self.to(seq)
        self.show()
        return True

    def search(self, text: str) -> bool:
        """Go to the next event whose row or detail holds the text, whatever its case."""
        wanted = text.casefold()
        if not wanted:
            return False
        for at in range(self._at + 1, len(self.seqs)):
            shown = detailed(self._event(self.seqs[at]), self._context, self._reading.content)
            if any(wanted in part.casefold() for part in (row_text(shown), *(line.text for line in shown.detail))):
                self._at = at
                self.show()
                return True
        return False

    def show(self, *, whole: bool = False) -> None:
        """Print the step where we stand."""
        out = self._out
        size = shutil.get_terminal_size()
        room = DETAIL_LINES_MAX if whole else max(size.lines - KEPT_LINES, 5)
        event = self._event(self.seqs[self._at])
        shown = detailed(event, self._context, self._reading.content)
        lines = detail_text(shown, width=size.columns, colour=out.colour)
        if len(lines) > room:
            lines[room:] = [paint(f"    … {len(lines) - room} more lines: m shows them", "2", out.colour)]
        self.clear()
        out.line(row_text(row(event, self._context), width=size.columns, colour=out.colour))
        out.lines(lines)

    def ask(self, note: str = "", typed: str = "") -> None:
        """The line at the bottom: where we are, and what was typed or what can be pressed."""
        columns = shutil.get_terminal_size().columns
        where = f"[{self._at + 1}/{len(self.seqs)}] "
        text = typed or note or self.help
        line = paint(fit(f"{where}{visible(text)}", columns - 1), "7" if self._out.colour else "", self._out.colour)
        sys.stdout.write(f"\r\x1b[K{line}")
        sys.stdout.flush()

    def clear(self) -> None:
        """Take that line away."""
        sys.stdout.write("\r\x1b[K")
        sys.stdout.flush()

    def _event(self, seq: int) -> Event:
        event = self._reading.event(seq)
        assert event is not None, f"event {seq} was there"
        return event
