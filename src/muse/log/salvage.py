"""What rows of a log can be found on the pages of its file, whatever became of its b-trees.

Every page is looked at: an event's row is known by its header's text, wherever it stands on a page; rows of the other
tables by their shape, in pages whose cells can still be told. All are candidates: `muse.log.recover` decides by their
commitments. Only their places are kept in memory. This module must not know chains.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from muse.errors import InvalidEvent
from muse.event.codec import parse_header
from muse.log.pages import TABLE_LEAF, Pages, Record, Value, record, size_of, values
from muse.log.protocol import Stored

_HEADER_START: Final = b'{"agent":"main'
_NULL: Final = 0
_ID: Final = 12 + 2 * 16
_HASH: Final = 12 + 2 * 32
_INTEGERS: Final = frozenset({1, 2, 3, 4, 5, 6, 8, 9})
_RECORD_HEADER_MAX: Final = 24
_META: Final = frozenset({b"session", b"epoch", b"opened"})


class Spot(NamedTuple):
    """Where a row's payload begins: page, offset on it, its whole length, and how many versions back (0: newest)."""

    page: int
    at: int
    length: int
    back: int


class BlobRow(NamedTuple):
    """A row of `blobs`."""

    row: int
    key: bytes | None
    length: int
    named: int


class Salvage:
    """The rows that were found. `last` is the highest seq that anything on the pages speaks of."""

    def __init__(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Look at every page; `progress` is told how many of how many."""
        self.pages = Pages(path)
        self.events: dict[int, list[Spot]] = {}
        self.hidden: dict[int, Spot] = {}
        self.blobs: dict[str, BlobRow] = {}
        self.chunks: dict[tuple[int, int], list[Spot]] = {}
        self.meta: dict[str, Value] = {}
        self.ids: dict[int, bytes] = {}
        self.last = 0
        count = self.pages.count
        for number in range(1, count + 1):
            self._look(number, self.pages.page(number), 0)
            if progress is not None and number % 5_000 == 0:
                progress(number, count)
        for number in range(1, count + 1):  # what lies under newer versions counts only where those hold nothing
            if self.pages.has_older(number):
                for back, page in enumerate(self.pages.older(number), 1):
                    self._look(number, page, back)

    @property
    def session(self) -> str:
        """The session's id as the file gives it, "" where that is lost."""
        found = self.meta.get("session")
        return found.decode(errors="replace") if isinstance(found, bytes) else ""

    def event(self, seq: int) -> Iterator[Stored]:
        """The candidates for an event, best first: a redacted one before one that is not, newer before older."""
        found = []
        for spot in self.events.get(seq, ()):
            payload = self._payload(spot, is_table=True)
            shape = record(payload) if payload is not None else None
            if payload is None or shape is None or not _is_event(shape):
                continue
            _, _, header, key, count, root, hash_, body = values(payload, shape)
            assert isinstance(header, bytes)
            assert isinstance(count, int)
            assert isinstance(root, bytes)
            assert isinstance(hash_, bytes)
            found.append(Stored(seq, header, _bytes(body), _bytes(key), count, root, hash_, None))
        leaves = self._leaves(seq)
        redacted = [one for one in found if one.body is None and leaves is not None]
        for one in redacted:
            yield Stored(seq, one.header, None, None, one.count, one.root, one.hash, leaves)
        if not redacted:
            yield from found

    def remains(self, seq: int) -> bytes:
        """The beginning of what stands where the event's row does, for a row whose end is lost; b"" for none."""
        for spot in self.events.get(seq, ()):
            return self._page(spot)[spot.at : spot.at + spot.length]
        return b""

    def chunk(self, row: int, i: int) -> Iterator[tuple[bytes, int, bytes | None]]:
        """(leaf, codec, data) of the candidates for a blob's chunk."""
        for spot in self.chunks.get((row, i), ()):
            payload = self._payload(spot, is_table=False)
            shape = record(payload) if payload is not None else None
            if payload is None or shape is None:
                continue
            _, _, leaf, codec, data = values(payload, shape)
            if isinstance(leaf, bytes) and isinstance(codec, int):
                yield leaf, codec, _bytes(data)

    def close(self) -> None:
        """Close the files."""
        self.pages.close()

    # ------------------------------------------------------------------ looking

    def _look(self, number: int, page: bytes, back: int) -> None:
        self._look_for_events(number, page, back)
        for length, rowid, at in self.pages.cells(number, page):
            shape = record(page, at)
            if shape is None or shape.length != length:
                continue
            if page[100 if number == 1 else 0] == TABLE_LEAF:
                self._take_row(Spot(number, at, length, back), rowid, shape.types, page)
            else:
                self._take_entry(Spot(number, at, length, back), shape, page)

    def _look_for_events(self, number: int, page: bytes, back: int) -> None:
        """Rows of `events`, found by their header's text: neither the page's own header nor its cell pointers are
        needed."""
        place = page.find(_HEADER_START)
        while place >= 0:
            found = _event_before(page, place)
            if found is not None:
                at, shape = found
                size = size_of(shape.types[2])
                if seq := _seq_of(page[place : place + size]):
                    self._add(self.events.setdefault(seq, []), Spot(number, at, shape.length, back))
            place = page.find(_HEADER_START, place + 1)

    def _take_row(self, spot: Spot, rowid: int, types: list[int], page: bytes) -> None:
        if len(types) == 2 and types[0] == _NULL and types[1] >= 12 and types[1] % 2 == 0:
            self.hidden.setdefault(rowid, spot)
        elif _is_event_types(types):
            self.last = max(self.last, rowid)
        elif len(types) == 5 and types[0] == _NULL and types[1] == _HASH and types[2] in (_NULL, _HASH):
            payload = page[spot.at : spot.at + spot.length]
            shape = record(payload)
            assert shape is not None
            _, root, key, length, named = values(payload, shape)
            if isinstance(root, bytes) and isinstance(length, int):
                seq = named if isinstance(named, int) else 0
                self.blobs.setdefault(root.hex(), BlobRow(rowid, _bytes(key), length, seq))

    def _take_entry(self, spot: Spot, shape: Record, page: bytes) -> None:
        types = shape.types
        if len(types) == 5 and types[2] == _HASH:
            head = values(page[spot.at :], shape)
            row, i = head[0], head[1]
            if isinstance(row, int) and isinstance(i, int):
                self._add(self.chunks.setdefault((row, i), []), spot)
        elif len(types) == 2 and spot.length <= len(page) - spot.at:
            first, second = values(page[spot.at : spot.at + spot.length], shape)
            if types[0] == _ID and isinstance(second, int) and isinstance(first, bytes) and 0 < second < 2**53:
                self.ids.setdefault(second, first)
                self.last = max(self.last, second)
            elif isinstance(first, bytes) and first in _META:
                self.meta.setdefault(first.decode(), second)

    def _add(self, spots: list[Spot], spot: Spot) -> None:
        """Newest first; of older versions only one, so that a page written a thousand times costs nothing."""
        if len(spots) < 2:
            spots.append(spot)

    # ------------------------------------------------------------------ reading

    def _leaves(self, seq: int) -> bytes | None:
        spot = self.hidden.get(seq)
        payload = self._payload(spot, is_table=True) if spot is not None else None
        shape = record(payload) if payload is not None else None
        if payload is None or shape is None:
            return None
        leaves = _bytes(values(payload, shape)[1])
        return leaves if leaves is not None and leaves.startswith(b"[") else None

    def _payload(self, spot: Spot, *, is_table: bool) -> bytes | None:
        return self.pages.payload(self._page(spot), spot.at, spot.length, is_table=is_table)

    def _page(self, spot: Spot) -> bytes:
        if not spot.back:
            return self.pages.page(spot.page)
        for back, page in enumerate(self.pages.older(spot.page), 1):
            if back == spot.back:
                return page
        return b""


def _event_before(page: bytes, place: int) -> tuple[int, Record] | None:
    """The record of `events` whose header column begins at `place`: it stands behind a record header and the id."""
    end = place - 16
    for size in range(8, _RECORD_HEADER_MAX):
        at = end - size
        if at < 0:
            return None
        if page[at] == size:
            shape = record(page, at)
            if shape is not None and shape.body == size and _is_event_types(shape.types):
                return at, shape
    return None


def _is_event(shape: Record) -> bool:
    return _is_event_types(shape.types)


def _is_event_types(types: list[int]) -> bool:
    return (
        len(types) == 8
        and types[0] == _NULL
        and types[1] == _ID
        and types[2] >= 12
        and types[3] in (_NULL, _HASH)
        and types[4] in _INTEGERS
        and types[5] == types[6] == _HASH
        and (types[7] == _NULL or (types[7] >= 12 and types[7] % 2 == 0))
    )


def _seq_of(header: bytes) -> int:
    """The seq that a header names, 0 where it cannot be read."""
    try:
        return parse_header(header).seq
    except InvalidEvent:
        at = header.find(b'"seq":')
        digits = header[at + 6 : at + 22].split(b",")[0] if at >= 0 else b""
        return int(digits) if digits.isdigit() else 0


def _bytes(value: Value) -> bytes | None:
    return value if isinstance(value, bytes) else None
