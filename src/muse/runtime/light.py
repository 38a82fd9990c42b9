"""States without their transcripts, at any step of a log, in constant time and little memory.

Transcripts are most of a state, and the fold only adds to them: of what stands in one it reads at most the last item.
So a state whose transcripts are cut down to that folds on like the whole one. Such light states are kept in memory
every `EVERY_EVENTS`; what did not change between two of them is shared. An index, never stored: it holds texts that a
redaction must reach. This module must not know how states are shown.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from muse.event.envelope import Event
from muse.fold.evolve import evolve
from muse.fold.state import Agent as Agent
from muse.fold.state import Session

EVERY_EVENTS: Final = 256
"""How many events lie between two kept states; more, where there are more agents than this."""

Between = Callable[[int, int], Iterable[Event]]
"""The events with `after` < seq < `before`."""


SHARED: Final = (
    "active",
    "unfinished",
    "held",
    "waiting",
    "wants",
    "edits",
    "questions",
    "timers",
    "approvals",
    "processes",
)
"""The state's small tables."""


class _History:
    """One agent as it was at those kept states before which it had changed."""

    def __init__(self) -> None:
        self.numbers = array("L")
        self.states: list[Agent] = []

    def at(self, number: int) -> Agent | None:
        """As it was at the kept state `number`; None where it was not there yet."""
        found = bisect_right(self.numbers, number)
        return self.states[found - 1] if found else None


class Lights:
    """The light states of one session's log, as far as its events were taken in."""

    def __init__(self, session: str, every: int = EVERY_EVENTS) -> None:
        self._every = every
        self._newest = Session(session=session)
        self._seqs = array("L")
        self._kept: list[Session] = []
        self._lengths: list[tuple[int, int, int]] = []
        self._agents: dict[str, _History] = {}
        self.broken = ""
        """Why an event could not be folded: the log is no record of a session that could have been."""
        self._broken_at = 0
        self._keep()

    @property
    def newest(self) -> Session:
        """The light state after it. Read it, do not keep it: it changes."""
        return self._newest

    def take(self, event: Event) -> None:
        """Fold the next event. Where that cannot be done, nothing after it is known."""
        if self.broken:
            return
        try:
            evolve(self._newest, event)
        except (AssertionError, LookupError) as error:
            self._broken_at = event.seq
            self.broken = f"event {event.seq} ({event.type}) does not fit what was before it: {error}"
            self._newest = self._copy(len(self._kept) - 1)
            return
        if event.seq - self._seqs[-1] >= max(self._every, len(self._newest.agents)):
            self._keep()

    def at(self, seq: int, between: Between) -> Session | None:
        """The state after event `seq` with empty transcripts, the caller's own; None where it is not known. Folds at
        most what lies between two kept states, or between the last of them and `seq`."""
        if self.broken and seq >= self._broken_at:
            return None
        number = bisect_right(self._seqs, seq) - 1
        state = self._copy(number)
        try:
            for event in between(state.seq, seq + 1):
                evolve(state, event)
        except (AssertionError, LookupError):
            return None
        for agent in state.agents.values():
            agent.items.clear()
        return state if state.seq == seq else None

    def _keep(self) -> None:
        state, number = self._newest, len(self._kept)
        for agent_id, agent in state.agents.items():
            del agent.items[:-1]
            history = self._agents.setdefault(agent_id, _History())
            if not history.states or history.states[-1] != agent:
                history.numbers.append(number)
                history.states.append(_owned(agent))
        self._lengths.append((len(state.unknown), len(state.redacted), len(state.recovered)))
        before = self._kept[-1] if self._kept else None
        kept = msgspec.structs.replace(
            state, agents={}, unknown=[], redacted=[], recovered=[], **_shared(state, before)
        )  # fmt: skip
        self._kept.append(kept)
        self._seqs.append(state.seq)

    def _copy(self, number: int) -> Session:
        kept = self._kept[number]
        unknown, redacted, recovered = self._lengths[number]
        found = ((agent_id, history.at(number)) for agent_id, history in self._agents.items())
        return msgspec.structs.replace(
            kept,
            agents={agent_id: _owned(agent) for agent_id, agent in found if agent is not None},
            active=set(kept.active),
            unfinished=set(kept.unfinished),
            held=set(kept.held),
            waiting=list(kept.waiting),
            wants=dict(kept.wants),
            edits=dict(kept.edits),
            questions=dict(kept.questions),
            timers=dict(kept.timers),
            approvals=dict(kept.approvals),
            processes=dict(kept.processes),
            unknown=self._newest.unknown[:unknown],
            redacted=self._newest.redacted[:redacted],
            recovered=self._newest.recovered[:recovered],
        )


def _owned(agent: Agent) -> Agent:
    """A copy that shares nothing that changes in place."""
    return msgspec.structs.replace(agent.saved(), items=list(agent.items))


def _shared(state: Session, before: Session | None) -> dict[str, object]:
    """The state's small tables, those that are as they were shared with the kept state before."""
    found: dict[str, object] = {}
    for name in SHARED:
        now, then = getattr(state, name), getattr(before, name, None)
        found[name] = then if now == then else now.copy()
    return found
