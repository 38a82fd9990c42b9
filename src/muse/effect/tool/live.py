"""Live output of a running command: the end of its spool, at a bounded rate.

What is shown here is never stored; the result restates it. A burst is skipped, not queued. This module must not know
who looks.
"""

import codecs
import os
from pathlib import Path
from typing import Final

import anyio

from muse.effect.protocol import Show
from muse.effect.tool.output import trim_start

POLL_SECONDS: Final = 0.1
"""How often a spool is looked at."""

SHOW_BYTES_MAX: Final = 16 * 1024
"""What is shown of one look; of more, only the end."""


class _Tail:
    """How far a spool has been shown."""

    def __init__(self, path: Path, show: Show) -> None:
        self._path = path
        self._show = show
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def look(self) -> None:
        """Show what is new. A spool that is not there yet holds nothing."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            size = os.fstat(descriptor).st_size
            if size <= self._offset:
                return
            start = max(self._offset, size - SHOW_BYTES_MAX)
            data = os.pread(descriptor, size - start, start)
        finally:
            os.close(descriptor)
        text = ""
        if start > self._offset:
            self._decoder.reset()
            text = f"\n[... {start - self._offset} bytes not shown ...]\n"
            data = trim_start(data)
        self._offset = size
        text += self._decoder.decode(data)
        if text:
            self._show(text)


async def follow_spool(path: Path, show: Show, ended: anyio.Event) -> None:
    """Show what is written to `path` until `ended` is set, and then the rest."""
    tail = _Tail(path, show)
    while not ended.is_set():
        with anyio.move_on_after(POLL_SECONDS):
            await ended.wait()
        tail.look()
    tail.look()  # it may have ended before the first look
