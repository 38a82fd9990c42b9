"""Response streams of both wire dialects, made from steps of a script, as the providers document them.

Written against the published formats and not with the decoders' code, so that the decoders can be held to it; the
vendors' own libraries parse every stream that is made here (a test does that).
"""

import json
from typing import Final

import msgspec

from muse.effect.model.scripted import Step

PIECE_CHARS: Final = 7
"""Characters of a text or of arguments in one delta."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer says it cost. `input` counts neither what was read from the cache nor what was written to it."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


def tokens_of(step: Step) -> Tokens:
    """Made-up output counts for a step: a token for each four characters."""
    arguments = sum(len(step.arguments(index)) for index in range(len(step.uses)))
    thought = len(step.reasoning) // 4
    return Tokens(output=(len(step.text) + arguments) // 4 + thought + 1, reasoning=thought)


def anthropic_stream(step: Step, number: int, tokens: Tokens | None = None) -> list[bytes]:
    """The events of one Messages response, each as its bytes."""
    tokens = tokens or tokens_of(step)
    usage = {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": 1,
    }
    message: dict[str, object] = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
    message |= {"model": "claude-test", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, object]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, object], list[dict[str, object]]]] = []
    if step.reasoning:
        deltas: list[dict[str, object]] = [
            {"type": "thinking_delta", "thinking": piece} for piece in _pieces(step.reasoning)
        ]
        deltas.append({"type": "signature_delta", "signature": f"c2ln{number}=="})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if step.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(step.text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for index, (name, _) in enumerate(step.uses):
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(step.arguments(index))]
        ]
        blocks.append(({"type": "tool_use", "id": step.id(number, index), "name": name, "input": {}}, deltas))
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if step.uses else "end_turn", "stop_sequence": None}
    spent = {"output_tokens": tokens.output, "output_tokens_details": {"thinking_tokens": tokens.reasoning}}
    events.append({"type": "message_delta", "delta": stop, "usage": spent})
    events.append({"type": "message_stop"})
    return [_named_event(event) for event in events]


def anthropic_error(kind: str, message: str) -> bytes:
    """An error in the middle of a stream."""
    return _named_event({"type": "error", "error": {"type": kind, "message": message}})


def openai_stream(step: Step, number: int, tokens: Tokens | None = None) -> list[bytes]:
    """The events of one Chat Completions response, each as its bytes."""
    tokens = tokens or tokens_of(step)
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    deltas.extend({"reasoning_content": piece} for piece in _pieces(step.reasoning))
    deltas.extend({"content": piece} for piece in _pieces(step.text))
    for index, (name, _) in enumerate(step.uses):
        start = {"index": index, "id": step.id(number, index), "type": "function"}
        deltas.append({"tool_calls": [start | {"function": {"name": name, "arguments": ""}}]})
        for piece in _pieces(step.arguments(index)):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [_chunk(number, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    stop = "tool_calls" if step.uses else "stop"
    chunks.append(_chunk(number, [{"index": 0, "delta": {}, "finish_reason": stop}]))
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
    chunks.append(_chunk(number, []) | {"usage": usage})
    return [_event(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]


def openai_error(kind: str, message: str) -> bytes:
    """An error in the middle of a stream."""
    return _event({"error": {"type": kind, "code": None, "param": None, "message": message}})


def error_body(kind: str, message: str) -> bytes:
    """The JSON body of a refused request; both dialects read it."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _chunk(number: int, choices: list[dict[str, object]]) -> dict[str, object]:
    made = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1700000000, "model": "gpt-test"}
    return made | {"choices": choices}


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


def _event(value: dict[str, object]) -> bytes:
    return f"data: {_json(value)}\n\n".encode()


def _named_event(value: dict[str, object]) -> bytes:
    return f"event: {value['type']}\ndata: {_json(value)}\n\n".encode()


def _json(value: dict[str, object]) -> str:
    """JSON text; what is no Unicode is escaped, as a careless server would do."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
