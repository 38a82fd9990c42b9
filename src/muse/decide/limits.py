"""What limits let an agent do: whether a request may be sent, what follows one that failed, and the clock of budgets.

A budget is looked at when a request is about to be sent, and at no other time: what runs goes to its end. Each agent
that it stops has a `budget.reached` of its own, in its own lane. docs/decisions/0026 says why.
"""

from collections.abc import Iterator
from typing import Final

from muse.decide.decision import Due
from muse.event.content import Limit, Settings
from muse.event.kinds import BudgetReached, ModelChanged, TimerSet
from muse.fold.agents import stuck
from muse.fold.limits import CLOCK, above, full, used
from muse.fold.limits import tokens as tokens
from muse.fold.models import fallback_of, may_retry
from muse.fold.state import Agent, ModelCall, Session

BACKOFF_MAX_MS: Final = 60_000
TICK_SECONDS_MAX: Final = 60
"""So long does the clock of budgets run at a time, and so much of a budget of seconds does a crash lose at most."""


def reached(state: Session, agent: Agent) -> BudgetReached | None:
    """The limit that keeps the agent's next request from being sent, if one does. A turn that has begun is not ended
    by a budget of turns."""
    if agent.call is None and agent.calls_max and agent.calls_in_turn >= agent.calls_max:
        return BudgetReached(limit="model_calls", value=agent.calls_in_turn)
    for limit, owner in full(state, agent):
        if limit.what == "turns" and agent.turn_counted:
            continue
        of = owner.id if limit.scope == "tree" else ""
        return BudgetReached(limit=limit.what, value=used(state, owner, limit), scope=limit.scope, of=of)
    return None


def after_failure(state: Session, agent: Agent, call: ModelCall) -> Iterator[Due]:
    """A failed call goes on with another model, or after a wait: a short one, or until the provider's date."""
    assert state.settings is not None
    if (ref := fallback_of(state, agent)) is not None:
        body = ModelChanged(provider=ref.provider, dialect=ref.dialect, model=ref.model, reason="fallback")
        yield Due(agent.id, call.cause, body)
    elif may_retry(state, call) and (key := f"retry:{call.key}") not in state.timers:
        wait = backoff_ms(call, state.settings)
        yield Due(agent.id, call.cause, TimerSet(key=key, duration_ms=wait, until=call.retry_until))


def backoff_ms(call: ModelCall, settings: Settings) -> int:
    """The wait before the next attempt: doubling from `retry_base_ms`, capped, up to a quarter longer by the jitter
    that the failure recorded; what the provider asked for where that is longer."""
    doubled = min(settings.retry_base_ms << max(call.failures - 1, 0), BACKOFF_MAX_MS)
    jittered = doubled + doubled * call.jitter_permille // 4000
    return max(jittered, call.retry_after_ms or 0)


def clock(state: Session) -> Iterator[Due]:
    """While a budget of seconds holds for somebody in a turn, a timer runs: for what is left, a minute at most."""
    assert state.settings is not None
    limits = [limit for limit in state.settings.limits if limit.what == "seconds"]
    if not limits or CLOCK in state.timers:
        return
    left = [_left(state, limit, agent) for agent in _at_work(state) for limit in limits]
    if left:
        seconds = min([TICK_SECONDS_MAX, *(seconds for seconds in left if seconds > 0)])
        yield Due("main", state.opened, TimerSet(key=CLOCK, duration_ms=seconds * 1000))


def _at_work(state: Session) -> list[Agent]:
    agents = [state.agents[agent_id] for agent_id in state.active]
    return [agent for agent in agents if not stuck(state, agent)]


def _left(state: Session, limit: Limit, agent: Agent) -> int:
    owners = [agent, *above(state, agent.id)] if limit.scope == "tree" else [agent]
    return min(limit.value - used(state, one, limit) for one in owners)
