"""How model calls fold: requests, responses, failures, another model. Used by `evolve` only."""

import msgspec

from muse.event.content import ModelRef
from muse.event.conversation import Answered
from muse.event.envelope import Event
from muse.event.kinds import ModelChanged, ModelFailed, ModelRequested, ModelResponded
from muse.fold import compaction, imported, limits, turns
from muse.fold.models import fallback_of, model_ref, ref_of, session_ref
from muse.fold.state import Agent, ModelCall, Session, ToolRun

UNBOUND_SINCE = 3
"""The first version of the rules under which the session's next model is not sent what only the last one can read."""


def model_requested(state: Session, event: Event, body: ModelRequested) -> set[str]:
    """A request is on its way, with the steers that waited for it. One for a summary takes none of them along, and the
    call that it is for is put aside."""
    agent = state.agents[event.agent]
    previous = agent.call
    if body.purpose == "summary":
        agent.summary_upto = body.items
        if previous is not None and previous.key != body.call:
            agent.aside, previous = previous, None
    else:
        agent.add(*agent.steers)
        agent.steers.clear()
    agent.call = ModelCall(
        key=body.call,
        phase="running",
        attempt=body.attempt,
        epoch=event.epoch,
        intent=event.seq,
        cause=event.seq,
        failures=previous.failures if previous else 0,
        ref=_asked(state, agent),
        purpose=body.purpose,
        items=body.items,
        request_bytes=body.request_bytes,
        refused_bytes=previous.refused_bytes if previous else 0,
    )
    if previous is None:
        agent.next_n += 1
        agent.calls_in_turn += 1
    if agent.turn_counted:
        return {event.agent}
    agent.turn_counted = True
    return {event.agent} | limits.counted(state, agent, turns=1)


def _asked(state: Session, agent: Agent) -> ModelRef | None:
    """The model that is asked. An agent that was spawned with one of its own keeps it from its first request on."""
    if state.settings is None:
        return None
    if agent.model and agent.ref is None:
        agent.ref = ref_of(state, agent.model)
    return model_ref(state, agent)


def model_responded(state: Session, event: Event, body: ModelResponded) -> set[str]:
    """The model has answered: its tool uses become the batch."""
    agent = state.agents[event.agent]
    call = agent.call
    if state.imported:
        imported.responded(agent, body.call)
    agent.call, agent.cause = None, event.seq
    stopped = limits.counted(state, agent, usage=body.usage, answered=1)
    agent.steps += 1
    if call is not None and call.purpose == "summary":
        compaction.responded(agent, body)
        if call.cancelling:
            turns.cancel(state, agent, event.seq, "the user cancelled the turn")
        return {event.agent} | stopped
    agent.add(Answered(seq=event.seq, call=body.call, blocks=body.blocks))
    compaction.measured(agent, body.usage)
    for block in body.blocks:
        if block.kind == "tool_use":
            key = f"{agent.id}/{agent.next_n}"
            agent.next_n += 1
            agent.batch.append(ToolRun(key=key, use=block.id, tool=block.name, args=block.args, cause=event.seq))
    if call is not None and call.cancelling:
        turns.cancel(state, agent, event.seq, "the user cancelled the turn")
    elif not agent.batch:
        turns.answered(agent, body.stop)
    return {event.agent} | stopped


def model_failed(state: Session, event: Event, body: ModelFailed) -> set[str]:
    """An attempt gave no whole response."""
    agent = state.agents[event.agent]
    stopped = limits.counted(state, agent, usage=body.usage)
    call = agent.call
    if call is None:
        return stopped
    if call.cancelling or body.failure == "cancelled":
        agent.call = None
        turns.interrupted(agent, event.seq, body.partial if call.purpose == "turn" else "")
        return {event.agent} | stopped
    call.phase, call.cause, call.failure, call.message = "failed", event.seq, body.failure, body.message
    call.status = body.status
    call.retry_after_ms, call.retry_until, call.jitter_permille = (
        body.retry_after_ms,
        body.retry_until,
        body.jitter_permille,
    )
    if not body.retry_until:
        call.failures += 1
    compaction.failed(state, agent)
    return {event.agent} | stopped


def model_changed(state: Session, event: Event, body: ModelChanged) -> set[str]:
    """Another model: for this agent's failed call, which goes on with it, or for the session, if its owner reaches the
    provider."""
    settings = state.settings
    if settings is None:
        return set()
    ref = ModelRef(provider=body.provider, dialect=body.dialect, model=body.model)
    if body.reason == "fallback":
        return _fallen_back(state, event, ref)
    known = {(one.provider, one.dialect) for one in (session_ref(settings), *settings.models, *settings.fallbacks)}
    if (body.provider, body.dialect) not in known:
        return set()
    state.settings = msgspec.structs.replace(settings, provider=body.provider, dialect=body.dialect, model=body.model)
    for agent in state.agents.values():
        changed(state, agent, event.seq, session_ref(settings))
    return set(state.agents)


def _fallen_back(state: Session, event: Event, ref: ModelRef) -> set[str]:
    agent = state.agents.get(event.agent)
    assert state.settings is not None
    if agent is None or agent.call is None or agent.call.phase != "failed":
        return set()
    left = state.settings.fallbacks[agent.fallback :]
    agent.fallback += left.index(ref) + 1 if ref in left else 0
    agent.ref, agent.foreign = ref, event.seq
    _again(state, agent.call, event.seq)
    return {event.agent}


def _again(state: Session, call: ModelCall, seq: int) -> None:
    """A failed call is made again at once, with all its attempts."""
    state.timers.pop(f"retry:{call.key}", None)
    call.phase, call.failures, call.retry_until, call.cause = "retry", 0, "", seq


def changed(state: Session, agent: Agent, seq: int, before: ModelRef) -> None:
    """The session's model was `before`. Who had fallen back goes with it to another, and does not wait for the date of
    a provider that it does not ask any more."""
    assert state.settings is not None
    if session_ref(state.settings) == before:
        return
    if agent.fallback:
        agent.ref, agent.fallback = None, 0
    if agent.ref is None:
        agent.refused_tokens = 0  # what was too large for one may fit another
    if agent.ref is None and state.rules >= UNBOUND_SINCE:
        agent.foreign = seq
    call = agent.call
    if call is not None and call.phase == "failed" and call.ref not in (None, model_ref(state, agent)):
        _again(state, call, seq)


def reopened(state: Session, agent: Agent, seq: int) -> None:
    """A call that had given up is made again when a person opens the session; one that is parked goes on waiting, but
    where there is a fallback now."""
    call = agent.call
    if call is None or call.phase != "failed":
        return
    key = f"retry:{call.key}"
    if not call.retry_until:
        if key not in state.timers:
            _again(state, call, seq)
    elif (timer := state.timers.pop(key, None)) is not None and fallback_of(state, agent) is None:
        state.timers[key] = timer
