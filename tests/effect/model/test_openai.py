import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.model import openai
from muse.effect.model.scripted import Step
from muse.effect.protocol import ModelAnswer, ModelFailure
from muse.event.content import Block, ModelFacts, Settings, Usage
from muse.event.conversation import ModelRequest, TranscriptItem
from muse.fold import models
from muse.testing import emit
from muse.testing.validate import openai_faults
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

HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
DONE = b"data: [DONE]\n\n"


def sent(*items: TranscriptItem) -> list[Any]:
    """The messages of a request, which is valid, as plain values, without the system message."""
    body = openai.build(request(*items))
    assert openai_faults(HEADERS, body, "k") == []
    messages: list[Any] = json.loads(body)["messages"]
    return messages[1:]


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return f"data: {json.dumps({'id': 'c1', 'model': 'g', 'choices': choices} | more)}\n\n".encode()


def answer(*deltas: dict[str, Any], finish: str = "stop") -> ModelAnswer:
    data = b"".join(chunk(delta) for delta in deltas) + chunk({}, finish) + DONE
    outcome = decoded(openai.Decoder(), data)[1]
    assert isinstance(outcome, ModelAnswer)
    return outcome


def calls(*elements: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that these elements, one a chunk, make."""
    found = answer(*({"tool_calls": [element]} for element in elements), finish="tool_calls")
    assert found.stop == "tool_use"
    return [(block.id, block.name, block.args) for block in found.blocks]


def test_a_request_is_exactly_these_bytes() -> None:
    body = openai.build(request(said("Hi"), answered(use("t1", '{"command": "ls"}')), resulted("t1")))
    assert body.decode() == (
        '{"model":"test-1","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},'
        '{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function",'
        '"function":{"name":"shell","arguments":"{\\"command\\": \\"ls\\"}"}}]},'
        '{"role":"tool","tool_call_id":"t1","content":"out"}],'
        '"tools":[{"type":"function","function":{"name":"shell","description":"Runs a command.",'
        '"parameters":{"type": "object", "properties": {"command": {"type": "string"}}}}},'
        '{"type":"function","function":{"name":"read","description":"Reads a file.","parameters":{"type":"object"}}}],'
        '"max_tokens":1000,"stream":true,"stream_options":{"include_usage":true}}'
    )


@settings(unhurried, max_examples=200)
@given(conversations(any_text))
def test_any_text_anywhere_gives_a_request_that_a_strict_server_takes(made: ModelRequest) -> None:
    assert openai_faults(HEADERS, openai.build(made), "k") == []


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("gpt-4o", "max_tokens"), ("gpt-oss-120b", "max_tokens"), ("qwen3:8b", "max_tokens"),
        ("olmo-2", "max_tokens"), ("anthropic/claude", "max_tokens"), ("gpt-5", "max_completion_tokens"),
        ("o1", "max_completion_tokens"), ("o3-mini", "max_completion_tokens"),
        ("openai/gpt-5-mini", "max_completion_tokens"), ("gpt-10", "max_completion_tokens"),
    ],
)  # fmt: skip
def test_which_limit_a_model_takes(model: str, field: str) -> None:
    body = json.loads(openai.build(request(said("Hi"), model=model)))
    assert {key for key in body if key.startswith("max_")} == {field}


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1/chat/completions"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://example.org/v1beta/openai", "https://example.org/v1beta/openai/chat/completions"),
        ("https://example.org/x/chat/completions", "https://example.org/x/chat/completions"),
    ],
)
def test_the_address_with_and_without_version(base: str, url: str) -> None:
    assert openai.url(base) == url


def test_results_are_tool_messages_in_the_order_of_their_calls_before_what_was_said() -> None:
    messages = sent(
        said("go"), answered(use("a"), use("b")), resulted("b", "2"), resulted("a", ""), said("more"), said("and more")
    )
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "(empty)"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "more\n\nand more"},
    ]


def test_broken_arguments_are_sent_as_text_inside_an_object() -> None:
    messages = sent(said("go"), answered(use("a", '{"command": "l')), resulted("a"))
    arguments = messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_arguments": '{"command": "l'}


def test_an_id_that_an_earlier_response_used_is_told_apart() -> None:
    messages = sent(
        said("go"), answered(use("call_0")), resulted("call_0"), answered(use("call_0"), seq=5), resulted("call_0")
    )
    assert messages[3]["tool_calls"][0]["id"] == messages[4]["tool_call_id"] == "muse_5_0"


def test_thoughts_go_back_with_calls_and_not_with_final_answers() -> None:
    thought = Block(kind="reasoning", text="hm", raw='{"reasoning_content":"hm"}')
    messages = sent(
        said("go"),
        answered(thought, use("a")),
        resulted("a"),
        answered(thought, Block(kind="text", text="Done")),
        said("on"),
    )
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[3] == {"role": "assistant", "content": "Done"}


def test_reasoning_details_go_back_always_and_replace_the_plain_thought() -> None:
    details = '{"reasoning_details":[{"type":"reasoning.encrypted","data":"x", "n":1.50}]}'
    thoughts = (Block(kind="reasoning", text="hm", raw='{"reasoning":"hm"}'), Block(kind="reasoning", raw=details))
    done = Block(kind="text", text="Done")
    made = request(said("go"), answered(*thoughts, use("a")), resulted("a"), answered(*thoughts, done), said("on"))
    body = openai.build(made).decode()
    assert body.count(details[1:-1]) == 2
    assert '"reasoning":' not in body


def test_unknown_fields_go_back_as_they_came_and_output_only_fields_do_not() -> None:
    found = answer({"content": "Hi", "note": {"n": 1}, "annotations": [1]})
    messages = sent(said("go"), answered(*found.blocks), said("on"))
    assert messages[1] == {"role": "assistant", "content": "Hi", "note": {"n": 1}}


def test_a_call_with_more_than_is_understood_goes_back_whole() -> None:
    extra = {"google": {"thought_signature": "c2ln"}}
    found = answer(
        {
            "tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "shell", "arguments": "{}"}, "extra_content": extra}
            ]
        },
        finish="tool_calls",
    )
    messages = sent(said("go"), answered(*found.blocks), resulted("a"))
    assert messages[1]["tool_calls"][0]["extra_content"] == extra


def test_a_call_that_gets_another_id_keeps_what_else_came_with_it() -> None:
    call = {"index": 0, "id": "", "function": {"name": "shell", "arguments": "{}"}, "extra_content": {"a": 1}}
    found = answer({"tool_calls": [call]})
    messages = sent(said("go"), answered(*found.blocks), resulted(found.blocks[0].id))
    assert messages[1]["tool_calls"][0]["extra_content"] == {"a": 1}
    assert messages[1]["tool_calls"][0]["id"] == found.blocks[0].id != ""


def test_blocks_of_another_dialect_are_left_out() -> None:
    thinking = Block(kind="reasoning", text="hm", raw='{"type":"thinking","thinking":"hm","signature":"s"}')
    called = use("a", "{}", raw='{"type":"tool_use","id":"a","name":"shell","input":{},"caller":{}}')
    messages = sent(said("go"), answered(thinking, called), resulted("a"))
    assert messages[1]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    ]
    assert set(messages[1]) == {"role", "content", "tool_calls"}


@unhurried
@given(steps, st.lists(st.integers(0, 10_000), max_size=8))
def test_any_cut_of_the_stream_gives_the_step_that_made_it(step: Step, cuts: list[int]) -> None:
    shown, outcome = decoded(openai.Decoder(), b"".join(emit.openai_stream(step, 4)), cuts)
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
@given(steps, valid_text)
def test_what_was_received_goes_back_and_is_valid(step: Step, text: str) -> None:
    outcome = decoded(openai.Decoder(), b"".join(emit.openai_stream(step, 0)))[1]
    assert isinstance(outcome, ModelAnswer)
    results = [resulted(block.id, text) for block in outcome.blocks if block.kind == "tool_use"]
    body = openai.build(request(said("go"), answered(*outcome.blocks), *results, said("on")))
    assert openai_faults(HEADERS, body, "k") == []


@unhurried
@given(steps, st.integers(0, 10_000))
def test_a_stream_that_ends_before_its_finish_reason_is_cut_and_keeps_the_text(step: Step, at: int) -> None:
    events = emit.openai_stream(step, 0)
    data = b"".join(events[:-3])
    shown, outcome = decoded(openai.Decoder(), data[: at % (len(data) + 1)])
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "cut"
    assert step.text.startswith(outcome.partial)
    assert outcome.partial.startswith(shown)


def test_a_finish_reason_without_done_is_whole() -> None:
    outcome = decoded(openai.Decoder(), chunk({"content": "Hi"}) + chunk({}, "stop"))[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.stop == "end_turn"


def test_done_without_a_finish_reason_is_whole_if_it_says_something() -> None:
    outcome = decoded(openai.Decoder(), chunk({"content": "Hi"}) + DONE)[1]
    assert isinstance(outcome, ModelAnswer)
    nothing = decoded(openai.Decoder(), DONE)[1]
    assert isinstance(nothing, ModelFailure)
    assert nothing.failure == "garbage"


# How servers are seen to stream tool calls: (elements of `tool_calls`, one a chunk; the calls that are meant).
HABITS: list[tuple[str, list[dict[str, Any]], list[tuple[str, str, str]]]] = [
    (
        "as documented",
        [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"x'}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            {"index": 0, "function": {"arguments": '":1}'}},
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    (
        "id and name in every chunk",
        [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}},
        ],
        [("a", "f", '{"x":1}')],
    ),
    (
        "name in every chunk",
        [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
            {"index": 0, "function": {"name": "f", "arguments": "1}"}},
        ],
        [("a", "f", '{"x":1}')],
    ),
    (
        "no index, a call that starts with its id and name alone",
        [
            {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "function": {"name": "g"}},
            {"function": {"arguments": '{"y":2}'}},
        ],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    (
        "no index, whole calls",
        [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "f", "arguments": "{}"}},
        ],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    (
        "no index, in pieces",
        [
            {"id": "a", "function": {"name": "f", "arguments": '{"x"'}},
            {"function": {"arguments": ":1}"}},
            {"id": "b", "function": {"name": "g", "arguments": "{}"}},
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    (
        "all with index 0",
        [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"index": 0, "id": "b", "function": {"name": "f", "arguments": '{"y":2}'}},
        ],
        [("a", "f", "{}"), ("b", "f", '{"y":2}')],
    ),
    (
        "arguments as an object",
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": [1, 2]}}}],
        [("a", "f", '{"x": [1, 2]}')],
    ),
    (
        "no arguments at all",
        [
            {"index": 0, "id": "a", "function": {"name": "f"}},
            {"index": 1, "id": "b", "function": {"name": "f", "arguments": None}},
        ],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
]


@pytest.mark.parametrize(("elements", "meant"), [habit[1:] for habit in HABITS], ids=[habit[0] for habit in HABITS])
def test_the_habits_of_servers(elements: list[dict[str, Any]], meant: list[tuple[str, str, str]]) -> None:
    assert calls(*elements) == meant


@pytest.mark.parametrize("ids", [("", ""), ("x", "x"), (None, None)])
def test_missing_and_repeated_ids_are_made_unique_and_each_time_the_same(ids: tuple[str | None, ...]) -> None:
    elements = [
        {"index": index, "id": id, "function": {"name": "f", "arguments": "{}"}} for index, id in enumerate(ids)
    ]
    first, second = calls(*elements), calls(*elements)
    assert first == second
    assert len({id for id, _, _ in first}) == 2
    assert all(id for id, _, _ in first)


def test_a_call_with_an_id_after_one_without_is_another_call() -> None:
    found = calls({"function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}})
    assert [name for _, name, _ in found] == ["f", "g"]


def test_whole_calls_without_ids_and_all_with_index_0_are_two_calls() -> None:
    found = calls(
        {"index": 0, "function": {"name": "f", "arguments": '{"x":1}'}},
        {"index": 0, "function": {"name": "f", "arguments": '{"x":2}'}},
    )
    assert [arguments for _, _, arguments in found] == ['{"x":1}', '{"x":2}']


@pytest.mark.parametrize(
    ("raw", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
        ("x", "other"),
    ],
)
def test_finish_reasons(raw: str, stop: str) -> None:
    found = answer({"content": "Hi"}, finish=raw)
    assert (found.stop, found.stop_raw) == (stop, raw)


def test_calls_with_the_finish_reason_stop_are_calls() -> None:
    found = answer(
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}, finish="stop"
    )
    assert found.stop == "tool_use"


def test_a_refusal_is_shown_and_is_the_stop_reason() -> None:
    found = answer({"refusal": "I "}, {"refusal": "cannot."})
    assert (found.stop, found.blocks) == ("refusal", (Block(kind="text", text="I cannot."),))


def test_usage_separates_what_came_from_the_cache() -> None:
    usage = {
        "prompt_tokens": 100, "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 20}, "cost": 0.0012345,
    }  # fmt: skip
    outcome = decoded(openai.Decoder(), chunk({"content": "Hi"}, "stop") + chunk(None, usage=usage) + DONE)[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.usage == Usage(input=35, output=30, cache_read=60, cache_write=5, reasoning=20, cost_microusd=1234)


@pytest.mark.parametrize("number", [2**53, 2**64, 10**400])
def test_a_count_that_no_response_has_fills_budgets_and_stays_what_a_log_can_hold(number: int) -> None:
    usage = {"prompt_tokens": number, "completion_tokens": number, "cost": number}
    found = decoded(openai.Decoder(), chunk({"content": "Hi"}, "stop", usage=usage) + DONE)[1].usage
    priced_at = Settings(
        provider="p", dialect="openai", model="m", mode="yolo",
        facts=(ModelFacts(name="p/m", input_microusd=2**53, output_microusd=2**53),),
    )  # fmt: skip
    counted = models.priced(priced_at, models.session_ref(priced_at), msgspec.structs.replace(found, cost_microusd=0))
    for one in (found, counted):
        assert 10**9 < one.input <= 2**53 // 100_000
        assert 10**9 < one.output <= 2**53 // 100_000
        assert 10**9 < one.cost_microusd <= 2**53 // 100_000


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "prompt_tokens_details": []}, {"cost": "free"}, 7])
def test_odd_usage_counts_nothing(usage: object) -> None:
    outcome = decoded(openai.Decoder(), chunk({"content": "Hi"}, "stop", usage=usage) + DONE)[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.usage == Usage()


def test_deepseek_counts_its_cache_in_its_own_words() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}
    outcome = decoded(openai.Decoder(), chunk({"content": "Hi"}, "stop", usage=usage))[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.usage == Usage(input=2, output=1, cache_read=8)


def test_pieces_of_reasoning_details_are_one_again() -> None:
    found = answer(
        {"reasoning": "on", "reasoning_details": [{"type": "reasoning.text", "text": "on", "index": 0, "id": None}]},
        {"reasoning": "e", "reasoning_details": [{"type": "reasoning.text", "text": "e", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "", "signature": "s", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 1}]},
        {"content": "Hi"},
    )
    assert [block.text for block in found.blocks] == ["one", "one", "Hi"]
    assert json.loads(found.blocks[1].raw) == {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "one", "index": 0, "id": None, "signature": "s"},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
        ]
    }


def test_a_server_that_ignores_stream_is_understood() -> None:
    whole = {
        "id": "c", "model": "g", "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
    }  # fmt: skip
    outcome = decoded(openai.Decoder(), json.dumps(whole, indent=1).encode(), [5, 40])[1]
    assert isinstance(outcome, ModelAnswer)
    assert (outcome.blocks, outcome.usage) == ((Block(kind="text", text="Hi"),), Usage(input=3, output=1))


def test_content_in_parts_is_text() -> None:
    assert answer({"content": [{"type": "text", "text": "Hi"}, {"type": "x"}]}).blocks == (
        Block(kind="text", text="Hi"),
    )


def test_only_the_first_choice_counts() -> None:
    data = json.dumps({"id": "c", "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    outcome = decoded(openai.Decoder(), f"data: {data}\n\n".encode() + chunk({"content": "yes"}, "stop"))[1]
    assert isinstance(outcome, ModelAnswer)
    assert outcome.blocks == (Block(kind="text", text="yes"),)


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (emit.openai_error("server_error", "broke"), "server"),
        (b'data: {"error":"broke"}\n\n', "server"),
        (b'data: {"error":{"code":429,"message":"broke"}}\n\n', "rate_limited"),
        (chunk({"content": ""}, "error"), "server"),
        (b'data: {"choices":[{"index":0,"error":{"code":502,"message":"broke"}}]}\n\n', "server"),
        (b"data: {not json\n\n", "garbage"),
        (b'data: {"choices":[7]}\n\n', "garbage"),
        (b'data: {"choices":[{"delta":7}]}\n\n', "garbage"),
        (b'data: {"choices":[{"delta":{"tool_calls":7}}]}\n\n', "garbage"),
        (b'data: {"choices":[{"delta":{"tool_calls":[7]}}]}\n\n', "garbage"),
        (b'data: {"choices":[{"delta":{"content":7}}]}\n\n', "garbage"),
    ],
)
def test_errors_and_garbage_in_the_stream_end_it_and_keep_the_text(data: bytes, failure: str) -> None:
    outcome = decoded(openai.Decoder(), chunk({"content": "Half"}) + data + chunk({}, "stop") + DONE)[1]
    assert isinstance(outcome, ModelFailure)
    assert (outcome.failure, outcome.partial) == (failure, "Half")


EVENTS = emit.openai_stream(Step(text="abc", uses=(("x", {}),)), 0)


@unhurried
@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from(EVENTS)).map(b"".join)
    | any_text.map(lambda text: chunk({text: text}))
)
def test_no_bytes_make_the_decoder_raise(data: bytes) -> None:
    decoded(openai.Decoder(), data, [7])
