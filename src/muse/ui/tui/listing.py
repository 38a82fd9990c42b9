"""What the list shows: places in it and their events, under a filter or not, with rows, lanes and times.

A place is counted from 0; the last one may be the word that the log is damaged from here on. Rows are read a page at a
time, as they are looked at. This module must not know Textual.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from muse.app.step_search import refuse_endless
from muse.app.steps import Selection, Steps
from muse.errors import Damaged
from muse.event.envelope import Event
from muse.ui.tui.lanes import Lane, lanes_of
from muse.view.filters import Filter, Past, calls_of, learn
from muse.view.timeline import Row
from muse.view.visible import headline

ROWS_KEPT_MAX: Final = 2_000
ROWS_READ: Final = 100
"""Rows are read so many at once, from before the one that was asked for."""


class Filtering(msgspec.Struct):
    """A filter that is on: as it was written, and what it leaves so far."""

    text: str
    selection: Selection
    calls: set[str] | None = None
    """With `whole-calls`, while the calls are looked for: those found."""
    wanted: Filter = Filter()


class Listing:
    """The list of one session."""

    def __init__(self, steps: Steps, content: Callable[..., bytes | None], home: str) -> None:
        """`content` reads a blob, for filters that search."""
        self.steps = steps
        self._content = content
        self._home = home
        self.filtering: Filtering | None = None
        self.forgotten = 0
        """How often all that was read had to be forgotten."""
        self._rows: dict[int, Row] = {}
        self._early: set[int] = set()
        self._lanes: tuple[Lane, ...] = ()
        self._lanes_at = -1
        self._start: datetime | None = None
        self._map: list[int] = []
        self._map_of: tuple[int, ...] = ()

    # -- places ------------------------------------------------------------------------------------------------------

    @property
    def selection(self) -> Selection | None:
        """What the filter leaves, None without one."""
        return self.filtering.selection if self.filtering else None

    @property
    def looked(self) -> int:
        """Up to which event the filter has looked; the head without one."""
        return self.selection.upto if self.selection is not None else self.steps.head

    @property
    def events(self) -> int:
        """How many events the list holds so far."""
        return len(self.selection.seqs) if self.selection is not None else self.steps.head

    @property
    def count(self) -> int:
        """How many places: one more than events where the log is damaged."""
        return self.events + (self.steps.damage is not None)

    def seq_at(self, place: int) -> int:
        """The event at a place; at the last one of a damaged log the first that cannot be read."""
        if place >= self.events:
            return self.steps.head + 1
        return self.selection.seqs[place] if self.selection is not None else place + 1

    def place_of(self, seq: int) -> int:
        """The place of an event, or of the nearest one after it, or the last."""
        place = seq - 1 if self.selection is None else bisect_left(self.selection.seqs, seq)
        return max(min(place, self.count - 1), 0)

    def count_to(self, seq: int) -> int:
        """How many of the list's events stand up to `seq`."""
        return bisect_right(self.selection.seqs, seq) if self.selection is not None else min(seq, self.events)

    def minimap(self, cells: int) -> list[int]:
        """The marks of the whole list in so many cells."""
        known = (cells, self.steps.indexed, self.steps.head, self.looked, self.events)
        if self._map_of != known:
            self._map_of, self._map = known, self.steps.minimap(1, self.steps.head, cells, self.selection)
        return self._map

    # -- rows --------------------------------------------------------------------------------------------------------

    def row(self, place: int) -> Row:
        """The row at a place."""
        if place >= self.events:
            return self._damage()
        seq = self.seq_at(place)
        if seq not in self._rows:
            self._read(place, seq)
        return self._rows.get(seq) or self._damage()

    def _read(self, place: int, seq: int) -> None:
        if len(self._rows) > ROWS_KEPT_MAX:
            self._rows.clear()
            self._early.clear()
        try:
            if self.selection is None:
                found = self.steps.rows(max(seq - ROWS_READ // 2, 1), ROWS_READ)
            else:
                found = [self.steps.row(seq)]
        except Damaged as error:
            self._found_damage(error)
            return
        for row in found:
            self._rows[row.seq] = row
            if row.seq > self.steps.indexed:
                self._early.add(row.seq)

    def _found_damage(self, error: Damaged) -> None:
        """It was not known yet; from now on it is."""
        if self.steps.damage is None:
            self.steps.damage = error
            self.steps.refresh()

    def _damage(self) -> Row:
        damage = self.steps.damage
        words = headline(str(damage)) if damage is not None else "it cannot be read"
        return Row(
            seq=self.steps.head + 1, time="", agent="", type="", kind="log", severity="bad", mark="✗", label="damaged",
            summary=f"{words}; what stands here and later cannot be read",
        )  # fmt: skip

    def forget(self) -> None:
        """Something was taken out of the log: what was read before is read again."""
        self.forgotten += 1
        self._rows.clear()
        self._early.clear()

    def renewed(self) -> None:
        """The index went on: rows that were read before it knew their calls are read again."""
        for seq in [seq for seq in self._early if seq <= self.steps.indexed]:
            self._rows.pop(seq, None)
            self._early.discard(seq)

    # -- lanes and times ---------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The agents' lanes, as far as the index goes."""
        if self._lanes_at != self.steps.indexed:
            self._lanes_at = self.steps.indexed
            self._lanes = lanes_of(self.steps.spans)
        return self._lanes

    def time(self, row: Row, *, utc: bool) -> str:
        """When: `12:03:22` (UTC), or how long after the first event, `03:22.1`, `2:03:22`, `3d 02:03`. "" where the
        header says nothing that can be read."""
        when = moment(row.time)
        if when is None:
            return ""
        if utc:
            return when.strftime("%H:%M:%S")
        if self._start is None:
            self._start = moment(self.steps.event(1).time) or when
        return since(when - self._start)

    # -- filters -----------------------------------------------------------------------------------------------------

    def choose(self, text: str, wanted: Filter) -> None:
        """Show only what is meant; an empty filter shows all. Raises `UsageError` for an expression whose search may
        never end."""
        for expression in wanted.patterns:
            refuse_endless(expression)
        if not wanted:
            self.filtering = None
            return
        calls: set[str] | None = set() if wanted.whole_calls else None
        selection = self.steps.select(self._matching(wanted, calls), wanted if calls is None else None)
        self.filtering = Filtering(text, selection, calls, wanted)

    def _matching(self, wanted: Filter, calls: set[str] | None) -> Callable[[Event, Row], bool]:
        past = Past(home=self._home)

        def matches(event: Event, row: Row) -> bool:
            learn(past, event)
            if not wanted.matches(event, past, self._content, row):
                return False
            if calls is None:
                return True
            calls.update(calls_of(event))
            return False

        return matches

    def grow(self, seconds: float) -> bool:
        """Look at more events for the filter, for about so long. True while there is more to do."""
        filtering = self.filtering
        if filtering is None:
            return False
        more = self.steps.grow(filtering.selection, seconds)
        if more or filtering.calls is None or self.steps.indexed < self.steps.head:
            return more
        belongs = filtering.wanted.completed(filtering.calls)
        again = self._matching(msgspec.structs.replace(filtering.wanted, whole_calls=False), None)
        filtering.selection = self.steps.select(lambda event, row: again(event, row) or belongs(event))
        filtering.calls = None
        return True


def since(length: timedelta) -> str:
    """A length of time in at most eight columns."""
    tenths = length // timedelta(milliseconds=100)
    sign, tenths = ("-", -tenths) if tenths < 0 else ("", tenths)
    seconds = tenths // 10
    if seconds < 3600:
        return f"{sign}{seconds // 60:02}:{seconds % 60:02}.{tenths % 10}"
    if seconds < 100 * 3600:
        return f"{sign}{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"{sign}{seconds // 86400}d{seconds % 86400 // 3600:02}:{seconds % 3600 // 60:02}"


def moment(text: str) -> datetime | None:
    """A header's time, None where it says none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
