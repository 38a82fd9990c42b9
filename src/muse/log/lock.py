"""The kernel lock that makes one process the owner of a session.

The lock is `flock` on a file beside the log: it dies with its holder, however that dies, and two opens in one process
exclude each other too. The file is never unlinked while its log is there: only who holds the lock may take it away, and
only after the log (of a session that never began). What the file says about the holder serves messages only; it never
decides who owns. This module must not know what the lock protects.
"""

import contextlib
import fcntl
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from muse.errors import Busy
from muse.log.place import FILE_MODE, sync_folder, unavailable

_TRIES: Final = 8
_OWNER_BYTES_MAX: Final = 4096
_LOOK_TRIES: Final = 5
_LOOK_SECONDS: Final = 0.005
"""A listing, or `is_held` in general, keeps the lock from its owner to be for some microseconds."""


class Owner(msgspec.Struct, frozen=True):
    """Who holds (or last held) the lock. `started` is the kernel's start time of the process in clock ticks since
    boot, and `boot_id` names the boot, so that a pid used again is not taken for the owner; both may be unknown.
    `host` is the machine's name, of a container its own."""

    pid: int
    started: int = 0
    boot_id: str = ""
    host: str = ""


class OwnerLock:
    """The lock while it is held; made by `acquire`."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd: int | None = fd
        self._name = str(path)
        mine = os.fstat(fd)
        self._file = (mine.st_dev, mine.st_ino)

    def in_place(self) -> bool:
        """Whether the file that this lock is on is still the one that others would lock."""
        try:
            there = os.stat(self._name)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._file

    @property
    def held(self) -> bool:
        """Whether this object still holds the lock."""
        return self._fd is not None

    def release(self) -> None:
        """Give the lock back. Harmless when called twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def acquire(path: Path) -> OwnerLock:
    """Take the lock on `path`, made (0600) if missing, without waiting.

    Raises Busy, naming the holder's pid when known, or StoreUnavailable.
    """
    try:
        for _ in range(_TRIES):
            fd = _open(path)
            if not _lock(fd):
                os.close(fd)
                raise _busy(path)
            if _is_at(fd, path):
                _write_owner(fd)
                return OwnerLock(fd, path)
            os.close(fd)  # someone replaced the file between open and lock: the lock would guard nothing
    except OSError as error:
        raise unavailable(path, error) from error
    raise Busy(f"{path.name} is being replaced again and again")


def replace(path: Path) -> OwnerLock:
    """Take the ownership away from a holder that will not let go: a new lock file, locked, takes the place of the old.

    The old holder keeps a lock that nobody asks for any more; it is fenced by the epoch. Raises StoreUnavailable.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.fchmod(fd, FILE_MODE)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_owner(fd)
            draft.rename(path)
        except BaseException:
            os.close(fd)
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        return OwnerLock(fd, path)
    except OSError as error:
        raise unavailable(path, error) from error


def read_owner(path: Path) -> Owner | None:
    """What the lock file says about its holder, or None if it says nothing that can be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_OWNER_BYTES_MAX), type=Owner)
    return None


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now. Raises OSError if the file cannot be opened; missing is not held."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def this_process() -> Owner:
    """How the running process is recorded."""
    pid = os.getpid()
    name = socket.gethostname().encode("utf-8", "replace").decode()
    return Owner(pid=pid, started=start_time(pid), boot_id=boot_id(), host=name)


def start_time(pid: int) -> int:
    """The kernel's start time of a process (field 22 of /proc/<pid>/stat, clock ticks since boot); 0 if unknown."""
    if sys.platform != "linux":
        return 0
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])  # the name before may hold spaces and parentheses


def boot_id() -> str:
    """The random id of this boot, "" where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _lock(fd: int) -> bool:
    """Whether the lock was to be had, if not at once then a moment later: whoever only asks has it for an instant."""
    for left in reversed(range(_LOOK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_LOOK_SECONDS)
        else:
            return True
    return False


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        sync_folder(path.parent)
        return fd


def _is_at(fd: int, path: Path) -> bool:
    mine = os.fstat(fd)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _write_owner(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(this_process()), 0)


def _busy(path: Path) -> Busy:
    owner = read_owner(path)
    who = f"process {owner.pid}" if owner else "another process"
    return Busy(
        f"{who} owns this session", hint="`muse attach` follows it, `muse resume --take-over` ends it and goes on here"
    )
