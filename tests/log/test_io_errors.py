"""A disk that fails: every write and flush of an append made to fail in turn, then the append said again."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from muse.errors import StoreUnavailable
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import draft, own, types_of


class Disk(apsw.VFS):
    """SQLite's own file layer, in which one operation fails: the `countdown`th write or flush from now."""

    def __init__(self) -> None:
        self.countdown = 0
        self.failed = 0
        self.short = False
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "File":
        return File(self, name, flags)

    def fails_now(self) -> bool:
        self.countdown -= 1
        self.failed += self.countdown == 0
        return self.countdown == 0


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.fails_now():
            if self.disk.short:
                super().xWrite(data[: len(data) // 2], offset)
            raise apsw.IOError("injected")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self.disk.fails_now():
            raise apsw.IOError("injected")
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.unregister()


@pytest.mark.parametrize("short", [False, True], ids=["no write", "half a write"])
def test_an_append_that_fails_anywhere_stands_once_after_it_is_said_again(
    disk: Disk, log: SqliteLog, short: bool
) -> None:
    own(log)
    disk.short = short
    expected = ["session.opened"]
    head, at = 1, 0
    failures = -1
    while failures != disk.failed:
        failures = disk.failed
        at += 1
        facts = [draft("a.fact", {"text": "x" * 5_000, "n": n}) for n in range(2)]
        decisions = [draft("a.decision")]
        disk.countdown = at
        try:
            log.append(facts, decisions, head, 1)
        except StoreUnavailable:
            with pytest.raises(StoreUnavailable, match="reopen"):
                log.append(facts, decisions, head, 1)
            log.reopen()
            found = log.find([one.id for one in [*facts, *decisions]])
            assert len(found) in (0, 3)
            log.append(facts, decisions, head, 1)
        disk.countdown = 0
        expected += ["a.fact", "a.fact", "a.decision"]
        head = log.head().seq
        assert types_of(log) == expected
    assert disk.failed > 5
    assert verify(log, jobs=1).exit_code == 0


def test_a_checkpoint_that_fails_takes_nothing_back(disk: Disk, log: SqliteLog) -> None:
    own(log)
    log.append([draft(body={"text": "x" * 100_000})], [], 1, 1)
    for at in range(1, 8):
        disk.countdown = at
        try:
            log.tidy(pages=1)
        except StoreUnavailable:
            log.reopen()
        disk.countdown = 0
        assert log.head().seq == 2
    assert log.append([draft()], [], 2, 1).head.seq == 3
    assert verify(log, jobs=1).exit_code == 0


def test_a_close_that_cannot_tidy_up_is_still_a_close(disk: Disk, log: SqliteLog, path: Path) -> None:
    own(log)
    log.append([draft()], [], 1, 1)
    disk.countdown = 1
    log.close()
    assert disk.failed == 1
    disk.countdown = 0
    with SqliteLog.open(path) as again:
        assert own(again).epoch == 2
        assert again.head().seq == 3


def test_what_an_append_without_a_reply_left_in_the_log_is_known_for_ones_own(disk: Disk, log: SqliteLog) -> None:
    """Facts and decisions, also those that were derived inside the transaction: the owner reads them as its own."""
    own(log)
    head, at, failures = 1, 0, -1
    while failures != disk.failed:
        failures = disk.failed
        at += 1
        disk.countdown = at
        with suppress(StoreUnavailable):
            log.append_deciding([draft("a.fact", {"text": "x" * 5_000})], lambda *_: [draft("a.decision")], head, 1)
        if failures == disk.failed:
            break
        log.reopen()
        left = list(log.missed(head))
        head += len(left)
        assert head == log.head().seq
    assert at > 2
    assert verify(log, jobs=1).exit_code == 0
