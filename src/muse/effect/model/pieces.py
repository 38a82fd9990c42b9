"""Text that arrives in pieces: shown as it comes, valid at every moment, kept exactly.

Some servers cut a character outside the BMP into two escapes in two events; the halves are joined again. This module
must not know any wire dialect.
"""

import json
from typing import Final

from muse.event.jsontext import shallow
from muse.event.text import clean

COUNT_MAX: Final = 10**10
"""No response used so many tokens, or millionths of a dollar. A provider that says so fills any budget, but the sums of
a session stay numbers that a log can hold."""


class Pieces:
    """Strings that are parts of one text. `add` returns what can be shown now; `text` is all of it, valid Unicode."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._held = ""

    def add(self, piece: str) -> str:
        """Takes the next part; half of a surrogate pair at its end is shown with the next part."""
        self._parts.append(piece)
        ready = self._held + piece
        self._held = ready[-1:] if "\ud800" <= ready[-1:] <= "\udbff" else ""
        return clean(ready[: len(ready) - len(self._held)]).text

    def text(self) -> str:
        """Everything so far; half a pair that never found its other half is U+FFFD."""
        return clean("".join(self._parts)).text

    def __bool__(self) -> bool:
        return any(self._parts)


class Garbage(Exception):
    """The stream holds something that is no event of its dialect. The text says what."""


def json_object(data: bytes) -> dict[str, object]:
    """The object that an event's data spells. Raises Garbage."""
    try:
        text = data.decode()
        value = json.loads(text) if shallow(text) else None
    except (ValueError, RecursionError) as error:
        raise Garbage(f"an event is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Garbage("an event is no JSON object")
    return value


def is_json(data: bytes) -> bool:
    """Whether the data is a whole JSON value: tells a last event without its blank line from a torn one."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def text_of(value: object) -> str:
    """A string member; null and a missing one are "". Raises Garbage for any other type."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Garbage(f"a text is a {type(value).__name__}")
    return value


def object_of(value: object) -> dict[str, object]:
    """An object member; null and a missing one are {}. Raises Garbage for any other type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Garbage(f"an object is a {type(value).__name__}")
    return value


def count_of(value: object) -> int:
    """A token count, `COUNT_MAX` at most; anything that is none counts 0."""
    return min(value, COUNT_MAX) if type(value) is int and value > 0 else 0
