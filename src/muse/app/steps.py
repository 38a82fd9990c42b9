"""A session to be stepped through: rows, details, marks and the state at any event, however long the log is.

The screen of `muse replay` stands on this. What costs much is done in slices (`index`, `grow`, `find`), so that a
screen stays alive meanwhile; everything else answers at once. It must not know how anything is shown.
"""

import re
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from muse.app.beside import Besides
from muse.errors import Damaged, MuseError, UsageError
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS
from muse.runtime.light import Lights
from muse.runtime.reading import Reading
from muse.runtime.session import Session
from muse.view.detail import DETAIL_LINES_MAX, detailed
from muse.view.marks import Mark, mark
from muse.view.panel import Panel, panel
from muse.view.text import detail_text, row_text
from muse.view.timeline import Context, Row, learn, row

PAGE: Final = 200
TYPES_MAX: Final = 2**16 - 1
"""Types that are told apart; those beyond (an odd log) count as one."""
Matches = Callable[[Event, Row], bool]


class Pattern(msgspec.Struct, frozen=True):
    """What is searched for, ready to be looked for in lines."""

    regex: re.Pattern[str]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice of a search came to: the `seq` of a hit (0: none yet), the event `looked` at last, and whether that
    was the `end`. Where neither, call `find` again from `looked` on."""

    seq: int = 0
    looked: int
    end: bool = False


class Selection(msgspec.Struct):
    """The events that pass a filter, in order. `grow` adds to it; `upto` is the last event that was looked at."""

    matches: Matches
    seqs: "array[int]"
    upto: int = 0


def pattern(text: str, *, regex: bool = False) -> Pattern:
    """What to search for: a text, whatever its case, or a regular expression (Python's `re`, case counts).

    Raises `UsageError` for an expression that is none, or that matches everything."""
    if not text:
        raise UsageError("nothing to search for")
    try:
        return Pattern(re.compile(text) if regex else re.compile(re.escape(text), re.IGNORECASE))
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}") from error


class Steps:
    """The steps of one session. Seqs are those of the log, 1 to `head`.

    `index`, `grow` and `find` may run in one other thread than the rest. `close` closes the reading too.
    """

    def __init__(self, reading: Reading, *, home: str = "") -> None:
        """`home` is a folder to be shown as `~`."""
        self._reading = reading
        self._lock = threading.RLock()
        self._context = Context(home=home)
        self._marks = bytearray()
        self._lanes: dict[str, int] = {}
        self._lane_of = array("H")
        self._spans: dict[str, tuple[int, int]] = {}
        self._going: set[int] = set()
        self._types: dict[str, int] = {}
        self._type_of = array("H")
        self._turns = array("L")
        self._lights = Lights(reading.session)
        self._besides = Besides()
        self.session = reading.session
        self.damage: Damaged | None = reading.damage
        """Where the log is damaged: events from `damage.seq` on cannot be read. May become known while it is
        indexed; then `head` goes back to the last event before it."""
        self.head = 0
        self.closed = False
        """Whether the session is closed as of `head`."""
        self.refresh()

    # -- what is there -----------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look whether the log has grown (or was found damaged); cheap enough for every 50 ms."""
        with self._lock:
            head = self.damage.seq - 1 if self.damage is not None else self._reading.head().seq
            if head == self.head:
                return False
            self.head = head
            return True

    @property
    def indexed(self) -> int:
        """Up to which event marks, turns, states and selections are known."""
        return len(self._marks)

    def index(self, budget_seconds: float = 0.05) -> bool:
        """Go on building the index for about so long. True while there is more to do."""
        until = time.monotonic() + budget_seconds
        with self._lock:
            try:
                for event in self._reading.events(after=self.indexed, before=self.head + 1):
                    self._take(event)
                    if time.monotonic() > until:
                        break
            except Damaged as error:
                self.damage, self.head = error, self.indexed
            return self.indexed < self.head

    def _take(self, event: Event) -> None:
        learn(self._context, event)
        before = self._in_turn()
        self._lights.take(event)
        self._besides.take(event)
        if self._in_turn() and not before:
            self._turns.append(event.seq)
        self._lane_of.append(self._lanes.setdefault(event.agent, len(self._lanes)))
        first, last = self._spans.get(event.agent, (event.seq, 0))
        self._going.discard(last)
        self._spans[event.agent] = (first, event.seq)
        if event.type != "agent.finished":
            self._going.add(event.seq)
        self._type_of.append(self._types.setdefault(event.type, min(len(self._types), TYPES_MAX)))
        self._marks.append(mark(event))
        if event.type not in COMMANDS:
            self.closed = event.type == "session.closed"

    def _in_turn(self) -> bool:
        main = self._lights.newest.agents.get("main")
        return main is not None and main.turn

    @property
    def agents(self) -> tuple[str, ...]:
        """The lanes, in the order of their appearance, as far as the index goes."""
        return tuple(self._lanes)

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """Each lane with its first event and its last, in the order of their appearance; the last is 0 while it may go
        on: its agent has not ended, nor is the session closed."""
        closed = self.closed and self.indexed == self.head
        return [
            (agent, first, 0 if last in self._going and not closed else last)
            for agent, (first, last) in self._spans.items()
        ]

    # -- one step ----------------------------------------------------------------------------------------------------

    def event(self, seq: int) -> Event:
        """The event. Raises `Damaged`; `seq` must be within 1 and `head`."""
        with self._lock:
            event = self._reading.event(seq)
        assert event is not None, f"event {seq} is not in the log"
        return event

    def row(self, seq: int) -> Row:
        """Its row, without detail."""
        return row(self.event(seq), self._context)

    def rows(self, first: int, count: int) -> list[Row]:
        """The rows of so many events from `first` on, fewer at the end. Before the index has come there, the titles of
        calls that began long before may be missing."""
        with self._lock:
            events = list(self._reading.events(after=first - 1, before=min(first + count, self.head + 1)))
            return [row(one, self._context) for one in events]

    def detail(self, seq: int, lines_max: int = DETAIL_LINES_MAX) -> Row:
        """Its row with its detail, cut at so many lines."""
        event = self.event(seq)
        with self._lock:
            return detailed(event, self._context, self._reading.content, lines_max)

    def content(self, ref: BlobRef) -> bytes | None:
        """A blob's bytes, None where redaction hid them. Raises `Damaged`."""
        with self._lock:
            return self._reading.content(ref)

    def state(self, seq: int) -> Session | None:
        """The state after that event, transcripts left out; None where the index has not come there. The caller's
        own: it does not change."""
        if seq > self.indexed:
            return None
        with self._lock:
            return self._lights.at(seq, self._reading.events)

    def panel(self, seq: int) -> Panel | None:
        """What the state pane says after that event; None where the index has not come there."""
        state = self.state(seq)
        return panel(state, self._besides.at(seq, self.event)) if state is not None else None

    def panel_when_known(self, seq: int) -> Panel:
        """The same, after the index has come there; 0 stands for before the first event. Raises `Damaged` or
        another error where that cannot be."""
        while self.indexed < seq <= self.head:
            self.index()
        if self.damage is not None and seq > self.head:
            raise self.damage
        found = self.panel(seq)
        if found is None:
            raise MuseError(self.broken or f"the state after #{seq} is not known")
        return found

    @property
    def broken(self) -> str:
        """Why no state is known from some event on: what is recorded there cannot follow what stands before it."""
        return self._lights.broken

    # -- marks -------------------------------------------------------------------------------------------------------

    def mark(self, seq: int) -> Mark | None:
        """What the event is, None where the index has not come there."""
        return Mark(self._marks[seq - 1]) if seq <= self.indexed else None

    def minimap(self, first: int, last: int, cells: int, selected: Selection | None = None) -> list[int]:
        """Events `first` to `last` (of a selection: those among them) in so many equal cells: the marks that stand in
        each, as `view.marks.bits`; 0 where nothing stands or is known yet."""
        if selected is None:
            marks = bytes(self._marks[first - 1 : last])
            whole = last - first + 1
        else:
            low, high = bisect_left(selected.seqs, first), bisect_right(selected.seqs, last)
            marks = bytes(self._marks[seq - 1] for seq in selected.seqs[low:high])
            whole = high - low
        found = []
        for cell in range(cells):
            part = marks[cell * whole // cells : max((cell + 1) * whole // cells, cell * whole // cells + 1)]
            found.append(sum(1 << one for one in Mark if one in part))
        return found

    def next(
        self, seq: int, marks: Collection[Mark], *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` that is one of these; of a selection, the next of its own."""
        return self._nearest(seq, forward, selected, lambda one: self._marks[one - 1] in marks)

    def next_of_type(
        self, seq: int, type_name: str, *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` of this type."""
        code = self._types.get(type_name)
        return self._nearest(seq, forward, selected, lambda one: self._type_of[one - 1] == code)

    def next_of_agent(
        self, seq: int, agent: str, *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` of this agent."""
        code = self._lanes.get(agent)
        return self._nearest(seq, forward, selected, lambda one: self._lane_of[one - 1] == code)

    def next_turn(self, seq: int, *, forward: bool = True) -> int | None:
        """Where the next turn begins, or the one that `seq` is in or, standing at its beginning, the one before."""
        if forward:
            at = bisect_right(self._turns, seq)
            return self._turns[at] if at < len(self._turns) else None
        at = bisect_left(self._turns, seq)
        return self._turns[at - 1] if at else None

    def _nearest(
        self, seq: int, forward: bool, selected: Selection | None, wanted: Callable[[int], bool]
    ) -> int | None:
        seqs: Sequence[int] = selected.seqs if selected is not None else range(1, self.indexed + 1)
        if forward:
            return next((one for one in seqs[bisect_right(seqs, seq) :] if wanted(one)), None)
        return next((one for one in reversed(seqs[: bisect_left(seqs, seq)]) if wanted(one)), None)

    # -- filters and search ------------------------------------------------------------------------------------------

    def select(self, matches: Matches) -> Selection:
        """A selection, empty until it is grown."""
        return Selection(matches, array("L"))

    def grow(self, selection: Selection, budget_seconds: float = 0.05) -> bool:
        """Look at more events for a selection, for about so long, as far as the index goes. True while there is more
        to do."""
        until = time.monotonic() + budget_seconds
        with self._lock:
            for event in self._reading.events(after=selection.upto, before=self.indexed + 1):
                if selection.matches(event, row(event, self._context)):
                    selection.seqs.append(event.seq)
                selection.upto = event.seq
                if time.monotonic() > until:
                    break
            return selection.upto < self.indexed

    def find(
        self, wanted: Pattern, seq: int, *, forward: bool = True, selected: Selection | None = None,
        budget_seconds: float = 0.05,
    ) -> Found:  # fmt: skip
        """Look for the next event after (or before) `seq` whose row or detail holds the pattern, for about so long."""
        until = time.monotonic() + budget_seconds
        seqs: Sequence[int] = selected.seqs if selected is not None else range(1, self.head + 1)
        looked = seq
        rest = seqs[bisect_right(seqs, seq) :] if forward else seqs[: bisect_left(seqs, seq)][::-1]
        for looked in rest:
            shown = self.detail(looked)
            if any(wanted.regex.search(line) for line in (row_text(shown), *detail_text(shown, indent=""))):
                return Found(seq=looked, looked=looked)
            if time.monotonic() > until:
                return Found(looked=looked)
        return Found(looked=looked, end=True)

    def close(self) -> None:
        """Close the reading."""
        self._reading.close()
