"""Telling a person who looks elsewhere: what is worth telling, and the command of their settings that is run for it.

A notice belongs to an event that this process appended as the owner, and is given once it is durable: what an earlier
owner recorded is not told again after a resume, and a notice that a kill came before is not made up for. The command
runs beside the session and can neither hold it up nor end it.
"""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import msgspec

from muse.config import NoticeKind
from muse.event.envelope import Event
from muse.event.kinds import ApprovalRequested, BudgetReached, QuestionAsked, SessionClosed
from muse.view.summary import limit_words, outcome_words
from muse.view.visible import headline

NOTIFY_SECONDS: Final = 10.0
"""How long the command may take; then it is killed, with all in its process group."""
KILL_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.02
NOTICES_WAITING_MAX: Final = 100
"""So many notices wait for those before them; what comes then is not told."""
TEXT_CHARS_MAX: Final = 200


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is told, as the command gets it on standard input. `address` is what a command takes to look at it
    or to answer; `text` is safe for a terminal and stands on one line."""

    event: NoticeKind
    session: str
    name: str
    address: str
    agent: str
    seq: int
    time: str
    workspace: str
    text: str
    outcome: str = ""


def notice_of(event: Event, session: str, name: str, workspace: str, answer: str = "") -> Notice | None:
    """The notice that an event is worth, None for most. `name` is what people call the session, `answer` what `main`
    said last. What a person did is no news to them: a cancelled session gives none."""
    body = event.body
    kind: NoticeKind
    outcome = ""
    match body:
        case ApprovalRequested():
            kind, said = "approval", f"{event.agent} asks: may this run? {headline(body.shown, TEXT_CHARS_MAX)}"
        case QuestionAsked():
            kind, said = "question", f"{event.agent} asks: {headline(body.text, TEXT_CHARS_MAX)}"
        case BudgetReached():
            kind, said = "limit", f"{event.agent}: {limit_words(body.limit, body.value, 'reached')}"
        case SessionClosed(outcome="done"):
            kind, said, outcome = "finished", f"done: {answer}" if answer else "done", body.outcome
        case SessionClosed(outcome="failed" | "provider" | "unanswered"):
            kind, said, outcome = "failed", outcome_words(body.outcome, body.reason), body.outcome
        case _:
            return None
    return Notice(
        event=kind, session=session, name=name, address=f"{name}@{event.seq}", agent=event.agent, seq=event.seq,
        time=event.time, workspace=workspace, text=headline(f"muse {name}: {said}", TEXT_CHARS_MAX), outcome=outcome,
    )  # fmt: skip


class Notices:
    """Runs the command of the settings for one notice after the other. Made in any thread; `tell` never waits."""

    def __init__(self, command: Sequence[str], kinds: Sequence[NoticeKind], seconds: float = NOTIFY_SECONDS) -> None:
        """`command` empty: nothing is run. `kinds` are those that are told, `seconds` what one run may take."""
        self._command, self._kinds, self._seconds = tuple(command), frozenset(kinds), seconds
        self._waiting: queue.Queue[Notice | None] = queue.Queue(NOTICES_WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._trouble, self._has_said = "", False

    def tell(self, notice: Notice) -> None:
        """Have the command run for a notice, soon."""
        if not self._command or notice.event not in self._kinds:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()
        with suppress(queue.Full):
            self._waiting.put_nowait(notice)

    def trouble(self) -> str:
        """Why the command failed; once, and then never again."""
        if not self._trouble or self._has_said:
            return ""
        self._has_said = True
        return self._trouble

    async def finish(self) -> None:
        """Wait until all that was told before has been given, at most for a little more than one command may take."""
        if self._thread is None:
            return
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        with anyio.move_on_after(self._seconds + KILL_SECONDS):
            while self._thread.is_alive():
                await anyio.sleep(LOOK_SECONDS)

    def _work(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._trouble = self._trouble or self._run(notice)

    def _run(self, notice: Notice) -> str:
        """Run the command; why it failed, "" if it did not."""
        program = os.path.expanduser(self._command[0])
        try:
            process = subprocess.Popen(
                [program, *self._command[1:], notice.text], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, cwd=_home(),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"notify: {headline(self._command[0], 60)} cannot be run: {getattr(error, 'strerror', error)}"
        try:
            process.communicate(msgspec.json.encode(notice) + b"\n", timeout=self._seconds)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"notify: {headline(self._command[0], 60)} took over {self._seconds:g} s and was ended"
        code = process.returncode
        return f"notify: {headline(self._command[0], 60)} failed (exit {code})" if code else ""


def _home() -> str:
    """Where the command runs: never in the workspace, whose files are somebody else's."""
    home = Path("~").expanduser()
    return str(home) if home.is_dir() else "/"
