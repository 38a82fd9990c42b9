"""What earlier events said, as far as filters ask: the tool and files of a call, who let it pass, which turn it is.

`Past` grows by `learn`, event by event in the order of the log; of the same events it is the same. This module must
not know what is asked of it.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from muse.event import kinds
from muse.event.calls import uses_of
from muse.event.envelope import Event, Redacted, Unknown
from muse.view import timeline
from muse.view.titles import arguments

By = Literal["person", "rule", "timeout"]


class Passed(msgspec.Struct, frozen=True):
    """What let a call pass, or refused it: the decision at `seq`, or a rule or mode without being asked."""

    by: By
    allow: bool
    user: str = ""
    rule: str = ""
    seq: int = 0


class Past(timeline.Context):
    """What earlier events said, as far as rows and filters ask. Grows by `learn` only; of the same events it is the
    same. `turn` is the number of main's turn, 0 before the first."""

    agents: set[str] = msgspec.field(default_factory=set)
    types: set[str] = msgspec.field(default_factory=set)
    workspace: str = ""
    asked: dict[str, int] = msgspec.field(default_factory=dict)
    passed: dict[str, Passed] = msgspec.field(default_factory=dict)
    decided: dict[int, str] = msgspec.field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    turn: int = 0
    busy: bool = False
    steered: bool = False
    ending: bool = False
    waiting: list[int] = msgspec.field(default_factory=list)
    running: set[str] = msgspec.field(default_factory=set)

    def passed_by(self, event: Event) -> Passed | None:
        """What an event decides about a call, or what let its call pass."""
        if isinstance(event.body, kinds.ApprovalDecided):
            return _decision(event, event.body)
        return next((self.passed[call] for call in calls_of(event) if call in self.passed), None)

    def paths_of(self, event: Event) -> Iterator[str]:
        """The files that an event or its call is about, relative to the workspace where they are in it."""
        body = event.body
        if isinstance(body, kinds.FilesChanged):
            yield from (change.path for change in body.changes)
        elif isinstance(body, kinds.WorkspaceRestored):
            yield from (*body.restored, *body.deleted, *body.kept)
        else:
            for call in calls_of(event):
                yield from self.paths.get(call, ())


def learn(past: Past, event: Event) -> None:
    """Take in what later rows and filters need of this event. Events come in the order of the log."""
    timeline.learn(past, event)
    past.agents.add(event.agent)
    past.types.add(event.type)
    body = event.body
    match body:
        case kinds.SessionOpened():
            past.workspace = body.workspace
        case kinds.ModelResponded():
            _learn_uses(past, body)
        case kinds.ToolStarted():
            _learn_started(past, event.seq, body)
        case kinds.ApprovalRequested():
            past.asked[body.call] = event.seq
        case kinds.ApprovalDecided():
            _learn_decision(past, event, body)
        case kinds.CommandRefused():
            if (call := past.decided.pop(body.command, "")) and past.passed[call].seq == body.command:
                del past.passed[call]
    if event.agent == "main":
        _learn_turn(past, event.seq, body)


def _learn_uses(past: Past, body: kinds.ModelResponded) -> None:
    for key, use in uses_of(body):
        if found := _named_paths(use.args, past.workspace):
            past.paths[key] = found


def _learn_started(past: Past, seq: int, body: kinds.ToolStarted) -> None:
    named = _named_paths(body.args, past.workspace) if isinstance(body.args, str) else ()
    if found := tuple(dict.fromkeys((*named, *filter(None, [body.observed.path])))):
        past.paths[body.call] = found
    if not body.approval and body.allowed_by:
        past.passed[body.call] = Passed("rule", allow=True, rule=body.allowed_by, seq=seq)


def _learn_decision(past: Past, event: Event, body: kinds.ApprovalDecided) -> None:
    """The first answer to a request counts; a later one, or one to something else, is kept in the log and changes
    nothing."""
    if body.call in past.passed or past.asked.get(body.call, 0) != body.request:
        return
    if event.agent == body.call.partition("/")[0]:
        past.passed[body.call] = _decision(event, body)
        past.decided[event.seq] = body.call


def _decision(event: Event, body: kinds.ApprovalDecided) -> Passed:
    return Passed(body.by, body.decision == "allow", body.origin.user, body.rule, event.seq)


_RESULTS: Final = kinds.ModelResponded | kinds.ModelFailed | kinds.ToolFinished


def _learn_turn(past: Past, seq: int, body: object) -> None:
    """A prompt begins a turn; one that comes while main is busy begins the next. A cancelled turn is over when what
    ran in it has ended."""
    match body:
        case kinds.UserPrompted() | kinds.AgentSteered():
            _spoken(past, seq, "steer" if isinstance(body, kinds.AgentSteered) else body.delivery)
        case kinds.ResultDelivered():  # it joins the running turn, or begins one
            _spoken(past, seq, "steer")
        case kinds.CancelRequested():
            past.ending = past.ending or (past.busy and body.target not in ("call", "prompt"))
            past.waiting = [one for one in past.waiting if one != body.prompt]
        case kinds.ModelRequested() | kinds.ToolStarted():
            past.busy, past.steered = True, past.steered and isinstance(body, kinds.ToolStarted)
            past.running.add(body.call)
        case kinds.ModelResponded() | kinds.ModelFailed() | kinds.ToolFinished():
            past.running.discard(body.call)
            uses = isinstance(body, kinds.ModelResponded) and any(block.kind == "tool_use" for block in body.blocks)
            if isinstance(body, kinds.ModelResponded) and not uses and not past.steered:
                past.ending = True
        case kinds.SessionClosed():
            past.ending = True
            past.running.clear()
    if past.ending and not past.running:
        past.busy = past.ending = past.steered = False
        if past.waiting:
            del past.waiting[0]
            past.turn, past.busy = past.turn + 1, True


def _spoken(past: Past, seq: int, delivery: str) -> None:
    if not past.busy:
        past.turn, past.busy = past.turn + 1, True
    elif delivery == "steer":
        past.steered = True
    else:
        past.waiting.insert(0 if delivery == "replace" else len(past.waiting), seq)
        past.ending = past.ending or delivery == "replace"


def _named_paths(args: str, workspace: str) -> tuple[str, ...]:
    value = arguments(args) or {}
    named = [value.get(name) for name in ("path", "file_path", "notebook_path")]
    inside = f"{workspace.rstrip('/')}/"
    return tuple(path.removeprefix(inside).removeprefix("./") for path in named if isinstance(path, str))


def calls_of(event: Event) -> tuple[str, ...]:
    """The calls that an event belongs to, by their keys; mostly one."""
    body: Any = event.body
    if isinstance(body, Redacted | Unknown):
        return ()
    if isinstance(body, kinds.FilesChanged | kinds.FilesUnknown):
        return body.calls
    if isinstance(body, kinds.TimerSet | kinds.TimerFired):
        what, _, key = body.key.partition(":")
        return (key,) if what in ("approval", "retry") and key else ()
    call = getattr(body, "call", "")
    return (call,) if isinstance(call, str) and call else ()
