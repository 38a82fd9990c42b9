"""Opens the screen on a session, and gives the exit code when it was left."""

import os
from pathlib import Path
from typing import Final

from muse import app
from muse.app.steps import Steps
from muse.ui.cli.address import Place, require_event
from muse.ui.cli.filtering import now
from muse.ui.tui.frame import Opened
from muse.ui.tui.listing import Listing
from muse.ui.tui.screen import ReplayScreen
from muse.ui.tui.terminal import TerminalApp
from muse.view.filters import TERMS, Filter, parsed
from muse.view.moments import Moment

FIRST_SECONDS: Final = 0.03
"""A short log is known whole before its screen is drawn; a long one lets it wait no longer."""
IMPORT_WITHIN: Final = 3
"""An imported log says so in one of its first events."""


class ReplayApp(TerminalApp[int], inherit_bindings=False):
    """The screen of one session."""

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self._opened = opened

    def end_with(self, code: int) -> None:
        """See `TerminalApp`."""
        self.exit(code)

    def get_default_screen(self) -> ReplayScreen:
        """The one screen."""
        return ReplayScreen(self._opened)


def opened(place: Place, reading: app.Reading, *, wanted: Filter) -> Opened:
    """What the screen needs to know. Raises `UsageError` when the session has no such event, or no such agent."""
    address = place.address
    require_event(reading, address.seq)
    home = str(Path.home())
    steps = Steps(reading, home=home)
    steps.index(FIRST_SECONDS)
    if address.agent and steps.head and address.agent not in (span[0] for span in steps.spans):
        app.last_of(reading, address.agent)
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
