"""What an event is, in one of a few words: for minimaps, and for going to the next of a kind.

A pure function of the event. This module must not know signs, colours or where marks are kept.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final

from muse.event import kinds
from muse.event.envelope import Event

OUTCOMES_BAD: Final = frozenset({"failed", "provider", "unanswered", "budget"})


class Mark(IntEnum):
    """What an event is; one of them for each. Fits into a byte, and a set of them into one integer: see `bits`."""

    OTHER = 0
    ERROR = 1
    """Something failed: a tool, a model call, an agent, the session; or events were lost."""
    DOUBT = 2
    """It may or may not have happened."""
    APPROVAL = 3
    """Asked or answered, policy changed, a command refused."""
    EDIT = 4
    """Files changed."""
    CANCEL = 5
    """Asked for, or what ended by it."""
    STEER = 6
    """Words that join a running turn, and pause and continue."""
    PERSON = 7
    """A prompt, an answer, a note, a question to a person."""
    SPAWN = 8
    """An agent begins or ends, or speaks to another."""
    LIMIT = 9
    MODEL = 10
    TOOL = 11
    SESSION = 12
    """Opened, closed, imported, redacted, recovered."""


_BY_TYPE: Final = {
    "effect.doubted": Mark.DOUBT, "effect.reconciled": Mark.DOUBT, "approval.requested": Mark.APPROVAL,
    "approval.decided": Mark.APPROVAL, "policy.changed": Mark.APPROVAL, "command.refused": Mark.APPROVAL,
    "files.changed": Mark.EDIT, "workspace.restored": Mark.EDIT, "files.unknown": Mark.DOUBT,
    "cancel.requested": Mark.CANCEL, "agent.steered": Mark.STEER, "agent.paused": Mark.STEER,
    "agent.continued": Mark.STEER, "budget.raised": Mark.LIMIT, "budget.reached": Mark.LIMIT,
    "agent.wanted": Mark.STEER, "log.recovered": Mark.ERROR,
}  # fmt: skip
_BY_GROUP: Final = {
    "user": Mark.PERSON, "question": Mark.PERSON, "note": Mark.PERSON, "agent": Mark.SPAWN, "result": Mark.SPAWN,
    "model": Mark.MODEL, "context": Mark.MODEL, "tool": Mark.TOOL, "process": Mark.TOOL, "session": Mark.SESSION,
    "log": Mark.SESSION, "ownership": Mark.SESSION, "head": Mark.SESSION, "timer": Mark.LIMIT,
}  # fmt: skip


def mark(event: Event) -> Mark:
    """What this event is."""
    said = _BY_BODY.get(type(event.body))
    found = said(event.body) if said is not None else None
    if found is None:
        found = _BY_TYPE.get(event.type)
    return found if found is not None else _BY_GROUP.get(event.type.partition(".")[0], Mark.OTHER)


def _tool(body: kinds.ToolFinished) -> Mark | None:
    if body.status in ("unknown", "cancelled"):
        return Mark.DOUBT if body.status == "unknown" else Mark.CANCEL
    return Mark.ERROR if body.status == "error" or body.timed_out or body.exit_code not in (None, 0) else None


def _failed(body: kinds.ModelFailed) -> Mark | None:
    return Mark.CANCEL if body.failure == "cancelled" else Mark.ERROR


def _responded(body: kinds.ModelResponded) -> Mark | None:
    return Mark.ERROR if body.stop in ("max_tokens", "refusal") else None


def _ended(body: kinds.SessionClosed | kinds.AgentFinished) -> Mark | None:
    return Mark.ERROR if body.outcome in OUTCOMES_BAD else None


def _prompted(body: kinds.UserPrompted) -> Mark | None:
    return Mark.STEER if body.delivery == "steer" else None


_BY_BODY: Final[dict[type, Callable[[Any], Mark | None]]] = {
    kinds.ToolFinished: _tool, kinds.ModelFailed: _failed, kinds.ModelResponded: _responded,
    kinds.SessionClosed: _ended, kinds.AgentFinished: _ended, kinds.UserPrompted: _prompted,
}  # fmt: skip
"""What a body adds to its type."""


def bits(marks: Iterable[Mark]) -> int:
    """A set of marks as one integer: bit `1 << mark` for each."""
    found = 0
    for one in marks:
        found |= 1 << one
    return found


def marks_of(found: int) -> frozenset[Mark]:
    """The set that `bits` made."""
    return frozenset(one for one in Mark if found >> one & 1)
