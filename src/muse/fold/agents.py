"""How the agents of a session come, work side by side, speak to each other and end. Used by `evolve` only, but for the
questions that rules ask of a state (`stuck`, `home`, `below`).

A child is an agent like `main`: its task begins a turn, and when that has ended for good it finishes and its parent is
told. At most `agents_parallel_max` children hold a slot at once, in the order of spawning; who only waits (for
children, for a person, for a date) gives its slot up, so that no set of waiting agents can keep the others from work.
"""

from bisect import insort
from collections.abc import Iterable, Iterator

from muse.event.conversation import Said, bytes_of
from muse.event.envelope import Event
from muse.event.kinds import (
    AgentContinued,
    AgentFinished,
    AgentMessaged,
    AgentPaused,
    AgentSpawned,
    AgentWanted,
    CancelRequested,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    QuestionAnswered,
    QuestionAsked,
    ResultDelivered,
    TimerFired,
    WorktreePrepared,
)  # fmt: skip
from muse.fold import limits, turns
from muse.fold.limits import above as above
from muse.fold.models import RETRYABLE as RETRYABLE
from muse.fold.models import fallback_of
from muse.fold.models import may_retry as may_retry
from muse.fold.state import Agent, ModelCall, Session, Want
from muse.fold.uses import all_wait

MESSAGE_OF_WANTED = "[Message from {sender}, which the user started]\n{text}"
OWN_TREE = "[You work in a working tree of your own, {path}: the files as they were in your parent's workspace.]"
LEFT_OUT = "[Not taken along: {paths}]"
NO_TREE = "no working tree could be made for it: {why}"


# -- questions to a state ----------------------------------------------------------------------------------------------


def stuck(state: Session, agent: Agent) -> bool:
    """In a turn that cannot go on by itself: the provider failed for good, or a limit was reached."""
    if agent.ending == "budget":
        return True
    call = agent.call
    if call is None or call.phase != "failed" or f"retry:{call.key}" in state.timers:
        return False
    return not may_retry(state, call) and fallback_of(state, agent) is None


def parked(state: Session, call: ModelCall) -> bool:
    """Whether the call waits for a date that its provider gave."""
    timer = state.timers.get(f"retry:{call.key}")
    return call.phase == "failed" and timer is not None and bool(timer.until)


def below(state: Session, agent_id: str) -> Iterator[Agent]:
    """All that were spawned below an agent, at any depth, itself not included."""
    agent = state.agents.get(agent_id)
    for child in agent.children if agent is not None else ():
        if child in state.agents:
            yield state.agents[child]
            yield from below(state, child)


def home(state: Session, agent_id: str) -> str:
    """The agent whose working tree this one works in: itself, or the nearest above it with one of its own, or main."""
    agent = state.agents.get(agent_id)
    while agent is not None and agent.isolation != "worktree" and agent.parent in state.agents:
        agent = state.agents[agent.parent]
    return agent.id if agent is not None else "main"


def root(state: Session, agent_id: str) -> str:
    """The folder that an agent works in."""
    found = state.agents.get(home(state, agent_id))
    return (found.workspace if found is not None else "") or state.workspace


def tree_is_to_go(state: Session, agent_id: str) -> bool:
    """Whether nobody needs the working tree of this agent any more: it has finished, as have all that work there."""
    agent = state.agents.get(agent_id)
    if agent is None or not agent.parent or not agent.finished or not agent.workspace or agent.kept:
        return False
    return not any(home(state, one) == agent_id for one in state.unfinished)


# -- slots -------------------------------------------------------------------------------------------------------------


def settle(state: Session, touched: Iterable[str]) -> set[str]:
    """Give slots up and out after something befell these agents. Returns those that got one."""
    for agent_id in touched:
        agent = state.agents.get(agent_id)
        if agent is None or not agent.parent or state.imported:
            continue
        if not _works(state, agent):
            state.held.discard(agent_id)
            if agent_id in state.waiting:
                state.waiting.remove(agent_id)
        elif agent_id not in state.held and agent_id not in state.waiting:
            insort(state.waiting, agent_id, key=lambda one: state.agents[one].spawned)
    most = state.settings.agents_parallel_max if state.settings else 0
    woken: set[str] = set()
    while state.waiting and (not most or len(state.held) < most):
        first = state.waiting.pop(0)
        state.held.add(first)
        woken.add(first)
    return woken


def _works(state: Session, agent: Agent) -> bool:
    """Whether the agent has something to do that no one else has to do first."""
    if not agent.turn or agent.paused or agent.preparing or stuck(state, agent):
        return False
    if agent.call is not None:
        return not parked(state, agent.call)
    return not all_wait(agent)


def concerned(state: Session, event: Event) -> Iterator[str]:
    """The agents besides the event's own that its fold may change."""
    body = event.body
    agent_id = event.agent
    if isinstance(body, AgentSpawned):
        yield body.parent
    elif isinstance(body, AgentMessaged):
        yield body.to
        yield from (agent.id for agent in above(state, body.to))
    elif isinstance(body, CancelRequested | AgentPaused | AgentContinued):
        if body.target == "tree":
            yield from (agent.id for agent in below(state, agent_id))
    elif isinstance(body, AgentFinished | ModelRequested | ModelResponded | ModelFailed):
        yield from (agent.id for agent in above(state, agent_id))
    elif isinstance(body, TimerFired) and body.key == limits.CLOCK:
        yield from limits.timed(state)
    elif isinstance(body, ModelChanged):
        yield from state.agents


# -- a child's life ----------------------------------------------------------------------------------------------------


def spawned(state: Session, event: Event, body: AgentSpawned) -> set[str]:
    """An agent is there; one with a parent has its task for its first prompt."""
    names = set(body.tools)
    parent = state.agents.get(body.parent)
    agent = Agent(
        id=event.agent,
        parent=body.parent,
        depth=parent.depth + 1 if parent else 0,
        spawned=event.seq,
        spawned_by=body.call,
        wanted=body.wanted,
        index=body.index,
        name=body.name,
        role=body.role,
        task=body.task,
        mode=body.mode,
        background=body.background,
        isolation=body.isolation,
        preparing=body.isolation == "worktree",
        system=body.system,
        model=body.model,
        tools=tuple(spec for spec in state.tools if spec.name in names),
        cause=event.seq,
        calls_max=state.settings.model_calls_max if state.settings else 0,
    )
    state.agents[event.agent] = agent
    not_wanted(state, body.parent, body.wanted)
    if parent is not None:
        parent.children.append(agent.id)
        run = state.run(body.call)
        if run is not None:
            run.children.append(agent.id)
    if parent is not None and not state.imported:
        state.unfinished.add(agent.id)
        turns.prompt(state, agent, Said(seq=event.seq, text=body.task, source="prompt"))
        waits = set(state.wants)  # another one may have been one too many
        return {agent.id, *(one.id for one in above(state, agent.id))} | waits
    if agent.id == "main":
        for said in state.early:
            turns.prompt(state, agent, said)
        state.early = ()
    return {agent.id}


def wanted(state: Session, event: Event, body: AgentWanted) -> set[str]:
    """A person wants an agent below this one."""
    if event.agent != "main" and event.agent not in state.agents:
        return set()
    state.prompts += 1
    state.wants[event.agent] = (*state.wants.get(event.agent, ()), Want(seq=event.seq, body=body))
    return {event.agent}


def not_wanted(state: Session, agent_id: str, seq: int) -> bool:
    """The agent that was wanted at `seq` is there, or is not to come. Whether there was one."""
    wants = state.wants.get(agent_id, ())
    left = tuple(want for want in wants if want.seq != seq)
    if left:
        state.wants[agent_id] = left
    else:
        state.wants.pop(agent_id, None)
    return len(left) < len(wants)


def prepared(state: Session, event: Event, body: WorktreePrepared) -> set[str]:
    """Its working tree is there, or cannot be had: then it ends before it began."""
    agent = state.agents.get(event.agent)
    if agent is None or not agent.preparing:
        return set()
    agent.preparing, agent.cause = False, event.seq
    agent.workspace, agent.base, agent.tree = body.path, body.base, body.tree
    if body.error and agent.turn:
        agent.queue.clear()
        turns.end(agent, "failed", NO_TREE.format(why=body.error))
    elif not body.error:
        left = f"\n{LEFT_OUT.format(paths=', '.join(body.left_out))}" if body.left_out else ""
        agent.add(Said(seq=event.seq, text=OWN_TREE.format(path=body.path) + left, source="notice"))
    return {event.agent}


def finished(state: Session, event: Event, body: AgentFinished) -> set[str]:
    """Its parent is told: by the result of the call that waits for it, or else by a delivery."""
    agent = state.agents.get(event.agent)
    if agent is None:
        return set()
    agent.finished, agent.result, agent.outcome, agent.cause = event.seq, body.text, body.outcome, event.seq
    agent.turn, agent.call, agent.ending = False, None, ""
    state.unfinished.discard(agent.id)
    parent = state.agents.get(agent.parent)
    if parent is None:
        return {agent.id}
    run = state.run(agent.spawned_by)
    awaited = run is not None and run.phase != "done" and not agent.background
    if not awaited and agent.id not in parent.undelivered:
        parent.undelivered.append(agent.id)
    return {agent.id, *(one.id for one in above(state, agent.id))}


def delivered(state: Session, event: Event, body: ResultDelivered) -> set[str]:
    """The result joins the parent's running turn, or begins one."""
    agent = state.agents.get(event.agent)
    if agent is None or body.child not in agent.undelivered:
        return set()
    agent.undelivered.remove(body.child)
    agent.cause = event.seq
    _notice(agent, Said(seq=event.seq, text=body.text, source="notice"))
    return {event.agent}


def messaged(state: Session, event: Event, body: AgentMessaged) -> set[str]:
    """Words of one agent to another: they join its running turn; a child that has finished goes on with them, and
    `main`, whose turns are a person's, reads them in its next one."""
    target = state.agents.get(body.to)
    run = state.run(body.call)
    if run is not None:
        run.answer = event.seq
    if target is None or target.cancelled:
        return {event.agent}
    sender = state.agents.get(event.agent)
    words = MESSAGE_OF_WANTED if sender is not None and sender.wanted and sender.parent == target.id else turns.MESSAGE
    said = Said(seq=event.seq, text=words.format(sender=event.agent, text=body.text), source="steer")
    if target.turn or not target.parent:
        target.steers.append(said)
    else:
        revive(state, target, said, by_agent=True)
    return {event.agent, target.id, *(agent.id for agent in above(state, target.id))}


def revive(state: Session, agent: Agent, said: Said, *, by_agent: bool = False) -> None:
    """Words to an agent that is in no turn: a child that had finished has not any more."""
    was = (agent.finished, agent.outcome, agent.reason, agent.kept)
    if agent.parent and not state.imported:
        agent.finished, agent.kept = 0, False
        agent.preparing = agent.isolation == "worktree" and not agent.workspace
        state.unfinished.add(agent.id)
    turns.prompt(state, agent, said, by_agent=by_agent)
    if agent.parent and not state.imported:
        agent.woken_from = was


def lie_down(state: Session, agent: Agent) -> None:
    """The words that woke a child are not to be followed: it is as it was before them."""
    assert agent.woken_from is not None, "asked of an agent that nobody woke"
    last = bytes_of(agent.items[-1])
    agent.items = agent.items[:-1]  # another list: the old one may be needed to undo this
    agent.items_bytes -= last
    agent.added_bytes -= last
    agent.finished, agent.outcome, agent.reason, agent.kept = agent.woken_from
    agent.turn, agent.preparing, agent.woken_from = False, False, None
    if agent.finished:
        state.unfinished.discard(agent.id)


def _notice(agent: Agent, said: Said) -> None:
    if agent.turn:
        agent.steers.append(said)
    else:
        agent.add(said)
        turns.begin(agent, said.seq, by_agent=True)


# -- people ------------------------------------------------------------------------------------------------------------


def cancelled(state: Session, agent: Agent, body: CancelRequested, seq: int) -> set[str]:
    """The agent's turn, the agent, or all below it too, is to end. A child that is cancelled as a whole stays so."""
    why = body.why or ("its parent cancelled it" if body.by else "the user cancelled it")
    targets = [agent, *below(state, agent.id)] if body.target == "tree" else [agent]
    for one in targets:
        if body.target != "turn":
            state.wants.pop(one.id, None)
            one.queue.clear()
            one.cancelled = one.cancelled or (bool(one.parent) and not one.finished)
        turns.cancel(state, one, seq, why)
        if body.target != "turn" and not one.turn and _awaits(state, one):
            one.outcome, one.reason, one.cause = "cancelled", why, seq
    told = {child for one in targets for child in one.children}
    return {one.id for one in targets} | told | {one.id for one in above(state, agent.id)}


def _awaits(state: Session, agent: Agent) -> bool:
    """Whether it would go on by itself: a child that has not finished, or `main` when it has a result of a child
    before it. It is told of those in its next turn, but they begin none."""
    if agent.parent:
        return not agent.finished
    results = agent.undelivered or any(child in state.unfinished for child in agent.children)
    return agent.outcome == "done" and bool(results)


def paused(state: Session, event: Event, body: AgentPaused) -> set[str]:
    """Nothing new starts."""
    return _set_paused(state, event, body.target == "tree", to=True)


def continued(state: Session, event: Event, body: AgentContinued) -> set[str]:
    """It goes on."""
    return _set_paused(state, event, body.target == "tree", to=False)


def _set_paused(state: Session, event: Event, tree: bool, *, to: bool) -> set[str]:
    agent = state.agents.get(event.agent)
    if agent is None:
        return set()
    targets = [agent, *below(state, agent.id)] if tree else [agent]
    for one in targets:
        one.paused = to
        if not to:
            one.cause = event.seq
    return {one.id for one in targets}


def asked(state: Session, event: Event, body: QuestionAsked) -> set[str]:
    """The call waits for a person's answer."""
    run = state.run(body.call)
    if run is not None:
        run.question, run.cause = event.seq, event.seq
        state.questions[event.seq] = run.key
    return {event.agent}


def answered(state: Session, event: Event, body: QuestionAnswered) -> set[str]:
    """The first answer to an open question counts, in whose lane so ever it stands."""
    run = state.run(state.questions.get(body.question, ""))
    if run is None or run.phase == "done" or run.key.partition("/")[0] != event.agent:
        return set()
    state.questions.pop(body.question)
    run.answer, run.answer_text, run.cause = event.seq, body.text, event.seq
    return {event.agent}
