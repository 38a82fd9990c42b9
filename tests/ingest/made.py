"""Small session files written by hand, and what they become."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from muse.event.codec import canonical
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.event.kinds import KINDS
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.ingest import claude_code, codex
from muse.ingest.lines import SourceFile
from muse.ingest.writer import Import

TYPES = {kind.body: name for name, kind in KINDS.items()}


class World:
    """A foreign session that was read: `events`, the contents that were kept, and the state at the end."""

    def __init__(self, made: Import, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self.events = [
            Event(seq, f"{seq:032x}", one.time, TYPES[type(one.body)], 1, one.agent, one.cause, 0, one.body)
            for seq, one in enumerate(made.events, 1)
        ]
        self.state = Session(session="made")
        for event in self.events:
            assert 0 <= event.cause < event.seq
            canonical(event.body)
            evolve(self.state, event)

    def of(self, type_name: str) -> list[Any]:
        """The bodies of a type."""
        return [event.body for event in self.events if event.type == type_name]

    def types(self) -> list[str]:
        """The types in order, without the frame of every import and without what was only kept."""
        frame = ("log.imported", "agent.spawned", "session.closed", "source.kept")
        return [event.type for event in self.events if event.type not in frame]

    def content(self, ref: BlobRef | None) -> bytes | None:
        return None if ref is None else self.contents[ref.blob]


def jsonl(lines: Sequence[object]) -> bytes:
    """Objects as JSON, one a line; bytes and text as they are."""
    raw = [one if isinstance(one, bytes) else one.encode() if isinstance(one, str) else json.dumps(one).encode()
           for one in lines]  # fmt: skip
    return b"".join(line + b"\n" for line in raw)


def _read(reader: Any, files: Sequence[SourceFile]) -> World:
    contents: dict[str, bytes] = {}

    def keep(data: bytes) -> BlobRef:
        name = hashlib.sha256(data).hexdigest()
        contents[name] = data
        return BlobRef(name, len(data))

    return World(reader(files, keep), contents)


def claude(*lines: object, agents: Mapping[str, Sequence[object]] = {}) -> World:
    """A session of Claude Code with these lines, and agents' files."""
    others = [SourceFile(f"s/subagents/agent-{name}.jsonl", jsonl(its)) for name, its in agents.items()]
    return _read(claude_code.read, [SourceFile("s.jsonl", jsonl(lines)), *others])


def claude_bytes(data: bytes) -> World:
    """A session of Claude Code of these bytes."""
    return _read(claude_code.read, [SourceFile("s.jsonl", data)])


def rollout(*lines: object) -> World:
    """A session of Codex with these lines."""
    return _read(codex.read, [SourceFile("rollout.jsonl", jsonl(lines))])


def rollout_bytes(data: bytes) -> World:
    """A session of Codex of these bytes."""
    return _read(codex.read, [SourceFile("rollout.jsonl", data)])


def line(kind: str, uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    """A line of Claude Code with its envelope; the time is 1 s after the epoch for each letter of `uuid`'s place."""
    seconds = more.pop("at", 0)
    envelope = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "S", "cwd": "/w", "version": "2.1.0"}
    stamp = f"2026-01-01T00:00:{seconds:02d}.500Z"
    return {**envelope, "timestamp": stamp, "isSidechain": False, "gitBranch": "main", **more}


def said(uuid: str, parent: str | None, content: object, **more: Any) -> dict[str, Any]:
    """A user line."""
    return line("user", uuid, parent, message={"role": "user", "content": content}, **more)


def answer(uuid: str, parent: str | None, id_: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A line of a response."""
    usage = {"input_tokens": more.pop("input", 1), "output_tokens": more.pop("output", 1)}
    message = {
        "id": id_, "role": "assistant", "model": "m-1", "content": list(blocks), "usage": usage,
        "stop_reason": more.pop("stop", "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"),
    }  # fmt: skip
    return line("assistant", uuid, parent, message=message, requestId=f"req-{id_}", **more)


def text(words: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words}


def use(id_: str, name: str, **args: Any) -> dict[str, Any]:
    """A tool use block."""
    return {"type": "tool_use", "id": id_, "name": name, "input": args}


def result(
    uuid: str, parent: str | None, id_: str, content: object, told: object = None, **more: Any
) -> dict[str, Any]:
    """A user line with the result of a tool use."""
    block = {"type": "tool_result", "tool_use_id": id_, "content": content, "is_error": more.pop("error", False)}
    return said(uuid, parent, [block], toolUseResult=told, **more)


def item(kind: str, at: int = 0, **payload: Any) -> dict[str, Any]:
    """A response item of Codex."""
    return wrapped("response_item", at, type=kind, **payload)


def shown(kind: str, at: int = 0, **payload: Any) -> dict[str, Any]:
    """A display line of Codex."""
    return wrapped("event_msg", at, type=kind, **payload)


def wrapped(envelope: str, at: int = 0, **payload: Any) -> dict[str, Any]:
    """A line of Codex in its envelope."""
    return {"timestamp": f"2026-01-01T00:00:{at:02d}.000Z", "type": envelope, "payload": payload}


def message(role: str, words: str, at: int = 0) -> dict[str, Any]:
    """A message item of Codex."""
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", at, role=role, content=[{"type": kind, "text": words}])


def counted(total: Sequence[int], last: Sequence[int] | None = None, at: int = 0) -> dict[str, Any]:
    """A token count of Codex: input, of which cached, output; running totals and those of the last request."""
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    info = {"total_token_usage": dict(zip(names, total, strict=True)),
            "last_token_usage": dict(zip(names, last or total, strict=True))}  # fmt: skip
    return shown("token_count", at, info=info)


def plain(body: msgspec.Struct) -> Any:
    """A body as plain values."""
    return msgspec.to_builtins(body)
