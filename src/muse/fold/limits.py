"""How limits and timers fold. Used by `evolve` only."""

from typing import Final

from muse.event.envelope import Event
from muse.event.kinds import BudgetRaised, BudgetReached, TimerFired, TimerSet
from muse.fold.state import Session, Timer

_AWAITED: Final = {"approval": "asked", "wait": "running", "question": "running"}
"""What a timer ends the wait of, and the phase that a run waits in."""


def budget_reached(state: Session, event: Event, body: BudgetReached) -> set[str]:
    """A limit stops the agent."""
    agent = state.agents[event.agent]
    agent.ending, agent.cause = "budget", event.seq
    agent.reason = f"{body.limit} reached {body.value}"
    return {event.agent}


def budget_raised(state: Session, event: Event, body: BudgetRaised) -> set[str]:
    """A person gives it more room."""
    agent = state.agents.get(event.agent)
    if agent is not None and body.limit == "model_calls":
        agent.calls_max, agent.ending, agent.cause = body.value, "", event.seq
    return {event.agent}


def timer_set(state: Session, event: Event, body: TimerSet) -> set[str]:
    """A timer runs."""
    state.timers[body.key] = Timer(
        key=body.key, agent=event.agent, duration_ms=body.duration_ms, until=body.until, seq=event.seq
    )
    return {event.agent}


def timer_fired(state: Session, event: Event, body: TimerFired) -> set[str]:
    """It is over."""
    state.timers.pop(body.key, None)
    what, _, key = body.key.partition(":")
    agent = state.agents.get(event.agent)
    run = state.run(key)
    if run is not None and what in _AWAITED and run.phase == _AWAITED[what]:
        run.timed_out, run.cause = True, event.seq
    elif what == "retry" and agent and agent.call and agent.call.key == key and agent.call.phase == "failed":
        agent.call.phase, agent.call.cause = "retry", event.seq
    return {event.agent}
