"""Requests taken apart and compared. The bodies are written by hand, as the providers' pages describe them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event.content import Usage
from muse.event.envelope import Event
from muse.event.kinds import ModelRequested, ModelResponded
from muse.event.sent import Compacted, Cut, Request, Sent
from muse.view.request import difference, indented, overview, pieces, pretty
from muse.view.sent import PIECE_LINES_MAX, difference_lines, difference_value, encoded, summary_lines, summary_value
from tests.view.made import event

MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "shell", "description": "Runs a command.", "input_schema": {"type": "object"}}


def anthropic(*messages: dict[str, Any], **more: Any) -> bytes:
    body = {"model": "claude", "max_tokens": 100, "system": [{"type": "text", "text": "You code.", **MARK}],
            "tools": [{**TOOL, **MARK}], "messages": list(messages), "stream": True} | more  # fmt: skip
    return json.dumps(body, separators=(",", ":")).encode()


def openai(*messages: dict[str, Any], **more: Any) -> bytes:
    tools = [{"type": "function", "function": {"name": "shell", "description": "Runs.", "parameters": {}}}]
    first = {"role": "system", "content": "You code."}
    return json.dumps({"model": "gpt", "messages": [first, *messages], "tools": tools, **more}).encode()


ASK = {"role": "user", "content": [{"type": "text", "text": "Mend it", **MARK}]}
ASKED = {"role": "user", "content": [{"type": "text", "text": "Mend it"}]}
USE = {"role": "assistant", "content": [
    {"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "I run."},
    {"type": "tool_use", "id": "t1", "name": "shell", "input": {"command": "make"}},
]}  # fmt: skip
RESULT = {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "t1", "content": "no rule\nstop", "is_error": True, **MARK},
]}  # fmt: skip


def test_an_anthropic_request_comes_apart_in_the_order_in_which_it_is_read() -> None:
    found = pieces(anthropic(ASKED, USE, RESULT))
    assert [(one.place, one.name, one.at, one.kind, one.text) for one in found] == [
        ("parameter", "model", 0, "", "claude"), ("parameter", "max_tokens", 0, "", "100"),
        ("parameter", "stream", 0, "", "true"),
        ("tool", "shell", 0, "", 'Runs a command.\n{\n  "type": "object"\n}'),
        ("system", "", 0, "text", "You code."),
        ("message", "user", 1, "text", "Mend it"), ("message", "assistant", 2, "thinking", "hm"),
        ("message", "assistant", 2, "text", "I run."), ("message", "assistant", 2, "tool_use", '{"command":"make"}'),
        ("message", "user", 3, "result", "no rule\nstop"),
    ]  # fmt: skip
    assert (found[-2].tool, found[-1].error) == ("shell", True)
    assert not any("cache_control" in one.raw for one in found)


def test_an_openai_request_comes_apart_too() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command":"make"}'}}
    found = pieces(openai(
        {"role": "user", "content": "Mend it"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "no rule"},
    ))  # fmt: skip
    assert [(one.place, one.name, one.at, one.kind, one.text) for one in found if one.place == "message"] == [
        ("message", "system", 1, "text", "You code."), ("message", "user", 2, "text", "Mend it"),
        ("message", "assistant", 3, "tool_use", '{"command":"make"}'),
        ("message", "assistant", 3, "reasoning_content", "hm"), ("message", "tool", 4, "result", "no rule"),
    ]  # fmt: skip


def test_a_request_in_numbers() -> None:
    found = overview(anthropic(ASKED, USE, {"role": "user", "content": "[secret SHOP_KEY] and [secret SHOP_KEY]"}))
    assert found.parameters == {"model": '"claude"', "max_tokens": "100", "stream": "true"}
    assert [(one.what, one.bytes) for one in found.tools] == [("shell", 81)]
    assert found.messages == 3
    assert [(one.what, one.count) for one in found.shares] == [
        ("user text", 2), ("assistant thinking", 1), ("assistant text", 1), ("assistant tool_use", 1),
    ]  # fmt: skip
    assert found.masked == {"SHOP_KEY": 2}


def test_cache_marks_that_move_are_no_change_and_the_prefix_is_whole() -> None:
    found = difference(anthropic(ASK), anthropic(ASKED, USE, RESULT))
    assert {place: [(change.what, (change.after or change.before).kind) for change in changes]  # type: ignore[union-attr]
            for place, changes in found.changes.items()} == {
        "parameter": [], "tool": [], "system": [],
        "message": [("added", "thinking"), ("added", "text"), ("added", "tool_use"), ("added", "result")],
    }  # fmt: skip
    assert (found.whole, found.broken, found.same["message"]) == (True, None, 1)
    assert found.prefix == found.before


def test_what_compaction_took_out_is_removed_and_breaks_the_prefix_there() -> None:
    short = {"role": "user", "content": "In short: it was mended."}
    more = {"role": "user", "content": "Go on"}
    found = difference(anthropic(ASKED, USE, RESULT, more), anthropic(short, more))
    removed = [change.before.kind for change in found.changes["message"] if change.after is None and change.before]
    assert removed == ["text", "thinking", "text", "tool_use", "result"]
    assert [change.after.text for change in found.changes["message"] if change.before is None and change.after] == [
        "In short: it was mended."
    ]
    assert not found.whole
    assert found.broken is not None
    assert (found.broken.at, found.broken.text) == (1, "Mend it")
    assert found.same["message"] == 1


def test_changed_tools_parameters_and_system_are_named() -> None:
    other = {**TOOL, "description": "Runs a command line."}
    found = difference(
        anthropic(ASKED), anthropic(ASKED, tools=[other, {**TOOL, "name": "read"}], max_tokens=7, system="You plan.")
    )
    assert [(change.what, change.after.name) for change in found.changes["tool"] if change.after] == [
        ("changed", "shell"), ("added", "read"),
    ]  # fmt: skip
    assert [(change.what, change.after.text) for change in found.changes["parameter"] if change.after] == [
        ("changed", "7")
    ]
    assert [change.what for change in found.changes["system"]] == ["changed"]
    assert found.broken is not None
    assert (found.broken.place, found.prefix) == ("tool", 0)


def test_a_turn_that_grew_is_one_changed_piece() -> None:
    found = difference(
        openai({"role": "user", "content": "Mend it"}), openai({"role": "user", "content": "Mend it\n\nand hurry"})
    )
    (change,) = found.changes["message"]
    assert change.what == "changed"


def test_tools_in_another_order_are_said() -> None:
    two = [TOOL, {**TOOL, "name": "read"}]
    found = difference(anthropic(ASKED, tools=two), anthropic(ASKED, tools=two[::-1]))
    assert found.reordered
    assert found.changes["tool"] == ()


def asked(seq: int, call: str, data: bytes) -> Request:
    body = ModelRequested(
        call=call, attempt=1, provider="anthropic", model="claude", builder="anthropic/1", items=1,
        request_sha256="ab" * 32, request_bytes=len(data),
    )  # fmt: skip
    return Request(seq=seq, agent="main", asked=body, data=data)


def answered(usage: Usage) -> Event:
    body = ModelResponded(call="main/3", attempt=1, blocks=(), stop="end_turn", usage=usage, duration_ms=1_200)
    return event(body, 12)


def sent(before: bytes, after: bytes) -> Sent:
    return Sent(
        request=asked(11, "main/3", after), previous=asked(4, "main/1", before),
        answer=answered(Usage(input=100, output=20, cache_read=800, cache_write=100)),
        compacted=(Compacted(seq=9, first=2, last=6, events=5, before=40_000, after=900, method="summary"),),
        cut=(Cut(seq=8, call="main/2", sent=30_000, whole=2_000_000),),
    )  # fmt: skip


def test_the_summary_says_what_the_cache_did_and_what_the_model_did_not_see() -> None:
    lines = [line.text for line in summary_lines(sent(anthropic(ASK), anthropic(ASKED, USE, RESULT)))]
    assert lines[0] == "request #11  main/3  anthropic/claude"
    assert "answer     #12 after 1.2 s: 1,000 tokens in, 20 out" in lines
    assert "cache      800 of 1,000 tokens were read from it (80 %), 100 written to it" in lines
    assert (
        "compacted  since #9, #2 to #6 are told in short (summary): 5 events of 40.0 kB became 900 B;"
        " see them: muse log --since @2 --until @6"
    ) in lines
    assert "in part    the result of main/2: 30.0 kB of 2.0 MB; whole: muse show @8 --blob output" in lines


def test_the_difference_is_told_in_order_with_the_texts() -> None:
    lines = [(line.text, line.look) for line in difference_lines(sent(anthropic(ASK), anthropic(ASKED, USE, RESULT)))]
    texts = [text for text, _ in lines]
    assert texts[:5] == [
        "request #11 (main/3) since #4 (main/1)", "parameters the same (3)", "tools      the same (1)",
        "system     the same (1)", "messages   4 added, 1 as before",
    ]  # fmt: skip
    assert ("  + command: make", "add") in lines
    assert [text for text in texts if text.startswith("+ message 3")] == ["+ message 3 user result, an error (83 B)"]
    assert texts[-2].startswith("cache      the request before stands whole at the beginning of this one: ")
    assert texts[-1] == "           800 of 1,000 tokens were read from it (80 %), 100 written to it"


def test_a_changed_text_is_shown_as_a_diff() -> None:
    old, new = "a\nb\nc\n", "a\nB\nc\n"
    lines = [line.text for line in difference_lines(sent(anthropic(ASKED, system=old), anthropic(ASKED, system=new)))]
    at = lines.index("~ system (11 B → 11 B)")
    assert lines[at + 1 : at + 6] == ["  @@ -1,3 +1,3 @@", "   a", "  -b", "  +B", "   c"]


def test_another_model_reads_nothing_of_what_was_kept() -> None:
    lines = [line.text for line in difference_lines(sent(anthropic(ASKED), anthropic(ASKED, model="claude-2")))]
    assert "cache      another model is asked: nothing that was kept for the one before can be read" in lines


def test_a_long_piece_is_cut_and_says_so() -> None:
    long = {"role": "user", "content": "\n".join(map(str, range(PIECE_LINES_MAX + 50)))}
    lines = [line.text for line in difference_lines(sent(anthropic(ASKED), anthropic(ASKED, long)))]
    assert "  … 50 more lines: --request has it whole" in lines


def test_the_values_say_the_same() -> None:
    one = sent(anthropic(ASK), anthropic(ASKED, USE, RESULT))
    value = msgspec.json.decode(encoded(difference_value(one)))
    assert [change["what"] for change in value["changes"]] == ["added"] * 4
    assert (value["seq"], value["since"], value["prefix"]["whole"]) == (11, 4, True)
    assert value["answer"]["usage"]["cache_read"] == 800
    numbers = msgspec.json.decode(encoded(summary_value(one)))
    assert numbers["content"]["messages"] == 3
    assert numbers["compacted"][0]["first"] == 2


HOSTILE = "a\x1b[2J\u202eb\r\x07"


def test_what_is_shown_is_safe_and_stable() -> None:
    body = anthropic({"role": HOSTILE, "content": [{"type": HOSTILE, "x": HOSTILE}]}, **{HOSTILE: HOSTILE})
    one = sent(anthropic(ASKED), body)
    for lines in (summary_lines(one), difference_lines(one)):
        texts = [line.text for line in lines]
        assert not any(sign in text for text in texts for sign in "\x1b\u202e\r\x07\n")
    assert pretty(body) == pretty(body)
    raw = json.dumps({"a": HOSTILE}, ensure_ascii=False).replace("\\u001b", "\\u001b").encode()
    assert not any(sign in line for line in pretty(raw) for sign in "\x1b\u202e\r\x07")


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["messages", "items", "tools", "system", "content", "role", "item", "blocks", "tool_calls", "x",
                     "function", "type", "name", "cache_control"]), inner)))  # fmt: skip
def test_no_json_is_too_odd_to_be_taken_apart_and_compared(value: object) -> None:
    data = json.dumps(value).encode()
    overview(data)
    found = difference(data, data)
    assert found.whole
    assert not any(found.changes.values())
    assert json.loads(indented(data)) == value


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"messages":7}', b'{"tools":[1]}', b"[" * 100_000])
def test_what_is_no_request_is_one_piece(data: bytes) -> None:
    assert [one.name for one in pieces(data)] == ["body"]
    assert pretty(data)
