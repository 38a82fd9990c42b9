"""Runs git on a private folder, with nothing of the user's configuration, environment, hooks or filters.

Every command gets an environment made here and a time limit, and what it prints is read up to a limit. A command that
fails, is missing, or takes too long is a `SnapshotError`; nothing is guessed from what it printed until then. This
module must not know what a snapshot is.
"""

import copy
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from muse.errors import MuseError
from muse.event.text import clean

OUTPUT_BYTES_MAX: Final = 64 << 20
"""What is read of the output of one command."""

STDERR_BYTES_MAX: Final = 4096
BULK_SINCE: Final = (2, 37)
"""From this version on `update-index` puts many files into one pack."""

_OPTIONS: Final = (
    "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.untrackedCache=false",
)  # fmt: skip
_version: Final = re.compile(rb"git version (\d+)\.(\d+)")


class SnapshotError(MuseError):
    """What the workspace looks like could not be found out. `lasting`: it is no use to try again in this process."""

    def __init__(self, message: str, *, hint: str = "", lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class GitFailed(SnapshotError):
    """A git command ended with an error; the message holds what it said."""


class Deadline:
    """The moment by which something must be done, on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left. Raises SnapshotError when there are none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise self.missed()
        return left

    def missed(self) -> SnapshotError:
        """The error for having missed it."""
        return SnapshotError(
            f"looking through the workspace took longer than {self.seconds:g} s",
            hint="let git ignore what need not be recorded, work in a smaller folder, or set snapshot_timeout",
            lasting=True,
        )


class Git:
    """git with its own `folder` (GIT_DIR) and `objects`, looking at the work tree `top` from the folder `cwd` in it.
    For what needs no work tree, both may be `folder`."""

    def __init__(self, program: str, folder: Path, objects: Path, top: Path, cwd: Path) -> None:
        self._program = program
        self._cwd = cwd
        self._umask = 0o077  # what it writes holds the contents of files
        self._environment = _environment(folder) | {
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(top),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_LITERAL_PATHSPECS": "1",
        }

    def with_objects_of(self, others: "Iterable[Git]") -> "Git":
        """This one, which also reads what the others keep."""
        made = copy.copy(self)
        folders = (one._environment["GIT_OBJECT_DIRECTORY"] for one in others)
        # In double quotes a colon is part of a name (gitenvironment(7), GIT_ALTERNATE_OBJECT_DIRECTORIES).
        quoted = ('"' + re.sub(r'(["\\\\])', r"\\\1", folder) + '"' for folder in folders)
        made._environment = self._environment | {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(quoted)}
        return made

    def with_environment(self, more: Mapping[str, str], *, umask: int) -> "Git":
        """This one, with more variables, and with this umask (-1: that of this process) for what it writes."""
        made = copy.copy(self)
        made._environment, made._umask = self._environment | dict(more), umask
        return made

    def run(self, deadline: Deadline, *arguments: str, data: bytes = b"") -> bytes:
        """What the command prints. `data` goes to its standard input. Raises SnapshotError."""
        with self.started(deadline, *arguments, takes_input=bool(data)) as process:
            if data:
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # why it stopped reading is told by how it ends
                    process.stdin.write(data)
                    process.stdin.close()
            return process_output(process)

    @contextmanager
    def started(
        self, deadline: Deadline, *arguments: str, takes_input: bool = False
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """The command while it runs; when the block ends it must have been read to its end. Raises SnapshotError."""
        seconds = deadline.left()
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    [self._program, *_OPTIONS, *arguments],
                    stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=said, cwd=self._cwd, env=self._environment, start_new_session=True,
                    umask=self._umask,
                )  # fmt: skip
            except OSError as error:
                if not self._cwd.is_dir():
                    raise SnapshotError(f"the folder {self._cwd} is not there") from error
                raise SnapshotError(f"git cannot be started: {error.strerror or error}") from error
            late = threading.Event()
            timer = threading.Timer(seconds, _end, (process, late))
            timer.daemon = True
            timer.start()
            try:
                yield process
                code = process.wait()
            except BrokenPipeError:
                code = process.wait()
            finally:
                timer.cancel()
                _close(process)
            if late.is_set():
                raise deadline.missed()
            if code:
                command = next(one for one in arguments if one[0] != "-" and "=" not in one)
                raise GitFailed(f"git {command} failed: {_last_words(said, code)}")


def process_output(process: "subprocess.Popen[bytes]") -> bytes:
    """All that a command prints. Raises SnapshotError when that is too much."""
    assert process.stdout is not None
    output = process.stdout.read(OUTPUT_BYTES_MAX + 1)
    if len(output) > OUTPUT_BYTES_MAX:
        raise SnapshotError(
            "the workspace holds too many files",
            hint="let git ignore what need not be recorded, or work in a smaller folder",
            lasting=True,
        )
    return output


def program(environment: Mapping[str, str] = os.environ) -> str:
    """Where git is. Raises SnapshotError when it is nowhere that does not depend on the current folder."""
    found = shutil.which("git", path=environment.get("PATH"))
    if found is None or not os.path.isabs(found):
        raise SnapshotError("git is not installed", hint="install git, and changes to files are recorded", lasting=True)
    return found


def packs_in_bulk(program: str) -> bool:
    """Whether this git puts many new files into one pack."""
    try:
        done = subprocess.run([program, "version"], capture_output=True, timeout=10, env={"LC_ALL": "C"}, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _version.match(done.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= BULK_SINCE


def user_excludes(program: str, workspace: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file of patterns that the user's own configuration names (`core.excludesFile`), or git's default place for
    one. Reading a configuration runs nothing of it."""
    asked = {name: value for name, value in environment.items() if not name.startswith("GIT_")} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, "-C", str(workspace), "config", "--path", "--get", "core.excludesFile"],
            env=asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0 and (named := done.stdout.removesuffix(b"\n")):
        return workspace / os.fsdecode(named)
    base = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if (home := environment.get("HOME")) else "")
    return Path(base, "git", "ignore") if base else None


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _end(process: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    process.kill()


def _close(process: "subprocess.Popen[bytes]") -> None:
    """Leave nothing of the command behind, however the block ended."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _last_words(said: IO[bytes], code: int) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - STDERR_BYTES_MAX))
    lines = clean(said.read()).text.strip().splitlines()
    return " / ".join(lines[-3:]) or f"it ended with {code}"
