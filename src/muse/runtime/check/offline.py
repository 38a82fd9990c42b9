"""Keeps sockets and other processes out of a piece of work: whatever in this process tries one is refused.

Python tells its audit hooks (PEP 578) before a socket is made, connects, binds, sends or asks for a name, and before a
process is started by `os` or `subprocess`. It tells nothing of what C code does by itself: `ctypes`, and
`multiprocessing` with "spawn". A hook cannot be taken away again, so one is set once and asks whether anybody is
offline just now.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

REFUSED: Final = frozenset(
    {
        "socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
        "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "subprocess.Popen", "os.system",
        "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn",
    }
)  # fmt: skip
"""The audit events that are refused (docs.python.org, "Audit events table")."""


class NotOffline(AssertionError):
    """Something tried to reach the network or to start a process where nothing may."""


_depth = 0
_is_hooked = False


@contextmanager
def offline() -> Iterator[None]:
    """While this holds, every socket and every process is refused with `NotOffline`, in all threads."""
    global _depth, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_hook)
        _is_hooked = True
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def _hook(event: str, _args: object) -> None:
    if _depth and event in REFUSED:
        raise NotOffline(f"{event} while nothing may leave this process")
