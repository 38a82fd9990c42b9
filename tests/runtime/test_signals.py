"""The socket of live signals: who listens is told, and nobody who listens can hold up or harm who tells."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from muse.app.signals import LiveFeed
from muse.event.envelope import Event
from muse.event.kinds import ModelRequested, ModelResponded, ToolFinished, ToolStarted
from muse.event.signal import Dropped, Hello, Piece, read
from muse.runtime.signals import QUEUE_CHARS_MAX, SOCKET, WATCHERS_MAX, LiveSignals, listen, reachable
from tests.ui.driving import eventually

PATIENCE_SECONDS = 60.0


class Owner:
    """Signals that are served by a thread of their own; `do` runs something there, as the session's loop would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live = LiveSignals(folder, "s")
        self._asked: list[Callable[[], object]] = []
        self._over = False
        self._thread = threading.Thread(target=lambda: anyio.run(self._serve))
        self._thread.start()
        eventually((folder / SOCKET).is_socket)

    async def _serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.live.serve)
            while not self._over:
                while self._asked:
                    self._asked.pop(0)()
                await anyio.sleep(0.002)
            tasks.cancel_scope.cancel()

    def do(self, what: Callable[[], object]) -> None:
        done = threading.Event()
        self._asked += [what, done.set]
        assert done.wait(PATIENCE_SECONDS)

    def begins(self, call: str, attempt: int = 1) -> None:
        self.do(lambda: self.live.event(event(asked(call, attempt))))

    def runs(self, call: str) -> None:
        body = ToolStarted(call=call, attempt=1, tool="t", args="", recovery="pure")
        self.do(lambda: self.live.event(event(body)))

    def says(self, call: str, *texts: str) -> None:
        def say() -> None:
            for text in texts:
                self.live.signal(call, text)

        self.do(say)

    def close(self) -> None:
        self._over = True
        self._thread.join(PATIENCE_SECONDS)


@contextmanager
def owning(folder: Path) -> Iterator[Owner]:
    owner = Owner(folder)
    try:
        yield owner
    finally:
        owner.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    with owning(tmp_path / "run" / "s") as made:
        yield made


def event(body: Any) -> Event:
    return Event(1, "0" * 32, "2026-11-30T09:00:00.000000Z", "t", 1, "main", 0, 1, body)


def asked(call: str, attempt: int = 1) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=attempt, provider="p", model="m", builder="b/1", items=1, request_sha256="0", request_bytes=1
    )


def connected(folder: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE_SECONDS)
    with reachable(folder, SOCKET) as address:
        sock.connect(address)
    return sock


def lines(sock: socket.socket) -> Iterator[Any]:
    with sock.makefile("rb") as file:
        for line in file:
            yield read(line)


def heard(feed: LiveFeed, chars: int) -> list[Piece]:
    """What a watcher gets until it has so many characters."""
    found: list[Piece] = []

    def enough() -> bool:
        found.extend(feed.take())
        return sum(len(piece.text) for piece in found) >= chars

    eventually(enough)
    return found


def joined(pieces: list[Piece], call: str) -> str:
    """The stream of a call, put together by the places that the pieces name."""
    text = ""
    for piece in pieces:
        if piece.call == call:
            assert piece.at == len(text), "a gap, or a repetition"
            text += piece.text
    return text


def test_who_comes_in_the_middle_gets_the_beginning_too_and_each_agent_its_own(owner: Owner) -> None:
    owner.begins("main.1/1")
    owner.begins("main.2/1")
    owner.says("main.1/1", "one ", "two ")
    feed = LiveFeed(owner.folder)
    first = heard(feed, len("one two "))
    owner.says("main.2/1", "other")
    owner.says("main.1/1", "three")
    pieces = first + heard(feed, len("otherthree"))
    assert joined(pieces, "main.1/1") == "one two three"
    assert joined(pieces, "main.2/1") == "other"
    assert {piece.agent for piece in pieces} == {"main.1", "main.2"}
    feed.close()


def test_only_calls_that_are_under_way_are_told_and_another_attempt_begins_anew(owner: Owner) -> None:
    feed = LiveFeed(owner.folder)
    eventually(lambda: feed.take() or feed.is_heard)
    owner.says("main/1", "nobody asked")
    owner.begins("main/1", 1)
    owner.says("main/1", "half")
    owner.begins("main/1", 2)
    owner.says("main/1", "whole")
    owner.do(lambda: owner.live.event(event(ModelResponded(call="main/1", attempt=2, blocks=(), stop="end_turn"))))
    owner.says("main/1", "too late")
    summary = ModelRequested(
        call="main/2", attempt=1, provider="p", model="m", builder="b", items=1, request_sha256="0", request_bytes=1,
        purpose="summary",
    )  # fmt: skip
    owner.do(lambda: owner.live.event(event(summary)))
    owner.says("main/2", "not meant for people")
    owner.runs("main/3")
    owner.says("main/3", "output")
    owner.do(lambda: owner.live.event(event(ToolFinished(call="main/3", attempt=1, status="ok"))))
    found = heard(feed, len("halfwholeoutput"))
    assert [(one.kind, one.call, one.attempt, one.at, one.text) for one in found] == [
        ("text", "main/1", 1, 0, "half"), ("text", "main/1", 2, 0, "whole"), ("output", "main/3", 1, 0, "output"),
    ]  # fmt: skip
    feed.close()


def test_only_this_user_can_come_near_it(owner: Owner) -> None:
    assert stat.S_IMODE((owner.folder / SOCKET).lstat().st_mode) == 0o600
    assert stat.S_IMODE(owner.folder.stat().st_mode) == 0o700


def test_who_never_reads_loses_the_oldest_and_holds_up_nobody(owner: Owner) -> None:
    owner.begins("main/1")
    stuck = connected(owner.folder)
    feed = LiveFeed(owner.folder)
    eventually(lambda: feed.take() or feed.is_heard)
    piece, rounds = "x" * 1000, 20
    for _ in range(rounds):  # far more than a socket and a queue hold
        owner.says("main/1", *[piece] * 50)
        heard(feed, 50_000)
    assert feed.dropped == 0
    kept = max(watcher._chars for watcher in owner.live._watchers)
    assert kept <= QUEUE_CHARS_MAX
    signals = lines(stuck)
    assert isinstance(next(signals), Hello)
    dropped = got = 0
    for one in signals:
        if isinstance(one, Dropped):
            dropped += one.pieces
        else:
            got += len(one.text)
        if dropped * len(piece) + got == rounds * 50_000:
            break
    assert dropped > 0
    assert got < rounds * 50_000
    stuck.close()
    feed.close()


def test_a_thousand_connections_and_garbage_change_nothing_for_who_listens(owner: Owner) -> None:
    owner.begins("main/1")
    feed = LiveFeed(owner.folder)
    eventually(lambda: feed.take() or feed.is_heard)
    hostile = (
        "import socket, sys\n"
        "for number in range(1000):\n"
        "    sock = socket.socket(socket.AF_UNIX)\n"
        "    sock.setblocking(False)\n"
        "    try:\n"
        "        sock.connect(sys.argv[1])\n"
        "        sock.send(bytes(range(256)) * (number % 7))\n"
        "    except OSError:\n"
        "        pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", hostile, str(owner.folder / SOCKET)]) as process:
        said = 0
        while process.poll() is None or said < 20:
            owner.says("main/1", f"{said:4}")
            heard(feed, 4)
            said += 1
    assert process.returncode == 0
    assert feed.dropped == 0
    rude = connected(owner.folder)
    signals = lines(rude)
    assert isinstance(next(signals), Hello)
    rude.send(b'{"type":"hello"}\n')
    with suppress(ConnectionResetError):
        assert not [one for one in signals if isinstance(one, Hello)], "it was let go"
    eventually(lambda: len(owner.live._watchers) == 1)
    feed.close()
    rude.close()


def test_there_is_room_for_so_many_and_a_place_that_became_free_is_given_again(owner: Owner) -> None:
    them = [connected(owner.folder) for _ in range(WATCHERS_MAX)]
    for sock in them:
        assert isinstance(next(lines(sock)), Hello)
    late = connected(owner.folder)
    assert late.recv(1) == b""
    them[0].close()
    eventually(lambda: len(owner.live._watchers) == WATCHERS_MAX - 1)
    again = connected(owner.folder)
    assert isinstance(next(lines(again)), Hello)
    for sock in (*them[1:], late, again):
        sock.close()


@pytest.mark.skipif(sys.platform != "linux", reason="an address by way of /proc is Linux'")
def test_a_path_that_is_too_long_for_a_socket_has_one_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150) / "run" / "s"
    with owning(folder) as owner:
        owner.begins("main/1")
        owner.says("main/1", "heard")
        feed = LiveFeed(folder)
        assert joined(heard(feed, 5), "main/1") == "heard"
        feed.close()
    assert not folder.exists()


def test_the_socket_of_a_killed_owner_is_replaced_and_the_watcher_comes_along(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "s"
    holds = (
        "import sys, time\nfrom pathlib import Path\nfrom muse.runtime.signals import listen\n"
        "held = listen(Path(sys.argv[1]))\nprint('there', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holds, str(folder)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"there\n"
        feed = LiveFeed(folder)
        assert feed.take() == []
        first.send_signal(signal.SIGKILL)
    assert stat.S_ISSOCK((folder / SOCKET).lstat().st_mode)
    assert feed.take() == []
    assert not feed.is_heard
    with owning(folder) as owner:
        owner.begins("main/1")
        owner.says("main/1", "new")
        assert joined(heard(feed, 3), "main/1") == "new"
    assert not (folder / SOCKET).exists()
    feed.close()


def test_whatever_stands_in_its_place_is_replaced_and_an_owner_takes_only_its_own_away(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "s"
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (folder / SOCKET).symlink_to(elsewhere)
    with owning(folder):
        assert stat.S_ISSOCK((folder / SOCKET).lstat().st_mode)
        with listen(folder)[0]:
            there = (folder / SOCKET).lstat().st_ino
    assert (folder / SOCKET).lstat().st_ino == there
    assert elsewhere.read_text() == "untouched"
    assert sorted(os.listdir(folder)) == [SOCKET]


@pytest.mark.skipif(sys.platform != "linux", reason="who is behind a socket is told by Linux only")
def test_a_command_of_the_session_itself_hears_nothing(owner: Owner) -> None:
    """A keeper has the runner's command line, with the run folder in it (`effect.runner.peers`)."""
    asks = (
        "import socket, subprocess, sys\n"
        "if sys.argv[1:2] == ['below']:\n"
        "    sock = socket.socket(socket.AF_UNIX)\n"
        "    sock.connect(sys.argv[2])\n"
        "    print(len(sock.recv(100)))\n"
        "else:\n"
        "    here = [sys.executable, '-c', open('/proc/self/cmdline').read().split('\\0')[2]]\n"
        "    subprocess.run([*here, 'below', sys.argv[1] + '/live.sock'])\n"
    )
    command = [sys.executable, "-c", asks, str(owner.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert done.stdout == "0\n"
    beside = [sys.executable, "-c", asks, "below", str(owner.folder / SOCKET)]
    done = subprocess.run(beside, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert int(done.stdout) > 0


def test_a_watcher_believes_no_line_without_end(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "s"
    with listen(folder)[0] as listener:
        feed = LiveFeed(folder)
        assert feed.take() == []
        listener.setblocking(True)
        sock, _ = listener.accept()
        sock.setblocking(False)
        sent = 0
        with suppress(ConnectionError), sock:  # which is how it shows that it was let go
            while sent < 64 << 20:
                with suppress(BlockingIOError):
                    sent += sock.send(b"x" * 65536)
                feed.take()
        assert sent < 64 << 20
    feed.close()
