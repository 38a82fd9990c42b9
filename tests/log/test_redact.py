"""Content taken out of a stored log: gone from the file, and the rest still verifies."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse.errors import Damaged, Fenced, Incomplete, InvalidEvent
from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Claim, Draft, Log
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, draft, own, recording

SECRET = "correct horse battery staple"


@pytest.fixture(params=["memory", "sqlite"])
def either(request: pytest.FixtureRequest, path: Path) -> Iterator[Log]:
    if request.param == "memory":
        log: Log = MemoryLog(MemoryPlace("s"), commands=COMMANDS)
    else:
        log = SqliteLog.create(path, "s", commands=COMMANDS)
    own(log)
    yield log
    log.close()


def hidden(event: Draft, key: str = "text") -> bytes:
    return encode_disclosed(disclose(parse(event.body), event.key, lambda path: path[:1] == (key,)))


def with_secret(log: Log) -> tuple[Draft, str]:
    """Event 2 with the secret in its text and in a blob."""
    root, length = log.put_blob(SECRET.encode(), bytes(32))
    event = draft("note.kept", body={"n": 1, "text": SECRET, "output": {"blob": root, "length": length}})
    log.append([event, draft()], [], 1, 1)
    log.save_checkpoint(3, 1, SECRET.encode())
    return event, root


def test_the_content_is_gone_and_the_rest_verifies(either: Log) -> None:
    event, root = with_secret(either)
    before = list(either.read())
    either.redact({2: hidden(event)}, [root], 1)
    after = list(either.read())
    assert [(one.header, one.root, one.hash) for one in after] == [(one.header, one.root, one.hash) for one in before]
    assert (after[1].body, after[1].key, after[1].hidden) == (None, None, hidden(event))
    assert [after[0], after[2]] == [before[0], before[2]]
    with pytest.raises(Incomplete):
        either.get_blob(root)
    assert either.blob_key(root) is None
    assert either.load_checkpoint(1) is None
    report = verify(either, jobs=1)
    assert report.exit_code == 0
    assert [row.state for row in report.rows if row.what == "hidden content"] == ["not checkable"]
    assert either.append([draft()], [], 3, 1).head.seq == 4


@pytest.mark.parametrize(
    ("events", "blobs", "error"),
    [
        (lambda event: {2: hidden(draft(body={"text": SECRET}))}, [], InvalidEvent),
        (lambda event: {3: hidden(event)}, [], InvalidEvent),
        (lambda event: {9: hidden(event)}, [], InvalidEvent),
        (lambda event: {2: b"[]"}, [], InvalidEvent),
        (lambda event: {2: hidden(event)}, ["00" * 32], Damaged),
    ],
)
def test_a_redaction_that_does_not_fit_changes_nothing(
    either: Log, events: Callable[[Draft], dict[int, bytes]], blobs: list[str], error: type[Exception]
) -> None:
    event, root = with_secret(either)
    before = list(either.read())
    with pytest.raises(error):
        either.redact(events(event), blobs, 1)
    assert list(either.read()) == before
    assert either.get_blob(root) == SECRET.encode()


def test_what_is_always_clear_cannot_be_taken_out(either: Log) -> None:
    event = draft("tool.finished", body={"attempt": 1, "call": "main/1", "status": "ok", "output": SECRET})
    either.append([event], [], 1, 1)
    before = list(either.read())
    with pytest.raises(InvalidEvent, match="status"):
        either.redact({2: hidden(event, "status")}, [], 1)
    assert list(either.read()) == before
    either.redact({2: hidden(event, "output")}, [], 1)
    assert verify(either, jobs=1).exit_code == 0


def test_only_the_owner_redacts(either: Log) -> None:
    event, _ = with_secret(either)
    with pytest.raises(Fenced):
        either.redact({2: hidden(event)}, [], 2)


def test_no_byte_of_it_is_left_in_any_file(log: SqliteLog) -> None:
    own(log)
    event, root = with_secret(log)

    def bytes_on_disk() -> bytes:  # by another process: see the rule about a second open
        files = [file for file in log.path.parent.iterdir() if file.is_file()]
        return subprocess.run(["cat", *files], capture_output=True, check=True).stdout

    assert SECRET.encode() in bytes_on_disk()
    assert event.key in bytes_on_disk()
    log.redact({2: hidden(event)}, [root], 1)
    assert SECRET.encode() not in bytes_on_disk()
    assert event.key not in bytes_on_disk()


def test_the_record_stands_in_the_log_with_the_redaction_or_neither_does(either: Log) -> None:
    event, root = with_secret(either)
    record = draft("log.redacted", body={"seqs": [2]})
    with pytest.raises(Damaged):
        either.redact({2: hidden(event)}, ["00" * 32], 1, [record])
    assert either.head().seq == 3
    either.redact({2: hidden(event)}, [root], 1, [record])
    assert either.head().seq == 4
    assert list(either.read())[3].body == record.body
    assert either.append([draft()], [], 4, 1).head.seq == 5


def test_a_holder_that_opened_nothing_redacts_and_a_closed_log_stays_closed(log: SqliteLog) -> None:
    own(log)
    event, root = with_secret(log)
    log.append([], [draft("session.closed", body={"outcome": "done"})], 3, 1)
    log.close()
    with SqliteLog.open(log.path, commands=COMMANDS) as again:
        held = again.hold()
        again.redact({2: hidden(event)}, [root], held.epoch, [draft("log.redacted", body={"seqs": [2]})])
    asked: list[Claim] = []
    with SqliteLog.open(log.path, commands=COMMANDS) as again:
        report = verify(again, jobs=1)
        again.claim(recording(asked))
    assert [row.state for row in report.rows if row.what == "tail"] == ["proven"]
    assert (asked[0].crashed, asked[0].head.seq) == (False, 5)
