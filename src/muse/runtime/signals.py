"""The owner's side of live signals: a local socket that tells watchers what models and commands stream just now.

Signals are told and forgotten; the log restates them. So nothing here may hold up the session: telling one costs a
queue's append, each watcher has a bounded queue that loses its oldest pieces, and watchers are taken on slowly. A
watcher only listens: one that says anything is let go. Only processes of this user are taken, and none below the
session's own runner. This module must not know what is done with signals, nor how events are shown.
"""

import os
import secrets
import socket
import stat
import struct
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import anyio

from muse.event.envelope import Event
from muse.event.kinds import (
    EffectReconciled,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    ToolFinished,
    ToolStarted,
)  # fmt: skip
from muse.event.signal import Dropped, Hello, Piece, encode

SOCKET: Final = "live.sock"
"""The socket's name in the session's run folder."""
SOCKET_PATH_BYTES_MAX: Final = 100
"""Of a longer path the address is one by way of /proc (sun_path holds 108 bytes, on macOS 104)."""
WATCHERS_MAX: Final = 16
BACKLOG: Final = 16
ACCEPT_SECONDS: Final = 0.02
"""Between two watchers that are taken on: who connects again and again does not take the session's time."""
FULL_SECONDS: Final = 1.0
"""How long to wait when this process has no descriptor left."""
FLUSH_SECONDS: Final = 0.03
"""Between two sends to one watcher, so that many small pieces are one."""
QUEUE_CHARS_MAX: Final = 256 * 1024
"""Characters that wait for one watcher; of more the oldest pieces are dropped."""
QUEUE_PIECES_MAX: Final = 4096
SEND_CHARS_MAX: Final = 32 * 1024
"""Characters that one send takes from the queue (a single longer piece goes whole)."""
PIECE_CHARS_MAX: Final = 64 * 1024
"""A longer piece is cut into several, so that a line stays well below what a reader takes."""
STREAMS_MAX: Final = 512
"""Calls whose stream so far is kept for those who come in the middle."""
TAIL_CHARS_MAX: Final = {"text": 64 * 1024, "output": 4 * 1024}
"""How much of a stream is kept for them: the end of it."""


class _Stream:
    """One call that is under way: how far it is, and the end of what it streamed."""

    def __init__(self, kind: Literal["text", "output"], call: str, attempt: int) -> None:
        self._kind: Literal["text", "output"] = kind
        self._call, self._attempt = call, attempt
        self._length = 0
        self._kept: deque[str] = deque()
        self._kept_chars = 0

    def add(self, text: str) -> Piece:
        piece = Piece(kind=self._kind, call=self._call, attempt=self._attempt, at=self._length, text=text)
        self._length += len(text)
        self._kept.append(text)
        self._kept_chars += len(text)
        while self._kept_chars - len(self._kept[0]) >= TAIL_CHARS_MAX[self._kind]:
            self._kept_chars -= len(self._kept.popleft())
        return piece

    def so_far(self) -> Piece | None:
        """The end of it as one piece, None when nothing came yet."""
        text = "".join(self._kept)
        at = self._length - len(text)
        return Piece(kind=self._kind, call=self._call, attempt=self._attempt, at=at, text=text) if text else None


class _Watcher:
    """One connection and what waits for it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._queue: deque[Piece] = deque()
        self._chars = 0
        self._dropped = 0
        self.wake = anyio.Event()

    def offer(self, piece: Piece) -> None:
        self._queue.append(piece)
        self._chars += len(piece.text)
        while self._chars > QUEUE_CHARS_MAX or len(self._queue) > QUEUE_PIECES_MAX:
            self._chars -= len(self._queue.popleft().text)
            self._dropped += 1
        self.wake.set()

    def take(self) -> bytes:
        """The lines to send next, b"" when nothing waits: pieces that follow each other are one."""
        lines = [encode(Dropped(pieces=self._dropped))] if self._dropped else []
        self._dropped = 0
        taken = 0
        while self._queue and taken < SEND_CHARS_MAX:
            first = self._queue.popleft()
            texts, end = [first.text], first.at + len(first.text)
            while self._queue and end - first.at < SEND_CHARS_MAX and _goes_on(first, end, self._queue[0]):
                texts.append(self._queue.popleft().text)
                end += len(texts[-1])
            self._chars -= end - first.at
            taken += end - first.at
            whole = Piece(kind=first.kind, call=first.call, attempt=first.attempt, at=first.at, text="".join(texts))
            lines.append(encode(whole))
        return b"".join(lines)


def _goes_on(first: Piece, end: int, piece: Piece) -> bool:
    return (first.call, first.attempt, end) == (piece.call, piece.attempt, piece.at)


class LiveSignals:
    """The signals of one owned session. `event` and `signal` are told what happens, whether or not anybody listens;
    `serve` is a task beside the session's, and lets go of the socket when it is cancelled."""

    def __init__(self, run_folder: Path, session: str) -> None:
        self._folder = run_folder.absolute()
        self._hello = Hello(session=session, epoch=0, pid=os.getpid())
        self._streams: dict[str, _Stream] = {}
        self._watchers: set[_Watcher] = set()

    def event(self, event: Event) -> None:
        """An event that is durable: a call begins to stream, or has ended."""
        body = event.body
        match body:
            case ModelRequested():
                if body.purpose == "turn":
                    self._begin("text", body.call, body.attempt)
            case ToolStarted() | EffectReconciled(verdict="attached"):
                self._begin("output", body.call, body.attempt)
            case ModelResponded() | ModelFailed() | ToolFinished():
                self._streams.pop(body.call, None)
            case SessionOpened():
                self._hello = Hello(session=self._hello.session, epoch=event.epoch, pid=os.getpid())
            case _:
                pass

    def signal(self, call: str, text: str) -> None:
        """A piece of what a call streams."""
        stream = self._streams.get(call)
        if stream is None:  # of a call that is over, or that nobody is told of
            return
        for start in range(0, len(text), PIECE_CHARS_MAX):
            piece = stream.add(text[start : start + PIECE_CHARS_MAX])
            for watcher in self._watchers:
                watcher.offer(piece)

    def _begin(self, kind: Literal["text", "output"], call: str, attempt: int) -> None:
        if call in self._streams or len(self._streams) < STREAMS_MAX:
            self._streams[call] = _Stream(kind, call, attempt)

    async def serve(self) -> None:
        """Take on watchers until cancelled. Where no socket can be had there are no live signals, and the log is
        watched all the same."""
        try:
            listener, mine = listen(self._folder)
        except OSError:
            return
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await anyio.wait_readable(listener)
                    try:
                        sock, _ = listener.accept()
                    except (BlockingIOError, ConnectionError):
                        continue
                    except OSError:
                        await anyio.sleep(FULL_SECONDS)
                        continue
                    if len(self._watchers) < WATCHERS_MAX and self._may_watch(sock):
                        tasks.start_soon(self._tell, sock)
                    else:
                        sock.close()
                    await anyio.sleep(ACCEPT_SECONDS)
        finally:
            listener.close()
            if _identity(self._folder / SOCKET) == mine:
                with suppress(OSError):
                    os.unlink(self._folder / SOCKET)
                    os.rmdir(self._folder)  # if nothing else was ever in it

    def _may_watch(self, sock: socket.socket) -> bool:
        """A process of this user that is not one of the session's own commands."""
        from muse.effect.runner import peers

        try:
            return same_user(sock) and not peers.is_below(sock, [str(self._folder)])
        except OSError:  # it has gone
            return False

    async def _tell(self, sock: socket.socket) -> None:
        """One watcher, until it goes or says anything."""
        sock.setblocking(False)
        watcher = _Watcher(sock)
        for stream in self._streams.values():
            if (piece := stream.so_far()) is not None:
                watcher.offer(piece)
        self._watchers.add(watcher)
        try:
            with suppress(OSError):
                await _send(sock, encode(self._hello))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_write, watcher)
                    await anyio.wait_readable(sock)  # the end of it, or words; both end it
                    tasks.cancel_scope.cancel()
        finally:
            self._watchers.discard(watcher)
            sock.close()


async def _write(watcher: _Watcher) -> None:
    """Send what waits, as fast as the watcher takes it. Ends when the connection broke: its reader sees that too."""
    with suppress(OSError):
        while True:
            await watcher.wake.wait()
            watcher.wake = anyio.Event()
            while data := watcher.take():
                await _send(watcher.sock, data)
                await anyio.sleep(FLUSH_SECONDS)


async def _send(sock: socket.socket, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[sock.send(left) :]
        except BlockingIOError:
            await anyio.wait_writable(sock)


# -- the socket --------------------------------------------------------------------------------------------------------


def listen(folder: Path) -> tuple[socket.socket, tuple[int, int] | None]:
    """A listening socket in place of whatever stood there, and what its file is known by: bound under another name and
    renamed, so that who connects finds the old one or the new one. Raises OSError."""
    from muse.effect.runner import files

    for missing in reversed([folder, *folder.parents]):
        if not missing.is_dir():
            files.make_folder(str(missing))
    os.chmod(folder, stat.S_IRWXU)
    draft = f".{SOCKET}.{secrets.token_hex(4)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        with reachable(folder, draft) as address:
            listener.bind(address)
        try:
            os.chmod(folder / draft, stat.S_IRUSR | stat.S_IWUSR)
            listener.listen(BACKLOG)
            mine = _identity(folder / draft)
            os.rename(folder / draft, folder / SOCKET)
        except OSError:
            os.unlink(folder / draft)
            raise
    except OSError:
        listener.close()
        raise
    return listener, mine


@contextmanager
def reachable(folder: Path, name: str) -> Iterator[str]:
    """An address for the socket `name` of a folder, whose own path may be too long for one. Raises OSError."""
    path = str(folder / name)
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield path
        return
    if sys.platform != "linux":
        raise OSError(f"the path is too long for a socket: {path}")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def same_user(sock: socket.socket) -> bool:
    """Whether the other end is a process of this user. Outside Linux the 0700 folder keeps others out."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    credentials = sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.geteuid())


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
