"""What an effect is to the runtime: tools and model clients, their inputs and outcomes.

An effect is started only after its intent is durable, and ends in exactly one outcome. Nothing here knows the log:
content goes out through the `Keep` callback, progress through `Show`, and what happened comes back as a value.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from muse.event.content import BlobRef, Block, FileChange, Observed, ToolSpec, Usage

Keep = Callable[[bytes], Awaitable[BlobRef]]
"""Store content durably in the log's blobs and return its reference."""

KeepFile = Callable[[Path], Awaitable[BlobRef]]
"""The same for a file that may be too large for memory: read in chunks."""

Show = Callable[[str], None]
"""Pass on live text; never stored, may be dropped."""


class Workspace(msgspec.Struct, frozen=True):
    """Where tools work. `root` is absolute with symlinks resolved; file tools stay inside it."""

    root: Path


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool run. `call` is the key (`main/7`); `args` the parsed JSON object; `args_text` the exact text.

    `idempotency_key` is what a `keyed` tool sends along: the same in every attempt and under every host.
    """

    call: str
    attempt: int
    name: str
    args: Mapping[str, object]
    args_text: str
    idempotency_key: str = ""
    epoch: int = 0
    timeout_seconds: int = 0


class LeftProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the machine that a call left running, or (`how` says in what way) that was ended meanwhile.

    `started` is the kernel's start time in ticks since boot, 0 where that is not known.
    """

    pid: int
    started: int
    command: str = ""
    group: int = 0
    boot_id: str = ""
    how: str = ""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool run ended.

    `text` is what the model reads: valid Unicode, bounded (head and tail of long output with a line between that
    says how much was left out). `output` names the whole, exact output where `text` is not all of it. `duration_ms` is
    given by a tool whose run may have begun under an earlier host; else the host measures.
    """

    status: Literal["ok", "error", "cancelled", "unknown"]
    text: str
    output: BlobRef | None = None
    output_bytes: int = 0
    exit_code: int | None = None
    timed_out: bool = False
    duration_ms: int | None = None
    changes: tuple[FileChange, ...] = ()
    processes: tuple[LeftProcess, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery found about a call whose host died between intent and result.

    `attached`: still running, or ended with a known result: `run` again with `attach=True` returns it. `not_done`:
    safe to start again. `done`: `result` holds the outcome. `retried`: run again (no side effect). `unknown`:
    `result` says so. With `take_up` and no `result`, that is what `run` with `attach=True` returns, which starts
    nothing and keeps what there is.
    """

    verdict: Literal["done", "not_done", "attached", "retried", "unknown"]
    evidence: str
    result: ToolResult | None = None
    take_up: bool = False


class Tool(Protocol):
    """One tool. Stateless: everything it needs comes with the call, so that any later process can go on with it."""

    spec: ToolSpec

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """Workspace-relative paths that the call reads or writes, for permission and per-path order. A path outside
        the workspace is given absolute. Pure but for resolving symlinks. Never raises for hostile arguments."""
        ...

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """What is to be recorded before the effect starts (pre-image, new content). Has no effect of its own. A call
        that cannot be done is described in `Observed.error`, not raised."""
        ...

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """Do it, once, and say how it ended. With `attach`, go on with what an earlier host started. Cancellation of
        the task must leave nothing running (or the result says what is); then the task returns `cancelled`."""
        ...

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """After a crash between intent and result: look, without any effect, and say what is known."""
        ...


class Leftovers(Protocol):
    """What calls left running, as the machine shows it now."""

    def lives(self, process: LeftProcess) -> bool:
        """Whether exactly that process still runs: pid, start time and boot say so."""
        ...

    def found(self) -> list[tuple[str, LeftProcess]]:
        """Every living process that a call of this session started, with its call, those of running calls included.
        Takes milliseconds: for a worker thread."""
        ...

    def how(self, call: str, process: LeftProcess) -> str:
        """How one that is gone has ended, as far as that was seen."""
        ...

    async def end(self, call: str, processes: Sequence[LeftProcess]) -> None:
        """End these and all else that the call left running; returns when they are gone, or after a limit."""
        ...

    def tidy(self, is_over: Callable[[str], bool]) -> None:
        """Take away what an earlier host could not: what is kept of calls that are over, as `is_over` says."""
        ...

    def forget(self, call: str) -> None:
        """Nothing of the call is left, and the log says so: its notes may go."""
        ...


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the processes that a call had left running: `ended` now, `gone` before that, and `left`, which
    could not be ended. `how` of the first two says how they ended."""

    ended: tuple[LeftProcess, ...] = ()
    gone: tuple[LeftProcess, ...] = ()
    left: tuple[LeftProcess, ...] = ()


class Background(Protocol):
    """What the calls of a session left running, by the log and by the machine, for a tool that ends some of it."""

    async def running(self) -> Mapping[str, tuple[LeftProcess, ...]]:
        """What runs now, by the call that left it. Calls that have not ended themselves are not among them."""
        ...

    async def stop(self, call: str) -> Stopped:
        """End everything that this call left running, and record what is found of it. Returns when it is gone, or
        after a limit. Nothing is done to a call that has not ended itself."""
        ...


Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole response, decoded. `raw` is what came over the wire, byte for byte."""

    blocks: tuple[Block, ...]
    usage: Usage
    stop: Stop
    stop_raw: str = ""
    model: str = ""
    response_id: str = ""
    raw: bytes = b""
    duration_ms: int = 0


FailureClass = Literal[
    "rate_limited", "overloaded", "server", "network", "timeout", "cut", "garbage", "auth", "invalid", "too_large",
    "cancelled",
]  # fmt: skip


class ModelFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that gave no whole response. `partial` is the text seen so far, `raw` the bytes (cut at a limit),
    `usage` what the provider had counted by then,
    `retry_after_ms` the wait that it asked for. `message` never holds a key."""

    failure: FailureClass
    message: str
    status: int = 0
    retry_after_ms: int | None = None
    partial: str = ""
    usage: Usage = Usage()
    raw: bytes = b""
    duration_ms: int = 0


class Model(Protocol):
    """A model provider: takes the exact request bytes, streams text to `show`, ends in an answer or a failure."""

    async def ask(self, request: bytes, call: str, attempt: int, show: Show) -> ModelAnswer | ModelFailure:
        """One attempt, no retries of its own. Never raises but for cancellation."""
        ...


class Decoder(Protocol):
    """A streaming decoder of one wire dialect: pure, bytes in, answer out."""

    def feed(self, data: bytes) -> list[str]:
        """Take bytes as they arrive (cut anywhere); return the pieces of visible text they completed."""
        ...

    def done(self) -> bool:
        """Whether the answer is whole, so that nothing more need be awaited."""
        ...

    def finish(self) -> ModelAnswer | ModelFailure:
        """The stream has ended: the answer, or why there is none (`cut`, `garbage`, an error event)."""
        ...


Lines = AsyncIterator[bytes]
