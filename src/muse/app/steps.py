"""A session to be stepped through: rows, details, marks and the state at any event, however long the log is.

The screen of `muse replay` stands on this. What costs much is done in slices (`index`, `grow`, `find`), so that a
screen stays alive meanwhile; everything else answers at once. It must not know how anything is shown.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from muse.app.step_log import SLICE_EVENTS, StepLog
from muse.app.step_search import Blobs
from muse.app.step_search import Pattern as Pattern
from muse.app.step_search import pattern as pattern
from muse.errors import Damaged
from muse.event.envelope import Event, Redacted
from muse.view.filters import SEARCHED_LINES_MAX, Filter, Past, whole_output
from muse.view.line import Line
from muse.view.marks import Mark
from muse.view.timeline import Context, Row, row

SEARCHED_EVENTS: Final = (16, 256)
"""A search looks at so many events first (where there are many hits, the next is near), then at ever more at once."""
LOOKED_AT_ONCE: Final = 4_096

Matches = Callable[[Event, Row], bool]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice of a search came to: the `seq` of a hit (0: none yet), the event `looked` at last, and whether that
    was the `end`. Where neither, call `find` again from `looked` on."""

    seq: int = 0
    looked: int
    end: bool = False


class Selection(msgspec.Struct):
    """The events that pass a filter, in order, each with its mark. `grow` adds to it; `upto` is the last event that was
    looked at."""

    matches: Matches
    wanted: Filter | None = None
    seqs: "array[int]" = msgspec.field(default_factory=lambda: array("L"))
    marks: bytearray = msgspec.field(default_factory=bytearray)
    upto: int = 0
    known: dict[tuple[int, int, int], bool] = {}


class Steps(StepLog):
    """The steps of one session. Seqs are those of the log, 1 to `head`.

    `index`, `grow` and `find` take long, and may run in other threads than the rest: they let the rest go first,
    between two events. The log may grow meanwhile (`refresh`). `close` closes the reading too.

    The reading may be one whose chain was not checked (`read_session(…, check=False)`): the index follows it, and where
    it names damage, `damage` says so and `head` goes back to the last event before it.
    """

    _blobs: Blobs | None = None

    # -- marks -------------------------------------------------------------------------------------------------------

    def mark(self, seq: int) -> Mark | None:
        """What the event is, None where the index has not come there."""
        return Mark(self._index.marks[seq - 1]) if seq <= self.indexed else None

    def minimap(self, first: int, last: int, cells: int, selected: Selection | None = None) -> list[int]:
        """Events `first` to `last` (of a selection: those among them) in so many equal cells: the marks that stand in
        each, as `view.marks.bits`; 0 where nothing stands or is known yet."""
        if selected is None:
            low, high, all_marks = first - 1, last, self._index.marks
        else:
            low, high = bisect_left(selected.seqs, first), bisect_right(selected.seqs, last)
            all_marks = selected.marks
        whole, found = high - low, []
        for cell in range(cells):
            begin = low + cell * whole // cells
            part = all_marks[begin : max(low + (cell + 1) * whole // cells, begin + 1)] if whole else b""
            found.append(sum(1 << mark for mark in range(len(Mark)) if mark in part))
        return found

    def next(
        self, seq: int, marks: Collection[Mark], *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` that is one of these; of a selection, the next of its own."""
        if selected is None:
            found = _nearest(self._index.marks, set(marks), seq if forward else seq - 1, forward=forward)
        else:
            at = bisect_right(selected.seqs, seq) if forward else bisect_left(selected.seqs, seq)
            found = _nearest(selected.marks, set(marks), at, forward=forward)
            found = None if found is None else selected.seqs[found - 1]
        return found if found is not None and found <= self.head else None

    def next_of_type(
        self, seq: int, type_name: str, *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` of this type."""
        types = self._index.types
        return self._next_of(types.of, types.numbers.get(type_name), seq, forward, selected)

    def next_of_agent(
        self, seq: int, agent: str, *, forward: bool = True, selected: Selection | None = None
    ) -> int | None:
        """The next event after (or before) `seq` of this agent."""
        agents = self._index.agents
        return self._next_of(agents.of, agents.numbers.get(agent), seq, forward, selected)

    def _next_of(
        self, of: "array[int]", number: int | None, seq: int, forward: bool, selected: Selection | None
    ) -> int | None:
        if number is None:
            return None
        last = min(self.head, len(of))
        if selected is None:
            found = _nearest(of, {number}, seq if forward else seq - 1, forward=forward)
            return found if found is not None and found <= last else None
        seqs = selected.seqs
        end = bisect_right(seqs, last)
        places = range(bisect_right(seqs, seq), end) if forward else range(min(bisect_left(seqs, seq), end) - 1, -1, -1)
        return next((seqs[place] for place in places if of[seqs[place] - 1] == number), None)

    def next_turn(self, seq: int, *, forward: bool = True) -> int | None:
        """Where the next turn begins, or the one that `seq` is in or, standing at its beginning, the one before."""
        turns = self._index.turns
        at = bisect_right(turns, seq) if forward else bisect_left(turns, seq) - 1
        return turns[at] if 0 <= at < len(turns) and turns[at] <= self.head else None

    # -- filters and search ------------------------------------------------------------------------------------------

    def select(self, matches: Matches, wanted: Filter | None = None) -> Selection:
        """A selection, empty until it is grown: `matches` is asked of every event, in order. With the filter that it
        stands for, one that the index can answer alone (types, kinds, agents, failures) reads nothing."""
        plain = Filter() if wanted is None else msgspec.structs.replace(
            wanted, types=(), kinds=(), agents=(), below=False, failed=False
        )  # fmt: skip
        return Selection(matches, None if plain else wanted)

    def grow(self, selection: Selection, budget_seconds: float = 0.05) -> bool:
        """Look at more events for a selection, for about so long, as far as the index goes. True while there is more
        to do."""
        until = time.monotonic() + budget_seconds
        while selection.upto < self.indexed:
            if selection.wanted is not None:
                self._pick(selection, selection.wanted, min(selection.upto + LOOKED_AT_ONCE, self.indexed))
            else:
                with self._gate.behind():
                    self._match(selection, min(selection.upto + SLICE_EVENTS, self.indexed))
            if time.monotonic() > until:
                break
        return selection.upto < self.indexed

    def _match(self, selection: Selection, upto: int) -> None:
        for event, context in self._with_contexts(self._read(selection.upto, upto + 1)):
            if selection.matches(event, row(event, context)):
                selection.marks.append(self._index.marks[event.seq - 1])
                selection.seqs.append(event.seq)
            selection.upto = event.seq

    def _pick(self, selection: Selection, wanted: Filter, upto: int) -> None:
        index, begin = self._index, selection.upto
        types, agents, failed = index.types.of[begin:upto], index.agents.of[begin:upto], index.failed[begin:upto]
        for seq, what in enumerate(zip(types, agents, failed, strict=True), begin + 1):
            known = selection.known.get(what)
            if known is None:
                known = selection.known[what] = self._is_meant(wanted, *what)
            if known:
                selection.marks.append(index.marks[seq - 1])
                selection.seqs.append(seq)
        selection.upto = upto

    def _is_meant(self, wanted: Filter, kind: int, agent: int, failed: int) -> bool:
        event = Event(
            1, "", "", self._index.types.names[kind], 1, self._index.agents.names[agent], 0, 0, Redacted("")
        )  # fmt: skip
        plain = msgspec.structs.replace(wanted, failed=False)
        return bool(failed or not wanted.failed) and plain.matches(event, Past())

    def find(
        self, wanted: Pattern, seq: int, *, forward: bool = True, selected: Selection | None = None,
        budget_seconds: float = 0.05,
    ) -> Found:  # fmt: skip
        """Look for the next event after (or before) `seq` whose row or detail holds the pattern, for about so long."""
        until = time.monotonic() + budget_seconds
        seqs: Sequence[int] = selected.seqs if selected is not None else range(1, self.head + 1)
        at, looked = (bisect_right(seqs, seq) if forward else bisect_left(seqs, seq)), seq
        size, most = SEARCHED_EVENTS
        while 0 <= at < len(seqs) if forward else at > 0:
            step = min(at + size, len(seqs)) if forward else max(at - size, 0)
            size = min(size * 2, most)
            part = seqs[at:step] if forward else seqs[step:at][::-1]
            for event, context in self._candidates(wanted, part):
                looked = event.seq
                if wanted.is_in(self._searched(event, context)):
                    return Found(seq=looked, looked=looked)
                if time.monotonic() > until:
                    return Found(looked=looked)
            at, looked = step, part[-1]
            if time.monotonic() > until:
                break
        return Found(looked=looked, end=not (at < len(seqs) if forward else at > 0))

    def _searched(self, event: Event, context: Context) -> Row:
        """The row with all that it stands for, also what the detail leaves out: as much as a filter searches."""
        shown = self._detailed(event, context, SEARCHED_LINES_MAX)
        try:
            output = whole_output(event, self.content)
        except Damaged:
            return shown
        return msgspec.structs.replace(shown, detail=(*shown.detail, *map(Line, output)))

    def _candidates(self, wanted: Pattern, seqs: Sequence[int]) -> list[tuple[Event, Context]]:
        """Those of these events that may show the pattern, in their order, each with what is known of its call."""
        with self._gate.behind():
            low, high = min(seqs), max(seqs)
            if high - low < 4 * len(seqs):
                events = self._sieved(wanted, low, high, frozenset(seqs))
            else:
                events = [event for seq in sorted(seqs) for event in self._sieved(wanted, seq, seq, frozenset([seq]))]
            found = [(event, self._context(event)) for event in events]
        return found if seqs[0] == low else found[::-1]

    def _sieved(self, wanted: Pattern, low: int, high: int, seqs: Collection[int]) -> list[Event]:
        if not wanted.word:
            return [event for event in self._read(low - 1, high + 1) if event.seq in seqs]
        holds: dict[int, bool] = {}
        found: list[Event] = []
        try:
            for seq, (header, body, decoded) in enumerate(self._reading.raw(low - 1, high + 1), low):
                holds[seq] = wanted.may_be_in(header) or wanted.may_be_in(body)
                if seq not in seqs:
                    continue
                if holds[seq] or self._call_may_hold(wanted, seq, holds):
                    found.append(decoded())
                elif b'"blob":' in body and self._blobs_of(wanted).may_be_shown_in(event := decoded()):
                    found.append(event)
        except Damaged as error:
            self._is_damaged(error, max(holds, default=low - 1), high + 1)
        return found

    def _blobs_of(self, wanted: Pattern) -> Blobs:
        if self._blobs is None or self._blobs.wanted != wanted:
            self._blobs = Blobs(wanted, self.content)
        return self._blobs

    def _call_may_hold(self, wanted: Pattern, seq: int, holds: dict[int, bool]) -> bool:
        """Whether what was said of the event's call may hold the word. `holds` tells it of events, and is added to."""
        if seq > self._index.seq:
            return True
        taught = self._index.taught[seq - 1]
        if not taught:
            return False
        if taught not in holds:
            said: Iterable[tuple[bytes, bytes, object]] = self._reading.raw(taught - 1, taught + 1)
            holds[taught] = any(wanted.may_be_in(body) for _, body, _ in said)
        return holds[taught]


def _nearest(of: "bytearray | array[int]", wanted: set[int], at: int, *, forward: bool) -> int | None:
    """The place, counted from 1, of the first of these values from place `at` + 1 on, or of the last up to `at`."""
    if forward:
        for begin in range(at, len(of), LOOKED_AT_ONCE):
            part = of[begin : begin + LOOKED_AT_ONCE]
            if any(value in part for value in wanted):
                return begin + 1 + next(place for place, value in enumerate(part) if value in wanted)
        return None
    for end in range(min(at, len(of)), 0, -LOOKED_AT_ONCE):
        part = of[max(end - LOOKED_AT_ONCE, 0) : end]
        if any(value in part for value in wanted):
            return end - next(place for place, value in enumerate(reversed(part)) if value in wanted)
    return None
