"""A log whose meaning was changed and whose chain was built again: only what it says is wrong."""

from collections.abc import Iterator, Sequence

from muse.event import commitment
from muse.log.protocol import Head, Log, Stored
from muse.log.sqlite import SqliteLog


class Retold:
    """As much of a log as asking it needs: events as they are given, blobs of another one."""

    def __init__(self, of: SqliteLog, events: Sequence[Stored]) -> None:
        self.session = of.session
        self._events = events
        self._of = of

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        return (one for one in self._events if one.seq > after and (before is None or one.seq < before))

    def headers(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        return ((one.seq, one.header) for one in self.read(after))

    def head(self) -> Head:
        return Head(self._events[-1].seq, self._events[-1].hash)

    def load_checkpoint(self, version: int, before: int | None = None) -> None:
        return None

    def get_blob(self, root: str) -> bytes:
        return self._of.get_blob(root)


def retold(of: SqliteLog, events: Sequence[Stored]) -> Log:
    """A log of these events; the chain is built again."""
    chained, previous = [], commitment.genesis(of.session)
    for one in events:
        count, root = one.count, one.root
        if one.body is not None and one.key is not None:
            made = commitment.commit(one.body, one.key)
            count, root = made.count, made.root
        previous = commitment.chain(previous, one.header, count, root)
        chained.append(Stored(one.seq, one.header, one.body, one.key, count, root, previous, one.hidden))
    told: object = Retold(of, chained)
    return told  # type: ignore[return-value]  # as much of a log as is asked for


def changed(log: SqliteLog, type_name: str, old: bytes = b"", new: bytes = b"", *, hidden: bool = False) -> Log:
    """The log with the first body of a type that holds `old` changed, or redacted (`hidden`)."""
    events = list(log.read())
    at = next(at for at, one in enumerate(events) if type_name.encode() in one.header and old in (one.body or b""))
    one = events[at]
    assert one.body is not None
    if hidden:
        events[at] = Stored(one.seq, one.header, None, None, one.count, one.root, one.hash, hidden=b"[]")
    else:
        events[at] = Stored(one.seq, one.header, one.body.replace(old, new, 1), one.key, 0, b"", b"")
    return retold(log, events)
