"""How limits and timers fold: what was used of each budget, by whom. Used by `evolve`, and by rules for its
questions.

Usage counts over all attempts, answered and failed, and over all owners. There is no clock here: while a budget of
seconds holds, a timer of at most a minute (`CLOCK`) is set again and again, and each that fires adds its duration.
"""

from collections.abc import Iterator
from typing import Final

from muse import budget
from muse.event.content import Limit, Usage
from muse.event.envelope import Event
from muse.event.kinds import BudgetRaised, BudgetReached, TimerFired, TimerSet
from muse.fold.state import Agent, Session, Timer

NOTHING: Final = Usage()
IN_WORDS_SINCE: Final = 3
"""The first version of the rules whose reasons say dollars and hours; those before say how the log counts."""
CLOCK: Final = "budget:seconds"
"""The key of the timer that counts seconds in turns."""
_AWAITED: Final = {"approval": "asked", "wait": "running", "question": "running"}
"""What a timer ends the wait of, and the phase that a run waits in."""


def above(state: Session, agent_id: str) -> Iterator[Agent]:
    """Its parent, and theirs."""
    agent = state.agents.get(agent_id)
    while agent is not None and agent.parent in state.agents:
        agent = state.agents[agent.parent]
        yield agent


def tokens(usage: Usage) -> int:
    """Tokens of all kinds; those of reasoning are among the output."""
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def added(a: Usage, b: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in Usage.__struct_fields__})


def used(state: Session, agent: Agent, limit: Limit) -> int:
    """How much was used of a budget: of the session's, of the agent's, or of that of the agent's tree."""
    whose = state if limit.scope == "session" else agent
    below = limit.scope == "tree"
    match limit.what:
        case "tokens":
            return tokens(agent.usage_below if below else whose.usage)
        case "cost_microusd":
            return (agent.usage_below if below else whose.usage).cost_microusd
        case "turns":
            return agent.turns_below if below else whose.turns
        case "calls":
            return agent.answered_below if below else whose.answered
        case "seconds":
            return agent.elapsed_below if below else whose.elapsed_seconds


def full(state: Session, agent: Agent) -> list[tuple[Limit, Agent]]:
    """The budgets that hold for this agent and are used up, with the agent whose they are."""
    limits = state.settings.limits if state.settings is not None else ()
    found: list[tuple[Limit, Agent]] = []
    for limit in limits:
        owners = [agent, *above(state, agent.id)] if limit.scope == "tree" else [agent]
        found += [(limit, one) for one in owners if 0 < limit.value <= used(state, one, limit)]
    return found


def counted(state: Session, agent: Agent, *, usage: Usage = NOTHING, answered: int = 0, turns: int = 0) -> set[str]:
    """Add what a call used, for the agent, all above it and the session. Returns the agents that it stops: those in a
    turn, when a budget is used up."""
    agent.usage, agent.answered, agent.turns = added(agent.usage, usage), agent.answered + answered, agent.turns + turns
    state.usage, state.answered, state.turns = added(state.usage, usage), state.answered + answered, state.turns + turns
    for one in (agent, *above(state, agent.id)):
        one.usage_below = added(one.usage_below, usage)
        one.answered_below += answered
        one.turns_below += turns
    return set(state.active) if full(state, agent) else set()


def timed(state: Session) -> set[str]:
    """The agents of which seconds count now: those in a turn, and all above them."""
    return set(state.active) | {one.id for agent_id in state.active for one in above(state, agent_id)}


def budget_reached(state: Session, event: Event, body: BudgetReached) -> set[str]:
    """A limit stops the agent."""
    agent = state.agents[event.agent]
    agent.ending, agent.cause = "budget", event.seq
    name, amount = budget.said(body.limit, body.value)
    plain = state.rules >= IN_WORDS_SINCE
    agent.reason = f"{name} reached {amount}" if plain else f"{body.limit} reached {body.value}"
    if body.limit != "model_calls":
        agent.reason += f" (budget of {_whose(body)})"
    return {event.agent}


def _whose(body: BudgetReached) -> str:
    return {"session": "the session", "agent": "this agent", "tree": f"{body.of} and all below it"}[body.scope]


def budget_raised(state: Session, event: Event, body: BudgetRaised) -> set[str]:
    """A person gives it more room."""
    agent = state.agents.get(event.agent)
    if agent is not None and body.limit == "model_calls":
        agent.calls_max, agent.cause = body.value, event.seq
        agent.ending = "" if agent.ending == "budget" else agent.ending
    return {event.agent}


def timer_set(state: Session, event: Event, body: TimerSet) -> set[str]:
    """A timer runs."""
    state.timers[body.key] = Timer(
        key=body.key, agent=event.agent, duration_ms=body.duration_ms, until=body.until, seq=event.seq
    )
    return {event.agent}


def timer_fired(state: Session, event: Event, body: TimerFired) -> set[str]:
    """It is over."""
    timer = state.timers.pop(body.key, None)
    if body.key == CLOCK:
        return _elapsed(state, timer.duration_ms // 1000) if timer is not None else set()
    what, _, key = body.key.partition(":")
    agent = state.agents.get(event.agent)
    run = state.run(key)
    if run is not None and what in _AWAITED and run.phase == _AWAITED[what]:
        run.timed_out, run.cause = True, event.seq
    elif what == "retry" and agent and agent.call and agent.call.key == key and agent.call.phase == "failed":
        agent.call.phase, agent.call.cause = "retry", event.seq
    return {event.agent}


def _elapsed(state: Session, seconds: int) -> set[str]:
    """So long somebody was in a turn. What began or ended meanwhile counts as a whole: less than a minute is wrong."""
    if not state.active:
        return set()
    state.elapsed_seconds += seconds
    for agent_id in state.active:
        state.agents[agent_id].elapsed_seconds += seconds
    for agent_id in timed(state):
        state.agents[agent_id].elapsed_below += seconds
    return set(state.active)
