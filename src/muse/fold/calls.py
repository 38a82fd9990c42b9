"""How model calls fold: requests, responses, failures, another model. Used by `evolve` only."""

import msgspec

from muse.event.content import Usage
from muse.event.conversation import Answered
from muse.event.envelope import Event
from muse.event.kinds import ModelChanged, ModelFailed, ModelRequested, ModelResponded
from muse.fold import imported, turns
from muse.fold.state import ModelCall, Session, ToolRun


def model_requested(state: Session, event: Event, body: ModelRequested) -> set[str]:
    """A request is on its way, with the steers that waited for it."""
    agent = state.agents[event.agent]
    agent.add(*agent.steers)
    agent.steers.clear()
    previous = agent.call
    agent.call = ModelCall(
        key=body.call,
        phase="running",
        attempt=body.attempt,
        epoch=event.epoch,
        intent=event.seq,
        cause=event.seq,
        failures=previous.failures if previous else 0,
    )
    if previous is None:
        agent.next_n += 1
        agent.calls_in_turn += 1
    return {event.agent}


def model_responded(state: Session, event: Event, body: ModelResponded) -> set[str]:
    """The model has answered: its tool uses become the batch."""
    agent = state.agents[event.agent]
    cancelling = agent.call is not None and agent.call.cancelling
    if state.imported:
        imported.responded(agent, body.call)
    agent.call, agent.cause = None, event.seq
    agent.usage = added(agent.usage, body.usage)
    agent.steps += 1
    agent.add(Answered(seq=event.seq, call=body.call, blocks=body.blocks))
    for block in body.blocks:
        if block.kind == "tool_use":
            key = f"{agent.id}/{agent.next_n}"
            agent.next_n += 1
            agent.batch.append(ToolRun(key=key, use=block.id, tool=block.name, args=block.args, cause=event.seq))
    if cancelling:
        turns.cancel(state, agent, event.seq, "the user cancelled the turn")
    elif not agent.batch:
        turns.answered(agent, body.stop)
    return {event.agent}


def model_failed(state: Session, event: Event, body: ModelFailed) -> set[str]:
    """An attempt gave no whole response."""
    agent = state.agents[event.agent]
    call = agent.call
    if call is None:
        return set()
    if call.cancelling or body.failure == "cancelled":
        agent.call = None
        turns.interrupted(agent, event.seq, body.partial)
        return {event.agent}
    call.phase, call.cause, call.failure, call.message = "failed", event.seq, body.failure, body.message
    call.failures += 1
    call.retry_after_ms, call.jitter_permille = body.retry_after_ms, body.jitter_permille
    return {event.agent}


def model_changed(state: Session, event: Event, body: ModelChanged) -> set[str]:
    """Another model of the same provider. An owner reaches one provider; a new one comes with a new owner."""
    settings = state.settings
    if settings is not None and (settings.provider, settings.dialect) == (body.provider, body.dialect):
        state.settings = msgspec.structs.replace(settings, model=body.model)
    return set()


def added(a: Usage, b: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in Usage.__struct_fields__})
