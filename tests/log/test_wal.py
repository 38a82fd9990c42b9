"""The end of a write-ahead log, looked at while its owner moves it into the main file and cuts it."""

import io
import os
import shutil
from pathlib import Path

import pytest

from muse.event.kinds import COMMANDS
from muse.log.pages import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, frame_holds, frames_of, likely_header
from muse.log.sqlite import SqliteLog
from muse.testing.drafts import draft


class Cut(io.BytesIO):
    """A file of which somebody leaves `left` bytes as soon as its size was asked for."""

    def __init__(self, data: bytes, left: int) -> None:
        super().__init__(data)
        self.left = left

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        at = super().seek(offset, whence)
        if whence == os.SEEK_END:
            self.truncate(self.left)
        return at


@pytest.fixture
def wal(tmp_path: Path) -> bytes:
    """A write-ahead log of a few appends."""
    with SqliteLog.create(tmp_path / "s.muse", "s", commands=COMMANDS) as log:
        for n in range(3):
            log.submit(draft("user.prompted", {"text": f"note {n}"}))
        return Path(shutil.copy(tmp_path / "s.muse-wal", tmp_path / "copy")).read_bytes()


def test_frames_end_where_the_file_was_cut_meanwhile(wal: bytes) -> None:
    header = likely_header(io.BytesIO(wal))
    assert header is not None
    assert header.whole
    whole = list(frames_of(io.BytesIO(wal), header))
    assert len(whole) >= 3
    step = FRAME_HEADER_BYTES + header.page_size
    for frames in range(len(whole)):
        for more in (0, 1, FRAME_HEADER_BYTES - 1):
            cut = Cut(wal, WAL_HEADER_BYTES + frames * step + more)
            assert list(frames_of(cut, header)) == whole[:frames]


def test_a_frame_of_which_a_part_is_gone_does_not_hold(wal: bytes) -> None:
    header = likely_header(io.BytesIO(wal))
    assert header is not None
    first = next(frames_of(io.BytesIO(wal), header))
    assert frame_holds(io.BytesIO(wal), header, first, header.sums)
    for left in (0, 4, FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + 5):
        assert not frame_holds(io.BytesIO(wal[: WAL_HEADER_BYTES + left]), header, first, header.sums)
