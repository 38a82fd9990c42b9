"""What a runner's folder holds, what is said on its socket, and the structs that the host gets.

Folder (`$MUSE_HOME/run/<session>/`; folders 0700, files 0600):

    runner.lock   flock held by the one supervisor, and by  runner.sock   its unix stream socket
                  keepers until `accepted` is written
    runner.log    what a supervisor or keeper had to say    epoch         {"epoch": highest seen}
    calls/<agent>-<n>.<attempt>/
        accepted  written, fsynced and linked (exclusively) before the command is executed
        output    stdout and stderr in order; the first `output_bytes` of `exit` are the result, later bytes come from
                  processes that were left running
        room.*    space for `exit`, taken before the command starts and given back when it has ended; means nothing else
        exit      written after `output` was fsynced, renamed, folder fsynced
        ends      a line for each process left running whose end its keeper saw (not durable)
        lost      in place of `exit`: the keeper was killed, and a supervisor ended what was left of its command

    accepted  epoch call attempt args_digest request time_ms timeout_ms, keeper and command {pid start_time boot_id}
    exit      code (null: see signal) signal start_error timed_out cancelled output_limit_reached spool_error time_ms
              duration_ms output_bytes group_gone left_running [{pid start_time command group}]
    ends      pid start_time code signal asked (whether it was asked to end)
    lost      time_ms, ended and left [{pid start_time command group}]

No `accepted` after a pong: nothing was executed, ever; the same attempt may be submitted (again).
`accepted`, no `exit`: running while the keeper lives (same pid, start time and boot), lost when it is gone. A keeper
needs no supervisor; it ends when nothing of its command is left running. `discard` takes the folder away. The command
and all below it have MUSE_CALL in their environment (`processes.mark_of`), by which they are found again.

Socket: one JSON object a line, ASCII with escapes; bytes that are not UTF-8 are lone surrogates (PEP 383). A lower
epoch is `refused: fenced`, in ping, start, cancel and stop; a higher one is durable before the request is served.

    {"do":"ping","epoch"}                       pong: protocol, pid, start_time, boot_id, epoch; comes when no start
                                                of a lower epoch is under way, so what the files say is final
    {"do":"start","epoch",spec…,"request"}      accepted | refused: reason exists|fenced|invalid|limit|failed, detail
    {"do":"attach","call","attempt"}            exited | lost | never_accepted, at once or when it comes
                                                (lost: when what was left of the command has ended)
    {"do":"cancel","epoch","call","attempt"}    cancelling | gone; `exited` tells the rest
    {"do":"status"}                             status: attempts [{call attempt state accepted exit}]
    {"do":"stop","epoch","kill"}                stopping: commands go on | stopped: all was ended, `left` could not be
"""

from typing import Any

import msgspec

from muse.errors import MuseError

OUTPUT_BYTES_MAX = 1 << 30
GRACE_MS = 2000


class RunnerError(MuseError):
    """Something about the runner of a session."""


class RunnerUnavailable(RunnerError):
    """The supervisor cannot be started or does not answer. After a `start`, `inspect` says whether it was accepted."""

    retry = "ask"


class RunnerDamaged(RunnerError):
    """A file of the runner holds what no runner writes."""

    exit_code = 6


class StartRefused(RunnerError):
    """A command was not started. `reason`: `exists` (an earlier start holds), `invalid`, `limit` (too many run),
    `failed`, or `never_accepted` when it was to be waited for."""

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class CommandLost(RunnerError):
    """The command was accepted and its keeper died: how it ended cannot be known. The output so far is in the spool."""


class Identity(msgspec.Struct, frozen=True):
    """One process, told apart from later ones with the same pid."""

    pid: int
    start_time: str
    boot_id: str


class LeftRunning(msgspec.Struct, frozen=True):
    """A process that outlived its command. `command` is its command line, shortened."""

    pid: int
    start_time: str
    command: str
    group: int = 0


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `env` is the whole environment. `timeout_ms` 0 means none. After SIGTERM, `grace_ms` until SIGKILL.

    `umask` None means the host's. Text may hold lone surrogates for bytes that are not UTF-8. `confine` is the plan of
    a sandbox that is put on before the command is executed (`confine.py`), empty for none.
    """

    call: str
    attempt: int
    args_digest: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout_ms: int = 0
    output_bytes_max: int = OUTPUT_BYTES_MAX
    grace_ms: int = GRACE_MS
    umask: int | None = None
    confine: dict[str, Any] = {}


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was accepted, durably, before it was executed."""

    epoch: int
    call: str
    attempt: int
    args_digest: str
    request: str
    time_ms: int
    timeout_ms: int
    keeper: Identity
    command: Identity


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `code` or `signal`; both None only if it could not be killed (`group_gone` is False then).

    `start_error` says why it could not be executed (code 126 or 127). `output_limit_reached`: killed for writing too
    much. `spool_error`: killed because its output could not be stored. `group_gone`: nothing of it is left running.
    """

    code: int | None
    signal: int | None
    start_error: str
    timed_out: bool
    cancelled: bool
    output_limit_reached: bool
    spool_error: str
    time_ms: int
    duration_ms: int
    output_bytes: int
    group_gone: bool
    left_running: tuple[LeftRunning, ...]


class NeverAccepted(msgspec.Struct, frozen=True):
    """Nothing was executed under this call and attempt; it may be submitted."""


class Running(msgspec.Struct, frozen=True):
    """It runs; `wait` attaches to it. `output_bytes` are in the spool so far."""

    accepted: Accepted
    output_bytes: int


class Exited(msgspec.Struct, frozen=True):
    """It ended, and how is known."""

    accepted: Accepted
    exit: Exit


class Lost(msgspec.Struct, frozen=True):
    """It was accepted and its keeper is gone without a word: unknown. `command_alive`: the command still runs.

    `settled`: the supervisor has looked for the rest of it. `ended` are the processes that it then ended, `left` those
    that could not be ended.
    """

    accepted: Accepted
    output_bytes: int
    command_alive: bool
    settled: bool = False
    ended: tuple[LeftRunning, ...] = ()
    left: tuple[LeftRunning, ...] = ()


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What a `lost` file says."""

    time_ms: int
    ended: tuple[LeftRunning, ...]
    left: tuple[LeftRunning, ...]


Attempt = NeverAccepted | Running | Exited | Lost


def accepted_from(content: dict[str, Any]) -> Accepted:
    """The struct of an `accepted` file. Raises RunnerDamaged."""
    try:
        return msgspec.convert(content, Accepted)
    except msgspec.ValidationError as error:
        raise RunnerDamaged(f"an accepted file of the runner is damaged: {error}") from error


def settled_from(content: dict[str, Any]) -> Settled:
    """The struct of a `lost` file. Raises RunnerDamaged."""
    try:
        return msgspec.convert(content, Settled)
    except msgspec.ValidationError as error:
        raise RunnerDamaged(f"a lost file of the runner is damaged: {error}") from error


def exit_from(content: dict[str, Any]) -> Exit:
    """The struct of an `exit` file. Raises RunnerDamaged."""
    try:
        return msgspec.convert(content, Exit)
    except msgspec.ValidationError as error:
        raise RunnerDamaged(f"an exit file of the runner is damaged: {error}") from error
