"""What the commands of a session left running: found, watched and ended by their identity on this machine.

A command's keeper lives while anything of it does and notes how its children end; where a keeper was killed, and after
its death, pid, start time and boot tell a process apart, and the mark in its environment says whose it is.
"""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from muse.effect.protocol import LeftProcess
from muse.effect.runner import files, processes
from muse.effect.runner.client import Runner
from muse.effect.runner.protocol import Exited, LeftRunning, RunnerError, Running
from muse.errors import Fenced
from muse.event.text import clean

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""
GIVE_UP_SECONDS = 5.0
"""After SIGKILL: how long until a process that does not go is let be."""
LOOK_SECONDS = 0.05


def left_process(left: LeftRunning, how: str = "") -> LeftProcess:
    """A process that a runner named, as the log names it."""
    started = int(left.start_time) if left.start_time.isdecimal() else 0
    return LeftProcess(
        pid=left.pid,
        started=started,
        command=clean(left.command).text,
        group=left.group,
        boot_id=processes.boot_id(),
        how=how,
    )


def lives(process: LeftProcess) -> bool:
    """Whether exactly that process runs. Where its start time is not known, any with its pid is taken for it."""
    if process.boot_id and process.boot_id != processes.boot_id():
        return False
    started = processes.start_time(process.pid)
    return started != "" and process.started in (0, int(started) if started.isdecimal() else 0)


def found_below(run_dir: Path) -> list[tuple[str, LeftProcess]]:
    """Every living process with a mark of this run folder, with its call."""
    try:
        prefix = processes.mark_prefix(str(run_dir))
    except OSError:
        return []  # nothing was ever started
    found = []
    for pid, mark in processes.marked(prefix):
        call, _, attempt = mark.removeprefix(prefix).rpartition(".")
        described = processes.describe(pid)
        if call and attempt.isdecimal() and described["start_time"]:
            found.append((call, left_process(LeftRunning(**described))))
    return found


class RunnerLeftovers:
    """`Leftovers` of a session's runner. `mask` takes known secrets out of command lines."""

    def __init__(self, runner: Runner, mask: Callable[[str], str] = str) -> None:
        self._runner = runner
        self._mask = mask
        self._asked: set[tuple[int, int]] = set()

    def lives(self, process: LeftProcess) -> bool:
        """As the protocol says."""
        return lives(process)

    def found(self) -> list[tuple[str, LeftProcess]]:
        """As the protocol says."""
        return [
            (call, msgspec.structs.replace(one, command=self._mask(one.command)))
            for call, one in found_below(self._runner.run_dir)
        ]

    def how(self, call: str, process: LeftProcess) -> str:
        """As the protocol says."""
        if process.boot_id and process.boot_id != processes.boot_id():
            return "the machine was restarted"
        for attempt in self._attempts(call):
            folder = files.call_folder(str(self._runner.run_dir), call, attempt)
            for line in files.read_lines(os.path.join(folder, files.ENDS)):
                if (line.get("pid"), line.get("start_time")) == (process.pid, str(process.started)):
                    return _said(line)
        return "ended on request" if (process.pid, process.started) in self._asked else "how it ended was not seen"

    async def end(self, call: str, named: Sequence[LeftProcess]) -> None:
        """As the protocol says. Raises Fenced."""
        self._asked |= {(one.pid, one.started) for one in named}
        for attempt in self._attempts(call):
            try:
                if isinstance(self._runner.inspect(call, attempt), Exited):
                    await self._runner.cancel(call, attempt)
            except Fenced:
                raise
            except RunnerError:
                continue  # what it should have ended is ended below
        await self._end(call, named, signal.SIGTERM, GRACE_SECONDS)
        await self._end(call, named, signal.SIGKILL, GIVE_UP_SECONDS)

    def tidy(self, is_over: Callable[[str], bool]) -> None:
        """As the protocol says."""
        for call in {call for call, _ in files.attempts(str(self._runner.run_dir))}:
            if is_over(call):
                self.forget(call)

    def forget(self, call: str) -> None:
        """As the protocol says. What cannot be taken away now is when the session is opened again."""
        for attempt in self._attempts(call):
            try:
                if not isinstance(self._runner.inspect(call, attempt), Running):
                    self._runner.discard(call, attempt)
            except (RunnerError, OSError):
                continue

    async def _end(self, call: str, named: Sequence[LeftProcess], number: signal.Signals, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while living := await anyio.to_thread.run_sync(self._living, call, named):
                for one in living:
                    processes.send(one.pid, str(one.started), number)
                    processes.send(one.pid, str(one.started), signal.SIGCONT)
                await anyio.sleep(LOOK_SECONDS)

    def _living(self, call: str, named: Sequence[LeftProcess]) -> list[LeftProcess]:
        marked = {(one.pid, one.started): one for of, one in found_below(self._runner.run_dir) if of == call}
        return list((marked | {(one.pid, one.started): one for one in named if lives(one)}).values())

    def _attempts(self, call: str) -> list[int]:
        return [attempt for of, attempt in files.attempts(str(self._runner.run_dir)) if of == call]


def _said(line: dict[str, object]) -> str:
    code, number = line.get("code"), line.get("signal")
    how = f"exit code {code}" if isinstance(code, int) else ended_by(number if isinstance(number, int) else 0)
    return f"ended on request, {how}" if line.get("asked") is True else how


def ended_by(number: int) -> str:
    """A signal in words."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
