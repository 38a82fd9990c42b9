"""JSON as text: composed by hand, so that foreign JSON goes back exactly as it came.

Requests are put together from strings; what a provider sent (tool arguments, blocks) and what a tool declares (its
schema) is spliced in unchanged when a strict server would take it, and replaced in one documented way when not. This
module must not know any wire dialect.
"""

import json
import math
import re
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final, NoReturn

import msgspec

from muse.event.text import clean

NESTING_MAX: Final = 100
"""Levels of arrays and objects that are spliced in; common parsers stop at 128."""

NUMBER_CHARS_MAX: Final = 300
"""Characters of one number that is spliced in; longer ones overflow somewhere."""

REMEMBERED_CHARS_MAX: Final = 16_384
"""Characters of a text whose judgement is remembered; of the last 4096 of them."""

INVALID_ARGUMENTS: Final = "invalid_arguments"
"""Key of the object that stands for arguments which are no JSON object: `{"invalid_arguments": TEXT}`."""

_string_or_bracket: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_escape: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_space: Final = re.compile(r"[ \t\n\r]*")


def quote(text: str) -> str:
    """A JSON string for any text. Lone surrogates become U+FFFD, NUL becomes U+2400 (some servers cannot store it)."""
    return encode_basestring(clean(text).text.replace("\x00", "\u2400"))


def array(items: list[str]) -> str:
    """A JSON array of items that are JSON text."""
    return "[" + ",".join(items) + "]"


def compose(fields: dict[str, str]) -> str:
    """A JSON object of members whose values are JSON text, in the order given."""
    return "{" + ",".join([f"{_key(key)}:{value}" for key, value in fields.items()]) + "}"


@lru_cache(maxsize=1024)
def _key(key: str) -> str:
    return quote(key)


def members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the exact text that stands there. Raises ValueError otherwise.

    The last of several members with one name counts.
    """
    found: dict[str, str] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("no JSON object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return _ended(text, at + 1, found)
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f"no member name at {at}")
        key, at = _scanner.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"no colon at {at}")
        start = _skip(text, at + 1)
        _, at = _scanner.raw_decode(text, start)
        found[key] = text[start:at]
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return _ended(text, at + 1, found)
        if text[at : at + 1] != ",":
            raise ValueError(f"no comma at {at}")
        at = _skip(text, at + 1)


def elements(text: str) -> list[str]:
    """The elements of a JSON array, each as the exact text that stands there. Raises ValueError otherwise."""
    found: list[str] = []
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError("no JSON array")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found
    while True:
        start = at
        _, at = _scanner.raw_decode(text, start)
        found.append(text[start:at])
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return found
        if text[at : at + 1] != ",":
            raise ValueError(f"no comma at {at}")
        at = _skip(text, at + 1)


def strict_object(text: str) -> dict[str, object] | None:
    """The object that `text` spells, or None unless every strict JSON parser would take it.

    Refused: what is no object, a repeated key, NaN and infinities, numbers too large for a double, lone surrogates,
    more than NESTING_MAX levels.
    """
    if not shallow(text) or _mend_escapes(text) != text or clean(text).exact is not None:
        return None
    try:
        value = _strict.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Sendable(msgspec.Struct, frozen=True):
    """An object that a strict server takes: its text, and its members `type` and `id` where they are strings."""

    text: str
    type: str
    id: str


def sendable(text: str) -> Sendable | None:
    """What may be sent of an object's text (lone surrogates become U+FFFD), or None if it spells no object.

    A session sends the same texts in request after request, so that the judgement on short ones is remembered.
    """
    return _remembered(text) if len(text) <= REMEMBERED_CHARS_MAX else _judged(text)


def sendable_object(text: str) -> str | None:
    """`text` if it spells an object that a strict server takes (lone surrogates become U+FFFD), else None."""
    found = sendable(text)
    return found.text if found else None


def sendable_arguments(text: str) -> str:
    """What stands for a tool use's arguments in a request: `text` unchanged wherever possible.

    No text at all is `{}`. Text that is no object is wrapped: `{"invalid_arguments": TEXT}`; the tool result tells
    the model what was wrong with it.
    """
    if not text.strip():
        return "{}"
    return sendable_object(text) or compose({INVALID_ARGUMENTS: quote(text)})


def _judged(text: str) -> Sendable | None:
    mended = _mend_escapes(clean(text).text)
    value = strict_object(mended)
    if value is None:
        return None
    kind, id = value.get("type"), value.get("id")
    return Sendable(mended, kind if isinstance(kind, str) else "", id if isinstance(id, str) else "")


@lru_cache(maxsize=4096)
def _remembered(text: str) -> Sendable | None:
    return _judged(text)


def _skip(text: str, at: int) -> int:
    match = _space.match(text, at)
    assert match is not None
    return match.end()


def _ended(text: str, at: int, found: dict[str, str]) -> dict[str, str]:
    if _skip(text, at) != len(text):
        raise ValueError(f"more text after the object at {at}")
    return found


def shallow(text: str) -> bool:
    """Whether the nesting stays within NESTING_MAX; looked at before any recursive parser sees the text."""
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return True
    depth = 0
    for match in _string_or_bracket.finditer(text):
        mark = match.group()
        if mark in ("{", "["):
            depth += 1
            if depth > NESTING_MAX:
                return False
        elif mark in ("}", "]"):
            depth -= 1
    return True


def _mend_escapes(text: str) -> str:
    return _escape.sub(_mend_escape, text) if "\\u" in text else text


def _mend_escape(match: re.Match[str]) -> str:
    escape = match.group()
    if len(escape) == 6 and escape[2] in "dD" and escape[3] in "89abcdefABCDEF":
        return "\\ufffd"
    return escape


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _integer(text: str) -> int:
    if len(text) > NUMBER_CHARS_MAX:
        raise ValueError("a number is too long")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if len(text) > NUMBER_CHARS_MAX or not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_strict: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_real, parse_constant=_no_constant
)
_scanner: Final = json.JSONDecoder(parse_int=float, parse_constant=_no_constant)
