"""Strict validators of model requests: what the providers refuse, and what a careful client never does.

Written against the published rules, with the standard JSON parser and none of the builders' code. `anthropic_faults`
and `openai_faults` return what is wrong with one request; `Conversations` holds each request against the one before,
and `Siblings` the requests of many agents of one session against each other.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

import msgspec

MARKS_MAX: Final = 4
"""Cache marks that one request may hold."""

VERSIONS: Final = ("2023-06-01", "2026-10-21")
"""The published values of `anthropic-version`."""

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STEP: Final = re.compile(r"use_([0-9]+)_[0-9]+")
_MARK: Final = {"type": "ephemeral"}
_MARK_TEXT: Final = re.compile(rb'(,\s*)?"cache_control":\s*\{"type":\s*"ephemeral"\}')


class Fault(Exception):
    """Something that a strict server refuses; the text says what and where."""


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body: UTF-8, no repeated key, no NaN, no lone surrogate. Raises Fault."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Fault(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Fault("the body is no JSON object")
    _check_text(value)
    return value


def anthropic_faults(headers: Mapping[str, str], body: bytes, api_key: str) -> list[str]:
    """What is wrong with a Messages request ([] if nothing). `headers` has lower-case names."""
    try:
        _need(headers.get("anthropic-version") in VERSIONS, "no anthropic-version")
        _need(headers.get("x-api-key", headers.get("authorization")) in (api_key, f"Bearer {api_key}"), "wrong key")
        _need(headers.get("content-type") == "application/json", "wrong content-type")
        value = parsed(body)
        known = {"model", "max_tokens", "system", "tools", "messages", "stream"}
        _need(value.keys() <= known, f"unknown fields {value.keys() - known}")
        _need(isinstance(value.get("model"), str) and value["model"].strip() != "", "no model")
        _need(type(value.get("max_tokens")) is int and value["max_tokens"] > 0, "no max_tokens")
        _need(value.get("stream") is True, "stream is not true")
        _blocks(value.get("system", [{"type": "text", "text": "x"}]), "system", {"text"})
        _tools([tool | {"schema": tool.get("input_schema")} for tool in value.get("tools", [])])
        _anthropic_messages(value.get("messages"))
        marks = _marks(value)
        _need(len(marks) <= MARKS_MAX, f"{len(marks)} cache marks")
        _need(all(mark == _MARK for mark in marks), "a cache mark of another kind")
    except Fault as fault:
        return [str(fault)]
    return []


def openai_faults(headers: Mapping[str, str], body: bytes, api_key: str) -> list[str]:
    """What is wrong with a Chat Completions request ([] if nothing)."""
    try:
        if api_key:
            _need(headers.get("authorization") == f"Bearer {api_key}", "wrong authorization")
        _need(headers.get("content-type") == "application/json", "wrong content-type")
        value = parsed(body)
        known = {"model", "messages", "tools", "max_tokens", "max_completion_tokens", "stream", "stream_options"}
        _need(value.keys() <= known, f"unknown fields {value.keys() - known}")
        _need(isinstance(value.get("model"), str) and value["model"].strip() != "", "no model")
        limits = [value[key] for key in ("max_tokens", "max_completion_tokens") if key in value]
        _need(len(limits) == 1 and type(limits[0]) is int and limits[0] > 0, "not one limit on the output")
        _need(value.get("stream") is True, "stream is not true")
        _need(value.get("stream_options") == {"include_usage": True}, "no usage asked for")
        tools = value.get("tools", [])
        _need(all(tool.get("type") == "function" for tool in tools), "a tool that is no function")
        functions = [tool["function"] for tool in tools]
        _tools([function | {"schema": function.get("parameters")} for function in functions])
        _openai_messages(value.get("messages"))
    except Fault as fault:
        return [str(fault)]
    return []


class Conversations:
    """Holds each request against the one before it in the same conversation: what was sent once never changes.

    A conversation is known by system prompt and first message. With `branches` a request may go on from any earlier
    one (agents that start with the same words), else it goes on from the last.
    """

    def __init__(self, branches: bool = False) -> None:
        self._branches = branches
        self._seen: dict[bytes, list[list[bytes]]] = {}

    def faults(self, body: bytes) -> list[str]:
        """What changed ([] if nothing). The last user text may have grown, as when a failed request is asked again
        after a steer."""
        units = units_of(body)
        first = next((at for at, unit in enumerate(units) if unit.startswith((b"user ", b'{"role":"user"'))), 0)
        seen = self._seen.setdefault(b"\n".join(units[: first + 1]), [])
        candidates = seen if self._branches else seen[-1:]
        bad = bool(candidates) and not any(_extends(before, units) for before in candidates)
        seen.append(units)
        return ["an earlier message changed"] if bad else []


class Siblings:
    """Holds the requests of many agents of one session against each other, told in the order of their intents.

    What an agent was sent once never changes, but where its context was compacted. `words` gives, for each word that
    only some agents say or are told, which these are: found in the request of another agent it leaked there.
    """

    def __init__(self, words: Mapping[str, Collection[str]]) -> None:
        self._words = [(word.encode(), frozenset(agents)) for word, agents in words.items()]
        self._last: dict[str, list[bytes]] = {}

    def faults(self, agent: str, body: bytes, *, compacted: bool = False, aside: bool = False) -> list[str]:
        """What is wrong with the agent's next request ([] if nothing). `compacted`: its context was, since its last
        one. `aside`: it is no part of its conversation, such as one for a summary."""
        found = [
            f"a request of {agent} holds {word.decode()}, which is of {', '.join(sorted(agents))}"
            for word, agents in self._words
            if agent not in agents and word in body
        ]
        if aside:
            return found
        units = units_of(body)
        before = self._last.get(agent)
        if before is not None and not compacted and not _extends(before, units):
            found.append(f"an earlier message of {agent} changed")
        self._last[agent] = units
        return found


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    system: msgspec.Raw = msgspec.Raw(b"")


def units_of(body: bytes) -> list[bytes]:
    """The system prompt, then each message or content block, as the exact bytes sent, without cache marks."""
    whole = msgspec.json.decode(body, type=_Body)
    units = [_unmarked(bytes(whole.system))]
    for raw in whole.messages:
        message = msgspec.json.decode(raw, type=_Message)
        content = bytes(message.content)
        if content.startswith(b"[") and b'"role":"tool"' not in bytes(raw):
            for block in msgspec.json.decode(content, type=list[msgspec.Raw]):
                units.append(message.role.encode() + b" " + _unmarked(bytes(block)))
        else:
            units.append(bytes(raw))
    return units


def steps_answered(messages: list[dict[str, Any]]) -> int:
    """How many steps of a script the answers in a request are, also where the first of them were left out: the ids of
    a script's tool uses tell their step. A conversation without such ids is taken to be whole."""
    after = 0
    for message in reversed(messages):
        if message["role"] != "assistant":
            continue
        content = message.get("content")
        uses = [*(content if isinstance(content, list) else []), *(message.get("tool_calls") or [])]
        steps = [_STEP.fullmatch(str(use.get("id", ""))) for use in uses]
        numbers = [int(step[1]) for step in steps if step is not None]
        if numbers:
            return max(numbers) + 1 + after
        after += 1
    return after


def marked_units(body: bytes) -> list[int]:
    """How many of `units_of(body)` lie before and at each cache mark on system and messages."""
    whole = msgspec.json.decode(body, type=_Body)
    found = [1] if b'"cache_control"' in bytes(whole.system) else []
    count = 1
    for raw in whole.messages:
        content = bytes(msgspec.json.decode(raw, type=_Message).content)
        if not content.startswith(b"["):
            count += 1
            continue
        for block in msgspec.json.decode(content, type=list[msgspec.Raw]):
            count += 1
            fields = msgspec.json.decode(block, type=dict[str, msgspec.Raw])
            if "cache_control" in fields:
                found.append(count)
    return found


def _unmarked(block: bytes) -> bytes:
    return _MARK_TEXT.sub(b"", block)


def _extends(before: list[bytes], units: list[bytes]) -> bool:
    if len(units) < len(before) or units[: len(before) - 1] != before[:-1]:
        return False
    old, new = before[-1], units[len(before) - 1]
    grown = old.startswith(b'{"role":"user"') and new.startswith(old.removesuffix(b'"}'))
    return old == new or grown


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Fault(otherwise)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _check_text(value: object) -> None:
    if isinstance(value, str):
        _need(not any("\ud800" <= char <= "\udfff" for char in value), "a lone surrogate")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)


def _marks(value: object) -> list[object]:
    if isinstance(value, list):
        return [mark for item in value for mark in _marks(item)]
    if not isinstance(value, dict):
        return []
    inside = [mark for key, item in value.items() if key not in ("input", "input_schema") for mark in _marks(item)]
    return inside + ([value["cache_control"]] if "cache_control" in value else [])


def _tools(tools: list[dict[str, Any]]) -> None:
    names = [tool.get("name") for tool in tools]
    _need(len(set(names)) == len(names), "two tools of one name")
    for tool in tools:
        _need(isinstance(tool.get("name"), str) and bool(_NAME.fullmatch(tool["name"])), "a bad tool name")
        _need(isinstance(tool.get("description"), str), "a tool without description")
        _need(isinstance(tool.get("schema"), dict), "a tool without schema")


def _blocks(content: object, where: str, types: set[str] | None) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    _need(isinstance(content, list) and len(content) > 0, f"{where} is empty")
    assert isinstance(content, list)
    for block in content:
        _need(isinstance(block, dict) and isinstance(block.get("type"), str), f"{where}: a block without type")
        _need(types is None or block["type"] in types, f"{where}: a block of type {block['type']}")
        if block["type"] == "text":
            _need(isinstance(block.get("text"), str) and block["text"].strip() != "", f"{where}: a blank text")
    return content


def _anthropic_messages(messages: object) -> None:
    _need(isinstance(messages, list) and len(messages) > 0, "no messages")
    assert isinstance(messages, list)
    ids: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role = "assistant" if index % 2 else "user"
        _need(message.keys() == {"role", "content"}, f"message {index}: fields {sorted(message)}")
        _need(message["role"] == role, f"message {index} is of {message['role']}, not {role}")
        if role == "user":
            _user_blocks(_blocks(message["content"], f"message {index}", {"text", "tool_result"}), waiting, index)
        else:
            waiting = _assistant_blocks(_blocks(message["content"], f"message {index}", None), ids, index)
    _need(len(messages) % 2 == 1, "the last message is the assistant's")


def _user_blocks(blocks: list[dict[str, Any]], waiting: list[str], index: int) -> None:
    results = [block for block in blocks if block["type"] == "tool_result"]
    _need(blocks[: len(results)] == results, f"message {index}: text before a tool result")
    answered = [block.get("tool_use_id") for block in results]
    _need(answered == waiting, f"message {index}: tool uses {waiting}, results {answered}")
    for block in results:
        _need(block.keys() <= {"type", "tool_use_id", "content", "is_error", "cache_control"}, "a field too many")
        _need(isinstance(block.get("content"), str) and block["content"].strip() != "", "an empty tool result")


def _assistant_blocks(blocks: list[dict[str, Any]], ids: set[str], index: int) -> list[str]:
    uses: list[str] = []
    _need("thinking" not in blocks[-1]["type"], f"message {index} ends in thinking")
    for block in blocks:
        if block["type"] == "thinking":
            _need(isinstance(block.get("signature"), str), f"message {index}: thinking without signature")
            _need("cache_control" not in block, f"message {index}: a cache mark on thinking")
        if block["type"] == "tool_use":
            _need(isinstance(block.get("id"), str) and bool(_ID.fullmatch(block["id"])), "a bad tool use id")
            _need(block["id"] not in ids, f"the tool use id {block['id']} stands twice")
            _need(isinstance(block.get("name"), str) and bool(_NAME.fullmatch(block["name"])), "a bad tool name")
            _need(isinstance(block.get("input"), dict), "the input of a tool use is no object")
            ids.add(block["id"])
            uses.append(block["id"])
    return uses


def _openai_messages(messages: object) -> None:
    _need(isinstance(messages, list) and len(messages) > 0, "no messages")
    assert isinstance(messages, list)
    roles = [message.get("role") for message in messages]
    body = messages[1:] if roles[0] == "system" else messages
    _need(bool(body) and body[0].get("role") == "user", "the first message is not the user's")
    _need(body[-1].get("role") in ("user", "tool"), "the last message is the assistant's")
    ids: set[str] = set()
    waiting: set[str] = set()
    before = ""
    for index, message in enumerate(messages):
        role = message.get("role")
        _need(role in ("system", "user", "assistant", "tool"), f"message {index}: role {role}")
        _need(role == "tool" or not waiting, f"message {index}: no results for {sorted(waiting)}")
        _need(role != "system" or index == 0, f"message {index}: a system message inside")
        _need(role == "tool" or role != before, f"message {index}: {role} twice")
        if role == "assistant":
            waiting = _calls(message, ids, index)
        elif role == "tool":
            _need(message.keys() == {"role", "tool_call_id", "content"}, f"message {index}: fields {sorted(message)}")
            _need(message["tool_call_id"] in waiting, f"message {index}: an orphan result {message['tool_call_id']}")
            waiting.remove(message["tool_call_id"])
        else:
            _need(message.keys() == {"role", "content"}, f"message {index}: fields {sorted(message)}")
        if role != "assistant":
            content = message["content"]
            _need(isinstance(content, str) and content.strip() != "", f"message {index}: no text")
        before = role
    _need(not waiting, f"no results for {sorted(waiting)}")


def _calls(message: dict[str, Any], ids: set[str], index: int) -> set[str]:
    calls = message.get("tool_calls")
    content = message.get("content")
    _need(calls is None or (isinstance(calls, list) and len(calls) > 0), f"message {index}: no tool calls in the list")
    _need(isinstance(content, str) or bool(calls), f"message {index} says nothing")
    _need(content is None or content.strip() != "", f"message {index}: blank text")
    found: set[str] = set()
    for call in calls or []:
        function = call.get("function")
        _need(call.get("type") == "function" and isinstance(function, dict), f"message {index}: no function")
        _need(isinstance(call.get("id"), str) and call["id"] != "", f"message {index}: a call without id")
        _need(call["id"] not in ids, f"the call id {call['id']} stands twice")
        _need(isinstance(function.get("name"), str) and bool(_NAME.fullmatch(function["name"])), "a bad tool name")
        _need(isinstance(function.get("arguments"), str), "arguments that are no string")
        parsed(function["arguments"].encode())
        ids.add(call["id"])
        found.add(call["id"])
    return found
