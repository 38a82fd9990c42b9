"""The Anthropic Messages dialect: the exact request bytes, and a decoder of the response stream.

Cache marks. A request holds at most four: the last tool, the system prompt, and the last block of the last two user
turns. Each request writes its prefix to the provider's cache up to its last mark; the next request, one turn longer,
has its second-last mark at that very place, so it reads all that came before from the cache and pays in full only for
what is new. A long session therefore costs what it grew, not its square. Tools and system are marked by themselves so
that they are still read when the messages before them were compacted, and by other agents with the same tools.

What goes back. Blocks that were received go back unchanged (`Block.raw` where it is set). Left out are blank texts,
thinking at the end of a turn (both are refused), and blocks of another dialect. Arguments that are no JSON object are
replaced as in `jsontext.sendable_arguments`. This module must not know how bytes travel.
"""

import json
import re
from functools import lru_cache
from typing import Final

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
    members,
    quote,
    sendable,
    sendable_arguments,
    sendable_object,
)
from muse.event.text import clean

BUILDER: Final = "anthropic/1"

VERSION: Final = "2026-10-21"
"""The value of the `anthropic-version` header: the one that the provider recommends. Nothing that is sent or read here
differs from `2023-06-01`."""

BLOCKS_MAX: Final = 10_000
"""Content blocks of one response."""

_MARK: Final = '{"type":"ephemeral"}'
_USE_FIELDS: Final = ("type", "id", "name", "input")
_id_form: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_name_part: Final = re.compile(r"[^a-zA-Z0-9_-]")
_STOPS: Final[dict[str, Stop]] = {
    "end_turn": "end_turn", "stop_sequence": "end_turn", "tool_use": "tool_use", "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens", "refusal": "refusal",
}  # fmt: skip


def url(base_url: str) -> str:
    """The address to post to. `base_url` may end in the version (`…/v1`), in the resource, or before both."""
    base = base_url.rstrip("/")
    if base.endswith("/messages"):
        return base
    return f"{base}/messages" if re.search(r"/v\d+$", base) else f"{base}/v1/messages"


def headers(api_key: str) -> dict[str, str]:
    """The headers of the dialect beside the ones of every JSON request."""
    return {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})


def build(request: ModelRequest) -> bytes:
    """The exact bytes of the POST body. Pure: equal requests give equal bytes."""
    fields = {"model": quote(request.model), "max_tokens": str(request.output_tokens_max)}
    if request.system.strip():
        fields["system"] = array([_text(request.system, marked=True)])
    if request.tools:
        last = len(request.tools) - 1
        fields["tools"] = array([_tool(spec, marked=index == last) for index, spec in enumerate(request.tools)])
    fields["messages"] = array(_messages(request))
    fields["stream"] = "true"
    return compose(fields).encode()


def _tool(spec: ToolSpec, marked: bool) -> str:
    schema = sendable_object(spec.schema) or '{"type":"object"}'
    fields = {"name": quote(spec.name), "description": quote(spec.description), "input_schema": schema}
    return _marked(fields, marked)


def _text(text: str, marked: bool = False) -> str:
    return _marked({"type": '"text"', "text": quote(text)}, marked)


def _marked(fields: dict[str, str], marked: bool) -> str:
    return compose(fields | {"cache_control": _MARK} if marked else fields)


def _messages(request: ModelRequest) -> list[str]:
    """Messages of alternating role. Turns of the model that hold nothing to send vanish, their neighbours merge."""
    merged: list[UserTurn | str] = []
    for turn in turns(request.items, _id_form):
        if isinstance(turn, AssistantTurn):
            if message := _assistant_message(turn):
                merged.append(message)
        elif merged and isinstance(before := merged[-1], UserTurn):
            merged[-1] = UserTurn(before.results + turn.results, before.texts + turn.texts)
        else:
            merged.append(turn)
    if not merged or not isinstance(merged[0], UserTurn):
        merged.insert(0, UserTurn((), (EMPTY_TEXT,)))
    marked = [index for index, turn in enumerate(merged) if isinstance(turn, UserTurn)][-2:]
    found: list[str] = []
    for index, part in enumerate(merged):
        if isinstance(part, str):
            found.append(part)
        elif index in marked:
            found.append(_user_message(part, marked=True))
        else:
            found.append(_settled_message(part))
    return found


@lru_cache(maxsize=TURNS_REMEMBERED)
def _settled_message(turn: UserTurn) -> str:
    return _user_message(turn, marked=False)


def _user_message(turn: UserTurn, marked: bool) -> str:
    return compose({"role": '"user"', "content": array(_user_blocks(turn, marked))})


def _user_blocks(turn: UserTurn, marked: bool) -> list[str]:
    last = len(turn.results) + len(turn.texts) - 1
    blocks: list[str] = []
    for index, (sent_id, result) in enumerate(turn.results):
        fields = {"type": '"tool_result"', "tool_use_id": quote(sent_id)}
        fields["content"] = quote(result.text if result.text.strip() else EMPTY_TEXT)
        if result.error:
            fields["is_error"] = "true"
        blocks.append(_marked(fields, marked and index == last))
    for text in turn.texts:
        blocks.append(_text(text, marked and len(blocks) == last))
    return blocks


@lru_cache(maxsize=TURNS_REMEMBERED)
def _assistant_message(turn: AssistantTurn) -> str:
    """The assistant message of a turn; "" if it holds nothing to send."""
    blocks = _assistant_blocks(turn)
    return compose({"role": '"assistant"', "content": array(blocks)}) if blocks else ""


def _assistant_blocks(turn: AssistantTurn) -> list[str]:
    uses = list(turn.uses)
    sent = [(use.block.kind, text) for use in uses if (text := _assistant_block(use))]
    while sent and sent[-1][0] == "reasoning":
        sent.pop()
    return [text for _, text in sent]


def _assistant_block(use: Use) -> str | None:
    block = use.block
    if block.kind == "text" and not block.text.strip():
        return None
    extra: dict[str, str] = {}
    if block.raw and (raw := sendable(block.raw)):
        if raw.type == block.kind == "tool_use" and raw.id != use.sent_id:
            extra = {key: value for key, value in members(raw.text).items() if key not in _USE_FIELDS}
        elif raw.type == block.kind or (raw.type and block.kind in ("reasoning", "other")):
            return raw.text
    if block.kind == "text":
        return _text(block.text)
    if block.kind == "tool_use":
        name = _name_part.sub("_", block.name)[:64] or "unnamed"
        fields = {"type": '"tool_use"', "id": quote(use.sent_id), "name": quote(name)}
        return compose(fields | {"input": sendable_arguments(block.args)} | extra)
    return None


class Decoder:
    """Decodes one response stream: `message_start`, blocks with their deltas, `message_delta`, `message_stop`.

    `ping` and unknown events are passed over, unknown deltas applied as well as can be: strings are appended to the
    member of their name, other values replace it. A stream that ends before `message_stop` is cut.
    """

    def __init__(self) -> None:
        self._parser = EventParser()
        self._blocks: dict[int, _OpenBlock] = {}
        self._usage: dict[str, object] = {}
        self._model = ""
        self._id = ""
        self._stop = ""
        self._stopped = False
        self._failure: ModelFailure | None = None

    def feed(self, data: bytes) -> list[str]:
        """Take bytes, cut anywhere; return the visible text they completed."""
        shown: list[str] = []
        for event in self._parser.feed(data):
            self._take(event, shown)
        return [piece for piece in shown if piece]

    def done(self) -> bool:
        """Whether `message_stop` or an error was seen: nothing more is awaited."""
        return self._stopped or self._failure is not None

    def finish(self) -> ModelAnswer | ModelFailure:
        """The answer, or why there is none."""
        for event in self._parser.finish():
            if not self._failure and is_json(event.data):
                self._take(event, [])
        blocks = [self._blocks[index].block() for index in sorted(self._blocks)]
        partial = "".join(block.text for block in blocks if block.kind == "text")
        failure = self._failure or self._unfinished()
        if failure:
            return msgspec.structs.replace(failure, partial=partial, usage=_usage_of(self._usage))
        stop: Stop = _STOPS.get(self._stop, "other")
        if stop == "end_turn" and any(block.kind == "tool_use" for block in blocks):
            stop = "tool_use"
        return ModelAnswer(
            blocks=distinct(blocks, self._id), usage=_usage_of(self._usage), stop=stop, stop_raw=self._stop,
            model=self._model, response_id=self._id,
        )  # fmt: skip

    def _unfinished(self) -> ModelFailure | None:
        if self._stopped:
            return None
        if not self._parser.seen and not self._parser.torn():
            return no_stream(bytes(self._parser.head))
        return ModelFailure(failure="cut", message="the response ended before it was whole")

    def _take(self, event: Event, shown: list[str]) -> None:
        if self._failure or self._stopped:
            return
        try:
            self._event(event.data, shown)
        except Garbage as garbage:
            self._failure = ModelFailure(failure="garbage", message=f"{garbage}: {excerpt(event.data)[:200]}")

    def _event(self, data: bytes, shown: list[str]) -> None:
        event = json_object(data)
        match event.get("type"):
            case "message_start":
                message = object_of(event.get("message"))
                self._id, self._model = text_of(message.get("id")), text_of(message.get("model"))
                self._usage.update(object_of(message.get("usage")))
            case "content_block_start":
                index = _index(event)
                if index in self._blocks or len(self._blocks) >= BLOCKS_MAX:
                    raise Garbage("a block starts twice, or there are too many")
                self._blocks[index] = _OpenBlock(_member(data, "content_block"))
                shown.append(self._blocks[index].shown())
            case "content_block_delta":
                block = self._blocks.get(_index(event))
                if block is None:
                    raise Garbage("a delta of a block that did not start")
                shown.append(block.add(_member(data, "delta")))
            case "message_delta":
                self._stop = text_of(object_of(event.get("delta")).get("stop_reason")) or self._stop
                given = object_of(event.get("usage"))
                self._usage.update({key: value for key, value in given.items() if value is not None})
            case "message_stop":
                self._stopped = True
            case "error":
                self._failure = by_error(event.get("error"))
            case _:
                pass


class _OpenBlock:
    """A block while it grows: its members as exact JSON text, and what deltas appended."""

    def __init__(self, start: dict[str, str]) -> None:
        self._start = start
        self._type = _lenient(start.get("type", '""'))
        self._texts: dict[str, Pieces] = {}
        self._input: list[str] = []

    def shown(self) -> str:
        """The visible text that the block starts with."""
        return self._append("text", "") if self._type == "text" else ""

    def add(self, delta: dict[str, str]) -> str:
        """Applies a delta; returns the text that it made visible."""
        match _string(delta.get("type", '""')):
            case "text_delta":
                return self._append("text", _string(delta.get("text", '""')))
            case "thinking_delta":
                self._append("thinking", _string(delta.get("thinking", '""')))
            case "signature_delta":
                self._start["signature"] = delta.get("signature", '""')
            case "input_json_delta":
                self._input.append(_string(delta.get("partial_json", '""')))
            case "citations_delta":
                self._extend("citations", delta.get("citation", "null"))
            case _:
                for key, value in delta.items():
                    self._unknown(key, value)
        return ""

    def block(self) -> Block:
        """The block as it stands."""
        fields = dict(self._start)
        fields.update({key: quote(pieces.text()) for key, pieces in self._texts.items()})
        arguments = "".join(self._input) or self._start.get("input", "")
        if self._input:
            fields["input"] = sendable_arguments(arguments)
        extra = fields.keys() - {"type", "text"}
        if self._type == "text":
            return Block(kind="text", text=self._text("text"), raw=compose(fields) if extra else "")
        if self._type == "tool_use":
            extra = fields.keys() - set(_USE_FIELDS)
            id, name = (_lenient(fields.get(key, '""')) for key in ("id", "name"))
            raw = compose(fields) if extra else ""
            return Block(kind="tool_use", id=id, name=name, args=clean(arguments).text or "{}", raw=raw)
        if self._type in ("thinking", "redacted_thinking"):
            return Block(kind="reasoning", text=self._text("thinking"), raw=compose(fields))
        id, name = (_lenient(fields[key]) if key in fields else "" for key in ("id", "name"))
        return Block(
            kind="other", text=self._text("text"), id=id, name=name, args=clean(arguments).text, raw=compose(fields)
        )

    def _append(self, key: str, piece: str) -> str:
        if key not in self._texts:
            self._texts[key] = Pieces()
            start = _lenient(self._start.get(key, '""'))
            return self._texts[key].add(start) + self._texts[key].add(piece)
        return self._texts[key].add(piece)

    def _text(self, key: str) -> str:
        return self._texts[key].text() if key in self._texts else _lenient(self._start.get(key, '""'))

    def _extend(self, key: str, item: str) -> None:
        before = self._start.get(key, "[]").strip()
        inside = before[1:-1].strip() if before.startswith("[") else ""
        self._start[key] = f"[{inside},{item}]" if inside else f"[{item}]"

    def _unknown(self, key: str, value: str) -> None:
        if key == "type":
            return
        if value.startswith('"') and self._start.get(key, '""').startswith('"'):
            self._append(key, _string(value))
        else:
            self._texts.pop(key, None)
            self._start[key] = value


def _usage_of(given: dict[str, object]) -> Usage:
    details = given.get("output_tokens_details")
    return Usage(
        input=count_of(given.get("input_tokens")),
        output=count_of(given.get("output_tokens")),
        cache_read=count_of(given.get("cache_read_input_tokens")),
        cache_write=count_of(given.get("cache_creation_input_tokens")),
        reasoning=count_of(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
    )


def _index(event: dict[str, object]) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise Garbage("an event about a block has no index")
    return index


def _member(data: bytes, key: str) -> dict[str, str]:
    """The members of an object inside an event, as exact text."""
    try:
        return members(members(data.decode()).get(key, "{}"))
    except ValueError as error:
        raise Garbage(f"{key}: {error}") from None


def _string(text: str) -> str:
    """The string that JSON text spells; null is "". Raises Garbage for anything else."""
    return text_of(json.loads(text))


def _lenient(text: str) -> str:
    """The string that JSON text spells, as valid Unicode; "" for anything else."""
    value = json.loads(text)
    return clean(value).text if isinstance(value, str) else ""
