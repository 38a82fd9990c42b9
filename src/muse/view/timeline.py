"""An event as a row: what a person reads about it. Shared by text, terminal, web and exports.

`row` is a pure function of the event and of what earlier events said about its call (`Context`, grown by `learn`).
What stands in a row is safe to show anywhere: control characters are visible, nothing is markup. This module must not
know widths, colours or where rows go.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from muse.event.calls import uses_of
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import (
    ApprovalRequested,
    Aside,
    LogImported,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    ToolFinished,
    ToolStarted,
    WorktreePrepared,
    WorktreeRemoved,
)
from muse.view.agents_told import brief
from muse.view.imported import aside_of
from muse.view.line import Line
from muse.view.summary import SUMMARIES, Said
from muse.view.titles import call_title
from muse.view.visible import headline

Kind = Literal["session", "person", "agent", "model", "tool", "approval", "files", "doubt", "limit", "log", "unknown"]
Severity = Literal["quiet", "normal", "good", "bad", "attention"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One event for a reader. `summary` is one line, and `ending` what is kept of it where there is little room
    (`exit 1`); `detail` is empty unless it was asked for. `time` is the
    header's; `duration_ms` is None where nothing was timed."""

    seq: int
    time: str
    agent: str
    type: str
    kind: Kind
    severity: Severity
    mark: str
    label: str
    summary: str
    ending: str = ""
    call: str = ""
    duration_ms: int | None = None
    detail: tuple[Line, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """What is known of a call: its tool (`model` for a model request), and in a few words what it does."""

    tool: str
    title: str = ""


class Context(msgspec.Struct):
    """What earlier events said: call key → call. Grows by `learn` only. `home` is a folder to be shown as `~`; `asides`
    are the events beside the conversation of an imported log."""

    calls: dict[str, Call] = {}
    home: str = ""
    asides: tuple[Aside, ...] = ()


def learn(context: Context, event: Event) -> None:
    """Take in what later rows need of this event. Events come in the order of the log."""
    body = event.body
    match body:
        case ModelRequested():
            context.calls[body.call] = Call("model", f"{body.provider}/{body.model}")
        case ModelResponded():
            for key, use in uses_of(body):
                context.calls[key] = Call(use.name, call_title(use.name, use.args))
        case ToolStarted():
            context.calls[body.call] = Call(body.tool, call_title(body.tool, body.args))
        case ApprovalRequested():
            context.calls.setdefault(body.call, Call(body.tool, headline(body.shown)))
        case LogImported():
            context.asides += body.asides
        case _:
            pass


def row(event: Event, context: Context) -> Row:
    """The row of an event, without detail."""
    body = event.body
    call = _call_of(body)
    known = context.calls.get(call, Call(""))
    known = Call(brief(known.tool), headline(known.title))  # names are kept as they came
    said = _said(_at_home(event, context.home), known)
    duration = getattr(body, "duration_ms", None) if said.timed else None
    if not event.epoch or isinstance(body, ToolFinished):
        duration = duration or None  # what took no time was not timed: imported, a wait for agents, a doubt
    if not event.epoch:
        said = _beside(event, context, said)
    return Row(
        seq=event.seq, time=event.time, agent=event.agent, type=event.type, kind=kind_of(event.type),
        severity=said.severity, mark=said.mark, label=said.label, summary=said.summary, ending=said.ending,
        call=brief(call), duration_ms=duration,
    )  # fmt: skip


def _beside(event: Event, context: Context, said: Said) -> Said:
    what = aside_of(event.seq, context.asides)
    return msgspec.structs.replace(said, ending=f"{said.ending}  {what}".strip()) if what else said


def _at_home(event: Event, home: str) -> Event:
    body = event.body
    if not home or not isinstance(body, SessionOpened | WorktreePrepared | WorktreeRemoved):
        return event
    name = "workspace" if isinstance(body, SessionOpened) else "path"
    path: str = getattr(body, name)
    if not f"{path}/".startswith(f"{home}/"):
        return event
    return msgspec.structs.replace(event, body=msgspec.structs.replace(body, **{name: f"~{path.removeprefix(home)}"}))


def rows(events: Iterable[Event], context: Context | None = None) -> Iterator[tuple[Event, Row]]:
    """Each event with its row."""
    context = Context() if context is None else context
    for event in events:
        learn(context, event)
        yield event, row(event, context)


def kind_of(type_name: str) -> Kind:
    """What an event type is about, for colours and filters."""
    if type_name in _KINDS:
        return _KINDS[type_name]
    return _GROUPS.get(type_name.partition(".")[0], "unknown")


def _call_of(body: object) -> str:
    if isinstance(body, Redacted | Unknown):
        return ""
    found = getattr(body, "call", "")
    return found if isinstance(found, str) else ""


def _said(event: Event, known: Call) -> Said:
    body = event.body
    if isinstance(body, Redacted):
        return Said("▒", event.type, "hidden", "quiet")
    if isinstance(body, Unknown):
        return Said("?", f"{event.type} v{event.v}", headline(body.text, 200), "attention")
    summarise = SUMMARIES.get(type(body))
    assert summarise is not None, f"{event.type} has no summary"
    return summarise(body, event, known.tool, known.title)


_GROUPS: dict[str, Kind] = {
    "session": "session", "note": "person", "user": "person", "question": "person", "cancel": "person",
    "agent": "agent", "result": "agent", "model": "model", "tool": "tool", "process": "tool", "approval": "approval",
    "policy": "approval", "files": "files", "worktree": "files", "workspace": "files", "effect": "doubt",
    "budget": "limit", "timer": "limit", "context": "model", "log": "log", "head": "log", "ownership": "log",
    "command": "approval", "source": "log",
}  # fmt: skip
_KINDS: dict[str, Kind] = {
    "agent.steered": "person",
    "agent.wanted": "person",
    "agent.paused": "person",
    "agent.continued": "person",
    "budget.raised": "person",
}
