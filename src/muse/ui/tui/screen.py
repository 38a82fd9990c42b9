"""The screen of `muse replay`: puts list, minimap, panes and the last line together, and does what keys say.

It holds where the reader is and what is shown; what a session says comes from `Steps` and the views.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, Literal

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import get_current_worker

from muse.app.steps import Pattern, pattern
from muse.errors import Damaged, MuseError, UsageError
from muse.ui.tui import playing, sources
from muse.ui.tui.background import Background, Progress, Searched
from muse.ui.tui.bottom import Prompt, Status
from muse.ui.tui.eventlist import EventList
from muse.ui.tui.jumping import Jumps, next_like, none_left
from muse.ui.tui.keys import HINT, HINTS, KEYS
from muse.ui.tui.listing import Listing
from muse.ui.tui.minimap import Minimap
from muse.ui.tui.pane import Pane
from muse.view.filters import Filter
from muse.view.line import Line
from muse.view.timeline import Row
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
    parse: Callable[[str], Filter]
    """A line of text to a filter; raises `UsageError`."""
    filter_text: str = ""
    wanted: Filter = Filter()


class ReplayScreen(Screen[int], inherit_bindings=False):
    """Steps through one session."""

    CSS = """
    ReplayScreen { layout: vertical; background: ansi_default; color: ansi_default; }
    #main { height: 1fr; } #left { width: 1fr; } #top { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key.keys, f"screen.{key.action}", key.words, show=False) for key in KEYS),
        Binding("ctrl+c", "screen.interrupt", show=False),
    ]
    AUTO_FOCUS = "EventList"

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self._opened = opened
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
        self._jumps = Jumps()
        self._wanted_seq = opened.seq
        self._note = ""
        self._whole = self._zoomed = self._following = False
        self._state_wanted = True
        self._sought: Pattern | None = None
        self._speed = 1.0
        self._playing: Timer | None = None
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
        self._arrange()
        self.list.go(self.listing.place_of(self._wanted_seq))
        self.run_worker(self.background.run, thread=True, group="background")
        self._settle()

    def on_unmount(self) -> None:
        """The thread is to end."""
        self.background.stop.set()

    # -- layout ------------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Another size, another layout."""
        self._arrange()

    @property
    def wide(self) -> bool:
        """Whether the state has a pane of its own."""
        return self.size.width >= WIDE_COLUMNS and self._state_wanted

    def _arrange(self) -> None:
        rows = self.size.height - 1
        alone = self._alone()
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
            self._front().focus()
        self._draw()

    def _alone(self) -> EventList | Pane | None:
        """What has the whole screen, if anything."""
        if self._zoomed:
            return self.focused if isinstance(self.focused, EventList | Pane) else self.list
        if self.size.height - 1 >= PANE_FROM_ROWS:
            return None
        return self.detail if self.view != "detail" or self.focused is self.detail else self.list

    def _front(self) -> EventList | Pane:
        return self.list if self.query_one("#top").display else self.detail if self.detail.display else self.state

    def action_focus_pane(self, by: int) -> None:
        """The next pane has the keys."""
        panes = [self.list, self.detail, *([self.state] if self.wide else [])]
        at = panes.index(self.focused) if self.focused in panes else 0
        panes[(at + by) % len(panes)].focus()
        self.call_after_refresh(self._arrange)

    def action_zoom(self) -> None:
        """The pane that has the keys alone, or all of them."""
        self._zoomed = not self._zoomed
        self._arrange()

    def action_redraw(self) -> None:
        """Everything anew."""
        self.app.refresh(layout=True)

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _moved(self) -> None:
        """The reader went somewhere: list and minimap at once, panes when it was the last step."""
        self._draw()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_SECONDS, self._settle)

    def _settle(self) -> None:
        """Fill the panes."""
        seq = self.list.seq
        if not seq:
            self.detail.fill("", (Line("no events", "dim"),))
            self.state.fill("state", ())
        else:
            self._fill(seq)
        self._draw()

    def _fill(self, seq: int) -> None:
        shown = self._content(seq)
        self.detail.fill(shown.title, shown.lines, (self.view, self._whole, seq))
        if self.wide:
            now = sources.state(self.listing.steps, seq)
            self.state.fill(now.title, now.lines, seq)

    def _content(self, seq: int) -> sources.Content:
        steps = self.listing.steps
        try:
            if self.view == "help":
                return sources.keys_and_signs()
            if self.view == "state":
                return sources.state(steps, seq)
            return sources.detail(steps, seq, whole=self._whole)
        except MuseError as error:
            return sources.failed(error)

    def _draw(self) -> None:
        """List, minimap and the last line."""
        self.list.refresh()
        rows, count = max(self.minimap.size.height, 1), max(self.listing.count, 1)
        cells = self.listing.minimap(rows)
        top = self.list.top
        self.minimap.show(cells, top / count, (top + self.list.room) / count, self.list.place / count)
        hints = HINTS if self.focused is self.list else "j k scroll · Tab next pane · Esc back · " + HINT
        self.status.say(self._facts(), hints, self._note)

    def _facts(self) -> str:
        steps, listing = self.listing.steps, self.listing
        parts = [f"#{self.list.seq:,}/{steps.head:,}", one_line(self._opened.address), self._condition()]
        if listing.filtering is not None:
            parts.append(f"only {one_line(listing.filtering.text)} ({listing.events:,})")
        if steps.indexed < steps.head:
            parts.append(f"reading {steps.indexed * 100 // steps.head} %")
        elif listing.looked < steps.head:
            parts.append(f"filtering {listing.looked * 100 // steps.head} %")
        if self._playing is not None:
            parts.append(f"▶ {playing.words(self._speed)}")
        if self._following:
            parts.append("follows")
        return "  ".join(parts)

    def _condition(self) -> str:
        """What became of the session."""
        if self.listing.steps.damage is not None:
            return f"DAMAGED at #{self.listing.steps.damage.seq}"
        if self._opened.imported:
            return "imported"
        if self.listing.steps.closed:
            return "closed"
        return "live" if self.background.owner else "open"

    def say(self, note: str) -> None:
        """A note on the last line, until the next key."""
        self._note = note
        self._draw()

    # -- what comes in -----------------------------------------------------------------------------------------------

    def on_progress(self, message: Progress) -> None:
        """The log grew, or more is known of it."""
        if message.error is not None:
            self.say(str(message.error))
            return
        self.listing.renewed()
        if self._wanted_seq and self.list.seq != self._wanted_seq:
            self.list.go(self.listing.place_of(self._wanted_seq))  # what the filter has not found before may be there
        elif self._following:
            self.list.go(self.listing.count - 1)
        self._settle()

    def on_searched(self, message: Searched) -> None:
        """A search found something, or went on."""
        if not message.end:
            self.say(f"searching … #{message.looked:,}; Esc ends it")
        elif message.seq:
            self._note = ""
            self.jump(message.seq)
        else:
            self.say("nothing more; n and N go on from here")

    def on_event_list_chosen(self, message: EventList.Chosen) -> None:
        """A click on a row, or the wheel took the reader along."""
        self._go(message.place)

    def on_minimap_chosen(self, message: Minimap.Chosen) -> None:
        """A click on the minimap."""
        self.jump(self.listing.seq_at(message.part * self.listing.count // message.parts))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The hints follow the focus."""
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """A digit begins a number; any key takes the note away."""
        if event.character is not None and event.character in "123456789" and len(event.character) == 1:
            event.stop()
            self.prompt_for("seq", event.character)

    # -- moving ------------------------------------------------------------------------------------------------------

    def _go(self, place: int) -> None:
        self._wanted_seq = 0
        self._following = self._following and place >= self.listing.count - 1
        self.list.go(place)
        if self._playing is None:
            self._note = ""
        self._moved()

    def jump(self, seq: int) -> None:
        """Go to an event, and remember from where."""
        self._jumps.begin(self.list.seq)
        self._go(self.listing.place_of(seq))

    @property
    def _pane(self) -> Pane | None:
        """The pane that the moving keys scroll, None where they move in the list."""
        return self.focused if isinstance(self.focused, Pane) else None

    def action_step(self, by: int) -> None:
        """One event on or back, whatever has the focus."""
        place = self.list.place + by
        if 0 <= place < self.listing.count:
            self._go(place)
        else:
            self.say("this is the last event" if by > 0 else "this is the first event")

    def _by(self, events: int, rows: int) -> None:
        if (pane := self._pane) is not None:
            pane.scroll(rows)
        elif abs(events) == 1:
            self.action_step(events)
        else:
            self._go(max(self.list.place + events, 0))

    def action_next(self) -> None:
        """One on."""
        self._by(1, 1)

    def action_previous(self) -> None:
        """One back."""
        self._by(-1, -1)

    def action_page(self, by: int) -> None:
        """A screenful."""
        pane = self._pane
        self._by(by * max(self.list.room - 1, 2), by * max(pane.room - 1, 1) if pane else 0)

    def action_half_page(self, by: int) -> None:
        """Half of one."""
        pane = self._pane
        self._by(by * max(self.list.room // 2, 2), by * max(pane.room // 2, 1) if pane else 0)

    def action_first(self) -> None:
        """The beginning."""
        if (pane := self._pane) is not None:
            pane.scroll(-pane.top)
        else:
            self._jumps.begin(self.list.seq)
            self._go(0)

    def action_last(self) -> None:
        """The end."""
        if (pane := self._pane) is not None:
            pane.scroll_to_end()
        else:
            self._jumps.begin(self.list.seq)
            self._go(self.listing.count - 1)

    def action_next_like(self, kind: str, by: int) -> None:
        """The next of a kind."""
        found = next_like(self.listing, kind, self.list.seq, forward=by > 0)
        if found is None:
            self.say(none_left(self.listing, kind, forward=by > 0))
        else:
            self.jump(found)

    def action_cause(self) -> None:
        """What caused this."""
        seq = self.list.seq
        cause = self.listing.steps.event(seq).cause if 1 <= seq <= self.listing.steps.head else 0
        if not cause:
            self.say("nothing in the log caused this")
        elif not self._shown(cause):
            self.say(f"#{cause} caused this; the filter hides it (Esc shows all)")
        else:
            self.jump(cause)

    def _shown(self, seq: int) -> bool:
        return 1 <= seq <= self.listing.steps.head and self.listing.seq_at(self.listing.place_of(seq)) == seq

    def action_back(self) -> None:
        """Where the last jump began."""
        seq = self._jumps.back()
        if seq is None:
            self.say("there was no jump")
        else:
            self._go(self.listing.place_of(seq))

    # -- asking ------------------------------------------------------------------------------------------------------

    def prompt_for(self, asked: Literal["seq", "text", "filter"], begun: str = "") -> None:
        """Ask at the bottom."""
        self.action_stop()
        self.status.display = False
        self.prompt.ask(asked, begun)

    def action_ask_seq(self) -> None:
        """A number."""
        self.prompt_for("seq")

    def action_ask_text(self) -> None:
        """A text."""
        self.prompt_for("text")

    def action_ask_filter(self) -> None:
        """A filter; the one that is on can be changed."""
        self.prompt_for("filter", self.listing.filtering.text if self.listing.filtering else "")

    def on_prompt_given_up(self) -> None:
        """Nothing was asked for."""
        self._asked_enough()

    def _asked_enough(self, note: str = "") -> None:
        self.prompt.display, self.status.display = False, True
        self._front().focus()
        self.say(note)

    def on_prompt_given(self, message: Prompt.Given) -> None:
        """A line was typed."""
        text = message.text.strip()
        try:
            if message.asked == "seq":
                self._to(text)
            elif message.asked == "text":
                self._seek(message.text, regex=message.regex)
            else:
                self.choose(text, self._opened.parse(text))
        except UsageError as error:
            self._asked_enough(f"{error}{f'; {error.hint}' if error.hint else ''}")

    def _to(self, text: str) -> None:
        steps = self.listing.steps
        if not text:
            self._asked_enough()
            return
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else 0
        if not 1 <= number <= steps.head:
            raise UsageError(f"there is no event {one_line(text)}: they are numbered 1 to {steps.head:,}")
        self._asked_enough()
        self.jump(number)
        if self.list.seq != number:
            self.say(f"the filter hides #{number}; this is the next one shown (Esc shows all)")

    # -- searching and filtering -------------------------------------------------------------------------------------

    def _seek(self, text: str, *, regex: bool) -> None:
        if text:
            self._sought = pattern(text, regex=regex)
            self._underline()
        self._asked_enough()
        self.action_search_again(1)

    def _underline(self) -> None:
        sought = self._sought.regex if self._sought is not None else None
        for one in (self.list, self.detail, self.state):
            one.sought = sought
            one.refresh()

    def action_search_again(self, by: int) -> None:
        """The next place, or the one before."""
        if self._sought is None:
            self.say("nothing was searched for yet: / does")
            return
        self.run_worker(
            partial(self._search, self._sought, self.list.seq, by > 0), thread=True, group="search", exclusive=True
        )

    def _search(self, wanted: Pattern, seq: int, forward: bool) -> None:
        worker = get_current_worker()
        self.background.search(wanted, seq, forward=forward, cancelled=lambda: worker.is_cancelled)

    def choose(self, text: str, wanted: Filter) -> None:
        """Show only what is meant; the reader stays as near as can be."""
        seq = self.list.seq
        self.listing.choose(text, wanted)
        self._asked_enough()
        self.list.go(self.listing.place_of(seq))
        self._wanted_seq = seq
        self._settle()

    def action_only_agent(self) -> None:
        """Only this agent, or all again."""
        self._only("agent", lambda row: row.agent)

    def action_only_type(self) -> None:
        """Only this type, or all again."""
        self._only("type", lambda row: row.type)

    def _only(self, term: str, value: Callable[[Row], str]) -> None:
        """Add `term:value` to the filter, or take it away."""
        if not self.listing.count or not (named := value(self.listing.row(self.list.place))):
            return
        word = f"{term}:{named}"
        words = self.listing.filtering.text.split() if self.listing.filtering else []
        words = [one for one in words if one != word] if word in words else [*words, word]
        try:
            self.choose(" ".join(words), self._opened.parse(" ".join(words)))
        except UsageError as error:
            self.say(str(error))

    def action_leave(self) -> None:
        """Out of what is open: one thing at a time."""
        self.workers.cancel_group(self, "search")
        if self.view != "detail":
            self.action_show(self.view)
        elif self._whole or self._zoomed:
            self._whole = self._zoomed = False
            self._arrange()
            self._settle()
        elif self._pane is not None:
            self.list.focus()
            self.call_after_refresh(self._arrange)
        elif self._sought is not None:
            self._sought = None
            self._underline()
        elif self.listing.filtering is not None:
            self.choose("", Filter())
        self.say("")

    # -- looking -----------------------------------------------------------------------------------------------------

    def action_show(self, view: View) -> None:
        """Another view in the detail's place; the same again: the detail."""
        self.view = "detail" if self.view == view else view
        if self.view == "help":
            self.detail.focus()
        elif self.focused is self.detail:
            self.list.focus()
        self._note = ""
        self._arrange()
        self._settle()

    def action_state(self) -> None:
        """The state: its own pane on a wide screen, else in the detail's place."""
        if self.size.width < WIDE_COLUMNS:
            self.action_show("state")
            return
        self._state_wanted = not self._state_wanted
        self._arrange()
        self._settle()

    def action_whole(self) -> None:
        """The detail alone and whole, or as before."""
        self.view = "detail"
        self._whole = self._zoomed = not self._whole
        (self.detail if self._whole else self.list).focus()
        self.call_after_refresh(self._arrange)
        self._settle()

    def action_times(self) -> None:
        """The other kind of time."""
        self.list.utc = not self.list.utc
        self.say("times are UTC" if self.list.utc else "times are from the first event on")

    def action_copy(self) -> None:
        """The address, to the clipboard of the terminal (OSC 52), and shown."""
        address = f"{self._opened.address}@{self.list.seq}"
        self.app.copy_to_clipboard(address)
        self.say(f"copied {one_line(address)}")

    # -- time --------------------------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """Go with a session that is running, or stay."""
        self._following = not self._following
        if self._following:
            self._go(self.listing.count - 1)
            self._following = True
        closed = " (it is closed; if somebody goes on with it, this follows)" if self.listing.steps.closed else ""
        self.say(f"follows new events{closed}" if self._following else "stays here")

    def action_play(self) -> None:
        """Play, or stop."""
        if self._playing is not None:
            self.action_stop()
            self.say("stopped")
        else:
            self.say("playing; + and - change the speed, p stops")
            self._play()

    def action_stop(self) -> None:
        """Play no more."""
        if self._playing is not None:
            self._playing.stop()
            self._playing = None

    def _play(self) -> None:
        """Wait as long as the next event did."""
        self.action_stop()
        place = self.list.place
        if place + 1 >= self.listing.events:
            self.say("this is the last event")
            return
        now, after = self.listing.row(place), self.listing.row(place + 1)
        self._playing = self.set_timer(playing.delay(now.time, after.time, self._speed), self._played)

    def _played(self) -> None:
        self._playing = None
        self._go(self.list.place + 1)
        self._play()

    def action_faster(self, by: int) -> None:
        """Twice or half the speed."""
        self._speed = playing.changed(self._speed, by)
        if self._playing is not None:
            self._play()
        self.say(f"plays at {playing.words(self._speed)}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def action_quit(self) -> None:
        """Out; a damaged log is told by the exit code."""
        self._leave(Damaged.exit_code if self.listing.steps.damage is not None else 0)

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self._leave(130)

    def _leave(self, code: int) -> None:
        self.background.stop.set()
        self.workers.cancel_all()
        self.app.exit(code)
