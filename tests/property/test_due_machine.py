"""Any sequence of commands, outcomes, crashes and decisions keeps the promises of fold and due.

The world (`tests.property.world`) is played by hypothesis, and by long random walks that lead further than it does:
turns with parallel batches and trees of agents, killed again and again.
"""

from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muse.event.content import Git, Limit, ModelRef
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSteered,
    AgentWanted,
    BudgetRaised,
    CancelRequested,
    ModelChanged,
    NoteAdded,
    PolicyChanged,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
)  # fmt: skip
from tests.property.world import AGENT_USES, FAILURES, TYPE_OF, WANTS, Played, Use

__all__ = ["TYPE_OF", "World"]

USE_LIST: list[Use] = [
    ("read", '{"path": "a"}'),
    ("write", '{"path": "a", "content": "x"}'),
    ("write", '{"path": "b", "content": "x"}'),
    ("shell", '{"command": "make"}'),
    ("shell", '{"command": "ls"}'),
    ("post", "{}"),
    ("nothing", "{}"),
    ("shell", "{broken"),
]
USES = st.sampled_from([*USE_LIST, *AGENT_USES])
DATE = "2026-01-02T00:00:00.000000Z"
WORDS: list[msgspec.Struct] = [
    AgentSteered(text="and that"), AgentPaused(), AgentPaused(target="tree"), AgentContinued(),
    AgentContinued(target="tree"), NoteAdded(text="hm"), CancelRequested(target="turn"),
    CancelRequested(target="agent", why="enough"), CancelRequested(target="tree"),
    CancelRequested(target="call", call="main/2"), CancelRequested(target="call", call="main/3"),
    CancelRequested(target="call", call="main.1/1"), PolicyChanged(allow=("shell(make)",)),
    PolicyChanged(mode="accept-edits"), BudgetRaised(limit="tokens", value=60, scope="session"),
    BudgetRaised(limit="model_calls", value=20),
    ModelChanged(provider="scripted", dialect="scripted", model="other"),
]  # fmt: skip
"""What people say to an agent."""


class World(Played, RuleBasedStateMachine):
    """A session and everything around it, played by hypothesis."""

    @initialize(
        mode=st.sampled_from(["yolo", "accept-edits", "default", "plan"]),
        parallel=st.sampled_from([1, 2, 8]),
        timeout=st.sampled_from([0, 60]),
        slots=st.sampled_from([1, 2, 8]),
        uses=st.lists(USES, min_size=1, max_size=4),
    )
    def opens(self, mode: str, parallel: int, timeout: int, slots: int, uses: list[Use]) -> None:
        self.open(mode, parallel, timeout, uses, agents_parallel_max=slots)

    @rule(pick=st.integers(0, 7))
    def one_thing_is_decided(self, pick: int) -> None:
        self.decide(pick)

    @rule(steps=st.integers(1, 5))
    def owner_goes_on(self, steps: int) -> None:
        self.go_on(steps)

    @precondition(lambda self: self.open_models())
    @rule(uses=st.lists(USES, min_size=1, max_size=4), pick=st.integers(0, 3))
    def model_wants_tools(self, uses: list[Use], pick: int) -> None:
        self.model_responds(uses, "end_turn", pick)

    @precondition(lambda self: self.open_models())
    @rule(
        uses=st.lists(USES, max_size=1), stop=st.sampled_from(["end_turn", "max_tokens", "refusal"]),
        pick=st.integers(0, 3),
    )  # fmt: skip
    def model_answers(self, uses: list[Use], stop: Any, pick: int) -> None:
        self.model_responds(uses, stop, pick)

    @precondition(lambda self: self.open_models())
    @rule(
        failure=st.sampled_from(FAILURES), after=st.sampled_from([None, 5000]), jitter=st.integers(0, 999),
        pick=st.integers(0, 3), until=st.sampled_from(["", "", DATE]),
    )  # fmt: skip
    def model_gives_up(self, failure: Any, after: int | None, jitter: int, pick: int, until: str) -> None:
        self.model_fails(failure, after, jitter, pick, until if failure == "rate_limited" else "")

    @precondition(lambda self: self.all_running())
    @rule(pick=st.integers(0, 7), status=st.sampled_from(["ok", "error", "unknown"]))
    def one_tool_ends(self, pick: int, status: Any) -> None:
        self.tool_ends(pick, status)

    @precondition(lambda self: self.doubted())
    @rule(pick=st.integers(0, 7), which=st.integers(0, 2))
    def recover_one(self, pick: int, which: int) -> None:
        self.recover(pick, which)

    @rule(which=st.integers(0, 2))
    def host_dies(self, which: int) -> None:
        self.crash_and_recover(which)

    @precondition(lambda self: self.state.timers)
    @rule(pick=st.integers(0, 7))
    def one_timer_fires(self, pick: int) -> None:
        self.timer_fires(pick)

    @precondition(lambda self: self.preparing())
    @rule(pick=st.integers(0, 3), error=st.sampled_from(["", "", "no room"]))
    def one_tree_is_there(self, pick: int, error: str) -> None:
        self.tree_is_there(pick, error)

    @rule(pick=st.integers(0, 3), left=st.sampled_from([(), ("a",)]))
    def one_tree_is_gone(self, pick: int, left: tuple[str, ...]) -> None:
        self.tree_is_gone(pick, left)

    @rule(pick=st.integers(0, 9))
    def files_are_looked_at(self, pick: int) -> None:
        self.files_change(pick)

    @rule(delivery=st.sampled_from(["queue", "steer", "replace"]), pick=st.integers(0, 5))
    def one_agent_is_prompted(self, delivery: Any, pick: int) -> None:
        self.person_prompts(delivery, pick)

    @rule(body=st.sampled_from(WORDS), pick=st.integers(0, 5))
    def one_agent_is_told(self, body: msgspec.Struct, pick: int) -> None:
        self.person_speaks(body, pick)

    @rule(body=st.sampled_from(WANTS), pick=st.integers(0, 5))
    def an_agent_is_wanted(self, body: AgentWanted, pick: int) -> None:
        self.person_wants(body, pick)

    @rule(pick=st.integers(0, 3))
    def it_is_not_wanted(self, pick: int) -> None:
        self.want_is_taken_back(pick)

    @rule(pick=st.integers(0, 5))
    def words_are_taken_back(self, pick: int) -> None:
        self.prompt_is_taken_back(pick)

    @rule(pick=st.integers(0, 5))
    def a_question_is_answered(self, pick: int) -> None:
        self.person_tells(pick)

    @rule(pid=st.integers(1, 2), kind=st.sampled_from([ProcessStarted, ProcessAdopted, ProcessReaped]))
    def process_is_noticed(self, pid: int, kind: Any) -> None:
        known = f"{pid}:7" in self.state.processes
        if known == (kind is not ProcessStarted):
            self.append(kind(call="main/2", pid=pid, started=7))
            assert (f"{pid}:7" in self.state.processes) == (kind is not ProcessReaped)

    @rule(allow=st.booleans(), off=st.sampled_from([0, 0, 0, 1]), always=st.booleans())
    def approvals_are_answered(self, allow: bool, off: int, always: bool) -> None:
        self.person_answers(allow, off, always)

    @rule()
    def host_dies_at_once(self) -> None:
        self.crash()

    @rule(steps=st.integers(1, 6))
    def decisions_are_taken_back(self, steps: int) -> None:
        self.fold_and_take_back(steps)

    @invariant()
    def closed_is_closed(self) -> None:
        if getattr(self, "state", None) is not None:
            self.a_closed_log_has_nothing_due()

    def teardown(self) -> None:
        if getattr(self, "state", None) is not None:
            self.ends_well()


World.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorld = World.TestCase


ALONE_SEEDS = range(30)
TOGETHER_SEEDS = range(60)


@pytest.mark.parametrize("seed", ALONE_SEEDS)
def test_a_long_walk_of_one_agent_keeps_every_promise(seed: int) -> None:
    """What the machine above reaches seldom: long turns with parallel batches, killed again and again."""
    _walk(Random(seed), USE_LIST, steps=150)


@pytest.mark.parametrize("seed", TOGETHER_SEEDS)
def test_a_long_walk_of_many_agents_keeps_every_promise(seed: int) -> None:
    """Trees of agents that spawn, wait, ask, message and cancel each other, with budgets, fallbacks and trees of
    their own; people who interrupt them; a host that dies."""
    chance = Random(seed)
    limits = [Limit(scope=chance.choice(["session", "agent", "tree"]), what="tokens", value=chance.choice([40, 90]))]
    limits.append(Limit(scope=chance.choice(["session", "tree"]), what=chance.choice(["turns", "seconds"]), value=90))
    fallbacks = (ModelRef(provider="scripted", dialect="scripted", model="second"),)
    _walk(
        chance, USE_LIST + AGENT_USES * 2, steps=chance.choice([100, 250]),
        agents_parallel_max=chance.choice([1, 2, 3, 8]), agents_depth_max=chance.choice([1, 2, 3]),
        agents_total_max=chance.choice([4, 30]), limits=tuple(limits[: chance.choice([0, 0, 1, 2])]),
        fallbacks=fallbacks[: chance.choice([0, 1])],
    )  # fmt: skip


def _walk(chance: Random, uses: list[Use], steps: int, **settings: Any) -> None:
    world = Played()

    def some() -> list[Use]:
        return [chance.choice(uses) for _ in range(chance.randint(1, 4))]

    mode = chance.choice(["yolo", "yolo", "default", "accept-edits"])
    world.open(mode, chance.choice([1, 2, 8]), chance.choice([0, 60]), some(), **settings)
    if chance.random() < 0.3:
        world.git = Git(root="/w", head="c0ffee", branch="main")
        world.crash()
    for _ in range(steps):
        if not _world_moves(world, chance, some):
            world.decide(chance.randrange(8))
        world.a_closed_log_has_nothing_due()
    world.ends_well()


def _world_moves(world: Played, chance: Random, some: Any) -> bool:
    """One move that is not the owner's own; False for none."""
    pick = chance.randrange(8)
    models = world.open_models()
    if world.all_running() and chance.random() < 0.4:
        world.tool_ends(pick, chance.choice(["ok", "error"]))
    elif world.doubted():
        world.recover(pick, chance.randrange(3))
    elif models and chance.random() < 0.5:
        if models[pick % len(models)][1].cancelling or chance.random() < 0.2:
            failure = chance.choice(FAILURES)
            until = DATE if failure == "rate_limited" and chance.random() < 0.5 else ""
            world.model_fails(failure, None, chance.randrange(1000), pick, until)
        else:
            world.model_responds(some() if chance.random() < 0.7 else [], "end_turn", pick)
    elif world.preparing() and chance.random() < 0.5:
        world.tree_is_there(pick, chance.choice(["", "", "no room"]))
    elif world.state.approvals and chance.random() < 0.3:
        world.person_answers(chance.random() < 0.7, 0, chance.random() < 0.3)
    elif world.state.questions and chance.random() < 0.3:
        world.person_tells(pick)
    elif world.state.timers and chance.random() < 0.2:
        world.timer_fires(pick)
    else:
        return _people_or_machine_move(world, chance, pick)
    return True


def _people_or_machine_move(world: Played, chance: Random, pick: int) -> bool:
    if chance.random() < 0.06:
        world.crash()
    elif chance.random() < 0.05:
        world.fold_and_take_back(5)
    elif chance.random() < 0.04:
        world.person_prompts(chance.choice(["queue", "steer", "replace"]), pick)
    elif chance.random() < 0.06:
        world.person_speaks(chance.choice(WORDS), pick)
    elif chance.random() < 0.03:
        world.prompt_is_taken_back(pick)
    elif chance.random() < 0.05:
        world.person_wants(chance.choice(WANTS), pick)
    elif chance.random() < 0.1:
        world.want_is_taken_back(pick)
    elif chance.random() < 0.06:
        world.files_change(chance.randrange(30))
    elif chance.random() < 0.03:
        world.tree_is_gone(pick, chance.choice([(), ("a",)]))
    else:
        return False
    return True
