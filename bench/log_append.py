"""How fast a log takes events, against the disk itself: run `python bench/log_append.py [folder]`.

The raw rate is one write of the same number of bytes and one fdatasync; rounds alternate so that a busy machine
disturbs both alike. Numbers go to docs/performance.md by hand.
"""

import os
import secrets
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from muse.event.codec import canonical
from muse.event.commitment import commit
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify

ROUNDS = 9
EVENTS_A_ROUND = 400
BATCH = 1_000
BATCHES = 50
BODY = {"call": "main/1", "status": "ok", "text": "x" * 352}


def draft(type_: str = "tool.finished") -> Draft:
    data, plain = canonical(BODY)
    key = secrets.token_bytes(32)
    root = commit(plain, key)
    id_ = secrets.token_hex(16)
    return Draft(id_, "2026-01-01T00:00:00.000000Z", type_, 1, "main", 0, data, key, root.count, root.root)


def rate(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def one_by_one(log: SqliteLog, raw: int) -> tuple[float, float]:
    """(raw, append) rates, medians of alternating rounds; drafts are hashed inside the measured loop."""
    size = len(draft().body) + 360

    def write_raw() -> None:
        for _ in range(EVENTS_A_ROUND):
            os.write(raw, bytes(size))
            os.fdatasync(raw)

    def append() -> None:
        head = log.head().seq
        for _ in range(EVENTS_A_ROUND):
            head = log.append([draft()], [], head, 1).head.seq
        log.tidy()

    raws, appends = [], []
    for _ in range(ROUNDS):
        raws.append(rate(EVENTS_A_ROUND, write_raw))
        appends.append(rate(EVENTS_A_ROUND, append))
    return statistics.median(raws), statistics.median(appends)


def main(folder: Path) -> None:
    raw = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with SqliteLog.create(folder / "s.muse", "s", commands={}) as log:
        log.claim(lambda claim: draft("session.opened"))
        raw_rate, append_rate = one_by_one(log, raw)
        print(f"raw append + fdatasync      {raw_rate:9.0f} /s")
        print(f"one event, hashed + durable {append_rate:9.0f} /s   ratio {append_rate / raw_rate:.2f}")
        drafts = [draft() for _ in range(BATCH * BATCHES)]

        def batches() -> None:
            head = log.head().seq
            for start in range(0, len(drafts), BATCH):
                head = log.append(drafts[start : start + BATCH], [], head, 1).head.seq

        print(f"batches of {BATCH:,}            {rate(len(drafts), batches):9.0f} events/s")
    path = folder / "s.muse"
    with SqliteLog.open(path) as log:
        count = log.head().seq
        content = secrets.token_bytes(1 << 20)
        for name, size, work in (
            ("opening, chain checked", count, lambda: SqliteLog.open(path).close()),
            ("reading", count, lambda: deque(log.read(), maxlen=0)),
            ("verify, one process", count, lambda: verify(log, jobs=1)),
            ("verify, all cores", count, lambda: verify(log)),
            ("asking for changes", 10_000, lambda: [log.changed() for _ in range(10_000)]),
            ("storing a blob, MiB", 64, lambda: log.put_blob((content for _ in range(64)), bytes(32))),
        ):
            print(f"{name:27} {rate(size, work):9.0f} /s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
