"""What only a file can do: the write-ahead log, checkpoints into the main file, waiting, and failing."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from muse.errors import Damaged, StoreUnavailable
from muse.event.codec import encode
from muse.event.text import clean
from muse.log import schema, sqlite
from muse.log.protocol import PAGE_BYTES, PAGE_EVENTS
from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS, draft, header_of, opened, own


@pytest.fixture
def owned(log: SqliteLog) -> SqliteLog:
    own(log)
    return log


@pytest.fixture
def reader(owned: SqliteLog) -> Iterator[SqliteLog]:
    with SqliteLog.open(owned.path, read_only=True) as other:
        yield other


def wal_bytes(log: SqliteLog) -> int:
    return Path(f"{log.path}-wal").stat().st_size


def truncate_wal(log: SqliteLog) -> bool:
    """Whether everything could be moved into the main file, which any open read transaction prevents."""
    try:
        log._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    return wal_bytes(log) == 0


def test_a_reader_that_holds_an_event_holds_no_transaction(owned: SqliteLog, reader: SqliteLog) -> None:
    owned.append([draft() for _ in range(PAGE_EVENTS + 10)], [], 1, 1)
    reading = reader.read()
    next(reading)
    assert truncate_wal(owned)
    assert sum(1 for _ in reading) == PAGE_EVENTS + 10
    following = reader.follow(0, lambda: False)
    next(following)
    owned.append([draft()], [], owned.head().seq, 1)
    assert truncate_wal(owned)


def test_a_page_ends_at_a_number_of_bytes_too(owned: SqliteLog, reader: SqliteLog) -> None:
    large = {"text": "x" * 1_000_000}
    owned.append([draft(body=large) for _ in range(20)], [], 1, 1)
    page = reader._read_page(0, None)
    assert PAGE_BYTES <= sum(len(event.body or b"") for event in page) < PAGE_BYTES + 1_000_100
    assert [event.seq for event in reader.read()] == list(range(1, 22))


def test_the_opening_is_in_the_main_file_when_the_claim_returns(owned: SqliteLog, tmp_path: Path) -> None:
    copy = tmp_path / "copy.muse"
    subprocess.run(["cp", owned.path, copy], check=True)
    with SqliteLog.open(copy) as log:
        assert [header_of(event)["type"] for event in log.read()] == ["session.opened"]


def test_tidying_moves_the_write_ahead_log_when_it_is_large(owned: SqliteLog) -> None:
    assert not owned.tidy()
    owned.append([draft(body={"text": "x" * 1_000_000}) for _ in range(5)], [], 1, 1)
    before = owned.path.stat().st_size
    assert owned.tidy()
    assert owned.path.stat().st_size > before + 4_000_000
    assert not owned.tidy()
    assert owned.append([draft()], [], 6, 1).head.seq == 7


def test_the_write_ahead_log_is_bounded_without_tidying(owned: SqliteLog) -> None:
    head = 1
    for _ in range(30):
        head = owned.append([draft(body={"text": "x" * 3_000_000})], [], head, 1).head.seq
    assert wal_bytes(owned) < 2 * sqlite.WAL_PAGES_MAX * 4096


def test_a_writer_that_waits_too_long_says_so_and_works_after_reopening(
    owned: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_SECONDS", 0.05)
    blocker = apsw.Connection(str(owned.path))  # in this process only because `owned` is done with before it closes
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        owned.append([draft()], [], 1, 1)
    with pytest.raises(StoreUnavailable, match="reopen"):
        owned.head()
    blocker.execute("ROLLBACK")
    owned.reopen()
    assert owned.append([draft()], [], 1, 1).head.seq == 2


def test_a_waiting_writer_gets_its_turn(owned: SqliteLog) -> None:
    blocker = apsw.Connection(str(owned.path))
    blocker.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.1, blocker.execute, ["ROLLBACK"])
    release.start()
    assert owned.append([draft()], [], 1, 1).head.seq == 2
    release.join()


def test_a_failed_claim_gives_the_lock_back(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"session\.opened"):
        log.claim(lambda claim: draft("tool.finished"))
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_SECONDS", 0.05)
    blocker = apsw.Connection(str(log.path))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        own(log)
    blocker.execute("ROLLBACK")
    log.reopen()
    assert log.claim(lambda claim: opened()).epoch == 1


def test_an_interrupt_in_the_middle_of_an_append_leaves_nothing_half_done(
    owned: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owned, "_insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            owned.append([draft()], [], 1, 1)
    assert owned.append([draft()], [], 1, 1).head.seq == 2


def test_an_instance_may_move_between_threads(owned: SqliteLog) -> None:
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(owned.append([draft()], [], 1, 1).head.seq))
    thread.start()
    thread.join()
    assert done == [2]
    assert owned.head().seq == 2


def test_any_text_that_a_tool_may_give_can_be_kept(owned: SqliteLog) -> None:
    for text in ("\0", "\ud800", "\udfff\ud800", "a\0b\x1b[0m", "\ufffe\uffff", b"\xff\xfe\0"):
        cleaned = clean(text)
        body = {"text": cleaned.text}
        seq = owned.append([draft(body=body)], [], owned.head().seq, 1).head.seq
        (event,) = owned.read(seq - 1)
        assert event.body == encode(body)
        if cleaned.exact is not None:
            root, _ = owned.put_blob(cleaned.exact, bytes(32))
            assert owned.get_blob(root) == cleaned.exact


def test_a_log_is_created_whole_or_not_at_all(tmp_path: Path) -> None:
    script = (
        "import os, sys, apsw\n"
        "from muse.log import schema\n"
        "from muse.log.sqlite import SqliteLog\n"
        "real = schema.build\n"
        "def dies(path, session):\n"
        "    real(path, session)\n"
        "    os._exit(9)\n"
        "schema.build = dies\n"
        "SqliteLog.create(sys.argv[1], 's', commands={})\n"
    )
    path = tmp_path / "s.muse"
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 9
    assert not path.exists()
    SqliteLog.create(path, "s", commands=COMMANDS).close()


def test_a_query_that_finds_a_missing_row_is_damage_not_a_crash(owned: SqliteLog) -> None:
    owned._db.execute("DELETE FROM meta WHERE key = 'epoch'")
    with pytest.raises(Damaged):
        owned.append([draft()], [], 1, 1)
