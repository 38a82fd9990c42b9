"""How a body falls apart into leaves: one for each scalar and empty container, one for each piece of a string.

The leaves say all that the body says, arrays told from objects and lines from halves, so that what commits to them
commits to the body (docs/format.md). This module must not know keys, salts or hashes.
"""

from typing import Any, Final

import msgspec

from muse.errors import InvalidEvent
from muse.event.codec import is_blob_ref

PIECE_BYTES_MAX: Final = 4096

NULL: Final = 0
FALSE: Final = 1
TRUE: Final = 2
INTEGER: Final = 3
STRING: Final = 4
EMPTY_OBJECT: Final = 5
EMPTY_ARRAY: Final = 6
BLOB: Final = 7
CHUNK: Final = 8

Parts = tuple[int, bytes, int, bytes]
"""A leaf on the hot path: kind, path, piece, text."""


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """One leaf of a body: what kind, where (JSON text of the steps), which piece of its string, and its bytes."""

    kind: int
    path: bytes
    piece: int
    text: bytes


def leaves(body: dict[str, object]) -> list[Leaf]:
    """The leaves of a parsed body in document order. Raises InvalidEvent for a value that is no JSON of a body."""
    return [Leaf(*parts) for parts in walk(body)]


def pieces(text: str) -> list[bytes]:
    """The pieces of a string: cut after every U+000A, then at code point boundaries into at most 4096 bytes."""
    data = text.encode()
    newline = data.find(b"\n")
    if len(data) <= PIECE_BYTES_MAX and (newline == -1 or newline == len(data) - 1):
        return [data]
    lines = data.split(b"\n")
    last = lines.pop()
    found: list[bytes] = []
    for line in lines:
        _cut_line(line + b"\n", found)
    if last:
        _cut_line(last, found)
    return found


def _cut_line(line: bytes, found: list[bytes]) -> None:
    start = 0
    while len(line) - start > PIECE_BYTES_MAX:
        end = start + PIECE_BYTES_MAX
        while line[end] & 0xC0 == 0x80:
            end -= 1
        found.append(line[start:end])
        start = end
    found.append(line[start:] if start else line)


def walk(body: dict[str, object]) -> list[Parts]:
    """The leaves of a parsed body in document order, as bare tuples: kind, path, piece, text."""
    found: list[Parts] = []
    _walk(body, b"", found)
    return found


def _walk(value: Any, path: bytes, found: list[Parts]) -> None:
    """Adds the leaves of `value`; `path` is the JSON text of its steps without the closing bracket, "" at the top."""
    kind = type(value)
    if kind is str:
        whole = path + b"]"
        for i, piece in enumerate(pieces(value)):
            found.append((STRING, whole, i, piece))
    elif kind is int:
        found.append((INTEGER, path + b"]", 0, b"%d" % value))
    elif kind is dict and value:
        _walk_object(value, path, found)
    elif kind in (list, tuple) and value:
        step = path + b"," if path else b"["
        for i, item in enumerate(value):
            _walk(item, step + b"%d" % i, found)
    else:
        found.append((_bare_kind(value, kind), (path or b"[") + b"]", 0, b""))


def _walk_object(value: dict[str, object], path: bytes, found: list[Parts]) -> None:
    if is_blob_ref(value):
        text = bytes.fromhex(str(value["blob"])) + int(str(value["length"])).to_bytes(8, "big")
        found.append((BLOB, path + b"]", 0, text))
        return
    step = path + b',"' if path else b'["'
    for key in sorted(value):
        _walk(value[key], step + key.encode() + b'"', found)


def _bare_kind(value: object, kind: type) -> int:
    """The kind of a leaf that has no text."""
    if value is None:
        return NULL
    if kind is bool:
        return TRUE if value else FALSE
    if kind is dict:
        return EMPTY_OBJECT
    if kind in (list, tuple):
        return EMPTY_ARRAY
    raise InvalidEvent(f"a body holds no {kind.__name__}")
