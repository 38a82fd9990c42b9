"""The list of `muse agents`: one line an agent, drawn as it comes into view.

The chosen line is told by `>` as well as by its look; what is told by colour is told by a word too.
"""

from typing import Final

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from muse.ui.cli.finding import short_id, tilde
from muse.ui.tui.fleet_tree import Place, Tree
from muse.ui.tui.looks import BOLD, BY_SEVERITY, CHOSEN, DIM, PLAIN, strip, title_strip
from muse.ui.tui.pane import WHEEL_ROWS
from muse.view.amounts import money
from muse.view.fleet import AgentRow
from muse.view.fleet_text import SEVERITIES, label, session_words, short_time, short_tokens, titled, totals
from muse.view.visible import columns, fit, one_line

LABEL_COLUMNS: Final = (12, 28)
"""At least and at most."""
STATE_COLUMNS: Final = (9, 24)
TOKENS_COLUMNS: Final = 5
COST_COLUMNS: Final = 8
TIME_COLUMNS: Final = 8
NUMBERS_FROM_COLUMNS: Final = 60
"""Narrower lists leave tokens, cost and time out."""
SAID_FROM_COLUMNS: Final = 110
"""From here on step and last words have a column each."""


class FleetList(Widget, can_focus=True):
    """The places of a tree."""

    DEFAULT_CSS = "FleetList { width: 1fr; height: 1fr; }"

    class Chosen(Message):
        """A click on the line at `at`."""

        def __init__(self, at: int) -> None:
            self.at = at
            super().__init__()

    def __init__(self, tree: Tree) -> None:
        super().__init__(id="fleet")
        self.tree_of = tree
        self.top = 0
        self.title = ""

    @property
    def room(self) -> int:
        """Lines below the title."""
        return max(self.size.height - 1, 1)

    def reveal(self) -> None:
        """The chosen line is in view, and where it is the first agent of a session the line of that, too."""
        at, places = self.tree_of.at, self.tree_of.places
        first = at - 1 if 0 < at < len(places) and places[at - 1].row is None else at
        self.top = max(min(self.top, first, max(len(places) - self.room, 0)), at - self.room + 1, 0)
        self.refresh()

    def on_resize(self) -> None:
        """It stays there."""
        self.reveal()

    def render_line(self, y: int) -> Strip:
        """The title, a line, or nothing."""
        width = self.size.width
        if y == 0:
            return title_strip(self.title, width, focused=self.has_focus)
        at, places = self.top + y - 1, self.tree_of.places
        if at >= len(places):
            return strip([("" if places or y > 1 else f" {self._nothing()}", DIM)], width)
        chosen = at == self.tree_of.at
        parts = [(">" if chosen else " ", BOLD), *self._parts(places[at], width - 1)]
        return strip(parts, width, CHOSEN if chosen else PLAIN)

    def _nothing(self) -> str:
        return "no agent has these words (Esc shows all)" if self.tree_of.only else "no agents yet"

    def _parts(self, place: Place, width: int) -> list[tuple[str, Style]]:
        row = place.row
        if row is None:
            return _session_parts(place, width)
        names, states = self._widths()
        hidden = f" +{place.folded}" if place.folded else ""
        sign = "›" if place.folded else " "
        name = fit(label(row, brief=width < SAID_FROM_COLUMNS), names - columns(hidden)) + hidden
        severity = SEVERITIES[row.state]
        parts: list[tuple[str, Style]] = [
            (f"{sign}{_padded(name, names)} ", PLAIN),
            (f"{_padded(fit(row.brief_words, states), states)} ", BY_SEVERITY[severity]),
        ]
        if width >= NUMBERS_FROM_COLUMNS:
            parts.append((_numbers(row), DIM))
        left = width - sum(columns(text) for text, _ in parts)
        return [*parts, *_words(row, left, wide=width >= SAID_FROM_COLUMNS)]

    def _widths(self) -> tuple[int, int]:
        """Columns of the names and of the states, as wide as the lines in view need."""
        rows = [place.row for place in self.tree_of.places[self.top : self.top + self.room] if place.row is not None]
        narrow = self.size.width - 1 < SAID_FROM_COLUMNS
        names = max((columns(label(row, brief=narrow)) + 3 for row in rows), default=0)
        states = max((columns(row.brief_words) for row in rows), default=0)
        name_most, state_most = (18, 19) if narrow else (LABEL_COLUMNS[1], STATE_COLUMNS[1])
        return min(max(names, LABEL_COLUMNS[0]), name_most), min(max(states, STATE_COLUMNS[0]), state_most)

    def on_click(self, event: events.Click) -> None:
        """Choose a line."""
        event.stop()
        at = self.top + event.y - 1
        if event.y > 0 and at < len(self.tree_of.places):
            self.post_message(self.Chosen(at))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.post_message(self.Chosen(self.tree_of.at + WHEEL_ROWS))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.post_message(self.Chosen(self.tree_of.at - WHEEL_ROWS))


def _session_parts(place: Place, width: int) -> list[tuple[str, Style]]:
    session = place.session
    sign = "›" if place.folded else " "
    asks = any(row.approvals or row.questions for row in session.agents)
    name = f"{short_id(session.session)}  {one_line(session.name)}".rstrip()
    words = titled(name, session_words(session), totals([session]), width - 1, "  ")
    words = f"{sign}{words}  {tilde(session.workspace)}"
    style = BY_SEVERITY["bad"] if session.problem else BY_SEVERITY["attention"] if asks else PLAIN
    return [(fit(words, width), style + BOLD)]


def _numbers(row: AgentRow) -> str:
    """Tokens, cost and time; of a parent that hides nothing its own."""
    tokens = short_tokens(row.own.tokens) if row.own.tokens else ""
    cost = money(row.own.cost_microusd) if row.own.cost_microusd else ""
    taken = short_time(row.seconds) if row.seconds else ""
    return f"{tokens:>{TOKENS_COLUMNS}} {cost:>{COST_COLUMNS}} {taken:>{TIME_COLUMNS}}  "


def _words(row: AgentRow, width: int, *, wide: bool) -> list[tuple[str, Style]]:
    """What it does, or what it said last; both where there is room."""
    if not wide or not row.step:
        return [(fit(row.step or row.said, width), PLAIN if row.step else DIM)]
    step = fit(row.step, width // 2)
    return [(_padded(step, width // 2), PLAIN), (f"  {fit(row.said, width - width // 2 - 2)}", DIM)]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))
