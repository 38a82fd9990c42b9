"""A log under an index that is being built: its events, rows, details and states, by one thread or by several.

Whoever has something to show goes before whoever works on beside it. What is damaged is found here, and from then on
the log ends before it. `muse.app.steps` stands on this. It must not know filters, searches or how anything is shown.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from muse.app.step_index import Index
from muse.errors import Damaged, MuseError
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS, Aside, LogImported
from muse.log.protocol import PAGE_EVENTS, Head
from muse.runtime.reading import VERIFY_HINT, Reading
from muse.runtime.session import Session
from muse.view.detail import DETAIL_LINES_MAX, detailed
from muse.view.line import Line
from muse.view.panel import Panel, panel
from muse.view.timeline import Call, Context, Row, learn, row

SLICE_EVENTS: Final = 64
"""Events that are worked on before somebody who waits gets at the log."""
WAIT_SECONDS: Final = 0.0005
WAITS_MAX: Final = 1_000
SHORT_WAY_EVENTS: Final = 500
"""Where a state is asked for that is no further than this before the index, the index goes there at once."""
WARM_EVENTS: Final = 200
"""Before the index has come to a row, so many events before it are looked through for what its call does."""
CALLS_KEPT_MAX: Final = 10_000
END_EVENTS: Final = 64
"""So many of the newest events are looked through for whether the session is closed."""
ABOUT_THE_LOG: Final = frozenset({"log.redacted", "log.recovered", "head.signed"})
"""Events that say nothing of whether the session is closed."""


class _Gate:
    """One thread at a time; whoever has something to show (`with gate`) goes before whoever works on (`behind`)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._waiting = 0

    def __enter__(self) -> None:
        self._wait(1)
        self._lock.acquire()
        self._wait(-1)

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _wait(self, by: int) -> None:
        with self._counting:
            self._waiting += by

    @contextmanager
    def behind(self) -> Iterator[None]:
        """For a piece of work that takes a few milliseconds."""
        for _ in range(WAITS_MAX):
            if not self._waiting:
                break
            time.sleep(WAIT_SECONDS)
        with self._lock:
            yield


class StepLog:
    """One log; seqs are its own, 1 to `head`. See `Steps` for what holds between threads and of damage."""

    def __init__(self, reading: Reading, *, home: str = "") -> None:
        """`home` is a folder to be shown as `~`."""
        self._reading = reading
        self._home = home
        self._gate = _Gate()
        self._index = Index(reading.session)
        self._link: Head | None = None
        self._calls: dict[tuple[int, str], Call] = {}
        self._beside: tuple[Aside, ...] | None = None
        self.session = reading.session
        self.damage: Damaged | None = reading.damage
        """Where the log is damaged: events from `damage.seq` on cannot be read. May become known later."""
        self.head = 0
        self.closed = False
        """Whether the session is closed as of `head`."""
        self.refresh()
        self._indexed_from = self.head

    # -- what is there -----------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look whether the log has grown (or was found damaged); cheap enough for every 50 ms."""
        with self._gate:
            head = self._reading.head().seq if self.damage is None else self.damage.seq - 1
            if head == self.head:
                return False
            self.head = head
            kinds = [event.type for event in self._read(max(head - END_EVENTS, 0), head + 1)]
            said = (kind for kind in reversed(kinds) if kind not in COMMANDS and kind not in ABOUT_THE_LOG)
            self.closed = next(said, "") == "session.closed"
            return True

    @property
    def indexed(self) -> int:
        """Up to which event the chain was followed, and marks, turns, states and selections are known."""
        return min(self._index.seq, self.head)

    def index(self, budget_seconds: float = 0.05) -> bool:
        """Go on building the index for about so long. True while there is more to do."""
        until = time.monotonic() + budget_seconds
        while self._index.seq < self.head:
            with self._gate.behind():
                self._take(min(self._index.seq + SLICE_EVENTS, self.head) + 1)
            if time.monotonic() > until:
                break
        return self._index.seq < self.head

    def _take(self, before: int) -> None:
        try:
            for link, event in self._reading.follow_chain(self._link, before):
                if event.type == "log.redacted" and event.seq > self._indexed_from:
                    self._begin_again()  # what was indexed may hold what was taken out, and another state
                    return
                self._index.take(event)
                self._link = link
        except Damaged as error:
            self._is_damaged(error, self._index.seq, before)

    def _begin_again(self) -> None:
        self._index, self._link, self._indexed_from = Index(self.session), None, self._reading.head().seq
        self._calls.clear()

    @property
    def agents(self) -> tuple[str, ...]:
        """The lanes, in the order of their appearance, as far as the index goes."""
        return tuple(self._index.agents.names)

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """Each lane with its first event and its last, in the order of their appearance; the last is 0 while it may go
        on: its agent has not ended, nor is the session closed."""
        names = self._index.agents
        closed = self.closed and self.indexed == self.head
        return [
            (name, first, last if closed or ended else 0)
            for name, first, last, ended in zip(names.names, names.first, names.last, names.ended, strict=False)
        ]

    # -- one step ----------------------------------------------------------------------------------------------------

    def event(self, seq: int) -> Event:
        """The event. Raises `Damaged`; `seq` must be within 1 and `head`."""
        with self._gate:
            found = self._read(seq - 1, seq + 1)
        if not found and self.damage is not None:
            raise self.damage
        assert found, f"event {seq} is not in the log"
        return found[0]

    def fault(self, seq: int) -> str:
        """What is wrong with the bytes of an event, "" where nothing is."""
        with self._gate:
            return self._reading.fault(seq)

    def row(self, seq: int) -> Row:
        """Its row, without detail."""
        with self._gate:
            event = self.event(seq)
            return row(event, self._context(event))

    def rows(self, first: int, count: int) -> list[Row]:
        """The rows of so many events from `first` on, fewer at the end. Before the index has come there, the titles of
        calls that began long before may be missing."""
        with self._gate:
            events = self._read(first - 1, min(first + count, self.head + 1))
            return [row(event, context) for event, context in self._with_contexts(events)]

    def detail(self, seq: int, lines_max: int = DETAIL_LINES_MAX) -> Row:
        """Its row with its detail, cut at so many lines. A blob that is damaged is named."""
        with self._gate:
            event = self.event(seq)
            context = self._context(event)
        return self._detailed(event, context, lines_max)

    def _detailed(self, event: Event, context: Context, lines_max: int = DETAIL_LINES_MAX) -> Row:
        try:
            return detailed(event, context, self.content, lines_max)
        except Damaged as error:
            return msgspec.structs.replace(row(event, context), detail=(Line(f"damaged: {error}", "bad"),))

    def content(self, ref: BlobRef) -> bytes | None:
        """A blob's bytes, None where redaction hid them. Raises `Damaged`."""
        with self._gate:
            return self._reading.content(ref)

    def state(self, seq: int) -> Session | None:
        """The state after that event, transcripts left out; None where the index has not come near. The caller's own:
        it does not change."""
        with self._gate:
            if not self._is_near(seq):
                return None
            try:
                return self._index.lights.at(seq, self._reading.events)
            except Damaged as error:
                self._is_damaged(error, max(seq - PAGE_EVENTS, 0), seq + 1)
                return None

    def _is_near(self, seq: int) -> bool:
        """Whether the index has come there; over a short way it goes there at once."""
        if self._index.seq < seq <= min(self._index.seq + SHORT_WAY_EVENTS, self.head):
            self._take(seq + 1)
        return 0 <= seq <= self.indexed

    def panel(self, seq: int) -> Panel | None:
        """What the state pane says after that event; None where the index has not come near."""
        with self._gate:
            state = self.state(seq)
            return panel(state, self._index.besides.at(seq, self.event)) if state is not None else None

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
        return self._index.lights.broken

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, after: int, before: int) -> list[Event]:
        """The events there, up to damage that was not known yet."""
        found: list[Event] = []
        try:
            found.extend(self._reading.events(after, min(before, self.head + 1)))
        except Damaged as error:
            self._is_damaged(error, found[-1].seq if found else after, before)
        return found

    def _is_damaged(self, error: Damaged, after: int, before: int) -> None:
        """From now on the log ends before the damage. SQLite does not say where it is: then it is looked for."""
        if not error.seq:
            error.seq = self._first_unreadable(after, before)
        error.hint = error.hint or VERIFY_HINT
        if self.damage is None or error.seq < self.damage.seq:
            self.damage, self.head = error, error.seq - 1
            self.closed = False

    def _first_unreadable(self, after: int, before: int) -> int:
        for seq in range(after + 1, min(before, after + PAGE_EVENTS)):
            try:
                if self._reading.event(seq) is None:
                    return seq
            except Damaged:
                return seq
        return after + 1

    def _context(self, event: Event) -> Context:
        return next(context for _, context in self._with_contexts([event]))

    def _with_contexts(self, events: Sequence[Event]) -> Iterator[tuple[Event, Context]]:
        """Successive events, each with what earlier ones said of its call."""
        index, page = self._index, Context(home=self._home)
        first = events[0].seq if events else 0
        if first > index.seq:
            for event in self._read(max(first - 1 - WARM_EVENTS, 0), first):
                learn(page, event)
        for event in events:
            call = _call_of(event)
            taught = index.taught[event.seq - 1] if event.seq <= index.seq else 0
            if 0 < taught < first:
                page.calls[call] = self._call(taught, call)
            learn(page, event)
            known = page.calls.get(call)
            calls = {} if known is None else {call: known}
            yield event, Context(calls=calls, home=self._home, asides=self._asides())

    def _asides(self) -> tuple[Aside, ...]:
        """What the first event of an imported log says of events beside the conversation."""
        if self._beside is None:
            body = next((event.body for event in self._read(0, 2)), None)
            self._beside = body.asides if isinstance(body, LogImported) else ()
        return self._beside

    def _call(self, taught: int, call: str) -> Call:
        """What the event `taught` says that a call does."""
        known = self._calls.get((taught, call))
        if known is None:
            said = Context()
            for event in self._read(taught - 1, taught + 1):
                learn(said, event)
            known = said.calls.get(call, Call(""))
            if len(self._calls) >= CALLS_KEPT_MAX:
                self._calls.clear()
            self._calls[taught, call] = known
        return known

    def close(self) -> None:
        """Close the reading."""
        with self._gate:
            self._reading.close()


def _call_of(event: Event) -> str:
    call = getattr(event.body, "call", "")
    return call if isinstance(call, str) else ""
