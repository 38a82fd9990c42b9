"""The frame of the screen: list, minimap, panes and the last line, where each stands at any size, and what fills them.

What keys do stands in `screen.py`; what a session says comes from `Steps` and the views.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.timer import Timer

from muse import app
from muse.app.step_search import Pattern
from muse.errors import MuseError
from muse.ui.tui import playing, sources
from muse.ui.tui.background import Background
from muse.ui.tui.bottom import Prompt, Status
from muse.ui.tui.eventlist import EventList
from muse.ui.tui.jumping import Jumps
from muse.ui.tui.keys import LIST_HINTS, PANE_HINTS
from muse.ui.tui.listing import Listing
from muse.ui.tui.minimap import Minimap
from muse.ui.tui.pane import Pane
from muse.ui.tui.slow import MAKERS, Computed, Slow
from muse.ui.tui.terminal import Stands
from muse.view.filters import Filter
from muse.view.line import Line
from muse.view.visible import one_line

View = Literal["detail", "request", "difference", "why", "state", "help"]
WIDE_COLUMNS: Final = 120
"""From here on the state has a pane of its own."""
STATE_COLUMNS: Final = 52
PANE_FROM_ROWS: Final = 8
"""Lower screens show the list alone, or the pane alone."""
SETTLE_SECONDS: Final = 0.02
"""Panes follow when the reader has stopped for so long: a key held down does not wait for them."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What the screen is opened with."""

    listing: Listing
    seq: int
    address: str
    """The session as the user may write it again."""
    imported: bool
    owner: Callable[[], int]
    """The pid of who runs the session, 0 for nobody."""
    read: Callable[[], app.Reading]
    """Opens the log once more."""
    parse: Callable[[str], Filter]
    """A line of text to a filter; raises `UsageError`."""
    filter_text: str = ""
    wanted: Filter = Filter()


class Frame(Screen[int]):
    """A listing on the screen. `seq` is where the reader stands."""

    CSS = """
    Frame { layout: vertical; background: ansi_default; color: ansi_default; }
    #main { height: 1fr; } #left { width: 1fr; } #top { height: 1fr; }
    """
    AUTO_FOCUS = "EventList"

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self.opened = opened
        self.listing = opened.listing
        self.listing.choose(opened.filter_text, opened.wanted)
        self.list = EventList(self.listing)
        self.minimap = Minimap()
        self.detail = Pane("detail")
        self.state = Pane("state")
        self.status = Status()
        self.prompt = Prompt()
        self.view: View = "detail"
        self.background = Background(self.listing, self.post_message, opened.owner)
        self.slow = Slow(opened.read, self.post_message)
        self._filled = (0, False)
        self._forgotten = 0
        self.jumps = Jumps()
        self.wanted_seq = opened.seq
        self.note = ""
        self.whole = self.zoomed = self.following = False
        self.state_wanted = True
        self.sought: Pattern | None = None
        self.refused = ""
        self.speed = 1.0
        self.player: Timer | None = None
        self._settling: Timer | None = None

    def compose(self) -> ComposeResult:
        """List with its minimap, the detail below, the state beside them, one line for the rest."""
        with Horizontal(id="main"):
            with Vertical(id="left"):
                with Horizontal(id="top"):
                    yield self.list
                    yield self.minimap
                yield self.detail
            yield self.state
        yield self.status
        yield self.prompt

    def on_mount(self) -> None:
        """Begin: what can be shown at once is shown before the index is built."""
        if not self.children:
            return  # the end was asked for before the beginning
        self.lay_out()
        self.list.go(self.listing.place_of(self.wanted_seq))
        self.run_worker(self.background.run, thread=True, group="background")
        self.settle()
        self.post_message(Stands())

    def on_unmount(self) -> None:
        """The thread is to end."""
        self.background.stop.set()

    # -- layout ------------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Another size, another layout."""
        self.lay_out()

    @property
    def filled(self) -> int:
        """The event that the panes show."""
        return self._filled[0]

    @property
    def wide(self) -> bool:
        """Whether the state has a pane of its own."""
        return self.size.width >= WIDE_COLUMNS and self.state_wanted

    def lay_out(self) -> None:
        rows = self.size.height - 1
        alone = self.alone()
        both = rows >= PANE_FROM_ROWS and alone is None
        shown = {
            self.list: both or alone is self.list, self.detail: both or alone is self.detail,
            self.state: self.wide and (both or alone is self.state),
        }  # fmt: skip
        self.query_one("#left").display = shown[self.list] or shown[self.detail]
        self.query_one("#top").display = shown[self.list]
        self.detail.display, self.state.display = shown[self.detail], shown[self.state]
        self.query_one("#top").styles.height = rows - rows // 2 if both else "1fr"
        self.state.styles.width = STATE_COLUMNS if shown[self.list] or shown[self.detail] else "1fr"
        if self.focused is None or not self.focused.display:
            self.set_focus(self.front())
        self.draw_all()

    def alone(self) -> EventList | Pane | None:
        """What has the whole screen, if anything."""
        if self.zoomed:
            return self.focused if isinstance(self.focused, EventList | Pane) else self.list
        if self.view == "help":
            return self.detail
        if self.size.height - 1 >= PANE_FROM_ROWS:
            return None
        return self.detail if self.view != "detail" or self.focused is self.detail else self.list

    def front(self) -> EventList | Pane:
        return self.list if self.query_one("#top").display else self.detail if self.detail.display else self.state

    def action_focus_pane(self, by: int) -> None:
        """The next pane has the keys."""
        panes = [self.list, self.detail, *([self.state] if self.wide else [])]
        at = panes.index(self.focused) if self.focused in panes else 0
        self.set_focus(panes[(at + by) % len(panes)])
        self.lay_out()

    def action_zoom(self) -> None:
        """The pane that has the keys alone, or all of them."""
        self.zoomed = not self.zoomed
        self.lay_out()

    def action_redraw(self) -> None:
        """Everything anew."""
        self.app.refresh(layout=True)

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    # -- what is shown -----------------------------------------------------------------------------------------------

    def moved(self) -> None:
        """The reader went somewhere: list and minimap at once, panes when it was the last step."""
        self.draw_all()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_SECONDS, self.settle)

    def settle(self) -> None:
        """Fill the panes."""
        seq = self.list.seq
        self._filled = (seq, seq <= self.listing.steps.indexed)
        if seq:
            shown = self._content(seq)
            self.detail.fill(shown.title, shown.lines, (self.view, self.whole, seq), hang=shown.words)
        else:
            self.detail.fill("", (Line("no events", "dim"),))
        self._fill_state(seq)
        self.draw_all()

    def settle_if_new(self) -> None:
        """The index went on: fill the panes again where that says more, and only there."""
        seq = self.list.seq
        filled, known = self._filled
        if self._forgotten != self.listing.forgotten:
            self._forgotten, filled = self.listing.forgotten, 0
            self.slow.forget()
        if filled != seq or (not known and (self.view == "state" or seq <= self.listing.steps.indexed)):
            self.settle()
            return
        if not known:
            self._fill_state(seq)
        self.draw_all()

    def _fill_state(self, seq: int) -> None:
        if self.wide:
            now = sources.state(self.listing.steps, seq) if seq else sources.Content("state", ())
            self.state.fill(now.title, now.lines, seq, hang=True)

    def _content(self, seq: int) -> sources.Content:
        steps = self.listing.steps
        try:
            if self.view == "help":
                return sources.keys_and_signs()
            if self.view == "state":
                return sources.state(steps, seq)
            if self.view in MAKERS and seq <= steps.head:
                return self._slowly(seq)
            return sources.detail(steps, seq, whole=self.whole)
        except MuseError as error:
            return sources.failed(error)

    def _slowly(self, seq: int) -> sources.Content:
        """What a thread made, or the word that it does."""
        made = self.slow.get(self.view, seq)
        return made or sources.Content(f"{self.view} …", (Line("reading the log for it …", "dim"),))

    def on_computed(self, message: Computed) -> None:
        """A pane that took its time can be shown."""
        if (message.view, message.seq) == (self.view, self.list.seq):
            self.settle()

    def draw_all(self) -> None:
        """List, minimap and the last line."""
        self.list.refresh()
        count = max(self.listing.count, 1)
        cells = self.listing.minimap(min(max(self.minimap.size.height, 1), count))
        top = self.list.top
        self.minimap.show(cells, top / count, (top + self.list.room) / count, self.list.place / count)
        self.status.say(self._facts(), LIST_HINTS if self.focused is self.list else PANE_HINTS, self.note)

    def _facts(self) -> str:
        steps, listing = self.listing.steps, self.listing
        parts = [f"#{self.list.seq:,}/{steps.head:,}", one_line(Path(self.opened.address).name), self._condition()]
        if listing.filtering is not None:
            parts.append(f"only {one_line(listing.filtering.text)} ({listing.events:,})")
        if steps.indexed < steps.head:
            parts.append(f"reading {steps.indexed * 100 // steps.head} %")
        elif listing.looked < steps.head:
            parts.append(f"filtering {listing.looked * 100 // steps.head} %")
        if self.player is not None:
            parts.append(f"▶ {playing.words(self.speed)}")
        if self.following:
            parts.append("follows")
        return "  ".join(parts)

    def _condition(self) -> str:
        """What became of the session."""
        if self.listing.steps.damage is not None:
            return f"DAMAGED at #{self.listing.steps.damage.seq}"
        if self.opened.imported:
            return "imported"
        if self.listing.steps.closed:
            return "closed"
        return "live" if self.background.owner else "open"

    def say(self, note: str) -> None:
        """A note on the last line, until the next key."""
        self.note = note
        self.draw_all()
