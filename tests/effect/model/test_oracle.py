"""The vendors' own libraries as a second opinion: they read our servers' streams, and write the same requests.

Named differences between their bodies and ours, for the same conversation:
anthropic: cache marks are ours only; a prompt is a string there and a list of one text block here; a response's
blocks carry members that are null there (`citations`, `caller`) and are left out here.
openai: a message's members that are null there (`refusal`, `content` beside calls) are left out or null here.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from muse.effect.model import anthropic as our_anthropic
from muse.effect.model import openai as our_openai
from muse.effect.model.scripted import Step
from muse.effect.model.wire import Endpoint, make_model
from muse.effect.protocol import ModelAnswer
from muse.event.conversation import TranscriptItem
from muse.testing.wire import AnthropicServer, OpenAIServer, Received, Trouble
from tests.effect.model.samples import READ, SHELL, answered, ask, request, resulted, said

STEPS = [
    Step(
        text='I look 👀 first.\nThen I act: \u2028 \\ " é',
        reasoning="What is there?",
        uses=(("shell", {"command": "ls -l 'a b'", "n": 3, "deep": {"x": [None, True, "é😀"]}}), ("read", {})),
    ),
    Step(uses=(("shell", {"command": "make"}),)),
    Step(text="Done."),
]
PROMPT, RESULTS = "Fix it 🐛", ["a\nb", "none", "ok"]
TROUBLES = [
    None,
    Trouble("bytes"),
    Trouble("crlf"),
    Trouble("gzip"),
    Trouble("slow", delay_ms=1),
    Trouble("content_type"),
]


def troubled(trouble: Trouble | None) -> dict[int, list[Trouble]]:
    return {step: [trouble] for step in range(len(STEPS))} if trouble else {}


def without(value: Any, *keys: str) -> Any:
    """The value without these members, and without any that are null."""
    if isinstance(value, list):
        return [without(item, *keys) for item in value]
    if isinstance(value, dict):
        return {
            key: without(item, *keys)
            for key, item in value.items()
            if key not in keys and (item is not None or key == "deep")
        }
    return value


def our_run(server: AnthropicServer | OpenAIServer, dialect: str) -> tuple[list[ModelAnswer], list[Received]]:
    """The whole conversation, driven with our builder, wire and decoder."""
    module = our_anthropic if dialect == "anthropic" else our_openai
    model = make_model(Endpoint(name="x", dialect=dialect, base_url=server.base_url, api_key=server.api_key))
    items: list[TranscriptItem] = [said(PROMPT)]
    results: Iterator[str] = iter(RESULTS)
    answers: list[ModelAnswer] = []
    for seq in range(len(STEPS)):
        outcome = ask(model, module.build(request(*items)))[1]
        assert isinstance(outcome, ModelAnswer), outcome
        answers.append(outcome)
        items.append(answered(*outcome.blocks, seq=10 * seq + 2))
        uses = [block.id for block in outcome.blocks if block.kind == "tool_use"]
        items.extend(resulted(id, next(results)) for id in uses)
    assert server.violations == []
    return answers, server.requests


@pytest.mark.parametrize("trouble", TROUBLES)
def test_anthropics_library_reads_our_streams_and_sends_our_bodies(trouble: Trouble | None) -> None:
    import anthropic

    with AnthropicServer(STEPS, troubled(trouble)) as server:
        ours, requests = our_run(server, "anthropic")
    with AnthropicServer(STEPS, troubled(trouble)) as server:
        client = anthropic.Anthropic(api_key=server.api_key, base_url=server.base_url, max_retries=0)
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        tools: list[Any] = [
            {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.schema)}
            for tool in (SHELL, READ)
        ]
        results = iter(RESULTS)
        for answer in ours:
            with client.messages.stream(
                model="test-1", max_tokens=1000, system="Be brief.", tools=tools, messages=messages
            ) as stream:
                theirs = stream.get_final_message()
            assert without(theirs.to_dict()["content"]) == [json.loads(text) for text in as_sent(answer)]
            assert (theirs.id, theirs.model, theirs.stop_reason) == (answer.response_id, answer.model, answer.stop_raw)
            assert theirs.usage.output_tokens == answer.usage.output
            messages.append({"role": "assistant", "content": theirs.content})
            uses = [block.id for block in theirs.content if block.type == "tool_use"]
            told = [{"type": "tool_result", "tool_use_id": id, "content": next(results)} for id in uses]
            messages.append({"role": "user", "content": told})
        client.close()
        assert server.violations == []
        for our, their in zip(requests, server.requests, strict=True):
            our_body, their_body = without(json.loads(our.body), "cache_control"), without(json.loads(their.body))
            assert our_body["messages"][0]["content"] == [{"type": "text", "text": PROMPT}]
            our_body["messages"][0]["content"] = PROMPT
            assert our_body["system"] == [{"type": "text", "text": their_body["system"]}]
            our_body["system"] = their_body["system"]
            assert our_body == their_body


def as_sent(answer: ModelAnswer) -> list[str]:
    """The blocks of a response as our builder sends them back."""
    items = [resulted(block.id) for block in answer.blocks if block.kind == "tool_use"]
    body = json.loads(our_anthropic.build(request(said("x"), answered(*answer.blocks), *items)))
    return [json.dumps(without(block)) for block in body["messages"][1]["content"]]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_openais_library_reads_our_streams_and_sends_our_bodies(trouble: Trouble | None) -> None:
    import openai

    with OpenAIServer(STEPS, troubled(trouble)) as server:
        ours, requests = our_run(server, "openai")
    with OpenAIServer(STEPS, troubled(trouble)) as server:
        client = openai.OpenAI(api_key=server.api_key, base_url=f"{server.base_url}/v1", max_retries=0)
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
        tools: list[Any] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name, "description": tool.description, "parameters": json.loads(tool.schema),
                },
            }
            for tool in (SHELL, READ)
        ]  # fmt: skip
        results = iter(RESULTS)
        for answer in ours:
            with client.chat.completions.stream(
                model="test-1", max_tokens=1000, tools=tools, messages=messages, stream_options={"include_usage": True}
            ) as stream:
                theirs = stream.get_final_completion()
            message = theirs.choices[0].message
            calls = [
                (call.id, call.function.name, call.function.arguments)
                for call in message.tool_calls or []
                if call.type == "function"
            ]
            assert calls == [(b.id, b.name, b.args) for b in answer.blocks if b.kind == "tool_use"]
            assert (message.content or "") == "".join(b.text for b in answer.blocks if b.kind == "text")
            assert (theirs.id, theirs.model, theirs.choices[0].finish_reason) == (
                answer.response_id, answer.model, answer.stop_raw,
            )  # fmt: skip
            assert theirs.usage is not None
            assert theirs.usage.completion_tokens == answer.usage.output
            messages.append(their_message(message))
            messages.extend({"role": "tool", "tool_call_id": id, "content": next(results)} for id, _, _ in calls)
        client.close()
        assert server.violations == []
        for our, their in zip(requests, server.requests, strict=True):
            assert without(json.loads(our.body)) == without(json.loads(their.body))


def their_message(message: Any) -> dict[str, Any]:
    """The library's message as its documentation sends it back, without what the request format does not have."""
    fields = message.to_dict()
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {key: call["function"][key] for key in ("name", "arguments")},
        }
        for call in fields.get("tool_calls") or []
    ]
    kept = {key: fields[key] for key in ("role", "reasoning_content") if fields.get(key)}
    return kept | {"content": fields.get("content") or None} | ({"tool_calls": calls} if calls else {})
