"""Two values of one kind, as what differs: field by field, long text line by line. Pure.

This module must not know why they are compared.
"""

import difflib
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

SHORT_CHARACTERS_MAX: Final = 120
"""Longer text, and text of several lines, is compared line by line."""

LINES_MAX: Final = 60
"""Lines of a difference that are shown."""

CHARACTERS_MAX: Final = 400
"""Of one value that is shown whole."""


def bodies(expected: msgspec.Struct, recorded: msgspec.Struct) -> tuple[str, ...]:
    """What differs between two bodies of one type, as lines: `- expected`, `+ recorded`."""
    found = [
        line
        for field in msgspec.structs.fields(expected)
        for line in values(field.encode_name, getattr(expected, field.name), getattr(recorded, field.name))
    ]
    return limited(iter(found))


def values(name: str, expected: object, recorded: object) -> Iterator[str]:
    """The lines for one field; none where both are the same."""
    if expected == recorded:
        return
    if isinstance(expected, str) and isinstance(recorded, str) and (_is_long(expected) or _is_long(recorded)):
        yield f"{name}:"
        yield from texts(expected, recorded)
        return
    yield f"- {name}: {shown(expected)}"
    yield f"+ {name}: {shown(recorded)}"


def texts(expected: str, recorded: str) -> Iterator[str]:
    """A line diff of two texts, without its head. Where only the ends of lines differ, these are shown."""
    one, other = expected.splitlines(), recorded.splitlines()
    if one == other:
        one, other = _with_ends(expected), _with_ends(recorded)
    for number, line in enumerate(difflib.unified_diff(one, other, lineterm="", n=2)):
        if number >= 2:
            yield line if len(line) <= CHARACTERS_MAX else f"{line[:CHARACTERS_MAX]}…"


def _with_ends(text: str) -> list[str]:
    """The lines, each with its end as an escape: `Be brief.\\r\\n`."""
    pairs = zip(text.splitlines(), text.splitlines(keepends=True), strict=True)
    return [line + whole[len(line) :].encode("unicode_escape").decode() for line, whole in pairs]


def limited(lines: Iterator[str], most: int = LINES_MAX) -> tuple[str, ...]:
    """At most so many lines, and a word that there are more."""
    found = list(islice(lines, most + 1))
    return tuple(found) if len(found) <= most else (*found[:most], "…")


def shown(value: object) -> str:
    """A value as compact JSON, cut where it is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}… ({len(text)} characters)"


def one(body: msgspec.Struct) -> str:
    """A body on one line."""
    return shown(msgspec.to_builtins(body))


def _is_long(text: str) -> bool:
    return len(text) > SHORT_CHARACTERS_MAX or "\n" in text
