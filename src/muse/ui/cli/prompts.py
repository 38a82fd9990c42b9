"""Where the prompts of a chat come from: a pipe, or a terminal in its usual mode.

The third source, with editing and history, is `editor`. This module must not know what is done with a prompt.
"""

import sys
from typing import Protocol

import anyio
import anyio.to_thread

from muse.ui.cli.live import Live
from muse.ui.cli.person import Terminal

MARK = "> "


class Prompts(Protocol):
    """A person's prompts, one after the other."""

    async def next(self) -> str | None:
        """The next one as it was entered, perhaps of several lines; None when they leave, and after `close`."""

    def turn(self, running: bool) -> None:
        """A turn begins or is over."""

    def close(self) -> None:
        """Make `next` return None, now and from now on."""


class Piped:
    """Lines of standard input that is no terminal; each is a prompt."""

    async def next(self) -> str | None:
        """See `Prompts`."""
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True) or None

    def turn(self, running: bool) -> None:
        """See `Prompts`."""

    def close(self) -> None:
        """See `Prompts`. A pipe is read to its end, or until the process ends."""


class Lines:
    """Lines typed at a terminal that knows no more (TERM=dumb), also while a turn runs."""

    def __init__(self, live: Live, terminal: Terminal) -> None:
        self._live, self._terminal = live, terminal
        self._running = self._over = False
        self._reading: anyio.CancelScope | None = None
        self._stopped = anyio.Event()
        self._free = anyio.Event()
        self._free.set()
        terminal.reader = self

    async def next(self) -> str | None:
        """See `Prompts`."""
        if not self._running:
            self._live.ask(MARK)
        try:
            while await self._may_read():
                if self._terminal.kept:
                    return self._terminal.kept.pop(0)
                self._stopped = anyio.Event()
                with anyio.CancelScope() as self._reading:
                    return await self._terminal.line()
                self._reading = None
                self._stopped.set()
            return None
        finally:
            self._reading = None
            self._stopped.set()
            if not self._running:
                self._live.answered()

    async def _may_read(self) -> bool:
        """Wait until no question has the keyboard; whether a prompt is wanted still."""
        while not self._free.is_set():  # the next question may have come before this task woke
            await self._free.wait()
        return not self._over

    def turn(self, running: bool) -> None:
        """See `Prompts`. No mark stands on the screen while a turn runs."""
        if self._reading is not None and running != self._running:
            if running:
                self._live.answered(" ")
            else:
                self._live.ask(MARK)
        self._running = running

    def close(self) -> None:
        """See `Prompts`."""
        self._over = True
        self._free.set()
        if self._reading is not None:
            self._reading.cancel()

    async def pause(self) -> None:
        """See `Reader`."""
        self._free = anyio.Event()
        if self._reading is not None:
            self._reading.cancel()
            await self._stopped.wait()

    def go_on(self) -> None:
        """See `Reader`."""
        self._free.set()

    def restore(self) -> None:
        """See `Reader`: nothing was changed."""
