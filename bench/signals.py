"""What live signals cost a session's loop: nobody listens, somebody does, some never read, one connects for ever."""

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import anyio

from bench.measure import Figure, Section, Sizes
from muse.app.signals import LiveFeed
from muse.event.envelope import Event
from muse.event.kinds import ModelRequested
from muse.runtime.signals import SOCKET, LiveSignals

STREAMS = 8
PIECE = "a few words "
BETWEEN_SECONDS = 0.01
"""Each stream says a piece a hundred times a second."""
SILENT = 10
"""Watchers that never read."""
TICK_SECONDS = 0.001
SHARE = 6
"""Of the seconds of a watched fleet each phase of a round gets one in so many."""
FLOOD = """
import socket, sys
while True:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(sys.argv[1])
        sock.send(b"garbage")
    except OSError:
        pass
    sock.close()
"""


def section(folder: Path, sizes: Sizes) -> Section:
    """The loop's delay with watchers against that without, in the same round."""
    rounds: dict[str, list[tuple[float, float]]] = {"none": [], "one": [], "silent": [], "flood": []}
    for _ in range(sizes.rounds):
        with tempfile.TemporaryDirectory(prefix="live-") as made:  # a short path, wherever the rest is measured
            for name, found in anyio.run(_round, Path(made), sizes.watched / SHARE).items():
                rounds[name].append(found)
    names = {
        "one": "one watcher", "silent": f"and {SILENT} that never read",
        "flood": "and a process that connects in an endless loop",
    }  # fmt: skip
    figures = [
        Figure(
            name=f"{what}{words}", unit="µs", samples=tuple(1e6 * one[at] for one in rounds[key]),
            reference="without a watcher", reference_samples=tuple(1e6 * one[at] for one in rounds["none"]),
            more_is_better=False,
        )
        for at, what in enumerate(("median delay, ", "99th percentile, "))
        for key, words in names.items()
    ]  # fmt: skip
    return Section(
        title="Live signals",
        before=(
            f"A loop that serves live signals, and in which {STREAMS} streams say {round(1 / BETWEEN_SECONDS)} pieces "
            "a second each: how much later than asked a task wakes up that sleeps for a millisecond.",
        ),
        parts=(tuple(figures),),
    )


async def _round(folder: Path, seconds: float) -> dict[str, tuple[float, float]]:
    live = LiveSignals(folder, "bench")
    found = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.serve)
        while not (folder / SOCKET).exists():
            await anyio.sleep(TICK_SECONDS)
        for stream in range(STREAMS):
            live.event(_asked(f"main.{stream + 1}/1"))
        tasks.start_soon(_talk, live)
        found["none"] = await _delays(seconds)
        with _listening(folder):
            found["one"] = await _delays(seconds)
            silent = [_connected(folder) for _ in range(SILENT)]
            await anyio.sleep(SILENT * 0.03)  # they are taken on one after another
            found["silent"] = await _delays(seconds)
            with subprocess.Popen([sys.executable, "-c", FLOOD, str(folder / SOCKET)]) as flood:
                found["flood"] = await _delays(seconds)
                flood.kill()
            for sock in silent:
                sock.close()
        tasks.cancel_scope.cancel()
    return found


def _asked(call: str) -> Event:
    body = ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="0", request_bytes=1
    )
    return Event(1, "0" * 32, "2026-11-30T09:00:00.000000Z", "model.requested", 1, "main", 0, 1, body)


async def _talk(live: LiveSignals) -> None:
    while True:
        for stream in range(STREAMS):
            live.signal(f"main.{stream + 1}/1", PIECE)
        await anyio.sleep(BETWEEN_SECONDS)


async def _delays(seconds: float) -> tuple[float, float]:
    """The median delay, and the 99th percentile."""
    delays = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(delays) < 2:
        begun = time.monotonic()
        await anyio.sleep(TICK_SECONDS)
        delays.append(time.monotonic() - begun - TICK_SECONDS)
    return median(delays), quantiles(delays, n=100, method="inclusive")[98]


@contextmanager
def _listening(folder: Path) -> Iterator[None]:
    """A watcher as `muse attach` is one, in a thread."""
    over = threading.Event()

    def listen() -> None:
        feed = LiveFeed(folder)
        while not over.wait(0.05):
            feed.take()
        feed.close()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _connected(folder: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(folder / SOCKET))
    return sock
