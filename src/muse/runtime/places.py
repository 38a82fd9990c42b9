"""Where each agent works: the session's workspace, or a working tree of its own.

A place is a folder, the tools that work in it, and what records its changes. Agents that share a folder share its
place, so that what they do at once is told of all of them; two places never mix. This module must not know how a
working tree is made.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from muse.effect.protocol import Tool, Workspace
from muse.event.envelope import Event
from muse.event.kinds import AgentMessaged, WorktreePrepared, WorktreeRemoved
from muse.fold import agents, files
from muse.fold.state import Session
from muse.runtime.changes import Changes
from muse.runtime.changes import Outcomes as Facts

Start = Callable[[Callable[[str], Awaitable[None]], str], None]
"""Start an effect for an agent."""


class Outcomes(Facts, Protocol):
    """Where facts go: the loop."""

    def poke(self, agent: str = "") -> None:
        """Something that is due may have become ready."""
        ...


class Place(msgspec.Struct):
    """What an agent works in and with. `changes` is None where nobody records what becomes of files."""

    workspace: Workspace
    tools: Mapping[str, Tool]
    changes: Changes | None = None


class Trees(Protocol):
    """Working trees of their own for agents: see `muse.app.worktrees`, which has one."""

    def place(self, agent: str, folder: Path) -> Place:
        """What the agent whose tree it is, and those that share it, work with. Asked once in an owner's life."""
        ...

    async def prepare(self, agent: str, source: Path, since: int, lanes: frozenset[str]) -> WorktreePrepared:
        """Make the tree of an agent, from the files as they are in `source` now; what an earlier try left goes first.
        Over these goes what the log holds of changes in `lanes` after the event `since` (0: nothing does): the agent
        had a tree before. Why there can be none stands in `error`; nothing is raised but for cancellation."""
        ...

    async def forgo(self, agent: str) -> None:
        """Take away what an earlier owner made of the tree of an agent that does not need it any more, nor ever worked
        in it. Nothing is raised but for cancellation."""
        ...

    async def remove(self, agent: str, state: Session) -> WorktreeRemoved:
        """Take the tree of an agent that has finished away, unless it holds what the log does not: then it is kept, and
        that is said. Nothing is raised but for cancellation."""
        ...


class Places:
    """The place of every agent of one session."""

    def __init__(self, shared: Place, trees: Trees | None, outcomes: Outcomes) -> None:
        """`shared` is the session's, whose line of snapshots goes on where the log left it."""
        self._shared = shared
        self._trees = trees
        self._to = outcomes
        self._own: dict[str, Place] = {}
        if shared.changes is not None:
            shared.changes.begin(outcomes)

    def of(self, agent: str) -> Place:
        """Where an agent works. Not asked before its tree is there."""
        state = self._to.state
        home = agents.home(state, agent)
        found = state.agents.get(home)
        if found is None or not found.workspace or not found.parent:
            assert home not in state.agents or not state.agents[home].preparing, f"{home} has no working tree yet"
            return self._shared
        if home not in self._own:
            assert self._trees is not None, "an agent has a tree of its own, and this host makes none"
            place = self._own[home] = self._trees.place(home, Path(found.workspace))
            if place.changes is not None:
                place.changes.begin(self._to, home)
        return self._own[home]

    def forget(self, agent: str) -> None:
        """The agent's tree is gone, or another one takes its place."""
        self._own.pop(agent, None)


class TreeCare:
    """Sees to it that who is to have a working tree gets one, and that one which nobody needs any more goes."""

    def __init__(self, places: Places, trees: Trees | None, outcomes: Outcomes, start: Start) -> None:
        self._places = places
        self._trees = trees
        self._to = outcomes
        self._start = start
        self._busy: set[str] = set()
        self._told: set[str] = set()
        """Of whom what became of the tree is handed in, and does not stand in the log yet: nothing is begun anew."""

    @property
    def is_clearing(self) -> bool:
        """Whether a tree is being made or taken away, or is there for nobody as soon as the log says that it was made:
        then the session does not close yet, so that it says what became of it."""
        return bool(self._busy) or any(agents.tree_is_to_go(self._to.state, agent_id) for agent_id in self._told)

    def is_busy(self, agent: str) -> bool:
        """Whether the tree that an agent works in is being made or taken away."""
        return bool(self._busy) and agents.home(self._to.state, agent) in self._busy

    def begin(self) -> None:
        """Go on where an earlier owner was killed: a half made tree is begun anew, or goes if its agent has ended."""
        for agent_id, agent in list(self._to.state.agents.items()):
            if agent.preparing and not agent.turn:
                self._busy.add(agent_id)
                self._start(self._forgo, agent_id)
            else:
                self._look(agent_id)

    def befell(self, event: Event) -> None:
        """Something befell an agent: its tree may be wanted now, or not any more. The event is durable."""
        if isinstance(event.body, WorktreePrepared | WorktreeRemoved):
            self._told.discard(event.agent)
        self._look(event.body.to if isinstance(event.body, AgentMessaged) else event.agent)

    def _look(self, agent_id: str) -> None:
        state = self._to.state
        agent = state.agents.get(agents.home(state, agent_id))
        if agent is None or not agent.parent or agent.id in self._busy | self._told:
            return
        if agent.preparing and agent.turn:
            self._busy.add(agent.id)
            self._start(self._prepare, agent.id)
        elif agents.tree_is_to_go(state, agent.id):
            self._busy.add(agent.id)
            self._start(self._clear, agent.id)

    async def _prepare(self, agent_id: str) -> None:
        state = self._to.state
        agent = state.agents[agent_id]
        cause = agent.cause
        try:
            if self._trees is None:
                body = WorktreePrepared(path="", base="", error="this host makes no working trees")
            else:
                lanes = frozenset(one for one in state.agents if agents.home(state, one) == agent_id)
                since = agent.spawned if agent.changed else 0
                source = Path(agents.root(state, agent.parent))
                body = await self._trees.prepare(agent_id, source, since, lanes)
            self._places.forget(agent_id)
        finally:
            self._busy.discard(agent_id)
        self._tell(agent_id, cause, body)

    async def _forgo(self, agent_id: str) -> None:
        try:
            if self._trees is not None:
                await self._trees.forgo(agent_id)
        finally:
            self._busy.discard(agent_id)
        self._look(agent_id)
        self._to.poke(agent_id)

    async def _clear(self, agent_id: str) -> None:
        try:
            assert self._trees is not None, "a tree of its own, and this host makes none"
            body = await self._trees.remove(agent_id, self._to.state)
            self._places.forget(agent_id)
        finally:
            self._busy.discard(agent_id)
        agent = self._to.state.agents[agent_id]
        self._tell(agent_id, agent.finished or agent.cause, body)

    def _tell(self, agent_id: str, cause: int, body: WorktreePrepared | WorktreeRemoved) -> None:
        self._told.add(agent_id)
        self._to.post_bodies(agent_id, cause, body)


def left_behind(state: Session, agent_id: str) -> tuple[tuple[str, ...], str]:
    """What the state knows that the tree of an agent still holds and the log does not, or who still works there: paths,
    and why. Two empty ones when there is nothing."""
    running = {process.call.partition("/")[0] for process in state.processes.values()}
    if any(agents.home(state, one) == agent_id for one in running if one in state.agents):
        return (".",), "something that was started there still runs"
    changed = state.agents[agent_id].changed
    if files.UNKNOWN in changed:
        return (".",), "not all of its changes are recorded"
    left = tuple(path for path, what in changed.items() if what.endswith(files.NOT_HELD))
    return left, "these are not recorded: too large, or withheld" if left else ""
