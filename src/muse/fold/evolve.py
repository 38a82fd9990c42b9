"""What is true after an event: `evolve(state, event)`, pure and in constant time for one event.

One function an event type, in a table. Events of other rooms' making (imports, forks) that change nothing here are
listed as such; a type that this build does not know, and one whose text was taken out, is noted, because a session
that holds one must not be continued. What later stands on such a one is passed over.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from muse.event.content import Settings
from muse.event.conversation import Said
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import (
    KINDS,
    AgentContinued,
    AgentFinished,
    AgentMessaged,
    AgentPaused,
    AgentSpawned,
    AgentSteered,
    AgentWanted,
    ApprovalDecided,
    ApprovalRequested,
    BudgetRaised,
    BudgetReached,
    CancelRequested,
    CommandRefused,
    ContextCompacted,
    EffectDoubted,
    EffectReconciled,
    FilesChanged,
    FilesUnknown,
    LogImported,
    LogRecovered,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyChanged,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
    QuestionAnswered,
    QuestionAsked,
    ResultDelivered,
    SessionClosed,
    SessionOpened,
    SessionRewound,
    TimerFired,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
    WorktreePrepared,
    WorktreeRemoved,
)  # fmt: skip
from muse.fold import agents, calls, compaction, files, imported, limits, turns
from muse.fold.models import session_ref
from muse.fold.state import Agent, PolicyStep, Process, Session, ToolRun, Undo, process_key, touch

NOT_GONE_BY: Final = frozenset(
    {"files.changed", "files.unknown", "process.started", "process.adopted", "process.reaped"}
)
"""What no agent reads: where it is redacted the session can still go on."""
ABOUT_THE_LOG: Final = frozenset({"log.redacted", "log.recovered", "head.signed"})
"""Facts about the log itself: a closed session stays closed."""
FOR_ALL_AGENTS: Final = frozenset({"session.opened", "log.recovered"})
CUT_NOTICE: Final = (
    "The record of this session was damaged, and all that came after this point is lost from it. Files may have been"
    " changed and commands run that you do not see here: look at how things are before you act."
)

MOVES_TOLD_SINCE = 2
"""The first version of the rules under which agents are told that their workspace has moved."""


STEERS_OUTLIVE_SINCE = 3
"""The first version of the rules under which words to a turn that is being cancelled begin the next one, and those to
a session without a prompt its first."""


def evolve(state: Session, event: Event, undo: Undo | None = None) -> set[str]:
    """Fold one event into `state`, in place. Returns the agents for which something new may have become due.

    `event.seq` must be `state.seq + 1`. With `undo`, everything is saved that `undone` needs.
    """
    assert event.seq == state.seq + 1, f"event {event.seq} folded after {state.seq}"
    if undo is not None:
        touch(undo, state, event.agent)
        touch(undo, state, agents.home(state, event.agent))
    state.seq = event.seq
    kind = KINDS.get(event.type)
    if kind is None or isinstance(event.body, Unknown):
        state.unknown.append(f"{event.type} v{event.v} (#{event.seq})")
        return set()
    if event.type not in ABOUT_THE_LOG:
        state.closed = False
        if kind.origin != "command":
            state.clean = False
    handler = _HANDLERS.get(kind.body)
    if handler is None or not _can_be_folded(state, event):
        return set()
    _touch_all(undo, state, event)
    woken = handler(state, event, event.body)
    woken |= agents.settle(state, woken)
    for agent_id in woken:
        agent = state.agents.get(agent_id)
        if agent is not None and agent.turn:
            state.active.add(agent_id)
        else:
            state.active.discard(agent_id)
    return woken


def _touch_all(undo: Undo | None, state: Session, event: Event) -> None:
    """Save what else the event may change."""
    if undo is not None:
        for agent_id in state.agents if event.type in FOR_ALL_AGENTS else agents.concerned(state, event):
            touch(undo, state, agent_id)


def _can_be_folded(state: Session, event: Event) -> bool:
    """Whether the event is whole, and the agent and the call are there that its type needs. They may be missing only
    where the state is incomplete; one that is not whole makes it so."""
    if isinstance(event.body, Redacted):
        if event.type in NOT_GONE_BY:
            files.lost(state, event.agent)  # the files are looked at anew
        else:
            state.redacted.append(f"{event.type} (#{event.seq})")
        return False
    if not state.incomplete:
        return True
    if isinstance(event.body, ToolStarted | ApprovalRequested):
        return state.run(event.body.call) is not None
    needs_agent = ModelRequested | ModelResponded | ModelFailed | ToolFinished | EffectReconciled | BudgetReached
    if isinstance(event.body, needs_agent):
        return event.agent in state.agents
    return True


def _opened(state: Session, event: Event, body: SessionOpened) -> set[str]:
    """A new owner. Mode and rules that people changed meanwhile stay, unless it was opened with other ones."""
    before, now = state.settings, body.settings
    moved_from = state.workspace if before is not None and body.rules >= MOVES_TOLD_SINCE else body.workspace
    state.epoch, state.opened = event.epoch, event.seq
    state.rules, state.workspace = body.rules, body.workspace
    state.git, state.settings, state.tools = body.git, now, body.tools
    state.name, state.roles = body.name or state.name, body.roles or state.roles
    if before is None:
        state.date, state.instructions = body.date, body.instructions
    mode = now.mode if before is None or before.mode != now.mode else ""
    rules, replaces = now.permissions, before is None or before.permissions != now.permissions
    if replaces:
        _change_policy(state, PolicyStep(event.seq, mode, rules.allow, rules.ask, rules.deny, replaces))
    elif mode:
        _change_policy(state, PolicyStep(event.seq, mode))
    # How long a person's word is waited for depends on who sits there now: that is set anew under these settings.
    state.timers = {key: one for key, one in state.timers.items() if not key.startswith(("approval:", "question:"))}
    for agent in state.agents.values():
        _reopened(state, agent, event.seq, body.settings.model_calls_max, before)
        agent.tools = tuple(spec for spec in body.tools if spec.name in {tool.name for tool in agent.tools})
        if moved_from != body.workspace:
            turns.moved(agent, event.seq, moved_from, body.workspace)
    return set(state.agents) | {event.agent}


def _reopened(state: Session, agent: Agent, seq: int, calls_max: int, before: Settings | None) -> None:
    """What had given up gets another chance when a person opens the session again; what waits goes on waiting."""
    if before is not None:
        calls.changed(state, agent, seq, session_ref(before))
    calls.reopened(state, agent, seq)
    agent.calls_max = calls_max
    if agent.ending == "budget":
        agent.ending, agent.calls_in_turn = "", 0


def _closed(state: Session, event: Event, body: SessionClosed) -> set[str]:
    state.closed, state.clean = True, True
    state.outcome, state.reason = body.outcome, body.reason
    return set()


def _prompted(state: Session, event: Event, body: UserPrompted) -> set[str]:
    said = Said(seq=event.seq, text=body.text, source="prompt")
    state.prompts += 1
    agent = state.agents.get(event.agent)
    if agent is None:
        if event.agent == "main":
            state.early = (*state.early, said)
        return {event.agent}
    if agent.cancelled:
        return {event.agent}
    agent.cause = event.seq
    if state.imported:
        imported.prompted(agent)
    if agent.turn and body.delivery == "steer" and not _is_ending(state, agent):
        agent.steers.append(msgspec.structs.replace(said, source="steer"))
        return {event.agent}
    if agent.turn and body.delivery == "replace":
        agent.queue.insert(0, said)
        turns.cancel(state, agent, event.seq, "the user gave a new prompt instead")
        return {event.agent}
    return _told(state, agent, said)


def _steered(state: Session, event: Event, body: AgentSteered) -> set[str]:
    agent = state.agents.get(event.agent)
    said = Said(seq=event.seq, text=body.text, source="steer")
    if agent is None and event.agent == "main" and state.rules >= STEERS_OUTLIVE_SINCE:  # they are the first prompt
        state.prompts += 1
        state.early = (*state.early, msgspec.structs.replace(said, source="prompt"))
        return {event.agent}
    if agent is None or agent.cancelled:
        return set()
    agent.cause = event.seq
    if agent.turn and not _is_ending(state, agent):
        agent.steers.append(said)
        return {event.agent}
    return _told(state, agent, said)


def _is_ending(state: Session, agent: Agent) -> bool:
    """Whether the turn has been cancelled: no request of it will follow that words could join, so they begin the next
    one. Under rules before `STEERS_OUTLIVE_SINCE` they went with the turn."""
    return agent.ending == "cancelled" and state.rules >= STEERS_OUTLIVE_SINCE


def _told(state: Session, agent: Agent, said: Said) -> set[str]:
    """A person's words begin a turn, or wait for one to end; a child that had finished goes on, and its parent waits
    for it again."""
    if agent.turn:
        turns.prompt(state, agent, said)
        return {agent.id}
    agents.revive(state, agent, said)
    return {agent.id, *(one.id for one in agents.above(state, agent.id))}


def _cancelled(state: Session, event: Event, body: CancelRequested) -> set[str]:
    agent = state.agents.get(event.agent)
    if body.target == "prompt":
        if agents.not_wanted(state, event.agent, body.prompt):
            return {event.agent}
        turns.take_back(state, agent, body.prompt, event.seq)
        return {event.agent}
    if agent is None:
        return set()
    why = body.why or "the user cancelled it"
    if body.target == "call":
        for key, process in state.processes.items():
            if process.call == body.call:
                state.processes[key] = msgspec.structs.replace(process, ending=True)
        turns.cancel_call(state, agent, body.call, event.seq, why)
        return {event.agent}
    return agents.cancelled(state, agent, body, event.seq)


def _tool_started(state: Session, event: Event, body: ToolStarted) -> set[str]:
    run = state.run(body.call)
    assert run is not None, f"tool.started for {body.call}, which is not open"
    run.phase, run.attempt, run.epoch, run.intent, run.cause = (
        "running",
        body.attempt,
        event.epoch,
        event.seq,
        event.seq,
    )
    run.recovery, run.observed, run.allowed_by = body.recovery, body.observed, body.allowed_by
    run.agents = len(state.agents)
    if body.recovery == "reconcilable" and body.observed.path:
        state.edits[_edited(state, run)] = run.key
    files.leads_to(state, event.agent, body.observed.tree)
    return {event.agent}


def _tool_finished(state: Session, event: Event, body: ToolFinished) -> set[str]:
    run = state.run(body.call)
    if run is None or run.phase == "done":
        return set()
    agent = state.agents[event.agent]
    agent.cause = run.cause = event.seq
    agent.steps += 1
    text = body.text
    assert isinstance(text, str) or state.imported, "the text that a model reads is bounded and stands in the body"
    woken = _released(state, agent, run)
    turns.finish(state, agent, run, text if isinstance(text, str) else "", error=body.status != "ok")
    return woken


def _edited(state: Session, run: ToolRun) -> str:
    """Names the file that a run writes to."""
    return f"{agents.root(state, run.key.partition('/')[0])}\0{run.observed.path}"


def _released(state: Session, agent: Agent, run: ToolRun) -> set[str]:
    """The file that a run wrote to is free again. Returns the agents that may have waited for it, and its own."""
    path = _edited(state, run) if run.observed.path else ""
    if state.edits.get(path) != run.key:
        return {agent.id}
    del state.edits[path]
    home = agents.home(state, agent.id)
    return {agent.id, *(one for one in state.active if state.agents[one].batch and agents.home(state, one) == home)}


def _approval_requested(state: Session, event: Event, body: ApprovalRequested) -> set[str]:
    run = state.run(body.call)
    assert run is not None, f"approval.requested for {body.call}, which is not open"
    run.phase, run.request, run.cause = "asked", event.seq, event.seq
    run.shown_sha256 = body.shown_sha256
    state.approvals[event.seq] = body.call
    return {event.agent}


def _approval_decided(state: Session, event: Event, body: ApprovalDecided) -> set[str]:
    run = state.run(body.call)
    if run is None or run.phase not in _deciding(body) or body.request != run.request:
        return set()
    if body.by == "person" and not state.imported and not _answers_what_was_shown(run, body):
        return set()
    if event.agent != body.call.partition("/")[0]:
        return set()  # any process may submit one; it decides only when it names the agent whose call it is
    state.approvals.pop(run.request, None)
    state.timers.pop(f"approval:{run.key}", None)
    agent = state.agents[event.agent]
    agent.cause = run.cause = event.seq
    if body.remember and body.decision == "allow":
        state.remembered = (*state.remembered, body.remember)
    if body.decision == "allow":
        run.phase, run.approval, run.remember = "approved", event.seq, body.remember
        return set(state.agents) if body.remember else {event.agent}
    if state.imported:
        pass  # what the model read stands in the tool.finished that follows
    elif body.by == "timeout":
        turns.unanswered(state, agent, run)
    else:
        turns.finish(state, agent, run, turns.refusal(body), error=True)
    return {event.agent}


def _deciding(body: ApprovalDecided) -> tuple[str, ...]:
    """The phases of a call in which it counts. A rule denies also what was allowed before it held."""
    later = ("approved", "retry") if (body.by, body.decision) == ("rule", "deny") else ()
    return ("new", "asked", *later)


def _answers_what_was_shown(run: ToolRun, body: ApprovalDecided) -> bool:
    """A person can decide only on what was shown to them; an answer without a digest means the request it names."""
    return run.phase == "asked" and body.shown_sha256 in ("", run.shown_sha256)


def _policy_changed(state: Session, event: Event, body: PolicyChanged) -> set[str]:
    _change_policy(state, PolicyStep(event.seq, body.mode, body.allow, body.ask, body.deny))
    return set(state.agents)


def _change_policy(state: Session, step: PolicyStep) -> None:
    state.policy = (*state.policy, step)
    state.mode = step.mode or state.mode
    if step.replaces:
        state.allow, state.ask, state.deny = step.allow, step.ask, step.deny
    else:
        state.allow, state.ask, state.deny = state.allow + step.allow, state.ask + step.ask, state.deny + step.deny


def _refused(state: Session, event: Event, body: CommandRefused) -> set[str]:
    """What a command did that is not followed is taken back. It stands just before, and nothing came of it yet."""
    if agents.not_wanted(state, event.agent, body.command):
        return {event.agent}
    if any(step.seq == body.command for step in state.policy):
        steps = [step for step in state.policy if step.seq != body.command]
        state.policy, state.mode, state.allow, state.ask, state.deny = (), "default", (), (), ()
        for step in steps:
            _change_policy(state, step)
        return set(state.agents)
    agent = state.agents.get(event.agent)
    if agent is None:
        state.early = tuple(said for said in state.early if said.seq != body.command)
        return set()
    agent.cause = event.seq
    agent.steers = [said for said in agent.steers if said.seq != body.command]
    agent.queue = [said for said in agent.queue if said.seq != body.command]
    if agent.turn and agent.items and isinstance(agent.items[-1], Said) and agent.items[-1].seq == body.command:
        if agent.woken_from is not None:
            agents.lie_down(state, agent)
            return {event.agent, *(one.id for one in agents.above(state, event.agent))}
        turns.cancel(state, agent, event.seq, "the command that began it was refused")
    for run in agent.batch:
        if run.approval == body.command and run.phase == "approved":
            _ask_again(state, run, event.seq)
        if run.answer == body.command and run.phase != "done":
            run.answer, run.answer_text, run.cause = 0, "", event.seq
            state.questions[run.question] = run.key
    return {event.agent}


def _ask_again(state: Session, run: ToolRun, seq: int) -> None:
    run.phase, run.approval, run.cause = "asked", 0, seq
    state.approvals[run.request] = run.key
    if run.remember:
        state.remembered = tuple(one for one in state.remembered if one != run.remember)


def _doubted(state: Session, event: Event, body: EffectDoubted) -> set[str]:
    run = state.run(body.call)
    if run is not None:
        run.phase, run.cause = "doubted", event.seq
    elif (agent := state.agents.get(event.agent)) and agent.call and agent.call.key == body.call:
        agent.call.phase, agent.call.cause = "doubted", event.seq
    return {event.agent}


def _reconciled(state: Session, event: Event, body: EffectReconciled) -> set[str]:
    run = state.run(body.call)
    agent = state.agents[event.agent]
    if run is None:
        if agent.call is not None and agent.call.key == body.call:
            agent.call.phase, agent.call.cause = "retry", event.seq
            if agent.call.cancelling:
                agent.call = None
                turns.interrupted(agent, event.seq, "")
        return {event.agent}
    run.cause = event.seq
    if body.verdict == "attached":
        run.phase, run.epoch = "running", event.epoch
    elif body.verdict in ("not_done", "retried"):
        run.phase = "retry"
        woken = _released(state, agent, run)
        if run.cancelling:
            turns.finish(state, agent, run, turns.NEVER_STARTED.format(why="it was cancelled"), error=True)
        return woken
    else:
        run.phase = "settling"
    return {event.agent}


def _process_started(state: Session, event: Event, body: ProcessStarted) -> set[str]:
    """Left running. The session may have been closed before this was noticed: then it is to be closed again, which is
    why these three wake their agent."""
    process = Process(
        agent=event.agent,
        call=body.call,
        pid=body.pid,
        started=body.started,
        boot_id=body.boot_id,
        command=body.command,
        epoch=event.epoch,
        seq=event.seq,
    )
    state.processes[process.key] = process
    return {event.agent}


def _process_adopted(state: Session, event: Event, body: ProcessAdopted) -> set[str]:
    key = process_key(body.pid, body.started)
    if (process := state.processes.get(key)) is not None:
        state.processes[key] = msgspec.structs.replace(process, epoch=event.epoch)
    return {event.agent}


def _process_reaped(state: Session, event: Event, body: ProcessReaped) -> set[str]:
    state.processes.pop(process_key(body.pid, body.started), None)
    return {event.agent}


def _recovered(state: Session, event: Event, body: LogRecovered) -> set[str]:
    """This log was saved from a damaged one. Where events are missing in between, the state is not known from there
    on; where all after this one is, it is, and whoever goes on is told that the world may be further."""
    if not body.first_lost:
        return set()
    state.closed = state.clean = False
    if not body.cut:
        state.recovered.append(f"#{event.seq}")
        return set()
    state.cut = event.seq
    for agent in state.agents.values():
        agent.steers.append(Said(seq=event.seq, text=CUT_NOTICE, source="notice"))
    return set()


def _imported(state: Session, event: Event, body: LogImported) -> set[str]:
    imported.begin(state, body)
    return set()


def _rewound(state: Session, event: Event, body: SessionRewound) -> set[str]:
    agent = state.agents.get(event.agent)
    if agent is not None and state.imported:
        imported.rewound(agent, body.to)
    return {event.agent}


_HANDLERS: dict[type, Callable[[Session, Event, Any], set[str]]] = {
    AgentFinished: agents.finished, AgentMessaged: agents.messaged, ResultDelivered: agents.delivered,
    QuestionAsked: agents.asked, QuestionAnswered: agents.answered, WorktreePrepared: agents.prepared,
    WorktreeRemoved: files.removed, AgentWanted: agents.wanted,
    SessionOpened: _opened, SessionClosed: _closed, AgentSpawned: agents.spawned, UserPrompted: _prompted,
    AgentSteered: _steered, CancelRequested: _cancelled, AgentPaused: agents.paused, AgentContinued: agents.continued,
    ModelRequested: calls.model_requested, ModelResponded: calls.model_responded, ModelFailed: calls.model_failed,
    ModelChanged: calls.model_changed, ToolStarted: _tool_started, ToolFinished: _tool_finished,
    FilesChanged: files.changed, FilesUnknown: files.unknown, ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided, PolicyChanged: _policy_changed, CommandRefused: _refused,
    ProcessStarted: _process_started, ProcessAdopted: _process_adopted, ProcessReaped: _process_reaped,
    EffectDoubted: _doubted, EffectReconciled: _reconciled, BudgetReached: limits.budget_reached,
    BudgetRaised: limits.budget_raised, TimerSet: limits.timer_set, TimerFired: limits.timer_fired,
    LogRecovered: _recovered, LogImported: _imported, SessionRewound: _rewound, ContextCompacted: compaction.compacted,
}  # fmt: skip
"""Types not in this table change no state."""
