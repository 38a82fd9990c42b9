"""`muse` and `muse PROMPT`: a chat in the current folder. Not a command with a name of its own.

A session begins with the first prompt, so that looking in and leaving makes none; one that is gone back to is taken
with the first prompt too, unless it has something left to do. Between turns the session stays owned and open; what
others say to it (`muse steer`) runs at once. What is typed while a turn runs is a turn of its own afterwards.
"""

import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from muse import app
from muse.config import muse_home
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import AgentContinued, AgentPaused, CancelRequested, ModelResponded, SessionClosed
from muse.ui.cli import slash
from muse.ui.cli.address import resolve
from muse.ui.cli.asking import CLIENT
from muse.ui.cli.drive import EXIT_CODES, TWICE_SECONDS, Drive, Job, busy, first_settings, short, taken_over
from muse.ui.cli.live import Live
from muse.ui.cli.options import Flags, driving, flags_of, folder_of, prompt_of, taking
from muse.ui.cli.person import Terminal, person
from muse.ui.cli.prompts import Lines, Piped, Prompts
from muse.ui.cli.resume import job_of, left_to_do, whole
from muse.view.visible import headline

HINT: Final = "/help · Ctrl-D leaves · Ctrl-C stops the turn"
HELP: Final = """\
Enter sends; Alt-Enter and pasted text make further lines. Arrow keys: earlier prompts.
What you send while a turn runs is queued: a turn of its own afterwards. /queue lists it, /back takes the last back.
Ctrl-C stops the turn; between turns, twice leaves. Ctrl-D or /quit leaves. The session stays: muse resume.
/pause: nothing new starts, until /continue; --tree, as in /pause --tree, also for the agents below main.
/help shows this; it and the others work where an agent asks something, too. //help says /help to the agent.
From another terminal: muse steer speaks to the running turn, muse attach watches it, muse agents lists the agents."""


@click.command("chat")
@click.argument("prompts", nargs=-1, metavar="[PROMPT]")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the last session of this folder.")
@click.option("--resume", "session", default="", metavar="SESSION", help="Go on with this session.")
@taking
@driving
def command(prompts: tuple[str, ...], go_on: bool, session: str, take_over: bool, force: bool, **given: object) -> int:
    """Talk with an agent in the current folder."""
    if len(prompts) > 1:
        raise UsageError(
            f"{prompts[0]!r} is no command, and a prompt is one argument", hint=f'quote it: muse "{" ".join(prompts)}"'
        )
    if go_on and session:
        raise UsageError("--continue and --resume say two things", hint="give one of them")
    flags = flags_of(given)
    first = prompt_of(prompts[0]) if prompts else ""
    if go_on or session:
        path = whole(resolve(session or "last", folder_of(flags.folder) if flags.folder else None))
        live = Live(as_json=flags.as_json, quiet=flags.quiet)
        taken = taken_over(path, live, take_over=take_over, force=force)
        return talk_again(path, flags, first, taken)
    if take_over or force:
        raise UsageError("--take-over takes a session that there is", hint="give --continue or --resume SESSION too")
    workspace = folder_of(flags.folder)
    terminal = person()
    loaded = flags.settings(workspace, terminal is not None)
    settings = first_settings(loaded, flags)
    live = Live(as_json=flags.as_json, quiet=flags.quiet)

    def begin() -> Job:
        return Job(
            log=app.create_log(app.new_session_id()), loaded=loaded, settings=settings, workspace=workspace,
            live=live, terminal=terminal, fresh=True, stay=True,
        )  # fmt: skip

    if terminal is not None and not first:
        live.tell(f"{Path.cwd()}  {HINT}", "2")
    return anyio.run(Chat(begin, live, terminal).run, first)


def talk_again(path: Path, flags: Flags, first: str = "", taken: app.Taken | None = None) -> int:
    """A chat on a session that there is. What it has left to do goes on at once; so does one that was taken from
    another process. Raises `Busy` when another process runs it."""
    live = Live(as_json=flags.as_json, quiet=flags.quiet)
    terminal: list[Terminal | None] = []

    def begin() -> Job:
        if (taken is None or not taken.forced) and (pid := app.owner_pid(path)):
            raise busy(path.stem, pid)
        log = app.open_log(path, read_only=False)
        state = app.state_to_go_on(log)
        app.require_continuable(log, state)
        job = msgspec.structs.replace(job_of(log, state, flags, live, None), stay=True, taken=taken)
        if terminal:  # there is one keyboard, and the prompt reads it already
            job = msgspec.structs.replace(job, terminal=terminal[0])
        return job

    job = begin()
    terminal.append(job.terminal)
    state = app.state_of(job.log)
    left = left_to_do(state)
    live.say(f"chat on session {short(job.log.session)}: {_so_far(state, left)}")
    if job.terminal is not None:
        live.tell(HINT, "2")
    job.log.close()
    return anyio.run(Chat(begin, live, job.terminal).run, first, left or taken is not None)


def _so_far(state: app.Session, left: bool) -> str:
    items = state.agents["main"].items if "main" in state.agents else ()
    said = [str(item.text) for item in items if getattr(item, "source", "") == "prompt" and hasattr(item, "text")]
    last = f' after "{headline(said[-1], 30)}"' if said else ""
    return f"goes on where it stopped{last}" if left else f"goes on with your next prompt{last}"


class Chat:
    """One session, turn after turn."""

    def __init__(self, begin: Callable[[], Job], live: Live, terminal: Terminal | None) -> None:
        self._begin, self._live, self._terminal = begin, live, terminal
        self._drive: _Drive | None = None
        self._closed = anyio.Event()
        self._running = False
        self._outcome = ""
        self._interrupted_at = 0.0
        self._code = 0
        self._prompts: Prompts = Piped()

    async def run(self, first: str, at_once: bool = False) -> int:
        """Until the person leaves. Returns the exit code: of the last turn where prompts came through a pipe."""
        self._prompts = self._source()
        try:
            text = first or (None if at_once else await self._first())
            if text is None and not at_once:
                return self._code
            drive = self._drive = _Drive(self._begin(), self._interrupted, text or "")
            drive.listen(self._heard)
            drive.follow(self._at_question)
            self._turn(True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._converse, drive)
                await drive.run()
                self._prompts.close()
                tasks.cancel_scope.cancel()
        finally:
            if self._terminal is not None:
                self._terminal.restore()
        self._live.tell(f'go on later: muse resume {short(drive.session)} "…"', "2")
        return 0 if self._terminal is not None else EXIT_CODES[self._outcome or "done"]

    def _source(self) -> Prompts:
        if self._terminal is None:
            return Piped()
        if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("", "dumb"):
            return Lines(self._live, self._terminal)
        from muse.ui.cli.editor import Editor

        return Editor(self._live, self._terminal, muse_home() / "chat_history", self._interrupted)

    # -- before there is a session -----------------------------------------------------------------------------------

    async def _first(self) -> str | None:
        """The first prompt. There is no session that would take signals yet."""
        if self._terminal is None:
            return await self._next()
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                tasks.start_soon(self._watch, signals)
                text = await self._next()
                tasks.cancel_scope.cancel()
        return text

    async def _watch(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if number == signal.SIGINT:
                self._interrupted()
            else:
                self._code = 128 + number
                self._prompts.close()

    def _interrupted(self) -> None:
        """A Ctrl-C: it stops a turn; between turns the second one leaves."""
        if self._drive is not None and self._running:
            self._drive.stop_turn()
            return
        now = time.monotonic()
        if now - self._interrupted_at < TWICE_SECONDS:
            self._prompts.close()
            return
        self._interrupted_at = now
        self._live.say("nothing runs; Ctrl-C again or Ctrl-D leaves")

    # -- with a session ----------------------------------------------------------------------------------------------

    def _turn(self, running: bool) -> None:
        self._running = running
        self._prompts.turn(running)

    def _heard(self, event: Event) -> None:
        assert self._drive is not None
        body = event.body
        if isinstance(body, SessionClosed):
            self._outcome = body.outcome
            if body.outcome in ("done", "failed"):
                self._live.final()
            self._turn(False)
            self._closed.set()
        elif self._drive.owned.running.state.active:
            if isinstance(body, ModelResponded) and event.agent == "main" and not _uses(body):
                self._live.final()  # a turn is over, and one that was queued begins
            if not self._running:
                self._turn(True)

    async def _converse(self, drive: "_Drive") -> None:
        while True:
            if self._terminal is None:
                await self._over()
            text = await self._next()
            if text is None:
                break
            if self._running:
                self._live.say(f"queued: {headline(text, 200)}", "36")
            self._turn(True)
            drive.prompt(text)
        if self._running:
            self._live.say("leaving when the turn is over (Ctrl-C stops it)")
            await self._over()
        drive.owned.running.stop()

    async def _over(self) -> None:
        while self._running:
            self._closed = anyio.Event()
            await self._closed.wait()

    async def _next(self) -> str | None:
        """The person's next prompt, None when they leave."""
        while True:
            line = await self._prompts.next()
            if line is None:
                return None
            if word := slash.word_of(line):
                if word.name in slash.LEAVES:
                    return None
                self._command(word)
            elif line.strip():
                try:
                    return slash.meant(prompt_of(line)) if line.strip() != "-" else line
                except UsageError as error:
                    self._live.say(f"{error}: {error.hint}", "31")

    def _at_question(self, word: slash.Word) -> None:
        """A word that was typed where an agent asks something."""
        if word.name in slash.LEAVES:
            self._prompts.close()
        else:
            self._command(word)

    def _command(self, word: slash.Word) -> None:
        """What begins with a slash is for muse, never for the model."""
        if word.name == "/help":
            for line in HELP.split("\n"):
                self._live.tell(line, "2")
        elif word.name in ("/queue", "/back"):
            self._queue(take_back=word.name == "/back")
        elif word.name not in ("/pause", "/continue"):
            self._live.tell(f"there is no {word.name}; {HINT}", "2")
        elif self._drive is None:
            self._live.tell("there is no session yet", "2")
        else:
            kind = AgentPaused if word.name == "/pause" else AgentContinued
            self._drive.owned.submit(kind(target="tree" if word.tree else "agent", origin=app.origin(CLIENT)))

    def _queue(self, *, take_back: bool) -> None:
        """List what is queued, or take the last of it back."""
        main = self._drive.owned.running.state.agents.get("main") if self._drive is not None else None
        if main is None or not main.queue:
            self._live.tell("nothing is queued", "2")
        elif take_back:
            assert self._drive is not None
            last = main.queue[-1]
            self._drive.owned.submit(CancelRequested(target="prompt", prompt=last.seq, origin=app.origin(CLIENT)))
            self._live.tell(f"taken back: {headline(last.text, 200)}", "36")
        else:
            for said in main.queue:
                self._live.tell(f"queued: #{said.seq}  {headline(said.text, 200)}", "36")


class _Drive(Drive):
    """A session that stays open between turns."""

    def __init__(self, job: Job, interrupted: Callable[[], None], prompt: str) -> None:
        self._between = interrupted
        super().__init__(job, prompt)

    def interrupted(self) -> None:
        """A Ctrl-C that came as a signal."""
        self._between()

    def stop_turn(self) -> None:
        """A Ctrl-C while a turn runs."""
        super().interrupted()


def _uses(body: ModelResponded) -> bool:
    return any(block.kind == "tool_use" for block in body.blocks)
