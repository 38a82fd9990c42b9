"""A pane: a title and lines below it, wrapped as far as they are looked at, and scrolled by keys and wheel."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from muse.ui.tui.looks import BY_LOOK, PLAIN, marked, strip, title_strip
from muse.view.line import Line, Look
from muse.view.visible import WRAP_MIN, paragraph, wrap

PIECE_CHARACTERS: Final = 4_096
"""A line longer than this is wrapped piece by piece: nobody waits for the end of a line of a megabyte."""
ROWS_MAX: Final = 1_000_000
WHEEL_ROWS: Final = 3
HANG: Final = 4


class Pane(Widget, can_focus=True):
    """Shows lines. `fill` gives it other ones; it begins at their top unless they are the same as before."""

    DEFAULT_CSS = "Pane { height: 1fr; width: 1fr; }"

    class Took(Message):
        """Somebody clicked into the pane."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.top = 0
        self.sought: re.Pattern[str] | None = None
        self._title = ""
        self._key: object = None
        self._lines: tuple[Line, ...] = ()
        self._rows: list[tuple[str, Look]] = []
        self._rest: Iterator[tuple[str, Look]] = iter(())
        self._width = 0
        self._hang = False

    def fill(self, title: str, lines: Iterable[Line], key: object = None, *, hang: bool = False) -> None:
        """Show these. With the same `key` as before the place where the reader is stays. `hang`: lines that are words,
        not contents, so that they may be indented where they go on."""
        self._title, self._lines, self._hang = title, tuple(lines), hang
        if key is None or key != self._key:
            self.top = 0
        self._key = key
        self._wrap()
        self.refresh()

    @property
    def text(self) -> str:
        """All lines, as they came."""
        return "\n".join(line.text for line in self._lines)

    def _wrap(self) -> None:
        self._width = self.size.width - 1
        self._rows, self._rest = [], _wrapped(self._lines, max(self._width, 1), hang=self._hang)

    def _known(self, upto: int) -> int:
        """Wrap until there are `upto` rows, or all; how many there are. Anew where the width is another one."""
        if self.size.width - 1 != self._width:
            self._wrap()
        while len(self._rows) < min(upto, ROWS_MAX):
            row = next(self._rest, None)
            if row is None:
                break
            self._rows.append(row)
        return len(self._rows)

    @property
    def room(self) -> int:
        """Rows below the title."""
        return max(self.size.height - 1, 1)

    def scroll(self, by: int) -> None:
        """Go down by so many rows, or up; no further than to the last one."""
        wanted = max(self.top + by, 0)
        known = self._known(wanted + self.room)
        self.top = min(wanted, max(known - self.room, 0))
        self.refresh()

    def scroll_to_end(self) -> None:
        """Go to the last row."""
        self.scroll(ROWS_MAX)

    def on_resize(self) -> None:
        """No further down than there is something."""
        self.scroll(0)

    def render_line(self, y: int) -> Strip:
        """The title, or a row."""
        width = self.size.width
        if y == 0:
            return title_strip(self._title + self._place(), width, focused=self.has_focus)
        at = self.top + y - 1
        if at >= self._known(at + 1):
            return Strip.blank(width)
        text, look = self._rows[at]
        return strip([(" ", PLAIN), *marked(text, BY_LOOK[look], self.sought)], width)

    def _place(self) -> str:
        """How much more there is, told in words: a scroll bar would take columns from texts."""
        below = self._known(self.top + self.room + 1) > self.top + self.room
        at = f" · row {self.top + 1:,}" if self.top else ""
        return at + (" · more below" if below else ", the end" if self.top else "")

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.scroll(-WHEEL_ROWS)

    def on_focus(self) -> None:
        """Its title shows it."""
        self.refresh()

    def on_blur(self) -> None:
        """Its title shows it."""
        self.refresh()


def _wrapped(lines: Iterable[Line], width: int, *, hang: bool) -> Iterator[tuple[str, Look]]:
    """Rows of at most `width` columns. With `hang` what goes over a row stands further right than where it began."""
    for line in lines:
        if not line.text:
            yield "", line.look
        for begin in range(0, len(line.text), PIECE_CHARACTERS):
            piece = line.text[begin : begin + PIECE_CHARACTERS]
            indent = len(piece) - len(piece.lstrip(" ")) + HANG if hang else 0
            for part in paragraph(piece, width, indent) if indent + WRAP_MIN < width else wrap(piece, width):
                yield part.rstrip(), line.look
