"""What stepping through one log costs, measured in a process of its own: `python -m bench.stepping FILE`.

It prints one JSON object (`Stepped`). Times are wall clock in seconds; memory is the peak of this process alone.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from bench.sessions import NEEDLE
from muse.app.places import read_session
from muse.app.steps import Found, Steps, pattern
from muse.event.envelope import Event
from muse.view.filters import Filter, Past, learn
from muse.view.timeline import Row

Value = TypeVar("Value")

STEPS = 200
ROWS = 50
SLICE_SECONDS = 0.02
ABSENT = "zyxabsent"
"""Stands in no log: a search for it looks at everything."""
READ_EVENTS_MAX = 100_000
"""A filter that reads every event is measured on logs up to here: it takes as long for each event of a longer one."""


class Stepped(msgspec.Struct, frozen=True):
    """Seconds of each thing; `steps` and `reads` one a random event; `slices` of the search."""

    events: int
    file_bytes: int
    first_rows: float
    last_rows: float
    index: float
    checked_open: float
    raw: float
    raw_search: float
    steps: tuple[float, ...]
    states: tuple[float, ...]
    reads: tuple[float, ...]
    minimap: float
    jump: float
    first_hit: float
    search_all: float
    slices: tuple[float, ...]
    filter_by_index: float
    filter_by_reading: float
    base_bytes: int
    peak_bytes: int


def main(path: Path) -> None:
    """Measure, and print."""
    base = _peak()
    steps, first_rows = _timed(lambda: _opened(path))
    last_rows = _timed(lambda: steps.rows(steps.head - ROWS + 1, ROWS))[1]
    index = _timed(lambda: _indexed(steps))[1]
    chance = Random(1)
    places = [chance.randint(1, steps.head) for _ in range(STEPS)]
    stepped = tuple(_timed(partial(_step, steps, seq))[1] for seq in places)
    states = tuple(_timed(partial(steps.panel, seq))[1] for seq in places)
    reads = tuple(_timed(partial(steps.event, seq))[1] for seq in places)
    minimap = _timed(lambda: steps.minimap(1, steps.head, ROWS))[1]
    jump = _timed(lambda: steps.next_of_type(1, "session.closed"))[1]
    hits, first_hit = _timed(lambda: _search(steps, NEEDLE))
    slices, search_all = _timed(lambda: _search(steps, ABSENT))
    by_index = _timed(lambda: _filter(steps, Filter(types=("tool.finished",), failed=True)))[1]
    peak = _peak()
    by_reading = 0.0
    if steps.head <= READ_EVENTS_MAX:
        by_reading = _timed(lambda: _filter(steps, Filter(tools=("shell",), failed=True)))[1]
    steps.close()
    raw, searched = _timed(lambda: _raw(path, b""))[1], _timed(lambda: _raw(path, ABSENT.encode()))[1]
    checked = _timed(lambda: read_session(path).close())[1]
    found = Stepped(
        events=steps.head, file_bytes=path.stat().st_size, first_rows=first_rows, last_rows=last_rows, index=index,
        checked_open=checked, raw=raw, raw_search=searched, steps=stepped, states=states, reads=reads, minimap=minimap,
        jump=jump, first_hit=first_hit, search_all=search_all, slices=(*hits, *slices), filter_by_index=by_index,
        filter_by_reading=by_reading, base_bytes=base, peak_bytes=peak,
    )  # fmt: skip
    print(msgspec.json.encode(found).decode())


def _timed(work: Callable[[], Value]) -> tuple[Value, float]:
    begun = time.perf_counter()
    value = work()
    return value, time.perf_counter() - begun


def _opened(path: Path) -> Steps:
    steps = Steps(read_session(path, check=False))
    steps.rows(1, ROWS)
    return steps


def _indexed(steps: Steps) -> None:
    while steps.index(SLICE_SECONDS):
        pass


def _step(steps: Steps, seq: int) -> None:
    """What the screen asks for at a step that is nowhere near: a page of rows, the detail, the state."""
    steps.rows(max(seq - ROWS // 2, 1), ROWS)
    steps.detail(seq)
    steps.panel(seq)


def _search(steps: Steps, text: str) -> list[float]:
    """Up to the first hit or the end, in the slices of a screen; how long each took."""
    wanted, found, slices = pattern(text), Found(looked=0), []
    while not found.seq and not found.end:
        begun = time.perf_counter()
        found = steps.find(wanted, found.looked, budget_seconds=SLICE_SECONDS)
        slices.append(time.perf_counter() - begun)
    return slices


def _filter(steps: Steps, wanted: Filter) -> None:
    past = Past()

    def matches(event: Event, row: Row) -> bool:
        learn(past, event)
        return wanted.matches(event, past, steps.content, row)

    selection = steps.select(matches, wanted)
    while steps.grow(selection, SLICE_SECONDS):
        pass


def _raw(path: Path, needle: bytes) -> int:
    """Read every row; how many have the bytes."""
    with read_session(path, check=False) as reading:
        head = reading.head().seq
        if not needle:
            return sum(1 for _ in reading.raw(0, head + 1))
        return sum(needle in body.lower() for _, body, _ in reading.raw(0, head + 1))


def _peak() -> int:
    """The most memory that this process ever held, in bytes; 0 where the system does not say (Linux does)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
