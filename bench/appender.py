"""One appender: single events, each durable before the next, against the disk itself."""

import os
import time
from collections.abc import Callable
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
TURN_EVENTS = 10
"""Appends of one kind before it is another's turn."""


def turns(count: int, rounds: int, *works: Callable[[range], None]) -> list[tuple[float, ...]]:
    """The rate of each piece of work in each round. They take turns after every few events: what others do to the disk
    meanwhile hits all alike."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        spent = [0.0] * len(works)
        for start in range(0, count, TURN_EVENTS):
            for index, work in enumerate(works):
                begun = time.perf_counter()
                work(range(start, min(start + TURN_EVENTS, count)))
                spent[index] += time.perf_counter() - begun
        for samples, seconds in zip(found, spent, strict=True):
            samples.append(count / seconds)
    return [tuple(samples) for samples in found]


def section(folder: Path, sizes: Sizes) -> Section:
    """Appends of one event of 400 bytes."""
    count = sizes.appends
    bodies = list(standard(count))
    raw = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = SqliteLog.create(folder / "one.muse", "s", commands=COMMANDS)
    ownership = claim(log, SETTINGS, str(folder), lambda _epoch: ())
    row = bytes(content_bytes([seal(bodies[0], "main", 0)]))
    ready: list[Draft] = []

    def write_raw(some: range) -> None:
        for _ in some:
            os.write(raw, row)
            os.fdatasync(raw)

    def prepare(some: range) -> None:
        ready[:] = [seal(bodies[index], "main", 0) for index in some]

    def append(some: range) -> None:
        head = log.head().seq
        for draft in ready:
            head = log.append([draft], [], head, ownership.epoch).head.seq

    def both(some: range) -> None:
        head = log.head().seq
        for index in some:
            head = log.append([seal(bodies[index], "main", 0)], [], head, ownership.epoch).head.seq

    try:
        raws, seals, appends, boths = turns(count, sizes.rounds, write_raw, prepare, append, both)
    finally:
        log.close()
        os.close(raw)
    return Section(
        title="One appender",
        before=(
            "Events of 400 bytes and 6 leaves, one a transaction, through `SqliteLog.append` as the owner. An "
            "append is a whole SQLite commit with a check of head and epoch; sealing makes the canonical bytes, the "
            "salts and the commitment, and is done before any lock is taken.",
        ),
        parts=(
            (
                Figure(name="append, sealed before", unit="events/s", samples=appends, reference=RAW,
                       reference_samples=raws, ratio_aim=0.7),
                Figure(name="seal and append", unit="events/s", samples=boths, reference=RAW, reference_samples=raws),
                Figure(name="seal alone (no disk)", unit="events/s", samples=seals, reference=RAW,
                       reference_samples=raws),
            ),
        ),
    )  # fmt: skip
