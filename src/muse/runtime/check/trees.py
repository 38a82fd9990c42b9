"""Working trees of agents: each that was made was wanted, and each that was taken away had been made.

What stands in such a tree, and why one cannot be had, is a fact about the machine. This module must not know what is
done in them.
"""

from collections.abc import Iterator
from typing import Final

from muse.event.envelope import Event
from muse.event.kinds import AgentContinued, AgentPaused, CancelRequested, WorktreePrepared, WorktreeRemoved
from muse.fold.agents import below
from muse.fold.state import Session
from muse.runtime.check.report import Diverged

CAUSES_MAX: Final = 10_000
"""Events that may have led to a tree's making or removal, of one agent."""


class Trees:
    """What is known of the working trees of one session's agents."""

    def __init__(self) -> None:
        self._causes: dict[str, set[int]] = {}
        """By agent with a tree of its own, what may have led to its making or its removal since it last changed."""

    def check(self, state: Session, event: Event) -> None:
        """Raises `Diverged` for a tree that nobody wanted, or another than there is."""
        match event.body:
            case WorktreePrepared():
                self._prepared(state, event, event.body)
            case WorktreeRemoved():
                self._removed(state, event, event.body)

    def noted(self, state: Session, event: Event) -> None:
        """Take in an event that was folded."""
        for agent_id in {event.agent, getattr(event.body, "to", event.agent), *_meant(state, event)}:
            agent = state.agents.get(agent_id)
            if agent is None or agent.isolation != "worktree":
                continue
            causes = self._causes.setdefault(agent.id, {agent.spawned})
            if isinstance(event.body, WorktreePrepared | WorktreeRemoved):
                causes.clear()
            if len(causes) < CAUSES_MAX:
                causes.update({event.seq, agent.cause, agent.finished} - {0})

    def _prepared(self, state: Session, event: Event, body: WorktreePrepared) -> None:
        agent = state.agents.get(event.agent)
        if agent is None or not agent.preparing:
            raise Diverged("no_intent", f"a working tree for {event.agent}, which waits for none")
        self._require_cause(event)
        if bool(body.path) == bool(body.error):
            what = "a working tree has a path, or a reason why there is none"
            raise Diverged("order", what, "one of the two", f"path {body.path!r}, error {body.error!r}")

    def _removed(self, state: Session, event: Event, body: WorktreeRemoved) -> None:
        agent = state.agents.get(event.agent)
        if agent is None or not agent.workspace or agent.isolation != "worktree":
            raise Diverged("no_intent", f"the working tree of {event.agent} is taken away, which has none")
        if body.path != agent.workspace:
            raise Diverged("content", f"{event.agent} had its working tree elsewhere", agent.workspace, body.path)
        self._require_cause(event)

    def _require_cause(self, event: Event) -> None:
        if event.cause not in self._causes.get(event.agent, ()):
            what = f"{event.type} names as its cause what leads to no such thing"
            raise Diverged("cause", what, "the agent's spawning, end or next turn", f"#{event.cause}")


def _meant(state: Session, event: Event) -> Iterator[str]:
    """The agents below that a command to a whole tree reaches: it is the cause of what they do next."""
    if isinstance(event.body, CancelRequested | AgentPaused | AgentContinued) and event.body.target == "tree":
        yield from (agent.id for agent in below(state, event.agent))
