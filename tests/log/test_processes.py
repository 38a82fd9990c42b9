"""Several processes on one log, and processes that die."""

import fcntl
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from muse.errors import Busy, Fenced, StoreUnavailable
from muse.log.lock import acquire, is_held, read_owner, start_time
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.log.wal import Tail, look_behind
from muse.testing.store import COMMANDS, draft, header_of, own

from .conftest import Start


def line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def rest(child: "subprocess.Popen[str]") -> list[str]:
    """The remaining whole lines of a process that ended (a last one may be torn)."""
    assert child.stdout is not None
    return [text.strip() for text in child.stdout if text.endswith("\n")]


def test_a_second_process_is_refused_and_told_who_owns(log: SqliteLog, path: Path, start: Start) -> None:
    owner = start("hold", path)
    assert line(owner) == "owned 1"
    with pytest.raises(Busy, match=f"process {owner.pid} owns"):
        own(log)
    recorded = read_owner(log.lock_path)
    assert recorded is not None
    assert (recorded.pid, recorded.started) == (owner.pid, start_time(owner.pid))
    assert is_held(log.lock_path)
    assert [header_of(event)["epoch"] for event in log.read()] == [1]


def test_a_second_owner_beside_a_thousand_appends_is_refused_before_it_can_append(
    log: SqliteLog, path: Path, start: Start
) -> None:
    """B14, B15: the history stays that of one writer, and the next owner goes on from its end."""
    owner = start("append", path, "one")
    assert line(owner) == "owned 1"
    said = []
    for turn in range(1_000):
        said.append(line(owner).split())
        if turn % 50 == 0:
            with pytest.raises(Busy):
                own(log)
            with pytest.raises(Fenced):
                log.append([draft()], [], log.head().seq, 1)
    owner.kill()
    said += [text.split() for text in rest(owner)]
    assert own(log).epoch == 2
    head = log.head().seq
    for _ in range(1_000):
        head = log.append([draft()], [], head, 2).head.seq
    events = list(log.read())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    by_epoch = [header_of(event)["epoch"] for event in events]
    assert by_epoch == sorted(by_epoch)
    assert {str(header_of(event)["id"]): event.seq for event in events}.items() >= {
        id_: int(s) for s, id_ in said
    }.items()
    assert verify(log, jobs=1).exit_code == 0


def test_a_killed_owner_leaves_the_lock_free_at_once(log: SqliteLog, path: Path, start: Start) -> None:
    """B18."""
    owner = start("hold", path)
    assert line(owner) == "owned 1"
    owner.kill()
    owner.wait()
    assert log.lock_path.exists()
    assert own(log).epoch == 2


def test_the_lock_is_not_inherited_by_programs_that_the_owner_starts(log: SqliteLog, path: Path) -> None:
    ownership = own(log)
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        ownership.release()
        assert own(log).epoch == 2
        child.kill()


def test_two_submitters_beside_a_running_owner_make_one_history(log: SqliteLog, path: Path, start: Start) -> None:
    each = 1_000
    own(log)
    submitters = [start("submit", path, each) for _ in range(2)]
    head, facts, stale = 1, [], 0
    while any(child.poll() is None for child in submitters):
        fact, decision = draft("tool.finished"), draft("tool.started")
        done = log.append([fact], [decision], head, 1)
        facts.append(fact.id)
        stale += not done.decisions_kept
        head = done.head.seq
    said = [text.split() for child in submitters for text in rest(child)]
    assert len(said) == 2 * each
    events = {str(header_of(event)["id"]): event.seq for event in log.read()}
    assert all(events[id_] == int(seq) for seq, id_ in said)
    assert events.keys() >= set(facts)
    assert len(events) == log.head().seq == 1 + 2 * each + 2 * len(facts) - stale
    submitted = [events[id_] for _, id_ in said]
    among = [id_ for id_ in facts if min(submitted) < events[id_] < max(submitted)]
    assert len(among) > 100  # the owner got its turns; what it did before the others were up does not count
    assert verify(log, jobs=1).exit_code == 0


def test_whatever_was_acknowledged_survives_a_kill_at_any_moment(log: SqliteLog, path: Path, start: Start) -> None:
    log.close()
    chance = random.Random("kill")
    acknowledged: dict[str, int] = {}
    for epoch in range(1, 13):
        child = start("append", path, epoch)
        assert line(child) == f"owned {epoch}"
        said = [line(child) for _ in range(chance.randrange(120))]
        child.kill()
        said += rest(child)
        acknowledged.update({id_: int(seq) for seq, id_ in (text.split() for text in said)})
        with SqliteLog.open(path, commands=COMMANDS) as after:
            assert after.find(acknowledged) == acknowledged
            report = verify(after, jobs=1)
            assert [row for row in report.rows if row.state == "failed"] == []
    assert len(acknowledged) > 300


def test_a_large_blob_takes_little_memory_and_little_write_ahead_log(log: SqliteLog, path: Path, start: Start) -> None:
    log.close()
    child = start("blob", path, 100)
    root, length, more_mebibytes, wal_mebibytes = line(child).split()
    assert (len(root), int(length)) == (64, 100 * 1024 * 1024)
    assert int(more_mebibytes) < 40
    assert int(wal_mebibytes) < 48
    assert child.wait() == 0


def test_a_blob_that_was_cut_short_by_a_kill_is_swept(log: SqliteLog) -> None:
    def broken() -> Iterator[bytes]:
        yield secrets.token_bytes(5 * 1024 * 1024)
        raise LookupError

    with pytest.raises(LookupError):
        log.put_blob(broken(), secrets.token_bytes(32))
    count = "SELECT count(*) FROM chunks"
    assert log._db.execute(count).fetchall() != [(0,)]
    own(log)
    log.close()
    with SqliteLog.open(log.path) as after:
        assert after._db.execute(count).fetchall() == [(0,)]


def test_a_blob_that_a_new_owner_swept_while_it_was_written_is_refused(log: SqliteLog) -> None:
    own(log)

    def slow() -> Iterator[bytes]:
        yield secrets.token_bytes(5 * 1024 * 1024)
        log.close()
        with SqliteLog.open(log.path) as other:
            other.put_blob(b"takes the next number", secrets.token_bytes(32))
        yield secrets.token_bytes(5 * 1024 * 1024)

    with SqliteLog.open(log.path) as writer:
        writer.put_blob(b"", secrets.token_bytes(32))
        log._old_blobs = 2  # as if the claim had come after the first part
        with pytest.raises(StoreUnavailable, match="swept"):
            writer.put_blob(slow(), secrets.token_bytes(32))


def test_who_only_asks_whether_a_session_runs_keeps_nobody_from_running_it(path: Path) -> None:
    lock = path.with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as `is_held` does, for a moment
        over = threading.Timer(0.002, asking.close)
        over.start()
        acquire(lock).release()
        over.join()


def half_an_append(path: Path) -> apsw.Connection:
    """A connection that has written frames of a transaction, and has not committed it."""
    db = apsw.Connection(str(path))
    for statement in (
        "PRAGMA cache_size = 1",
        "BEGIN IMMEDIATE",
        "INSERT INTO checkpoints VALUES (0, 0, zeroblob(90000))",
    ):
        db.execute(statement)
    return db


def test_who_opens_a_log_beside_an_append_waits_for_it_and_does_not_move_it_into_the_main_file(
    log: SqliteLog, path: Path
) -> None:
    """To its owner that looks as if somebody rewrote the log: it verifies all of it, and gives up at the third time."""
    own(log)
    size = Path(f"{path}-wal").stat().st_size
    db = half_an_append(path)
    assert Path(f"{path}-wal").stat().st_size > size + 40_000
    main = path.stat()
    opened: list[Tail] = []

    def look() -> None:
        with SqliteLog.open(path, commands=COMMANDS) as other:
            opened.append(other.tail)

    opening = threading.Thread(target=look)
    opening.start()
    time.sleep(0.1)
    assert opened == []
    db.execute("COMMIT")
    opening.join()
    assert [(tail.lost, tail.unfinished) for tail in opened] == [(False, False)]
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (main.st_mtime_ns, main.st_size)
    db.close()


def test_who_looks_while_an_append_is_just_being_published_is_not_told_that_the_log_is_locked(
    log: SqliteLog, path: Path
) -> None:
    """Both copies of the header of the shared index differ for that moment, and SQLite then says busy at once. Another
    process has them differ: this one must not open the file."""
    own(log)
    db = half_an_append(path)
    flip = (
        "import os, sys; shm = os.open(sys.argv[1], os.O_RDWR); old = os.pread(shm, 1, 60)[0]; "
        "os.pwrite(shm, bytes([old ^ 1]), 60)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", flip, f"{path}-shm"], check=True)
        assert not look_behind(log._db, path).lost
    db.execute("COMMIT")
    db.close()


def test_an_append_that_is_whole_a_moment_later_is_not_told_of_as_cut_off(
    log: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `muse verify` says of a session that runs that its end may be damaged."""
    own(log)
    db = half_an_append(path)
    monkeypatch.setattr("muse.log.wal.time.sleep", lambda _: db.in_transaction and db.execute("COMMIT"))
    with SqliteLog.open(path, read_only=True, check=False) as reader:
        assert not reader.tail.unfinished
    assert not db.in_transaction
    db.close()
