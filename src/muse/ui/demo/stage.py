"""How the demo looks: captions, ticks in columns, notes; at most 80 columns, colour only where it is wanted.

Text is only ever added, never overwritten, so that a terminal, a file and a recording show the same. This module must
not know the story.
"""

import os
import sys
import time
from typing import Final

from muse.view.text import paint
from muse.view.visible import columns, fit

COLUMNS: Final = 80
CELLS: Final = 4
CELL_COLUMNS: Final = 19
LABEL_COLUMNS: Final = 36
_FALLBACK: Final = {"✓": "+", "✗": "x", "▸": ">", "·": "-", "…": "...", "—": "-"}


class Stage:
    """Where the story is shown. `pace` 0 leaves out every pause that is there for the eye only."""

    def __init__(self, *, colour: bool, pace: float) -> None:
        dumb = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._colour = colour and sys.stdout.isatty() and not dumb
        self._pace = pace
        self._cells = self._gap = self._dots = 0
        self._plain = not _can_show("".join(_FALLBACK))

    def line(self, text: str = "", look: str = "", *, indent: int = 5) -> None:
        """A line of its own, whole however long it is; `look` is an SGR code."""
        self._end_row()
        self._write((" " * indent + self._paint(text, look) if text else "") + "\n")

    def caption(self, number: int, text: str) -> None:
        """The beginning of a beat."""
        self.pause(0.9)
        self.line()
        self._write(f" {self._paint(f'{number}', '1;36')}   {self._paint(text, '1')}\n")
        self.pause(0.7)

    def note(self, label: str, text: str = "", look: str = "2") -> None:
        """A label and what there is to say of it, in two columns."""
        gap = " " * max(2, LABEL_COLUMNS - columns(label)) if text else ""
        self._end_row()
        self._write(f"     {label}{gap}{self._paint(text, look)}\n")

    def mark(self, good: bool, label: str, text: str = "", look: str = "2") -> None:
        """As `note`, with a tick or a cross."""
        mark = self._paint("✓", "32") if good else self._paint("✗", "1;31")
        gap = " " * max(2, LABEL_COLUMNS - columns(label)) if text else ""
        self._end_row()
        self._write(f"   {mark} {label}{gap}{self._paint(text, look)}\n")

    def punch(self, good: bool, text: str) -> None:
        """The line that it is all about, with air around it."""
        self.line()
        self.line(text if good else f"✗ {text}", "1;32" if good else "1;31", indent=1)

    def commands(self, lines: list[tuple[str, str]]) -> None:
        """Commands to try, whole, and what each is for: behind them where there is room, else above."""
        wide = max(columns(text) for text, _ in lines) + 3
        room = 5 + wide + max(columns(why) for _, why in lines) <= COLUMNS
        for text, why in lines:
            if not room:
                self.line(f"# {why}", "2")
            self.line(f"{text.ljust(wide)}{self._paint(why, '2')}" if room else text)

    def tick(self, good: bool, seq: int, what: str) -> None:
        """A finished step; several share a line."""
        if self._cells in (0, CELLS):
            self._end_row()
            self._write("  ")
            self._cells = self._gap = 0
        self._cells += 1
        mark = self._paint("✓", "32" if good else "33")
        text = fit(what, CELL_COLUMNS - 8)
        self._write(f"{' ' * self._gap} {mark} {self._paint(f'#{seq:<3}', '2')} {text}")
        self._gap = CELL_COLUMNS - 8 - columns(text)

    def dot(self) -> None:
        """A sign of life; many share a line."""
        if self._dots % 60 == 0:
            self._end_row()
            self._write("     ")
        self._dots += 1
        self._write(self._paint("·", "2"))

    def pause(self, seconds: float) -> None:
        """Time to read."""
        if self._pace:
            time.sleep(seconds * self._pace)

    def _end_row(self) -> None:
        if self._cells or self._dots:
            self._cells = self._dots = 0
            self._write("\n")

    def _paint(self, text: str, look: str) -> str:
        return paint(text, look, self._colour)

    def _write(self, text: str) -> None:
        if self._plain:
            for sign, plain in _FALLBACK.items():
                text = text.replace(sign, plain)
        sys.stdout.write(text)
        sys.stdout.flush()


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
