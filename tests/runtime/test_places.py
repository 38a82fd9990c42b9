"""Working trees of agents: each is made and taken away once, whatever is said to the agent at that moment."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import pytest

from muse.decide.agent_tools import agent_tools
from muse.effect.model.scripted import Lane, Script, ScriptedModel, Step
from muse.effect.protocol import Workspace
from muse.event.kinds import AgentSteered, CancelRequested, NoteAdded, UserPrompted, WorktreePrepared, WorktreeRemoved
from muse.fold.state import Session
from muse.log.protocol import Appended, Draft, Log
from muse.runtime.check.walk import verify_story
from muse.runtime.dispatch import Equipment
from muse.runtime.places import Place
from muse.runtime.seal import seal
from muse.runtime.session import Running, claim
from tests.runtime.rig import RULES, SETTINGS, Rig

CHILD = "main.1"


class Trees:
    """Folders that are made and taken away; each time is counted."""

    def __init__(self, shared: Place, folder: Path) -> None:
        self.shared, self.folder = shared, folder
        self.counts: Counter[str] = Counter()

    def place(self, agent: str, folder: Path) -> Place:
        return self.shared

    async def prepare(self, agent: str, source: Path, since: int, lanes: frozenset[str]) -> WorktreePrepared:
        self.counts["made"] += 1
        return WorktreePrepared(path=str(self.folder / agent), base="")

    async def forgo(self, agent: str) -> None:
        self.counts["forgone"] += 1

    async def remove(self, agent: str, state: Session) -> WorktreeRemoved:
        self.counts["taken away"] += 1
        return WorktreeRemoved(path=str(self.folder / agent))


class Meanwhile:
    """A log to which somebody says something just before the first append of a `kind` of event."""

    def __init__(self, log: Log, rig: Rig, kind: str, said: msgspec.Struct) -> None:
        self._log, self._rig, self._kind, self._said = log, rig, kind, said
        self.is_said = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, facts: list[Draft], *rest: Any) -> Appended:
        if not self.is_said and any(fact.type == self._kind for fact in facts):
            self.is_said = True
            handle = self._rig.handle()
            handle.submit(seal(self._said, CHILD, 0))
            handle.close()
        return self._log.append(facts, *rest)


def run(rig: Rig, kind: str, said: msgspec.Struct, made: Callable[[Place, Rig], Trees] | None = None) -> Trees:
    """A session with a child that has a tree of its own."""
    log = Meanwhile(rig.handle(), rig, kind, said)
    ownership = claim(log, SETTINGS, str(rig.folder), lambda epoch: agent_tools())  # type: ignore[arg-type]
    equipment = Equipment(
        model=rig.model, tools={}, workspace=Workspace(rig.folder), log=log, blobs=rig.handle,  # type: ignore[arg-type]
        settled=lambda call, attempt: None, on_signal=lambda call, text: None,
    )  # fmt: skip
    trees = made(equipment.shared, rig) if made else Trees(equipment.shared, rig.folder)
    equipment.trees = trees
    running = Running(log, ownership, RULES, equipment, rig.seen.append)  # type: ignore[arg-type]
    state = anyio.run(running.run)
    running.release()
    assert log.is_said
    assert state.outcome == "done"
    return trees


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path, [])
    spawn = Step(uses=(("spawn", {"agents": [{"task": "the part", "isolation": "worktree"}]}),))
    lane = Lane(when="the part", steps=(Step(text="did it"),))
    made.model = ScriptedModel(Script(steps=(spawn, Step(text="all done")), lanes=(lane,)))
    made.submit(UserPrompted(text="go"))
    return made


@pytest.mark.parametrize("kind", ["worktree.prepared", "worktree.removed"])
def test_what_is_said_when_a_tree_was_just_made_or_taken_away_has_it_done_no_second_time(rig: Rig, kind: str) -> None:
    trees = run(rig, kind, NoteAdded(text="by the way"))
    assert trees.counts == {"made": 1, "taken away": 1}
    types = Counter(event.type for event in rig.events())
    assert (types["worktree.prepared"], types["worktree.removed"]) == (1, 1)
    assert verify_story(rig.handle(), RULES).divergence is None


class Slow(Trees):
    """Its agent is cancelled while it makes a tree, which takes until the agent has ended."""

    target: Literal["turn", "agent"] = "agent"

    def __init__(self, shared: Place, rig: Rig) -> None:
        super().__init__(shared, rig.folder)
        self.rig = rig

    async def prepare(self, agent: str, source: Path, since: int, lanes: frozenset[str]) -> WorktreePrepared:
        if self.counts["made"]:
            return await super().prepare(agent, source, since, lanes)
        handle = self.rig.handle()
        handle.submit(seal(CancelRequested(target=self.target), CHILD, 0))
        handle.close()
        with anyio.fail_after(60):
            while not any(event.type == "agent.finished" for event in self.rig.seen):
                await anyio.sleep(0.01)
        return await super().prepare(agent, source, since, lanes)


def test_who_is_cancelled_while_its_tree_is_made_ends_at_once_and_the_tree_goes(rig: Rig) -> None:
    trees = run(rig, "worktree.prepared", NoteAdded(text="by the way"), Slow)
    assert trees.counts == {"made": 1, "taken away": 1}
    types = [event.type for event in rig.events()]
    assert types.index("worktree.removed") < types.index("session.closed")
    assert verify_story(rig.handle(), RULES).divergence is None


class SlowTurn(Slow):
    """Only the turn is cancelled: the agent can be spoken to."""

    target = "turn"


def test_who_was_cancelled_before_its_first_step_and_is_spoken_to_afterwards_gets_a_tree_again(rig: Rig) -> None:
    trees = run(rig, "worktree.removed", UserPrompted(text="and the rest"), SlowTurn)
    assert trees.counts == {"made": 2, "taken away": 2}
    assert verify_story(rig.handle(), RULES).divergence is None


def test_who_is_spoken_to_when_its_tree_was_just_taken_away_gets_one_more(rig: Rig) -> None:
    trees = run(rig, "worktree.removed", AgentSteered(text="and the rest"))
    assert trees.counts == {"made": 2, "taken away": 2}
    assert verify_story(rig.handle(), RULES).divergence is None


class Lingering(Trees):
    """Its agent is spoken to while its tree is taken away, which takes until the model has answered."""

    def __init__(self, shared: Place, rig: Rig) -> None:
        super().__init__(shared, rig.folder)
        self.rig = rig

    async def remove(self, agent: str, state: Session) -> WorktreeRemoved:
        if not self.counts["taken away"]:
            await self._said(AgentSteered(text="and tell your parent"), "model.responded", 2)
            await self._said(NoteAdded(text="it may not begin yet"), "note.added", 1)
        return await super().remove(agent, state)

    async def _said(self, body: msgspec.Struct, kind: str, count: int) -> None:
        handle = self.rig.handle()
        handle.submit(seal(body, CHILD, 0))
        handle.close()
        with anyio.fail_after(60):
            while [event.agent for event in self.rig.seen if event.type == kind].count(CHILD) < count:
                await anyio.sleep(0.01)


def test_who_is_spoken_to_while_its_tree_is_taken_away_works_on_when_it_has_another_one(rig: Rig) -> None:
    tell = Step(uses=(("message", {"to": "parent", "text": "told"}),))
    spawn = Step(uses=(("spawn", {"agents": [{"task": "the part", "isolation": "worktree"}]}),))
    lane = Lane(when="the part", steps=(Step(text="did it"), tell, Step(text="told it")))
    rig.model = ScriptedModel(Script(steps=(spawn, Step(text="all done"), Step(text="heard")), lanes=(lane,)))
    trees = run(rig, "worktree.prepared", NoteAdded(text="by the way"), Lingering)
    assert trees.counts == {"made": 2, "taken away": 2}
    types = [event.type for event in rig.events() if event.agent == CHILD]
    assert types.index("worktree.removed") < types.index("agent.messaged")
    assert verify_story(rig.handle(), RULES).divergence is None
