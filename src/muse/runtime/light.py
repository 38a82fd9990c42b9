"""States without their transcripts, at any step of a log.

A transcript is most of a state, and the fold only ever adds to it. This module must not know how states are shown.
"""

from muse.event.envelope import Event
from muse.fold.evolve import evolve
from muse.fold.state import Session


class Lights:
    """The states of one session's log."""

    def __init__(self, session: str) -> None:
        self.newest = Session(session=session)
        """The state after the last event taken in. Do not change it."""

    def take(self, event: Event) -> None:
        """Fold the next event."""
        evolve(self.newest, event)

    def rebuilt(self, events: list[Event]) -> Session:
        """The state after these, which are all from the first on."""
        state = Session(session=self.newest.session)
        for event in events:
            evolve(state, event)
        for agent in state.agents.values():
            agent.items.clear()
        return state
