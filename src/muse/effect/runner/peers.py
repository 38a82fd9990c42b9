"""Who has connected to a runner's socket, and whether one of its own commands is behind it.

A command that could speak to its runner could start others outside every sandbox, or stop the runner. Standard library
only, because the supervisor is built from this module.
"""

import os
import select
import socket
import struct

ANCESTRY_MAX = 256
"""How many parents are looked at; a longer chain counts as one that cannot be told."""

_SO_PEERPIDFD = 77
"""From Linux 6.5 on: a descriptor of the peer, which names no later process with the same pid."""


def is_below(sock: socket.socket, own: list[str]) -> bool:
    """Whether the peer descends from a process whose command line holds all of `own`, or that cannot be told.

    Keepers are subreapers, so whatever a command starts stays below one of them, and a keeper has the command line of
    the supervisor that it was forked from, also of one that died. Outside Linux nothing is known, and nothing refused.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
    peer = _descriptor(sock)
    try:
        lines = _lines_above(pid)
        # Looked at last: as long as the peer lives, what was read above was about it and nobody else.
        gone = peer >= 0 and _is_readable(peer)
    finally:
        if peer >= 0:
            os.close(peer)
    marks = [os.fsencode(text) for text in own]
    return gone or not lines or any(all(mark in line for mark in marks) for line in lines)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _descriptor(sock: socket.socket) -> int:
    """A pidfd of the peer, -1 where the kernel has none to give; the bare pid has to do there."""
    try:
        return int(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    except OSError:
        return -1


def _is_of_another_user(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _lines_above(pid: int) -> list[list[bytes]]:
    """The command lines of a process and of its parents, up to the first one or to one of another user that cannot be
    seen (hidepid); empty when that cannot be told."""
    lines = []
    for _ in range(ANCESTRY_MAX):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read().split(b"\0"))
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return lines if _is_of_another_user(pid) else []
        if pid == 0:  # the first process, or the first one of a container
            return lines
    return []
