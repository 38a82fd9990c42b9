"""A log as a story: each event with the state just before it, and a clear word where one cannot follow the others.

The log is not trusted here: its chain may be whole and its story impossible all the same. Used by `muse verify` for
model requests and by `muse replay --verify` for everything.
"""

from collections.abc import Iterator
from typing import Protocol

from muse.errors import InvalidEvent
from muse.event.codec import parse_header
from muse.event.envelope import Event, decode
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.log.protocol import Stored

BROKEN = (AssertionError, KeyError, ValueError, TypeError, AttributeError, IndexError)
"""What pure code raises of a state that no run can have led to."""


class Told(Protocol):
    """What a verification reads: events in order, and contents. Every log is one."""

    session: str

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        """Events with after < seq < before."""
        ...

    def get_blob(self, root: str) -> bytes:
        """A content. Raises `Damaged`, or `Incomplete` for a hidden one."""
        ...

    def stream_blob(self, root: str) -> Iterator[bytes]:
        """The same in chunks."""
        ...


class Impossible(Exception):
    """The event at `seq` cannot follow what stands before it."""

    def __init__(self, seq: int, agent: str, type: str, why: str) -> None:
        super().__init__(f"#{seq} {type} cannot follow what stands before it: {why}")
        self.seq, self.agent, self.type, self.why = seq, agent, type, why


class Story:
    """The events of a log, in order. `state` is the state before the event that was given last, until `fold`."""

    def __init__(self, log: Told) -> None:
        self._log = log
        self.state = Session(session=log.session)

    def events(self) -> Iterator[Event]:
        """Each event. Raises `Impossible` for one whose body does not fit its type."""
        for stored in self._log.read():
            try:
                yield decode(stored.header, stored.body, stored.hidden)
            except InvalidEvent as error:
                head = parse_header(stored.header)
                raise Impossible(stored.seq, head.agent, head.type, str(error)) from error

    def fold(self, event: Event) -> set[str]:
        """Take the event in; the agents that it may have woken. Raises `Impossible`."""
        try:
            return evolve(self.state, event)
        except BROKEN as error:
            why = f"{error}" or type(error).__name__
            raise Impossible(event.seq, event.agent, event.type, why) from error
