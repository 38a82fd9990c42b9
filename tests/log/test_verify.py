"""What the verdict says of logs that are well formed as files."""

import dataclasses
import hashlib
import resource
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from muse.event.codec import BlobRef, encode, encode_header, parse
from muse.event.commitment import chain, commit, disclose, encode_disclosed, genesis
from muse.log import verify as verdict
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Stored
from muse.log.sqlite import SqliteLog
from muse.log.verify import BATCH_EVENTS, Report, Row, verify, verify_stored
from muse.testing.store import COMMANDS, TIME, draft, own


def event(seq: int, previous: bytes, body: dict[str, object], **header: object) -> Stored:
    """A well-formed event after `previous`."""
    fields: dict[str, object] = {
        "seq": seq, "id": secrets.token_hex(16), "time": TIME, "type": "note.added", "v": 1, "agent": "main",
        "cause": 0, "epoch": 1,
    }  # fmt: skip
    data = encode_header(**{**fields, **header})  # type: ignore[arg-type]  # a wrong field is refused there
    key = secrets.token_bytes(32)
    root = commit(body, key)
    return Stored(seq, data, encode(body), key, root.count, root.root, chain(previous, data, root.count, root.root))


def session(*events: dict[str, object]) -> list[Stored]:
    """A chained session `s` of an opening and these headers."""
    made = [event(1, genesis("s"), {"n": 1}, type="session.opened")]
    for seq, header in enumerate(events, 2):
        made.append(event(seq, made[-1].hash, {"n": seq}, **header))
    return made


def relinked(events: list[Stored]) -> list[Stored]:
    """The events with a chain that fits, as one who forges a log would make it."""
    last, made = genesis("s"), []
    for one in events:
        last = chain(last, one.header, one.count, one.root)
        made.append(dataclasses.replace(one, hash=last))
    return made


def failures(report: Report) -> dict[str, int]:
    return {row.what: row.seq for row in report.rows if row.state == "failed"}


def row(report: Report, what: str) -> Row:
    (found,) = [row for row in report.rows if row.what == what]
    return found


def check(events: list[Stored], **options: object) -> Report:
    return verify_stored("s", events, None, jobs=1, **options)  # type: ignore[arg-type]  # passed through


def test_a_well_formed_session_is_proven_as_far_as_it_can_prove_itself() -> None:
    report = check(session({}, {"type": "session.closed"}))
    assert (report.exit_code, report.events, report.head.seq) == (0, 3, 3)
    assert row(report, "tail").state == "proven"
    assert row(report, "rebuilt chain, cut tail").state == "not proven"
    assert row(report, "blobs").state == "not checkable"


def test_an_empty_log_is_no_damage() -> None:
    assert check([]).exit_code == 0
    assert check([], head=(0, hashlib.sha256(b"\x03muse-log-1s").digest())).exit_code == 0
    assert check([], head=(0, bytes(32))).exit_code == 6
    assert check([], head=(3, bytes(32))).exit_code == 8


def test_a_command_after_the_close_leaves_the_session_closed() -> None:
    assert row(check(session({"type": "session.closed"}, {"type": "user.prompted"})), "tail").state == "proven"
    open_again = check(session({"type": "session.closed"}, {"type": "tool.started"}))
    assert row(open_again, "tail").state == "not proven"
    assert "the tail may be missing" in row(open_again, "tail").detail


def test_a_known_head_proves_the_end() -> None:
    events = session({}, {}, {})
    report = check(events, head=(4, events[3].hash))
    assert (report.exit_code, row(report, "rebuilt chain, cut tail").state) == (0, "proven")
    assert row(report, "tail").state == "proven"
    earlier = check(events, head=(2, events[1].hash))
    assert (earlier.exit_code, row(earlier, "tail").state) == (0, "not proven")


def test_a_tail_cut_against_a_known_head_is_incomplete() -> None:
    events = session({}, {}, {})
    report = check(events[:3], head=(4, events[3].hash))
    assert (report.exit_code, failures(report)) == (8, {"rebuilt chain, cut tail": 4})


def test_a_cut_tail_does_not_hide_damage() -> None:
    events = session({}, {}, {})
    events[1] = dataclasses.replace(events[1], body=b'{"n":9}')
    assert check(events[:3], head=(4, events[3].hash)).exit_code == 6


def test_a_rebuilt_chain_passes_alone_and_fails_against_a_known_head() -> None:
    honest = session({}, {})
    forged = relinked([honest[0], event(2, honest[0].hash, {"n": 99}), honest[2]])
    assert check(forged).exit_code == 0
    report = check(forged, head=(3, honest[2].hash))
    assert (report.exit_code, failures(report)) == (6, {"rebuilt chain, cut tail": 3})


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (lambda e: [e[0], e[2], e[1]], {"order": 2}),
        (lambda e: [e[0], e[2]], {"order": 2}),
        (lambda e: [e[0], dataclasses.replace(e[2], seq=2)], {"headers": 2}),
        (lambda e: [e[0], e[1], e[1]], {"order": 2}),
        (lambda e: [e[1], e[2]], {"order": 1, "opening": 2}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], header=e[2].header.replace(b",", b", "))], {"headers": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], body=b'{ "n":3}')], {"bodies": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], body=b'{"n":4}')], {"bodies": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], key=bytes(32))], {"bodies": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], key=None)], {"bodies": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], body=None)], {"bodies": 3}),
        (lambda e: [*e[:2], dataclasses.replace(e[2], hidden=b"[]")], {"bodies": 3}),
    ],
    ids=["swapped", "left out", "renumbered", "twice", "no opening", "spaced header", "spaced body", "other body",
         "other key",         "no key", "no body", "half redacted"],
)  # fmt: skip
def test_a_forgery_with_a_rebuilt_chain_is_still_named(
    forge: Callable[[list[Stored]], list[Stored]], expected: dict[str, int]
) -> None:
    report = check(relinked(forge(session({}, {}))))
    found = failures(report)
    assert report.exit_code == 6
    assert expected.items() <= found.items()
    assert "chain" not in found


def test_an_id_that_stands_twice_is_named() -> None:
    assert failures(check(session({"id": "ab" * 16}, {}, {"id": "ab" * 16}))) == {"order": 4}


def test_an_epoch_never_goes_back_and_begins_with_an_opening() -> None:
    again = {"type": "session.opened", "epoch": 2}
    assert check(session({}, again, {"epoch": 2})).exit_code == 0
    assert failures(check(session({}, again, {"epoch": 1}))) == {"order": 4}
    assert failures(check(session({"epoch": 2}))) == {"opening": 2}


def test_a_broken_link_is_named_at_its_first_event_only() -> None:
    events = session({}, {}, {})
    events[1] = dataclasses.replace(events[1], hash=bytes(32))
    assert failures(check(events)) == {"chain": 2}


def redacted(one: Stored, hide: str) -> Stored:
    assert one.body is not None
    assert one.key is not None
    left = disclose(parse(one.body), one.key, lambda path: path[:1] == (hide,))
    return dataclasses.replace(one, body=None, key=None, hidden=encode_disclosed(left))


def test_a_redacted_event_verifies_and_is_said_to_hide_something() -> None:
    events = session()
    events.append(event(2, events[0].hash, {"secret": "a\nb", "shown": 1}))
    events[1] = redacted(events[1], "secret")
    report = check(events)
    assert report.exit_code == 0
    assert row(report, "hidden content").state == "not checkable"
    assert row(report, "hidden content").seq == 2
    assert events[1].hidden is not None
    events[1] = dataclasses.replace(events[1], hidden=events[1].hidden.replace(b'"text":"1"', b'"text":"2"'))
    assert failures(check(events)) == {"bodies": 2}


def test_hiding_a_clear_field_fails() -> None:
    closed: dict[str, object] = {"outcome": "done", "reason": "a secret"}
    events = session()
    events.append(event(2, events[0].hash, closed, type="session.closed"))
    assert check([events[0], redacted(events[1], "reason")]).exit_code == 0
    assert failures(check([events[0], redacted(events[1], "outcome")])) == {"bodies": 2}


def test_blobs_are_read_and_compared() -> None:
    log = MemoryLog(MemoryPlace("s"), commands=COMMANDS)
    own(log)
    root, length = log.put_blob(b"x" * 100_000, secrets.token_bytes(32))
    log.append([draft(body={"output": {"blob": root, "length": length}})], [], 1, 1)
    report = verify(log)
    assert (report.exit_code, report.blobs, row(report, "blobs").state) == (0, 1, "proven")
    log.place.blobs[root].chunks[1] = b"y" * 10
    assert failures(verify(log)) == {"blobs": 2}
    del log.place.blobs[root]
    assert failures(verify(log)) == {"blobs": 2}


def test_a_blob_with_two_lengths_fails() -> None:
    events = session()
    for seq, length in ((2, 5), (3, 6)):
        events.append(event(seq, events[-1].hash, {"output": {"blob": "ab" * 32, "length": length}}))
    assert failures(check(events)) == {"blobs": 3}
    assert BlobRef("ab" * 32, 5) != BlobRef("ab" * 32, 6)


def test_an_approval_proves_no_person() -> None:
    report = check(session({"type": "approval.decided"}))
    assert (report.exit_code, row(report, "who approved").state) == (0, "not proven")


def test_a_large_log_is_checked_in_several_processes_with_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "ALONE_BATCHES", 2)
    count = 5 * BATCH_EVENTS
    with SqliteLog.create(tmp_path / "s.muse", "s", commands=COMMANDS) as log:
        own(log)
        log.append([draft() for _ in range(count)], [draft("session.closed")], 1, 1)
        seen: list[int] = []
        report = verify(log, jobs=2, progress=seen.append)
        assert (report.exit_code, report.events) == (0, count + 2)
        assert (seen[-1], seen) == (count + 2, sorted(seen))
        assert verify(log, jobs=1) == report
        log._db.execute("UPDATE events SET body = ? WHERE seq IN (1501, 2001)", (b'{"n":2}',))
        assert failures(verify(log, jobs=2)) == {"bodies": 1_501}


def test_a_few_events_of_many_lines_are_checked_in_several_processes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is a leaf, and it is leaves that take time: a megabyte of short lines is half a million of them."""
    for limit in ("ALONE_LEAVES", "BATCH_LEAVES"):
        monkeypatch.setattr(verdict, limit, 1_000)
    events = session()
    for seq in (2, 3):
        events.append(event(seq, events[-1].hash, {"text": "a\n" * 2_000}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert verify_stored("s", events[:2], None, jobs=2).exit_code == 0
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime == before, "the first of them is no reason yet"
    bad = [*events[:2], dataclasses.replace(events[2], body=encode({"text": "b\n" * 2_000}))]
    assert failures(verify_stored("s", bad, None, jobs=2)) == {"bodies": 3}
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > before
