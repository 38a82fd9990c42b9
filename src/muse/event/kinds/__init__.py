"""Every event type: its body, version, origin and clear fields.

One registry (`KINDS`) is the only place that joins a type's name to its struct. Origins: `command` comes from outside
through `submit`; `fact` is what came back from the world; `decision` is derived from folded state. Some types have two
origins: `approval.decided` is a command when `by` is `person`, `session.rewound` when a person asked for it;
`cancel.requested` is a decision when an agent's call wants it (`by`), `model.changed` when a fallback is switched to
(`reason`), `tool.finished` when the call touches nothing but the log (class `derived`), `command.refused` when what was
wanted is impossible (`why`).
Clear fields are enums, integers and minted ids that redaction may never hide (docs/format.md).
"""

from functools import lru_cache
from typing import Literal

import msgspec

from muse.event.kinds.agents import (
    AgentContinued,
    AgentFinished,
    AgentMessaged,
    AgentPaused,
    AgentSpawned,
    AgentSteered,
    AgentWanted,
    CancelRequested,
    QuestionAnswered,
    QuestionAsked,
    ResultDelivered,
    UserPrompted,
)  # fmt: skip
from muse.event.kinds.effects import (
    ApprovalDecided,
    ApprovalRequested,
    EffectDoubted,
    EffectReconciled,
    FilesChanged,
    FilesUnknown,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyChanged,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
    ToolFinished,
    ToolStarted,
    WorkspaceRestored,
    WorktreePrepared,
    WorktreeRemoved,
)  # fmt: skip
from muse.event.kinds.session import (
    Aside,
    BudgetRaised,
    BudgetReached,
    CommandRefused,
    CommandVersion,
    ContextCompacted,
    Counted,
    HeadSigned,
    LogImported,
    LogRecovered,
    LogRedacted,
    LostBlob,
    NoteAdded,
    OwnershipTaken,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SessionRewound,
    SourceKept,
    TimerFired,
    TimerSet,
)  # fmt: skip

__all__ = [
    "COMMANDS", "KINDS", "AgentContinued", "AgentFinished", "AgentMessaged", "AgentPaused", "AgentSpawned",
    "AgentSteered", "AgentWanted", "ApprovalDecided", "ApprovalRequested", "Aside", "BudgetRaised", "BudgetReached",
    "CancelRequested", "CommandRefused", "CommandVersion", "ContextCompacted", "Counted", "EffectDoubted",
    "EffectReconciled", "FilesChanged", "FilesUnknown", "HeadSigned", "Kind", "LogImported", "LogRecovered",
    "LogRedacted", "LostBlob", "ModelChanged", "ModelFailed", "ModelRequested", "ModelResponded", "NoteAdded",
    "OwnershipTaken", "PolicyChanged", "ProcessAdopted", "ProcessReaped", "ProcessStarted", "QuestionAnswered",
    "QuestionAsked", "ResultDelivered", "SessionClosed", "SessionForked", "SessionOpened", "SessionRewound",
    "SourceKept", "TimerFired", "TimerSet", "ToolFinished", "ToolStarted", "UserPrompted", "WorkspaceRestored",
    "WorktreePrepared", "WorktreeRemoved", "required_clear",
]  # fmt: skip


class Kind(msgspec.Struct, frozen=True):
    """What is known of one event type. `version` is the newest this build writes."""

    body: type[msgspec.Struct]
    origin: Literal["command", "fact", "decision"]
    clear: frozenset[str] = frozenset()
    version: int = 1


def _kind(body: type[msgspec.Struct], origin: Literal["command", "fact", "decision"], clear: str = "") -> Kind:
    fields = set(body.__struct_fields__)
    named = frozenset(clear.split())
    assert named <= fields, f"{body.__name__} has no field {named - fields}"
    return Kind(body, origin, named)


KINDS: dict[str, Kind] = {
    "session.opened": _kind(SessionOpened, "fact", "format rules crashed commands"),
    "session.closed": _kind(SessionClosed, "decision", "outcome"),
    "note.added": _kind(NoteAdded, "command"),
    "user.prompted": _kind(UserPrompted, "command", "delivery"),
    "agent.steered": _kind(AgentSteered, "command"),
    "agent.wanted": _kind(AgentWanted, "command", "mode isolation"),
    "question.asked": _kind(QuestionAsked, "decision", "call"),
    "question.answered": _kind(QuestionAnswered, "command", "question"),
    "cancel.requested": _kind(CancelRequested, "command", "target call prompt by"),
    "agent.paused": _kind(AgentPaused, "command", "target"),
    "agent.continued": _kind(AgentContinued, "command", "target"),
    "agent.spawned": _kind(AgentSpawned, "decision", "parent call index background mode isolation wanted"),
    "agent.messaged": _kind(AgentMessaged, "decision", "to call"),
    "result.delivered": _kind(ResultDelivered, "decision", "child outcome"),
    "agent.finished": _kind(AgentFinished, "decision", "outcome"),
    "model.requested": _kind(ModelRequested, "decision", "call attempt builder items request_bytes purpose"),
    "model.responded": _kind(ModelResponded, "fact", "call attempt stop usage duration_ms"),
    "model.failed": _kind(
        ModelFailed, "fact", "call attempt failure status retry_after_ms retry_until jitter_permille duration_ms usage"
    ),
    "model.changed": _kind(ModelChanged, "command", "reason"),
    "tool.started": _kind(ToolStarted, "decision", "call attempt recovery approval"),
    "tool.finished": _kind(ToolFinished, "fact", "call attempt status exit_code timed_out output_bytes duration_ms"),
    "process.started": _kind(ProcessStarted, "fact", "call pid started"),
    "process.adopted": _kind(ProcessAdopted, "fact", "call pid started"),
    "process.reaped": _kind(ProcessReaped, "fact", "call pid started"),
    "approval.requested": _kind(ApprovalRequested, "decision", "call"),
    "approval.decided": _kind(ApprovalDecided, "decision", "request call decision by"),
    "policy.changed": _kind(PolicyChanged, "command", "mode"),
    "files.changed": _kind(FilesChanged, "fact", "calls external"),
    "files.unknown": _kind(FilesUnknown, "fact", "calls"),
    "worktree.prepared": _kind(WorktreePrepared, "fact"),
    "worktree.removed": _kind(WorktreeRemoved, "fact"),
    "session.rewound": _kind(SessionRewound, "command", "to"),
    "workspace.restored": _kind(WorkspaceRestored, "fact", "to"),
    "effect.doubted": _kind(EffectDoubted, "decision", "call attempt recovery"),
    "effect.reconciled": _kind(EffectReconciled, "fact", "call attempt verdict"),
    "command.refused": _kind(CommandRefused, "fact", "command why"),
    "budget.reached": _kind(BudgetReached, "decision", "limit value scope of"),
    "budget.raised": _kind(BudgetRaised, "command", "limit value scope"),
    "timer.set": _kind(TimerSet, "decision", "key duration_ms"),
    "timer.fired": _kind(TimerFired, "fact", "key"),
    "context.compacted": _kind(ContextCompacted, "decision", "first last calls call kept bytes_before bytes_after"),
    "log.imported": _kind(LogImported, "fact", "events"),
    "source.kept": _kind(SourceKept, "fact", "line"),
    "log.redacted": _kind(LogRedacted, "fact", "seqs"),
    "log.recovered": _kind(LogRecovered, "fact", "first_lost last_lost"),
    "session.forked": _kind(SessionForked, "command", "at"),
    "head.signed": _kind(HeadSigned, "fact", "seq"),
    "ownership.taken": _kind(OwnershipTaken, "fact", "epoch forced"),
}
"""Type name → kind."""

COMMANDS: dict[str, int] = {name: kind.version for name, kind in KINDS.items() if kind.origin == "command"} | {
    "approval.decided": KINDS["approval.decided"].version
}
"""The types that any process may submit, with the version this build understands."""


@lru_cache(maxsize=256)
def required_clear(kind: str, version: int | None = None) -> frozenset[str]:
    """The clear keys that every body of this type holds, so that one not shown was hidden (docs/format.md §7).

    Nothing for a type, or a version (None: the newest), that is not known.
    """
    found = KINDS.get(kind)
    if found is None or version not in (None, found.version):
        return frozenset()
    return found.clear & {field.encode_name for field in msgspec.structs.fields(found.body) if field.required}
