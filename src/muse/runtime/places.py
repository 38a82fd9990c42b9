"""Where each agent works: the session's workspace, or a working tree of its own.

A place is a folder, the tools that work in it, and what records its changes. Agents that share a folder share its
place, so that what they do at once is told of all of them; two places never mix. This module must not know how a
working tree is made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from muse.effect.protocol import Tool, Workspace
from muse.event.kinds import WorktreePrepared, WorktreeRemoved
from muse.fold import agents
from muse.fold.state import Session
from muse.runtime.changes import Changes, Outcomes


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

    async def prepare(self, agent: str, source: Path) -> WorktreePrepared:
        """Make the tree of an agent, from the files as they are in `source` now; what an earlier try left goes first.
        Why there can be none stands in `error`; nothing is raised but for cancellation."""
        ...

    async def remove(self, agent: str, state: Session) -> WorktreeRemoved | None:
        """Take the tree of an agent that has finished away, unless it holds what the log does not. None when there is
        nothing to be said."""
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
