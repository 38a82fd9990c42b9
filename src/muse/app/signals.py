"""Live signals of a session that another process runs, as a watcher gets them.

Nothing depends on them: where there is no socket, or it breaks, the log tells the same a little later. What comes out
of the socket is believed no more than any other input: it is bounded, and only the owner's user can have sent it.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from muse.event.signal import LINE_BYTES_MAX, PROTOCOL, Dropped, Hello, Piece, read
from muse.runtime.signals import SOCKET, reachable, same_user

RETRY_SECONDS: Final = 0.5
"""Between two tries to connect."""
TAKEN_BYTES_MAX: Final = 256 * 1024
"""What one `take` reads at most."""


class LiveFeed:
    """The signals of the session whose run folder this is; connects when there is somebody to connect to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sock: socket.socket | None = None
        self._rest = b""
        self._tried_at = float("-inf")
        self.dropped = 0
        """Pieces that were not sent because this reader was too slow."""
        self.is_heard = False
        """Whether an owner has said hello."""

    def take(self) -> list[Piece]:
        """What came since; never waits."""
        if self._sock is None and not self._connect():
            return []
        assert self._sock is not None
        found: list[Piece] = []
        taken = 0
        while taken < TAKEN_BYTES_MAX:
            try:
                data = self._sock.recv(64 * 1024)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            taken += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._read(line, found)
            if len(self._rest) > LINE_BYTES_MAX:
                self.close()
                break
        return found

    def _read(self, line: bytes, found: list[Piece]) -> None:
        signal = read(line)
        if isinstance(signal, Hello):
            self.is_heard = signal.v == PROTOCOL
        elif self.is_heard and isinstance(signal, Piece):
            found.append(signal)
        elif isinstance(signal, Dropped):
            self.dropped += signal.pieces

    def _connect(self) -> bool:
        now = time.monotonic()
        if now - self._tried_at < RETRY_SECONDS:
            return False
        self._tried_at = now
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            with reachable(self._folder, SOCKET) as address:
                sock.connect(address)
            if not same_user(sock):
                sock.close()
                return False
        except OSError:  # nobody is there, or not just now
            sock.close()
            return False
        self._sock, self._rest, self.is_heard = sock, b"", False
        return True

    def close(self) -> None:
        """Let go of the connection; `take` makes another."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.close()
            self._sock = None
