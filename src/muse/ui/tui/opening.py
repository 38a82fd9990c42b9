"""Opens the screen on a session, and gives the exit code when it was left."""

import asyncio
import codecs
import os
import select
import signal
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.worker import WorkerFailed

from muse import app
from muse.app.steps import Steps
from muse.ui.cli.address import Place, require_event
from muse.ui.cli.filtering import now
from muse.ui.tui.frame import Opened
from muse.ui.tui.listing import Listing
from muse.ui.tui.looks import in_ascii
from muse.ui.tui.screen import ReplayScreen
from muse.view.filters import TERMS, Filter, parsed
from muse.view.moments import Moment

ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
TERMINAL_SECONDS: Final = 1.0
"""How often it is looked whether the terminal is still there."""
FIRST_SECONDS: Final = 0.03
"""A short log is known whole before its screen is drawn; a long one lets it wait no longer."""
IMPORT_WITHIN: Final = 3
"""An imported log says so in one of its first events."""


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


class ReplayApp(App[int], inherit_bindings=False):
    """One screen, in the terminal's own colours, without anything that moves by itself."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, opened: Opened) -> None:
        super().__init__(driver_class=OnStandardOutput, ansi_color=True)
        self.animation_level = "none"
        self._opened = opened
        self._stands = False
        self._early: list[events.Key] = []

    def on_mount(self) -> None:
        """A signal that asks for the end leaves the terminal as it was."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.exit, 128 + number)
        if not self.is_headless:
            self.set_interval(TERMINAL_SECONDS, self._look_at_terminal)

    def _look_at_terminal(self) -> None:
        """A terminal that went away is the end, also where no signal tells of it: it reads as a file that has ended,
        again and again."""
        terminal = select.poll()
        terminal.register(sys.__stdin__ or 0, 0)
        if terminal.poll(0):
            self.exit(128 + signal.SIGHUP)

    async def on_event(self, event: events.Event) -> None:
        """What is typed before the screen stands waits for it."""
        if isinstance(event, events.Key) and not self._stands:
            self._early.append(event)
            return
        await super().on_event(event)

    async def on_frame_stands(self) -> None:
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

    def get_default_screen(self) -> ReplayScreen:
        """The one screen."""
        return ReplayScreen(self._opened)


def opened(place: Place, reading: app.Reading, *, wanted: Filter) -> Opened:
    """What the screen needs to know. Raises `UsageError` when the session has no such event."""
    address = place.address
    require_event(reading, address.seq)
    home = str(Path.home())
    steps = Steps(reading, home=home)
    steps.index(FIRST_SECONDS)
    named = address.session if "/" in address.session or "." in address.session else reading.session
    return Opened(
        listing=Listing(steps, reading.content, home),
        seq=address.seq or 1,
        address=named,
        imported=any(row.type == "log.imported" for row in steps.rows(1, IMPORT_WITHIN)) if steps.head else False,
        owner=lambda: app.owner_pid(place.path),
        read=lambda: app.read_session(place.path, check=False),
        parse=lambda line: parsed(line, now()),
        filter_text=written(wanted),
        wanted=wanted,
    )


def written(wanted: Filter) -> str:
    """A filter as a line of text, for the prompt: `parsed` makes the same of it."""
    words: list[str] = []
    for term in TERMS:
        value = getattr(wanted, term.field)
        if isinstance(value, Moment):
            words += [f"{term.name}:{f'@{value.seq}' if value.seq else value.time}"] if value else []
        elif isinstance(value, bool):
            words += [term.name] if value else []
        else:
            words += [f"{term.name}:{_quoted(str(one))}" for one in value]
    return " ".join(words)


def _quoted(text: str) -> str:
    """A value as the parser takes it apart: parts in either kind of quotes, one after another."""
    if text and not any(sign in text for sign in " \t\n\"'"):
        return text
    return """'"'""".join(f'"{part}"' for part in text.split('"'))


def replay_on_screen(place: Place, *, colour: bool, wanted: Filter) -> int:
    """Show the session until the reader leaves. Returns the exit code."""
    if not colour:
        os.environ["NO_COLOR"] = "1"  # Textual asks for nothing else, and what it starts is to know it too
    with app.read_session(place.path, check=False) as reading:
        shown = ReplayApp(opened(place, reading, wanted=wanted))
        code = shown.run()
    if shown.failure is not None:
        raise shown.failure
    return code if code is not None else 1
