"""A log put away: its file as it was, byte for byte, in one zstd frame with a checksum, and unpacked to be read.

An archived log is read from a copy that lasts as long as it is open, in a folder of its own that says which process
made it. This module must not know where archives are kept, nor what a log means.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, Protocol, Self

import apsw

from muse.errors import Damaged, StoreUnavailable
from muse.log.lock import start_time
from muse.log.place import has_room, private_file, private_folder, sync_folder, unavailable
from muse.log.sqlite import SqliteLog

SUFFIX: Final = ".muse.zst"
LEVEL: Final = 9
CHUNK_BYTES: Final = 1 << 20


class Digest(Protocol):
    """A hash that is fed."""

    def update(self, data: bytes, /) -> None:
        """The next bytes."""


def pack(source: Path, target: Path) -> tuple[int, str]:
    """Write a file packed to a new one (0600), durably; (its size, SHA-256 of the source in hex). Nobody may have the
    source open in this process. Raises StoreUnavailable."""
    digest = hashlib.sha256()
    try:
        private_folder(target.parent)
        private_file(target)
        with source.open("rb") as plain, target.open("r+b") as file:
            for chunk in _packed(plain, digest):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(target.parent)
        return target.stat().st_size, digest.hexdigest()
    except OSError as error:
        raise unavailable(target, error) from error


def unpack(source: Path, target: Path) -> str:
    """Write what was packed to a new file (0600), durably; its SHA-256 in hex. The reserve of free space is left.
    Raises Damaged for a packed file that is not whole, StoreUnavailable."""
    digest = hashlib.sha256()
    try:
        private_folder(target.parent)
        private_file(target)
        with source.open("rb") as file, target.open("r+b") as plain:
            for chunk in _unpacked(file, source):
                if not has_room(target.parent):  # a few bytes may stand for any number
                    raise StoreUnavailable(
                        f"{source} is too large to be unpacked in {target.parent}", hint="free some space there"
                    )
                digest.update(chunk)
                plain.write(chunk)
            plain.flush()
            os.fsync(plain.fileno())
        sync_folder(target.parent)
        return digest.hexdigest()
    except OSError as error:
        raise unavailable(source if error.filename == str(source) else target, error) from error


def is_archive(path: Path) -> bool:
    """Whether a file is named like a log that was put away."""
    return path.name.endswith(SUFFIX)


def unpacked_prefix() -> str:
    """How the name of a folder for unpacked copies begins: with the process that made it (pid and start time)."""
    return f"{os.getpid()}-{start_time(os.getpid())}."


class UnpackedLog(SqliteLog):
    """An archived log, open for reading; closing it takes the unpacked copy away."""

    _folder: Path

    @classmethod
    def of(cls, archive: Path, cache: Path, *, commands: Mapping[str, int], check: bool) -> Self:
        """Unpack into a folder of its own below `cache`, and open. Raises what `unpack` and opening raise."""
        folder = cache / f"{unpacked_prefix()}{os.urandom(4).hex()}"
        try:
            copy = folder / archive.name.removesuffix(".zst")
            unpack(archive, copy)
            log = cls.open(copy, commands=commands, read_only=True, check=check)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        log._folder = folder
        return log

    def __init__(self, path: Path, db: apsw.Connection, session: str, commands: Mapping[str, int], read_only: bool):
        super().__init__(path, db, session, commands, read_only)
        self._folder = path.parent

    def close(self) -> None:
        """Close, and take the copy away."""
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _packed(plain: BinaryIO, digest: Digest) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    packer = zstd.ZstdCompressor(options=options)
    while chunk := plain.read(CHUNK_BYTES):
        digest.update(chunk)
        yield packer.compress(chunk)
    yield packer.flush()


def _unpacked(file: BinaryIO, source: Path) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.open(file, "rb") as packed:
            while chunk := packed.read(CHUNK_BYTES):
                yield chunk
    except EOFError as error:
        raise Damaged(f"{source} is cut off") from error
    except zstd.ZstdError as error:
        raise Damaged(f"{source} is damaged: {error}") from error


def require_room(folder: Path, size: int) -> None:
    """Raises StoreUnavailable when `size` bytes would not fit where `folder` is to stand."""
    place = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(place).free
    if free < size:
        raise StoreUnavailable(
            f"{place} has {free} bytes free, {size} are needed", hint="free some space, or give --to"
        )
