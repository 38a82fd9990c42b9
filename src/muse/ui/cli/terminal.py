"""One key at a time from a terminal, and the terminal as it was before, however the program ends.

Signals that end the program are turned into exceptions while keys are read, so that `finally` runs; after a stop
(Ctrl-Z) the mode is set again.
"""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_ESCAPE_SECONDS: Final = 0.05
"""How long the rest of an escape sequence may take to arrive."""
_SEQUENCES: Final = {
    b"[A": "up", b"[B": "down", b"[C": "right", b"[D": "left", b"[5~": "up", b"[6~": "down",
    b"OA": "up", b"OB": "down", b"OC": "right", b"OD": "left", b"[H": "home", b"[F": "end",
}  # fmt: skip


class Ended(SystemExit):
    """A signal asked the program to end; the exit code is 128 and its number."""


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """Read keys without waiting for Enter and without echo. Gives a function that returns the next key: a character,
    or `enter`, `backspace`, `escape`, `up`, `down`, `left`, `right`, `home`, `end`; "" at the end of input.

    Ctrl-C raises KeyboardInterrupt as always; SIGTERM and SIGHUP raise `Ended`.
    """
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(128 + number)

    def again(number: int, frame: FrameType | None) -> None:
        tty.setcbreak(fd)

    handlers = {number: signal.signal(number, end) for number in _ENDING}
    handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, again)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)  # what was typed ahead counts
        yield lambda: _key(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _key(fd: int) -> str:
    data = os.read(fd, 1)
    if not data or data == b"\x04":
        return ""
    if data in (b"\r", b"\n"):
        return "enter"
    if data in (b"\x7f", b"\x08"):
        return "backspace"
    if data == b"\x1b":
        return _sequence(fd)
    while True:  # the rest of a character of several bytes
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data" or len(data) >= 4:
                return "?"
            data += os.read(fd, 1)


def _sequence(fd: int) -> str:
    """What stands after an escape: the name of a key, or `escape` for the key itself and for what is not known."""
    data = b""
    while len(data) < 8 and select.select([fd], [], [], _ESCAPE_SECONDS)[0]:
        data += os.read(fd, 1)
        if (data[-1:].isalpha() and data != b"O") or data[-1:] == b"~":
            break
    return _SEQUENCES.get(data, "escape")
