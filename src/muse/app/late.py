"""Answers that come too late: what closed a request or a question before, and how the same words are said still.

Words of a person are never lost in silence: who is late is told what counted instead, and the command that says theirs
to the agent after all. This module must not know where an answer is typed.
"""

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, ApprovalRequested, CommandRefused, QuestionAnswered, ToolFinished
from muse.runtime.session import Session
from muse.view.amounts import age
from muse.view.summary import decision_words, who
from muse.view.visible import headline

WORDS_SHOWN: Final = 200


def closed_by(asked: Event, between: Iterable[Event]) -> Event | None:
    """Of the events since a request or question was asked, the one that closed it: the first answer that holds, or the
    end of its call. None while it is open, or where its call was dropped before it began."""
    answers: dict[int, Event] = {}
    ended: Event | None = None
    call = getattr(asked.body, "call", "")
    for event in between:
        body = event.body
        if isinstance(body, CommandRefused):
            answers.pop(body.command, None)
        elif (isinstance(body, ApprovalDecided) and body.request == asked.seq) or (
            isinstance(body, QuestionAnswered) and body.question == asked.seq and event.agent == asked.agent
        ):
            answers[event.seq] = event
        elif isinstance(body, ToolFinished) and body.call == call and ended is None and not answers:
            ended = event
    return next(iter(answers.values()), ended)


def too_late(asked: Event, closed: Event | None, state: Session | None, name: str, words: str) -> UsageError:
    """What a person is told who answers something that was closed by that event. `name` is the session's address,
    `words` is what they said ("": nothing but yes or no)."""
    answer = closed.body.text if closed is not None and isinstance(closed.body, QuestionAnswered) else None
    if answer is not None and answer == words:
        return UsageError(_said(asked, closed), hint="that is what you said, too")
    return UsageError(_said(asked, closed), hint=_still(asked, state, name, words))


def _said(asked: Event, closed: Event | None) -> str:
    late = f"too late: #{asked.seq}"
    if closed is None:
        return f"{late} needs no answer any more: its call was dropped before it began"
    when, body = _when(closed), closed.body
    if isinstance(body, QuestionAnswered):
        return f"{late} was answered {when} by {who(body.origin)}: “{headline(body.text, WORDS_SHOWN)}” (#{closed.seq})"
    if isinstance(body, ApprovalDecided):
        return f"{late} was answered {when}: {decision_words(body)} (#{closed.seq})"
    text = getattr(body, "text", "")
    why = f": {headline(text, WORDS_SHOWN)}" if isinstance(text, str) and text.strip() else ""
    return f"{late} needs no answer any more, its call ended {when}{why} (#{closed.seq})"


def _when(event: Event) -> str:
    """When an event was, in a person's words."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(event.time)).total_seconds())
    except (ValueError, TypeError):
        return "before"
    said = age(max(seconds, 0))
    return "just now" if said == "now" else f"{said} ago"


def _still(asked: Event, state: Session | None, name: str, words: str) -> str:
    """How to say to the agent what came too late as an answer."""
    agent = state.agents.get(asked.agent) if state is not None else None
    while agent is not None and agent.cancelled and agent.parent and state is not None:
        agent = state.agents.get(agent.parent)
    lane = agent.id if agent is not None else asked.agent
    to = name if lane == "main" else f"{name}:{lane}"
    gone = f"{asked.agent} was cancelled and hears nobody; " if lane != asked.agent else ""
    if isinstance(asked.body, ApprovalRequested) and not words:
        return f'{gone}to say what you want instead: muse steer {to} "…"'
    return f"{gone}to say it still: muse steer {to} {quoted(words)}"


def quoted(words: str) -> str:
    """Words as one argument that a shell reads back exactly, on one line."""
    if words.isprintable():
        return shlex.quote(words)
    escaped = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}
    parts = (escaped.get(one, one if one.isprintable() else _escape(one)) for one in words)
    return f"$'{''.join(parts)}'"


def _escape(one: str) -> str:
    number = ord(one)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
