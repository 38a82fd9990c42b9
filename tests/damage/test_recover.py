"""Damage of every kind to a log's file: it is named, or touches nothing of the log; and all the rest can be saved."""

import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from muse import app
from muse.errors import Damaged, MuseError, NotALog, UsageError
from muse.event.codec import parse
from muse.event.commitment import commit_blob, disclose, encode_disclosed
from muse.log.export import write_export
from muse.log.export_check import lines_of, verify_export
from muse.log.protocol import Stored
from muse.log.recover import Recovery, recover
from muse.log.sqlite import SqliteLog
from muse.log.verify import Report, verify
from muse.testing.store import COMMANDS, draft, own

PAGE = 4096
EVENTS = 90
SECRET = "the-word-that-was-taken-out"
CONTENT = random.Random(2).randbytes(200_000)
BLOB_ROOT = commit_blob([CONTENT], bytes(32)).root.hex()
VERIFIER = Path(__file__).parents[2] / "tools" / "verify_export.py"


class Made(NamedTuple):
    """A closed log with everything in it, in one file."""

    path: Path
    data: bytes
    events: list[Stored]
    kinds: dict[str, list[int]]
    """The pages of each kind, as SQLite's own statistics tell them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made") / "s.muse"
    chance = random.Random("made")
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        own(log)
        log.append([draft("a.fact", {"text": SECRET})], [], 1, 1)
        root, length = log.put_blob(CONTENT, bytes(32))
        log.append([draft("a.fact", {"output": {"blob": root, "length": length}})], [], 2, 1)
        log.put_blob(chance.randbytes(300_000), bytes(32))  # no event names it: swept, and its pages are free
        for seq in range(4, EVENTS):
            text = chance.randbytes(chance.choice([50, 50, 500, 9_000])).hex()
            log.append([draft("a.fact", {"n": seq, "text": text})], [], seq - 1, 1)
        log.save_checkpoint(20, 1, chance.randbytes(9_000))
        event = next(log.read(after=1))
        assert event.body is not None
        assert event.key is not None
        leaves = encode_disclosed(disclose(parse(event.body), event.key, lambda _leaf: True))
        log.redact({2: leaves}, [], 1)
        log.save_checkpoint(60, 1, chance.randbytes(9_000))
        log.append([], [draft("session.closed")], EVENTS - 1, 1)
        events = list(log.read())
    return Made(path, path.read_bytes(), events, _kinds(path))


def _kinds(path: Path) -> dict[str, list[int]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found: dict[str, list[int]] = {}
    for name, kind, page in db.execute("SELECT name, pagetype, pageno FROM dbstat"):
        found.setdefault(f"{name} {kind}", []).append(page)
    count = db.pragma("page_count")
    db.close()
    used = {page for pages in found.values() for page in pages}
    found["free"] = [page for page in range(1, count + 1) if page not in used]
    return found


def damaged(made: Made, folder: Path, change: Callable[[bytearray], object]) -> Path:
    """A copy of the log with its bytes changed."""
    data = bytearray(made.data)
    change(data)
    path = folder / "s.muse"
    path.write_bytes(data)
    return path


def judged(path: Path) -> tuple[Report | None, list[Stored]]:
    """What verifying and reading say; None where the file cannot even be opened."""
    try:
        with SqliteLog.open(path, read_only=True, check=False) as log:
            return verify(log, jobs=1), list(log.read())
    except MuseError:
        return None, []


def saved(made: Made, path: Path, target: Path) -> tuple[Recovery, list[Stored]]:
    """Recover, and check what holds of every recovery: it verifies, the source is untouched, what is saved is what was
    there, and what is lost is said."""
    before = path.read_bytes()
    done = recover(path, target, "r")
    assert path.read_bytes() == before
    with SqliteLog.open(target, read_only=True) as log:
        report = verify(log, jobs=1)
        events = list(log.read())
    assert report.exit_code == 0, report.rows
    lost = {seq for first, last in done.lost for seq in range(first, last + 1)}
    assert done.saved + len(lost) + 1 == len(events)
    for old, new in zip(made.events, events, strict=False):
        if old.seq in lost:
            assert b'"type":"log.recovered"' in new.header
        else:
            assert (old.header, old.body, old.key, old.root, old.hidden) == (
                new.header, new.body, new.key, new.root, new.hidden
            )  # fmt: skip
    assert SECRET.encode() not in target.read_bytes()
    return done, events


def test_the_log_has_pages_of_every_kind(made: Made) -> None:
    assert {
        "sqlite_schema leaf", "meta leaf", "events internal", "events leaf", "events overflow",
        "sqlite_autoindex_events_1 leaf", "hidden leaf", "blobs leaf", "sqlite_autoindex_blobs_1 leaf", "chunks leaf",
        "chunks overflow", "checkpoints leaf", "checkpoints overflow", "free",
    } <= set(made.kinds)  # fmt: skip
    assert made.kinds["free"]


def test_a_flipped_byte_in_each_kind_of_page_is_named_or_changes_nothing(made: Made, tmp_path: Path) -> None:
    chance = random.Random("flip")
    named = 0
    for kind, pages in sorted(made.kinds.items()):
        for case in range(8):
            at = (chance.choice(pages) - 1) * PAGE + chance.choice([chance.randrange(PAGE), chance.randrange(12)])
            bit = 1 << chance.randrange(8)
            path = damaged(made, tmp_path, lambda data, at=at, bit=bit: data.__setitem__(at, data[at] ^ bit))  # type: ignore[misc]
            report, events = judged(path)
            if report is not None and report.exit_code == 0:
                assert events == made.events, (kind, at, bit)
            else:
                named += 1
            if case < 4:
                done, _ = saved(made, path, tmp_path / f"{kind} {case}.muse")
                assert sum(last - first + 1 for first, last in done.lost) <= 1, (kind, at, bit)
    assert named > 40


def test_a_file_cut_anywhere_is_named_and_what_is_before_the_cut_is_saved(made: Made, tmp_path: Path) -> None:
    chance = random.Random("cut")
    for case in range(25):
        size = chance.randrange(3 * PAGE, len(made.data) - PAGE)
        path = damaged(made, tmp_path, lambda data, size=size: data.__delitem__(slice(size, None)))  # type: ignore[misc]
        report, _ = judged(path)
        assert report is None or report.exit_code == 6
        on_whole_pages = [event for event in made.events if 0 <= _end_of(made, event) <= size]
        if on_whole_pages:
            done, _ = saved(made, path, tmp_path / f"cut{case}.muse")
            assert done.saved >= len(on_whole_pages)


def _end_of(made: Made, event: Stored) -> int:
    """Where a small event's row ends in the file; -1 where it does not stand in one piece."""
    row = event.header + (event.key or b"")
    at = made.data.find(row)
    return at + len(row) + 200 + len(event.body or b"") if at >= 0 and len(event.body or b"") < 1_000 else -1


@pytest.mark.parametrize("size", [100, PAGE])
def test_a_log_whose_header_is_destroyed_is_saved_whole(made: Made, tmp_path: Path, size: int) -> None:
    path = damaged(made, tmp_path, lambda data: data.__setitem__(slice(size), bytes(size)))
    assert judged(path)[0] is None
    done, _ = saved(made, path, tmp_path / "new.muse")
    assert (done.saved, done.lost, done.lost_blobs, done.source) == (EVENTS, (), (), "s")
    assert done.head_hash == made.events[-1].hash.hex()


def test_pages_overwritten_with_noise_cost_only_the_events_on_them(made: Made, tmp_path: Path) -> None:
    chance = random.Random("noise")
    gaps = 0
    for case in range(25):
        pages = chance.sample(range(1, len(made.data) // PAGE + 1), 3)

        def noise(data: bytearray, pages: list[int] = pages) -> None:
            for page in pages:
                data[(page - 1) * PAGE : page * PAGE] = chance.randbytes(PAGE)

        done, events = saved(made, damaged(made, tmp_path, noise), tmp_path / f"noise{case}.muse")
        gaps += len(done.lost)
        follow_the_old_chain(events, made)
        assert sum(last - first + 1 for first, last in done.lost) <= 3 * 12
    assert gaps > 5


def follow_the_old_chain(events: list[Stored], made: Made) -> None:
    """docs/format.md 6.1, with the standard library: the damaged log's chain, followed over the recovered one."""

    def follows(before: bytes, header: bytes, count: int, root: bytes) -> bytes:
        return hashlib.sha256(
            b"\2" + before + hashlib.sha256(header).digest() + count.to_bytes(4, "big") + root
        ).digest()

    value: bytes | None = hashlib.sha256(b"\3muse-log-1s").digest()
    after = ""
    for event in events:
        fact: dict[str, Any] | None = json.loads(event.body or b"{}") if b"log.recovered" in event.header else None
        if fact is None:
            value = follows(value, event.header, event.count, event.root) if value else bytes.fromhex(after)
            assert after in ("", value.hex())
            after = ""
            assert value == made.events[event.seq - 1].hash
        elif fact["first_lost"] == 0:
            assert fact["source"] == "s"
            assert fact.get("head_hash", "") in ("", made.events[-1].hash.hex())
        else:
            if event.seq == fact["first_lost"] and value is not None:
                assert fact["hash_before"] == value.hex()
            after = fact["hash_after"]
            if "root" in fact and value is not None:
                value = follows(value, fact["header"].encode(), fact["leaves"], bytes.fromhex(fact["root"]))
            else:
                value = None


def test_an_event_whose_body_is_damaged_is_lost_with_its_header_and_what_remains_as_evidence(
    made: Made, tmp_path: Path
) -> None:
    body = made.events[29].body or b""

    def flip(data: bytearray) -> None:
        data[data.index(body[:40]) + 20] ^= 1

    done, events = saved(made, damaged(made, tmp_path, flip), tmp_path / "new.muse")
    assert (done.lost, done.unproven, done.head_hash) == (((30, 30),), (), made.events[-1].hash.hex())
    fact = json.loads(events[29].body or b"")
    assert (fact["header"].encode(), fact["root"]) == (made.events[29].header, made.events[29].root.hex())
    with SqliteLog.open(tmp_path / "new.muse", read_only=True) as log:
        remains = log.get_blob(fact["remains"]["blob"])
        (row,) = [row for row in verify(log, jobs=1).rows if row.what == "recovered"]
    assert sum(one != other for one, other in zip(remains, body, strict=True)) == 1
    assert (row.state, "1 events are lost (#30)" in row.detail) == ("not proven", True)


@pytest.mark.parametrize("column", ["hash", "root", "header", "id", "leaf_count"])
def test_what_is_stored_twice_can_be_damaged_once(made: Made, tmp_path: Path, column: str) -> None:
    path = damaged(made, tmp_path, lambda _data: None)
    wrong = {"leaf_count": "leaf_count + 1", "id": "zeroblob(16)"}.get(column, "zeroblob(32)")
    db = sqlite3.connect(path)
    db.execute(f"UPDATE events SET {column} = {wrong} WHERE seq = 40")
    db.commit()
    db.close()
    report, _ = judged(path)
    assert report is not None
    assert report.exit_code == 6
    done, _ = saved(made, path, tmp_path / "new.muse")
    assert done.lost == (((40, 40),) if column == "header" else ())


def test_a_damaged_blob_keeps_its_event_and_the_chunks_that_are_left(made: Made, tmp_path: Path) -> None:
    def flip(data: bytearray) -> None:
        data[data.index(CONTENT[70_000:70_016])] ^= 1

    done, events = saved(made, damaged(made, tmp_path, flip), tmp_path / "new.muse")
    assert (done.lost, done.lost_blobs) == ((), (BLOB_ROOT,))
    (lost,) = json.loads(events[-1].body or b"")["blobs"]
    with SqliteLog.open(tmp_path / "new.muse", read_only=True) as log:
        rest = log.get_blob(lost["rest"]["blob"])
        report = verify(log, jobs=1)
    assert rest == CONTENT[:65_536] + CONTENT[131_072:]
    assert [row.detail for row in report.rows if row.what == "hidden content"] == [
        "hidden by redaction: parts of 1 event, 0 blobs"
    ]


def test_only_what_is_before_the_damage_is_a_prefix_with_all_of_its_chain(made: Made, tmp_path: Path) -> None:
    body = made.events[29].body or b""

    def flip(data: bytearray) -> None:
        data[data.index(body[:40]) + 20] ^= 1

    done = recover(damaged(made, tmp_path, flip), tmp_path / "new.muse", "r", before_damage=True)
    assert (done.saved, done.lost, done.is_cut) == (29, ((30, EVENTS),), True)
    with SqliteLog.open(tmp_path / "new.muse", read_only=True) as log:
        assert verify(log, jobs=1).exit_code == 0
        fact = json.loads(list(log.read())[-1].body or b"")
    assert (fact["cut"], fact["first_lost"], fact["last_lost"]) == (True, 30, EVENTS)
    assert fact["hash_before"] == made.events[28].hash.hex()


def test_an_export_of_a_recovered_log_is_accepted_by_the_verifier_written_from_the_page(
    made: Made, tmp_path: Path
) -> None:
    pages = made.kinds["events leaf"][3:5]

    def wipe(data: bytearray) -> None:
        for page in pages:
            data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)

    done, events = saved(made, damaged(made, tmp_path, wipe), tmp_path / "new.muse")
    assert done.lost
    export = tmp_path / "new.jsonl"
    with SqliteLog.open(tmp_path / "new.muse", read_only=True) as log, export.open("wb") as file:
        write_export(log, file.write)
    head = f"{len(events)}:{events[-1].hash.hex()}"
    judged = subprocess.run([sys.executable, VERIFIER, export, "--head", head], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    with export.open("rb") as file:
        report = verify_export(lines_of(file))
    assert report.exit_code == 0
    (row,) = [row for row in report.rows if row.what == "recovered"]
    assert (row.state, "saved from s" in row.detail) == ("not checkable", True)


def test_a_recovery_whose_old_chain_was_changed_does_not_verify(made: Made, tmp_path: Path) -> None:
    """Whoever rebuilds a recovered log with another event in it has to say how the old chain came to fit."""
    path = damaged(made, tmp_path, lambda _data: None)
    target = tmp_path / "new.muse"
    recover(path, target, "r")
    with SqliteLog.open(target, read_only=True) as log:
        events = list(log.read())
    summary = json.loads(events[-1].body or b"")
    rebuilt = tmp_path / "rebuilt.muse"
    with SqliteLog.create(rebuilt, "r", commands=COMMANDS) as log:
        own(log)
        log.append([draft("a.fact", {"text": "another story"})], [], 1, 1)
        log.append([draft("log.recovered", summary)], [], 2, 1)
        report = verify(log, jobs=1)
    assert report.exit_code == 6
    assert [row.what for row in report.rows if row.state == "failed"] == ["recovered"]


def test_recovering_a_recovered_log_keeps_its_facts(made: Made, tmp_path: Path) -> None:
    body = made.events[29].body or b""

    def flip(data: bytearray) -> None:
        data[data.index(body[:40]) + 20] ^= 1

    _, first = saved(made, damaged(made, tmp_path, flip), tmp_path / "one.muse")
    again = bytearray((tmp_path / "one.muse").read_bytes())
    other = made.events[49].body or b""
    again[again.index(other[:40]) + 20] ^= 1
    (tmp_path / "one.muse").write_bytes(again)
    done = recover(tmp_path / "one.muse", tmp_path / "two.muse", "r2")
    assert (done.source, done.lost) == ("r", ((50, 50),))
    with SqliteLog.open(tmp_path / "two.muse", read_only=True) as log:
        assert verify(log, jobs=1).exit_code == 0
        assert next(log.read(after=29)).body == first[29].body


def foreign(folder: Path) -> dict[str, Path]:
    """Files that are no logs."""
    png = folder / "picture.muse"
    png.write_bytes(bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(5_000))
    (folder / "empty.muse").touch()
    other = folder / "bookmarks.muse"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()
    return {"picture": png, "empty": folder / "empty.muse", "bookmarks": other}


@pytest.mark.parametrize("name", ["picture", "empty", "bookmarks"])
def test_a_file_that_is_no_log_is_refused_with_what_to_do_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    path = foreign(tmp_path)[name]
    for opens in (lambda: SqliteLog.open(path, read_only=True), lambda: recover(path, tmp_path / "new.muse", "r")):
        with pytest.raises(NotALog) as refusal:
            opens()
        assert refusal.value.hint
    assert not list(tmp_path.glob("*new*"))


def test_a_target_that_is_there_is_not_overwritten(made: Made, tmp_path: Path) -> None:
    target = tmp_path / "mine.muse"
    target.write_text("mine")
    with pytest.raises(UsageError, match="already"):
        recover(made.path, target, "r")
    assert target.read_text() == "mine"


def test_a_copy_without_its_write_ahead_log_is_saved_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "live.muse"
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        own(log)
        log.append([draft(body={"text": "x" * 5_000})], [], 1, 1)
        for suffix in ("", "-wal"):
            data = subprocess.run(["cat", f"{path}{suffix}"], capture_output=True, check=True).stdout
            (tmp_path / f"copy.muse{suffix}").write_bytes(data)
        events = list(log.read())
    both = recover(tmp_path / "copy.muse", tmp_path / "both.muse", "r")
    assert (both.saved, both.head_hash) == (2, events[1].hash.hex())
    shutil.move(tmp_path / "copy.muse-wal", tmp_path / "elsewhere")
    alone = recover(tmp_path / "copy.muse", tmp_path / "alone.muse", "r")
    assert (alone.saved, alone.head_hash) == (1, events[0].hash.hex())
    (tmp_path / "copy.muse").write_bytes(b"")
    shutil.move(tmp_path / "elsewhere", tmp_path / "copy.muse-wal")
    only_wal = recover(tmp_path / "copy.muse", tmp_path / "only_wal.muse", "r")
    assert only_wal.saved >= 1


def test_a_damaged_log_is_opened_before_the_damage_and_refused_beyond(made: Made, tmp_path: Path) -> None:
    path = damaged(made, tmp_path, lambda _data: None)
    db = sqlite3.connect(path)
    db.execute("DELETE FROM events WHERE seq = 40")
    db.commit()
    db.close()
    with pytest.raises(Damaged) as refusal:
        SqliteLog.open(path, commands=COMMANDS)
    assert refusal.value.seq == 40
    assert "muse recover" in refusal.value.hint
    done, _ = saved(made, path, tmp_path / "new.muse")
    assert (done.lost, done.saved) == (((40, 40),), EVENTS - 1)


GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0.muse"


def test_whichever_event_of_a_real_session_is_lost_the_rest_is_read_folded_and_verified(tmp_path: Path) -> None:
    shutil.copy(GOLDEN, tmp_path / "whole.muse")
    with SqliteLog.open(tmp_path / "whole.muse", read_only=True) as log:
        count = log.head().seq
    for seq in range(1, count + 1):
        path, target = tmp_path / "damaged.muse", tmp_path / f"{seq}.muse"
        shutil.copy(tmp_path / "whole.muse", path)
        db = sqlite3.connect(path)
        db.execute("UPDATE events SET body = CAST(body || ' ' AS BLOB) WHERE seq = ?", (seq,))
        db.commit()
        db.close()
        assert recover(path, target, f"r{seq}").lost == ((seq, seq),)
        report = app.verify_file(target)
        assert report.exit_code == 0, (seq, report.rows)
        with SqliteLog.open(target, read_only=True) as log:
            state = app.state_of(log)
            assert (state.seq, state.recovered) == (count + 1, [f"#{seq}"])
            assert [event.seq for event in app.events(log)] == list(range(1, count + 2))
