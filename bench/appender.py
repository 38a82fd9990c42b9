"""One appender: single events, each durable before the next, against the disk itself."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.bodies import content_bytes, standard
from bench.fleet import SETTINGS
from bench.measure import Figure, Section, Sizes
from muse.event.kinds import COMMANDS
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim

RAW = "write + fdatasync of the same bytes"
PAGES = "write + fdatasync of as many bytes as SQLite writes"
PAGE_BYTES = 4096 + 24
"""A page in the write-ahead log, with its frame's header."""
PAGES_AN_APPEND = 2.4
"""Of the table and of the index of ids; seen as the growth of the write-ahead log over some hundred appends."""
TURN_EVENTS = 10
"""Appends of one kind before it is another's turn."""

Turn = Callable[[range], None]


class Appender:
    """A log whose one owner appends drafts, each in a transaction of its own."""

    def __init__(self, path: Path) -> None:
        self.log = SqliteLog.create(path, "s", commands=COMMANDS)
        self._epoch = claim(self.log, SETTINGS, str(path.parent), lambda _epoch: ()).epoch
        self._head = self.log.head().seq

    def append(self, draft: Draft) -> None:
        """One event, durable on return."""
        self._head = self.log.append([draft], [], self._head, self._epoch).head.seq

    def warm_up(self, draft_of: Callable[[], Draft]) -> None:
        """Append until the write-ahead log was moved once: from then on its file is written over and grows no more."""
        while not self.log.tidy():
            self.append(draft_of())


def turns(count: int, rounds: int, works: list[Turn], between: Callable[[], object]) -> list[tuple[float, ...]]:
    """The rate of each piece of work in each round. They take turns after every few events, so that what others do to
    the disk meanwhile hits all alike; `between` is not timed."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        spent = [0.0] * len(works)
        for start in range(0, count, TURN_EVENTS):
            for index, work in enumerate(works):
                begun = time.perf_counter()
                work(range(start, min(start + TURN_EVENTS, count)))
                spent[index] += time.perf_counter() - begun
            between()
        for samples, seconds in zip(found, spent, strict=True):
            samples.append(count / seconds)
    return [tuple(samples) for samples in found]


def section(folder: Path, sizes: Sizes) -> Section:
    """Appends of one event of 400 bytes."""
    bodies = list(standard(sizes.appends))
    drafts: list[Draft] = []
    row = bytes(content_bytes([seal(bodies[0], "main", 0)]))
    pages = bytes(int(PAGE_BYTES * PAGES_AN_APPEND))

    def seal_some(some: range) -> None:
        drafts[:] = [seal(bodies[index], "main", 0) for index in some]

    def append(_some: range) -> None:
        for draft in drafts:
            steady.append(draft)

    def append_growing(_some: range) -> None:
        for draft in drafts:
            growing.append(draft)

    def write(data: bytes) -> Turn:
        def work(some: range) -> None:
            for _ in some:
                os.write(raw, data)
                os.fdatasync(raw)

        return work

    with ExitStack() as open_:
        raw = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        open_.callback(os.close, raw)
        steady = Appender(folder / "steady.muse")
        open_.callback(steady.log.close)
        growing = Appender(folder / "growing.muse")
        open_.callback(growing.log.close)
        steady.warm_up(lambda: seal(bodies[0], "main", 0))
        works = [seal_some, write(row), append, write(pages), append_growing]
        seals, raws, appends, paged, grown = turns(sizes.appends, sizes.rounds, works, steady.log.tidy)
    return Section(
        title="One appender",
        before=(
            "Events of 400 bytes and 6 leaves, one a transaction, through `SqliteLog.append` as the owner. An append "
            "is a whole SQLite commit with a check of head and epoch; sealing makes the canonical bytes, the salts and "
            "the commitment, and is done before any lock is taken. The write-ahead log is moved into the main file "
            "between appends when nothing waits, as the loop does it.",
        ),
        parts=(
            (
                Figure(name="append", unit="events/s", samples=appends, reference=RAW, reference_samples=raws,
                       ratio_aim=0.7),
                Figure(name="append", unit="events/s", samples=appends, reference=PAGES, reference_samples=paged),
                Figure(name="append to a new log", unit="events/s", samples=grown, reference=RAW,
                       reference_samples=raws),
                Figure(name="seal (no disk)", unit="events/s", samples=seals, reference=RAW, reference_samples=raws),
            ),
        ),
        after=(
            f"Each append is one fdatasync. SQLite writes whole pages: about {PAGES_AN_APPEND} of 4 KiB (the table's "
            "last, one or two of the index of ids, which are random) where the raw file gets 700 bytes; the second "
            "line compares with as many bytes, and there is little left to gain above it. About 45 µs of an append "
            "are processor time, most of it SQLite's. A new log is slower until its write-ahead log has grown to "
            "4 MiB: for a file that grows, the file system writes its own journal as well.",
        ),
    )  # fmt: skip
