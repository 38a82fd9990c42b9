"""An agent's own lane of the log, told in plain texts: what was said to it, what it said and did, and what came of it.

For the tool `recall`, in a worker thread. What stands in the lanes of others is not read, but for messages to it. This
module must not know how a text is shown.
"""

from collections.abc import Iterator
from typing import Final

from muse.event import codec
from muse.event.content import BlobRef
from muse.event.envelope import Event, Redacted, decode
from muse.event.kinds import (
    AgentMessaged,
    AgentSpawned,
    AgentSteered,
    ApprovalDecided,
    ContextCompacted,
    FilesChanged,
    ModelResponded,
    QuestionAnswered,
    QuestionAsked,
    ResultDelivered,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)  # fmt: skip
from muse.event.told import Lane, Told
from muse.log.protocol import Log

EVENTS_MAX: Final = 200
"""So many at a time."""
FILES_NAMED_MAX: Final = 20


def read_lane(log: Log, agent: str, first: int, last: int, query: str, bytes_max: int) -> Lane:
    """The events of the lane from `first` to `last` that hold the text `query` ("": all), of at most `bytes_max` bytes
    where there is more than one, and where to read on. What was looked for is not found in the looking itself."""
    found: list[Told] = []
    looks: set[str] = set()
    size, wanted = 0, query.casefold()
    for stored in log.read(after=first - 1, before=last + 1):
        mine = codec.parse_header(stored.header).agent == agent
        if not mine and b'"agent.messaged"' not in stored.header:
            continue
        event = decode(stored.header, stored.body, stored.hidden)
        told = _told(event, agent)
        if wanted and _is_look(event.body, looks):
            continue
        if told is None or (wanted and wanted not in f"{told.head}: {told.text}".casefold()):
            continue
        size += min(len(told.text.encode()), bytes_max // EVENTS_MAX * 4) + len(told.head)
        if found and (size > bytes_max or len(found) >= EVENTS_MAX):
            return Lane(tuple(found), stored.seq)
        found.append(told)
    return Lane(tuple(found))


def _is_look(body: object, looks: set[str]) -> bool:
    """Whether this is a call of `recall`, or the result of one of `looks`, to which such calls are added."""
    if isinstance(body, ToolStarted) and body.tool == "recall":
        looks.add(body.call)
        return True
    return isinstance(body, ToolFinished) and body.call in looks


def _told(event: Event, agent: str) -> Told | None:
    """The event as head and text; None for one that says nothing to a model, or that is another's."""
    body, seq = event.body, event.seq
    if isinstance(body, Redacted):
        return Told(seq, event.type, "(taken out of the log)") if event.agent == agent else None
    if isinstance(body, AgentMessaged):
        if body.to == agent:
            return Told(seq, f"message from {event.agent}", body.text)
        return Told(seq, f"message to {body.to}", body.text) if event.agent == agent else None
    found = next(_said(body), None) or next(_done(body), None)
    return None if found is None else Told(seq, *found)


def _said(body: object) -> Iterator[tuple[str, str]]:
    match body:
        case UserPrompted():
            yield "said by a person", body.text
        case AgentSteered():
            yield "said by a person meanwhile", body.text
        case AgentSpawned() if body.task:
            yield "your task", body.task
        case QuestionAsked():
            yield "you asked a person", "\n".join([body.text, *body.options])
        case QuestionAnswered():
            yield f"answer to #{body.question}", body.text
        case ResultDelivered():
            yield f"result of {body.child}", body.text
        case ModelResponded():
            texts = [block.text for block in body.blocks if block.kind == "text" and block.text.strip()]
            if texts:
                yield "you", "\n".join(texts)
        case ContextCompacted() if body.method == "summary":
            yield f"summary of #{body.first} to #{body.last}", body.text


def _done(body: object) -> Iterator[tuple[str, str] | tuple[str, str, str]]:
    match body:
        case ToolStarted():
            yield f"{body.call} {body.tool}", _text(body.args)
        case ToolFinished():
            yield f"{body.call} {body.status}", _text(body.text), body.call
        case ApprovalDecided(decision="deny"):
            yield f"{body.call} denied", body.note or body.rule
        case FilesChanged() if body.calls:
            paths = [change.path for change in body.changes]
            more = f" and {len(paths) - FILES_NAMED_MAX} more" if len(paths) > FILES_NAMED_MAX else ""
            yield f"files changed by {', '.join(body.calls)}", ", ".join(paths[:FILES_NAMED_MAX]) + more


def _text(text: str | BlobRef) -> str:
    return text if isinstance(text, str) else f"({text.length:,} bytes, kept apart)"
