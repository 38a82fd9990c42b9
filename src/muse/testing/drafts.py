"""Events for tests of stores: drafts with random ids and keys, an opening, and how to read headers back."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping

from muse.event.codec import encode
from muse.event.commitment import commit
from muse.log.protocol import Claim, Draft, Log, Ownership, Stored

COMMANDS = {"user.prompted": 2, "cancel.requested": 1, "note.added": 3}
"""What the handles of a place must be opened with: command types and the newest versions they know."""

TIME = "2026-01-31T12:00:00.000000Z"


def draft(type: str = "tool.finished", body: Mapping[str, object] | None = None, **fields: object) -> Draft:
    """A draft with a random id and key; `fields` replaces any of its fields."""
    data = encode(dict(body or ({"text": "1"} if type in COMMANDS else {"n": 1})))
    root = commit(data, key := secrets.token_bytes(32))
    made: dict[str, object] = {
        "id": secrets.token_hex(16), "time": TIME, "type": type, "v": 1, "agent": "main", "cause": 0,
        "body": data, "key": key, "count": root.count, "root": root.root,
    }  # fmt: skip
    return Draft(**{**made, **fields})  # type: ignore[arg-type]  # a wrong field fails in the constructor


def opened(commands: Mapping[str, int] = COMMANDS) -> Draft:
    """A `session.opened` that lists these commands."""
    return draft("session.opened", {"commands": [{"type": type_, "v": v} for type_, v in commands.items()]})


def own(log: Log, commands: Mapping[str, int] = COMMANDS) -> Ownership:
    """Claim a log with a plain `session.opened`."""
    return log.claim(lambda _claim: opened(commands))


def recording(asked: list[Claim]) -> Callable[[Claim], Draft]:
    """A `build` for `claim` that keeps what it was asked."""

    def build(claim: Claim) -> Draft:
        asked.append(claim)
        return opened()

    return build


def header_of(event: Stored) -> dict[str, object]:
    """The header, read with the standard library."""
    header: dict[str, object] = json.loads(event.header)
    return header


def types_of(log: Log) -> list[object]:
    """The types of all events, in order."""
    return [header_of(event)["type"] for event in log.read()]


@contextlib.contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    """What stands inside must raise `error`."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
