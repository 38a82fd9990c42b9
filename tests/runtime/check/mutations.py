"""Every way in which one recorded session can be told otherwise: each field of each event, and events themselves.

A mutation keeps the form (canonical bytes, consecutive numbers, a chain that could be computed anew) and changes the
meaning of one thing. What is a list of events here becomes a log again with `Told`.
"""

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from muse import app
from muse.errors import InvalidEvent
from muse.event import codec
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.log.protocol import Log, Stored

OTHER_AGENTS = ("main.1", "main")
NAMES = ("request", "approval", "command", "question", "prompt", "wanted")
"""Fields of bodies that name another event."""


class Mutation(NamedTuple):
    """`name` is its class: the type, the path of the field, how it changed. `at` is the index of the first event that
    is another than it was."""

    name: str
    at: int
    events: list[Event]


class Recorded:
    """One recorded session."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.log = app.open_log(path)
        self.events = list(app.events(self.log))
        self._stored = dict(zip(map(id, self.events), self.log.read(), strict=True))

    def told(self, events: list[Event]) -> "Told":
        """A log of these events, with the blobs of this session."""
        return Told(self.log, [self._stored.get(id(event)) or stored(event) for event in events])

    def mutations(self) -> Iterator[Mutation]:
        """All of them."""
        for at, event in enumerate(self.events):
            for path, changed in of_event(event):
                yield Mutation(f"{event.type} {path}", at, [*self.events[:at], changed, *self.events[at + 1 :]])
            yield from self._of_order(at)

    def _of_order(self, at: int) -> Iterator[Mutation]:
        event, events = self.events[at], self.events
        yield Mutation(f"{event.type} dropped", at, renumbered([*events[:at], *events[at + 1 :]]))
        yield Mutation(f"{event.type} said twice", at + 1, renumbered([*events[: at + 1], event, *events[at + 1 :]]))
        if at + 1 < len(events) and events[at + 1].type != event.type:
            swapped = [*events[:at], events[at + 1], event, *events[at + 2 :]]
            yield Mutation(f"{event.type} after the next", at, renumbered(swapped))


class Told:
    """What a verification reads of a log."""

    def __init__(self, log: Log, events: list[Stored]) -> None:
        self.session, self.events = log.session, events
        self.get_blob, self.stream_blob = log.get_blob, log.stream_blob

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        yield from self.events[after : None if before is None else before - 1]


def stored(event: Event) -> Stored:
    """An event as a log keeps it; what commits to it is of no matter to its meaning."""
    header = codec.encode_header(
        seq=event.seq, id=event.id, time=event.time, type=event.type, v=event.v, agent=event.agent, cause=event.cause,
        epoch=event.epoch,
    )  # fmt: skip
    return Stored(event.seq, header, codec.encode(event.body), b"", 0, b"", b"")


def renumbered(events: list[Event]) -> list[Event]:
    """Consecutive numbers, and everything that named an event by its number names it by the new one."""
    new: dict[int, int] = {}
    for number, event in enumerate(events, 1):
        new.setdefault(event.seq, number)
    found = []
    for number, event in enumerate(events, 1):
        if all(new.get(name) == name for name in (event.seq, event.cause) if name) and number == event.seq:
            named = {}
        else:
            named = {"seq": number, "cause": min(new.get(event.cause, event.cause), number - 1) if event.cause else 0}
        body = event.body
        changes = {
            name: new.get(seq, seq) for name in NAMES if isinstance(seq := getattr(body, name, None), int) and seq
        }
        if any(getattr(body, name) != seq for name, seq in changes.items()):
            named["body"] = msgspec.structs.replace(body, **changes)
        found.append(msgspec.structs.replace(event, **named) if named else event)
    return found


def of_event(event: Event) -> Iterator[tuple[str, Event]]:
    """Each field of header and body changed, one at a time."""
    for name, value in _headers(event):
        yield f"header.{name}", msgspec.structs.replace(event, **{name: value})
    for path, body in of_value(event.body, type(event.body)):
        changed = msgspec.structs.replace(event, body=body)
        try:
            stored(changed)
        except InvalidEvent:
            continue  # no log can hold it
        yield path, changed


def _headers(event: Event) -> Iterator[tuple[str, Any]]:
    yield "id", f"{int(event.id, 16) ^ 1:032x}"
    yield "time", "2031-02-03T04:05:06.000007Z"
    yield "type", "agent.paused" if event.type != "agent.paused" else "agent.continued"
    yield "v", event.v + 1
    yield "agent", next(one for one in OTHER_AGENTS if one != event.agent)
    yield "epoch", event.epoch + 1
    if event.seq > 1:
        yield "cause", 0 if event.cause else 1
        if event.cause > 1:
            yield "cause", 1


def of_value(value: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    """Each change of a value: its path from here, and the value with it."""
    choices = _choices(kind)
    if isinstance(value, BlobRef):
        yield ".blob", msgspec.structs.replace(value, blob=_digit(value.blob))
        yield ".length", msgspec.structs.replace(value, length=value.length + 1)
    elif isinstance(value, msgspec.Struct):
        hints = typing.get_type_hints(type(value))
        for field in msgspec.structs.fields(type(value)):
            for path, changed in of_value(getattr(value, field.name), hints[field.name]):
                yield f".{field.name}{path}", msgspec.structs.replace(value, **{field.name: changed})
    elif isinstance(value, tuple):
        yield from _of_list(value, kind)
    elif choices:
        yield "", choices[(choices.index(value) + 1) % len(choices)]
    elif isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int):
        yield "", value + 1
    elif isinstance(value, str):
        yield "", _digit(value) if len(value) == 64 and value.isalnum() else f"{value}x"
    elif value is None and int in typing.get_args(kind):
        yield "", 1
    elif value is None and BlobRef in typing.get_args(kind):
        yield "", BlobRef("ab" * 32, 1)


def _of_list(value: tuple[Any, ...], kind: Any) -> Iterator[tuple[str, Any]]:
    inner = typing.get_args(kind)[0]
    if not value:
        if inner is str:
            yield "[] longer", ("x",)
        return
    yield "[] shorter", value[:-1]
    yield "[] longer", (*value, value[-1])
    if len(value) > 1 and value[0] != value[1]:
        yield "[] order", (value[1], value[0], *value[2:])
    for index, item in enumerate(value):
        for path, changed in of_value(item, inner):
            yield f"[]{path}", (*value[:index], changed, *value[index + 1 :])


def _choices(kind: Any) -> list[Any]:
    return list(typing.get_args(kind)) if typing.get_origin(kind) is Literal else []


def _digit(text: str) -> str:
    return f"{text[:-1]}{'0' if text[-1] != '0' else '1'}"


def covered(sessions: list[Recorded]) -> set[str]:
    """The types of event that these sessions hold."""
    return {event.type for session in sessions for event in session.events}
