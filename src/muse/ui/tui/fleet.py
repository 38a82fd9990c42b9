"""The screen of `muse agents`: the tree of agents, live; what keys do; and going to replay and back."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, Final, Literal

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import Screen

from muse import app
from muse.app.fleet import Fleet
from muse.errors import MuseError
from muse.ui.cli.address import Address, Place
from muse.ui.cli.finding import short_id, tilde
from muse.ui.cli.output import note
from muse.ui.tui import fleet_said
from muse.ui.tui.bottom import Prompt, Status
from muse.ui.tui.fleet_keys import ALWAYS_HINTS, ASKED_HINTS, GROUPS, HINTS, KEYS, PANE_HINTS
from muse.ui.tui.fleet_list import FleetList
from muse.ui.tui.fleet_said import Asked, Saying
from muse.ui.tui.fleet_tree import Tree
from muse.ui.tui.looks import TITLE_COLUMNS
from muse.ui.tui.pane import Pane
from muse.ui.tui.terminal import Stands, TerminalApp
from muse.view.filters import Filter
from muse.view.fleet import MEANINGS, AgentRow, SessionRows, news
from muse.view.fleet_text import agent_lines, agents_words, session_words, titled, totals
from muse.view.line import Line
from muse.view.visible import headline, one_line

LOOK_SECONDS: Final = 0.2
"""How often it is looked whether the logs have grown."""
DRAW_SECONDS: Final = 0.4
"""Where nothing is new: times go on."""
BOTH_FROM_ROWS: Final = 12
"""Lower screens show the list alone, or the pane alone."""
PANE_ROWS: Final = (8, 16)
"""The pane has a third of the screen, at least and at most this."""


class Left(msgspec.Struct, frozen=True):
    """Why the screen was left: the end, with this exit code, or to step through what an agent did."""

    code: int = 0
    path: Path | None = None
    session: str = ""
    agent: str = ""


class Looked(Message):
    """The sessions were looked at. `error`: they will not be any more, and why."""

    def __init__(self, error: MuseError | None = None) -> None:
        self.error = error
        super().__init__()


class Told(Message):
    """What was said is durable, or was refused."""

    def __init__(self, words: str) -> None:
        self.words = words
        super().__init__()


class FleetScreen(Screen[int], inherit_bindings=False):
    """The agents of some sessions."""

    CSS = "FleetScreen { layout: vertical; background: ansi_default; color: ansi_default; } #both { height: 1fr; }"
    AUTO_FOCUS = "FleetList"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key.keys, f"screen.{key.action}", key.words, show=False, priority=True) for key in KEYS),
        Binding("ctrl+c", "screen.interrupt", show=False, priority=True),
    ]

    def __init__(self, fleet: Fleet, begin: tuple[str, str]) -> None:
        """`begin` is the session and the agent to begin at."""
        super().__init__()
        self.fleet = fleet
        self.tree_of = Tree()
        self.list = FleetList(self.tree_of)
        self.pane = Pane("agent")
        self.status = Status()
        self.prompt = Prompt()
        self.note = ""
        self.asked: Asked | None = None
        self.helping = self.zoomed = self.following = False
        self.drawn = 0
        """How often the sessions were looked at and drawn."""
        self._begin = begin
        self._stop = threading.Event()

    def compose(self) -> ComposeResult:
        """The list, one agent below it, one line for the rest."""
        with Vertical(id="both"):
            yield self.list
            yield self.pane
        yield self.status
        yield self.prompt

    def on_mount(self) -> None:
        """Begin with what is known."""
        if not self.children:
            return  # the end was asked for before the beginning
        self._renew()
        self.tree_of.choose(*self._begin)
        self.lay_out()
        self.run_worker(self._look, thread=True, group="look")
        self.post_message(Stands())

    def on_unmount(self) -> None:
        """The thread is to end."""
        self._stop.set()

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """In a thread, until the screen is left."""
        told = 0.0
        try:
            while not self._stop.wait(LOOK_SECONDS):
                if self.fleet.look() or time.monotonic() - told >= DRAW_SECONDS:
                    told = time.monotonic()
                    self.post_message(Looked())
        except MuseError as error:
            self.post_message(Looked(error))

    def on_looked(self, message: Looked) -> None:
        """Draw what is new."""
        if message.error is not None:
            self.say(str(message.error))
            return
        before = {session.session: session.agents for session in self.tree_of.sessions}
        self._renew()
        if self.following:
            self._follow(before)
        if self.asked is not None and not fleet_said.still_open(self.fleet.sessions, self.asked):
            self.close_asked("it is answered, or no longer asked")
        self.drawn += 1
        self.draw()

    def _renew(self) -> None:
        self.tree_of.renew(self.fleet.sessions)

    def _follow(self, before: dict[str, tuple[AgentRow, ...]]) -> None:
        for session in self.tree_of.sessions:
            for row in news(before.get(session.session, ()), session.agents):
                self.tree_of.choose(session.session, row.agent)

    def on_told(self, message: Told) -> None:
        """The acknowledgement."""
        self.say(message.words)

    def on_fleet_list_chosen(self, message: FleetList.Chosen) -> None:
        """A click, or the wheel."""
        self._go(message.at)

    def on_descendant_focus(self) -> None:
        """Who clicks elsewhere while a line is asked for has left it."""
        if self.prompt.display and not self.prompt.has_focus_within:
            self._typed_enough()
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are done as they come, unless a line is being typed."""
        return not self.prompt.display

    # -- drawing -----------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Another size, another layout."""
        self.lay_out()

    def lay_out(self) -> None:
        """List and pane, or one of them."""
        rows = self.size.height - 1
        alone = self._alone()
        both = alone is None and rows >= BOTH_FROM_ROWS
        self.list.display = both or alone is self.list or (alone is None and self.focused is not self.pane)
        self.pane.display = both or not self.list.display
        least, most = PANE_ROWS
        wanted = rows // 2 if self.asked is not None else min(rows // 3, most)
        self.pane.styles.height = max(least, wanted) if both else "1fr"
        if self.focused is None or not self.focused.display:
            self.set_focus(self.list if self.list.display else self.pane)
        self.list.reveal()
        self.draw()

    def _alone(self) -> FleetList | Pane | None:
        if self.helping or (self.asked is not None and self.size.height - 1 < BOTH_FROM_ROWS):
            return self.pane
        if self.zoomed:
            return self.pane if self.focused is self.pane or self.asked is not None else self.list
        return None

    def draw(self) -> None:
        """The list, the pane, the last line."""
        self.list.title = self._title()
        self.list.reveal()
        self._fill()
        self.status.say(self._facts(), self._hints(), self.note)

    def _hints(self) -> tuple[str, ...]:
        if self.asked is not None:
            return ALWAYS_HINTS if self.asked.always is not None else ASKED_HINTS
        return HINTS if self.focused is self.list else PANE_HINTS

    def _title(self) -> str:
        sessions, width = self.tree_of.sessions, self.size.width - TITLE_COLUMNS
        if not sessions:
            return "no session runs or waits for anybody"
        if len(sessions) > 1:
            return titled("", f"{len(sessions)} sessions", totals(sessions), width)
        one = sessions[0]
        state = session_words(one) if one.state == "closed" or one.problem else one.state
        name = one_line(one.name) if one.name != short_id(one.session) else ""
        return titled(f"{short_id(one.session)} {name}".rstrip(), state, totals(sessions), width)

    def _facts(self) -> str:
        waits = sum(len(row.approvals) + len(row.questions) for one in self.tree_of.sessions for row in one.agents)
        parts = [f"{self.tree_of.at + 1}/{len(self.tree_of.places)}" if self.tree_of.places else "0"]
        if waits:
            parts.append(f"{waits} for you (w a)")
        if self.tree_of.only:
            parts.append(f"only {one_line(self.tree_of.only)} ({self.tree_of.matching})")
        if self.following:
            parts.append("follows")
        return "  ".join(parts)

    def _fill(self) -> None:
        place = self.tree_of.chosen
        if self.helping:
            self.pane.fill("help", help_lines(), "help")
        elif self.asked is not None:
            self.pane.fill(self.asked.title, self.asked.lines, ("asked", self.asked.title))
        elif place is None:
            self.pane.fill("", ())
        elif place.row is None:
            self.pane.fill(short_id(place.session.session), _session_lines(place.session), place.name, hang=True)
        else:
            called = f"{place.row.agent} {place.row.name}".rstrip()
            self.pane.fill(called, agent_lines(place.session, place.row), place.name, hang=True)

    def say(self, words: str) -> None:
        """A note on the last line, until the next key."""
        self.note = headline(words, 300)
        self.draw()

    # -- moving ------------------------------------------------------------------------------------------------------

    def _go(self, at: int) -> None:
        self.tree_of.go(at)
        self._moved()

    def _moved(self) -> None:
        self.note, self.following = "", False
        if self.asked is not None:
            self.close_asked()
        self.draw()

    def _by(self, by: int, rows: int) -> None:
        if self.focused is self.pane:
            self.pane.scroll(rows)
        else:
            self._go(self.tree_of.at + by)

    def action_move(self, by: int) -> None:
        """One on or back."""
        self._by(by, by)

    def action_page(self, by: int) -> None:
        """A screenful."""
        self._by(by * max(self.list.room - 1, 1), by * max(self.pane.room - 1, 1))

    def action_first(self) -> None:
        """The beginning."""
        self._by(-len(self.tree_of.places), -self.pane.top)

    def action_last(self) -> None:
        """The end."""
        if self.focused is self.pane:
            self.pane.scroll_to_end()
        else:
            self._go(len(self.tree_of.places))

    def action_fold(self) -> None:
        """Hide what is below."""
        self.tree_of.fold()
        self._moved()

    def action_unfold(self) -> None:
        """Show what is below."""
        self.tree_of.unfold()
        self._moved()

    def action_next_waiting(self, _by: int) -> None:
        """The next that waits for a person."""
        found = self.tree_of.next_waiting()
        self._moved()
        if not found:
            self.say("no agent that is shown waits for you")

    # -- saying ------------------------------------------------------------------------------------------------------

    def _one(self) -> tuple[SessionRows, AgentRow] | None:
        """The chosen agent; of a session's line its `main`."""
        place = self.tree_of.chosen
        row = place.row or next(iter(place.session.agents), None) if place is not None else None
        if place is None or row is None:
            self.say("no agent is chosen")
            return None
        return place.session, row

    def _submit(self, saying: Saying) -> None:
        self.say(f"{saying.words} …")

        def submit() -> None:
            try:
                self.post_message(Told(saying.submit()))
            except MuseError as error:
                self.post_message(Told(f"{error}{f'; {error.hint}' if error.hint else ''}"))

        self.run_worker(submit, thread=True, group="say")

    def action_steer(self) -> None:
        """Ask for the words."""
        if self._one() is not None:
            self._ask("steer")

    def action_pause(self, target: Literal["agent", "tree"]) -> None:
        """Pause, or go on."""
        if (one := self._one()) is not None:
            self._submit(fleet_said.pause(*one, target))

    def action_cancel(self, target: Literal["agent", "tree"]) -> None:
        """Ask whether it is meant."""
        if (one := self._one()) is not None:
            self.open_asked(fleet_said.cancel(*one, target))

    def action_asked(self) -> None:
        """What an agent asks."""
        one = self._one()
        found = fleet_said.asked(self.fleet, *one) if one is not None else None
        if found is not None:
            self.open_asked(found)
            if found.line is not None:
                self._ask("answer")
        elif one is not None:
            self.say(f"{one[1].agent} asks nothing, nor does an agent below it")

    def open_asked(self, asked: Asked) -> None:
        """Show what waits for yes or no."""
        self.asked, self.note, self.helping = asked, "", False
        self.lay_out()

    def close_asked(self, words: str = "") -> None:
        """It is not asked any more."""
        if self.prompt.display:
            self._typed_enough()
        self.asked = None
        self.note = words
        self.lay_out()

    def action_answer(self, answer: fleet_said.Answer) -> None:
        """Yes or no to what is shown."""
        asked = self.asked
        if asked is None:
            self.say("nothing is asked here: a shows what an agent asks")
            return
        saying = {"yes": asked.yes, "always": asked.always, "no": asked.no}[answer]
        if saying is None and answer == "always":
            self.say("no rule is offered for this; y allows it once")
            return
        self.close_asked("nothing was done" if saying is None else "")
        if saying is not None:
            self._submit(saying)

    # -- lines that are typed ----------------------------------------------------------------------------------------

    def _ask(self, what: Literal["only", "steer", "answer"], begun: str = "") -> None:
        self.status.display = False
        self.prompt.ask(what, begun)

    def action_ask_only(self) -> None:
        """Words that lines must hold."""
        self._ask("only", self.tree_of.only)

    def _typed_enough(self) -> None:
        self.prompt.display, self.status.display = False, True
        self.set_focus(self.list if self.list.display else self.pane)

    def on_prompt_given_up(self) -> None:
        """Nothing was said."""
        self._typed_enough()
        if self.asked is not None and self.asked.line is not None:
            self.close_asked()
        self.draw()

    def on_prompt_given(self, message: Prompt.Given) -> None:
        """A line was typed."""
        self._typed_enough()
        asked, one = self.asked, self._one()
        try:
            if message.asked == "only":
                self.tree_of.only = message.text.strip()
                self._renew()
                self._moved()
            elif message.asked == "answer" and asked is not None and asked.line is not None:
                saying = asked.line(message.text)
                self.close_asked()
                self._submit(saying)
            elif message.asked == "steer" and one is not None:
                self._submit(fleet_said.steer(*one, message.text))
        except MuseError as error:
            self.say(str(error))

    # -- looking -----------------------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """Stand where something happens, or stay."""
        self.following = not self.following
        self.say("stands where something happens" if self.following else "stays here")

    def action_help(self) -> None:
        """The keys."""
        self.helping = not self.helping
        self.note, self.asked = "", None
        self.set_focus(self.pane if self.helping else self.list)
        self.lay_out()

    def action_other_pane(self) -> None:
        """The other one has the keys."""
        self.set_focus(self.list if self.focused is self.pane and self.list.display else self.pane)
        self.lay_out()

    def action_zoom(self) -> None:
        """One alone, or both."""
        self.zoomed = not self.zoomed
        self.lay_out()

    def action_redraw(self) -> None:
        """Everything anew."""
        self.app.refresh(layout=True)

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    def action_leave(self) -> None:
        """Out of what is open: one thing at a time."""
        if self.helping:
            self.action_help()
        elif self.asked is not None:
            self.close_asked()
        elif self.zoomed or self.focused is self.pane:
            self.zoomed = False
            self.set_focus(self.list)
            self.lay_out()
        elif self.tree_of.only:
            self.tree_of.only = ""
            self._renew()
        self.say("")

    def action_replay(self) -> None:
        """Step through what it did."""
        place = self.tree_of.chosen
        if place is not None:
            agent = place.row.agent if place.row is not None and place.row.parent else ""
            self._leave(Left(0, Path(place.session.file), place.session.session, agent))

    def action_quit(self) -> None:
        """Out of the help, as in a pager; then out of all."""
        if self.helping:
            self.action_help()
        else:
            self._leave(Left())

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self._leave(Left(130))

    def _leave(self, left: Left) -> None:
        self._stop.set()
        self.workers.cancel_all()
        self.app.exit(left)


def _session_lines(session: SessionRows) -> Iterable[Line]:
    yield Line(session_words(session), "bad" if session.problem else "head")
    yield Line(f"agents    {agents_words(session)}")
    yield Line(f"in        {tilde(session.workspace)}")
    yield Line(f"events    {session.seq:,}", "dim")


def help_lines() -> list[Line]:
    """Every key, and what the words mean."""
    lines: list[Line] = []
    for group in GROUPS:
        lines.append(Line(group, "head"))
        lines += [Line(f"  {key.shown:<13} {key.words}") for key in KEYS if key.group == group]
    lines.append(Line("what agents do", "head"))
    return [*lines, *(Line(f"  {word:<13} {meaning}") for word, meaning in MEANINGS.items())]


class FleetApp(TerminalApp[Left], inherit_bindings=False):
    """The screen of some agents."""

    def __init__(self, fleet: Fleet, begin: tuple[str, str]) -> None:
        super().__init__()
        self._fleet, self._begin = fleet, begin

    def end_with(self, code: int) -> None:
        """See `TerminalApp`."""
        self.exit(Left(code))

    def get_default_screen(self) -> FleetScreen:
        """The one screen."""
        return FleetScreen(self._fleet, self._begin)


def agents_on_screen(find: Callable[[], Iterable[Path]], agent: str, *, colour: bool) -> int:
    """Show the agents of these sessions until the reader leaves, by way of replays and back. The exit code."""
    if not colour:
        os.environ["NO_COLOR"] = "1"  # Textual asks for nothing else, and what it starts is to know it too
    troubles: list[str] = []
    fleet = Fleet(find, troubles.append)
    try:
        fleet.look()
        begin = (fleet.sessions[0].session, agent or "main") if fleet.sessions else ("", "")
        while True:
            shown = FleetApp(fleet, begin)
            left = shown.run()
            if shown.failure is not None:
                raise shown.failure
            if left is None or left.path is None:
                return left.code if left is not None else 1
            code = _replay(left)
            if code not in (0, 6):
                return code
            begin = (left.session, left.agent or "main")
    finally:
        fleet.close()
        for text in troubles:
            note(f"muse: {text}")


def _replay(left: Left) -> int:
    """The replay of an agent, from its last event back. Returns the exit code."""
    from muse.ui.tui.opening import replay_on_screen

    assert left.path is not None
    agent = left.agent or "main"
    with app.read_session(left.path, check=False) as reading:
        seq = reading.last_of(agent) if left.agent else reading.head().seq
    wanted = Filter(agents=(left.agent,)) if left.agent else Filter()
    return replay_on_screen(Place(Address(left.session, "", seq), left.path), colour=True, wanted=wanted)
