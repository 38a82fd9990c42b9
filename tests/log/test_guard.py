"""An owner whose log others change behind its back: noticed before the next append, or explained and let be.

The changes are made by another process with Python's own `sqlite3`, as an agent's shell command would make them.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import apsw
import pytest

from muse.errors import Damaged, Fenced, InvalidEvent
from muse.event.kinds import COMMANDS
from muse.log.chain import Row, place
from muse.log.protocol import Draft, Head
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import draft, header_of, own

BODY = '{"n":1}'


INSERT = """
import json, sqlite3, sys
path, after, rows = sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)
db = sqlite3.connect(path)
with db:
    db.execute("DELETE FROM events WHERE seq > ?", (after,))
    db.executemany(
        "INSERT INTO events (seq, id, header, key, leaf_count, root, hash, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [[bytes.fromhex(value) if isinstance(value, str) else value for value in row] for row in rows],
    )
db.close()
"""


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    """A new log that knows the commands of this build."""
    with SqliteLog.create(path, "s", commands=COMMANDS) as made:
        yield made


@pytest.fixture
def owned(log: SqliteLog) -> SqliteLog:
    """A log with an owner and ten events."""
    own(log, COMMANDS)
    log.append([draft() for _ in range(9)], [], 1, 1)
    return log


def other(code: str, *arguments: object, given: str = "") -> None:
    """Run this in another process: in this one, a second descriptor of the file would drop SQLite's locks."""
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, input=given, text=True)


def sql(path: Path, *statements: str) -> None:
    """Run these in one transaction of another process."""
    code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.close()"
    other(code, path, "BEGIN;" + ";".join(statements) + ";COMMIT;")


def scribble(path: Path, needle: str) -> None:
    """Change one byte of the file where these bytes stand last."""
    code = (
        "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); size = os.fstat(fd).st_size;"
        "at = os.pread(fd, size, 0).rindex(sys.argv[2].encode()); os.pwrite(fd, b'#', at)"
    )
    other(code, path, needle)


def rewrite(path: Path, after: int, rows: list[Row]) -> None:
    """Put these rows in place of whatever follows the event `after`."""
    given = [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
    other(INSERT, path, after, given=json.dumps(given))


def insert(path: Path, event: Draft, head: Head, epoch: int = 1, **changed: bytes) -> None:
    """Put an event at the end, with the right place in the chain unless `changed` says otherwise."""
    (row, *_), _ = place([event], head, epoch)
    rewrite(path, head.seq, [row._replace(**changed)])  # type: ignore[arg-type]  # names of its columns


def refused(log: SqliteLog, match: str) -> Damaged:
    """The next append is refused, with these words, and leaves nothing behind."""
    before = log.head()
    with pytest.raises(Damaged, match=match) as caught:
        log.append([draft()], [draft("tool.started")], before.seq, 1)
    assert log.head() == before
    return caught.value


# ---------------------------------------------------------------------- rewritten


@pytest.mark.parametrize(
    ("statement", "match", "seq"),
    [
        (f"UPDATE events SET body = CAST('{BODY[:-1]},\"x\":2}}' AS BLOB) WHERE seq = 4", "event 4", 4),
        ("UPDATE events SET header = CAST(replace(header, 'main', 'mine') AS BLOB) WHERE seq = 4", "rewritten", 4),
        ("DELETE FROM events WHERE seq = 4", "event 5 follows event 3", 4),
        ("DELETE FROM events WHERE seq = 10", "rewritten", 10),
        ("UPDATE events SET id = randomblob(16) WHERE seq = 3", "id column", 3),
        ("UPDATE events SET key = randomblob(32) WHERE seq = 10", "event 10", 10),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM meta; END", "tables were changed", 0),
        ("DROP TABLE checkpoints", "tables were changed", 0),
        ("CREATE TABLE more (x)", "tables were changed", 0),
        ("UPDATE meta SET value = 'other' WHERE key = 'session'", "another session", 0),
    ],
)
def test_a_log_that_another_process_rewrote_is_noticed_before_the_next_append(
    owned: SqliteLog, path: Path, statement: str, match: str, seq: int
) -> None:
    sql(path, statement)
    assert refused(owned, match).seq == seq


def test_a_whole_chain_that_was_rebuilt_is_noticed(owned: SqliteLog, path: Path) -> None:
    """A consistent forgery of every event from the fourth on."""
    head = Head(3, next(owned.read(2, 4)).hash)
    forged, _ = place([draft() for _ in range(7)], head, 1)
    rewrite(path, 3, forged)
    refused(owned, "rewritten while it was in use")


def test_an_epoch_put_up_by_another_process_fences_the_owner(owned: SqliteLog, path: Path) -> None:
    sql(path, "UPDATE meta SET value = 7 WHERE key = 'epoch'")
    with pytest.raises(Fenced):
        owned.append([draft()], [], 10, 1)


def test_bytes_written_into_a_page_of_the_main_file_are_noticed(owned: SqliteLog, path: Path) -> None:
    owned.append([draft("tool.finished", {"text": "a needle in the file"})], [], 10, 1)
    owned.tidy(pages=1)
    scribble(path, "a needle")
    refused(owned, "rewritten")


def test_bytes_written_into_the_write_ahead_log_are_noticed(owned: SqliteLog, path: Path) -> None:
    owned.append([draft("tool.finished", {"text": "a needle in the file"})], [], 10, 1)
    scribble(Path(f"{path}-wal"), "a needle")
    with pytest.raises(Damaged):
        owned.append([draft()], [], 11, 1)


# ---------------------------------------------------------------------- forged at the end


def test_an_event_that_is_no_command_put_at_the_end_is_refused(owned: SqliteLog, path: Path) -> None:
    """With a right place in the chain: it would start a tool."""
    insert(path, draft("tool.started"), owned.head())
    error = refused(owned, "event 11 was put into .* by another process: a tool.started .* is no command")
    assert error.seq == 11
    with pytest.raises(Damaged, match=r"tool\.started"):
        list(owned.missed(10))


def test_an_approval_forged_as_a_rules_or_a_timeouts_is_refused(owned: SqliteLog, path: Path) -> None:
    body = {"call": "main/3", "decision": "allow", "by": "rule", "request": 9}
    insert(path, draft("approval.decided", body), owned.head())
    refused(owned, "only the session's owner decides an approval by rule")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("cancel.requested", {"target": "tree", "by": "main/3"}),
        ("model.changed", {"provider": "p", "dialect": "d", "model": "m", "reason": "fallback"}),
    ],
)
def test_a_command_forged_as_what_an_agent_or_a_rule_wants_is_refused(
    owned: SqliteLog, path: Path, kind: str, body: dict[str, Any]
) -> None:
    with SqliteLog.open(path, commands=COMMANDS, check=False) as client:
        with pytest.raises(InvalidEvent, match="only the session's owner decides"):
            client.submit(draft(kind, body))
        client.submit(draft(kind, {name: text for name, text in body.items() if name not in ("by", "reason")}))
        head = client.head()
    insert(path, draft(kind, body), head)
    with pytest.raises(Damaged, match=f"event 12 .* only the session's owner decides a {kind} with"):
        owned.append([draft()], [], 10, 1)


def test_a_forged_command_of_another_epoch_is_refused(owned: SqliteLog, path: Path) -> None:
    insert(path, draft("note.added", {"text": "x"}), owned.head(), epoch=2)
    refused(owned, "of epoch 2")


@pytest.mark.parametrize("column", ["hash", "root", "key", "body", "id"])
def test_a_forged_command_that_does_not_fit_is_refused(owned: SqliteLog, path: Path, column: str) -> None:
    wrong = {"hash": b"\1" * 32, "root": b"\1" * 32, "key": b"\1" * 32, "body": b'{"text":"other"}', "id": b"\1" * 16}
    insert(path, draft("note.added", {"text": "one"}), owned.head(), **{column: wrong[column]})
    assert refused(owned, "event 11").seq == 11


def test_what_was_changed_together_with_a_rightful_command_is_found_in_turn(owned: SqliteLog, path: Path) -> None:
    owned.append([draft() for _ in range(190)], [], 10, 1)
    sql(path, f"UPDATE events SET body = CAST('{BODY[:-1]},\"x\":2}}' AS BLOB) WHERE seq = 150")
    with SqliteLog.open(path, commands=COMMANDS, check=False) as client:

        def one_more(turn: int) -> bool:
            client.submit(draft("note.added", {"text": str(turn)}))
            with suppress(Damaged):
                return owned.append([draft()], [], owned.head().seq, 1).head.seq > 0
            return False

        assert sum(1 for _ in takewhile(one_more, range(200))) <= 150 / 16 + 1
    assert refused(owned, "event 150").seq == 150


# ---------------------------------------------------------------------- gone


def test_a_removed_log_is_saved_whole_beside_its_place(owned: SqliteLog, path: Path) -> None:
    expected = [event.hash for event in owned.read()]
    path.unlink()
    with pytest.raises(Damaged, match="was removed") as caught:
        owned.append([draft()], [], 10, 1)
    saved = path.with_name("s.muse.saved")
    assert str(saved) in caught.value.hint
    assert f"mv {saved} {path}" in caught.value.hint
    owned.close()
    saved.rename(path)
    with SqliteLog.open(path, commands=COMMANDS) as again:
        assert [event.hash for event in again.read()] == expected
        assert verify(again, jobs=1).exit_code == 0
        assert own(again).epoch == 2


def test_a_log_that_is_gone_before_it_is_claimed_is_said(log: SqliteLog, path: Path) -> None:
    path.unlink()
    with pytest.raises(Damaged, match="removed"):
        log.hold()


def test_a_log_replaced_by_a_copy_is_saved_and_the_copy_left_alone(owned: SqliteLog, path: Path) -> None:
    subprocess.run(["sh", "-c", f"cp {path} {path}.x && mv {path}.x {path}"], check=True)
    copied = path.stat().st_ino
    with pytest.raises(Damaged, match="replaced by another file") as caught:
        owned.append([draft()], [], 10, 1)
    assert path.stat().st_ino == copied
    saved = path.with_name("s.muse.saved")
    assert str(saved) in caught.value.hint
    with SqliteLog.open(saved, read_only=True) as copy:
        assert copy.head() == owned.head()
    assert oct(saved.stat().st_mode & 0o777) == "0o600"


def test_a_log_whose_whole_folder_was_removed_is_saved_there(owned: SqliteLog, path: Path) -> None:
    subprocess.run(["rm", "-r", path.parent], check=True)
    with pytest.raises(Damaged, match="was removed"):
        owned.append([draft()], [], 10, 1)
    with SqliteLog.open(path.with_name("s.muse.saved"), read_only=True) as copy:
        assert copy.head() == owned.head()


def test_a_renamed_log_is_said_with_its_new_name(owned: SqliteLog, path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(Damaged, match=r"renamed to .*elsewhere") as caught:
        owned.append([draft()], [], 10, 1)
    assert f"mv {path.with_name('elsewhere')} {path}" in caught.value.hint


def test_an_owner_whose_lock_file_was_removed_stops(owned: SqliteLog) -> None:
    """Another process could lock a new one."""
    owned.lock_path.unlink()
    with pytest.raises(Fenced, match="lock file"):
        owned.changed()


# ---------------------------------------------------------------------- explained


def test_rightful_commands_and_this_process_itself_cause_no_look_at_the_whole_log(
    owned: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muse.log.guard.Guard.verify", lambda *_: pytest.fail("looked at the whole log"))
    same_process = owned.another()
    head = 10
    with SqliteLog.open(path, commands=COMMANDS) as client:
        for turn in range(20):
            client.submit(draft("note.added", {"text": str(turn)}))
            root, length = same_process.put_blob(os.urandom(200_000), secrets.token_bytes(32))
            body = {"output": {"blob": root, "length": length}}
            done = owned.append([draft(body=body)], [], head, 1)
            same_process.put_blob(os.urandom(10), secrets.token_bytes(32))
            same_process.tidy(pages=1)
            owned.put_blob(os.urandom(10), secrets.token_bytes(32))
            owned.tidy(pages=1)
            head = done.head.seq
            owned.save_checkpoint(head, 1, b"state")
            head = owned.append([draft()], [], head, 1).head.seq
    same_process.close()
    assert owned.append([draft()], [], head, 1).decisions_kept


def test_a_command_that_is_just_being_written_causes_no_look_at_the_whole_log(
    owned: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muse.log.guard.Guard.verify", lambda *_: pytest.fail("looked at the whole log"))
    writer = apsw.Connection(str(path))
    size = Path(f"{path}-wal").stat().st_size
    for statement in ("PRAGMA cache_size = 1", "BEGIN", "INSERT INTO checkpoints VALUES (0, 0, zeroblob(90000))"):
        writer.execute(statement)
    assert Path(f"{path}-wal").stat().st_size > size, "not committed, and in the file"
    owned.changed()
    assert list(owned.missed(10)) == []
    writer.execute("ROLLBACK")
    writer.close()


@pytest.mark.parametrize("how", ["chmod", "link", "vacuum", "checkpoint"])
def test_what_harms_nothing_is_looked_at_and_let_be(owned: SqliteLog, path: Path, how: str) -> None:
    if how == "chmod":
        path.chmod(0o640)
    elif how == "link":
        path.with_name("backup").hardlink_to(path)
    elif how == "vacuum":
        other("import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM')", path)
    else:
        other("import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint').fetchall()", path)
    assert owned.append([draft()], [], 10, 1).head.seq == 11
    assert owned.append([draft()], [], 11, 1).head.seq == 12
    assert verify(owned, jobs=1).exit_code == 0


def test_a_fold_checkpoint_that_another_process_forged_is_dropped(owned: SqliteLog, path: Path) -> None:
    owned.save_checkpoint(10, 1, b"state")
    sql(path, "UPDATE checkpoints SET state = CAST('forged' AS BLOB)")
    owned.append([draft()], [], 10, 1)
    assert owned.load_checkpoint(1) is None


def test_a_trigger_that_was_planted_before_does_nothing_and_is_refused_at_the_claim(log: SqliteLog, path: Path) -> None:
    log.close()
    sql(path, "CREATE TRIGGER t AFTER INSERT ON events BEGIN UPDATE meta SET value = 99 WHERE key = 'epoch'; END")
    with SqliteLog.open(path, commands=COMMANDS) as again:
        again.submit(draft("note.added", {"text": "x"}))
        assert [header_of(event)["epoch"] for event in again.read()] == [0]
        with pytest.raises(Damaged, match="tables were changed"):
            own(again)
        assert len(list(again.read())) == 1


# ---------------------------------------------------------------------- what nobody may submit


@pytest.mark.parametrize("by", ["rule", "timeout"])
def test_only_a_persons_approval_can_be_submitted(owned: SqliteLog, by: str) -> None:
    body = {"call": "main/1", "decision": "allow", "by": by, "request": 3}
    with pytest.raises(InvalidEvent, match=f"by {by}"):
        owned.submit(draft("approval.decided", body))
    assert json.loads(next(owned.read(9)).header)["type"] == "tool.finished"


@pytest.mark.parametrize("id_", ["", "x" * 32, "A" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n"])
def test_a_malformed_event_id_is_refused(owned: SqliteLog, id_: str) -> None:
    with pytest.raises(InvalidEvent, match="no event id"):
        owned.submit(draft("note.added", {"text": "x"}, id=id_))


OPEN = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM events').fetchall()"


@pytest.mark.skipif(os.geteuid() != 0, reason="SQLite sets the owner of a file beside the log for root only")
@pytest.mark.parametrize("who", ["the owner", "another process"])
def test_that_somebody_opens_the_log_is_no_reason_to_look_at_all_of_it(owned: SqliteLog, path: Path, who: str) -> None:
    """What is only kept beside the log, and dropped after such a look, stays."""
    owned.save_checkpoint(10, 1, b"state")
    owned.append([draft()], [], 10, 1)
    time.sleep(0.02)  # so that the file system's clock goes on
    before = Path(f"{path}-wal").stat()
    if who == "the owner":
        owned.another().close()
    else:
        other(OPEN, path)
    after = Path(f"{path}-wal").stat()
    assert after.st_ctime_ns > before.st_ctime_ns, "it looks as if it had been changed"
    assert not owned.changed()
    owned.append([draft()], [], 11, 1)
    assert owned.load_checkpoint(1) == (10, b"state")


@pytest.mark.skipif(os.geteuid() != 0, reason="SQLite sets the owner of a file beside the log for root only")
def test_bytes_in_the_write_ahead_log_whose_time_was_put_back_are_found_in_turn(owned: SqliteLog, path: Path) -> None:
    owned.append([draft("note.added", {"text": "a needle"}), *(draft() for _ in range(80))], [], 10, 1)
    wal = Path(f"{path}-wal")
    before = wal.stat()
    scribble(wal, "a needle")
    os.utime(wal, ns=(before.st_atime_ns, before.st_mtime_ns))

    def go_on() -> None:
        for _ in range(10):
            other(OPEN, path)
            owned.append([draft()], [], owned.head().seq, 1)

    with pytest.raises(Damaged, match="event 11"):
        go_on()
