"""Copies files as they are from one folder to another: bytes, permission bits, times, and links as links.

What is copied was written by others: a folder of the list may have become a link since, and a link may lead anywhere.
Nothing is read through a link, and links are made last, so that nothing is written through one either. How much is
copied is limited, by files, bytes, free space and time. This module must not know what a repository is.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from muse.effect.tool.files import opened_folder
from muse.errors import MuseError
from muse.event.text import clean

FILES_MAX: Final = 100_000
BYTES_MAX: Final = 4 << 30
"""What the tree of a repository may hold."""

FOLDER_FILES_MAX: Final = 20_000
FOLDER_BYTES_MAX: Final = 1 << 30
"""The same of a folder that is no repository, of which nobody says what need not be copied."""

PREPARE_SECONDS_MAX: Final = 300.0
FREE_BYTES_MIN: Final = 256 << 20
"""What has to stay free where the copy goes, or a tenth of that disk if it is less."""

PART_BYTES: Final = 1 << 20
LOOKED_EVERY_BYTES: Final = 64 << 20
"""After how many bytes free space is looked at again."""

SMALLER: Final = "let git ignore what need not be copied, or spawn the agent with isolation shared"


class WorktreeError(MuseError):
    """A working tree could not be made, or not be taken away; the message says why."""


class Limits:
    """How much may still be copied to `target`. Raises WorktreeError when it is too much."""

    def __init__(self, target: Path, files: int, size: int) -> None:
        self._target = target
        self._files_max, self._bytes_max = files, size
        self._files = self._bytes = 0
        self._looked_at = -LOOKED_EVERY_BYTES
        self._until = time.monotonic() + PREPARE_SECONDS_MAX

    def take(self, size: int) -> None:
        """One more file, of that size."""
        self._files += 1
        self._bytes += size
        if self._files > self._files_max:
            raise WorktreeError(f"the workspace holds more than {self._files_max} files", hint=SMALLER)
        if self._bytes > self._bytes_max:
            raise WorktreeError(f"the workspace holds more than {self._bytes_max >> 20} MiB", hint=SMALLER)
        if time.monotonic() > self._until:
            raise WorktreeError(f"copying the workspace took longer than {PREPARE_SECONDS_MAX:g} s", hint=SMALLER)
        if self._bytes - self._looked_at >= LOOKED_EVERY_BYTES:
            self._looked_at = self._bytes
            disk = shutil.disk_usage(self._target)
            if disk.free < min(FREE_BYTES_MIN, disk.total // 10) + min(size, self._bytes_max):
                raise WorktreeError("there is too little free space for a copy of the workspace")


def lay_over(source: Path, target: Path, paths: Iterable[bytes], limits: Limits) -> list[str]:
    """Copy these paths (relative, no folders but for those that are to be there) from `source` to the same place below
    `target`. What is not there is left out. Returns what was left out although it is there: repositories within, what
    is no file, what cannot be read. Raises WorktreeError and OSError."""
    one, other = os.fsencode(source) + b"/", os.fsencode(target) + b"/"
    folders: dict[bytes, bool] = {}
    made: set[bytes] = set()
    links: list[bytes] = []
    left: list[str] = []
    for path in paths:
        if not _is_plain(path) or _is_below_link(path.rpartition(b"/")[0], one, folders):
            continue
        try:
            seen = os.lstat(one + path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        limits.take(seen.st_size if stat.S_ISREG(seen.st_mode) else 0)
        if stat.S_ISLNK(seen.st_mode):
            links.append(path)
            continue
        if stat.S_ISDIR(seen.st_mode):
            os.makedirs(other + path, exist_ok=True)
            with os.scandir(one + path) as entries:
                left += [clean(path).text + "/"] if next(entries, None) is not None else []
            continue
        if (above := os.path.dirname(other + path)) not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        if not stat.S_ISREG(seen.st_mode) or not _copy(one + path, other + path):
            left.append(clean(path).text)
    for path in links:
        with suppress(FileNotFoundError):
            leads = os.readlink(one + path)
            os.makedirs(os.path.dirname(other + path), exist_ok=True)
            os.symlink(leads, other + path)
    return left


def put(root: Path, path: str, data: bytes | None, mode: int) -> None:
    """Make a path below `root` hold this content (None: nothing), as a link where the mode says so. No link is followed
    on the way. Raises WorktreeError for a path that leads out, OSError."""
    if not _is_plain(os.fsencode(path)):
        raise WorktreeError(f"{clean(path).text} is no path of a working tree")
    parts = path.split("/")
    with opened_folder(root, parts[:-1], create=data is not None) as folder:
        with suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=folder)
        if data is None:
            return
        if stat.S_ISLNK(mode):
            os.symlink(os.fsdecode(data), parts[-1], dir_fd=folder)
            return
        file = os.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o777, dir_fd=folder)
        with os.fdopen(file, "wb") as opened:
            opened.write(data)


def walked(source: Path, without: Path) -> Iterator[bytes]:
    """The paths of all that a folder holds, but for git folders and for what stands in `without`. Raises
    WorktreeError where a folder cannot be read."""
    root = os.fsencode(source)
    beside = os.fsencode(without)
    waiting = [b""]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(root + b"/" + here) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise WorktreeError(f"{clean(here).text or source} cannot be read: {error.strerror}") from error
        for entry in found:
            path = here + entry.name
            if entry.name == b".git" or entry.path == beside:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path + b"/")
            else:
                yield path


def _copy(source: bytes, target: bytes) -> bool:
    """Whether it could be read. A file that shrinks or grows meanwhile is copied as it was read."""
    try:
        read = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        seen = os.fstat(read)
        if not stat.S_ISREG(seen.st_mode):
            return False
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = BYTES_MAX
            while left > 0 and (part := memoryview(os.read(read, min(PART_BYTES, left)))):
                left -= len(part)
                while part:
                    part = part[os.write(write, part) :]
            os.fchmod(write, stat.S_IMODE(seen.st_mode) & 0o777)
            os.utime(write, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        finally:
            os.close(write)
    finally:
        os.close(read)
    return True


def _is_plain(path: bytes) -> bool:
    """Whether a path stays below where it begins, and enters no git folder."""
    parts = path.split(b"/")
    return not any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts)


def _is_below_link(folder: bytes, root: bytes, known: dict[bytes, bool]) -> bool:
    """Whether a folder is a link by now, or stands below one; `known` keeps what was found."""
    if not folder:
        return False
    if folder not in known:
        above = _is_below_link(folder.rpartition(b"/")[0], root, known)
        known[folder] = above or os.path.islink(root + folder)
    return known[folder]
