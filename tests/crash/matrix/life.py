"""One process of `muse` in a rig, watched from outside until it ends or is killed where the plan wants it.

At a failpoint the process that gets there stops itself (host, supervisor or keeper). Then this side chooses whom it
kills, and lets the others go on: so a runner can be killed exactly when the host is about to start an effect.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from muse.failpoint import LINE_BYTES, VARIABLE
from tests import warm
from tests.crash.matrix.cells import COUNTER
from tests.crash.matrix.plan import Kill
from tests.e2e.rig import Rig

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.004
QUIET_SECONDS = 0.3
SUPERVISOR = b"/effect/runner/supervisor.py"


class Stuck(Exception):
    """The session does not get on, and nobody killed it."""


class Life:
    """One process. `lines` of all lives are collected in the list that it is given."""

    def __init__(self, rig: Rig, number: int, command: list[str], kill: Kill | None, lines: list[str]) -> None:
        self.rig, self.lines, self.kill = rig, lines, kill
        self.out = rig.folder / f"out.{number}"
        self.hits = rig.folder / f"hits.{number}"
        self.shown = 0
        self.read_to = 0
        self.status: int | None = None
        self.stopped: set[int] = set()
        self.started_before = commands_begun(rig)
        environment = dict(rig.environment)
        if kill is not None and kill.place:
            environment[VARIABLE] = f"{kill.place}:{kill.count}:stop:{self.hits}"
        with self.out.open("wb") as out, (rig.folder / f"out.{number}.err").open("wb") as errors:
            in_start = kill is not None and not (kill.place or kill.running or kill.lines)
            self.process = (subprocess.Popen if in_start else warm.Popen)(
                command, cwd=rig.workspace, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        self.begun = self.shown_at = time.monotonic()
        self.hurried = False

    def errors(self) -> str:
        return (self.rig.folder / f"{self.out.name}.err").read_text(errors="replace")

    def error_bytes(self) -> int:
        """How much it has said on standard error."""
        return (self.rig.folder / f"{self.out.name}.err").stat().st_size

    # -- watching ----------------------------------------------------------------------------------------------------

    def until_killed(self, meanwhile: Callable[[], None]) -> tuple[bool, set[str]]:
        """Watch until the moment of the kill, and kill. Whether anything was killed, and the calls that may now be in
        doubt. Without a kill, or if it ends before, until the process ends. Raises Stuck."""
        while not self._look():
            if self.kill is not None and self._is_time(self.kill):
                time.sleep(self.kill.pause)
                return self._do(self.kill)
            meanwhile()
            time.sleep(LOOK_SECONDS)
        return False, set()

    def disarm(self) -> None:
        """Nobody stops at the place of this life's kill any more. A supervisor that goes on, and its keepers, have the
        setting still: so the hits are counted past it, and who stopped there unseen goes on."""
        if self.kill is None or not self.kill.place:
            return
        with self.hits.open("ab") as hits:
            hits.write((b"0".rjust(LINE_BYTES - 1) + b"\n") * self.kill.count)
        for line in self.hits.read_bytes().split():
            if int(line) and state_of(int(line)) == "T":
                os.kill(int(line), signal.SIGCONT)

    def to_the_end(self, meanwhile: Callable[[], None]) -> None:
        """Watch until the process ends. Raises Stuck."""
        while not self._look():
            meanwhile()
            time.sleep(LOOK_SECONDS)

    def _look(self) -> bool:
        """Read what it shows; whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.process.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.stopped.add(pid)
            elif pid:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
        with self.out.open("rb") as out:
            out.seek(self.read_to)
            data = out.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_to += len(whole)
        new = whole.decode().splitlines(keepends=True)
        self.lines += new
        self.shown += len(new)
        if new:
            self.shown_at = time.monotonic()
        if time.monotonic() - self.begun > PATIENCE_SECONDS:
            raise Stuck(f"nothing ended it within {PATIENCE_SECONDS:g} s; {self.errors()[-2000:]}")
        return self.status is not None

    def kill_now(self) -> None:
        """The plan's kill comes at the next look, wherever the process is."""
        self.hurried = True

    def is_quiet(self) -> bool:
        """Whether it has shown nothing for a while."""
        return time.monotonic() - self.shown_at > QUIET_SECONDS

    def _is_time(self, kill: Kill) -> bool:
        if self.hurried:
            return True
        if kill.place:
            return self._is_there(kill.count)
        if kill.running:
            return commands_begun(self.rig) > self.started_before
        return self.shown >= kill.lines

    def _is_there(self, count: int) -> bool:
        """Whether somebody stopped at the place: the host as seen by its parent, others by what they wrote."""
        with suppress(FileNotFoundError):
            lines = self.hits.read_bytes()
            if len(lines) >= count * LINE_BYTES:
                pid = int(lines[(count - 1) * LINE_BYTES : count * LINE_BYTES])
                if pid == self.process.pid:
                    return bool(self.stopped)
                if state_of(pid) == "T":
                    self.stopped.add(pid)
                    return True
        return False

    # -- killing -----------------------------------------------------------------------------------------------------

    def _do(self, kill: Kill) -> tuple[bool, set[str]]:
        doubtful: set[str] = set()
        killed = False
        if kill.victim in ("host", "tree"):
            self._look()
            if self.status is not None:
                return False, set()
            killed = self._kill_host()
        if kill.victim in ("runner", "keeper", "tree"):
            before = unfinished_calls(self.rig)
            supervisors, keepers = runner_processes(self.rig)
            chosen = {"runner": supervisors, "keeper": keepers}.get(kill.victim, supervisors + keepers)
            killed = _kill_all(chosen) or killed
            if kill.victim == "tree":
                self.rig.kill_all()
            if kill.victim != "runner":
                doubtful = (before | unfinished_calls(self.rig)) - finished_calls(self.rig)
        for pid in self.stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._look()
        return killed, doubtful

    def _kill_host(self) -> bool:
        self.process.kill()
        self.status = self.process.wait(PATIENCE_SECONDS)
        self._look()
        return self.status == -signal.SIGKILL


def commands_begun(rig: Rig) -> int:
    """How many commands have counted their start."""
    return (rig.workspace / COUNTER).read_text().count(" start\n")


def counted(rig: Rig) -> Counter[str]:
    """What the steps themselves counted."""
    return Counter((rig.workspace / COUNTER).read_text().splitlines())


def state_of(pid: int) -> str:
    """The state letter of a process, "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def runner_processes(rig: Rig) -> tuple[list[int], list[int]]:
    """Supervisors and keepers of a rig. A keeper is forked from a supervisor and leads a session of its own."""
    parents: dict[int, tuple[int, int]] = {}
    for pid in rig.processes():
        with suppress(OSError):
            if SUPERVISOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                parents[pid] = (int(fields[1]), int(fields[3]))
    keepers = [pid for pid, (parent, session) in parents.items() if session == pid or parent in parents]
    return [pid for pid in parents if pid not in keepers], keepers


def _kill_all(pids: list[int]) -> bool:
    """SIGKILL to each, until they are gone; whether any was there."""
    killed = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed = True
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(state_of(pid) not in ("", "Z", "X") for pid in pids):
        if time.monotonic() > deadline:
            raise Stuck(f"{pids} cannot be killed")
        time.sleep(0.001)
    return killed


def _calls(rig: Rig, wanted: Callable[[Path], bool]) -> set[str]:
    found = set()
    for folder in rig.muse_home.glob("run/*/calls/main*"):
        if wanted(folder):
            found.add(folder.name.rpartition(".")[0].replace("-", "/"))
    return found


def unfinished_calls(rig: Rig) -> set[str]:
    """Calls that a runner accepted and of which it does not say how they ended."""
    return _calls(rig, lambda folder: (folder / "accepted").exists() and not (folder / "exit").exists())


def finished_calls(rig: Rig) -> set[str]:
    """Calls of which it says so."""
    return _calls(rig, lambda folder: (folder / "exit").exists())


def events_of(lines: list[str]) -> list[dict[str, object]]:
    """The events of lines as they were shown."""
    return [json.loads(line) for line in lines]
