"""The shell tool: one command under the runner, which outlives the host.

Class `attachable`: after a crash the next host finds the command by its call and goes on with it. The runner owns
process, time-out and spool; this module says what to start, shows live output, and turns the end into a result. It
must not know how the runner works.
"""

import hashlib
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, assert_never

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from muse.effect.protocol import Keep, KeepFile, LeftProcess, Show, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.runner import (
    CommandSpec,
    Exit,
    Exited,
    LeftRunning,
    Lost,
    NeverAccepted,
    Runner,
    RunnerError,
    RunnerUnavailable,
    Running,
    StartRefused,
    boot_id,
    left_process,
)
from muse.effect.sandbox import NO_SANDBOX, Sandbox
from muse.effect.tool import output
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, schema_of, take
from muse.effect.tool.environment import shell_environment
from muse.effect.tool.live import follow_spool
from muse.effect.tool.masking import NO_SECRETS, KnownSecrets
from muse.errors import Fenced
from muse.event.content import BlobRef, Observed, ToolSpec
from muse.event.text import clean

_Status = Literal["ok", "error", "cancelled", "unknown"]

TIMEOUT_SECONDS_MAX: Final = 24 * 3600
"""The longest time a model may ask for."""

COMMAND_BYTES_MAX: Final = 128 * 1024 - 1
"""The longest single argument that Linux passes to a program."""

SPOOL_BYTES_MAX: Final = 1 << 30
"""Where the runner ends a command because of its output."""

CANCEL_SECONDS_MAX: Final = 30
"""How long a cancelled call waits for the runner to say that the command is gone."""

_NEW_FOLDER: Final = (
    "the runner's folder in which a start of this command would stand is gone, or the log was copied here without it"
)

_PARAMETERS: Final = (
    Parameter(name="command", kind="string", required=True, description="Command for bash -c."),
    Parameter(
        name="timeout_seconds",
        kind="integer",
        minimum=1,
        maximum=TIMEOUT_SECONDS_MAX,
        description="End the command after this long (default: as the user set, usually 120).",
    ),
    Parameter(name="description", kind="string", description="What the command is for, in a few words."),
)

_DESCRIPTION: Final = f"""\
Run a command with bash in the workspace folder. Each call is a new shell: cd and variables do not carry over. \
Standard input is empty, so use flags instead of prompts. Returns standard output and error as one text, then the \
exit code; of more than {output.TEXT_BYTES_MAX} bytes you get head and tail, and how to read the rest. Prefer \
the tools read, edit, glob and grep for files."""


class ShellTool:
    """Runs commands.

    `environment` is the host's; what commands see of it is chosen here, by name. `secrets` are masked in
    output before it is cut or kept. `has_output_tool`: whether a model can
    read what was left out of a long output with the tool `output`; `has_stop_tool`, whether it can end what a command
    left running with the tool `stop`. A call's `timeout_seconds` holds when the model
    names none; 0 is no limit. `sandbox` is what commands run in.
    """

    spec = ToolSpec(
        name="shell",
        description=_DESCRIPTION,
        schema=schema_of(_PARAMETERS),
        recovery="attachable",
        writes=True,
    )

    def __init__(
        self,
        runner: Runner,
        environment: Mapping[str, str],
        extra_names: tuple[str, ...] = (),
        *,
        secrets: KnownSecrets = NO_SECRETS,
        has_output_tool: bool = True,
        has_stop_tool: bool = False,
        sandbox: Sandbox = NO_SANDBOX,
    ) -> None:
        if sandbox.told:
            self.spec = msgspec.structs.replace(self.spec, description=f"{_DESCRIPTION} {sandbox.told}")
        self._secrets = secrets
        self._sandbox = sandbox
        self._runner = runner
        self._has_output_tool = has_output_tool
        self._has_stop_tool = has_stop_tool
        self._environment = sandbox.environment(shell_environment(environment, extra_names))

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None: what a command touches is not known."""
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """The folder in which the command will run."""
        try:
            _command(call)
        except Refusal as refusal:
            return Observed(folder=str(workspace.root), error=str(refusal))
        with suppress(OSError):  # then a crash before the start leaves a doubt that need not be
            self._runner.expect()
        return Observed(folder=str(workspace.root))

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """Start the command, or with `attach` take up one that is started, and wait for its end.

        Cancelling ends the command with all it started, and returns what it wrote until then. Raises Fenced.
        """
        exit: Exit | None = None
        doubt = ""
        try:
            await anyio.lowlevel.checkpoint()  # a call that is cancelled already starts nothing
            if not attach:
                await self._start(call, workspace)
            exit = await self._wait(call, show)
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except RunnerError as error:
            doubt = str(error)
        except anyio.get_cancelled_exc_class():
            return await _shielded(self._cancel(call, keep_file))
        # It has ended, and how is to be told, whoever cancels now.
        ending = self._unknown(call, doubt, keep_file) if exit is None else self._finish(call, exit, keep_file)
        return await _shielded(ending)

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """What the runner's files say of the call. What a killed keeper left of it has been ended by then."""
        is_known, unreachable = self._runner.is_expecting, ""
        try:
            try:
                await self._runner.supervisor()  # from here on no start of an earlier owner is under way
            except RunnerUnavailable as error:
                unreachable = str(error)
            attempt = await self._runner.settle(call.call, call.attempt)
        except RunnerError as error:
            return Verdict(verdict="unknown", evidence=str(error), take_up=True)
        if not isinstance(attempt, NeverAccepted) and attempt.accepted.args_digest != _digest(call):
            return Verdict(
                verdict="not_done", evidence="the runner knows another command under this number, not this one"
            )
        match attempt:
            case NeverAccepted() if not (is_known and self._runner.is_expecting):
                return Verdict(verdict="unknown", evidence=_NEW_FOLDER)
            case NeverAccepted() if unreachable:
                return Verdict(verdict="unknown", evidence=unreachable, take_up=True)
            case NeverAccepted():
                return Verdict(verdict="not_done", evidence="the runner's folder holds no start of this command")
            case Running():
                return Verdict(verdict="attached", evidence="the command still runs under the runner")
            case Exited():
                return Verdict(verdict="attached", evidence="the command ended; its exit status and output are kept")
            case Lost():
                return Verdict(verdict="unknown", evidence=what_became_of(attempt), take_up=True)
            case _:
                assert_never(attempt)

    async def _start(self, call: ToolCall, workspace: Workspace) -> None:
        """Raises Refusal when nothing was started, RunnerUnavailable when that is not known."""
        command, timeout_seconds = _command(call)
        argv, confine = self._sandbox.command([self._shell(), "-c", command], str(workspace.root))
        spec = CommandSpec(
            call=call.call,
            attempt=call.attempt,
            args_digest=_digest(call),
            argv=argv,
            cwd=str(workspace.root),
            env=self._environment,
            timeout_ms=timeout_seconds * 1000,
            output_bytes_max=SPOOL_BYTES_MAX,
            confine=confine,
        )
        try:
            with anyio.CancelScope(shield=True):  # a start that was sent must be known before it can be cancelled
                await self._runner.start(spec)
        except StartRefused as refused:
            if refused.reason != "exists":  # an earlier start of this very attempt is the one to wait for
                raise Refusal(f"the command was not started: {refused}") from refused
            self._require_same(spec)

    def _require_same(self, spec: CommandSpec) -> None:
        """Another command under the same number is none of ours: a log that lost its end counts again from there."""
        found = self._runner.inspect(spec.call, spec.attempt)
        if not isinstance(found, NeverAccepted) and found.accepted.args_digest != spec.args_digest:
            raise Refusal(
                "the command was not started: another one had the number of this call before, and the log has lost it. "
                "Look what has been done, then ask for it again"
            )

    def _shell(self) -> str:
        path = self._environment.get("PATH")
        return shutil.which("bash", path=path) or "/bin/sh"

    async def _wait(self, call: ToolCall, show: Show) -> Exit:
        exit: Exit | None = None
        failure: RunnerError | Fenced | None = None
        ended = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow_spool, self._spool(call), show, ended)
            try:
                exit = await self._runner.wait(call.call, call.attempt)
            except (RunnerError, Fenced) as error:
                failure = error  # carried out of the task group, which would wrap it
            ended.set()
        if failure is not None:
            raise failure
        assert exit is not None
        return exit

    async def _cancel(self, call: ToolCall, keep_file: KeepFile) -> ToolResult:
        """End the command, wait for that within a limit, and say what is known."""
        why = f"the runner did not answer within {CANCEL_SECONDS_MAX} s"
        try:
            with anyio.move_on_after(CANCEL_SECONDS_MAX):
                await self._runner.cancel(call.call, call.attempt)
            attempt = self._runner.inspect(call.call, call.attempt)
        except RunnerError as error:
            return await self._unknown(call, str(error), keep_file)
        match attempt:
            case NeverAccepted():
                return ToolResult(status="cancelled", text="cancelled before the command was started")
            case Exited(exit=exit):
                return await self._finish(call, exit, keep_file)
            case Running():
                text = f"cancelled, but the command may still run: {why}"
                return await self._result(call, "cancelled", text, keep_file)
            case Lost():
                return await self._unknown(call, "the command's supervisor is gone", keep_file)
            case _:
                assert_never(attempt)

    async def _unknown(self, call: ToolCall, why: str, keep_file: KeepFile) -> ToolResult:
        """How it ended is not known; with the output so far, and what was left of it."""
        named: tuple[LeftProcess, ...] = ()
        may_run = True
        try:
            attempt = self._runner.inspect(call.call, call.attempt)
        except RunnerError as error:
            why = why or str(error)
        else:
            if isinstance(attempt, Lost):
                why, may_run = what_became_of(attempt), bool(attempt.left) or not attempt.settled
                ended = [left_process(one, "ended: its keeper was killed") for one in attempt.ended]
                named = (*ended, *(left_process(one) for one in attempt.left))
        result = await self._result(call, "unknown", _doubt(why, may_run=may_run), keep_file)
        return msgspec.structs.replace(result, processes=named)

    async def _finish(self, call: ToolCall, exit: Exit, keep_file: KeepFile) -> ToolResult:
        good = exit.code == 0 and not (exit.timed_out or exit.output_limit_reached or exit.spool_error)
        status: _Status = "cancelled" if exit.cancelled else "ok" if good else "error"
        hints = [self._sandbox.hint_of_rest] if exit.left_running else []
        hints += [self._sandbox.hint] if status == "error" else []
        ending = "\n".join((how_it_ended(exit, self._how_to_end(call)), *(hint for hint in hints if hint)))
        return await self._result(call, status, ending, keep_file, exit)

    def _how_to_end(self, call: ToolCall) -> str:
        return f'end it with stop(call="{call.call}")' if self._has_stop_tool else ""

    async def _result(
        self, call: ToolCall, status: _Status, ending: str, keep_file: KeepFile, exit: Exit | None = None
    ) -> ToolResult:
        excerpt = await anyio.to_thread.run_sync(self._excerpt, call, exit)
        kept: BlobRef | None = None
        if not excerpt.whole:
            try:
                kept = await self._kept(call, excerpt.size, keep_file)
            except OSError as error:
                ending = f"{ending}\nmore of the output than this could not be kept: {error.strerror or error}"
        return ToolResult(
            status=status,
            text=_joined(excerpt.text, ending),
            output=kept,
            output_bytes=excerpt.size,
            exit_code=None if exit is None else exit.code,
            timed_out=exit is not None and exit.timed_out,
            duration_ms=None if exit is None else exit.duration_ms,
            processes=() if exit is None else tuple(left_process(left) for left in exit.left_running),
        )

    async def _kept(self, call: ToolCall, size: int, keep_file: KeepFile) -> BlobRef:
        """The whole output in the log: what was written until the end, with known secrets masked."""
        spool = self._spool(call)
        if not await anyio.to_thread.run_sync(self._is_to_be_copied, spool, size):
            return await keep_file(spool)
        try:
            return await self._copy_kept(spool, spool.parent, size, keep_file)
        except OSError:  # that disk may be full: by this very output
            return await self._copy_kept(spool, None, size, keep_file)

    async def _copy_kept(self, spool: Path, place: Path | None, size: int, keep_file: KeepFile) -> BlobRef:
        """By way of a copy beside the spool, or (None) where the system keeps what is temporary."""
        with tempfile.TemporaryDirectory(prefix="kept-", dir=place) as folder:
            copy = Path(folder, "output")
            await anyio.to_thread.run_sync(self._secrets.copy_masked, spool, copy, size)
            return await keep_file(copy)

    def _is_to_be_copied(self, spool: Path, size: int) -> bool:
        """Whether a secret is in it, or a process that was left running may go on writing to it."""
        return spool.stat().st_size > size or self._secrets.is_in_file(spool, size)

    def _spool(self, call: ToolCall) -> Path:
        return Path(self._runner.output_path(call.call, call.attempt))

    def _excerpt(self, call: ToolCall, exit: Exit | None = None) -> output.Excerpt:
        size = None if exit is None else exit.output_bytes
        hint = (
            f'read them with output(call="{call.call}")' if self._has_output_tool else f"all is kept under {call.call}"
        )
        return output.excerpt_file(self._spool(call), hint, size, self._secrets)


async def _shielded(work: Coroutine[None, None, ToolResult]) -> ToolResult:
    results: list[ToolResult] = []
    with anyio.CancelScope(shield=True):
        results.append(await work)
    return results[0]


def _digest(call: ToolCall) -> str:
    return hashlib.sha256(call.args_text.encode("utf-8", "surrogatepass")).hexdigest()


def _command(call: ToolCall) -> tuple[str, int]:
    """Command and time-out in seconds (0: none) of a call. Raises Refusal."""
    args: Arguments = take("shell", _PARAMETERS, call.args)
    command = args.text("command")
    if not command.strip():
        raise Refusal("argument command is empty: give a command")
    if "\0" in command:
        raise Refusal("argument command holds a NUL character, which no command can hold: leave it out")
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise Refusal(
            f"argument command holds half a surrogate pair at character {error.start}: leave it out"
        ) from None
    if size > COMMAND_BYTES_MAX:
        raise Refusal(
            f"argument command has {size} bytes, and the system takes at most {COMMAND_BYTES_MAX}: "
            "write it to a file with the tool write and run that"
        )
    return command, args.number("timeout_seconds", call.timeout_seconds)


def how_it_ended(exit: Exit, how_to_end: str = "") -> str:
    """The lines under the output that tell a model how its command ended; `how_to_end`: what it can do about what was
    left running, if anything."""
    lines = []
    if exit.start_error:
        lines.append(f"the command could not be started: {exit.start_error}")
    if exit.timed_out:
        lines.append(
            f"timed out after {exit.duration_ms / 1000:.1f} s and was ended; the output above is what it wrote until "
            "then. Give a larger timeout_seconds, or start it in the background with its output in a file"
        )
    if exit.cancelled:
        lines.append("cancelled; the output above is what it wrote until then")
    if exit.output_limit_reached:
        lines.append(f"ended because it wrote more than {SPOOL_BYTES_MAX} bytes: send its output to a file or a filter")
    if exit.spool_error:
        lines.append(f"ended because its output could not be stored: {exit.spool_error}")
    lines.append(f"exit code {exit.code}" if exit.code is not None else _ended_by(exit.signal))
    if exit.left_running and (exit.cancelled or exit.timed_out or exit.output_limit_reached or exit.spool_error):
        lines.append(f"this could not be ended and still runs: {_names(exit.left_running)}")
    elif exit.left_running:
        hint = f"; {how_to_end}" if how_to_end else ""
        lines.append(f"still running in the background: {_names(exit.left_running)}{hint}")
    return "\n".join(lines)


def _ended_by(number: int | None) -> str:
    if number is None:
        return "no exit status: a process of the command did not end when it was killed"
    try:
        return f"ended by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"ended by signal {number}"


def _joined(text: str, ending: str) -> str:
    if not text:
        return f"(no output)\n{ending}"
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{ending}"


def what_became_of(lost: Lost) -> str:
    """What is known of a command whose keeper was killed."""
    said = "the command was started, and its keeper was killed before it ended: no exit status is known"
    if lost.accepted.command.boot_id != boot_id():
        return "the machine was restarted while the command ran: no exit status is known"
    if lost.ended:
        said += f"; what was left of it has been ended: {_names(lost.ended)}"
    if lost.left:
        said += f"; this could not be ended: {_names(lost.left)}"
    if lost.settled and not lost.ended and not lost.left:
        said += "; nothing was found that it left running"
    return said


def _names(processes: tuple[LeftRunning, ...]) -> str:
    return ", ".join(f"{one.pid} ({clean(one.command).text})" for one in processes)


def _doubt(why: str, *, may_run: bool) -> str:
    still = ", and may still run" if may_run else ""
    return (
        f"outcome unknown ({why}). The command may or may not have finished{still}. "
        "Look at what it changed before you run it again"
    )
