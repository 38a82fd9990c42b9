"""The whole session in one column: a cell is a range of events, its sign the most urgent thing in it.

The signs are those of the rows, so that they are told apart without colour. A click goes there.
"""

from collections.abc import Sequence
from typing import Final

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from muse.ui.tui.looks import BOLD, DIM, PLAIN, strip
from muse.view.marks import Mark, marks_of

SIGNS: Final[dict[Mark, tuple[str, Style, str]]] = {
    Mark.ERROR: ("✗", Style(color="red"), "an error"),
    Mark.DOUBT: ("!", Style(color="red", bold=True), "a doubt: may or may not have happened"),
    Mark.APPROVAL: ("?", Style(color="yellow"), "an approval, asked or decided"),
    Mark.CANCEL: ("■", Style(color="yellow"), "a cancel"),
    Mark.STEER: ("»", Style(color="cyan"), "a steer, a spawn, a pause"),
    Mark.EDIT: ("±", Style(color="green"), "files changed"),
    Mark.SPAWN: ("+", Style(color="magenta"), "an agent begins, ends, speaks"),
    Mark.PERSON: ("›", Style(color="cyan"), "a person's words"),
    Mark.LIMIT: ("$", Style(color="yellow"), "a limit, a wait"),
    Mark.SESSION: ("▪", DIM, "the session, the log"),
    Mark.MODEL: ("·", DIM, "the model"),
    Mark.TOOL: ("·", DIM, "a tool"),
    Mark.OTHER: ("·", DIM, "anything else"),
}
"""In the order of urgency: the sign, its style, and what the help says."""
NOTHING: Final = (" ", PLAIN)


def sign(found: int) -> tuple[str, Style]:
    """The sign of a cell that holds these marks (as `view.marks.bits`)."""
    if not found:
        return NOTHING
    marks = marks_of(found)
    shown, style, _ = next(SIGNS[mark] for mark in SIGNS if mark in marks)
    return shown, style


class Minimap(Widget):
    """Cells from top to bottom; the column beside them shows which part the list shows."""

    DEFAULT_CSS = "Minimap { width: 3; height: 1fr; }"

    class Chosen(Message):
        """A click: `part` of `parts` from the top."""

        def __init__(self, part: int, parts: int) -> None:
            self.part, self.parts = part, parts
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="minimap")
        self._cells: Sequence[int] = ()
        self._from = self._to = self._here = 0.0

    def show(self, cells: Sequence[int], begin: float, end: float, here: float) -> None:
        """These cells; the list shows the part from `begin` to `end`, and stands at `here` (0 to 1)."""
        if (tuple(cells), begin, end, here) != (self._cells, self._from, self._to, self._here):
            self._cells, self._from, self._to, self._here = tuple(cells), begin, end, here
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """A cell."""
        height = max(len(self._cells), 1)
        if y >= height:
            return Strip.blank(self.size.width)
        shown, style = sign(self._cells[y]) if y < len(self._cells) else NOTHING
        inside = y + 1 > self._from * height and y < self._to * height
        at = min(int(self._here * height), height - 1) == y
        edge = "◂" if at else "│" if inside else " "
        return strip([(" ", PLAIN), (shown, style), (edge, BOLD if at else DIM)], self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        event.stop()
        if event.y < len(self._cells):
            self.post_message(self.Chosen(event.y, len(self._cells)))
