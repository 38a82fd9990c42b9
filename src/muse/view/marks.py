"""What an event is, in one of a few words: for minimaps, and for going to the next of a kind.

A pure function of the event. This module must not know signs, colours or where marks are kept.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from muse.event import kinds
from muse.event.envelope import Event

OUTCOMES_BAD: Final = frozenset({"failed", "provider", "unanswered", "budget"})


class Mark(IntEnum):
    """What an event is; where several hold, the one that stands first here. Fits into a byte, and a set of them into
    one integer: see `bits`."""

    OTHER = 0
    ERROR = 1
    """Something failed: a tool, a model call, the session; or its text could not be understood."""
    DOUBT = 2
    APPROVAL = 3
    """Asked or answered, policy changed, a command refused."""
    EDIT = 4
    """Files changed."""
    CANCEL = 5
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
    "model.failed": Mark.ERROR, "log.recovered": Mark.ERROR,
}  # fmt: skip
_BY_GROUP: Final = {
    "user": Mark.PERSON, "question": Mark.PERSON, "note": Mark.PERSON, "agent": Mark.SPAWN, "result": Mark.SPAWN,
    "model": Mark.MODEL, "context": Mark.MODEL, "tool": Mark.TOOL, "process": Mark.TOOL, "session": Mark.SESSION,
    "log": Mark.SESSION, "ownership": Mark.SESSION, "head": Mark.SESSION, "timer": Mark.LIMIT,
}  # fmt: skip


def mark(event: Event) -> Mark:
    """What this event is."""
    body = event.body
    if isinstance(body, kinds.ToolFinished):
        if body.status == "unknown":
            return Mark.DOUBT
        return Mark.ERROR if body.status == "error" else Mark.TOOL
    if isinstance(body, kinds.SessionClosed):
        return Mark.ERROR if body.outcome in OUTCOMES_BAD else Mark.SESSION
    if isinstance(body, kinds.UserPrompted) and body.delivery == "steer":
        return Mark.STEER
    if isinstance(body, kinds.AgentFinished) and body.outcome == "failed":
        return Mark.ERROR
    found = _BY_TYPE.get(event.type)
    return found if found is not None else _BY_GROUP.get(event.type.partition(".")[0], Mark.OTHER)


def bits(marks: Iterable[Mark]) -> int:
    """A set of marks as one integer: bit `1 << mark` for each."""
    found = 0
    for one in marks:
        found |= 1 << one
    return found


def marks_of(found: int) -> frozenset[Mark]:
    """The set that `bits` made."""
    return frozenset(one for one in Mark if found >> one & 1)
