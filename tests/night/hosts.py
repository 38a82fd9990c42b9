"""One session of `muse` in a rig over many lives: started, watched without waiting for it, killed, resumed.

`lines` is what an outside process has read of its `--json` output over all lives; `memory` the largest that each kind
of process was seen to be (VmHWM of proc_pid_status(5), in KiB).
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests import warm
from tests.crash.matrix.life import finished_calls, runner_processes, unfinished_calls
from tests.e2e.rig import Event, Rig

PATIENCE_SECONDS = 90.0
LOOK_SECONDS = 0.004
MEMORY_SECONDS = 1.0
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


class Stuck(AssertionError):
    """The session does not get on, and nobody killed it."""


class Session:
    """The session, and its process if it has one."""

    def __init__(self, rig: Rig, prompt: str, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.rig, self.prompt, self.flags = rig, prompt, flags
        self.environment = environment or {}
        self.lines: list[str] = []
        self.events: list[Event] = []
        self.kills = self.trees = self.lives = 0
        self.doubtful: set[str] = set()
        self.memory = {"host": 0, "runner": 0}
        self.status: int | None = None
        self._read_to = 0
        self._memory_at = 0.0
        self.shown_at = time.monotonic()

    # -- one life ----------------------------------------------------------------------------------------------------

    def start(self, failpoint: str = "") -> None:
        """A process that begins it, or goes on with it."""
        self.lives += 1
        self.out = self.rig.folder / f"life.{self.lives}"
        arguments = ["exec", *self.flags, "--json", self.prompt]
        if self.events:
            arguments = ["resume", self.rig.session(), "--json", "--after", str(self.events[-1]["seq"])]
        environment = self.rig.environment | self.environment
        environment |= {"MUSE_FAILPOINT": failpoint} if failpoint else {}
        with self.out.open("wb") as out, self.errors_file.open("wb") as errors:
            self.process = warm.Popen(
                [*self.rig.command, *arguments], cwd=self.rig.workspace, env=environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self.status, self._read_to = None, 0
        self.begun = self.shown_at = time.monotonic()

    @property
    def errors_file(self) -> Path:
        return self.out.with_suffix(f"{self.out.suffix}.err")

    def errors(self) -> str:
        return self.errors_file.read_text(errors="replace")[-3000:]

    def look(self) -> list[Event]:
        """What it has shown since the last look."""
        self.status = self.process.poll()
        self._measure()
        with self.out.open("rb") as out:
            out.seek(self._read_to)
            data = out.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        new = whole.decode().splitlines(keepends=True)
        found = [json.loads(line) for line in new]
        self.lines += new
        self.events += found
        if new:
            self.shown_at = time.monotonic()
        return found

    def until(self, what: Callable[[], object], meanwhile: Callable[[], None] | None = None) -> None:
        """Watch until `what()` is true. Raises Stuck when the process ends before, or nothing happens for long."""
        while True:
            self.look()
            if meanwhile is not None:
                meanwhile()
            if what():
                return
            if self.status is not None:
                raise Stuck(f"it ended by itself ({self.status}); {self.errors()}")
            if time.monotonic() - self.shown_at > PATIENCE_SECONDS:
                raise Stuck(f"nothing for {PATIENCE_SECONDS:g} s after {self.events[-3:]}; {self.errors()}")
            time.sleep(LOOK_SECONDS)

    def to_the_end(self, meanwhile: Callable[[], None] | None = None) -> int:
        """Watch until it ends by itself; its exit code."""
        self.until(lambda: self.status is not None, meanwhile)
        self.look()
        assert self.status is not None
        return self.status

    def kill(self, *, tree: bool = False) -> bool:
        """SIGKILL to the host, or to it, its runner and their commands; whether the host was alive."""
        self.look()
        alive = self.process.poll() is None
        if alive:
            self._measure(at_once=True)
            os.kill(self.process.pid, signal.SIGKILL)
        self.status = self.process.wait(PATIENCE_SECONDS)
        if tree:
            before = unfinished_calls(self.rig)
            self.rig.kill_all()
            self.doubtful |= (before | unfinished_calls(self.rig)) - finished_calls(self.rig)
        self.look()
        died = alive and self.status == -signal.SIGKILL
        self.kills += died and not tree
        self.trees += died and tree
        return died

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] == "session.closed"

    def quiet(self, seconds: float) -> bool:
        """Whether it has shown nothing for so long."""
        return time.monotonic() - self.shown_at > seconds

    def count(self, *types: str) -> int:
        """Events of these types so far."""
        return sum(event["type"] in types for event in self.events)

    # -- measuring -----------------------------------------------------------------------------------------------------

    def _measure(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._memory_at < MEMORY_SECONDS:
            return
        self._memory_at = time.monotonic()
        self.memory["host"] = max(self.memory["host"], peak_kib(self.process.pid))
        supervisors, _ = runner_processes(self.rig)
        self.memory["runner"] = max([self.memory["runner"], *map(peak_kib, supervisors)])


def peak_kib(pid: int) -> int:
    """VmHWM of a process; 0 when it is gone."""
    with suppress(OSError):
        if found := PEAK.search(Path(f"/proc/{pid}/status").read_text()):
            return int(found[1])
    return 0
