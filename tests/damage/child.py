"""A process of its own for the tests of failing disks: it appends, and when that fails, does what an owner does."""

import os
import resource
import sys
from pathlib import Path

from muse.errors import StoreUnavailable
from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS, draft, own

ATTEMPTS_MAX = 20


def say(*words: object) -> None:
    """One line in one system call."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def insist(log: SqliteLog, drafts: list[Draft], *, broken: bool = False) -> str:
    """Append until it is known to stand: `appended`, or `found` where a refused one had come through after all."""
    for _ in range(ATTEMPTS_MAX):
        try:
            if broken:
                log.reopen()
                found = log.find([one.id for one in drafts])
                assert len(found) in (0, len(drafts)), "an append came through in part"
                if found:
                    return "found"
            log.append(drafts[:1], drafts[1:], log.head().seq, 1)
        except StoreUnavailable:
            broken = True
            say("failed")
        else:
            return "appended"
    raise AssertionError("the disk never got well")


def appends(path: Path, count: str) -> None:
    """Own the log and append so many times; ids are said before, and how it ended after."""
    with SqliteLog.open(path, commands=COMMANDS) as log:
        own(log)
        say("owned")
        for n in range(int(count)):
            drafts = [draft("a.fact", {"n": n, "text": "x" * (n * 997 % 9_000)}), draft("a.decision", {"n": n})]
            say("append", *(one.id for one in drafts))
            say(insist(log, drafts))
        say("end")


def short(path: Path, step: str) -> None:
    """Append with a limit on the length of files that cuts the write at one byte after the other; the limit goes, and
    the same is said again."""
    wal = Path(f"{path}-wal")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SqliteLog.open(path, commands=COMMANDS) as log:
        own(log)
        insist(log, [draft("a.fact", {"text": "x" * 90_000}), draft("a.decision")])
        cut, at = 0, 0
        while True:
            drafts = [draft("a.fact", {"text": "y" * 5_000}), draft("a.decision")]
            say("append", *(one.id for one in drafts))
            resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + at, unlimited[1]))
            try:
                log.append(drafts[:1], drafts[1:], log.head().seq, 1)
                failed = False
            except StoreUnavailable:
                failed = True
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            if not failed:
                say("appended")
                break
            cut += 1
            at += int(step)
            say(insist(log, drafts, broken=True))
            insist(log, [draft("a.fact", {"text": "x" * 90_000}), draft("a.decision")])
        say("cuts", cut)


def redacts(path: Path) -> None:
    """Own the log, append, and take an event out again."""
    with SqliteLog.open(path, commands=COMMANDS) as log:
        own(log)
        one = draft("a.fact", {"text": "x" * 9_000})
        seq = log.append([one], [], log.head().seq, 1).head.seq
        say("redact")
        log.redact({seq: encode_disclosed(disclose(parse(one.body), one.key, lambda path: path == ("text",)))}, [], 1)
        say("redacted")


if __name__ == "__main__":
    name, where, *rest = sys.argv[1:]
    {"appends": appends, "short": short, "redacts": redacts}[name](Path(where), *rest)
