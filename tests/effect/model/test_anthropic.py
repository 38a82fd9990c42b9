import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.model import anthropic
from muse.effect.model.scripted import Step
from muse.effect.protocol import ModelAnswer, ModelFailure
from muse.event.content import Block, ToolSpec, Usage
from muse.event.conversation import ModelRequest, TranscriptItem
from muse.testing import emit
from muse.testing.validate import anthropic_faults
from tests.effect.model.samples import (
    answered,
    any_text,
    conversations,
    decoded,
    request,
    resulted,
    said,
    steps,
    unhurried,
    use,
    valid_text,
)

HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "k", "content-type": "application/json"}


def sent(*items: TranscriptItem) -> list[Any]:
    """The messages of a request, which is valid, as plain values."""
    body = anthropic.build(request(*items))
    assert anthropic_faults(HEADERS, body, "k") == []
    messages: list[Any] = json.loads(body)["messages"]
    return messages


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return value


def stream(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def block_events(start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """A whole response with one block."""
    return stream(
        {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )


def the_block(start: dict[str, Any], *deltas: dict[str, Any]) -> Block:
    outcome = decoded(anthropic.Decoder(), block_events(start, *deltas))[1]
    assert isinstance(outcome, ModelAnswer)
    return outcome.blocks[0]


def test_a_request_is_exactly_these_bytes() -> None:
    body = anthropic.build(request(said("Hi"), answered(use("t1", '{"command": "ls"}')), resulted("t1")))
    assert body.decode() == (
        '{"model":"test-1","max_tokens":1000,'
        '"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
        '"tools":[{"name":"shell","description":"Runs a command.",'
        '"input_schema":{"type": "object", "properties": {"command": {"type": "string"}}}},'
        '{"name":"read","description":"Reads a file.","input_schema":{"type":"object"},'
        '"cache_control":{"type":"ephemeral"}}],'
        '"messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]},'
        '{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"shell","input":{"command": "ls"}}]},'
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"out",'
        '"cache_control":{"type":"ephemeral"}}]}],"stream":true}'
    )


@settings(unhurried, max_examples=200)
@given(conversations(any_text))
def test_any_text_anywhere_gives_a_request_that_a_strict_server_takes(made: ModelRequest) -> None:
    assert anthropic_faults(HEADERS, anthropic.build(made), "k") == []


@unhurried
@given(conversations(any_text))
def test_equal_requests_give_equal_bytes(made: ModelRequest) -> None:
    again = ModelRequest(
        model=made.model, system=made.system, tools=made.tools, items=list(made.items), output_tokens_max=1000
    )
    assert anthropic.build(made) == anthropic.build(again)


def test_results_come_first_in_the_order_of_their_uses_then_what_was_said_meanwhile() -> None:
    messages = sent(
        said("go"),
        answered(use("a"), use("b")),
        resulted("b", "second", error=True),
        resulted("a", "first"),
        said("stop soon"),
        said("and rest"),
    )
    assert without_marks(messages[2]["content"]) == [
        {"type": "tool_result", "tool_use_id": "a", "content": "first"},
        {"type": "tool_result", "tool_use_id": "b", "content": "second", "is_error": True},
        {"type": "text", "text": "stop soon"},
        {"type": "text", "text": "and rest"},
    ]


def test_a_use_without_result_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="no result"):
        anthropic.build(request(said("go"), answered(use("a"), use("b")), resulted("a")))


def test_a_result_without_use_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="answers no tool use"):
        anthropic.build(request(said("go"), answered(use("a")), resulted("a"), resulted("a")))


def test_blocks_of_the_provider_go_back_byte_for_byte() -> None:
    thinking = '{"type":"thinking", "thinking":"hm\\u00e9", "signature":"c2ln", "new":1.50}'
    redacted = '{"type":"redacted_thinking","data":"x=="}'
    search = '{"type":"server_tool_use","id":"srv","name":"web_search","input":{"query" : "a"}}'
    found = '{"type":"web_search_tool_result","tool_use_id":"srv","content":[]}'
    cited = '{"type":"text","text":"as they say","citations":[{"type":"x","n":1.0}]}'
    called = '{"type":"tool_use","id":"a","name":"shell","input":{"n":1.0},"caller":{"type":"direct"}}'
    body = anthropic.build(
        request(
            said("go"),
            answered(
                Block(kind="reasoning", text="hm", raw=thinking),
                Block(kind="reasoning", raw=redacted),
                Block(kind="other", raw=search),
                Block(kind="other", raw=found),
                Block(kind="text", text="as they say", raw=cited),
                use("a", '{"n":1.0}', raw=called),
            ),
            resulted("a"),
        )
    )
    assert anthropic_faults(HEADERS, body, "k") == []
    assert ",".join([thinking, redacted, search, found, cited, called]) in body.decode()


def test_blocks_of_another_dialect_are_left_out() -> None:
    messages = sent(
        said("go"),
        answered(
            Block(kind="reasoning", text="hm", raw='{"reasoning_content":"hm"}'), Block(kind="text", text="Hello"),
            use("call 1", "{}", raw='{"id":"call 1","type":"function","function":{"name":"x","arguments":"{}"}}'),
        ),
        resulted("call 1"),
    )  # fmt: skip
    assert messages[1]["content"] == [
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "muse_2_2", "name": "shell", "input": {}},
    ]
    assert messages[2]["content"][0]["tool_use_id"] == "muse_2_2"


def test_an_id_that_an_earlier_response_used_is_told_apart() -> None:
    messages = sent(
        said("go"), answered(use("call_0")), resulted("call_0"), answered(use("call_0"), seq=5), resulted("call_0", "2")
    )
    assert [messages[1]["content"][0]["id"], messages[3]["content"][0]["id"]] == ["call_0", "muse_5_0"]
    assert without_marks(messages[4]["content"]) == [{"type": "tool_result", "tool_use_id": "muse_5_0", "content": "2"}]


def test_a_use_that_gets_another_id_keeps_what_else_came_with_it() -> None:
    raw = '{"type":"tool_use","id":"a b","name":"shell","input":{"n":1.0},"caller":{"type":"direct"}}'
    messages = sent(said("go"), answered(use("a b", '{"n":1.0}', raw=raw)), resulted("a b"))
    assert messages[1]["content"] == [
        {"type": "tool_use", "id": "muse_2_0", "name": "shell", "input": {"n": 1.0}, "caller": {"type": "direct"}}
    ]


def test_broken_arguments_are_sent_as_text_inside_an_object() -> None:
    messages = sent(said("go"), answered(use("a", '{"command": "l')), resulted("a", "the arguments are no JSON"))
    assert messages[1]["content"][0]["input"] == {"invalid_arguments": '{"command": "l'}


def test_a_response_with_nothing_to_send_vanishes_and_its_neighbours_merge() -> None:
    thinking = Block(kind="reasoning", raw='{"type":"thinking","thinking":"a","signature":"s"}')
    messages = sent(said("one"), answered(Block(kind="text", text=" \n"), thinking), said("two"))
    assert without_marks(messages) == [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    ]


def test_blank_prompts_and_silent_results_are_named_empty() -> None:
    messages = sent(said(" "), answered(use("a")), resulted("a", "", error=True))
    assert [messages[0]["content"][0]["text"], messages[2]["content"][0]["content"]] == ["(empty)", "(empty)"]


def test_at_most_four_marks_and_the_last_but_one_is_where_the_last_request_ended() -> None:
    items: list[TranscriptItem] = [said("go")]
    last_marks: list[tuple[int, int]] = []
    for turn in range(10):
        items += [answered(use(f"u{turn}"), seq=2 * turn + 2), resulted(f"u{turn}")]
        messages = sent(*items)
        marks = [
            (index, at)
            for index, message in enumerate(messages)
            for at, block in enumerate(message["content"])
            if "cache_control" in block
        ]
        assert len(marks) == 2
        assert not last_marks or marks[0] == last_marks[1]
        last_marks = marks


def test_a_tool_schema_that_is_no_object_does_not_spoil_the_request() -> None:
    tool = ToolSpec(name="x", description="d", schema="{", recovery="pure")
    broken = ModelRequest(model="m", system="", tools=(tool,), items=[said("go")], output_tokens_max=5)
    body = anthropic.build(broken)
    assert anthropic_faults(HEADERS, body, "k") == []
    assert json.loads(body)["tools"][0]["input_schema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("https://example.org/anthropic", "https://example.org/anthropic/v1/messages"),
        ("https://example.org/a/v1/messages", "https://example.org/a/v1/messages"),
    ],
)
def test_the_address_with_and_without_version(base: str, url: str) -> None:
    assert anthropic.url(base) == url


@unhurried
@given(steps, st.lists(st.integers(0, 10_000), max_size=8))
def test_any_cut_of_the_stream_gives_the_step_that_made_it(step: Step, cuts: list[int]) -> None:
    shown, outcome = decoded(anthropic.Decoder(), b"".join(emit.anthropic_stream(step, 4)), cuts)
    assert isinstance(outcome, ModelAnswer)
    assert shown == step.text
    assert "".join(block.text for block in outcome.blocks if block.kind == "text") == step.text
    assert "".join(block.text for block in outcome.blocks if block.kind == "reasoning") == step.reasoning
    uses = [block for block in outcome.blocks if block.kind == "tool_use"]
    assert [(block.id, block.name, block.args) for block in uses] == [
        (f"use_4_{index}", name, step.arguments(index)) for index, (name, _) in enumerate(step.uses)
    ]
    assert outcome.stop == ("tool_use" if uses else "end_turn")


@unhurried
@given(steps, valid_text, st.lists(st.integers(0, 10_000), max_size=3))
def test_what_was_received_goes_back_and_is_valid(step: Step, text: str, cuts: list[int]) -> None:
    outcome = decoded(anthropic.Decoder(), b"".join(emit.anthropic_stream(step, 0)), cuts)[1]
    assert isinstance(outcome, ModelAnswer)
    results = [resulted(block.id, text) for block in outcome.blocks if block.kind == "tool_use"]
    body = anthropic.build(request(said("go"), answered(*outcome.blocks), *results, said("on")))
    assert anthropic_faults(HEADERS, body, "k") == []


@unhurried
@given(steps, st.integers(0, 10_000))
def test_a_stream_that_ends_early_is_cut_and_keeps_the_text_so_far(step: Step, at: int) -> None:
    events = emit.anthropic_stream(step, 0)
    data = b"".join(events)
    length = at % (len(data) - len(events[-1]) + 1)
    shown, outcome = decoded(anthropic.Decoder(), data[:length])
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "cut"
    assert step.text.startswith(outcome.partial)
    assert outcome.partial.startswith(shown)


def test_usage_is_what_was_said_last() -> None:
    start = {"input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5, "output_tokens": 1}
    end = {
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
        "input_tokens": 4,
        "cache_read_input_tokens": None,
    }
    outcome = decoded(
        anthropic.Decoder(),
        stream(
            {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": start}},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": end},
            {"type": "message_stop"},
        ),
    )[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.usage == Usage(input=4, output=9, cache_read=20, cache_write=5, reasoning=4)
    assert (outcome.model, outcome.response_id, outcome.stop) == ("claude-x", "msg_1", "max_tokens")


@pytest.mark.parametrize(
    ("raw", "stop"),
    [
        ("end_turn", "end_turn"), ("stop_sequence", "end_turn"), ("refusal", "refusal"), ("pause_turn", "other"),
        ("model_context_window_exceeded", "max_tokens"), ("something_new", "other"),
    ],
)  # fmt: skip
def test_stop_reasons(raw: str, stop: str) -> None:
    data = stream({"type": "message_delta", "delta": {"stop_reason": raw}}, {"type": "message_stop"})
    outcome = decoded(anthropic.Decoder(), data)[1]
    assert isinstance(outcome, ModelAnswer)
    assert (outcome.stop, outcome.stop_raw) == (stop, raw)


def test_thinking_keeps_its_signature_and_unknown_members() -> None:
    block = the_block(
        {"type": "thinking", "thinking": "", "signature": "", "new": {"a": 1}},
        {"type": "thinking_delta", "thinking": "one "},
        {"type": "thinking_delta", "thinking": "two"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    assert block.text == "one two"
    assert block.raw == '{"type":"thinking","thinking":"one two","signature":"c2ln","new":{"a": 1}}'


def test_an_unknown_block_with_unknown_deltas_is_kept_whole() -> None:
    block = the_block(
        {"type": "compaction", "content": "", "state": {"step": 1}},
        {"type": "compaction_delta", "content": "a summ"},
        {"type": "compaction_delta", "content": "ary", "state": {"step": 2}},
    )
    assert (block.kind, block.raw) == ("other", '{"type":"compaction","content":"a summary","state":{"step": 2}}')


def test_a_server_tool_use_is_no_tool_use() -> None:
    block = the_block(
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": '},
        {"type": "input_json_delta", "partial_json": '"muse"}'},
    )
    assert (block.kind, block.id, block.name, block.args) == ("other", "srv_1", "web_search", '{"query": "muse"}')
    assert block.raw == '{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query": "muse"}}'


def test_citations_are_kept_with_their_text() -> None:
    block = the_block(
        {"type": "text", "text": "", "citations": None},
        {"type": "text_delta", "text": "said so"},
        {"type": "citations_delta", "citation": {"type": "char_location", "start": 1}},
        {"type": "citations_delta", "citation": {"type": "char_location", "start": 2}},
    )
    assert block.text == "said so"
    citations = '[{"type": "char_location", "start": 1},{"type": "char_location", "start": 2}]'
    assert block.raw == '{"type":"text","text":"said so","citations":' + citations + "}"


def test_input_that_comes_whole_at_the_start_is_kept_exactly() -> None:
    data = block_events({"type": "tool_use", "id": "a", "name": "shell", "input": {"n": 7}})
    outcome = decoded(anthropic.Decoder(), data.replace(b'{"n": 7}', b'{ "n":1.50}'))[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.blocks == (use("a", '{ "n":1.50}'),)


def test_a_character_cut_into_two_escapes_is_whole_again() -> None:
    data = block_events(
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "a\ud83d"},
        {"type": "text_delta", "text": "\ude00b\ud83d"},
    )
    shown, outcome = decoded(anthropic.Decoder(), data)
    assert isinstance(outcome, ModelAnswer)
    assert (shown, outcome.blocks[0].text) == ("a😀b", "a😀b\ufffd")


def test_two_uses_with_one_id_get_ids_of_their_own_each_time_the_same() -> None:
    events = [
        {"type": "content_block_start", "index": n, "content_block": {"type": "tool_use", "id": "x", "name": "a"}}
        for n in range(2)
    ]
    outcomes = [decoded(anthropic.Decoder(), stream(*events, {"type": "message_stop"}))[1] for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[0], ModelAnswer)
    first, second = outcomes[0].blocks
    assert first.id == "x"
    assert second.id.startswith("call_")
    assert (first.args, second.args) == ("{}", "{}")


def test_an_error_in_the_stream_ends_it_and_keeps_the_text() -> None:
    events = emit.anthropic_stream(Step(text="Half of it"), 0)
    data = b"".join(events[:4]) + emit.anthropic_error("overloaded_error", "Overloaded") + b"".join(events[4:])
    shown, outcome = decoded(anthropic.Decoder(), data)
    assert isinstance(outcome, ModelFailure)
    assert (outcome.failure, outcome.message, outcome.partial) == ("overloaded", "Overloaded", shown)


@pytest.mark.parametrize(
    "data",
    [
        b"data: {broken\n\n",
        b"data: [1]\n\n",
        b"data: \xff\n\n",
        stream({"type": "content_block_delta", "index": 3, "delta": {}}),
        stream({"type": "content_block_start", "content_block": {}}),
        stream({"type": "content_block_start", "index": 0, "content_block": 7}),
        stream({"type": "message_start", "message": "x"}),
        b"<html>not a stream</html>",
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_what_is_no_messages_stream_is_garbage(data: bytes) -> None:
    outcome = decoded(anthropic.Decoder(), data + stream({"type": "message_stop"}) * data.startswith(b"data"))[1]
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "garbage"


@unhurried
@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from(emit.anthropic_stream(Step(text="abc", uses=(("x", {}),)), 0))).map(b"".join)
)
def test_no_bytes_make_the_decoder_raise(data: bytes) -> None:
    decoded(anthropic.Decoder(), data, [7])


def test_unknown_events_and_pings_are_passed_over() -> None:
    data = b'event: ping\ndata: {"type":"ping"}\n\n' + stream({"type": "from_the_future", "x": 1})
    shown, outcome = decoded(anthropic.Decoder(), data + b"".join(emit.anthropic_stream(Step(text="Hi"), 0)))
    assert (shown, isinstance(outcome, ModelAnswer)) == ("Hi", True)


def test_a_stop_without_its_blank_line_is_a_stop() -> None:
    data = b"".join(emit.anthropic_stream(Step(text="Hi"), 0)).rstrip(b"\n")
    assert isinstance(decoded(anthropic.Decoder(), data)[1], ModelAnswer)
