"""Watching many agents: how soon the tree of `muse agents` answers a key, how often it draws, what it takes.

A process writes a session of so many children, a few events for each in turn (`python -m bench.agents_view FILE N`);
the installed command shows it on a terminal, and keys are pressed there. Below it: what the rows of a state cost.
"""

import fcntl
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

import msgspec

from bench.measure import Section, Sizes, Table, seconds, verdict
from bench.page import number
from bench.replay import MUSE
from bench.sessions import SETTINGS, TOOLS
from muse.app.fleet import Watched
from muse.event.content import Block, Usage
from muse.event.kinds import (
    COMMANDS,
    AgentSpawned,
    ModelRequested,
    ModelResponded,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim

SCREEN = (24, 120)
TICK_SECONDS = 0.05
A_TICK = 10
"""So many agents go a step on at once: two hundred do within a second."""
KEY_MS, REDRAWS, MEMORY_MIB = 200, 2, 400
PATIENCE_SECONDS = 60.0
USED = re.compile(rb"agents: [^\x1b]*? ([0-9,]+) tok")
"""In the title: what all agents used so far."""
CALL_ROWS = 20
Said = tuple[msgspec.Struct, str]


# -- who writes --------------------------------------------------------------------------------------------------------


def begin(children: int) -> Iterator[Said]:
    """A prompt, and a call that spawns all children."""
    yield UserPrompted(text="Do all of it."), "main"
    yield AgentSpawned(system="You work.", tools=("read", "shell", "edit")), "main"
    yield _asks("main", 1), "main"
    yield _answers("main", 1, "word 0", ("spawn", "{}")), "main"
    yield ToolStarted(call="main/2", attempt=1, tool="spawn", args="{}", recovery="derived"), "main"
    for n in range(1, children + 1):
        task = f"Part {n} of the work, which is like all others."
        child = AgentSpawned(task=task, parent="main", call="main/2", index=n - 1, name=f"part-{n}", tools=("shell",))
        yield child, f"main.{n}"


def goes_on(children: int) -> Iterator[list[Said]]:
    """A few events at a time, without end: each child asks, runs something, has its result."""
    call = dict.fromkeys(range(1, children + 1), 1)
    for word in itertools.count(1):
        found: list[Said] = []
        for n in (1 + (word * A_TICK + at) % children for at in range(min(A_TICK, children))):
            lane, key = f"main.{n}", call[n]
            use = ("shell", f'{{"command":"make part-{n} STEP={key}"}}')
            run = ToolStarted(call=f"{lane}/{key + 1}", attempt=1, tool="shell", args=use[1], recovery="opaque")
            done = ToolFinished(call=f"{lane}/{key + 1}", attempt=1, status="ok", text="made", duration_ms=40)
            answer = _answers(lane, key, f"word {word}", use)
            found += [(body, lane) for body in (_asks(lane, key), answer, run, done)]
            call[n] = key + 2
        yield found


def _asks(lane: str, key: int) -> ModelRequested:
    return ModelRequested(
        call=f"{lane}/{key}", attempt=1, provider="scripted", model="-", builder="scripted/1", items=key,
        request_sha256="0" * 64, request_bytes=900 * key,
    )  # fmt: skip


def _answers(lane: str, key: int, text: str, use: tuple[str, str]) -> ModelResponded:
    blocks = (Block(kind="text", text=text), Block(kind="tool_use", id=f"u{key}", name=use[0], args=use[1]))
    usage = Usage(input=900, output=40, cost_microusd=700)
    return ModelResponded(call=f"{lane}/{key}", attempt=1, blocks=blocks, stop="tool_use", usage=usage, duration_ms=30)


def write(path: Path, children: int) -> None:
    """Write until standard input ends; `ready` when all children are there."""
    with closing(SqliteLog.create(path, "20260309-090000-fanned00", commands=COMMANDS)) as log:
        epoch = claim(log, SETTINGS, str(path.parent), lambda _epoch: TOOLS).epoch
        head = log.append([seal(body, lane, 0) for body, lane in begin(children)], [], 1, epoch).head.seq
        print("ready", flush=True)
        for part in goes_on(children):
            if select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
                return
            head = log.append([seal(body, lane, 0) for body, lane in part], [], head, epoch).head.seq


# -- who looks ---------------------------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True):
    """What one screen did: seconds to its first lines and for each key, draws a second, its processor time in a
    second, its largest memory."""

    children: int
    first: float
    keys: tuple[float, ...]
    draws: float
    cpu: float
    memory_mib: float


class Screen:
    """`muse agents` on a terminal of its own."""

    def __init__(self, path: Path, home: Path) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "HOME": str(home), "MUSE_HOME": str(home / "home")}
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
        command = [str(MUSE), "agents", str(path)]
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )  # fmt: skip
        os.close(theirs)

    def wait(self, words: bytes) -> float:
        """Seconds until these words are written to the terminal."""
        begun, seen = time.perf_counter(), b""
        while words not in seen:
            rest = PATIENCE_SECONDS - (time.perf_counter() - begun)
            if not select.select([self._ours], [], [], max(rest, 0))[0]:
                raise TimeoutError(f"the screen did not show {words!r}: {seen[-400:]!r}")
            seen += os.read(self._ours, 65536)
        return time.perf_counter() - begun

    def key(self, key: bytes, words: bytes) -> float:
        """Press one; seconds until the words that it leads to."""
        os.write(self._ours, key)
        return self.wait(words)

    def draws(self, length: float) -> float:
        """How often a second the newest sum of tokens was drawn, for so many seconds."""
        end, seen = time.perf_counter() + length, b""
        while (rest := end - time.perf_counter()) > 0:
            if select.select([self._ours], [], [], rest)[0]:
                seen += os.read(self._ours, 65536)
        found = USED.findall(seen)
        return sum(1 for one, other in itertools.pairwise(found) if one != other) / length

    def cpu(self) -> float:
        """Processor seconds so far (proc_pid_stat(5))."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """The most that it ever held."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def look(folder: Path, children: int, keys: int, length: float) -> Seen:
    """One session of so many children, looked at while it is written."""
    path = folder / f"agents-{children}.muse"
    command = [sys.executable, "-m", "bench.agents_view", str(path), str(children)]
    writer = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parent.parent
    )  # fmt: skip
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdout.readline()
    screen = Screen(path, folder)
    try:
        first = screen.wait(f"1/{children + 1}".encode())
        pressed = [screen.key(b"j", f"{at}/{children + 1}".encode()) for at in range(2, 2 + min(keys, children))]
        before = screen.cpu()
        draws = screen.draws(length)
        cpu = (screen.cpu() - before) / length
        return Seen(children, first, tuple(pressed), draws, cpu, screen.memory_mib())
    finally:
        screen.close()
        writer.stdin.close()
        writer.wait()
        writer.stdout.close()
        with suppress(OSError):
            path.unlink()


def rows_of(folder: Path, children: int, rounds: int) -> tuple[float, float]:
    """Seconds for the rows of a state, and for taking in a tick of events, of so many children."""
    path = folder / f"rows-{children}.muse"
    with closing(SqliteLog.create(path, "20260309-090000-fanned01", commands=COMMANDS)) as log:
        epoch = claim(log, SETTINGS, str(folder), lambda _epoch: TOOLS).epoch
        head = log.append([seal(body, lane, 0) for body, lane in begin(children)], [], 1, epoch).head.seq
        watched, ticks = Watched(path), goes_on(children)
        watched.look()
        took: list[float] = []
        for _ in range(max(rounds, 2 * children // A_TICK if children > A_TICK else 2)):
            head = log.append([seal(body, lane, 0) for body, lane in next(ticks)], [], head, epoch).head.seq
            begun = time.perf_counter()
            watched.look()
            took.append(time.perf_counter() - begun)
        (samples,) = seconds(rounds, lambda: [watched.rows() for _ in range(CALL_ROWS)])
        watched.close()
    path.unlink()
    return median(samples) / CALL_ROWS, median(took)


def section(folder: Path, sizes: Sizes) -> Section:
    """The screen, and what is below it."""
    seen = [look(folder, children, sizes.keys, sizes.watched) for children in sizes.children]
    many = (*sizes.children, 5 * sizes.children[-1])
    rows = [(children, *rows_of(folder, children, sizes.rounds)) for children in many]
    least = rows[0][1] / rows[0][0]
    return Section(
        title="Watching many agents",
        before=(
            f"`muse agents` on a terminal of {SCREEN[1]}×{SCREEN[0]}, while another process writes the session: "
            f"{A_TICK} agents go a step of four events on every {TICK_SECONDS * 1000:.0f} ms. *A key* is from pressing "
            "it to the line that it leads to, *draws* how often a second a new sum of tokens stood on the screen, "
            "*memory* the peak of the viewer. Measured once; the two processes share the machine.",
        ),
        parts=(
            Table(headings=HEADINGS, rows=tuple(map(_screen, seen))),
            Table(
                headings=("children", "rows of all", "an agent", f"against {rows[0][0]}", "40 events taken in"),
                rows=tuple(
                    (f"{children:,}", f"{number(one * 1e3)} ms", f"{number(one / children * 1e6)} µs",
                     number(one / children / least), f"{number(tick * 1e3)} ms")
                    for children, one, tick in rows
                ),
            ),
        ),
        after=(
            "The rows are made of the state and of what the events said last; no transcript is kept or read. What is "
            "new in the log is folded once, whoever wrote it.",
        ),
    )  # fmt: skip


HEADINGS = (
    "children", "first lines", "a key (worst)", f"aim {KEY_MS} ms", "draws a second", f"aim {REDRAWS}",
    "processor time of the viewer", "its memory", f"aim {MEMORY_MIB} MiB",
)  # fmt: skip


def _screen(one: Seen) -> tuple[str, ...]:
    keys = [key * 1e3 for key in one.keys]
    return (
        f"{one.children:,}", f"{number(one.first)} s", f"{number(median(keys))} ms ({number(max(keys))})",
        verdict(met=max(keys) <= KEY_MS), number(one.draws), verdict(met=one.draws >= REDRAWS),
        f"{one.cpu * 100:.0f} %", f"{one.memory_mib:.0f} MiB", verdict(met=one.memory_mib <= MEMORY_MIB),
    )  # fmt: skip


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
