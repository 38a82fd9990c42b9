"""What `exec`, `resume` and the chat share: own the session, show it while it runs, end with its exit code.

Signals: the first Ctrl-C cancels the turn, a second within two seconds leaves at once. SIGTERM and SIGHUP leave at
once. Who leaves cancels nothing: the log is closed in order, and the process ends without unwinding its tasks, because
a task that is cancelled ends its command. The next `muse resume` re-attaches.
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import anyio
import msgspec

from muse import app
from muse.config import Loaded
from muse.errors import Busy, ConfigError, Damaged, MuseError, UsageError
from muse.event.content import Settings
from muse.event.envelope import Event
from muse.event.kinds import AgentPaused, ApprovalDecided, BudgetReached, CancelRequested, PolicyChanged, UserPrompted
from muse.ui.cli import hosting
from muse.ui.cli.asking import CLIENT, Asking
from muse.ui.cli.finding import short_id
from muse.ui.cli.live import Live
from muse.ui.cli.options import Flags
from muse.ui.cli.pending import say_paused
from muse.ui.cli.person import Terminal
from muse.ui.cli.recovery import Recovery
from muse.ui.cli.slash import Word
from muse.view.amounts import duration, plural
from muse.view.summary import outcome_words, provider_failure
from muse.view.visible import one_line

EXIT_CODES: Final = {
    "done": 0, "failed": 1, "unanswered": 3, "provider": 4, "budget": 5, "cancelled": 130, "imported": 0,
}  # fmt: skip
INTERRUPTED: Final = 130
TERMINATED: Final = 143
TWICE_SECONDS: Final = 2.0
WATCHED_SECONDS: Final = 10.0
"""For so long somebody who sent a prompt in a chat is taken to look at the answer: its end rings no bell."""

short = short_id
"""What names a session to a person."""


def first_settings(loaded: Loaded, flags: Flags) -> Settings:
    """What a new session begins with. Raises ConfigError, which also says what a project's file asked for in vain."""
    try:
        found = app.with_addresses(app.settings_of(loaded.config, flags.model, flags.mode), loaded)
        found = app.limited(loaded.config, found, flags.budget, flags.fallback_model)
        app.model_of(loaded.config, found)  # a missing key is said before a session is made, or a prompt typed
    except ConfigError as error:
        if not flags.model and "model" in loaded.ignored:
            raise ConfigError(str(error), hint=f"{error.hint}; {loaded.notice}") from error
        raise
    return app.with_rules(found, flags.allow, flags.deny)


class Job(msgspec.Struct, kw_only=True):
    """One session to drive. `fresh`: it has no events yet. `show_after`: show from the event after this one (None:
    from this opening on). `greeting`: a line after the one that names the session. `taken`: from whom it is taken."""

    log: app.Log
    loaded: Loaded
    settings: Settings
    workspace: Path
    live: Live
    terminal: Terminal | None
    fresh: bool = False
    name: str = ""
    show_after: int | None = None
    stay: bool = False
    recovery: Recovery | None = None
    greeting: str = ""
    taken: app.Taken | None = None


class Drive:
    """An owned session with its terminal. Made by claiming it; raises `Busy` when another process runs it."""

    def __init__(self, job: Job, prompt: str = "") -> None:
        """With a `prompt`, which is recorded with the opening: whoever is killed between the two has neither."""
        self.job, self.live = job, job.live
        self.session = job.log.session
        self.live.say(f"session {self.session}  pid {os.getpid()}")
        if job.greeting:
            self.live.say(job.greeting)
        if job.loaded.notice:
            self.live.say(f"note: {job.loaded.notice}", "33")
        self._asking = Asking(job.live, job.terminal, short(self.session))
        self._notices = app.Notices(job.loaded.config.notify, job.loaded.config.notify_on)
        self._begun = time.monotonic()
        self._interrupted_at = 0.0
        self._prompted_at = 0.0
        self._finishing: anyio.CancelScope | None = None
        self._unanswered = ""
        self._reached: BudgetReached | None = None
        self._listeners: list[Callable[[Event], None]] = []
        try:
            self.owned = app.Owned(
                job.log, job.loaded.config, job.settings, job.workspace, self._on_event, self.live.signal,
                fresh=job.fresh, name=job.name, stay=job.stay, show_after=job.show_after, on_fatal=self._on_fatal,
                taken=job.taken, first=UserPrompted(text=prompt, origin=app.origin(CLIENT)) if prompt else None,
            )  # fmt: skip
        except BaseException:
            app.discard_empty(job.log)
            raise
        self._asking.owned = self.owned
        if self.owned.sandbox.notice:
            self.live.say(f"note: {self.owned.sandbox.notice}", "33")
        elif self.owned.sandbox.is_on and not self.live.as_json:
            self.live.tell(f"sandbox {self.owned.sandbox.says}", "2")
        self._say_paused()
        if self.owned.running.state.mode != job.settings.mode:  # changed by a person since, and now asked for otherwise
            self.owned.submit(PolicyChanged(mode=job.settings.mode, origin=app.origin(CLIENT)))

    def listen(self, heard: Callable[[Event], None]) -> None:
        """Also tell `heard` of every event."""
        self._listeners.append(heard)

    def follow(self, word: Callable[[Word], None]) -> None:
        """Call `word` for words of the chat that are typed where an agent asks something."""
        self._asking.word = word

    def prompt(self, text: str) -> int:
        """Submit a person's prompt."""
        return self.owned.submit(UserPrompted(text=text, origin=app.origin(CLIENT)))

    async def run(self) -> app.Session:
        """Until the session closes."""
        failed: MuseError | None = None
        state: app.Session | None = None
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(*_handled()) as signals:
                tasks.start_soon(self._watch, signals)
                tasks.start_soon(self._ask)
                try:
                    state = await self.owned.run()
                except MuseError as error:
                    failed = error
                with anyio.CancelScope() as self._finishing:
                    await self._notices.finish()
                tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        assert state is not None
        return state

    def _on_event(self, event: Event) -> None:
        self.live.event(event)
        self._asking.noticed(event)
        if isinstance(event.body, AgentPaused):
            self._say_paused()
        elif isinstance(event.body, UserPrompted):
            self._prompted_at = time.monotonic()
        recovery = self.job.recovery
        if recovery is not None and (line := recovery.take(event)):
            self.live.tell(line, "1")
        if isinstance(event.body, BudgetReached):
            self._reached = event.body
        if isinstance(event.body, ApprovalDecided) and event.body.by == "timeout":
            asked = self.owned.event(event.body.request)
            self._unanswered = one_line(getattr(asked.body, "remember", "")) if asked else ""
        self._tell(event)
        for heard in self._listeners:
            heard(event)

    def _say_paused(self) -> None:
        """Who is paused, and how it goes on."""
        paused = {agent.id for agent in self.owned.running.state.agents.values() if agent.paused}
        say_paused(self.live, short(self.session), paused, chat=self.job.stay)

    def _tell(self, event: Event) -> None:
        """Tell a person who looks elsewhere of what this owner recorded; of each event once."""
        state, config = self.owned.running.state, self.job.loaded.config
        notice = None
        if event.epoch == state.epoch:
            notice = app.notice_of(event, self.session, short(self.session), state.workspace, self.live.answer)
        if notice is not None:
            self._notices.tell(notice)
            if config.bell and notice.event in config.notify_on and not self._is_watched(notice):
                self.live.ring(notice.text)
        if trouble := self._notices.trouble():
            self.live.say(trouble, "33")

    def _is_watched(self, notice: app.Notice) -> bool:
        """Whether a chat's turn ends so soon after it began that its person will still be looking."""
        ends = notice.event in ("finished", "failed")
        return self.job.stay and ends and time.monotonic() - self._prompted_at < WATCHED_SECONDS

    async def _ask(self) -> None:
        try:
            await self._asking.run()
        except MuseError as error:
            self._on_fatal(error)

    async def _watch(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if number == signal.SIGINT:
                self.interrupted()
            else:
                self.leave(TERMINATED, f"stopped by {number.name}; nothing was cancelled")

    def interrupted(self) -> None:
        """A Ctrl-C: cancel the turn, or leave when it is the second."""
        if self._finishing is not None:  # the session is over, and only notices are still being given
            self._finishing.cancel()
            return
        now = time.monotonic()
        if now - self._interrupted_at < TWICE_SECONDS:
            self.leave(INTERRUPTED, "left; the turn is cancelled as far as it had come")
        self._interrupted_at = now
        if self.job.stay and not self.owned.running.state.active:
            self.live.say("nothing runs; Ctrl-D leaves")
            return
        self.live.say("cancelling the turn (Ctrl-C again leaves at once)", "33")
        try:
            self.owned.submit(CancelRequested(why="the user pressed Ctrl-C", origin=app.origin(CLIENT)))
        except MuseError as error:
            self._on_fatal(error)

    def _on_fatal(self, error: MuseError) -> NoReturn:
        from muse.ui.cli import show_error

        show_error(error)
        if isinstance(error, Damaged):
            self.leave(
                error.exit_code, "nothing was cancelled, and nothing more is started", "See what is left: muse ls"
            )
        self.leave(error.exit_code, "nothing was cancelled; what is in the log is safe")

    def leave(self, code: int, why: str, then: str = "") -> NoReturn:
        """End this process now, without cancelling anything. `then` says what can be done next."""
        if self.job.terminal is not None:
            self.job.terminal.restore()
        self.live.say(f"{why}. {then or f'Go on: muse resume {short(self.session)}'}")
        with suppress(MuseError, OSError):
            self.owned.leave()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)

    def end(self, state: app.Session, *, as_json: bool) -> int:
        """Say how it ended and what can be done next. Returns the exit code."""
        outcome = state.outcome or "done"
        if trouble := self._notices.trouble():
            self.live.say(trouble, "33")
        if outcome in ("done", "failed"):
            self.live.final()
        again = self.job.recovery.again if self.job.recovery else 0
        if again:
            self.live.say(f"muse: a fault: {plural(again, 'finished step')} started again; please report it", "31")
        if not as_json:
            self._farewell(state, outcome)
        if outcome != "done" and (as_json or self.live.quiet):
            self.live.say(outcome_words(outcome, state.reason))
            if outcome == "budget":
                self.live.say(self._advice(outcome, state.reason, short(self.session)))
        if trouble := self.live.out.trouble:
            self.live.say(f"muse: standard output could not be written: {trouble}; muse replay has it all", "31")
            return EXIT_CODES[outcome] or 1
        return EXIT_CODES[outcome]

    def _farewell(self, state: app.Session, outcome: str) -> None:
        live, name = self.live, short(self.session)
        took = duration(round((time.monotonic() - self._begun) * 1000))
        words = outcome_words(outcome, state.reason if outcome != "done" else "")
        live.tell()
        live.tell(f"{words}  {took}", "32" if outcome == "done" else "31")
        if advice := self._advice(outcome, state.reason, name):
            live.tell(f"  {advice}")
        if left := app.left_running(self.session, state):
            names = ", ".join(f"{one.pid} ({one_line(one.command)})" for one in left)
            live.tell(f"  left running: {names}; end it: muse cancel {name} --processes", "33")
        live.tell(f'  resume   muse resume {name} "…"', "2")
        live.tell(f"  replay   muse replay {name}", "2")
        live.tell(f"  export   muse export {name} --format md", "2")

    def _advice(self, outcome: str, reason: str, name: str) -> str:
        """What to do about an end that nobody wanted."""
        if outcome == "unanswered":
            if not self._unanswered:
                return f'answer it at a terminal: muse resume {name} "go on"'
            return f'allow it beforehand: muse resume {name} --allow {shlex.quote(self._unanswered)} "go on"'
        if outcome == "budget":
            return f"with more room: muse resume {name} {self._more_room()}"
        if outcome != "provider":
            return ""
        if provider_failure(reason) == "invalid":
            return f"check -m PROVIDER/MODEL, then: muse resume {name} -m PROVIDER/MODEL"
        return f"when that is mended: muse resume {name}"

    def _more_room(self) -> str:
        """The flag that gives the session as much again of what was used up."""
        reached = self._reached
        limits = self.job.settings.limits
        more = app.raised(reached.limit, reached.scope, limits, reached.value) if reached is not None else ""
        return f"--budget {more}" if more else f"-c max_model_calls={2 * self.job.settings.model_calls_max or 2000}"


def _handled() -> list[signal.Signals]:
    """The signals to handle; one that is ignored (nohup, a script's background job) stays ignored."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) not in (signal.SIG_IGN, pass_over)]


def pass_over(_number: int, _frame: object) -> None:
    """Handles a signal that is not minded: a host in the background outlives every terminal."""


def drive(job: Job, prompt: str, *, as_json: bool) -> int:
    """Run the session to its end. Returns the exit code that its outcome stands for."""
    driven = Drive(job, prompt)
    if (host := hosting.current()) is not None:
        host.begun(driven.session, [note for note in (job.loaded.notice, driven.owned.sandbox.notice) if note])
    state = anyio.run(driven.run)
    return driven.end(state, as_json=as_json)


def busy(session: str, pid: int) -> Busy:
    """What to say when another process runs the session."""
    name = short(session)
    who = f"process {pid}" if pid else "another process"
    return Busy(
        f"{who} runs this session",
        hint=f'watch it: muse attach {name}; speak to it: muse steer {name} "…"; '
        f"end that process and go on here: muse resume {name} --take-over",
    )


def taken_over(path: Path, live: Live, *, take_over: bool, force: bool) -> app.Taken | None:
    """What `--take-over` and `--force` come to: None where the session is to be claimed as it is.

    Raises `Busy` when another process runs it and it is not to be taken, or cannot be; UsageError for `--force` alone.
    """
    if force and not take_over:
        raise UsageError("--force goes with --take-over", hint="give both, or neither")
    if not take_over:
        if pid := app.owner_pid(path):
            raise busy(path.stem, pid)
        return None
    taken = app.take_over(path, CLIENT, force=force)
    if taken is not None:
        look = "33" if taken.forced else ""
        live.say(f"taken over from process {taken.previous_pid}: {taken.evidence}", look)
    return taken
