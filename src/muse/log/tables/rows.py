"""From events to rows: one gatherer a view, fed with a session's events in order.

What redaction hid is empty. A gatherer makes all columns of its rows but those that cost reading contents, which it
makes only when they are asked for. This module must not know SQL.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from muse.errors import Damaged, Incomplete, InvalidEvent
from muse.event.codec import Header, parse_header
from muse.event.commitment import Shown, parse_disclosed, steps
from muse.event.content import BlobRef
from muse.event.envelope import Event, Redacted, Unknown, decode
from muse.event.leaves import BLOB, EMPTY_ARRAY, EMPTY_OBJECT, FALSE, INTEGER, STRING, TRUE, Leaf
from muse.log.protocol import Stored

CONTENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Larger contents have a size and a digest, and no lines."""

_TYPE: Final = re.compile(rb'"type":"([^"]+)"')

Row = dict[str, Any]
Streams = Callable[[str], Iterator[bytes]]


class Fact(msgspec.Struct):
    """An event, its body as fields by name: what is hidden or unknown is not there."""

    head: Event | Header
    address: str
    fields: msgspec.Struct | dict[str, Any]
    stored: Stored

    @property
    def seq(self) -> int:
        """The event's number."""
        return self.head.seq

    @property
    def time(self) -> str:
        """When it was recorded."""
        return self.head.time

    @property
    def type(self) -> str:
        """The event's type."""
        return self.head.type

    @property
    def agent(self) -> str:
        """In whose lane it is."""
        return self.head.agent

    def get(self, name: str) -> Any:
        """A field as it is, None where there is none."""
        return self.fields.get(name) if isinstance(self.fields, dict) else getattr(self.fields, name, None)

    def text(self, name: str) -> str:
        """A text, "" where there is none."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        """A number (or a flag), None where there is none."""
        value = self.get(name)
        return int(value) if isinstance(value, int) else None

    def part(self, name: str) -> dict[str, Any]:
        """An object in it, {} where there is none."""
        value = _plain(self.get(name))
        return value if isinstance(value, dict) else {}

    def parts(self, name: str) -> list[Any]:
        """A list in it, [] where there is none."""
        value = _plain(self.get(name))
        return value if isinstance(value, list) else []


class Gatherer(Protocol):
    """Rows of one view for one session. It is given the events of `types` (None: all) in order, with fields where their
    type is among `bodies`."""

    types: frozenset[str] | None
    bodies: frozenset[str] | None

    def take(self, fact: Fact) -> None:
        """The next event."""
        ...

    def rows(self) -> Iterable[Row]:
        """The rows that are there since the last call: asked for after the last event, of a view with one row an event
        also before."""
        ...


def type_of(stored: Stored) -> str:
    """An event's type, without a look at the rest of its header."""
    found = _TYPE.search(stored.header)
    return found[1].decode() if found else ""


def fact_of(session: str, stored: Stored, *, whole: bool) -> Fact:
    """An event as a fact, with its fields if `whole`. Raises InvalidEvent for one that does not fit its type."""
    address = f"{session}@{stored.seq}"
    if not whole:
        return Fact(parse_header(stored.header), address, {}, stored)
    event = decode(stored.header, stored.body, stored.hidden)
    if isinstance(event.body, Redacted):
        return Fact(event, address, _left(event.body), stored)
    return Fact(event, address, {} if isinstance(event.body, Unknown) else event.body, stored)


def _plain(value: Any) -> Any:
    """Structs as dictionaries, but for blobs."""
    if isinstance(value, BlobRef):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _left(body: Redacted) -> dict[str, Any]:
    """The fields that redaction left, at any depth; a text without its hidden pieces."""
    try:
        leaves = [entry.leaf for entry in parse_disclosed(body.leaves).leaves if isinstance(entry, Shown)]
    except InvalidEvent:
        return {}
    found: dict[Any, Any] = {}
    for leaf in leaves:
        path = steps(leaf.path)
        place = found
        for step in path[:-1]:
            place = place.setdefault(step, {})
        if path and isinstance(place, dict):
            value = _value(leaf)
            before = place.get(path[-1])
            place[path[-1]] = before + value if isinstance(before, str) and isinstance(value, str) else value
    return {str(key): _listed(value) for key, value in found.items()}


def _listed(value: Any) -> Any:
    """Dictionaries by number as the lists that they were, without what is missing."""
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_listed(value[key]) for key in sorted(value)]
    return {key: _listed(item) for key, item in value.items()}


def _value(leaf: Leaf) -> Any:
    match leaf.kind:
        case k if k == STRING:
            return leaf.text.decode(errors="replace")
        case k if k == INTEGER:
            return int(leaf.text)
        case k if k == BLOB:
            return BlobRef(leaf.text[:32].hex(), int.from_bytes(leaf.text[32:], "big"))
        case k if k == EMPTY_ARRAY:
            return []
        case k if k == EMPTY_OBJECT:
            return {}
        case k if k in (TRUE, FALSE):
            return leaf.kind == TRUE
        case _:
            return None


class Contents:
    """What blobs hold, for the columns that ask for it."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def text(self, value: Any) -> str | None:
        """A text that may be a blob; None for one that is hidden."""
        if not isinstance(value, BlobRef):
            return value if isinstance(value, str) else None
        data = self.data(value)
        return None if data is None else data.decode(errors="replace")

    def data(self, ref: BlobRef) -> bytes | None:
        """A content, None where it is hidden, too large or damaged."""
        if ref.length > CONTENT_BYTES_MAX:
            return None
        try:
            return b"".join(self._streams(ref.blob))
        except (Incomplete, Damaged):
            return None

    def sha256(self, ref: BlobRef | None) -> str | None:
        """The digest of a content in hex, None where there is none."""
        if ref is None:
            return None
        digest = hashlib.sha256()
        try:
            for chunk in self._streams(ref.blob):
                digest.update(chunk)
        except (Incomplete, Damaged):
            return None
        return digest.hexdigest()


def milliseconds(begin: str | None, end: str | None) -> int | None:
    """From one header's time to another's."""
    try:
        gap = datetime.fromisoformat(end or "") - datetime.fromisoformat(begin or "")
    except ValueError:
        return None
    return round(gap.total_seconds() * 1000)


def lines_changed(change: dict[str, Any], contents: Contents) -> tuple[int, int] | None:
    """How many lines a file gained and lost, each line counted as often as it stands there; None for what is no text
    or was not recorded."""
    sides: list[Counter[bytes]] = []
    if not isinstance(change.get("before"), BlobRef) and not isinstance(change.get("after"), BlobRef):
        return None
    for name in ("before", "after"):
        ref = change.get(name)
        data = contents.data(ref) if isinstance(ref, BlobRef) else b""
        if data is None or b"\0" in data[:8000]:
            return None
        sides.append(Counter(data.split(b"\n")[: None if data and not data.endswith(b"\n") else -1]))
    before, after = sides
    return (after - before).total(), (before - after).total()
