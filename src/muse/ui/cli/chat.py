"""`muse` and `muse PROMPT`: a chat in the current folder, one line a prompt. Not a command with a name of its own.

A session begins with the first prompt, so that looking in and leaving makes none. Between turns the session stays
owned and open; what others say to it (`muse steer`) runs at once.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import click

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import SessionClosed
from muse.ui.cli.drive import EXIT_CODES, Drive, Job, short
from muse.ui.cli.live import Live
from muse.ui.cli.options import driving, flags_of, folder_of, prompt_of
from muse.ui.cli.person import Terminal, person

HELP: Final = "/quit (or Ctrl-D) leaves · Ctrl-C stops the turn · /help · a long prompt: muse exec - < file"

_word: Final = re.compile(r"/[a-z]+")


@click.command("chat")
@click.argument("prompts", nargs=-1, metavar="[PROMPT]")
@driving
def command(prompts: tuple[str, ...], **given: object) -> int:
    """Talk with an agent in the current folder."""
    if len(prompts) > 1:
        raise UsageError(
            f"{prompts[0]!r} is no command, and a prompt is one argument", hint=f'quote it: muse "{" ".join(prompts)}"'
        )
    flags = flags_of(given)
    workspace = folder_of(flags.folder)
    first = prompt_of(prompts[0]) if prompts else ""
    terminal = person()
    loaded = flags.settings(workspace, terminal is not None)
    settings = app.with_rules(app.settings_of(loaded.config, flags.model, flags.mode), flags.allow, flags.deny)
    app.model_of(loaded.config, settings)  # a missing key is said before anybody types a prompt

    def begin() -> Job:
        return Job(
            log=app.create_log(app.new_session_id()), loaded=loaded, settings=settings, workspace=workspace,
            live=live, terminal=terminal, fresh=True, stay=True,
        )  # fmt: skip

    live = Live(as_json=flags.as_json, quiet=flags.quiet)
    return anyio.run(_chat, begin, live, terminal, first)


async def _chat(begin: Callable[[], Job], live: Live, terminal: Terminal | None, first: str) -> int:
    text: str | None = first
    if not first:
        if terminal is not None:
            live.tell(f"{Path.cwd()}  {HELP}", "2")
        text = await _next(live, terminal)
    if text is None:
        return 0
    chat = Chat(Drive(begin()), terminal)
    chat.drive.prompt(text)
    return await chat.run()


class Chat:
    """One session, turn after turn."""

    def __init__(self, drive: Drive, terminal: Terminal | None) -> None:
        self.drive, self._terminal = drive, terminal
        self._over = anyio.Event()
        self._reading: anyio.CancelScope | None = None
        self._outcome = ""
        drive.listen(self._heard)

    async def run(self) -> int:
        """Until the person leaves. Returns the exit code: of the last turn where prompts came through a pipe."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._converse)
            await self.drive.run()
            tasks.cancel_scope.cancel()
        self.drive.live.tell(f'go on later: muse resume {short(self.drive.session)} "…"', "2")
        return 0 if self._terminal is not None else EXIT_CODES[self._outcome or "done"]

    def _heard(self, event: Event) -> None:
        if isinstance(event.body, SessionClosed):
            self._outcome = event.body.outcome
            self._over.set()
        elif self._reading is not None and self.drive.owned.running.state.active:
            self._reading.cancel()  # somebody else began a turn: the terminal is needed for its questions

    async def _converse(self) -> None:
        live, owned = self.drive.live, self.drive.owned
        while True:
            await self._over.wait()
            self._over = anyio.Event()
            if self._outcome in ("done", "failed"):
                live.final()
            with anyio.CancelScope() as scope:
                self._reading = scope
                text = await _next(live, self._terminal)
            self._reading = None
            if scope.cancelled_caught:
                continue
            if text is None:
                break
            self.drive.prompt(text)
        owned.running.stop()


async def _next(live: Live, terminal: Terminal | None) -> str | None:
    """The person's next prompt, None when they leave."""
    while True:
        if terminal is None:
            line: str | None = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True) or None
        else:
            live.ask("> ")
            try:
                line = await terminal.line()
            finally:
                live.answered()
        if line is None or line.strip() in ("/quit", "/exit"):
            return None
        if _word.fullmatch(line.strip()):
            live.tell(HELP if line.strip() == "/help" else f"there is no {line.strip()}; {HELP}", "2")
        elif line.strip():
            return prompt_of(line) if line.strip() != "-" else line
