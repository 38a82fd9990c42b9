"""A foreign file as lines of JSON, whatever was done to it, and values taken from them that cannot surprise.

A line that is no JSON object is a line all the same. What is nearly JSON (bytes that are no UTF-8, half of a surrogate
pair, NaN) is read with the damage replaced. This module must not know what a line means.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from muse.event.codec import INTEGER_MAX
from muse.event.text import clean

LINE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A longer line is not looked into."""
NO_TIME: Final = "1970-01-01T00:00:00.000000Z"
"""What an event's header says where the source has no time at all."""

_surrogate: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_decode: Final = msgspec.json.Decoder().decode
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode

Value = dict[str, Any]


class SourceFile(msgspec.Struct, frozen=True):
    """A file as it was read. `name` is what it is called by: no folders of the machine it lay on."""

    name: str
    data: bytes


class Line(msgspec.Struct, frozen=True):
    """A line of a file: its number (from 1), its bytes without the end, and the object that it spells (None: none).
    `mended`: not all of it could be read as it was."""

    number: int
    data: bytes
    value: Value | None
    mended: bool = False


class Lines:
    """The lines of a file that are not blank. They are read anew each time, so that a large file is not held twice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._spans: list[tuple[int, int, int]] = []
        start, number = 0, 0
        while start < len(data):
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            number += 1
            if data[start:end].strip():
                self._spans.append((number, start, end))
            start = end + 1

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> Line:
        number, start, end = self._spans[index]
        return read_line(self._data[start:end], number)

    def __iter__(self) -> Iterator[Line]:
        return (self[index] for index in range(len(self)))


def read_line(data: bytes, number: int = 1) -> Line:
    """A line of these bytes."""
    if len(data) > LINE_BYTES_MAX:
        return Line(number, data, None)
    if not _surrogate.search(data):
        try:
            value = _decode(data)
            return Line(number, data, value if type(value) is dict else None)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    text = data.decode("utf-8-sig", "replace")
    try:
        value = _cleaned(json.loads(text))
        return Line(number, data, value if type(value) is dict else None, mended=True)
    except (ValueError, RecursionError):
        return Line(number, data, None)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value).text
    if isinstance(value, dict):
        return {clean(key).text: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None  # NaN differs from itself
    return value


# -- exact text ------------------------------------------------------------------------------------------------------


def exact(line: Line, *path: str) -> str:
    """The JSON text of what stands at `path` in the line, as it stands there; written anew where the line had to be
    mended, "" where nothing is."""
    found = at(line.value, *path)
    if found is None:
        return ""
    if not line.mended:
        try:
            raw = msgspec.Raw(line.data)
            for step in path:
                raw = _raw_object(raw)[step]
            return bytes(raw).decode().strip()
        except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
            pass
    return written(found)


def exact_items(text: str) -> list[str]:
    """The JSON texts of an array's items."""
    try:
        return [bytes(raw).decode().strip() for raw in _raw_list(text)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


def exact_field(text: str, name: str) -> str:
    """The JSON text of a field of an object, "" where it is not there."""
    try:
        return bytes(_raw_object(text)[name]).decode().strip()
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
        return ""


def written(value: object) -> str:
    """A value as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        return json.dumps(value, default=str)


# -- values ----------------------------------------------------------------------------------------------------------


def at(value: object, *path: str) -> Any:
    """What stands at a path of keys, None where the path leads nowhere."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def text(value: object, *path: str) -> str:
    """The string at a path, "" where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """The number at a path that is none below 0 and fits an event; else 0."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0
    return int(found) if 0 <= found <= INTEGER_MAX else 0


def objects(value: object, *path: str) -> list[Value]:
    """The objects of the list at a path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def moment(value: object) -> str:
    """A time as event headers have it (RFC 3339 UTC with microseconds), "" for what is none. Without an offset it is
    taken for UTC."""
    if not isinstance(value, str) or not value:
        return ""
    try:
        read = datetime.fromisoformat(value)
        read = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        return read.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"
    except (ValueError, OverflowError):
        return ""
