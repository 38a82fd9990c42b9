"""The strict servers themselves: each thing that they must refuse is refused, on a request that is otherwise good."""

import json
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from muse.effect.model import anthropic, openai
from muse.effect.model.scripted import Step
from muse.event.conversation import Said, TranscriptItem
from muse.testing.validate import (
    Conversations,
    Siblings,
    anthropic_faults,
    marked_units,
    openai_faults,
    steps_answered,
    units_of,
)
from muse.testing.wire import AnthropicServer
from tests.effect.model.samples import answered, request, resulted, said, use

ITEMS: list[TranscriptItem] = [
    said("go"), answered(use("a"), use("b")), resulted("a"), resulted("b"), answered(use("c"), seq=9), resulted("c"),
    said("more"),
]  # fmt: skip
ANTHROPIC_HEADERS = {"anthropic-version": "2026-10-21", "x-api-key": "k", "content-type": "application/json"}
OPENAI_HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
Change = Callable[[dict[str, Any]], object]


def anthropic_value() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(anthropic.build(request(*ITEMS)))
    return value


def openai_value() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(openai.build(request(*ITEMS)))
    return value


def content(value: dict[str, Any], message: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = value["messages"][message]["content"]
    return blocks


THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
MARK = {"cache_control": {"type": "ephemeral"}}

ANTHROPIC_CHANGES: list[tuple[Change, str]] = [
    (lambda v: v.update(temperature=1), "unknown fields"),
    (lambda v: v.update(model=" "), "no model"),
    (lambda v: v.update(max_tokens=0), "no max_tokens"),
    (lambda v: v.update(max_tokens=True), "no max_tokens"),
    (lambda v: v.pop("stream"), "stream is not true"),
    (lambda v: v.update(system=[{"type": "text", "text": " "}]), "blank text"),
    (lambda v: v["tools"].append(v["tools"][0]), "two tools"),
    (lambda v: v["tools"][0].update(name="a b"), "bad tool name"),
    (lambda v: v["tools"][0].pop("description"), "without description"),
    (lambda v: v["tools"][0].update(input_schema="{}"), "without schema"),
    (lambda v: content(v, 0)[0].update(text="\ud800"), "lone surrogate"),
    (lambda v: v.update(messages=[]), "no messages"),
    (lambda v: v["messages"].pop(0), "is of assistant, not user"),
    (lambda v: v["messages"].pop(2), "is of assistant, not user"),
    (lambda v: v["messages"].append({"role": "assistant", "content": "x"}), "the last message"),
    (lambda v: v["messages"][0].update(name="x"), "fields"),
    (lambda v: v["messages"][0].update(content=[]), "is empty"),
    (lambda v: v["messages"][0].update(content=" "), "blank text"),
    (lambda v: content(v, 0).append({"type": "image"}), "of type image"),
    (lambda v: content(v, 0).append({"text": "x"}), "without type"),
    (lambda v: content(v, 0).insert(0, {"type": "tool_result", "tool_use_id": "z", "content": "x"}), "results ['z']"),
    (lambda v: content(v, 2).pop(0), "results ['b']"),
    (lambda v: content(v, 2).reverse(), "results ['b', 'a']"),
    (lambda v: content(v, 2).append(content(v, 2)[0]), "results ['a', 'b', 'a']"),
    (lambda v: content(v, 2).insert(0, {"type": "text", "text": "x"}), "text before a tool result"),
    (lambda v: content(v, 2)[0].update(content=""), "empty tool result"),
    (lambda v: content(v, 2)[0].update(extra=1), "a field too many"),
    (lambda v: content(v, 1)[0].update(id="a b"), "bad tool use id"),
    (lambda v: content(v, 1)[1].update(id="a"), "stands twice"),
    (lambda v: content(v, 3)[0].update(id="a"), "stands twice"),
    (lambda v: content(v, 1)[0].update(name="x.y"), "bad tool name"),
    (lambda v: content(v, 1)[0].update(input="{}"), "no object"),
    (lambda v: content(v, 1).append(THINKING), "ends in thinking"),
    (lambda v: content(v, 1).insert(0, {"type": "thinking", "thinking": "x"}), "without signature"),
    (lambda v: content(v, 1).insert(0, THINKING | MARK), "mark on thinking"),
    (lambda v: content(v, 0)[0].update(MARK), "5 cache marks"),
    (lambda v: v["system"][0].update(cache_control={"type": "forever"}), "of another kind"),
]

OPENAI_CHANGES: list[tuple[Change, str]] = [
    (lambda v: v.update(n=2), "unknown fields"),
    (lambda v: v.update(model=None), "no model"),
    (lambda v: v.update(max_completion_tokens=5), "not one limit"),
    (lambda v: v.update(stream=False), "stream is not true"),
    (lambda v: v.update(stream_options={}), "no usage"),
    (lambda v: v["tools"][0].update(type="x"), "no function"),
    (lambda v: v["tools"].append(v["tools"][0]), "two tools"),
    (lambda v: v["tools"][0]["function"].pop("parameters"), "without schema"),
    (lambda v: v.update(messages=[]), "no messages"),
    (lambda v: v["messages"].pop(1), "not the user's"),
    (lambda v: v["messages"].insert(2, {"role": "user", "content": "x"}), "user twice"),
    (lambda v: v["messages"].append({"role": "system", "content": "x"}), "the last message"),
    (lambda v: v["messages"].insert(5, {"role": "system", "content": "x"}), "inside"),
    (lambda v: v["messages"][1].update(content=" "), "no text"),
    (lambda v: v["messages"][1].update(name="x"), "fields"),
    (lambda v: v["messages"].pop(3), "no results for ['a']"),
    (lambda v: v.update(messages=v["messages"][:4]), "no results for ['b']"),
    (lambda v: v["messages"][1].update(role="developer"), "not the user's"),
    (lambda v: v["messages"][5].update(role="function"), "role function"),
    (lambda v: v["messages"][3].update(name="x"), "fields"),
    (lambda v: (v["messages"][5].update(content=None), v["messages"][5].pop("tool_calls")), "says nothing"),
    (lambda v: v["messages"].insert(4, v["messages"][3]), "an orphan result a"),
    (lambda v: v["messages"][3].update(tool_call_id="z"), "an orphan result z"),
    (lambda v: v["messages"][2].update(tool_calls=[]), "no tool calls in the list"),
    (lambda v: v["messages"][2].update(content=""), "blank text"),
    (lambda v: v["messages"][2]["tool_calls"][0].update(type="x"), "no function"),
    (lambda v: v["messages"][2]["tool_calls"][0].update(id=""), "without id"),
    (lambda v: v["messages"][2]["tool_calls"][1].update(id="a"), "stands twice"),
    (lambda v: v["messages"][2]["tool_calls"][0]["function"].update(name="a b"), "bad tool name"),
    (lambda v: v["messages"][2]["tool_calls"][0]["function"].update(arguments={}), "no string"),
    (lambda v: v["messages"][2]["tool_calls"][0]["function"].update(arguments="{"), "no JSON"),
    (lambda v: v["messages"][2]["tool_calls"][0]["function"].update(arguments="[]"), "no JSON object"),
]


def ids(changes: list[tuple[Change, str]]) -> list[str]:
    return [f"{index}: {words}" for index, (_, words) in enumerate(changes)]


@pytest.mark.parametrize(("change", "words"), ANTHROPIC_CHANGES, ids=ids(ANTHROPIC_CHANGES))
def test_a_messages_request_with_this_is_refused(change: Change, words: str) -> None:
    value = anthropic_value()
    assert anthropic_faults(ANTHROPIC_HEADERS, json.dumps(value).encode(), "k") == []
    change(value)
    (fault,) = anthropic_faults(ANTHROPIC_HEADERS, json.dumps(value).encode(), "k")
    assert words in fault


@pytest.mark.parametrize(("change", "words"), OPENAI_CHANGES, ids=ids(OPENAI_CHANGES))
def test_a_chat_completions_request_with_this_is_refused(change: Change, words: str) -> None:
    value = openai_value()
    assert openai_faults(OPENAI_HEADERS, json.dumps(value).encode(), "k") == []
    change(value)
    (fault,) = openai_faults(OPENAI_HEADERS, json.dumps(value).encode(), "k")
    assert words in fault


@pytest.mark.parametrize("name", ["anthropic-version", "x-api-key", "content-type"])
def test_a_messages_request_without_a_header_is_refused(name: str) -> None:
    headers = {key: value for key, value in ANTHROPIC_HEADERS.items() if key != name}
    assert len(anthropic_faults(headers, json.dumps(anthropic_value()).encode(), "k")) == 1


@pytest.mark.parametrize("name", ["authorization", "content-type"])
def test_a_chat_completions_request_without_a_header_is_refused(name: str) -> None:
    headers = {key: value for key, value in OPENAI_HEADERS.items() if key != name}
    assert len(openai_faults(headers, json.dumps(openai_value()).encode(), "k")) == 1


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_a_conversation_may_grow_and_be_asked_again_but_never_change(dialect: Any) -> None:
    seen = Conversations()
    for end in (1, 4, 4, 6, 7):
        assert seen.faults(dialect.build(request(*ITEMS[:end]))) == []
    assert seen.faults(dialect.build(request(*ITEMS[:4]))) == ["an earlier message changed"]
    changed = [*ITEMS[:2], resulted("a", "other"), *ITEMS[3:]]
    assert seen.faults(dialect.build(request(*changed))) == ["an earlier message changed"]


@pytest.mark.parametrize("dialect", [anthropic, openai])
@pytest.mark.parametrize("last", [said("go"), resulted("a")])
def test_the_last_message_of_a_request_may_not_change_either(dialect: Any, last: Any) -> None:
    before = [] if isinstance(last, Said) else [said("go"), answered(use("a"))]
    changed = [*before, msgspec.structs.replace(last, text="other words"), answered(use("b")), resulted("b")]
    seen, siblings = Conversations(), Siblings({})
    body = dialect.build(request(*before, last))
    assert seen.faults(body) == siblings.faults("main", body) == []
    body = dialect.build(request(*changed))
    assert siblings.faults("main", body) == ["an earlier message of main changed"]
    assert seen.faults(body) == (["an earlier message changed"] if before else [])  # other first words: another one


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_even_white_space_inside_an_earlier_block_is_a_change(dialect: Any) -> None:
    seen = Conversations()
    assert seen.faults(dialect.build(request(*ITEMS))) == []
    spaced = [ITEMS[0], answered(use("a", '{"command": "ls"}'), use("b")), *ITEMS[2:]]
    assert seen.faults(dialect.build(request(*spaced))) == ["an earlier message changed"]


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_a_text_that_joins_before_an_answer_came_is_no_change(dialect: Any) -> None:
    seen = Conversations()
    assert seen.faults(dialect.build(request(*ITEMS))) == []
    assert seen.faults(dialect.build(request(*ITEMS, said("and this")))) == []


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_agents_with_the_same_first_words_are_branches(dialect: Any) -> None:
    one, other = [*ITEMS[:4]], [ITEMS[0], answered(use("z")), resulted("z")]
    for branches, faults in ((True, []), (False, ["an earlier message changed"])):
        seen = Conversations(branches)
        assert seen.faults(dialect.build(request(ITEMS[0]))) == []
        assert seen.faults(dialect.build(request(*one))) == []
        assert seen.faults(dialect.build(request(*other))) == faults


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_what_leaks_from_a_sibling_is_found_and_what_is_delivered_is_none(dialect: Any) -> None:
    seen = Siblings({"OPAL": ("main.1",), "JADE": ("main.1", "main")})
    for agent in ("main.1", "main.2", "main"):
        assert seen.faults(agent, dialect.build(request(said("go")))) == []
    assert seen.faults("main.1", dialect.build(request(said("go"), answered(use("a")), resulted("a", "OPAL")))) == []
    assert seen.faults("main", dialect.build(request(said("go"), answered(use("b")), resulted("b", "JADE")))) == []
    (leak,) = seen.faults("main.2", dialect.build(request(said("go"), answered(use("c")), resulted("c", "an OPAL"))))
    assert leak == "a request of main.2 holds OPAL, which is of main.1"
    (aside,) = seen.faults("main", dialect.build(request(said("Sum up: OPAL"))), aside=True)
    assert "main holds OPAL" in aside


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_each_agent_goes_on_from_its_own_last_request_or_from_a_compaction(dialect: Any) -> None:
    seen = Siblings({})
    grown = [said("go"), answered(use("a")), resulted("a")]
    for agent in ("main.1", "main.2"):
        assert seen.faults(agent, dialect.build(request(*grown))) == []
    assert seen.faults("main.1", dialect.build(request(said("a summary"))), compacted=True) == []
    assert seen.faults("main.2", dialect.build(request(said("a summary")))) == ["an earlier message of main.2 changed"]
    assert seen.faults("main.1", dialect.build(request(said("a summary"), answered(use("b")), resulted("b")))) == []


@pytest.mark.parametrize("dialect", [anthropic, openai])
def test_the_step_of_a_script_is_known_also_where_the_first_ones_were_left_out(dialect: Any) -> None:
    def steps(*items: TranscriptItem) -> int:
        return steps_answered(json.loads(dialect.build(request(*items)))["messages"])

    last = [answered(use("use_6_0"), use("use_6_1")), resulted("use_6_0"), resulted("use_6_1")]
    assert steps(said("go")) == 0
    assert steps(said("a summary"), *last) == 7
    assert steps(said("go"), answered(use("a")), resulted("a")) == 1


def test_marks_are_where_the_docstring_says() -> None:
    body = anthropic.build(request(*ITEMS))
    units = units_of(body)
    assert [units[mark - 1].partition(b" ")[0] for mark in marked_units(body)[1:]] == [b"user", b"user"]
    assert marked_units(body) == [1, 6, 9]
    assert len(units) == 9


def test_a_client_that_dies_while_it_sends_has_made_no_request() -> None:
    with AnthropicServer([Step(text="Yes.")]) as server:
        host, port = server.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b'POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model"')
        assert server.wait_for_disconnects(1)
    assert (server.requests, server.violations) == ([], [])
