"""Bodies of intents and results: model calls, tool runs, approvals, files, doubt.

`call` is the key `<agent>/<n>` of the step; it stays the same over attempts.
"""

from typing import Literal

from muse.event.content import BlobRef, Block, Content, FileChange, Observed, Origin, RecoveryClass, Usage


class ModelRequested(Content, frozen=True):
    """Intent: a request is about to be sent. Its bytes are a pure function of the state (`builder` of the first
    `items` transcript items and the agent's system prompt and tools); `request_sha256` is their digest. `purpose`
    `summary`: it asks for a summary of what is to leave the context."""

    call: str
    attempt: int
    provider: str
    model: str
    builder: str
    items: int
    request_sha256: str
    request_bytes: int
    purpose: Literal["turn", "summary"] = "turn"


class ModelResponded(Content, frozen=True):
    """Result: the whole response. `raw` is what came over the wire, byte for byte."""

    call: str
    attempt: int
    blocks: tuple[Block, ...]
    stop: Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]
    usage: Usage = Usage()
    stop_raw: str = ""
    model: str = ""
    response_id: str = ""
    raw: BlobRef | None = None
    duration_ms: int = 0


class ModelFailed(Content, frozen=True):
    """Result: the attempt gave no whole response. `jitter_permille` is drawn when it is recorded, so that the wait
    before the next attempt can be derived. `retry_until` (RFC 3339) is the date until which the provider wants no
    request, given for long waits only."""

    call: str
    attempt: int
    failure: Literal[
        "rate_limited", "overloaded", "server", "network", "timeout", "cut", "garbage", "auth", "invalid", "too_large",
        "cancelled",
    ]  # fmt: skip
    message: str = ""
    status: int = 0
    retry_after_ms: int | None = None
    jitter_permille: int = 0
    partial: str = ""
    raw: BlobRef | None = None
    duration_ms: int = 0
    retry_until: str = ""
    usage: Usage = Usage()


class ModelChanged(Content, frozen=True):
    """From the next request on another model is used: by the session, or with `reason` `fallback`, which is a decision,
    by this agent."""

    provider: str
    dialect: str
    model: str
    origin: Origin = Origin()
    reason: Literal["", "fallback"] = ""


class ToolStarted(Content, frozen=True):
    """Intent: a tool is about to run. `args` is the exact text the model sent; `allowed_by` the rule or mode that let
    it pass, `approval` the seq of the decision where one was asked for. `observed` is not derived."""

    call: str
    attempt: int
    tool: str
    args: str | BlobRef
    recovery: RecoveryClass
    allowed_by: str = ""
    approval: int = 0
    observed: Observed = Observed()


class ToolFinished(Content, frozen=True):
    """Result: how the run ended. `text` is what the model reads; `output` the whole where `text` is not all of it. Of
    a call of class `derived` it is a decision."""

    call: str
    attempt: int
    status: Literal["ok", "error", "cancelled", "unknown"]
    text: str | BlobRef = ""
    output: BlobRef | None = None
    output_bytes: int = 0
    exit_code: int | None = None
    timed_out: bool = False
    duration_ms: int = 0


class ProcessStarted(Content, frozen=True):
    """An operating-system process that a call left running, told apart from a reused pid by its start time and the
    boot. `group` is its process group."""

    call: str
    pid: int
    started: int = 0
    command: str = ""
    group: int = 0
    boot_id: str = ""


class ProcessAdopted(Content, frozen=True):
    """A new owner found it running and keeps it."""

    call: str
    pid: int
    started: int = 0


class ProcessReaped(Content, frozen=True):
    """It is gone, by itself or ended."""

    call: str
    pid: int
    started: int = 0
    how: str = ""


class ApprovalRequested(Content, frozen=True):
    """A person must decide. `shown` is exactly what they are shown, `rule` why it is asked, `remember` the pattern
    that "always" would add. Binds to this call and these arguments."""

    call: str
    tool: str
    shown: str
    shown_sha256: str
    rule: str = ""
    remember: str = ""


class ApprovalDecided(Content, frozen=True):
    """The decision on a call. `request` is the seq of the approval request, 0 where a rule denied without asking.
    `remember` is the pattern to allow from now on."""

    call: str
    decision: Literal["allow", "deny"]
    by: Literal["rule", "person", "timeout"]
    request: int = 0
    rule: str = ""
    note: str = ""
    remember: str = ""
    shown_sha256: str = ""
    origin: Origin = Origin()


class PolicyChanged(Content, frozen=True):
    """The permission mode or the rules changed."""

    mode: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    origin: Origin = Origin()


class FilesChanged(Content, frozen=True):
    """Files that differ after `calls` ran; without one, between calls. `external` if somebody else's change cannot be
    excluded. `tree` names the snapshot that this and all before it lead up to."""

    changes: tuple[FileChange, ...]
    calls: tuple[str, ...] = ()
    external: bool = False
    after_crash: bool = False
    tree: str = ""


class FilesUnknown(Content, frozen=True):
    """What changed, by these calls or between calls, could not be determined."""

    calls: tuple[str, ...]
    why: str


class WorktreePrepared(Content, frozen=True):
    """A working tree of its own for an agent, at `path`: a git worktree of commit `base`, or a copy of a folder that is
    no repository (`base` ""), both with the files as they were in the parent's workspace; `tree` names the snapshot
    that it begins with, `left_out` what the parent has and it has not (repositories within, what could not be read).
    With `error` there is none, and the agent cannot work."""

    path: str
    base: str
    tree: str = ""
    error: str = ""
    left_out: tuple[str, ...] = ()


class WorktreeRemoved(Content, frozen=True):
    """That tree is gone, or with `left` it was kept because of these paths; `why` says more."""

    path: str
    left: tuple[str, ...] = ()
    why: str = ""


class WorkspaceRestored(Content, frozen=True):
    """Files were put back to those of event `to`."""

    to: int
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class EffectDoubted(Content, frozen=True):
    """The host died between intent and result of this attempt."""

    call: str
    attempt: int
    recovery: RecoveryClass


class EffectReconciled(Content, frozen=True):
    """What was found out. `unknown` is told to the model and the user."""

    call: str
    attempt: int
    verdict: Literal["done", "not_done", "attached", "retried", "unknown"]
    evidence: str = ""
