"""A person at a terminal: single keys and short lines, read without blocking the event loop.

The terminal's own modes are put back after every read, and by `restore` when the process ends in between. This module
must not know what is asked.
"""

import os
import sys
import termios
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

    async def key(self) -> str:
        """The next key, lower case; "" for one that is no single character (arrows, a paste), "eof" at a hang-up.

        What was typed before is thrown away: a key pressed ahead must not answer a question that nobody had seen.
        """
        modes = termios.tcgetattr(self._fd)
        modes[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
        modes[_CONTROL] = [*modes[_CONTROL]]
        modes[_CONTROL][termios.VMIN], modes[_CONTROL][termios.VTIME] = 1, 0
        try:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, modes)
            await anyio.wait_readable(self._fd)
            data = self._read(KEY_BYTES_MAX)
        finally:
            self.restore()
        if not data:
            return "eof"
        text = data.decode(errors="replace").strip("\r\n").lower()
        return text if len(text) == 1 else ""

    def forget_typed(self) -> None:
        """Throw away what was typed so far: call it before a question is shown."""
        termios.tcflush(self._fd, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """A line as typed, without its end; None at end of input."""
        await anyio.wait_readable(self._fd)
        data = self._read(LINE_BYTES_MAX)
        return data.decode(errors="replace").removesuffix("\n") if data else None

    def restore(self) -> None:
        """Put the terminal's modes back. Never raises: the terminal may be gone."""
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._usual)
        except termios.error:
            return

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self._fd, most)
        except OSError:  # EIO: the terminal has hung up
            return b""


def person() -> Terminal | None:
    """The terminal, when somebody can both see questions (on standard error) and answer them."""
    try:
        return Terminal() if sys.stdin.isatty() and sys.stderr.isatty() else None
    except (termios.error, ValueError, AttributeError):
        return None
