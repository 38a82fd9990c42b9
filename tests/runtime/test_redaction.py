"""What a text's removal takes with it: the closure, on logs made by hand."""

import hashlib
import json

import msgspec
import pytest

from muse.app import rules
from muse.errors import UsageError
from muse.event.content import BlobRef, Block, Host, Observed, Settings
from muse.event.kinds import (
    COMMANDS,
    ApprovalDecided,
    ApprovalRequested,
    ModelResponded,
    NoteAdded,
    SessionOpened,
    ToolFinished,
    ToolStarted,
)
from muse.log.memory import MemoryLog, MemoryPlace
from muse.runtime.redaction import leaves_for, plan
from muse.runtime.seal import seal

SECRET = b"correct horse battery"
SETTINGS = Settings(provider="p", dialect="scripted", model="m")


class Made:
    """A log that a test writes to."""

    def __init__(self) -> None:
        self.log = MemoryLog(MemoryPlace("s"), commands=COMMANDS)
        opened = SessionOpened(format=1, rules=1, workspace="/work", host=Host(name="h", pid=1), settings=SETTINGS)
        self.epoch = self.log.claim(lambda _: seal(opened, "main", 0)).epoch

    def add(self, body: object) -> int:
        draft = seal(body, "main", 0)  # type: ignore[arg-type]  # bodies are structs
        return self.log.append([draft], [], self.log.head().seq, self.epoch).head.seq

    def blob(self, data: bytes) -> BlobRef:
        root, length = self.log.put_blob(data, hashlib.sha256(data).digest())
        return BlobRef(blob=root, length=length)

    def fields(self, *texts: bytes, whole: tuple[int, ...] = ()) -> dict[int, list[str]]:
        found = plan(self.log, rules(), texts, whole)
        self.blobs = set(found.blobs)
        return {seq: hiding.fields for seq, hiding in sorted(found.events.items()) if hiding.places}


@pytest.fixture
def made() -> Made:
    return Made()


def test_what_came_over_the_wire_goes_with_the_words_that_were_made_of_it(made: Made) -> None:
    raw = made.blob(b'data: {"delta":"correct ho"}\n\ndata: {"delta":"rse battery"}\n\n')
    other = made.blob(b"data: nothing of it")
    first = ModelResponded(
        call="main/1", attempt=1, stop="end_turn", blocks=(Block(kind="text", text="no"),), raw=other
    )
    block = Block(kind="text", text="it is correct horse battery")
    made.add(first)
    seq = made.add(ModelResponded(call="main/2", attempt=1, stop="end_turn", blocks=(block,), raw=raw))
    assert made.fields(SECRET) == {seq: ["blocks.0.text"]}
    assert made.blobs == {raw.blob}


def test_digests_of_what_holds_it_go_wherever_they_stand(made: Made) -> None:
    content = b"KEY=" + SECRET + b"\n"
    digest = hashlib.sha256(content).hexdigest()
    shown = f"write {SECRET.decode()}"
    shown_sha256 = hashlib.sha256(shown.encode()).hexdigest()
    asked = made.add(ApprovalRequested(call="main/1", tool="write", shown=shown, shown_sha256=shown_sha256))
    decided = made.add(
        ApprovalDecided(call="main/1", decision="allow", by="person", request=asked, shown_sha256=shown_sha256)
    )
    observed = Observed(path="a", after_sha256=digest, after=made.blob(content))
    args = json.dumps({"content": content.decode()})
    started = made.add(
        ToolStarted(call="main/1", attempt=1, tool="write", args=args, recovery="opaque", observed=observed)
    )
    later = made.add(NoteAdded(text=f"I ran sha256sum, it says\n{digest}  a\nfine"))
    git = made.add(NoteAdded(text=hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()))
    made.add(NoteAdded(text=hashlib.sha256(b"something else").hexdigest()))
    assert made.fields(SECRET) == {
        asked: ["shown", "shown_sha256"],
        decided: ["shown_sha256"],
        started: ["args", "observed.after_sha256"],
        later: ["text"],
        git: ["text"],
    }
    assert observed.after is not None
    assert made.blobs == {observed.after.blob}


def test_only_the_lines_that_hold_it_go(made: Made) -> None:
    seq = made.add(ToolFinished(call="main/1", attempt=1, status="ok", text="one\ncorrect horse battery\nthree\n"))
    found = plan(made.log, rules(), [SECRET])
    assert found.events[seq].places == {(("text",), 1)}
    made.log.redact(leaves_for(made.log, found), found.blobs, made.epoch)
    stored = list(made.log.read())[seq - 1]
    assert stored.hidden is not None
    assert b"three" in stored.hidden
    assert SECRET not in stored.hidden
    assert made.fields(SECRET) == {}


def test_a_part_beside_the_cut_of_a_shortened_output_goes_too(made: Made) -> None:
    whole = b"x\n" * 20_000 + SECRET + b"\n" * 20_000
    text = "x\nx correct ho\n[... 60000 bytes left out; output has the rest ...]\nrse battery\nx\n"
    output = made.blob(whole)
    body = ToolFinished(call="main/1", attempt=1, status="ok", text=text, output=output, output_bytes=len(whole))
    seq = made.add(body)
    other = msgspec.structs.replace(body, text=text.replace("correct ho", "nothing").replace("rse battery", "of it"))
    made.add(other)
    found = plan(made.log, rules(), [SECRET])
    assert {at: hiding.places for at, hiding in found.events.items()} == {seq: {(("text",), 1), (("text",), 3)}}


def test_what_was_redacted_once_can_be_redacted_further(made: Made) -> None:
    seq = made.add(ToolFinished(call="main/1", attempt=1, status="ok", text="one secret\ntwo secret\nthree\n"))
    for text in (b"one secret", b"two secret"):
        found = plan(made.log, rules(), [text])
        assert found.events[seq].fields == ["text"]
        made.log.redact(leaves_for(made.log, found), found.blobs, made.epoch)
    stored = list(made.log.read())[seq - 1]
    assert stored.hidden is not None
    assert (b"secret" in stored.hidden, b"three" in stored.hidden) == (False, True)


def test_clear_keys_stay_and_a_whole_event_loses_all_others(made: Made) -> None:
    seq = made.add(ToolFinished(call="main/1", attempt=1, status="ok", text="the words of it", duration_ms=5))
    twin = made.add(NoteAdded(text="it said: the words of it"))
    assert made.fields(whole=(seq,)) == {seq: ["text"], twin: ["text"]}
    assert made.fields(b"main/1") == {}
    assert plan(made.log, rules(), [b"main/1"]).events[seq].clear == ("call",)
    with pytest.raises(UsageError):
        made.fields(whole=(99,))
