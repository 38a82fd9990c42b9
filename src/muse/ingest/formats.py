"""Which agent wrote a file: told by what stands in it, never by its name.

This module must not know how a format is read.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from muse.ingest import claude_code, codex
from muse.ingest.claude_code import PLAIN
from muse.ingest.codex_lines import ENVELOPES, ITEMS
from muse.ingest.lines import Lines, SourceFile, Value, at, text
from muse.ingest.writer import Import, Keep

Format = Literal["", "claude-code", "codex"]
LINES_LOOKED_AT: Final = 200
HEAD_BYTES: Final = 4 * 1024 * 1024
"""What a file is stands in its first lines; so much of it is looked at, unless the first line is longer."""

READERS: Final[dict[str, Callable[[Sequence[SourceFile], Keep], Import]]] = {
    claude_code.FORMAT: claude_code.read,
    codex.FORMAT: codex.read,
}
"""Format → what reads it: the session's own file first, its agents' after it."""


def recognise(data: bytes) -> Format:
    """The format of a file that begins so, "" for one that no agent wrote that is known here."""
    lines = Lines(data)
    for index in range(min(len(lines), LINES_LOOKED_AT)):
        value = lines[index].value
        if value is not None and (found := _of_line(value)):
            return found
    return ""


def _of_line(value: Value) -> Format:
    kind = text(value, "type")
    if kind in ENVELOPES and isinstance(at(value, "payload"), dict):
        return "codex"
    if not kind and text(value, "id") and text(value, "timestamp") and ("instructions" in value or "git" in value):
        return "codex"
    if kind in ("user", "assistant", "system", "attachment") and ("uuid" in value or "sessionId" in value):
        return "claude-code"
    if kind in PLAIN | {"permission-mode"} and ("sessionId" in value or "leafUuid" in value or "messageId" in value):
        return "claude-code"
    if kind in ITEMS - {"reasoning"} and ("role" in value or "call_id" in value):
        return "codex"
    return ""
