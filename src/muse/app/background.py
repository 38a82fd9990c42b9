"""Sessions that run without a terminal: a host of their own is started, and lives on when who started it has gone.

The host is a new process (nothing is forked without exec), in a process session of its own, with nothing on standard
input. It reports once, through a pipe: that its session has begun, which is durable by then, or why it could not. Only
after that does its standard error go to a file of the session's run folder. This module must not know what hosts do.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from muse import errors
from muse.app.places import run_folder
from muse.errors import MuseError
from muse.event.text import clean

HOST_LOG: Final = "host.log"
"""What the host of a session says that is meant for nobody in particular: errors, and what waits for an answer."""
START_SECONDS: Final = 120.0
"""How long a host may take until its session has begun."""
REPORT_BYTES_MAX: Final = 64 * 1024
SAID_CHARS_MAX: Final = 4000
"""Of what a host said that ended without a report the end is shown."""

HOST: Final = ("-P", "-m", "muse.ui.cli.hosting")
"""How the interpreter is told to be a host. -P: no module is taken from the folder that it works in."""


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has begun in a host of its own: its opening and the prompt are durable. `notes` are for the person
    who started it."""

    session: str
    pid: int
    notes: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a host could not begin. `kind` is the error's class in `muse.errors`."""

    kind: str
    message: str
    hint: str = ""


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """A host that ended without beginning anything, and without a report: its exit code, and what it said."""

    code: int
    said: str


class _Report(msgspec.Struct, frozen=True, omit_defaults=True):
    begun: Begun | None = None
    refused: Refusal | None = None


class Host:
    """The host's side of the report; `descriptor` is the pipe's."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor

    def begun(self, session: str, notes: Sequence[str]) -> None:
        """The session is this process's, and what it begins with is durable: from here on nobody waits. Standard error
        goes to the session's file, which is begun anew."""
        if self._descriptor is None:
            return
        log = _host_log(session)
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for source, target in ((nowhere, 0), (nowhere, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nowhere)
        if log != nowhere:
            os.close(log)
        begun = Begun(session=session, pid=os.getpid(), notes=tuple(clean(note).text for note in notes))
        self._report(_Report(begun=begun))

    def refused(self, error: MuseError) -> None:
        """It could not begin. After `begun` nobody listens any more."""
        message, hint = clean(str(error)).text, clean(error.hint).text
        self._report(_Report(refused=Refusal(kind=type(error).__name__, message=message, hint=hint)))

    def _report(self, report: _Report) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):  # who started it has gone
            os.write(self._descriptor, msgspec.json.encode(report)[:REPORT_BYTES_MAX])
        os.close(self._descriptor)
        self._descriptor = None


def _host_log(session: str) -> int:
    """The file for what the host of a session says, empty; where it cannot be made, what it says is lost."""
    from muse.effect.runner import files

    folder = run_folder(session)
    try:
        for missing in reversed([folder, *folder.parents]):
            if not missing.is_dir():
                files.make_folder(str(missing))
        return files.open_private(str(folder / HOST_LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def start_host(arguments: Sequence[str], prompt: str = "", *, folder: str | None = None) -> Begun | Over:
    """Start a host with these arguments of `muse` (a prompt of "-" is read from what is given here), in this folder
    (None: the current one), and wait until it has begun. Raises the error with which it refused, and MuseError when it
    does neither in time."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said, _holding(prompt) as stdin, os.fdopen(reading, "rb", buffering=0) as report:
        try:
            process = subprocess.Popen(
                [sys.executable, *HOST, str(writing), *arguments], stdin=stdin, stdout=said, stderr=said,
                pass_fds=[writing], start_new_session=True, cwd=folder,
            )  # fmt: skip
        except OSError as error:
            raise MuseError(f"no host can be started: {error.strerror or error}") from error
        finally:
            os.close(writing)
        try:
            data = _reported(report)
        except KeyboardInterrupt:
            process.terminate()
            raise
        if data is None:
            process.returncode = 0  # it is left to itself
            raise MuseError(
                f"the host (process {process.pid}) has not begun after {START_SECONDS:.0f} s, and is left to itself",
                hint="muse ls shows whether it comes",
            )
        return _outcome(process, data, said)


def _holding(prompt: str) -> IO[bytes]:
    """A file to read the prompt from; it is nowhere to be found, and gone with its readers."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for it closes it
    file.write(prompt.encode())
    file.seek(0)
    return file


def _reported(report: IO[bytes]) -> bytes | None:
    """What the host reports, b"" when it ended instead, None when neither comes in time."""
    deadline = time.monotonic() + START_SECONDS
    data = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([report], [], [], left)[0]:
            continue
        part = report.read(REPORT_BYTES_MAX)
        if not part or len(data) > REPORT_BYTES_MAX:
            return data
        data += part
    return None


def _outcome(process: "subprocess.Popen[bytes]", data: bytes, said: IO[bytes]) -> Begun | Over:
    try:
        report = msgspec.json.decode(data, type=_Report) if data else _Report()
    except msgspec.MsgspecError:
        report = _Report()
    if report.begun is not None:
        process.poll()
        process.returncode = process.returncode or 0  # nobody waits for it: it is on its own
        return report.begun
    code = process.wait()
    if report.refused is not None:
        raise _error(report.refused)
    said.seek(0)
    words = said.read().decode("utf-8", "replace").strip()[-SAID_CHARS_MAX:]
    if code == 0:
        return Over(code=code, said=words)
    how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    raise MuseError(f"the host {how} before the session had begun", hint=words)


def _error(refusal: Refusal) -> MuseError:
    kind = getattr(errors, refusal.kind, MuseError)
    if not (isinstance(kind, type) and issubclass(kind, MuseError)):
        kind = MuseError
    return kind(refusal.message, hint=refusal.hint)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def host_log_of(session: str) -> Path:
    """Where the last host of a session that ran in the background wrote what it had to say."""
    return run_folder(session) / HOST_LOG
