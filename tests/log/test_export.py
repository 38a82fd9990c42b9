"""Exports that muse writes: read back by its own check and by the verifier that was written from the format page."""

import base64
import io
import json
import random
import secrets
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muse.event.codec import encode, parse
from muse.event.commitment import disclose, encode_disclosed
from muse.event.content import BlobRef, FileChange
from muse.event.kinds import COMMANDS, FilesChanged, NoteAdded, UserPrompted
from muse.log.export import write_export
from muse.log.export_check import verify_export
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Log
from muse.log.sqlite import SqliteLog
from muse.log.verify import Report
from muse.runtime.seal import seal
from muse.testing.store import own

TOOL = Path(__file__).parents[2] / "tools" / "verify_export.py"
unhurried = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
texts = st.one_of(st.text(max_size=30), st.text('\n\r"\\`\u2028é😀', max_size=20))


def exported(log: Log, upto: int = 0) -> bytes:
    out = io.BytesIO()
    write_export(log, out.write, upto=upto)
    return out.getvalue()


def check(data: bytes, head: tuple[int, bytes] | None = None) -> Report:
    return verify_export(io.BytesIO(data), head=head)


def noted(notes: list[str]) -> MemoryLog:
    log = MemoryLog(MemoryPlace("s"), commands=COMMANDS)
    own(log, COMMANDS)
    for note in notes:
        log.submit(seal(NoteAdded(text=note), "main", 0))
    return log


@unhurried
@given(st.lists(texts, max_size=5))
def test_what_is_written_is_proven_when_it_is_read(notes: list[str]) -> None:
    with noted(notes) as log:
        head = log.head()
        report = check(exported(log), (head.seq, head.hash))
        assert (report.exit_code, report.events, report.head) == (0, head.seq, head)
        bodies = [json.loads(line) for line in exported(log).split(b"\n") if b'"header"' in line]
        assert [json.loads(one["body"]).get("text") for one in bodies[1:]] == notes


@unhurried
@given(st.lists(texts, min_size=1, max_size=3), st.data())
def test_no_changed_byte_goes_unseen(notes: list[str], data: st.DataObject) -> None:
    with noted(notes) as log:
        head = log.head()
        text = bytearray(exported(log))
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != text[at]))
        assert check(bytes(text), (head.seq, head.hash)).exit_code in (6, 8)


@unhurried
@given(st.lists(texts, min_size=1, max_size=4), st.data())
def test_a_part_of_an_export_is_never_taken_for_the_whole(notes: list[str], data: st.DataObject) -> None:
    with noted(notes) as log:
        whole = exported(log)
        part = whole[: data.draw(st.integers(0, len(whole) - 2))]
        assert check(part).exit_code == 8


def test_an_export_ends_where_it_is_told_to() -> None:
    with noted(["a", "b", "c"]) as log:
        report = check(exported(log, upto=2))
        assert (report.exit_code, report.head.seq) == (0, 2)
        assert report.head.hash == next(log.read(after=1, before=3)).hash


def redacted(path: Path) -> tuple[int, bytes]:
    """A log with a blob and two prompts, of which one blob and one prompt are then hidden. Returns its head."""
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        owner = own(log, COMMANDS)
        kept, gone = (BlobRef(*log.put_blob(data, secrets.token_bytes(32))) for data in (b"kept", b"gone" * 40_000))
        changes = (FileChange(path="a", before=kept, after=gone),)
        log.append([seal(FilesChanged(changes=changes), "main", 0)], [], 1, owner.epoch)
        log.submit(seal(UserPrompted(text="the secret\nand the rest"), "main", 0))
        log.submit(seal(UserPrompted(text="plain"), "main", 0))
        head = log.head()
        stored = next(log.read(after=2, before=4))
    assert stored.body is not None
    assert stored.key is not None
    body = parse(stored.body)
    leaves = encode_disclosed(
        disclose(body, stored.key, lambda where: False, hide_piece=lambda where, piece: piece == 0)
    )
    assert b"secret" not in leaves
    with closing(apsw.Connection(str(path))) as db:
        db.execute("UPDATE events SET body = NULL, key = NULL WHERE seq = 3")
        db.execute("INSERT INTO hidden VALUES (3, ?)", (leaves,))
        db.execute("UPDATE blobs SET key = NULL WHERE root = ?", (bytes.fromhex(gone.blob),))
        db.execute("UPDATE chunks SET data = NULL WHERE blob = (SELECT blob FROM blobs WHERE key IS NULL)")
    return head.seq, head.hash


def test_a_redacted_log_is_exported_without_what_was_taken_out_and_still_verifies(tmp_path: Path) -> None:
    path = tmp_path / "s.muse"
    head = redacted(path)
    with SqliteLog.open(path, commands=COMMANDS, read_only=True) as log:
        data = exported(log)
    assert b"secret" not in data
    assert b"and the rest" in data
    report = check(data, head)
    assert report.exit_code == 0
    hidden = next(row for row in report.rows if row.what == "hidden content")
    assert (hidden.state, hidden.seq) == ("not checkable", 3)
    file = tmp_path / "s.jsonl"
    file.write_bytes(data)
    done = subprocess.run([sys.executable, str(TOOL), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_blob_named_twice_is_written_once() -> None:
    with MemoryLog(MemoryPlace("s"), commands=COMMANDS) as log:
        owner = own(log, COMMANDS)
        ref = BlobRef(*log.put_blob(b"x" * 70_000, secrets.token_bytes(32)))
        changes = (FileChange(path="a", after=ref), FileChange(path="b", after=ref))
        drafts = [seal(FilesChanged(changes=changes), "main", 0), seal(FilesChanged(changes=changes), "main", 0)]
        log.append(drafts, [], 1, owner.epoch)
        data = exported(log)
    assert data.count(b'{"blob":') == 1
    assert check(data).exit_code == 0


@pytest.mark.parametrize("size", [0, 1, 2, 3, 65_535, 65_536, 65_537, 131_072, 200_000])
def test_a_blob_of_any_size_is_written_as_standard_base64(size: int) -> None:
    content = random.Random(size).randbytes(size)
    with MemoryLog(MemoryPlace("s"), commands=COMMANDS) as log:
        owner = own(log, COMMANDS)
        changes = (FileChange(path="a", after=BlobRef(*log.put_blob(content, secrets.token_bytes(32)))),)
        log.append([seal(FilesChanged(changes=changes), "main", 0)], [], 1, owner.epoch)
        data = exported(log)
    line = next(json.loads(line) for line in data.splitlines() if line.startswith(b'{"blob"'))
    assert line["data"] == base64.b64encode(content).decode()
    assert check(data).exit_code == 0


def test_the_body_in_an_export_is_the_body_as_stored() -> None:
    body = NoteAdded(text='quote " back \\ tab \t line \n end')
    with MemoryLog(MemoryPlace("s"), commands=COMMANDS) as log:
        own(log, COMMANDS)
        log.submit(seal(body, "main", 0))
        line = next(json.loads(line) for line in exported(log).splitlines() if b"quote" in line)
    assert line["body"].encode() == encode(body)
