"""Names and durable writing of the files in a runner's folder; their content is described in `protocol.py`.

Standard library only, because the supervisor and the keepers are built from this module.
"""

import contextlib
import fcntl
import json
import os
import re
from typing import Any

from muse.failpoint import hit

ACCEPTED = "accepted"
EXIT = "exit"
LOST = "lost"
ENDS = "ends"
OUTPUT = "output"
CALLS = "calls"
EPOCH = "epoch"
EXPECTS = os.path.join(CALLS, "expects")
"""Stands there from before the first intent on, beside what was started: without it, nothing is told by what is not
there."""
LOCK = "runner.lock"
SOCKET = "runner.sock"
LOG = "runner.log"

PROTOCOL = 2
"""Version of what is said on the socket."""
REQUEST_BYTES_MAX = 32 << 20
"""One request: a command's arguments and environment, escaped."""
FILE_BYTES_MAX = 1 << 20
"""No `accepted` or `exit` file is larger; a longer one is not ours."""

_CALL = re.compile(r"main(\.[1-9][0-9]*)*/(0|[1-9][0-9]*)")
_FOLDER = re.compile(r"(main(?:\.[1-9][0-9]*)*)-(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_CALL_CHARS_MAX = 200
_GONE = ".gone-"


def call_folder(run_dir: str, call: str, attempt: int) -> str:
    """The folder of one attempt. Raises ValueError when `call` is not `<agent>/<n>` or `attempt` is negative."""
    if len(call) > _CALL_CHARS_MAX or not _CALL.fullmatch(call) or attempt < 0:
        raise ValueError(f"not a call and attempt: {call!r}, {attempt!r}")
    return os.path.join(run_dir, CALLS, f"{call.replace('/', '-')}.{attempt}")


def attempts(run_dir: str) -> list[tuple[str, int]]:
    """Call and attempt of every folder that exists."""
    try:
        names = os.listdir(os.path.join(run_dir, CALLS))
    except FileNotFoundError:
        return []
    matches = (_FOLDER.fullmatch(name) for name in sorted(names))
    return [(f"{match[1]}/{match[2]}", int(match[3])) for match in matches if match]


def remove_attempt(folder: str) -> None:
    """Take the folder of an attempt away at one stroke: no reader ever sees half of it. Gone already is fine."""
    parent, name = os.path.split(folder)
    doomed = os.path.join(parent, f"{_GONE}{name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, doomed)
        hit("in_discard")
        _delete(doomed)


def remove_rests(run_dir: str) -> None:
    """Finish what a `remove_attempt` that was killed had begun."""
    calls = os.path.join(run_dir, CALLS)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(calls):
            if name.startswith(_GONE):
                _delete(os.path.join(calls, name))


def _delete(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                _delete(entry.path)  # a copy of a spool, of a host that was killed while it made it
            else:
                os.unlink(entry.path)
        os.rmdir(folder)


def make_folder(path: str) -> None:
    """Make a folder for the owner only, whatever the umask, and make its name durable."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)
    sync_folder(os.path.dirname(path))


def sync(fd: int) -> None:
    """Make what was written to an open file, or the names in an open folder, survive a loss of power."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's cache
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def open_private(path: str, flags: int) -> int:
    """Open a file, 0600 whatever the umask when it is new. The descriptor is closed on exec."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if flags & os.O_CREAT:
        os.fchmod(fd, 0o600)
    return fd


def write_durable(path: str, content: dict[str, Any]) -> None:
    """Replace a file atomically; when this returns, the new content survives a loss of power."""
    temporary = _write_temporary(path, content)
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def create_durable(path: str, content: dict[str, Any]) -> bool:
    """Like `write_durable`, but of several writers exactly one gets True; a file that is there stays as it is.

    When its durability is in doubt (OSError), our file is taken back, so that it cannot say later what did not follow.
    """
    temporary = _write_temporary(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    try:
        sync_folder(os.path.dirname(path))
    except OSError:
        os.unlink(path)
        raise
    return True


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file, None when there is no such file. Raises ValueError when it holds something else."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object")
    return content


def append_line(path: str, content: dict[str, Any]) -> None:
    """Add one object as a line to a file of notes: not made durable, and dropped where the disk is full."""
    with contextlib.suppress(OSError):
        fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(fd, json.dumps(content).encode("ascii") + b"\n")
        finally:
            os.close(fd)


def read_lines(path: str) -> list[dict[str, Any]]:
    """The whole lines of such a file; what is no object is passed over."""
    try:
        with open(path, "rb") as file:
            lines = file.read(FILE_BYTES_MAX).split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict):
                found.append(content)
    return found


def _write_temporary(path: str, content: dict[str, Any]) -> str:
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        view = memoryview(json.dumps(content).encode("ascii"))
        while view:
            view = view[os.write(fd, view) :]
        sync(fd)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    return temporary
