"""Files that were cut, flipped, copied or edited: each is refused or named, and never read as something else."""

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from muse.errors import Damaged, MuseError
from muse.event.commitment import commit_blob
from muse.log.protocol import Stored
from muse.log.sqlite import SqliteLog
from muse.log.verify import Report, verify
from muse.testing.store import COMMANDS, draft, own

BAD = 5
CONTENT = random.Random(1).randbytes(150_000)
BLOB_ROOT = commit_blob([CONTENT], bytes(32)).root.hex()


@pytest.fixture
def closed(log: SqliteLog, path: Path) -> Path:
    """A closed log of eight events with a blob, in one file."""
    own(log)
    root, length = log.put_blob(CONTENT, bytes(32))
    log.append([draft(body={"n": n, "text": f"event number {n}"}) for n in range(2, 7)], [], 1, 1)
    log.append([draft(body={"output": {"blob": root, "length": length}})], [draft("session.closed")], 6, 1)
    log.close()
    return path


def events_of(path: Path) -> list[Stored]:
    with SqliteLog.open(path, read_only=True, check=False) as log:
        return list(log.read())


def verified(path: Path) -> Report:
    with SqliteLog.open(path, read_only=True, check=False) as log:
        return verify(log, jobs=1)


def failures(report: Report) -> dict[str, int]:
    return {row.what: row.seq for row in report.rows if row.state == "failed"}


def edit(path: Path, sql: str, *values: object) -> None:
    """Change the file as someone with SQLite would."""
    db = sqlite3.connect(path)
    with db:
        assert db.execute(sql, values).rowcount > 0
    db.close()


def flip(path: Path, needle: bytes, which: int = 0) -> None:
    """Flip a bit in the middle of the first (or a later) place where `needle` stands in the file."""
    data = bytearray(path.read_bytes())
    at = -1
    for _ in range(which + 1):
        at = data.index(needle, at + 1)
    data[at + len(needle) // 2] ^= 0x01
    path.write_bytes(data)


def test_the_log_that_is_damaged_below_is_clean_before(closed: Path) -> None:
    report = verified(closed)
    assert (report.exit_code, report.events, report.blobs) == (0, 8, 1)
    assert {row.what: row.state for row in report.rows} == {
        "file structure": "proven", "headers": "proven", "order": "proven", "bodies": "proven", "chain": "proven",
        "opening": "proven", "blobs": "proven", "tail": "proven", "rebuilt chain, cut tail": "not proven",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "named", "opens"),
    [
        (lambda event: event.header, "chain", False),
        (lambda event: event.root, "chain", False),
        (lambda event: event.hash, "chain", False),
        (lambda event: event.body, "bodies", True),
        (lambda event: event.key, "bodies", True),
    ],
    ids=["header", "root", "hash", "body", "key"],
)
def test_a_flipped_bit_names_its_event(
    closed: Path, column: Callable[[Stored], bytes], named: str, opens: bool
) -> None:
    flip(closed, column(events_of(closed)[BAD - 1]))
    report = verified(closed)
    assert report.exit_code == 6
    assert failures(report)[named] == BAD
    if opens:
        SqliteLog.open(closed, read_only=True).close()
    else:
        with pytest.raises(Damaged) as caught:
            SqliteLog.open(closed)
        assert caught.value.seq == BAD


@pytest.mark.parametrize("which", [0, 1])
def test_a_flipped_bit_in_an_id_is_found_in_table_and_index(closed: Path, which: int) -> None:
    event = events_of(closed)[BAD - 1]
    id_ = bytes.fromhex(event.header[event.header.index(b'"id":"') + 6 :][:32].decode())
    assert closed.read_bytes().count(id_) == 2
    flip(closed, id_, which)
    assert "file structure" in failures(verified(closed))


def test_a_flipped_bit_in_a_blob_names_the_event_that_names_it(closed: Path) -> None:
    flip(closed, CONTENT[70_000:70_016])
    report = verified(closed)
    assert failures(report) == {"blobs": 7}
    with SqliteLog.open(closed, read_only=True) as log:
        with pytest.raises(Damaged, match="chunk 1 is damaged"):
            log.get_blob(BLOB_ROOT)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM events WHERE seq = 5", {"order": 5, "chain": 6}),
        ("DELETE FROM events WHERE seq = 1", {"order": 1, "chain": 2, "opening": 2}),
        ("UPDATE events SET leaf_count = 9 WHERE seq = 5", {"chain": 5, "bodies": 5}),
        ("UPDATE events SET body = NULL WHERE seq = 5", {"bodies": 5}),
        ("UPDATE events SET body = NULL, key = NULL WHERE seq = 5", {"bodies": 5}),
        ("INSERT INTO hidden VALUES (5, X'5B5D')", {"bodies": 5}),
        ("DELETE FROM blobs", {"blobs": 7}),
        ("DELETE FROM chunks WHERE i = 1", {"blobs": 7}),
        ("UPDATE blobs SET length = 5", {"blobs": 7}),
        ("UPDATE meta SET value = 7 WHERE key = 'epoch'", {"file structure": 0}),
        ("UPDATE meta SET value = 'other' WHERE key = 'session'", {"chain": 1}),
        ("UPDATE events SET seq = 50 WHERE seq = 8", {"headers": 50, "order": 8}),
    ],
)
def test_an_edit_of_the_tables_is_named(closed: Path, sql: str, expected: dict[str, int]) -> None:
    edit(closed, sql)
    report = verified(closed)
    assert report.exit_code == 6
    assert failures(report) == expected


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_an_event_with_a_number_far_away_is_no_cut_tail(closed: Path, number: int) -> None:
    edit(closed, "UPDATE events SET seq = ? WHERE seq = 8", number)
    assert failures(verified(closed)).keys() & {"order", "file structure"}


@pytest.mark.parametrize("table", ["events", "meta", "hidden", "blobs", "chunks"])
def test_a_missing_table_is_damage(closed: Path, table: str) -> None:
    db = sqlite3.connect(closed)
    db.execute(f"DROP TABLE {table}")
    db.close()
    with pytest.raises(Damaged):
        _read_everything(closed)


def test_a_missing_table_of_caches_is_named_since_nobody_can_go_on_without(closed: Path) -> None:
    db = sqlite3.connect(closed)
    db.execute("DROP TABLE checkpoints")
    db.close()
    assert failures(verified(closed)) == {"file structure": 0}


def _read_everything(path: Path) -> None:
    with SqliteLog.open(path, read_only=True) as log:
        list(log.read())
        log.find(["00" * 16])
        log.get_blob(BLOB_ROOT)


def test_a_cut_file_is_damaged_wherever_it_is_cut(closed: Path) -> None:
    expected, whole = events_of(closed), closed.read_bytes()
    for size in range(512, len(whole) - 4096, 7_777):
        closed.write_bytes(whole[:size])
        with pytest.raises(Damaged):
            _read_everything(closed)
        with contextlib.suppress(MuseError):  # without even a first page there is nothing to verify
            assert verified(closed).exit_code == 6
    for size in range(len(whole) - 4096, len(whole), 777):  # a cut in the last page may miss only its empty part
        closed.write_bytes(whole[:size])
        with contextlib.suppress(Damaged):
            _read_everything(closed)
            assert verified(closed).exit_code == 0
            assert events_of(closed) == expected


def test_a_copy_without_its_write_ahead_log_shows_an_open_session(log: SqliteLog, path: Path, tmp_path: Path) -> None:
    own(log)
    log.append([draft()], [draft("session.closed")], 1, 1)
    data = _read_in_another_process(path)
    copy = tmp_path / "copy.muse"
    copy.write_bytes(data)
    report = verified(copy)
    assert (report.exit_code, report.events) == (0, 1)
    (tail,) = [row for row in report.rows if row.what == "tail"]
    assert (tail.state, "the tail may be missing" in tail.detail) == ("not proven", True)


def _read_in_another_process(path: Path) -> bytes:
    import subprocess

    return subprocess.run(["cat", path], capture_output=True, check=True).stdout


def test_any_flipped_byte_is_found_or_changes_nothing(closed: Path, tmp_path: Path) -> None:
    expected = events_of(closed)
    whole = closed.read_bytes()
    copy = tmp_path / "flipped.muse"
    chance = random.Random("flip")
    found = 0
    for at in [*range(600), *(chance.randrange(len(whole)) for _ in range(600))]:
        data = bytearray(whole)
        data[at] ^= 1 << chance.randrange(8)
        copy.write_bytes(data)
        try:
            report = verified(copy)
            events = events_of(copy)
        except MuseError:
            found += 1
            continue
        if report.exit_code:
            found += 1
        else:
            assert events == expected
    assert found > 50


def test_a_damaged_log_does_not_stop_another_from_opening(closed: Path, tmp_path: Path) -> None:
    flip(closed, events_of(closed)[BAD - 1].hash)
    other = closed.with_name("other.muse")
    with SqliteLog.create(other, "other", commands=COMMANDS) as log:
        own(log)
        with pytest.raises(Damaged):
            SqliteLog.open(closed)
        assert log.append([draft()], [], 1, 1).head.seq == 2


def test_damage_that_appears_under_a_running_owner_stops_it(log: SqliteLog, path: Path) -> None:
    own(log)
    log.append([draft()], [], 1, 1)
    log._db.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = 2")
    with pytest.raises(Damaged, match="rewritten"):
        log.append([draft()], [], 2, 1)


def test_both_sides_of_the_damage_can_be_read(closed: Path) -> None:
    expected = events_of(closed)
    shutil.copy(closed, closed.with_name("copy"))
    edit(closed, "DELETE FROM events WHERE seq = 5")
    assert events_of(closed) == expected[:4] + expected[5:]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_owner_whose_log_lost_a_file_beside_it_writes_no_more(
    log: SqliteLog, path: Path, suffix: str, replaced: bool
) -> None:
    own(log)
    head = log.append([draft()], [], 1, 1).head.seq
    beside = Path(f"{path}{suffix}")
    if replaced:
        copy = beside.with_suffix(".copy")
        copy.write_bytes(beside.read_bytes())
        copy.rename(beside)
    else:
        beside.unlink()
    with pytest.raises(Damaged, match=suffix):
        log.append([draft()], [], head, 1)
    with pytest.raises(Damaged, match=suffix):
        log.submit(draft("user.prompted"))
