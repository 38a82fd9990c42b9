"""The host's side of a runner: start commands, wait for their end, look after a crash what became of them.

Questions about the past (`inspect`) are answered from the files alone; `start`, `wait` and `cancel` talk to the
supervisor and start one when there is none. Connections belong to no task: each request takes one from a small pool.
This module knows the files and the socket, not the log.
"""

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from muse import failpoint
from muse.effect.runner import files, processes
from muse.effect.runner.protocol import (
    Accepted,
    Attempt,
    CommandLost,
    CommandSpec,
    Exit,
    Exited,
    Identity,
    Lost,
    NeverAccepted,
    RunnerDamaged,
    RunnerError,
    RunnerUnavailable,
    Running,
    StartRefused,
    accepted_from,
    exit_from,
    settled_from,
)
from muse.errors import Fenced

READY_SECONDS = 10.0
"""How long a supervisor may take to be reachable."""
ANSWER_SECONDS = 30.0
"""How long it may take to answer (a wait for an exit has no limit)."""
RETRY_SECONDS = 0.02
ANSWER_BYTES_MAX = 16 << 20
SETTLE_SECONDS = 20.0
"""How long a lost command is waited for until the supervisor has ended what is left of it."""
LOOK_AGAIN_SECONDS = 10.0
"""How long `wait` relies on the supervisor before it looks at the files itself."""
UNATTENDED_SECONDS = 0.25
"""How often `wait` looks at the files when no supervisor can be reached."""
LEFTOVERS_SECONDS = 10.0
"""How long `cancel` waits for processes that a command left running."""
IDLE_CONNECTIONS_MAX = 8
SOCKET_PATH_BYTES_MAX = 100
LOG_TAIL_BYTES = 2000

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_KEPT_ENVIRONMENT = (failpoint.VARIABLE, "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")


class _Gone(Exception):
    """The connection ended before the answer came."""


class _Connection:
    """One connection to the supervisor; used by one request at a time."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self.stream.send(json.dumps(message).encode("ascii") + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _Gone from error

    async def receive(self) -> dict[str, Any]:
        try:
            line = await self._lines.receive_until(b"\n", ANSWER_BYTES_MAX)
        except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _Gone from error
        except anyio.DelimiterNotFound as error:
            raise RunnerUnavailable("the runner answered with too long a line") from error
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


class Runner:
    """A session's runner, as the owner with `epoch` sees it. `run_dir` is made (0700) when it is missing."""

    def __init__(self, run_dir: Path, epoch: int, *, idle_seconds: float = 30.0) -> None:
        self.run_dir = run_dir.absolute()
        self.epoch = epoch
        self._idle_seconds = idle_seconds
        self._idle: list[_Connection] = []
        self._spawning = anyio.Lock()
        self._umask = _umask()

    @property
    def is_expecting(self) -> bool:
        """Whether this is the folder to which commands of the session were given: what it does not hold did not start.
        One that is new (the log was copied, the folder removed) knows nothing of them."""
        return (self.run_dir / files.EXPECTS).exists()

    def expect(self) -> None:
        """Commands are about to be given to this folder. To be called ahead of their intent. Raises OSError."""
        if not self.is_expecting:
            _make_folders(self.run_dir)
            files.make_folder(str(self.run_dir / files.CALLS))
            os.close(files.open_private(str(self.run_dir / files.EXPECTS), os.O_WRONLY | os.O_CREAT))

    async def start(self, spec: CommandSpec) -> Accepted:
        """Start a command; returns when its acceptance is durable, before it is executed.

        Raises StartRefused (reason `exists` when this call and attempt was accepted before), Fenced, RunnerUnavailable.
        """
        request = self._request("start") | _plain(spec) | {"request": secrets.token_hex(8)}
        if spec.umask is None:
            request["umask"] = self._umask
        answer = await self._ask(request)
        if answer["is"] == "refused" and answer["reason"] == "exists":
            earlier = answer["attempt"]["accepted"]
            if earlier is not None and earlier["request"] == request["request"]:
                return accepted_from(earlier)  # it was asked again after a lost connection, and the first one held
        self._raise_refusal(answer)
        return accepted_from(answer["accepted"])

    async def wait(self, call: str, attempt: int) -> Exit:
        """How the command ended, at once or when it does. Output up to the end is in the spool: `output_bytes` of it.

        Raises CommandLost when that cannot be known, StartRefused when it never was accepted.
        """
        while True:
            match self.inspect(call, attempt):
                case Exited(exit=exit):
                    return exit
                case Lost():
                    await self.settle(call, attempt)
                    raise CommandLost(f"how {call} (attempt {attempt}) ended is unknown: its keeper died")
                case NeverAccepted():
                    why = f"the runner's folder holds no start of {call} (attempt {attempt})"
                    raise StartRefused(why, reason="never_accepted")
                case Running():
                    try:
                        with anyio.move_on_after(LOOK_AGAIN_SECONDS):
                            await self._attached(call, attempt)
                    except RunnerUnavailable:  # its keeper does without a supervisor, and writes the exit all the same
                        await anyio.sleep(UNATTENDED_SECONDS)

    async def settle(self, call: str, attempt: int) -> Attempt:
        """As `inspect`; of a lost command only when the supervisor has ended what was left of it, or in vain."""
        with anyio.move_on_after(SETTLE_SECONDS):
            while isinstance(found := self.inspect(call, attempt), Lost) and not found.settled:
                try:
                    await self._attached(call, attempt)
                except RunnerUnavailable:
                    break
                await anyio.sleep(RETRY_SECONDS)
        return self.inspect(call, attempt)

    async def cancel(self, call: str, attempt: int) -> None:
        """End the command and all that descends from it, also what it left running; returns when nothing of it is left,
        or when it has ended and its `Exit` says that something could not be killed."""
        answer = await self._ask(self._request("cancel") | {"call": call, "attempt": attempt})
        self._raise_refusal(answer)
        found = self.inspect(call, attempt)
        if isinstance(found, Running):
            await self.wait(call, attempt)
        elif isinstance(found, Lost):
            await self.settle(call, attempt)
        elif isinstance(found, Exited) and not found.exit.group_gone:
            with anyio.move_on_after(LEFTOVERS_SECONDS):
                while _is_living(found.accepted.keeper):  # it ends with the last process that was left running
                    await anyio.sleep(RETRY_SECONDS)

    def inspect(self, call: str, attempt: int) -> Attempt:
        """What the files say, and whether the processes named in them live. Raises RunnerDamaged.

        While an earlier owner's start may be under way, NeverAccepted is not final: await `supervisor` first.
        """
        folder = files.call_folder(str(self.run_dir), call, attempt)
        found = _read(os.path.join(folder, files.ACCEPTED))
        if found is None:
            return NeverAccepted()
        accepted = accepted_from(found)
        living = _is_living(accepted.keeper)  # asked before `exit` is read: it may write that and end in between
        exited = _read(os.path.join(folder, files.EXIT))
        if exited is not None:
            return Exited(accepted, exit_from(exited))
        try:
            output_bytes = os.path.getsize(os.path.join(folder, files.OUTPUT))
        except FileNotFoundError:
            output_bytes = 0
        if living:
            return Running(accepted, output_bytes)
        alive, settled = _is_living(accepted.command), _read(os.path.join(folder, files.LOST))
        if settled is None:
            return Lost(accepted, output_bytes, alive)
        rest = settled_from(settled)
        return Lost(accepted, output_bytes, alive, True, rest.ended, rest.left)

    def output_path(self, call: str, attempt: int) -> Path:
        """The spool: stdout and stderr in order, growing while the command runs."""
        return Path(files.call_folder(str(self.run_dir), call, attempt), files.OUTPUT)

    def discard(self, call: str, attempt: int) -> None:
        """Delete the spool, once the result is durable elsewhere. Raises RunnerError while the command runs.

        What names processes that were left running stays while they have a keeper: discard it again after their end.
        """
        match self.inspect(call, attempt):
            case Running():
                raise RunnerError(f"{call} (attempt {attempt}) still runs: its output cannot be discarded")
            case Exited(accepted=accepted, exit=exit) if not exit.group_gone and _is_living(accepted.keeper):
                self.output_path(call, attempt).unlink(missing_ok=True)
            case _:
                failpoint.hit("before_discard")
                files.remove_attempt(files.call_folder(str(self.run_dir), call, attempt))
                failpoint.hit("after_discard")

    async def stop(self, *, kill: bool = False) -> None:
        """End the supervisor. With `kill`, first everything that was started under it; without, commands go on."""
        await self.aclose()
        connection = await self._connect()
        try:
            with anyio.fail_after(ANSWER_SECONDS), contextlib.suppress(_Gone):
                await connection.send(self._request("stop") | {"kill": kill})
                self._raise_refusal(await connection.receive())
                await connection.receive()  # nothing more comes: the end of the connection is the end of the process
        finally:
            await anyio.aclose_forcefully(connection.stream)

    async def supervisor(self) -> Identity:
        """The living supervisor, started when there is none. Early on this saves the first command the wait.

        After it an earlier owner is fenced and none of its starts is under way: `NeverAccepted` is final from here on.
        """
        answer = await self._ask(self._request("ping"))
        self._raise_refusal(answer)
        return Identity(answer["pid"], answer["start_time"], answer["boot_id"])

    async def aclose(self) -> None:
        """Disconnect. The supervisor and all commands go on."""
        while self._idle:
            await anyio.aclose_forcefully(self._idle.pop().stream)

    # ---- requests

    def _request(self, do: str) -> dict[str, Any]:
        return {"do": do, "epoch": self.epoch}

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one answer; asked again, once, when the supervisor died over it. Raises RunnerUnavailable."""
        line = json.dumps(request).encode("ascii") + b"\n"
        if len(line) > files.REQUEST_BYTES_MAX:
            raise StartRefused(
                f"the command takes {len(line)} bytes, more than {files.REQUEST_BYTES_MAX}", reason="invalid"
            )
        try:
            return await self._ask_once(request)
        except _Gone:
            await self.aclose()  # connections of the same dead process
        try:
            return await self._ask_once(request)
        except _Gone as error:
            raise RunnerUnavailable(
                f"the runner in {self.run_dir} died twice while it was asked", hint=_log_tail(self.run_dir)
            ) from error

    async def _ask_once(self, request: dict[str, Any]) -> dict[str, Any]:
        connection = self._idle.pop() if self._idle else await self._connect()
        answered = False
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                await connection.send(request)
                answer = await connection.receive()
            answered = True
            return answer
        except TimeoutError as error:
            raise RunnerUnavailable(
                f"the runner in {self.run_dir} did not answer within {ANSWER_SECONDS:g} s",
                hint="its process may be stopped: look at runner.log there",
            ) from error
        finally:
            await self._put_back(connection, answered)

    async def _attached(self, call: str, attempt: int) -> None:
        """Return when the supervisor says that the command ended, or when the connection ends."""
        connection = self._idle.pop() if self._idle else await self._connect()
        answered = False
        try:
            await connection.send(self._request("attach") | {"call": call, "attempt": attempt})
            await connection.receive()
            answered = True
        except _Gone:
            pass
        finally:
            await self._put_back(connection, answered)

    async def _put_back(self, connection: _Connection, usable: bool) -> None:
        if usable and len(self._idle) < IDLE_CONNECTIONS_MAX:
            self._idle.append(connection)
        else:
            await anyio.aclose_forcefully(connection.stream)

    def _raise_refusal(self, answer: dict[str, Any]) -> None:
        if answer["is"] != "refused":
            return
        detail, reason = str(answer["detail"]), str(answer["reason"])
        if reason == "fenced":
            raise Fenced(f"another process owns the session now: {detail}")
        raise StartRefused(f"the runner refused: {detail}", reason=reason)

    # ---- the connection

    async def _connect(self) -> _Connection:
        """A connection to the supervisor, which is started when there is none. Raises Fenced, RunnerUnavailable."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            stream = await self._open()
            if stream is None:
                async with self._spawning:
                    stream = await self._open()
                    if stream is None:
                        await anyio.to_thread.run_sync(
                            partial(_spawn, self.run_dir, self._idle_seconds, deadline), abandon_on_cancel=False
                        )
                        stream = await self._open()
            if stream is not None:
                try:
                    return await self._greeted(_Connection(stream))
                except _Gone:
                    pass  # it ended just now, being idle
            await anyio.sleep(RETRY_SECONDS)
        raise RunnerUnavailable(
            f"the runner in {self.run_dir} is not reachable within {READY_SECONDS:g} s", hint=_log_tail(self.run_dir)
        )

    async def _greeted(self, connection: _Connection) -> _Connection:
        """Raise the runner's epoch to ours, so that an earlier owner is fenced from here on."""
        greeted = False
        try:
            with anyio.move_on_after(READY_SECONDS):
                await connection.send(self._request("ping"))
                answer = await connection.receive()
                self._raise_refusal(answer)
                if answer["protocol"] != files.PROTOCOL:
                    raise RunnerUnavailable(
                        f"the runner in {self.run_dir} speaks protocol {answer['protocol']}, not {files.PROTOCOL}",
                        hint="it belongs to another version of muse and ends by itself when its commands have ended",
                    )
                greeted = True
                return connection
            raise _Gone
        finally:
            if not greeted:
                await anyio.aclose_forcefully(connection.stream)

    async def _open(self) -> anyio.abc.SocketStream | None:
        path = os.fsencode(self.run_dir / files.SOCKET)
        link = ""
        try:
            if len(path) >= SOCKET_PATH_BYTES_MAX:
                link = tempfile.mkdtemp(prefix="muse-", dir=_short_folder())
                os.symlink(self.run_dir, os.path.join(link, "r"))
                path = os.fsencode(os.path.join(link, "r", files.SOCKET))
            stream = await anyio.connect_unix(path)
            _forgive_late_wakes()
            return stream
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            return None
        except OSError as error:
            raise RunnerUnavailable(f"the runner in {self.run_dir} cannot be reached: {error}") from error
        finally:
            if link:
                os.unlink(os.path.join(link, "r"))
                os.rmdir(link)


def _forgive_late_wakes() -> None:
    """Have the loop print nothing when a socket becomes readable just as its reader is cancelled. anyio's streams of
    unix sockets (4.16) then wake a future that is cancelled already: nothing was read, and nothing is lost."""
    import asyncio

    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_but_late_wakes)


def _but_late_wakes(loop: Any, context: dict[str, Any]) -> None:
    import asyncio

    is_wake = str(context.get("message")).startswith("Exception in callback Future.set_result(")
    if not (is_wake and isinstance(context.get("exception"), asyncio.InvalidStateError)):
        loop.default_exception_handler(context)


def _short_folder() -> str:
    """A folder for temporary names whose path is short enough for a socket's address."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) < SOCKET_PATH_BYTES_MAX // 2 else "/tmp"


def _spawn(run_dir: Path, idle_seconds: float, deadline: float) -> None:
    """Start a supervisor and wait until it is ready, or says that another one is. Raises RunnerUnavailable."""
    try:
        _make_folders(run_dir)
        log = files.open_private(str(run_dir / files.LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise RunnerUnavailable(f"the runner's folder cannot be used: {error}") from error
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_SUPERVISOR), str(run_dir), f"{idle_seconds}"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd="/", env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RunnerUnavailable(f"the runner cannot be started: {error}") from error
    finally:
        os.close(log)
    assert process.stdout is not None
    with process.stdout as ready:
        left = max(0.0, deadline - time.monotonic())
        said = ready.readline() if select.select([ready], [], [], left)[0] else b""
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if said not in (b"ready\n", b"taken\n"):
        raise RunnerUnavailable(f"the runner in {run_dir} did not start", hint=_log_tail(run_dir))


def _make_folders(run_dir: Path) -> None:
    for folder in reversed([run_dir, *run_dir.parents]):
        if not folder.is_dir():
            files.make_folder(str(folder))
    os.chmod(run_dir, 0o700)


def _log_tail(run_dir: Path) -> str:
    try:
        text = (run_dir / files.LOG).read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return f"{run_dir / files.LOG} says: {text}" if text else f"{run_dir / files.LOG} is empty"


def _plain(spec: CommandSpec) -> dict[str, Any]:
    """The spec as JSON values; whatever this process's encoding of file names is, the wire has UTF-8 with escapes."""
    plain: dict[str, Any] = msgspec.structs.asdict(spec)
    plain["argv"] = [_wire(text) for text in spec.argv]
    plain["env"] = {_wire(name): _wire(value) for name, value in spec.env.items()}
    plain["cwd"] = _wire(spec.cwd)
    return plain


def _wire(text: str) -> str:
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # not of this process's environment, but text that its encoding has no bytes for
        return text


def _read(path: str) -> dict[str, Any] | None:
    try:
        return files.read_json(path)
    except ValueError as error:
        raise RunnerDamaged(str(error)) from error


def _is_living(who: Identity) -> bool:
    return processes.is_alive(who.pid, who.start_time, who.boot_id)


def _umask() -> int:
    """This process's umask, without changing it where the system can say it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    value = os.umask(0o077)
    os.umask(value)
    return value
