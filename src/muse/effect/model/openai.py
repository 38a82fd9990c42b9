"""The OpenAI Chat Completions dialect, as spoken by OpenAI, OpenRouter, ollama, llama.cpp, vLLM and many others.

What goes back. Text and tool calls, in one assistant message a turn. Of reasoning: `reasoning_details` always (the
servers that send it want it back unchanged); `reasoning_content` or `reasoning` only in messages with tool calls,
where servers need it to go on, and not in final answers, where some refuse it. That depends on the message alone, so
an earlier message never changes and prefix caches stay warm. Fields that are not known here go back as they came,
except those in NEVER_SENT. Arguments that are no JSON object are replaced as in `jsontext.sendable_arguments`.

The limit on output is `max_completion_tokens` for OpenAI's own reasoning models, by name (`o1`, `o3`, `gpt-5` and
later, with or without `openai/` before it), which refuse the other; `max_tokens` for every other model, which every
compatible server knows. This module must not know how bytes travel.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from muse.effect.model.failure import by_error, excerpt, no_stream
from muse.effect.model.pieces import Garbage, Pieces, count_of, is_json, json_object, object_of, text_of
from muse.effect.model.sse import Event, EventParser
from muse.effect.model.turns import EMPTY_TEXT, TURNS_REMEMBERED, AssistantTurn, Use, UserTurn, distinct, turns
from muse.effect.protocol import ModelAnswer, ModelFailure, Stop
from muse.event.content import Block, ToolSpec, Usage
from muse.event.conversation import ModelRequest
from muse.event.jsontext import (
    array,
    compose,
    elements,
    members,
    quote,
    sendable,
    sendable_arguments,
    sendable_object,
    strict_object,
)
from muse.event.text import clean

BUILDER: Final = "openai/1"

CALLS_MAX: Final = 1000
"""Tool calls of one response."""

NEVER_SENT: Final = frozenset({"role", "content", "tool_calls", "function_call", "annotations", "audio", "images"})
"""Message fields that a server sends and does not take back."""

_CALL_FIELDS: Final = ("index", "id", "type", "function")
_THOUGHTS: Final = ("reasoning_content", "reasoning")
_id_form: Final = re.compile(r"[!-~]+")
_name_part: Final = re.compile(r"[^a-zA-Z0-9_-]")
_reasoning_model: Final = re.compile(r"(openai/)?(o\d|gpt-([5-9]|\d\d)|codex)")
_STOPS: Final[dict[str, Stop]] = {
    "stop": "end_turn", "eos": "end_turn", "tool_calls": "tool_use", "function_call": "tool_use",
    "length": "max_tokens", "content_filter": "refusal",
}  # fmt: skip


def url(base_url: str) -> str:
    """The address to post to. `base_url` may be the whole address, or end before `/chat/completions`; an address
    without any path gets `/v1`."""
    base = base_url.rstrip("/")
    if base.endswith("/chat/completions"):
        return base
    return f"{base}/chat/completions" if urlsplit(base).path else f"{base}/v1/chat/completions"


def headers(api_key: str) -> dict[str, str]:
    """The headers of the dialect beside the ones of every JSON request."""
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


def build(request: ModelRequest) -> bytes:
    """The exact bytes of the POST body. Pure: equal requests give equal bytes."""
    limit = "max_completion_tokens" if _reasoning_model.match(request.model) else "max_tokens"
    fields = {"model": quote(request.model), "messages": array(_messages(request))}
    if request.tools:
        fields["tools"] = array([_tool(spec) for spec in request.tools])
    fields[limit] = str(request.output_tokens_max)
    fields["stream"] = "true"
    fields["stream_options"] = '{"include_usage":true}'
    return compose(fields).encode()


def _tool(spec: ToolSpec) -> str:
    schema = sendable_object(spec.schema) or '{"type":"object"}'
    function = {"name": quote(spec.name), "description": quote(spec.description), "parameters": schema}
    return compose({"type": '"function"', "function": compose(function)})


def _messages(request: ModelRequest) -> list[str]:
    found: list[str] = []
    said: list[str] = []
    for turn in turns(request.items, _id_form):
        if isinstance(turn, UserTurn):
            found.extend(_results(turn))
            said.extend(turn.texts)
        elif message := _assistant(turn):
            found.extend(_said(said if found or said else [EMPTY_TEXT]))
            found.append(message)
    found.extend(_said(said if found or said else [EMPTY_TEXT]))
    return ([_message("system", request.system)] if request.system.strip() else []) + found


def _said(texts: list[str]) -> list[str]:
    """One user message of the texts so far, which are taken away."""
    message = [_message("user", "\n\n".join(texts))] if texts else []
    texts.clear()
    return message


def _message(role: str, text: str) -> str:
    return compose({"role": quote(role), "content": quote(text)})


@lru_cache(maxsize=TURNS_REMEMBERED)
def _results(turn: UserTurn) -> tuple[str, ...]:
    return tuple(_result(sent_id, result.text) for sent_id, result in turn.results)


def _result(sent_id: str, text: str) -> str:
    content = quote(text if text.strip() else EMPTY_TEXT)
    return compose({"role": '"tool"', "tool_call_id": quote(sent_id), "content": content})


@lru_cache(maxsize=TURNS_REMEMBERED)
def _assistant(turn: AssistantTurn) -> str:
    """The assistant message of a turn; "" if it holds nothing to send."""
    texts = [use.block.text for use in turn.uses if use.block.kind == "text" and use.block.text.strip()]
    calls = [_call(use) for use in turn.uses if use.block.kind == "tool_use"]
    if not texts and not calls:
        return ""
    fields = {"role": '"assistant"', "content": quote("\n\n".join(texts)) if texts else "null"}
    fields.update(_kept_fields(turn, with_thoughts=bool(calls)))
    if calls:
        fields["tool_calls"] = array(calls)
    return compose(fields)


def _kept_fields(turn: AssistantTurn, with_thoughts: bool) -> dict[str, str]:
    """The message fields that earlier responses had beside text and calls, as far as they are sent back."""
    kept: dict[str, str] = {}
    for use in turn.uses:
        raw = sendable_object(use.block.raw) if use.block.raw and use.block.kind in ("reasoning", "other") else None
        if raw and "type" not in (fields := members(raw)):
            kept.update({key: value for key, value in fields.items() if key not in NEVER_SENT})
    detailed = "reasoning_details" in kept
    return {key: value for key, value in kept.items() if key not in _THOUGHTS or (with_thoughts and not detailed)}


def _call(use: Use) -> str:
    block, extra = use.block, {}
    if block.raw and (raw := sendable(block.raw)) and raw.type == "function":
        if raw.id == use.sent_id:
            return raw.text
        extra = {key: value for key, value in members(raw.text).items() if key not in _CALL_FIELDS}
    return _call_text(use.sent_id, block.name, block.args, extra)


def _call_text(id: str, name: str, arguments: str, extra: dict[str, str]) -> str:
    name = _name_part.sub("_", name)[:64] or "unnamed"
    function = compose({"name": quote(name), "arguments": quote(sendable_arguments(arguments))})
    return compose({"id": quote(id), "type": '"function"', "function": function} | extra)


class Decoder:
    """Decodes one response stream: chunks with deltas of one message, then usage, then `[DONE]`.

    Whole once a `finish_reason` or `[DONE]` was seen; a stream that ends before is cut. Only the first choice counts.
    A server that ignores `stream` and answers with one JSON object is understood as well.
    """

    def __init__(self) -> None:
        self._parser = EventParser()
        self._text = Pieces()
        self._refusal = Pieces()
        self._fields: dict[str, _Field] = {}
        self._calls = _Calls()
        self._usage: dict[str, object] = {}
        self._model = ""
        self._id = ""
        self._stop = ""
        self._done = False
        self._failure: ModelFailure | None = None

    def feed(self, data: bytes) -> list[str]:
        """Take bytes, cut anywhere; return the visible text they completed."""
        shown: list[str] = []
        for event in self._parser.feed(data):
            self._take(event, shown)
        return [piece for piece in shown if piece]

    def done(self) -> bool:
        """Whether `[DONE]` or an error was seen: nothing more is awaited."""
        return self._done or self._failure is not None

    def finish(self) -> ModelAnswer | ModelFailure:
        """The answer, or why there is none."""
        for event in self._parser.finish():
            if is_json(event.data) or event.data.strip() == b"[DONE]":
                self._take(event, [])
        if not self._parser.seen and is_json(bytes(self._parser.head)):
            self._take(Event("", bytes(self._parser.head)), [])
        blocks = self._blocks()
        failure = self._failure or self._unfinished(blocks)
        if failure:
            return msgspec.structs.replace(failure, partial=self._text.text(), usage=_usage_of(self._usage))
        return ModelAnswer(
            blocks=blocks, usage=_usage_of(self._usage), stop=self._stop_of(blocks), stop_raw=self._stop,
            model=self._model, response_id=self._id,
        )  # fmt: skip

    def _stop_of(self, blocks: tuple[Block, ...]) -> Stop:
        stop: Stop = _STOPS.get(self._stop, "other")
        if self._refusal:
            return "refusal"
        if any(block.kind == "tool_use" for block in blocks) and stop in ("end_turn", "other"):
            return "tool_use"
        return stop

    def _unfinished(self, blocks: tuple[Block, ...]) -> ModelFailure | None:
        if self._stop:
            return None
        if not self._parser.seen and not self._parser.torn():
            return no_stream(bytes(self._parser.head))
        if not self._done:
            return ModelFailure(failure="cut", message="the response ended before it was whole")
        return None if blocks else ModelFailure(failure="garbage", message="the response holds nothing")

    def _blocks(self) -> tuple[Block, ...]:
        blocks = [
            Block(kind="reasoning" if key.startswith("reasoning") else "other", text=field.shown(), raw=field.raw(key))
            for key, field in self._fields.items()
        ]
        if self._text:
            blocks.append(Block(kind="text", text=self._text.text()))
        if self._refusal:
            blocks.append(Block(kind="text", text=self._refusal.text()))
        return distinct(blocks + self._calls.blocks(), self._id)

    def _take(self, event: Event, shown: list[str]) -> None:
        if self._failure or self._done:
            return
        if event.data.strip() == b"[DONE]":
            self._done = True
            return
        try:
            self._chunk(event.data, shown)
        except Garbage as garbage:
            self._failure = ModelFailure(failure="garbage", message=f"{garbage}: {excerpt(event.data)[:200]}")

    def _chunk(self, data: bytes, shown: list[str]) -> None:
        chunk = json_object(data)
        if chunk.get("error"):
            self._failure = by_error(chunk["error"])
            return
        self._id = self._id or text_of(chunk.get("id"))
        self._model = self._model or text_of(chunk.get("model"))
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage.update(usage)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise Garbage("the choices are no list of objects")
        for index, choice in enumerate(choices):
            if choice.get("index", 0) in (0, None):
                self._choice(choice, _delta_text(data, index), shown)

    def _choice(self, choice: dict[str, object], delta: dict[str, str], shown: list[str]) -> None:
        if choice.get("error"):
            self._failure = by_error(choice["error"])
            return
        for key, value in delta.items():
            if value != "null":
                self._field(key, value, shown)
        self._stop = text_of(choice.get("finish_reason")) or self._stop
        if self._stop == "error":
            self._failure = ModelFailure(failure="server", message="the provider stopped with an error")

    def _field(self, key: str, value: str, shown: list[str]) -> None:
        match key:
            case "role":
                pass
            case "content":
                shown.append(self._text.add(_content(json.loads(value))))
            case "refusal":
                shown.append(self._refusal.add(text_of(json.loads(value))))
            case "tool_calls":
                for call in _elements(value):
                    self._calls.add(call)
            case _:
                self._fields.setdefault(key, _Field()).add(value)


class _Field:
    """A message field that is not understood further: strings grow, lists grow, anything else is replaced."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._items: list[dict[str, str] | str] = []
        self._other = ""

    def add(self, value: str) -> None:
        """Takes the JSON text of what one delta says."""
        if value.startswith('"'):
            self._pieces.add(json.loads(value))
        elif value.startswith("["):
            for item in _elements(value):
                self._grow(members(item) if item.startswith("{") else item)
        else:
            self._other = value

    def shown(self) -> str:
        """What a person can read of it: the string, or the texts of the list's objects."""
        if self._pieces:
            return self._pieces.text()
        texts = [item.get("text") or item.get("summary") for item in self._items if isinstance(item, dict)]
        return clean("".join(json.loads(text) for text in texts if text and text.startswith('"'))).text

    def raw(self, key: str) -> str:
        """The field as a JSON object of one member."""
        if self._pieces:
            return compose({key: quote(self._pieces.text())})
        items = [compose(item) if isinstance(item, dict) else item for item in self._items]
        return compose({key: array(items) if self._items else self._other or '""'})

    def _grow(self, item: dict[str, str] | str) -> None:
        """Objects of the same `type` and `index` are parts of one: their `text`, `summary` and `data` are joined."""
        last = self._items[-1] if self._items else None
        if not isinstance(item, dict) or not isinstance(last, dict) or not _same_part(last, item):
            self._items.append(item)
            return
        for key, value in item.items():
            before = last.get(key, "null")
            if key in ("text", "summary", "data") and value.startswith('"') and before.startswith('"'):
                last[key] = quote(json.loads(before) + json.loads(value))
            elif value != "null":
                last[key] = value


class _Call:
    """One tool call while it grows."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = Pieces()
        self.extra: dict[str, str] = {}

    def whole(self) -> bool:
        """Whether the arguments so far are a whole object."""
        return strict_object(self.arguments.text()) is not None

    def block(self) -> Block:
        """The call as it stands; with `raw` where the server sent more than is understood."""
        arguments = self.arguments.text() or "{}"
        raw = _call_text(self.id, self.name, arguments, self.extra) if self.extra else ""
        return Block(kind="tool_use", id=clean(self.id).text, name=clean(self.name).text, args=arguments, raw=raw)


class _Calls:
    """The tool calls of a response, from deltas of many habits: `index` or none, ids only in the first or in each,
    whole calls in one chunk, all with index 0, arguments as an object instead of a string."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def add(self, text: str) -> None:
        """Takes the JSON text of one element of `tool_calls`."""
        delta = json_object(text.encode())
        function = object_of(delta.get("function"))
        id, name = text_of(delta.get("id")), text_of(function.get("name"))
        arguments = _arguments(text, function.get("arguments"))
        call = self._current(delta.get("index"), id, name, arguments)
        call.id = call.id or id
        call.name = call.name or name
        call.arguments.add(arguments)
        given = members(text)
        call.extra.update({key: given[key] for key in given if key not in _CALL_FIELDS and given[key] != "null"})

    def blocks(self) -> list[Block]:
        """The calls in the order in which they began."""
        return [call.block() for call in self._calls]

    def _current(self, index: object, id: str, name: str, arguments: str) -> _Call:
        """The call that a delta belongs to, perhaps a new one."""
        known = type(index) is int
        found = self._by_index.get(index) if type(index) is int else (self._calls[-1] if self._calls else None)
        if found is None or _begins(found, id, name, arguments, known):
            if len(self._calls) >= CALLS_MAX:
                raise Garbage(f"more than {CALLS_MAX} tool calls")
            found = _Call()
            self._calls.append(found)
        if type(index) is int:
            self._by_index[index] = found
        return found


def _begins(found: _Call, id: str, name: str, arguments: str, indexed: bool) -> bool:
    """Whether a delta starts another call than the one it seems to go on with."""
    if id and found.id:
        return id != found.id
    if id and not indexed:
        return True
    return bool(name and arguments and found.name and found.whole())


def _arguments(text: str, given: object) -> str:
    """The arguments' text; of a server that sends them as an object, the exact text of that object."""
    if isinstance(given, dict):
        return members(members(text)["function"])["arguments"]
    return text_of(given)


def _delta_text(data: bytes, index: int) -> dict[str, str]:
    """The members of a choice's delta (or whole message), as exact text. Raises Garbage if it is no object."""
    choice = members(_elements(members(data.decode())["choices"])[index])
    found = choice.get("delta") or choice.get("message") or "{}"
    if found == "null":
        return {}
    if not found.startswith("{"):
        raise Garbage("a delta is no object")
    return members(found)


def _elements(text: str) -> list[str]:
    """The elements of a JSON array, each as the exact text that stands there. Raises Garbage if it is none."""
    if not text.startswith("["):
        raise Garbage("a list is none")
    return elements(text)


def _content(value: object) -> str:
    """The text of `content`: a string, or a list of parts."""
    if isinstance(value, list):
        return "".join(text_of(part.get("text")) for part in value if isinstance(part, dict))
    return text_of(value)


def _same_part(last: dict[str, str], item: dict[str, str]) -> bool:
    return "index" in item and all(last.get(key) == item.get(key) for key in ("index", "type"))


def _usage_of(given: dict[str, object]) -> Usage:
    prompt, completion = (
        details if isinstance(details := given.get(f"{side}_tokens_details"), dict) else {}
        for side in ("prompt", "completion")
    )
    cache_read = count_of(prompt.get("cached_tokens")) or count_of(given.get("prompt_cache_hit_tokens"))
    cache_write = count_of(prompt.get("cache_write_tokens"))
    return Usage(
        input=max(count_of(given.get("prompt_tokens")) - cache_read - cache_write, 0),
        output=count_of(given.get("completion_tokens")),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=count_of(completion.get("reasoning_tokens")),
        cost_microusd=_microusd(given.get("cost")),
    )


def _microusd(cost: object) -> int:
    """OpenRouter's `cost` in US dollars, as millionths."""
    try:
        amount = Decimal(str(cost)) * 1_000_000 if isinstance(cost, int | float) else Decimal(0)
        return count_of(round(amount))
    except (InvalidOperation, ValueError, OverflowError):
        return 0
