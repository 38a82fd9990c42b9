"""A task whose steps count themselves, one crash of it, and what the counter says afterwards.

Each step is a command that appends its start, then after a while its end, to a file that no framework knows of, and
says which process it was. So it shows whether a step ran twice, whether two copies ran side by side, and whose output
the model was given. This module knows no framework: a contestant is a way to start or resume the task in a folder.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.005
PROMPT = "Run the commands, one after the other."

_line = re.compile(r"(\d+) (start|end) (\d+)")
_said = re.compile(r"did (\d+) as (\d+)")


class Contestant(Protocol):
    """One way to run the task. `folder` holds `task.json` and, as the commands' working folder, `work/`."""

    name: str
    uses: str

    def versions(self) -> str:
        """What is compared, with versions."""
        ...

    def life(self, folder: Path) -> subprocess.Popen[str]:
        """Begin the task, or go on with it as the documentation says; its process."""
        ...

    def told(self, folder: Path) -> list[str]:
        """The conversation of each request to the model so far, as text."""
        ...

    def record(self, folder: Path) -> Path:
        """The SQLite file that holds the record."""
        ...

    def end(self, folder: Path) -> None:
        """End whatever of the task still runs."""
        ...


@dataclass
class Crash:
    """What one crash did. Steps by number."""

    finished_again: int = 0
    killed: int = 0
    killed_again: int = 0
    side_by_side: int = 0
    orphans: int = 0
    silent: int = 0
    completed: bool = False
    problem: str = ""


@dataclass
class Steps:
    """The lines of a counter: the processes that started, and that ended, each step, in order."""

    starts: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[int]] = field(default_factory=dict)
    lines: list[tuple[int, str, int]] = field(default_factory=list)


def make_task(folder: Path, seconds: list[float]) -> None:
    """The task of steps that take so long each."""
    (folder / "work").mkdir(parents=True)
    commands = [
        f'echo "{n} start $$" >> counter; sleep {wait}; echo "{n} end $$" >> counter; echo "did {n} as $$"'
        for n, wait in enumerate(seconds)
    ]
    (folder / "task.json").write_text(json.dumps({"prompt": PROMPT, "commands": commands}))


def counted(folder: Path) -> Steps:
    """What the counter holds now."""
    path, steps = folder / "work" / "counter", Steps()
    text = path.read_text() if path.exists() else ""
    for number, what, pid in _line.findall(text):
        steps.lines.append((int(number), what, int(pid)))
        kept = steps.starts if what == "start" else steps.ends
        kept.setdefault(int(number), []).append(int(pid))
    return steps


def to_the_end(contestant: Contestant, folder: Path) -> tuple[int, str]:
    """One life that nobody disturbs: exit code and what it said."""
    process = contestant.life(folder)
    try:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return -9, f"it did not end within {PATIENCE_SECONDS:g} s"
    return process.returncode, output + errors


def crash(contestant: Contestant, folder: Path, when: Callable[[Steps], bool], wait: float, calm: str) -> Crash:
    """SIGKILL to the worker `wait` seconds after `when`, at once a resume, and what came of it. `calm` is the last
    request of a run without a crash."""
    process = contestant.life(folder)
    until(lambda: when(counted(folder)) or process.poll() is not None)
    time.sleep(wait)
    process.kill()
    process.communicate()
    before = counted(folder)
    running = {
        number: pids[-1] for number, pids in before.starts.items() if pids[-1] not in before.ends.get(number, [])
    }
    alive = {number: pid for number, pid in running.items() if lives(pid)}
    code, said = to_the_end(contestant, folder)
    until(lambda: not any(lives(pid) for pid in alive.values()))
    after, told = counted(folder), contestant.told(folder)
    given = {int(number): int(pid) for number, pid in _said.findall(told[-1])} if told else {}
    found = Crash(killed=len(running), completed=code == 0 and "Done." in said)
    found.problem = "" if found.completed else f"exit code {code}: {said[-300:]}"
    for number, pids in after.starts.items():
        again = len(pids) - 1
        if number in running:
            found.killed_again += again > 0
            found.orphans += number in alive and given.get(number) != alive[number]
            found.side_by_side += again > 0 and beside(after, number, pids[0])
        elif number in before.ends:
            found.finished_again += again > 0
    repeats = found.killed_again + found.finished_again
    found.silent = repeats if told and without_pids(told[-1]) == without_pids(calm) else 0
    contestant.end(folder)
    return found


def beside(steps: Steps, number: int, first: int) -> bool:
    """Whether the second copy of a step started before the first one's end."""
    lines = [(what, pid) for at, what, pid in steps.lines if at == number]
    second = next(at for at, (what, pid) in enumerate(lines) if what == "start" and pid != first)
    return ("end", first) not in lines[:second]


def without_pids(text: str) -> str:
    """A conversation as it is whichever process said it, and however a framework numbers or dates it."""
    return "\n".join(f"did {number}" for number, _ in _said.findall(text)) + str(len(re.findall("exit code 0", text)))


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(what: Callable[[], bool]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_SECONDS:g} s in vain")
        time.sleep(LOOK_SECONDS)


def kill_below(folder: Path) -> None:
    """SIGKILL to every process that works in a folder, or was started with its home there."""
    mark = f"HOME={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            inherited = mark in (entry / "environ").read_bytes().split(b"\0")
            inside = Path(os.readlink(entry / "cwd")).is_relative_to(folder)
            named = str(folder).encode() in (entry / "cmdline").read_bytes()
            if (inherited or inside or named) and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
