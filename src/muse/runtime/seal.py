"""From a body to a draft: the one place where an event's id, time and key are drawn."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from muse.event import codec, commitment
from muse.event.kinds import KINDS
from muse.log.protocol import Draft

_TYPE_OF: dict[type, str] = {kind.body: name for name, kind in KINDS.items()}


def now() -> str:
    """The time as events carry it: RFC 3339 UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def new_id() -> str:
    """16 random bytes in hex."""
    return secrets.token_hex(16)


def seal(body: msgspec.Struct, agent: str, cause: int, *, event_id: str = "", clock: Callable[[], str] = now) -> Draft:
    """A draft of this body: canonical bytes, a fresh key, and the commitment, all before any lock is taken."""
    type_name = _TYPE_OF[type(body)]
    data, plain = codec.canonical(body)
    key = secrets.token_bytes(32)
    root = commitment.commit(plain, key)
    return Draft(
        id=event_id or new_id(),
        time=clock(),
        type=type_name,
        v=KINDS[type_name].version,
        agent=agent,
        cause=cause,
        body=data,
        key=key,
        count=root.count,
        root=root.root,
    )
