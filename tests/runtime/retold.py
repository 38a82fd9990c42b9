"""A log whose meaning was changed and whose chain was built again: only what it says is wrong."""

from collections.abc import Iterator

from muse.event import commitment
from muse.log.protocol import Head, Log, Stored
from muse.log.sqlite import SqliteLog


class Changed:
    """A log with one body changed and its chain built again: only its meaning is wrong. `hidden`: that body is
    redacted instead."""

    def __init__(
        self, log: SqliteLog, type_name: str, old: bytes = b"", new: bytes = b"", *, hidden: bool = False
    ) -> None:
        self.session = log.session
        self.events: list[Stored] = []
        done, previous = False, commitment.genesis(log.session)
        for stored in log.read():
            body, key = stored.body, stored.key
            assert body is not None
            assert key is not None
            fits = not done and type_name.encode() in stored.header and old in body
            done = done or fits
            if fits and hidden:
                self.events.append(Stored(stored.seq, stored.header, None, None, stored.count, stored.root,
                                          stored.hash, hidden=b"[]"))  # fmt: skip
                continue
            body = body.replace(old, new, 1) if fits else body
            root = commitment.commit(body, key)
            previous = commitment.chain(previous, stored.header, root.count, root.root)
            self.events.append(Stored(stored.seq, stored.header, body, key, root.count, root.root, previous))
        assert done

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        return (one for one in self.events if one.seq > after and (before is None or one.seq < before))

    def headers(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        return ((one.seq, one.header) for one in self.read(after))

    def head(self) -> Head:
        return Head(self.events[-1].seq, self.events[-1].hash)

    def load_checkpoint(self, version: int, before: int | None = None) -> None:
        return None


def changed(log: SqliteLog, type_name: str, old: bytes = b"", new: bytes = b"", *, hidden: bool = False) -> Log:
    told: object = Changed(log, type_name, old, new, hidden=hidden)
    return told  # type: ignore[return-value]  # as much of a log as a request is found with
