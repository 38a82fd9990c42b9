"""What the keys of `muse replay`'s screen do, and what comes in from the log while it is looked at."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from textual import events
from textual.binding import Binding, BindingType
from textual.worker import get_current_worker

from muse.app.step_search import Pattern, pattern
from muse.errors import Damaged, UsageError
from muse.ui.tui import playing
from muse.ui.tui.background import Progress, Searched
from muse.ui.tui.bottom import Prompt
from muse.ui.tui.eventlist import EventList
from muse.ui.tui.frame import WIDE_COLUMNS, Frame, View
from muse.ui.tui.jumping import next_like, none_left
from muse.ui.tui.keys import KEYS
from muse.ui.tui.minimap import Minimap
from muse.ui.tui.pane import Pane
from muse.view.filters import Filter
from muse.view.timeline import Row
from muse.view.visible import one_line


class ReplayScreen(Frame, inherit_bindings=False):
    """Steps through one session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key.keys, f"screen.{key.action}", key.words, show=False, priority=True) for key in KEYS),
        *(Binding(digit, f"screen.digit('{digit}')", show=False, priority=True) for digit in "123456789"),
        Binding("ctrl+c", "screen.interrupt", show=False, priority=True),
    ]

    # -- what comes in -----------------------------------------------------------------------------------------------

    def on_progress(self, message: Progress) -> None:
        """The log grew, or more is known of it."""
        if message.error is not None:
            self.say(str(message.error))
            return
        self.listing.renewed()
        if self.wanted_seq and self.list.seq != self.wanted_seq:
            self.list.go(self.listing.place_of(self.wanted_seq))  # what the filter has not found before may be there
        elif self.following:
            self.list.go(self.listing.count - 1)
        else:
            self.list.go(self.list.place)  # a list that became shorter: damage was found
        self.settle_if_new()

    def on_searched(self, message: Searched) -> None:
        """A search found something, or went on."""
        if not message.end:
            self.say(f"searching … #{message.looked:,}; Esc ends it")
        elif message.seq:
            self.note = ""
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
        """The hints follow the focus; who clicks elsewhere while a line is asked for has left it."""
        if self.prompt.display and not self.prompt.has_focus_within:
            self.prompt.display, self.status.display = False, True
        self.draw_all()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are done as they come, before whatever is typed next, unless a line is being typed."""
        return not self.prompt.display

    # -- moving ------------------------------------------------------------------------------------------------------

    def _go(self, place: int) -> None:
        self.wanted_seq = 0
        self.following = self.following and place >= self.listing.count - 1
        self.list.go(place)
        if self.player is None:
            self.note = ""
        self.moved()

    def jump(self, seq: int) -> None:
        """Go to an event, and remember from where."""
        self.jumps.begin(self.list.seq)
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
            self.jumps.begin(self.list.seq)
            self._go(0)

    def action_last(self) -> None:
        """The end."""
        if (pane := self._pane) is not None:
            pane.scroll_to_end()
        else:
            self.jumps.begin(self.list.seq)
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
        seq = self.jumps.back()
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

    def action_digit(self, digit: str) -> None:
        """A number begins."""
        self.prompt_for("seq", digit)

    def action_ask_seq(self) -> None:
        """A number."""
        self.prompt_for("seq")

    def action_ask_text(self) -> None:
        """A text."""
        self.prompt_for("text")

    def action_ask_filter(self) -> None:
        """A filter; the one that is on can be changed, and the one that was refused can be mended."""
        self.prompt_for("filter", self.refused or (self.listing.filtering.text if self.listing.filtering else ""))

    def on_prompt_given_up(self) -> None:
        """Nothing was asked for."""
        self.refused = ""
        self._asked_enough()

    def _asked_enough(self, note: str = "") -> None:
        self.prompt.display, self.status.display = False, True
        self.set_focus(self.front())
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
                self.choose(text, self.opened.parse(text))
        except UsageError as error:
            self.refused = text if message.asked == "filter" else ""
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
            instead = "; this is the next one shown" if self.listing.count else " and all others"
            self.say(f"the filter hides #{number}{instead} (Esc shows all)")

    # -- searching and filtering -------------------------------------------------------------------------------------

    def _seek(self, text: str, *, regex: bool) -> None:
        if text:
            self.sought = pattern(text, regex=regex)
            self._underline()
        self._asked_enough()
        self.action_search_again(1)

    def _underline(self) -> None:
        sought = self.sought.regex if self.sought is not None else None
        for one in (self.list, self.detail, self.state):
            one.sought = sought
            one.refresh()

    def action_search_again(self, by: int) -> None:
        """The next place, or the one before."""
        if self.sought is None:
            self.say("nothing was searched for yet: / does")
            return
        self.run_worker(
            partial(self._search, self.sought, self.list.seq, by > 0), thread=True, group="search", exclusive=True
        )

    def _search(self, wanted: Pattern, seq: int, forward: bool) -> None:
        worker = get_current_worker()
        self.background.search(wanted, seq, forward=forward, cancelled=lambda: worker.is_cancelled)

    def choose(self, text: str, wanted: Filter) -> None:
        """Show only what is meant. The reader stays as near as can be, and comes back to where the first filter was
        put on unless a step was taken meanwhile."""
        seq = self.wanted_seq or self.list.seq
        self.listing.choose(text, wanted)
        self.refused = ""
        self._asked_enough()
        self.list.go(self.listing.place_of(seq))
        self.wanted_seq = seq
        self.settle()

    def action_only_agent(self) -> None:
        """Only this agent, or all again."""
        self._only("agent", lambda row: row.agent)

    def action_only_type(self) -> None:
        """Only this type, or all again."""
        self._only("type", lambda row: row.type)

    def _only(self, term: str, value: Callable[[Row], str]) -> None:
        """Add `term:value` to the filter, or take all of that term away."""
        words = self.listing.filtering.text.split() if self.listing.filtering else []
        others = [word for word in words if not word.startswith(f"{term}:")]
        if others == words:
            named = value(self.listing.row(self.list.place)) if self.listing.count else ""
            others += [f"{term}:{named}"] if named else []
        text = " ".join(others)
        try:
            self.choose(text, self.opened.parse(text))
        except UsageError as error:
            self.say(str(error))

    def action_leave(self) -> None:
        """Out of what is open: one thing at a time."""
        self.workers.cancel_group(self, "search")
        if self.view != "detail":
            self.action_show(self.view)
        elif self.whole or self.zoomed:
            self.whole = self.zoomed = False
            self.lay_out()
            self.settle()
        elif self._pane is not None:
            self.set_focus(self.list)
            self.lay_out()
        elif self.sought is not None:
            self.sought = None
            self._underline()
        elif self.listing.filtering is not None:
            self.choose("", Filter())
        self.say("")

    # -- looking -----------------------------------------------------------------------------------------------------

    def action_show(self, view: View) -> None:
        """Another view in the detail's place; the same again: the detail."""
        self.view = "detail" if self.view == view else view
        if self.view == "help":
            self.set_focus(self.detail)
        elif self.focused is self.detail:
            self.set_focus(self.list)
        self.note = ""
        self.lay_out()
        self.settle()

    def action_state(self) -> None:
        """The state: its own pane on a wide screen, else in the detail's place."""
        if self.size.width < WIDE_COLUMNS:
            self.action_show("state")
            return
        self.state_wanted = not self.state_wanted
        self.lay_out()
        self.settle()

    def action_whole(self) -> None:
        """The detail alone and whole, or as before."""
        self.view = "detail"
        self.whole = self.zoomed = not self.whole
        self.set_focus(self.detail if self.whole else self.list)
        self.lay_out()
        self.settle()

    def action_times(self) -> None:
        """The other kind of time."""
        self.list.utc = not self.list.utc
        self.say("times are UTC" if self.list.utc else "times are from the first event on")

    def action_copy(self) -> None:
        """The address, to the clipboard of the terminal (OSC 52), and shown."""
        address = f"{self.opened.address}@{self.list.seq}"
        self.app.copy_to_clipboard(address)
        self.say(f"copied {one_line(address)}")

    # -- time --------------------------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """Go with a session that is running, or stay."""
        self.following = not self.following
        if self.following:
            self._go(self.listing.count - 1)
            self.following = True
        closed = " (it is closed; if somebody goes on with it, this follows)" if self.listing.steps.closed else ""
        self.say(f"follows new events{closed}" if self.following else "stays here")

    def action_play(self) -> None:
        """Play, or stop."""
        if self.player is not None:
            self.action_stop()
            self.say("stopped")
        else:
            self.say("playing; + and - change the speed, p stops")
            self._play()

    def action_stop(self) -> None:
        """Play no more."""
        if self.player is not None:
            self.player.stop()
            self.player = None

    def _play(self) -> None:
        """Wait as long as the next event did."""
        self.action_stop()
        place = self.list.place
        if place + 1 >= self.listing.events:
            self.say("this is the last event")
            return
        now, after = self.listing.row(place), self.listing.row(place + 1)
        self.player = self.set_timer(playing.delay(now.time, after.time, self.speed), self._played)

    def _played(self) -> None:
        self.player = None
        self._go(self.list.place + 1)
        self._play()

    def action_faster(self, by: int) -> None:
        """Twice or half the speed."""
        self.speed = playing.changed(self.speed, by)
        if self.player is not None:
            self._play()
        self.say(f"plays at {playing.words(self.speed)}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def action_quit(self) -> None:
        """Out of the help, as in a pager; then out of all. A damaged log is told by the exit code."""
        if self.view == "help":
            self.action_leave()
            return
        self._leave(Damaged.exit_code if self.listing.steps.damage is not None else 0)

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self._leave(130)

    def _leave(self, code: int) -> None:
        self.background.stop.set()
        self.workers.cancel_all()
        self.app.exit(code)
