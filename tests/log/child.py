"""A process of its own for the tests of the log: it does one thing to a log file and says so, line by line."""

import itertools
import os
import random
import resource
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS, draft, own


def say(*words: object) -> None:
    print(*words, flush=True)


def hold(path: Path) -> None:
    """Own the log until stdin ends."""
    with SqliteLog.open(path, commands=COMMANDS) as log:
        say("owned", own(log).epoch)
        sys.stdin.read()


def append(path: Path, seed: str) -> None:
    """Append for ever, with blobs between; each event is said once it is acknowledged."""
    chance = random.Random(seed)
    log = SqliteLog.open(path, commands=COMMANDS)
    epoch = own(log).epoch
    head = log.head().seq
    say("owned", epoch)
    for turn in itertools.count():
        body: dict[str, object] = {"turn": turn, "text": "x" * chance.randrange(6_000)}
        if chance.random() < 0.2:
            root, length = log.put_blob(chance.randbytes(chance.randrange(300_000)), secrets.token_bytes(32))
            body["output"] = {"blob": root, "length": length}
        events = [draft(body=body), *(draft() for _ in range(chance.randrange(4)))]
        head = log.append(events[:1], events[1:], head, epoch).head.seq
        for seq, event in enumerate(events, head - len(events) + 1):
            say(seq, event.id)
        if chance.random() < 0.1:
            log.tidy(pages=1)


def submit(path: Path, count: str) -> None:
    """Submit so many commands, each twice, as one who got no answer would."""
    with SqliteLog.open(path, commands=COMMANDS) as log:
        for n in range(int(count)):
            command = draft("user.prompted", {"text": str(n)})
            seq = log.submit(command)
            assert log.submit(command) == seq
            say(seq, command.id)


def blob(path: Path, mebibytes: str) -> None:
    """Store a blob given in parts, read it back, and say how much more memory that took than an empty one."""
    with SqliteLog.open(path, commands=COMMANDS) as log:
        log.put_blob(b"warm up", secrets.token_bytes(32))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        parts: Iterator[bytes] = (os.urandom(1024 * 1024) for _ in range(int(mebibytes)))
        root, length = log.put_blob(parts, secrets.token_bytes(32))
        size = sum(len(chunk) for chunk in log.stream_blob(root))
        assert size == length
        wal = Path(f"{path}-wal").stat().st_size
        say(root, length, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, wal // 1024**2)


def make(path: Path, mask: str) -> None:
    """Make a log under a umask, write to it, and wait."""
    os.umask(int(mask, 8))
    log = SqliteLog.create(path, "s", commands=COMMANDS)
    own(log)
    log.append([draft()], [], 1, 1)
    say("made")
    sys.stdin.read()


if __name__ == "__main__":
    name, where, *rest = sys.argv[1:]
    {"hold": hold, "append": append, "submit": submit, "blob": blob, "make": make}[name](Path(where), *rest)
