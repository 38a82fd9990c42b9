"""What `exec` and `resume` share: own the session, show it while it runs, end with its exit code."""

import os
import sys
from pathlib import Path

import anyio
import click

from muse import app
from muse.config import Config
from muse.event.content import Settings
from muse.event.envelope import Event
from muse.event.kinds import UserPrompted
from muse.view.lines import json_line

EXIT_CODES = {"done": 0, "failed": 1, "unanswered": 3, "provider": 4, "budget": 5, "cancelled": 130}


def drive(
    log: app.Log, settings_file: Config, settings: Settings, workspace: Path, *, prompt: str, fresh: bool, as_json: bool
) -> int:
    """Run the session to its end. Returns the exit code that its outcome stands for."""
    click.echo(f"session {log.session}  pid {os.getpid()}", err=True)

    def on_event(event: Event) -> None:
        click.echo(json_line(event) if as_json else f"#{event.seq:<4} {event.agent:<8} {event.type}")
        sys.stdout.flush()

    def on_signal(call: str, text: str) -> None:
        pass

    owned = app.Owned(log, settings_file, settings, workspace, on_event, on_signal, fresh=fresh)
    if prompt:
        owned.submit(UserPrompted(text=prompt))
    state = anyio.run(owned.run)
    return EXIT_CODES[state.outcome or "done"]
