"""Space for the log: the reserve below which a run stops, and a disk that is too small for a log at all."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse.errors import StoreUnavailable
from muse.log import place
from muse.log.archive import pack, unpack
from muse.log.sqlite import SqliteLog
from muse.testing.store import COMMANDS, own

MakeDisk = Callable[[str], Path]


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Mounts a file system of the given size, or skips where this user may not."""
    mounted: list[Path] = []

    def make(size: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a small file system needs the right to mount one")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(
    ("size", "reserve"), [(0, 0), (1_000_000, 20_000), (800 << 20, 16 << 20), (4_000_000_000_000, 16 << 20)]
)
def test_the_reserve_is_two_percent_and_sixteen_mebibytes_at_most(size: int, reserve: int) -> None:
    assert place.reserve_bytes(size) == reserve


def test_a_folder_that_is_gone_is_not_called_full(tmp_path: Path) -> None:
    assert place.has_room(tmp_path / "gone")


def test_below_the_reserve_there_is_no_room_until_space_returns(make_disk: MakeDisk) -> None:
    disk = make_disk("4m")
    ballast = disk / "ballast"
    with SqliteLog.create(disk / "s.muse", "s", commands=COMMANDS) as log:
        own(log)
        assert log.room()
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        ballast.write_bytes(bytes(free - 120 * 1024))  # 2 % of 4 MiB is 82 KiB
        assert log.room()
        ballast.write_bytes(bytes(free - 60 * 1024))
        assert not log.room()
        ballast.unlink()
        assert log.room()


@pytest.mark.parametrize("size", ["4k", "20k", "32k", "64k", "90k"])
def test_a_log_that_does_not_fit_on_the_disk_is_no_damage_and_leaves_nothing(make_disk: MakeDisk, size: str) -> None:
    disk = make_disk(size)
    with pytest.raises(StoreUnavailable) as refusal:
        SqliteLog.create(disk / "s.muse", "s", commands=COMMANDS)
    assert refusal.value.hint
    assert list(disk.iterdir()) == []


def test_a_packed_file_that_would_fill_the_disk_is_not_unpacked(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk("64m")
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(bytes(80 << 20))
    pack(plain, packed)
    with pytest.raises(StoreUnavailable, match="too large"):
        unpack(packed, disk / "folder" / "copy")
    assert not place.has_room(disk)
    (disk / "folder" / "copy").unlink()
    os.truncate(plain, 1 << 20)
    packed.unlink()
    pack(plain, packed)
    unpack(packed, disk / "folder" / "copy")
