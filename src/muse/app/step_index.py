"""What is known of each event of a log, a few bytes each: its mark, its agent and type, who said what its call does.

Built event by event, in the order of the log, for `muse.app.steps`. In memory only: what is kept holds no text but the
light states'. This module must not know where events come from.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from muse.app.beside import Besides
from muse.event import kinds
from muse.event.calls import uses_of
from muse.event.conversation import Said
from muse.event.envelope import Event
from muse.runtime.light import Agent, Lights
from muse.view.filters import is_failure
from muse.view.marks import mark

NAMES_MAX: Final = 2**16 - 1
"""Agents and types that are told apart; those beyond (an odd log) count as one."""
NUMBER_GAP_MAX: Final = 4_096
NUMBER_DIGITS_MAX: Final = 9


class Names:
    """Names as small numbers, in the order of their appearance, with the first event of each and its last so far."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []
        self.of = array("H")
        """Of each event."""
        self.first = array("L")
        self.last = array("L")
        self.ended = bytearray()
        """Whether its last event so far says that it has ended."""

    def add(self, name: str, seq: int, *, ends: bool = False) -> None:
        """The next event's name. `ends`: it says that what has the name is over."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = min(len(self.names), NAMES_MAX - 1)
            if number == len(self.names):
                self.names.append(name)
                self.first.append(seq)
                self.last.append(seq)
                self.ended.append(ends)
        self.last[number], self.ended[number] = seq, ends
        self.of.append(number)


class Calls:
    """Call keys and the event that last said what each does."""

    def __init__(self) -> None:
        self._lanes: dict[str, array[int]] = {}
        self._odd: dict[str, int] = {}

    def get(self, key: str) -> int:
        """Its seq, 0 for none."""
        lane, number = _number(key)
        known = self._lanes.get(lane)
        if number and known is not None and number < len(known):
            return known[number]
        return self._odd.get(key, 0)

    def set(self, key: str, seq: int) -> None:
        """`seq` says it."""
        lane, number = _number(key)
        known = self._lanes.setdefault(lane, array("L")) if number else None
        if known is None or number > len(known) + NUMBER_GAP_MAX or key in self._odd:
            self._odd[key] = seq
            return
        while len(known) <= number:
            known.append(0)
        known[number] = seq


def _number(key: str) -> tuple[str, int]:
    """`main/7` as ("main", 7); a key of another form as a lane without number."""
    lane, _, number = key.rpartition("/")
    is_plain = number.isascii() and number.isdecimal() and number[0] != "0" and len(number) <= NUMBER_DIGITS_MAX
    return (lane, int(number)) if is_plain else (key, 0)


class Index:
    """The index of one log; `take` adds the next event to it."""

    def __init__(self, session: str) -> None:
        self.marks = bytearray()
        """One `Mark` an event."""
        self.failed = bytearray()
        """Whether it is a failure, as filters understand it."""
        self.agents, self.types = Names(), Names()
        self.taught = array("L")
        """For each event that belongs to a call, the event that last said what the call does; 0 for none."""
        self.turns = array("L")
        """Where main's turns begin."""
        self.lights = Lights(session)
        self.besides = Besides()
        self._calls = Calls()

    @property
    def seq(self) -> int:
        """The last event taken in."""
        return len(self.taught)

    def take(self, event: Event) -> None:
        """The next event."""
        seq, body = event.seq, event.body
        if event.agent == "main":
            before = _Before(self.lights.newest.agents.get("main"))
            self.lights.take(event)
            begun = before.turn_begun(event, self.lights.newest.agents.get("main"))
            if begun and (not self.turns or begun > self.turns[-1]):
                self.turns.append(begun)
        else:
            self.lights.take(event)
        call = getattr(body, "call", None)
        known = self._calls.get(call) if call and type(call) is str else 0
        for key in teaches(event, known != 0):
            self._calls.set(key, seq)
            known = seq if key == call else known
        self.besides.take(event)
        self.agents.add(event.agent, seq, ends=event.type == "agent.finished")
        self.types.add(event.type, seq)
        self.marks.append(mark(event))
        self.failed.append(is_failure(event))
        self.taught.append(known)


class _Before:
    """How main stands before an event of its own, to see after it whether a turn began."""

    __slots__ = ("_queued", "_there", "_turn")

    def __init__(self, main: Agent | None) -> None:
        self._there = main is not None
        self._turn = main is not None and main.turn
        self._queued = [said.seq for said in main.queue] if main is not None and main.queue else ()

    def turn_begun(self, event: Event, main: Agent | None) -> int:
        """Where a turn began, 0 for nowhere: at the words that it began with; where those had waited in the queue, with
        what comes after the end of the turn before."""
        if main is None or (not self._there and not main.turn):  # nothing to be folded (yet): a prompt begins a turn
            return event.seq if isinstance(event.body, kinds.UserPrompted) else 0
        last = main.items[-1] if main.turn and main.items else None
        if not isinstance(last, Said):
            return 0
        if self._turn and last.seq in self._queued:
            return event.seq + 1
        began_now = last.seq == event.seq and last.source == "prompt"
        return last.seq if began_now or not self._turn else 0


def teaches(event: Event, known: bool) -> Iterator[str]:
    """The keys of the calls of which rows learn from this event (`view.timeline.learn`). `known`: the event's own call
    is."""
    body = event.body
    match body:
        case kinds.ModelRequested() | kinds.ToolStarted():
            yield body.call
        case kinds.ApprovalRequested():
            if not known:
                yield body.call
        case kinds.ModelResponded():
            yield from (key for key, _ in uses_of(body))
        case _:
            pass
