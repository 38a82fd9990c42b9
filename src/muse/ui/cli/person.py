"""A person at a terminal: single keys and short lines, read without blocking the event loop.

The terminal's own modes are put back after every read, and by `restore` when the process ends in between. This module
must not know what is asked.
"""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio

KEY_BYTES_MAX: Final = 256
LINE_BYTES_MAX: Final = 4096
"""The longest line that a terminal in its usual mode hands over (Linux, n_tty)."""

_LOCAL: Final = 3  # index of the local modes in what tcgetattr returns
_CONTROL: Final = 6


class Terminal:
    """The keyboard of the terminal on standard input."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._usual = termios.tcgetattr(self._fd)
        self._changed = False

    @property
    def here(self) -> bool:
        """Whether this process is the terminal's foreground job: from the background, touching its modes would stop
        the whole process (SIGTTOU)."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Single keys from here on, without echo, until the end of the block (or a `line`).

        What was typed before is thrown away: a key pressed ahead must not answer a question that nobody had seen.
        """
        modes = [*self._usual]
        modes[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
        modes[_CONTROL] = [*modes[_CONTROL]]
        modes[_CONTROL][termios.VMIN], modes[_CONTROL][termios.VTIME] = 1, 0
        self._changed = True
        try:
            with suppress(termios.error):  # it has hung up: the next read says so
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, modes)
            yield
        finally:
            self.restore()

    async def key(self) -> str:
        """The next key, lower case; "" for one that is no single character (arrows, a paste), "eof" at a hang-up."""
        await anyio.wait_readable(self._fd)
        data = self._read(KEY_BYTES_MAX)
        if not data:
            return "eof"
        text = data.decode(errors="replace").strip("\r\n").lower()
        return text if len(text) == 1 else ""

    async def line(self) -> str | None:
        """A line as typed and edited in the terminal's usual mode, without its end; None at end of input."""
        self.restore()
        await anyio.wait_readable(self._fd)
        data = self._read(LINE_BYTES_MAX)
        return data.decode(errors="replace").removesuffix("\n") if data else None

    def restore(self) -> None:
        """Put the terminal's modes back. Never raises: the terminal may be gone."""
        if self._changed:
            self._changed = False
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._usual)

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self._fd, most)
        except OSError:  # EIO: the terminal has hung up
            return b""


def person() -> Terminal | None:
    """The terminal, when somebody can both see questions (on standard error) and answer them."""
    try:
        found = Terminal() if sys.stdin.isatty() and sys.stderr.isatty() else None
    except (termios.error, ValueError, AttributeError):
        return None
    return found if found is not None and found.here else None
