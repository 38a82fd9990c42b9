"""What an event says in words, piece by piece: prompts, answers, commands, outputs, lines that files gained and lost.

Index and search read events through this, so that both see the same. Contents are handed in as streams and read up
to named limits. This module must not know how a text is searched for.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from muse.errors import Damaged, Incomplete, InvalidEvent
from muse.event import kinds
from muse.event.commitment import Shown, parse_disclosed, steps
from muse.event.content import BlobRef, FileChange
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.leaves import STRING
from muse.event.shells import command_in

TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a longer content only so much is searched; that is said."""
EVENT_CHARS_MAX: Final = 32 * 1024 * 1024
"""So many characters of one event are searched."""
DEPTH_MAX: Final = 64
"""Arguments that nest deeper are searched as the JSON that they are."""
BINARY_LOOK: Final = 8_000
"""A file with a NUL within its first bytes is no text (git's test)."""

TextKind = Literal[
    "prompt", "answer", "reasoning", "command", "arguments", "output", "added", "removed", "path", "approval", "note",
    "error", "instructions", "name", "other",
]  # fmt: skip

Streams = Callable[[str], Iterator[bytes]]
"""A blob's content by its root, in chunks. Raises Incomplete for a hidden one."""


class Text(msgspec.Struct, frozen=True):
    """A text of an event, and what it is."""

    kind: TextKind
    text: str


class Texts:
    """The texts of events; `cut` counts those that were longer than the limits, `problem` names a content that could
    not be read."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.cut = 0
        self.problem = ""

    def of(self, event: Event) -> list[Text]:
        """What the event says, empty texts left out."""
        found: list[Text] = []
        room = EVENT_CHARS_MAX
        for kind, text in self._all(event):
            if not text:
                continue
            if len(text) > room:
                self.cut += 1
                text = text[:room]
            room -= len(text)
            found.append(Text(kind, text))
            if room <= 0:
                break
        return found

    def _all(self, event: Event) -> Iterator[tuple[TextKind, str]]:
        body: Any = event.body
        match body:
            case Redacted():
                yield from _left(body)
            case Unknown():
                yield "other", body.text
            case kinds.SessionOpened():
                yield "name", body.name
                for one in body.instructions:
                    yield "path", one.path
                    yield "instructions", one.text
            case kinds.ModelResponded():
                yield from _answered(body)
            case kinds.ToolStarted():
                yield from _arguments(body.tool, self._whole(body.args))
                yield "path", body.observed.path
                yield "error", body.observed.error
            case kinds.ToolFinished():
                yield "output", self._whole(body.output or "")
                yield "output", self._whole(body.text)
            case kinds.FilesChanged():
                for change in body.changes:
                    yield from self._changed(change)
            case _:
                yield from _words(body, self._whole)

    def _changed(self, change: FileChange) -> Iterator[tuple[TextKind, str]]:
        yield "path", change.path
        yield "note", change.note
        before, after = self._file(change.before), self._file(change.after)
        yield "added", _not_in(after, before)
        yield "removed", _not_in(before, after)

    def _file(self, ref: BlobRef | None) -> str:
        """A file's content, "" for one that is no text."""
        text = "" if ref is None else self._content(ref)
        return "" if "\0" in text[:BINARY_LOOK] else text

    def _whole(self, value: str | BlobRef) -> str:
        return value if isinstance(value, str) else self._content(value)

    def _content(self, ref: BlobRef) -> str:
        parts, size = [], 0
        try:
            for part in self._streams(ref.blob):
                parts.append(part)
                size += len(part)
                if size >= TEXT_BYTES_MAX:
                    break
        except Incomplete:
            return ""
        except Damaged as error:
            self.problem = str(error)
        data = b"".join(parts)
        if size < ref.length or size > TEXT_BYTES_MAX:
            self.cut += 1
        return data[:TEXT_BYTES_MAX].decode(errors="replace")


def _not_in(text: str, other: str) -> str:
    """The lines of a text that the other does not have (as often)."""
    if not other or not text:
        return text
    there = Counter(other.split("\n"))
    found = []
    for line in text.split("\n"):
        if there[line] > 0:
            there[line] -= 1
        else:
            found.append(line)
    return "\n".join(found)


def _answered(body: kinds.ModelResponded) -> Iterator[tuple[TextKind, str]]:
    for block in body.blocks:
        if block.kind == "tool_use":
            yield from _arguments(block.name, block.args)
        elif block.kind == "reasoning":
            yield "reasoning", block.text
        else:
            yield "answer", block.text


def _arguments(tool: str, args: str) -> Iterator[tuple[TextKind, str]]:
    """The texts in a call's arguments as they are meant, not as JSON escapes them; the whole where it is no JSON."""
    try:
        value = msgspec.json.decode(args or "{}")
        command = command_in(tool, value) if isinstance(value, dict) else ""
        if command:
            value = {name: item for name, item in value.items() if name not in ("command", "cmd")}
        said = "\n".join(_strings(value, "", DEPTH_MAX))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        yield "arguments", args
        return
    yield "command", command
    yield "arguments", said


def _strings(value: Any, name: str, depth: int) -> Iterator[str]:
    """`name: text` for each text or number in foreign JSON. RecursionError: it nests deeper than `depth`."""
    if depth == 0:
        raise RecursionError
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, f"{name}.{key}" if name else str(key), depth - 1)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name, depth - 1)
    elif isinstance(value, str) or (value is not None and not isinstance(value, bool)):
        yield f"{name}: {value}" if name else f"{value}"


_FIELDS: Final[dict[str, TextKind]] = {
    "text": "note", "task": "prompt", "why": "note", "reason": "note", "note": "note", "rule": "approval",
    "evidence": "note", "message": "error", "partial": "answer", "shown": "approval", "command": "command",
    "path": "path", "source": "path", "model": "name", "name": "name",
}  # fmt: skip
_TEXT: Final[dict[type, TextKind]] = {
    kinds.UserPrompted: "prompt", kinds.AgentSteered: "prompt", kinds.QuestionAnswered: "prompt",
    kinds.QuestionAsked: "answer", kinds.AgentMessaged: "answer", kinds.ResultDelivered: "answer",
    kinds.AgentFinished: "answer", kinds.ContextCompacted: "answer",
}  # fmt: skip
_LISTS: Final[dict[str, TextKind]] = {
    "options": "answer", "allow": "approval", "ask": "approval", "deny": "approval", "restored": "path",
    "deleted": "path", "kept": "path", "left": "path",
}  # fmt: skip


def _words(body: msgspec.Struct, whole: Callable[[str | BlobRef], str]) -> Iterator[tuple[TextKind, str]]:
    """The free texts of any other body, by the names of its fields."""
    if isinstance(body, kinds.SourceKept):
        yield from (("other", words) for _, words in _arguments("", whole(body.raw)))
        return
    if isinstance(body, kinds.ModelRequested | kinds.AgentSpawned):
        yield "prompt", getattr(body, "task", "")
        return
    if isinstance(body, kinds.CommandRefused):
        yield "note", body.text
        return
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if name in _LISTS and isinstance(value, tuple):
            yield _LISTS[name], "\n".join(item for item in value if isinstance(item, str))
        elif name in _FIELDS and isinstance(value, str):
            yield (_TEXT.get(type(body), "note") if name == "text" else _FIELDS[name]), value


def _left(body: Redacted) -> Iterator[tuple[TextKind, str]]:
    """The texts that redaction left; what is missing of a text parts it."""
    try:
        leaves = [entry.leaf for entry in parse_disclosed(body.leaves).leaves if isinstance(entry, Shown)]
    except InvalidEvent:
        return
    found: dict[bytes, str] = {}
    last: tuple[bytes, int] = (b"", 0)
    for leaf in leaves:
        if leaf.kind == STRING:
            gap = "" if (leaf.path, leaf.piece - 1) == last or leaf.path not in found else "\n"
            found[leaf.path] = found.get(leaf.path, "") + gap + leaf.text.decode(errors="replace")
            last = (leaf.path, leaf.piece)
    for path, text in found.items():
        key = next((step for step in reversed(steps(path)) if isinstance(step, str)), "")
        if key in (*_FIELDS, *_LISTS, "args"):
            yield "other", text
