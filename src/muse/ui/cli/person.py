"""A person at a terminal: single keys and short lines, read without blocking the event loop.

Lines that arrive together (a paste) are one text. The terminal's own modes are put back after every read, and by
`restore` when the process ends in between. One reads the keyboard at a time: who reads it all the while (a chat's
prompt) gives way to a question. This module must not know what is asked.
"""

import os
import select
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol

import anyio

KEY_BYTES_MAX: Final = 256
LINE_BYTES_MAX: Final = 4096
"""The longest line that a terminal in its usual mode hands over (Linux, n_tty)."""

PASTE_BYTES_MAX: Final = 1024 * 1024
PASTE_SECONDS: Final = 0.05
"""How long the next line of a paste may take to arrive."""
QUIET_SECONDS: Final = 1.0
"""Nobody is typing when no key came for so long."""

_LOCAL: Final = 3  # index of the local modes in what tcgetattr returns
_CONTROL: Final = 6


class Reader(Protocol):
    """Who reads the keyboard all the while."""

    async def pause(self) -> None:
        """Stop reading; on return the terminal is in its usual mode, and nothing that was typed is lost."""

    def go_on(self) -> None:
        """Read again."""

    def restore(self) -> None:
        """The process ends: put back what was changed at the terminal. Never raises."""


class Terminal:
    """The keyboard of the terminal on standard input. `kept` holds whole lines that were typed before a question and
    not read yet; `reader` is asked to give way to questions."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._usual = termios.tcgetattr(self._fd)
        self._changed = False
        self._typing = False
        self.kept: list[str] = []
        self.reader: Reader | None = None

    @property
    def here(self) -> bool:
        """Whether this process is the terminal's foreground job: from the background, touching its modes would stop
        the whole process (SIGTTOU)."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For the block nobody else reads the keyboard."""
        if self.reader is not None:
            await self.reader.pause()
        try:
            yield
        finally:
            if self.reader is not None:
                self.reader.go_on()

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Single keys from here on, without echo, until the end of the block (or a `line`).

        What was typed before answers nothing, for nobody had seen the question: whole lines are kept in `kept`, single
        keys are thrown away.
        """
        try:
            if self._single():  # the kernel now hands over unfinished lines too
                whole, end, rest = self._waiting(b"").rpartition(b"\n")
                if end:
                    self.kept.append(whole.decode(errors="replace"))
                self._typing = bool(rest)
            yield
        finally:
            self._put_back()

    def _single(self) -> bool:
        """Single keys from here on, without echo; False where it has hung up: the next read says so."""
        modes = [*self._usual]
        modes[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
        modes[_CONTROL] = [*modes[_CONTROL]]
        modes[_CONTROL][termios.VMIN], modes[_CONTROL][termios.VTIME] = 1, 0
        self._changed = True
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        except termios.error:
            return False
        return True

    async def quiet(self) -> None:
        """Wait until nobody is typing a line that began before these `keys`; the rest of it is thrown away."""
        while self._typing:
            with anyio.move_on_after(QUIET_SECONDS) as quiet:
                await anyio.wait_readable(self._fd)
            self._typing = not quiet.cancelled_caught and bool(self._read(KEY_BYTES_MAX))

    async def key(self) -> str:
        """The next key, lower case; "" for one that is no single character (arrows, a paste), "eof" at a hang-up. What
        begins with a slash is given as it came: it begins a line (`rest`)."""
        if not self._changed:
            self._single()
        await anyio.wait_readable(self._fd)
        data = self._read(KEY_BYTES_MAX)
        if not data:
            return "eof"
        text = data.decode(errors="replace")
        if text.startswith("/"):
            return text
        text = text.strip("\r\n").lower()
        return text if len(text) == 1 else ""

    async def rest(self, begun: str) -> str | None:
        """The line that keys began, without its end; what follows is edited in the terminal's usual mode. None at end
        of input."""
        self._put_back()
        while not begun.endswith(("\r", "\n")) and len(begun) < LINE_BYTES_MAX:
            await anyio.wait_readable(self._fd)
            data = self._read(LINE_BYTES_MAX)
            if not data:
                return None
            begun += data.decode(errors="replace")
        return begun.rstrip("\r\n")

    async def line(self) -> str | None:
        """A line as typed and edited in the terminal's usual mode, without its end, with those that arrive together
        with it; None at end of input."""
        self._put_back()
        await anyio.wait_readable(self._fd)
        data = self._read(LINE_BYTES_MAX)
        with anyio.CancelScope(shield=True):  # what was read is not lost to a question
            while data and len(data) < PASTE_BYTES_MAX:
                with anyio.move_on_after(PASTE_SECONDS) as waiting:
                    await anyio.wait_readable(self._fd)
                more = b"" if waiting.cancelled_caught else self._waiting(data)[len(data) :]
                if not more:
                    break
                data += more
        return data.decode(errors="replace").removesuffix("\n") if data else None

    def restore(self) -> None:
        """Put the terminal back as it was. Never raises: the terminal may be gone."""
        if self.reader is not None:
            self.reader.restore()
        self._put_back()

    def usual(self) -> None:
        """Set the terminal's usual modes, whoever changed them. Never raises."""
        self._changed = True
        self._put_back()

    def _put_back(self) -> None:
        if self._changed:
            self._changed = False
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._usual)

    def _waiting(self, data: bytes) -> bytes:
        """`data` and all that can be read at once."""
        while len(data) < PASTE_BYTES_MAX and select.select([self._fd], [], [], 0)[0]:
            part = self._read(LINE_BYTES_MAX)
            if not part:
                break
            data += part
        return data

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
