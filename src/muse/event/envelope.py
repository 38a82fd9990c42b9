"""Events as the rest of muse sees them, and the way from body to draft and back.

An `Event` is a header with a decoded body; a type or version that this build does not know keeps its bytes as an
`Unknown` body. Bodies are brought to their newest version by pure upcasters when they are read; stored bytes never
change.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from muse.errors import InvalidEvent
from muse.event import codec
from muse.event.kinds import KINDS

UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(type, v) → body of v as a body of v + 1."""


class Unknown(msgspec.Struct, frozen=True):
    """A body that this build cannot read: kept byte for byte and shown."""

    text: str


class Redacted(msgspec.Struct, frozen=True):
    """A body that was taken out, wholly or in part. `leaves` is the disclosed form of docs/format.md."""

    leaves: str


class Event(msgspec.Struct, frozen=True):
    """One event of a log: the header's fields and the decoded body."""

    seq: int
    id: str
    time: str
    type: str
    v: int
    agent: str
    cause: int
    epoch: int
    body: msgspec.Struct


def decode(
    header: bytes,
    body: bytes | None,
    hidden: bytes | None = None,
    upcasters: Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = UPCASTERS,
) -> Event:
    """The event of these stored bytes. Raises `InvalidEvent` when a body of a known version does not fit its type."""
    head = codec.parse_header(header)
    try:
        read = _body(head.type, head.v, body, hidden, upcasters)
    except InvalidEvent as error:
        hint = f"`muse verify` says whether the log was changed, `muse log` shows what is before event {head.seq}"
        raise InvalidEvent(str(error), hint=f"the session cannot go on; {hint}") from error
    return Event(head.seq, head.id, head.time, head.type, head.v, head.agent, head.cause, head.epoch, read)


def check_body(type_name: str, v: int, body: bytes) -> None:
    """Raises InvalidEvent when a body of a type and version that this build knows does not fit its type."""
    _body(type_name, v, body, None, UPCASTERS)


def _body(
    type_name: str,
    v: int,
    body: bytes | None,
    hidden: bytes | None,
    upcasters: Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]],
) -> msgspec.Struct:
    if body is None:
        return Redacted((hidden or b"").decode())
    kind = KINDS.get(type_name)
    if kind is None or v > kind.version:
        return Unknown(body.decode())
    try:
        if v == kind.version:
            return msgspec.json.decode(body, type=kind.body)
        value = codec.parse(body)
        while v < kind.version:
            value = upcasters[(type_name, v)](value)
            v += 1
        return msgspec.convert(value, kind.body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidEvent(f"the body of a {type_name} (version {v}) does not fit its type: {error}") from error
