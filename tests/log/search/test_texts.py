"""Which texts an event holds for a search: as they are meant, as far as they are there, up to the limits."""

import json
import secrets
from collections.abc import Iterator

import msgspec
import pytest

from muse.errors import Damaged, Incomplete
from muse.event import codec
from muse.event.commitment import disclose, encode_disclosed
from muse.event.content import BlobRef, Block, FileChange
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import FilesChanged, ModelResponded, ToolFinished, ToolStarted, UserPrompted
from muse.log.search import texts
from muse.log.search.texts import Texts

BLOBS = {
    "before": b"same\nold\nsame\n", "after": b"same\nnew\nsame\nsame\n", "binary": b"a\0needle\n",
    "latin": "grün".encode("latin-1"),
}  # fmt: skip


def stream(root: str) -> Iterator[bytes]:
    if root == "hidden":
        raise Incomplete("hidden")
    if root == "damaged":
        raise Damaged("blob damaged")
    yield BLOBS[root]


def ref(root: str) -> BlobRef:
    return BlobRef(root, len(BLOBS.get(root, b"")))


def told(body: msgspec.Struct, reader: Texts | None = None) -> list[tuple[str, str]]:
    """Kind and text of all that an event with this body says."""
    event = Event(1, "0" * 32, "2026", "x", 1, "main", 0, 1, body)
    return [(one.kind, one.text) for one in (reader or Texts(stream)).of(event)]


def test_of_a_changed_file_the_lines_that_differ_are_told() -> None:
    change = FileChange(path="a.py", before=ref("before"), after=ref("after"))
    assert told(FilesChanged(changes=(change,))) == [("path", "a.py"), ("added", "new\nsame"), ("removed", "old")]
    made = FileChange(path="b", after=ref("after"))
    assert ("added", BLOBS["after"].decode()) in told(FilesChanged(changes=(made,)))
    binary = FileChange(path="c", after=ref("binary"))
    assert told(FilesChanged(changes=(binary,))) == [("path", "c")]
    hidden = FileChange(path="d", before=ref("hidden"), after=ref("after"))
    assert [kind for kind, _ in told(FilesChanged(changes=(hidden,)))] == ["path", "added"]


def test_arguments_are_told_as_they_are_meant() -> None:
    use = Block(kind="tool_use", id="u", name="shell", args=json.dumps({"command": 'echo "é\t"', "timeout": 3}))
    assert told(ModelResponded(call="main/1", attempt=1, stop="tool_use", blocks=(use,))) == [
        ("command", 'echo "é\t"'), ("arguments", "timeout: 3"),
    ]  # fmt: skip
    edits = json.dumps({"path": "x", "edits": [{"old": "a\nb", "new": ["c"]}], "all": True, "none": None})
    start = ToolStarted(call="main/2", attempt=1, tool="edit", args=edits, recovery="pure")
    assert told(start) == [("arguments", "path: x\nedits.old: a\nb\nedits.new: c")]
    broken = msgspec.structs.replace(start, args='{"path": "x')
    assert told(broken) == [("arguments", '{"path": "x')]
    deep = msgspec.structs.replace(start, args="[" * 5000 + "]" * 5000)
    assert told(deep) == [("arguments", deep.args)]


def test_bytes_that_are_no_text_are_told_as_far_as_they_are() -> None:
    reader = Texts(stream)
    finished = ToolFinished(call="main/1", attempt=1, status="ok", text="", output=ref("latin"))
    assert told(finished, reader) == [("output", "gr\ufffdn")]
    assert told(msgspec.structs.replace(finished, output=ref("damaged")), reader) == []
    assert reader.problem == "blob damaged"


def test_what_is_too_long_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "TEXT_BYTES_MAX", 6)
    reader = Texts(stream)
    finished = ToolFinished(call="main/1", attempt=1, status="ok", text="as it is", output=ref("before"))
    assert told(finished, reader) == [("output", "same\no"), ("output", "as it is")]
    assert reader.cut == 1
    monkeypatch.setattr(texts, "EVENT_CHARS_MAX", 8)
    assert told(finished, reader) == [("output", "same\no"), ("output", "as")]
    assert reader.cut == 3


def test_what_redaction_left_is_told_and_what_it_took_parts_it() -> None:
    body = UserPrompted(text=f"first\nsecret\nthird {'x' * 5000} end\nlast")
    data, plain = codec.canonical(body)
    assert data
    hidden = disclose(plain, secrets.token_bytes(32), lambda _: False, hide_piece=lambda path, piece: piece == 1)
    ((kind, text),) = told(Redacted(encode_disclosed(hidden).decode()))
    assert (kind, text) == ("other", f"first\n\nthird {'x' * 5000} end\nlast")


def test_an_event_of_a_later_version_is_told_as_it_stands() -> None:
    assert told(Unknown('{"new":"thing"}')) == [("other", '{"new":"thing"}')]
