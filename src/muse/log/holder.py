"""Who holds a session's lock, as the kernel tells it, and how that process is ended.

What the lock file says about its holder is a note that anybody with this user's rights can write, so nobody is ended
for it: the process must be seen to hold the lock. A pid used again is not hit by mistake, because the process is
pinned (pidfd) before it is looked at. This module must not know what the lock protects.
"""

import contextlib
import os
import re
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from muse.errors import Busy
from muse.log.lock import boot_id, is_held, read_owner

LEAVE_SECONDS: Final = 3.0
"""How long a process is given to leave by itself."""
END_SECONDS: Final = 10.0
"""How long a killed process may take to be gone: one that waits for a dying disk takes its time."""

_flock: Final = re.compile(r"FLOCK\s+ADVISORY\s+WRITE\s+([0-9]+)\s+[0-9a-f]+:[0-9a-f]+:([0-9]+)\s")
_WAYS: Final = "or go on all the same with --force, after which one effect may start twice"


class Ended(NamedTuple):
    """The process that held the lock and has ended, and how; pid 0 when nobody held it."""

    pid: int
    how: str


def end_holder(lock: Path) -> Ended:
    """End the process that holds the lock: it is asked to leave (which cancels nothing), and killed when it does not,
    or cannot because it is stopped. The lock is free when this returns.

    Raises Busy, saying what to do, where no process can be seen to hold it, or the one that does cannot be ended.
    """
    pid = holder_of(lock)
    if pid == 0:
        if not _is_held(lock):
            return Ended(0, "nobody held it")
        raise _unseen(lock)
    if pid == os.getpid():
        raise Busy("this very process runs the session", hint="go on in it")
    try:
        pinned = os.pidfd_open(pid)
    except ProcessLookupError:
        return Ended(pid, "it had just ended")
    try:
        if not _holds(pid, lock):
            raise Busy("the session has just changed hands", hint="try again")
        return Ended(pid, _end(pid, pinned))
    except PermissionError as error:
        raise Busy(
            f"process {pid} runs this session, and you may not end it: {error.strerror}",
            hint=f"have its user end it (kill -9 {pid}), {_WAYS}",
        ) from error
    finally:
        os.close(pinned)


def holder_of(lock: Path) -> int:
    """The pid of the process that is seen to hold the lock, 0 if none is."""
    if sys.platform != "linux":
        return 0
    named = read_owner(lock)
    candidates = [named.pid] if named is not None and named.pid > 0 else []
    with contextlib.suppress(OSError):
        inode = lock.stat().st_ino
        listed = _flock.findall(Path("/proc/locks").read_text(encoding="ascii", errors="replace"))
        candidates += [int(pid) for pid, there in listed if int(there) == inode and int(pid) > 0]
    return next((pid for pid in candidates if _holds(pid, lock)), 0)


def _holds(pid: int, lock: Path) -> bool:
    """Whether this process has the lock file open and locked for itself."""
    with contextlib.suppress(OSError):
        wanted = lock.stat()
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{number}")
                if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
                    continue
                said = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii", errors="replace")
                if "FLOCK" in said and "WRITE" in said:
                    return True
    return False


def _end(pid: int, pinned: int) -> str:
    if not _is_stopped(pid):
        signal.pidfd_send_signal(pinned, signal.SIGTERM)
        if _is_over(pinned, LEAVE_SECONDS):
            return "it left when asked (SIGTERM)"
        why = f"it did not leave within {LEAVE_SECONDS:.0f} s"
    else:
        why = "it was stopped"
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pinned, signal.SIGKILL)
    if not _is_over(pinned, END_SECONDS):
        raise Busy(
            f"process {pid} runs this session and does not end, though it was killed: it waits for the system",
            hint=f"wait until it is gone, {_WAYS}",
        )
    return f"it was killed ({why})"


def _is_over(pinned: int, seconds: float) -> bool:
    """Whether the process ends in this time; its descriptors are closed, and its locks free, when it has."""
    watch = select.poll()
    watch.register(pinned, select.POLLIN)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if watch.poll(left * 1000):
            return True
    return False


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] in (b"T", b"t")


def _is_held(lock: Path) -> bool:
    try:
        return is_held(lock)
    except OSError:
        return True


def _unseen(lock: Path) -> Busy:
    """Somebody holds the lock, and it cannot be seen who."""
    named = read_owner(lock)
    if named is None:
        return Busy("another process runs this session, and it cannot be seen which", hint=f"find and end it, {_WAYS}")
    who = f"process {named.pid}"
    if sys.platform != "linux":
        return Busy(f"{who} runs this session", hint=f"end it yourself: kill -9 {named.pid}, {_WAYS}")
    if named.host and named.host != socket.gethostname():
        return Busy(f"{who} on {named.host} runs this session", hint=f"end it there, {_WAYS}")
    if named.boot_id and named.boot_id != boot_id():
        return Busy("a process of another machine runs this session", hint=f"end it there, {_WAYS}")
    return Busy(
        f"{who} runs this session, and cannot be seen from here: it runs in another container, or as another user",
        hint=f"end it there, {_WAYS}",
    )
