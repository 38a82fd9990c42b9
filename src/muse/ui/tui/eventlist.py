"""The list of events: one line an event, drawn as it comes into view, so that its length does not matter.

Before the words of the row (the same as everywhere) stand the number, the time, the lanes of the agents and the name
of the one whose event it is. The chosen row is told by `>` as well as by its look.
"""

import re
from typing import Final

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from muse.ui.tui.lanes import cells
from muse.ui.tui.listing import Listing
from muse.ui.tui.looks import BOLD, BY_SEVERITY, CHOSEN, DIM, PLAIN, marked, strip
from muse.ui.tui.pane import WHEEL_ROWS
from muse.view.text import row_parts
from muse.view.timeline import Row
from muse.view.visible import columns, fit

TIMES_FROM_COLUMNS: Final = 56
AGENTS_FROM_COLUMNS: Final = 42
"""Narrower lists leave these out."""
LANES_MAX: Final = 24
LANES_PART: Final = 6
"""Lanes take at most this part of the width."""
NAME_COLUMNS_MAX: Final = 10
TIME_COLUMNS: Final = 8


class EventList(Widget, can_focus=True):
    """Rows of a listing, and the place where the reader stands."""

    DEFAULT_CSS = "EventList { width: 1fr; height: 1fr; }"

    class Chosen(Message):
        """A click on the row at `place`."""

        def __init__(self, place: int) -> None:
            self.place = place
            super().__init__()

    def __init__(self, listing: Listing) -> None:
        super().__init__(id="list")
        self.listing = listing
        self.top = 0
        self.place = 0
        self.utc = False
        self._sized = False
        self.sought: re.Pattern[str] | None = None

    @property
    def room(self) -> int:
        """Rows in view."""
        return max(self.size.height, 1)

    @property
    def seq(self) -> int:
        """The event where the reader stands; 0 in an empty list."""
        return self.listing.seq_at(self.place) if self.listing.count else 0

    def go(self, place: int) -> bool:
        """Stand at a place, as near as there is one, and bring it into view. False where we stood there."""
        place = max(min(place, self.listing.count - 1), 0)
        moved, self.place = place != self.place, place
        self._reveal()
        self.refresh()
        return moved

    def _reveal(self) -> None:
        """The chosen row is in view; after a jump it is in the middle."""
        room = self.room
        if self.place < self.top - 1 or self.place > self.top + room:
            self.top = self.place - room // 2
        elif self.place < self.top:
            self.top = self.place
        elif self.place >= self.top + room:
            self.top = self.place - room + 1
        self.top = max(min(self.top, self.listing.count - room), 0)

    def scroll(self, by: int) -> None:
        """Look elsewhere; the chosen row comes along at the edge."""
        self.top = max(min(self.top + by, self.listing.count - self.room), 0)
        self.place = max(min(self.place, self.top + self.room - 1, self.listing.count - 1), self.top, 0)
        self.refresh()

    def on_resize(self) -> None:
        """The chosen row stays in view."""
        self._reveal()

    def render_line(self, y: int) -> Strip:
        """A row, or nothing below the last."""
        if not self._sized:
            self._sized, self.top = True, self.place - self.room // 2
            self._reveal()
        place, width = self.top + y, self.size.width
        if place >= self.listing.count:
            text = "" if self.listing.count or y else self._nothing()
            return strip([(f" {fit(text, width - 1)}", DIM)], width)
        chosen = place == self.place
        return strip(self._parts(self.listing.row(place), width, chosen), width, CHOSEN if chosen else PLAIN)

    def _nothing(self) -> str:
        if self.listing.filtering is None:
            return "no events"
        looked = self.listing.filtering.selection.upto
        return "nothing is what the filter asks for" + ("" if looked >= self.listing.steps.head else " so far")

    def _parts(self, row: Row, width: int, chosen: bool) -> list[tuple[str, Style]]:
        digits = max(len(str(self.listing.steps.head + 1)), 3)
        parts: list[tuple[str, Style]] = [(">" if chosen else " ", BOLD), (f"{f'#{row.seq}':<{digits + 1}} ", DIM)]
        if width >= TIMES_FROM_COLUMNS:
            parts.append((f"{self.listing.time(row, utc=self.utc):>{TIME_COLUMNS}} ", DIM))
        if width >= AGENTS_FROM_COLUMNS:
            parts += self._lanes(row, width)
        used = sum(columns(text) for text, _ in parts)
        what, summary, end = row_parts(row, max(width - used, 1))
        style = BY_SEVERITY[row.severity]
        quiet = style if row.severity == "quiet" else PLAIN
        return [*parts, (what, style), *marked(summary, quiet, self.sought), (end, DIM)]

    def _lanes(self, row: Row, width: int) -> list[tuple[str, Style]]:
        lanes = self.listing.lanes
        names = max((len(lane.agent) for lane in lanes), default=4)
        room = min(max(names, 4), NAME_COLUMNS_MAX)
        name = row.agent if len(row.agent) <= room else f"…{row.agent[1 - room :]}"
        parts: list[tuple[str, Style]] = []
        if len(lanes) > 1:
            wide = max(lane.column for lane in lanes) + 1
            wide = min(wide, LANES_MAX, max(width // LANES_PART, 1))
            parts.append((f"{cells(lanes, row.seq, row.agent, wide)} ", PLAIN))
        return [*parts, (f"{name:<{room}} ", DIM)]

    def on_click(self, event: events.Click) -> None:
        """Choose a row."""
        event.stop()
        place = self.top + event.y
        if place < self.listing.count:
            self.post_message(self.Chosen(place))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel looks elsewhere."""
        event.stop()
        self._wheel(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel looks elsewhere."""
        event.stop()
        self._wheel(-WHEEL_ROWS)

    def _wheel(self, by: int) -> None:
        before = self.place
        self.scroll(by)
        if self.place != before:
            self.post_message(self.Chosen(self.place))
