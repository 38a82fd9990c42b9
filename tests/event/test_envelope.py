"""Old events load for ever, unknown ones are kept byte for byte."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from muse.errors import InvalidEvent
from muse.event import codec
from muse.event.envelope import Redacted, Unknown, decode
from muse.event.kinds import COMMANDS, KINDS, NoteAdded, ToolFinished


def header(type_name: str, v: int = 1) -> bytes:
    return codec.encode_header(
        seq=3, id="ab" * 16, time="2026-01-02T03:04:05.000006Z", type=type_name, v=v, agent="main.2", cause=2, epoch=4
    )


def test_header_and_body_become_one_event() -> None:
    event = decode(header("note.added"), b'{"text":"hm"}')
    assert (event.seq, event.agent, event.cause, event.epoch) == (3, "main.2", 2, 4)
    assert event.body == NoteAdded(text="hm")


def test_a_type_that_this_build_does_not_know_keeps_its_text() -> None:
    assert decode(header("agent.dreamt"), b'{"sheep":12}').body == Unknown('{"sheep":12}')


def test_a_newer_version_of_a_known_type_keeps_its_text() -> None:
    assert decode(header("note.added", v=2), b'{"words":[]}').body == Unknown('{"words":[]}')


def test_an_older_version_is_brought_up_on_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = msgspec.structs.replace(KINDS["note.added"], version=3)
    monkeypatch.setitem(KINDS, "note.added", kind)
    upcasters = {
        ("note.added", 1): lambda body: {"words": body["text"]},
        ("note.added", 2): lambda body: {"text": body["words"].upper()},
    }
    assert decode(header("note.added", v=1), b'{"text":"hm"}', None, upcasters).body == NoteAdded(text="HM")


def test_a_redacted_body_shows_what_was_disclosed() -> None:
    assert decode(header("note.added"), None, b"[]").body == Redacted("[]")


def test_a_body_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"note\.added") as refusal:
        decode(header("note.added"), b'{"text":5}')
    assert "muse verify" in refusal.value.hint
    assert "event 3" in refusal.value.hint


def test_a_body_that_is_nested_too_deeply_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidEvent, match=r"note\.added"):
        decode(header("note.added"), b'{"mood":' + b"[" * 200_000 + b"]" * 200_000 + b',"text":"hm"}')


def test_fields_that_a_later_build_added_are_passed_over() -> None:
    assert decode(header("note.added"), b'{"mood":"good","text":"hm"}').body == NoteAdded(text="hm")


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    code=st.none() | st.integers(-(2**31), 2**31),
    status=st.sampled_from(["ok", "error", "cancelled", "unknown"]),
)
def test_what_is_folded_live_is_what_is_read_back(text: str, code: int | None, status: str) -> None:
    body = ToolFinished(call="main/1", attempt=1, status=status, text=text, exit_code=code)  # type: ignore[arg-type]
    assert decode(header("tool.finished"), codec.encode(body)).body == body


def test_every_kind_has_a_struct_whose_keys_the_format_allows() -> None:
    for name, kind in KINDS.items():
        for field in kind.body.__struct_fields__:
            assert field.replace("_", "").isalnum(), (name, field)
            assert field == field.lower(), (name, field)
            assert field != "blob", name


def test_commands_are_the_kinds_that_people_send() -> None:
    assert {"user.prompted", "agent.steered", "cancel.requested", "approval.decided", "note.added"} <= set(COMMANDS)
    assert not {"tool.started", "tool.finished", "session.opened", "model.responded"} & set(COMMANDS)
