"""A log read from an event towards its beginning, for what is mostly near: the request before, the response that asked.

Windows grow from a few events to a page, and of most events only the header is looked at.
"""

from collections.abc import Iterator
from typing import Final

from muse.event import codec
from muse.log.protocol import PAGE_EVENTS, Log, Stored

FIRST_WINDOW_EVENTS: Final = 64


def backwards(log: Log, before: int, types: tuple[str, ...], agent: str = "") -> Iterator[Stored]:
    """The events of these types (of one agent, if it is given) before event `before`, newest first."""
    end, width = before, FIRST_WINDOW_EVENTS
    while end > 1:
        start = max(end - width, 1)
        window = [one for one in log.read(after=start - 1, before=end) if is_of(one, types, agent)]
        yield from reversed(window)
        end, width = start, min(width * 2, PAGE_EVENTS)


def last_of(log: Log, agent: str) -> int:
    """The seq of the agent's last event, 0 when it has none."""
    end = log.head().seq + 1
    width = FIRST_WINDOW_EVENTS
    while end > 1:
        start = max(end - width, 1)
        lanes = [(codec.parse_header(one.header).agent, one.seq) for one in log.read(after=start - 1, before=end)]
        if found := [seq for lane, seq in lanes if lane == agent]:
            return found[-1]
        end, width = start, min(width * 2, PAGE_EVENTS)
    return 0


def is_of(stored: Stored, types: tuple[str, ...], agent: str = "") -> bool:
    """Whether an event is of one of these types, and of the agent if one is given."""
    if not any(name.encode() in stored.header for name in types):
        return False
    head = codec.parse_header(stored.header)
    return head.type in types and agent in ("", head.agent)
