"""The pages of a log's file, read without SQLite: for files that SQLite cannot read (any more).

Written from SQLite's published file format (https://sqlite.org/fileformat2.html): pages, cells, records, overflow
chains and the frames of the write-ahead log. Nothing here writes, locks or trusts: whatever is read is only a candidate
until its commitment was checked. This module must not know events.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

PAGE_SIZE: Final = 4096
"""What muse's logs have; a header that is whole may say otherwise."""
HEADER: Final = b"SQLite format 3\0"
WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_WAL_MAGIC: Final = 0x377F0682
_FREE_HEADER_BYTES: Final = 100
TABLE_LEAF: Final = 0x0D
INDEX_LEAF: Final = 0x0A
INDEX_INTERIOR: Final = 0x02
_CELLS_MAX: Final = 4096
PAYLOAD_BYTES_MAX: Final = 1_000_000_000
"""SQLite's own limit for a row."""

Value = int | bytes | None


class Frame(NamedTuple):
    """One page in a write-ahead log: its number, the database's size in pages if it ends a commit (else 0), where its
    content stands in the file, the salts and checksums of its header."""

    page: int
    commit: int
    at: int
    salts: tuple[int, int]
    sums: tuple[int, int]


class Record(NamedTuple):
    """A record's column sizes: serial types, where its values begin, and how long it is in all."""

    types: list[int]
    body: int
    length: int


# ---------------------------------------------------------------------- the write-ahead log


class WalHeader(NamedTuple):
    """What the first 32 bytes say; `whole` if their checksum holds."""

    big_endian: bool
    page_size: int
    salts: tuple[int, int]
    sums: tuple[int, int]
    whole: bool


def checksum(data: bytes, big_endian: bool, sums: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's checksum of a write-ahead log, over a multiple of eight bytes, carried on from `sums`."""
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    first, second = sums
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second


def wal_header(data: bytes) -> WalHeader | None:
    """The header of a write-ahead log, None where there are not even its bytes."""
    if len(data) < WAL_HEADER_BYTES:
        return None
    magic, _, page_size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", data[:WAL_HEADER_BYTES])
    big = bool(magic & 1)
    whole = magic & ~1 == _WAL_MAGIC and checksum(data[:24], big) == (sum1, sum2) and _is_size(page_size)
    return WalHeader(big, page_size if whole else PAGE_SIZE, (salt1, salt2), (sum1, sum2), whole)


def likely_header(file: BinaryIO) -> WalHeader | None:
    """The header of a write-ahead log; where it is damaged, the order of bytes is that under which its frames hold."""
    file.seek(0)
    header = wal_header(file.read(WAL_HEADER_BYTES))
    if header is None or header.whole:
        return header
    first_two = list(islice(frames_of(file, header), 2))
    for guess in (header, header._replace(big_endian=not header.big_endian)):
        if len(first_two) == 2 and frame_holds(file, guess, first_two[1], first_two[0].sums):
            return guess
    return header


def frames_of(file: BinaryIO, header: WalHeader, first: int = 0) -> Iterator[Frame]:
    """The frames of a write-ahead log from number `first` on, as their headers say; nothing is checked. Somebody may
    cut the file meanwhile: they end there."""
    step = FRAME_HEADER_BYTES + header.page_size
    file.seek(0, 2)
    size = file.tell()
    at = WAL_HEADER_BYTES + first * step
    while at + step <= size:
        file.seek(at)
        data = file.read(FRAME_HEADER_BYTES)
        if len(data) < FRAME_HEADER_BYTES:
            return
        page, commit, salt1, salt2, sum1, sum2 = struct.unpack(">6I", data)
        yield Frame(page, commit, at + FRAME_HEADER_BYTES, (salt1, salt2), (sum1, sum2))
        at += step


def frame_holds(file: BinaryIO, header: WalHeader, frame: Frame, before: tuple[int, int]) -> bool:
    """Whether a frame's checksum follows from the one before it (as that one's header gives it)."""
    file.seek(frame.at - FRAME_HEADER_BYTES)
    data = file.read(FRAME_HEADER_BYTES + header.page_size)
    if len(data) < FRAME_HEADER_BYTES + header.page_size:
        return False  # cut meanwhile
    sums = checksum(data[:8] + data[FRAME_HEADER_BYTES:], header.big_endian, before)
    return sums == frame.sums


# ---------------------------------------------------------------------- pages


class Pages:
    """A file's pages as of the last commit: those of the main file under the whole frames of its write-ahead log.

    Each frame is judged by itself, against the checksum that the one before it names: a broken frame hides one page,
    not all that follow. `broken_frames` counts those; `older` gives what lies under newer versions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._main = path.open("rb")
        self._wal: BinaryIO | None = None
        self._frames: dict[int, list[int]] = {}
        self.broken_frames = 0
        self._wal_count = 0
        start = self._main.read(_FREE_HEADER_BYTES)
        self.has_header = start.startswith(HEADER)
        self.page_size = _page_size(start)
        self._usable = self.page_size - (start[20] if self.has_header and start[20] < 64 else 0)
        self._main.seek(0, 2)
        self.main_bytes = self._main.tell()
        self._overlay(Path(f"{path}-wal"))
        self._page_at: tuple[int, bytes] = (0, b"")

    def _overlay(self, wal: Path) -> None:
        try:
            self._wal = wal.open("rb")
        except FileNotFoundError:
            return
        header = likely_header(self._wal)
        if header is None or header.page_size != self.page_size:
            return
        pending: list[Frame] = []
        before, salts = header.sums, header.salts if header.whole else None
        for frame in frames_of(self._wal, header):
            salts = salts or frame.salts  # a header that is broken does not say: then the first frame does
            is_ours = frame.salts[0] == salts[0] or frame.salts[1] == salts[1]  # else of an earlier round
            is_first = not header.whole and self._wal_count == 0
            if is_ours and (is_first or frame_holds(self._wal, header, frame, before)):
                pending.append(frame)
            else:
                self.broken_frames += 1
            before = frame.sums
            self._wal_count += 1
            if frame.commit and is_ours:
                for one in pending:
                    self._frames.setdefault(one.page, []).append(one.at)
                pending = []

    @property
    def count(self) -> int:
        """How many pages there are, a last one that was cut included."""
        main = -(-self.main_bytes // self.page_size)
        return max([main, *self._frames])

    def page(self, number: int) -> bytes:
        """The newest version of a page, filled up with zeros where the file was cut; b"" where there is none."""
        if self._page_at[0] != number:
            at = self._frames.get(number)
            self._page_at = (number, self._read_wal(at[-1]) if at else self._read_main(number))
        return self._page_at[1]

    def older(self, number: int) -> Iterator[bytes]:
        """Earlier versions of a page, newest first."""
        at = self._frames.get(number, [])
        for one in reversed(at[:-1]):
            yield self._read_wal(one)
        if at and (main := self._read_main(number)):
            yield main

    def has_older(self, number: int) -> bool:
        """Whether a page has earlier versions."""
        return number in self._frames

    def _read_main(self, number: int) -> bytes:
        self._main.seek((number - 1) * self.page_size)
        data = self._main.read(self.page_size)
        return data.ljust(self.page_size, b"\0") if data else b""

    def _read_wal(self, at: int) -> bytes:
        assert self._wal is not None
        self._wal.seek(at)
        return self._wal.read(self.page_size)

    # ------------------------------------------------------------------ cells

    def cells(self, number: int, page: bytes) -> Iterator[tuple[int, int, int]]:
        """(payload length, rowid, where the payload begins) of each cell of a leaf or index page; rowid is 0 in an
        index. What cannot be a cell is passed over."""
        start = _FREE_HEADER_BYTES if number == 1 else 0
        kind = page[start] if page else 0
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
            return
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        table = start + (12 if kind == INDEX_INTERIOR else 8)
        if count > _CELLS_MAX or table + 2 * count > len(page):
            return
        for pointer in struct.unpack(f">{count}H", page[table : table + 2 * count]):
            at = pointer + (4 if kind == INDEX_INTERIOR else 0)
            length, at = varint(page, at)
            rowid = 0
            if kind == TABLE_LEAF:
                rowid, at = varint(page, at)
            if 0 < at < len(page) and 0 < length <= PAYLOAD_BYTES_MAX:
                yield length, rowid, at

    def payload(self, page: bytes, at: int, length: int, *, is_table: bool) -> bytes | None:
        """A cell's whole payload, overflow pages included; None where their chain is broken."""
        local = self._local(length, is_table)
        data = page[at : at + local]
        if len(data) < local:
            return None
        if local == length:
            return data
        parts, left = [data], length - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        step = self._usable - 4
        count = self.count
        while left > 0:
            if not 0 < following <= count:
                return None
            more = self._newest(following)
            parts.append(more[4 : 4 + min(step, left)])
            left -= step
            following = int.from_bytes(more[:4], "big")
        whole = b"".join(parts)
        return whole if len(whole) == length else None

    def _newest(self, number: int) -> bytes:
        at = self._frames.get(number)
        return self._read_wal(at[-1]) if at else self._read_main(number)

    def _local(self, length: int, is_table: bool) -> int:
        """How much of a payload stands on the page itself (file format, section 1.6)."""
        usable = self._usable
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if length <= most:
            return length
        least = (usable - 12) * 32 // 255 - 23
        some = least + (length - least) % (usable - 4)
        return some if some <= most else least

    def close(self) -> None:
        """Close the files."""
        self._main.close()
        if self._wal is not None:
            self._wal.close()


# ---------------------------------------------------------------------- records


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and where it ends; (0, 0) where the data ends first."""
    value = 0
    for step in range(9):
        if at + step >= len(data):
            return 0, 0
        byte = data[at + step]
        if step == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + step + 1
    return 0, 0


def size_of(serial: int) -> int:
    """How many bytes a value of this serial type takes."""
    if serial >= 12:
        return (serial - 12) // 2
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[serial]


def record(data: bytes, at: int = 0) -> Record | None:
    """The shape of the record that begins at `at`, None where none can."""
    header, place = varint(data, at)
    if not 1 < header <= 64 or at + header > len(data):
        return None
    end = at + header
    types = []
    while place < end:
        serial, place = varint(data, place)
        if place == 0:
            return None
        types.append(serial)
    if place != end:
        return None
    return Record(types, header, header + sum(map(size_of, types)))


def values(data: bytes, shape: Record) -> list[Value]:
    """The values of a whole record. Numbers that are no integers come as None: muse's tables have none."""
    found: list[Value] = []
    at = shape.body
    for serial in shape.types:
        size = size_of(serial)
        part = data[at : at + size]
        at += size
        if serial in (8, 9):
            found.append(serial - 8)
        elif 0 < serial <= 6:
            found.append(int.from_bytes(part, "big", signed=True))
        elif serial >= 12:
            found.append(part)
        else:
            found.append(None)
    return found


def _is_size(page_size: int) -> bool:
    return 512 <= page_size <= 65536 and page_size & (page_size - 1) == 0


def _page_size(start: bytes) -> int:
    if not start.startswith(HEADER):
        return PAGE_SIZE
    said = int.from_bytes(start[16:18], "big")
    said = 65536 if said == 1 else said
    return said if _is_size(said) else PAGE_SIZE
