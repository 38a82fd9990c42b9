"""Commands that an owner does not follow: which, and how that is recorded.

Who may say what is asked of a `Screen`; the refusal is an event, so that whoever folds the log later knows it too.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS, CommandRefused
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.log.protocol import Log
from muse.runtime.checkpoint import fold

COMMANDS_LOOKED_AT = 1_000
"""So many commands that came in while nobody ran the session are looked at when it is opened."""

Screen = Callable[[Event], Literal["", "below_runner", "no_origin"]]
"""Why a command is not to be followed, "" if it is."""


def refusals(events: Iterable[Event], screen: Screen | None) -> list[tuple[Event, CommandRefused]]:
    """A refusal for each of these commands that is not to be followed and was not refused among them."""
    if screen is None:
        return []
    events = list(events)
    done = {event.body.command for event in events if isinstance(event.body, CommandRefused)}
    return [
        (event, CommandRefused(command=event.seq, why=why))
        for event in events
        if event.seq not in done and (why := screen(event))
    ]


def trailing(log: Log, before: int) -> list[Event]:
    """The commands that stand at the end of what is before event `before`: nobody has acted on them yet."""
    found: list[Event] = []
    for stored in log.read(after=max(0, before - 1 - COMMANDS_LOOKED_AT), before=before):
        event = decode(stored.header, stored.body, stored.hidden)
        found = [*found, event] if event.type in COMMANDS else []
    return found


def commands(log: Log, after: int, before: int) -> list[Event]:
    """The commands between two events."""
    events = (decode(stored.header, stored.body, stored.hidden) for stored in log.read(after=after, before=before))
    return [event for event in events if event.type in COMMANDS]


def fold_screened(log: Log, screen: Screen) -> Session:
    """The state after the last event, but for what the next owner will refuse: to decide what to open it with."""
    state = fold(log)
    last = state.seq
    for event, refusal in refusals(trailing(log, last + 1), screen):
        evolve(state, Event(state.seq + 1, "", "", "command.refused", 1, event.agent, event.seq, state.epoch, refusal))
    state.seq = last
    return state
