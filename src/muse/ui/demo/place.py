"""Where the demo happens, how it ends in order, and how this muse is called from a person's shell."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from muse.errors import UsageError

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Ended(SystemExit):
    """A signal asked the demo to end; the exit code is 128 and its number."""


def fresh_folder(given: str) -> Path:
    """The folder that was asked for, made if need be, or a new one among the temporary files; without symbolic links in
    its path. Raises UsageError for one that holds something."""
    if not given:
        return Path(tempfile.mkdtemp(prefix="muse-demo-")).resolve()
    path = Path(given).expanduser()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"{given} is not empty", hint="the demo wants a folder of its own: muse demo --dir DIR")
        return path.resolve()
    except OSError as error:
        raise UsageError(f"the demo cannot use {given}: {error.strerror}", hint="muse demo --dir DIR") from error


@contextmanager
def ending_with(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` however the block is left, by Ctrl-C, SIGTERM and SIGHUP too; while it runs they wait."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise Ended(128 + number)

    before = {number: signal.signal(number, leave) for number in _ENDING}
    try:
        yield
    finally:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        try:
            end()
        finally:
            for number, handler in (before | {signal.SIGINT: interrupt}).items():
                signal.signal(number, handler)


def spelled() -> str:
    """How a person calls this muse: by its name where that finds it, else by the shortest path."""
    script = Path(sys.argv[0]).absolute()
    found = shutil.which("muse")
    with suppress(OSError):
        if found is None or not script.name.startswith("muse"):
            return "muse" if found else str(script)
        if os.path.samefile(found, script):
            return "muse"
    near = os.path.relpath(script)
    return near if len(near) < len(str(script)) and not near.startswith("..") else str(script)
