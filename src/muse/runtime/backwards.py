"""A log read from an event towards its beginning, for what is mostly near: the request before, the response that asked.

Windows grow from a few events to a page, and of most events only the header is looked at.
"""

from collections.abc import Iterator
from typing import Final

from muse.event import codec
from muse.log.protocol import PAGE_EVENTS, Log, Stored

FIRST_WINDOW_EVENTS: Final = 64


def backwards(log: Log, before: int, types: tuple[str, ...], agent: str = "", after: int = 0) -> Iterator[Stored]:
    """The events of these types (of one agent, if given) before event `before` and after `after`, newest first."""
    for window in _windows(log, before, after):
        yield from (one for one in reversed(window) if is_of(one, types, agent))


def last_of(log: Log, agent: str) -> int:
    """The seq of the agent's last event, 0 when it has none."""
    for window in _windows(log, log.head().seq + 1):
        for one in reversed(window):
            if codec.parse_header(one.header).agent == agent:
                return one.seq
    return 0


def _windows(log: Log, before: int, after: int = 0) -> Iterator[list[Stored]]:
    """The events in between, the newest window first, each in the order of the log."""
    end, width = before, FIRST_WINDOW_EVENTS
    while end > after + 1:
        start = max(end - width, after + 1)
        yield list(log.read(after=start - 1, before=end))
        end, width = start, min(width * 2, PAGE_EVENTS)


def is_of(stored: Stored, types: tuple[str, ...], agent: str = "") -> bool:
    """Whether an event is of one of these types, and of the agent if one is given."""
    if not any(name.encode() in stored.header for name in types):
        return False
    head = codec.parse_header(stored.header)
    return head.type in types and agent in ("", head.agent)
