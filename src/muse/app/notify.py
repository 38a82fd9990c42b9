"""Telling a person who looks elsewhere: what is worth telling, and the command of their settings that is run for it.

A notice belongs to an event that this process appended as the owner, and is given once it is durable: what an earlier
owner recorded is not told again after a resume, and a notice that a kill came before is not made up for. The command
runs beside the session and can neither hold it up, nor its end, nor end it.
"""

import os
import queue
import subprocess
import sys
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
from muse.view.visible import headline, one_line

NOTIFY_SECONDS: Final = 10.0
"""How long the command may take; then it is killed, with all in its process group."""
FINISH_SECONDS: Final = 1.0
"""How long the end of a session waits for what is being given."""
START_SECONDS: Final = 1.0
"""And how long for what still waits to be begun."""
LOOK_SECONDS: Final = 0.02
LEFT_MAX: Final = 8
"""So many commands at most go on when the session has ended."""
REPORT_BYTES_MAX: Final = 4096
_RUN: Final = Path(__file__).with_name("notify_run.py")
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
    """Runs the command of the settings for one notice after the other. Made in any thread; `tell` never waits.

    Each run is a small process of its own (`notify_run`), which ends the command in time and outlives this one: what
    still runs when the session ends is not waited for, and what still waits then is begun at once.
    """

    def __init__(self, command: Sequence[str], kinds: Sequence[NoticeKind], seconds: float = NOTIFY_SECONDS) -> None:
        """`command` empty: nothing is run. `kinds` are those that are told, `seconds` what one run may take."""
        self._command, self._kinds, self._seconds = tuple(command), frozenset(kinds), seconds
        self._waiting: queue.Queue[Notice | None] = queue.Queue(NOTICES_WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._leaves = threading.Event()
        self._left: list[subprocess.Popen[bytes]] = []
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
        """Wait a moment for what is being given. What takes longer goes on without this process."""
        if self._thread is None:
            return
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        for seconds in (FINISH_SECONDS, START_SECONDS):
            with anyio.move_on_after(seconds):
                while self._thread.is_alive():
                    await anyio.sleep(LOOK_SECONDS)
            self._leaves.set()

    def _work(self) -> None:
        while (notice := self._next()) is not None:
            process = self._begin(notice)
            if process is None:
                continue
            while process.poll() is None and not self._leaves.wait(LOOK_SECONDS):
                pass
            if process.returncode is None:
                self._left.append(process)
                continue
            self._note(self._report(process))

    def _next(self) -> Notice | None:
        if not self._leaves.is_set():
            return self._waiting.get()
        if len(self._left) >= LEFT_MAX:
            return None
        with suppress(queue.Empty):
            return self._waiting.get_nowait()
        return None

    def _begin(self, notice: Notice) -> "subprocess.Popen[bytes] | None":
        """Start the process that runs the command. It has the whole notice when this returns."""
        program = os.path.expanduser(self._command[0])
        line = [
            sys.executable,
            "-I",
            "-S",
            "-B",
            str(_RUN),
            f"{self._seconds}",
            program,
            *self._command[1:],
            notice.text,
        ]
        try:
            process = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd=_home(),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._note(f"cannot be run: {getattr(error, 'strerror', None) or error}")
            return None
        assert process.stdin is not None
        with suppress(OSError), process.stdin:
            process.stdin.write(msgspec.json.encode(notice) + b"\n")
        return process

    def _report(self, process: "subprocess.Popen[bytes]") -> str:
        assert process.stdout is not None
        with process.stdout:
            return process.stdout.read(REPORT_BYTES_MAX).decode(errors="replace").strip()

    def _note(self, why: str) -> None:
        if why and not self._trouble:
            self._trouble = f"notify: {headline(self._command[0], 60)} {one_line(why)}"


def _home() -> str:
    """Where the command runs: never in the workspace, whose files are somebody else's."""
    home = Path("~").expanduser()
    return str(home) if home.is_dir() else "/"
