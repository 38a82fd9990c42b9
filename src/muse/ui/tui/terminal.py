"""An application of one screen in a real terminal: draws on standard output, keeps what is typed before the screen
stands, and leaves the terminal as it was whatever ends it."""

import asyncio
import codecs
import select
import signal
import sys
from io import TextIOWrapper
from typing import Any, ClassVar, Final, TypeVar

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.worker import WorkerFailed

from muse.ui.tui.looks import in_ascii

Result = TypeVar("Result")
ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
TERMINAL_SECONDS: Final = 1.0
"""How often it is looked whether the terminal is still there."""


class Stands(Message):
    """The screen says it when keys find what they are meant for."""


class OnStandardOutput(LinuxDriver):
    """Draws on standard output, which is known to be a terminal; Textual's own way is standard error, which may go into
    a file. For what the terminal's character set lacks something stands that it has (`looks.in_ascii`)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        stdout = sys.__stdout__
        if isinstance(stdout, TextIOWrapper):
            codecs.register_error("muse.signs", in_ascii)
            stdout.reconfigure(errors="muse.signs")
            self._file = stdout


class TerminalApp(App[Result], inherit_bindings=False):
    """One screen, in the terminal's own colours, without anything that moves by itself."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self) -> None:
        super().__init__(driver_class=OnStandardOutput, ansi_color=True)
        self.animation_level = "none"
        self._stands = False
        self._early: list[events.Key] = []

    def on_mount(self) -> None:
        """A signal that asks for the end leaves the terminal as it was."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.end_with, 128 + number)
        if not self.is_headless:
            self.set_interval(TERMINAL_SECONDS, self._look_at_terminal)

    def _look_at_terminal(self) -> None:
        """A terminal that went away is the end, also where no signal tells of it: it reads as a file that has ended,
        again and again."""
        terminal = select.poll()
        terminal.register(sys.__stdin__ or 0, 0)
        if terminal.poll(0):
            self.end_with(128 + signal.SIGHUP)

    def end_with(self, code: int) -> None:
        """The end, for a reason that is no key of the screen's: its exit code."""
        raise NotImplementedError

    async def on_event(self, event: events.Event) -> None:
        """What is typed before the screen stands waits for it."""
        if isinstance(event, events.Key) and not self._stands:
            self._early.append(event)
            return
        await super().on_event(event)

    async def on_stands(self) -> None:
        """Now keys find what they are for."""
        self._stands = True
        for key in self._early:
            await super().on_event(key)
        self._early.clear()

    def _fatal_error(self) -> None:
        """The front door tells of it, in a line, when the terminal is as it was."""
        self._close_messages_no_wait()

    @property
    def failure(self) -> BaseException | None:
        """What ended the screen, if it was not the reader."""
        return self._exception.error if isinstance(self._exception, WorkerFailed) else self._exception
