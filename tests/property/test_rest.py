"""Whether an agent has anything left to do by itself, held against the machine that would do it, on random walks."""

from random import Random

from muse.decide.due import due
from muse.event.content import Limit
from muse.view.rest import rest
from tests.property.test_due_machine import USE_LIST, _world_moves
from tests.property.world import AGENT_USES, RULES, Played, Use

SEEDS = range(40)
STEPS = 120


def test_an_agent_works_if_and_only_if_the_machine_would_go_on_with_it_or_one_below_it() -> None:
    """Looked at whenever all that is due has been decided, which is what a log holds after each append."""
    assert sum(walk(seed) for seed in SEEDS) > 1_000


def walk(seed: int) -> int:
    """How many agents were looked at."""
    chance, world = Random(seed), Played()

    def some() -> list[Use]:
        return [chance.choice(USE_LIST + AGENT_USES * 2) for _ in range(chance.randint(1, 3))]

    limits = (Limit(scope="agent", what="tokens", value=40),) if chance.random() < 0.3 else ()
    world.open(chance.choice(["yolo", "default"]), chance.choice([1, 8]), chance.choice([0, 60]), some(), limits=limits,
               agents_parallel_max=chance.choice([1, 3]))  # fmt: skip
    looked = 0
    for _ in range(STEPS):
        if not _world_moves(world, chance, some):
            world.decide(chance.randrange(8))
        if not due(world.state, world.state.agents, RULES):
            unfinished = [one for one in world.state.agents.values() if not one.finished]
            for agent in unfinished:
                assert (rest(world.state, agent.id, alive=True).word == "works") == goes_on(world, agent.id), agent.id
            looked += len(unfinished)
    return looked


def goes_on(world: Played, agent: str) -> bool:
    """Whether anything but a person can bring an event about, in this agent or below it; where one of those below is
    queued for a slot, in one of those that have one."""
    running = {one.id for one, _ in (*world.all_running(), *world.open_models())}
    running |= {lane for lane, *_ in world.doubted()} | {one.id for one in world.preparing()}
    for timer in world.state.timers.values():  # one that is paused asks its model no more when its wait is over
        if timer.key.startswith("wait:") or (
            timer.key.startswith("retry:") and not world.state.agents[timer.agent].paused
        ):
            running.add(timer.agent)
    running |= set(world.state.waiting) if running & world.state.held else set()
    return any(f"{one}.".startswith(f"{agent}.") for one in running)
