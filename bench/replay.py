"""Stepping through logs up to a million events, on a real screen and below it; deriving sessions again."""

import fcntl
import hashlib
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench import growth, sessions
from bench.measure import Figure, Section, Sizes, Table, seconds, verdict
from bench.page import number
from bench.stepping import STEPS, Stepped
from muse import app

MUSE = Path(sys.executable).with_name("muse")
EMPTY_SCREEN = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("ready-now")

Empty().run()
"""
SCREEN = (24, 80)
PAINT_SECONDS_MAX = 120.0
AFTER_EMPTY_MS = 300
STEP_MS = 50
PIECE = bytes(1 << 16)
ONE_ROUND_EVENTS = 50_000
"""A session of so many events is derived again once."""


def section(folder: Path, sizes: Sizes) -> Section:
    """The same questions to logs of every size."""
    found: list[tuple[list[float], list[float], Stepped]] = []
    for count in sizes.stepped:
        path = folder / f"stepped-{count}.muse"
        sessions.make(path, count)
        empties, paints = [], []
        for _ in range(sizes.rounds):
            empties.append(painted([sys.executable, "-c", EMPTY_SCREEN], b"ready-now", folder))
            paints.append(painted([str(MUSE), "replay", str(path)], b"opened", folder))
        found.append((empties, paints, _stepped(path)))
        path.unlink()
    measured = [one for _, _, one in found]
    return Section(
        title="Stepping through a log",
        before=(
            "Logs of five agents with prompts, answers, tools, approvals, edits and failures. *First rows*: from the "
            f"start of the command to its first rows on a terminal of {SCREEN[1]}×{SCREEN[0]}, beside a Textual "
            f"program that shows one word, in alternating rounds. Aim: no more than {AFTER_EMPTY_MS} ms after it. "
            "What stands in the tables below it was measured once, without a screen; a step is the median of "
            f"{STEPS}.",
        ),
        parts=(
            Table(headings=FIRST, rows=tuple(_first(paints, empties, one) for empties, paints, one in found)),
            Table(headings=INDEX, rows=tuple(map(_index, measured))),
            Table(headings=STEP, rows=tuple(map(_steps, measured))),
            Table(headings=SEARCH, rows=tuple(map(_search, measured))),
        ),
        after=(
            "The first rows are read as a page; neither the chain nor the index is waited for. The index is built "
            "beside the screen in slices: it follows the chain, folds, and keeps some twenty bytes an event and a "
            f"state without transcripts every 256. *A step* is a random one of {STEPS}: a page of 50 rows, its detail "
            "with blobs, the state pane. Until the index has come to an event its row and detail are there, its state "
            "is not: who goes to the end of a long log at once waits for its state as long as the index takes. A "
            "search makes what is shown of an event only where its stored bytes can hold the text; an expression "
            "makes all.",
        ),
    )


FIRST = ("events", "first rows (worst)", "an empty screen (worst)", "after it (worst)", f"aim {AFTER_EMPTY_MS} ms")
INDEX = (
    "events", "log file", "index", "an event", "read all rows", "ratio", "open with the chain checked", "memory before",
    "peak with the index",
)  # fmt: skip
STEP = (
    "events", "a step (worst)", f"aim {STEP_MS} ms", "its state (worst)", "one event read", "minimap", "jump to a kind",
)  # fmt: skip
SEARCH = (
    "events", "search: first hit half way", "search all", "an event", "read all rows for the bytes", "ratio",
    "longest slice", "filter by type", "filter by tool",
)  # fmt: skip


def _first(paints: Sequence[float], empties: Sequence[float], one: Stepped) -> tuple[str, ...]:
    after = [(paint - empty) * 1e3 for paint, empty in zip(paints, empties, strict=True)]
    met = verdict(met=median(after) <= AFTER_EMPTY_MS)
    return (f"{one.events:,}", _ms(paints), _ms(empties), f"{median(after):.0f} ms ({max(after):.0f})", met)


def _ms(samples: Sequence[float]) -> str:
    return f"{number(median(samples) * 1e3)} ms ({number(max(samples) * 1e3)})"


def _index(one: Stepped) -> tuple[str, ...]:
    return (
        f"{one.events:,}", f"{number(one.file_bytes / 1e6)} MB", f"{number(one.index)} s",
        f"{number(one.index / one.events * 1e6)} µs", f"{number(one.raw)} s", number(one.index / one.raw),
        f"{number(one.checked_open)} s", f"{number(one.base_bytes / 1e6)} MB", f"{number(one.peak_bytes / 1e6)} MB",
    )  # fmt: skip


def _steps(one: Stepped) -> tuple[str, ...]:
    met = verdict(met=max(one.steps) * 1e3 <= STEP_MS)
    return (
        f"{one.events:,}", _ms(one.steps), met, _ms(one.states), f"{number(median(one.reads) * 1e3)} ms",
        f"{number(one.minimap * 1e3)} ms", f"{number(one.jump * 1e3)} ms",
    )  # fmt: skip


def _search(one: Stepped) -> tuple[str, ...]:
    by_reading = f"{number(one.filter_by_reading)} s" if one.filter_by_reading else ""
    return (
        f"{one.events:,}", f"{number(one.first_hit)} s", f"{number(one.search_all)} s",
        f"{number(one.search_all / one.events * 1e6)} µs", f"{number(one.raw_search)} s",
        number(one.search_all / one.raw_search), f"{number(max(one.slices) * 1e3)} ms",
        f"{number(one.filter_by_index)} s", by_reading,
    )  # fmt: skip


def _stepped(path: Path) -> Stepped:
    done = subprocess.run(
        [sys.executable, "-m", "bench.stepping", str(path)], capture_output=True, check=True,
        cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    return msgspec.json.decode(done.stdout, type=Stepped)


def painted(command: list[str], words: bytes, home: Path) -> float:
    """Seconds from the start of a command to the first time that the words stand on its terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "HOME": str(home), "MUSE_HOME": str(home / "home")}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while words not in seen:
            rest = PAINT_SECONDS_MAX - (time.perf_counter() - begun)
            ready, _, _ = select.select([ours], [], [], max(rest, 0))
            if not ready:
                raise TimeoutError(f"{command[0]} did not show {words!r}: {seen[-400:]!r}")
            seen += os.read(ours, 65536)
        return time.perf_counter() - begun
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def verifying(folder: Path, sizes: Sizes) -> Section:
    """`muse replay --verify` of sessions that the whole runtime ran."""
    figures = []
    folder = folder / "verified"
    folder.mkdir()
    for calls, uses in sizes.verified:
        ran = growth.run(folder, calls, "scripted", uses)
        path = folder / f"grown-{calls}.muse"
        sent = ran.request_bytes

        def verify(path: Path = path) -> None:
            assert app.verify_story(path).exit_code == 0

        def digest(sent: int = sent) -> None:
            whole = hashlib.sha256()
            for _ in range(sent // len(PIECE) + 1):
                whole.update(PIECE)

        rounds = sizes.rounds if ran.events < ONE_ROUND_EVENTS else 1
        ours, reference = seconds(rounds, verify, digest)
        path.unlink()
        figures.append(
            Figure(
                name=f"{ran.events:,} events, {calls:,} model calls of {number(sent / calls / 1e6)} MB",
                unit="s",
                samples=ours,
                reference="one SHA-256 over as many bytes as all requests have",
                reference_samples=reference,
                more_is_better=False,
            )
        )
    return Section(
        title="Deriving a session again",
        before=(
            "`muse replay --verify` of one agent's session: every decision is derived again from the state before it, "
            "every request built again byte for byte, every answer decoded again.",
        ),
        parts=(tuple(figures),),
        after=(
            "The requests of a session are the square of its length, because each sends the whole transcript: so is "
            "what building and hashing all of them costs. In the longest one a model call has a hundred tool uses; "
            "it is measured once. A million events of one agent are not: no model reads what that would send, and "
            "nothing shortens a transcript yet.",
        ),
    )
