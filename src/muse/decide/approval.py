"""What a person is shown when a call needs their word: exact, bounded, and the same for every front door."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from muse.event.jsontext import sendable_arguments, sendable_object, strict_object

SHOWN_CHARACTERS_MAX = 20_000
_HIDDEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, those that turn the direction of text, and half surrogate pairs."""


@lru_cache(maxsize=512)
def parsed(args: str) -> dict[str, Any] | None:
    """The arguments as a JSON object, or None when the text is none that every strict parser would take: then nothing
    runs, and later requests show the model `invalid_arguments`. The result is shared: do not change it."""
    return strict_object(sendable_arguments(args)) if sendable_object(args or "{}") is not None else None


def shown(tool: str, args: str) -> str:
    """The text that is shown, and whose digest the decision carries. Control characters are made visible."""
    value = parsed(args)
    if value is None:
        text = f"{tool} {args}"
    elif tool == "shell" and isinstance(value.get("command"), str):
        text = f"$ {value['command']}"
    elif tool in ("edit", "write"):
        text = _file_text(tool, value)
    elif tool == "read":
        text = _read_text(value)
    else:
        text = f"{tool} {args}"
    return visible(text)


def digest(text: str) -> str:
    """SHA-256 of what was shown, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def _file_text(tool: str, value: Mapping[str, Any]) -> str:
    path = value.get("path") or value.get("file_path") or "?"
    if tool == "write":
        return f"write {path}\n" + _marked(value.get("content"), "+")
    edits = value.get("edits")
    if not isinstance(edits, list):
        edits = [value]
    parts = [f"edit {path}"]
    for edit in edits:
        if isinstance(edit, dict):
            parts.append(_marked(edit.get("old", edit.get("old_string")), "-"))
            parts.append(_marked(edit.get("new", edit.get("new_string")), "+"))
            if edit.get("replace_all"):
                parts.append("(every occurrence)")
    return "\n".join(part for part in parts if part)


def _read_text(value: Mapping[str, Any]) -> str:
    name = next((name for name in ("path", "file_path") if isinstance(value.get(name), str)), "")
    rest = [f"{key}: {json.dumps(item)}" for key, item in value.items() if key != name]
    return "\n".join([f"read {value[name] if name else '?'}", *rest])


def _marked(text: object, sign: str) -> str:
    if not isinstance(text, str):
        return "" if text is None else f"{sign} {json.dumps(text)}"
    return "\n".join(f"{sign} {line}" for line in text.split("\n"))


def visible(text: str) -> str:
    """A text as it is shown: bounded, with control characters made visible."""
    if len(text) > SHOWN_CHARACTERS_MAX:
        left_out = len(text) - SHOWN_CHARACTERS_MAX
        text = f"{text[:SHOWN_CHARACTERS_MAX]}\n… {left_out} more characters; muse show gives the whole call"
    return _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
