"""What stands in a write-ahead log behind the last append that SQLite accepts, and what that means.

SQLite ends a write-ahead log at the first frame whose checksum does not hold, without a word. After a power loss that
is right: the frames behind it were never acknowledged. It is wrong where a synced frame was damaged later: then whole
appends stand behind it, and would be lost in silence. The two are told apart by what follows: an append is written only
when the one before is durable. This module must not know events.
"""

import os
import time
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import apsw

from muse.log.pages import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, Frame, WalHeader, frame_holds, frames_of, likely_header

_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.003


class Tail(NamedTuple):
    """`lost`: whole appends stand behind damage. `unfinished`: an append stands at the end that is not whole: it was
    cut off before it was acknowledged, or damaged since; nothing can tell which; or somebody is just writing it. `used`
    is how many frames SQLite accepts."""

    lost: bool = False
    unfinished: bool = False
    used: int = 0


def look_behind(db: apsw.Connection, path: Path) -> Tail:
    """Look behind the end of the write-ahead log of `path`; `db` has read from it. It costs what stands there."""
    wal = Path(f"{path}-wal")
    before = None
    for _ in range(_TRIES):
        used = _used(db)
        try:
            with wal.open("rb") as file:
                start = file.read(WAL_HEADER_BYTES)
                found = _look(file, max(used or 0, 0), path)._replace(used=used or 0)
                file.seek(0)
                same = file.read(WAL_HEADER_BYTES) == start
        except FileNotFoundError:
            return Tail()
        if used is not None and same and _used(db) == used:
            if found.lost or not found.unfinished or used == before:
                return found
            before = used  # it may be just being written: then there are more of them soon
        time.sleep(_PAUSE_SECONDS)
    return Tail()  # somebody writes right now, and what was seen is of no moment


def _used(db: apsw.Connection) -> int | None:
    """How many frames SQLite accepts. None while another process is just writing that down: no busy handler is asked
    then."""
    try:
        return db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
    except apsw.BusyError:
        return None


def _look(file: BinaryIO, used: int, path: Path) -> Tail:
    header = likely_header(file)
    if header is None:
        return Tail(unfinished=file.seek(0, os.SEEK_END) > 0)
    if not header.whole:
        return Tail(lost=_is_newer(file, header, path))
    frames = list(frames_of(file, header, first=used))
    ours = [at for at, frame in enumerate(frames) if _is_of(frame, header)]
    whole = WAL_HEADER_BYTES + (used + len(frames)) * (FRAME_HEADER_BYTES + header.page_size)
    is_cut = file.seek(0, os.SEEK_END) != whole
    if not ours:
        return Tail(unfinished=is_cut)
    return Tail(lost=_has_later_append(file, header, frames[: ours[-1] + 1], used), unfinished=True)


def _is_of(frame: Frame, header: WalHeader) -> bool:
    """Whether a frame belongs to this round of the log, one of its two salts being damaged at most."""
    return frame.salts[0] == header.salts[0] or frame.salts[1] == header.salts[1]


def _has_later_append(file: BinaryIO, header: WalHeader, frames: list[Frame], used: int) -> bool:
    """Whether behind the first append that is not whole there is the end of another, whose checksum holds."""
    before = header.sums
    if used:
        last = next(frames_of(file, header, first=used - 1), None)
        if last is None:
            return False  # cut meanwhile: whoever asks looks again
        before = last.sums
    is_broken = has_ended = False
    for frame in frames:
        holds = frame.salts == header.salts and frame_holds(file, header, frame, before)
        before = frame.sums
        if has_ended and holds and frame.commit and _is_of(frame, header):
            return True
        is_broken = is_broken or not holds
        has_ended = has_ended or (is_broken and frame.commit > 0)
    return False


def _is_newer(file: BinaryIO, header: WalHeader, path: Path) -> bool:
    """Whether a log whose header is damaged holds appended pages that are not in the main file yet."""
    newest: dict[int, Frame] = {}
    pending: dict[int, Frame] = {}
    before: Frame | None = None
    for frame in frames_of(file, header):
        if before and (frame.salts != before.salts or not frame_holds(file, header, frame, before.sums)):
            break
        pending[frame.page] = before = frame
        if frame.commit:
            newest |= pending
            pending = {}
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    main = apsw.VFSFile("", str(path), flags)  # SQLite's own way to the file: closing another would drop its locks
    try:
        for number, frame in newest.items():
            file.seek(frame.at)
            if _page(main, number, header.page_size) != file.read(header.page_size):
                return True
    finally:
        main.xClose()
    return False


def _page(main: apsw.VFSFile, number: int, size: int) -> bytes:
    offset = (number - 1) * size
    if main.xFileSize() < offset + size:
        return b""
    return main.xRead(size, offset)
