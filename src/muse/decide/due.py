"""The rules: what may happen next, computed from state alone.

`due` gives every decision that may be taken now. The owner appends them, and the fold of each changes what is due,
until nothing is. A verifier derives them again from the log: each recorded decision must be due just before it.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Literal

import msgspec

from muse.decide import agents, applying, approval, compaction, limits, policy, wanted
from muse.decide.context import Rules, next_request, system_prompt
from muse.decide.decision import Due
from muse.decide.paths import named_path
from muse.errors import ConfigError
from muse.event.content import RecoveryClass, Settings
from muse.event.kinds import (
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    ContextCompacted,
    EffectDoubted,
    ModelRequested,
    SessionClosed,
    TimerSet,
    ToolStarted,
)  # fmt: skip
from muse.fold.agents import root, stuck
from muse.fold.models import model_ref
from muse.fold.state import Agent, Session, ToolRun
from muse.fold.uses import USES_REMEMBERED, recovery_of, waits
from muse.fold.uses import spec_of as spec_of

OUTSIDE = "{path} is outside the workspace, and file tools stay inside it: give a path relative to it, or use shell"
NOTHING_CAN_RUN = "nothing can run: no such tool, or arguments that are no JSON object"


def due(state: Session, agents: Iterable[str], rules: Rules) -> list[Due]:
    """The decisions due now for these agents and for the session itself, in a fixed order."""
    return list(upcoming(state, agents, rules))


def upcoming(state: Session, agents: Iterable[str], rules: Rules) -> Iterator[Due]:
    """As `due`, one at a time: for an owner that takes one, folds it, and asks again. The state must not change
    meanwhile."""
    if state.settings is None or state.incomplete:
        return
    if "main" not in state.agents:
        yield _spawn_main(state)
        return
    nothing = True
    for one in limits.clock(state):
        nothing = False
        yield one
    for agent_id in sorted(agents):
        if (agent := state.agents.get(agent_id)) is not None:
            for one in _agent(state, agent, rules):
                nothing = False
                yield one
    if nothing:
        yield from _close(state)


def _spawn_main(state: Session) -> Due:
    body = AgentSpawned(
        system=system_prompt(state), tools=tuple(tool.name for tool in state.tools), workspace=state.workspace
    )
    return Due("main", state.opened, body)


def _agent(state: Session, agent: Agent, rules: Rules) -> Iterator[Due]:
    assert state.settings is not None
    yield from _doubts(state, agent)
    yield from wanted.wanted(state, agent)
    yield from agents.ended(state, agent)
    if not agent.paused:
        yield from agents.deliveries(state, agent)
    yield from _calls_of_the_log(state, agent)
    if not agent.turn or agent.paused or agent.preparing:
        return
    yield from _batch(state, agent, state.settings)
    if not agent.batch and not agent.ending:
        yield from _model(state, agent, rules)


def _calls_of_the_log(state: Session, agent: Agent) -> Iterator[Due]:
    """What is due of calls that touch nothing but the log; of an agent that is paused, of those that are to end."""
    for run in agent.batch:
        if run.phase == "running" and run.recovery == "derived" and (run.cancelling or not agent.paused):
            yield from agents.call_due(state, agent, run)


def may_start(state: Session, agent: Agent) -> bool:
    """Whether the agent may start something that takes time: a child needs a slot for that."""
    return not agent.parent or agent.id in state.held


def _doubts(state: Session, agent: Agent) -> Iterator[Due]:
    for run in agent.batch:
        if run.phase == "running" and run.epoch < state.epoch and run.recovery != "derived":
            yield Due(agent.id, run.intent, EffectDoubted(call=run.key, attempt=run.attempt, recovery=run.recovery))
    call = agent.call
    if call is not None and call.phase == "running" and call.epoch < state.epoch:
        yield Due(agent.id, call.intent, EffectDoubted(call=call.key, attempt=call.attempt, recovery="repeatable"))


def _batch(state: Session, agent: Agent, settings: Settings) -> Iterator[Due]:
    """What is due of a batch of tool uses, in one pass over it. A use may start within the parallel limit, and after
    every earlier one of the batch where one of the two edits files."""
    running = sum(run.phase in ("running", "doubted", "settling") and run.recovery != "derived" for run in agent.batch)
    may = may_start(state, agent)
    any_before = edit_before = False
    for run in agent.batch:
        if run.phase == "done":
            continue
        recovery = recovery_of(agent, run)
        if recovery == "derived":
            yield from _tool(state, agent, run, settings, may_start=not edit_before)
            continue
        edits = recovery == "reconcilable"
        held_back = waits(recovery, any_before=any_before, edit_before=edit_before)
        held_back = held_back or (edits and _is_taken(state, agent, run))
        room = may and running < settings.parallel_tools_max
        yield from _tool(state, agent, run, settings, may_start=room and not held_back)
        any_before, edit_before = True, edit_before or edits


def _is_taken(state: Session, agent: Agent, run: ToolRun) -> bool:
    """Whether another call writes to the same file just now."""
    if not state.edits:
        return False
    folder = root(state, agent.id)
    path, _ = named_path(approval.parsed(run.args) or {}, folder)
    return state.edits.get(f"{folder}\0{path}", run.key) != run.key


def _tool(state: Session, agent: Agent, run: ToolRun, settings: Settings, *, may_start: bool) -> Iterator[Due]:
    if run.phase == "new" and not agent.ending:
        yield from _judged(state, agent, run, may_start=may_start)
    elif run.phase == "asked":
        yield from _asked(state, agent, run, settings)
    elif run.phase in ("approved", "retry"):
        yield from _allowed(state, agent, run, may_start=may_start)


def _judged(state: Session, agent: Agent, run: ToolRun, *, may_start: bool) -> Iterator[Due]:
    verdict = judge(state, agent, run)
    if verdict.decision == "deny":
        yield Due(agent.id, run.cause, _ruled(run, verdict))
    elif verdict.decision == "ask":
        text = applying.shown(state, run)
        body = ApprovalRequested(
            call=run.key,
            tool=run.tool,
            shown=text,
            shown_sha256=approval.digest(text),
            rule=verdict.rule,
            remember=verdict.remember,
        )
        yield Due(agent.id, run.cause, body)
    elif may_start:
        yield _start(state, agent, run, verdict.rule)


def _asked(state: Session, agent: Agent, run: ToolRun, settings: Settings) -> Iterator[Due]:
    if run.timed_out:
        body = ApprovalDecided(call=run.key, decision="deny", by="timeout", request=run.request)
        yield Due(agent.id, run.cause, body)
        return
    verdict = judge(state, agent, run)
    if verdict.decision != "ask":
        yield Due(agent.id, run.request, _ruled(run, verdict))
        return
    key = f"approval:{run.key}"
    if settings.approval_timeout_seconds and key not in state.timers:
        yield Due(agent.id, run.request, TimerSet(key=key, duration_ms=settings.approval_timeout_seconds * 1000))


def _allowed(state: Session, agent: Agent, run: ToolRun, *, may_start: bool) -> Iterator[Due]:
    """What was allowed, and has not started or not happened, starts, unless what holds by now denies it: a stricter
    mode or a rule of a later opening, say."""
    verdict = judge(state, agent, run)
    if verdict.decision == "deny":
        yield Due(agent.id, run.cause, _ruled(run, verdict))
    elif may_start:
        yield _start(state, agent, run)


def _ruled(run: ToolRun, verdict: policy.Verdict) -> ApprovalDecided:
    return ApprovalDecided(
        call=run.key, decision="deny" if verdict.decision == "deny" else "allow", by="rule", request=run.request,
        rule=verdict.rule,
    )  # fmt: skip


def _start(state: Session, agent: Agent, run: ToolRun, rule: str = "") -> Due:
    body = ToolStarted(
        call=run.key,
        attempt=run.attempt + 1,
        tool=run.tool,
        args=run.args,
        recovery=recovery_of(agent, run),
        allowed_by=rule or run.allowed_by,
        approval=run.approval,
    )
    return Due(agent.id, run.cause, body)


def _model(state: Session, agent: Agent, rules: Rules) -> Iterator[Due]:
    call = agent.call
    if call is not None and call.phase == "failed":
        yield from limits.after_failure(state, agent, call)
    elif may_start(state, agent) and (call is None or call.phase == "retry"):
        cause = call.cause if call is not None else agent.cause
        if (stop := limits.reached(state, agent)) is not None:
            yield Due(agent.id, cause, stop)
        elif isinstance(before := compaction.before_request(state, agent), ContextCompacted):
            yield Due(agent.id, cause, before)
        elif call is None or before:
            yield _request(state, agent, rules, f"{agent.id}/{agent.next_n}", 1, cause, before or "turn")
        else:
            yield _request(state, agent, rules, call.key, call.attempt + 1, cause, call.purpose)


def _request(
    state: Session,
    agent: Agent,
    rules: Rules,
    key: str,
    attempt: int,
    cause: int,
    purpose: Literal["turn", "summary"],
) -> Due:
    assert state.settings is not None
    built, ref = next_request(state, agent, rules, purpose), model_ref(state, agent)
    body = ModelRequested(
        call=key,
        attempt=attempt,
        provider=ref.provider,
        model=ref.model,
        builder=built.builder,
        items=built.items,
        request_sha256=built.sha256,
        request_bytes=len(built.body),
        purpose=purpose,
    )
    return Due(agent.id, cause, body, built.body)


def _close(state: Session) -> Iterator[Due]:
    """When nobody can go on by himself, and a person has spoken at least once, the session closes. It ends as `main`
    did, unless something kept an agent from going on."""
    main = state.agents["main"]
    if state.closed or not state.prompts or state.held or state.waiting:
        return
    if any(not agents.held_up(state, state.agents[one]) for one in chain(state.active, state.unfinished)):
        return
    if any(agents.deliveries(state, main)) and not main.paused:
        return
    if any(True for one in state.wants if one in state.agents for _ in wanted.wanted(state, state.agents[one])):
        return
    halted = main if main.turn and stuck(state, main) else _first_halted(state)
    if halted is None:
        outcome, reason = main.outcome or "done", main.reason
    else:
        outcome, reason = _halt(state, halted)
    yield Due("main", main.cause, msgspec.convert({"outcome": outcome, "reason": reason}, SessionClosed))


def _first_halted(state: Session) -> Agent | None:
    """The first child that cannot go on, in the order of spawning."""
    halted = [state.agents[one] for one in state.unfinished if stuck(state, state.agents[one])]
    return min(halted, key=lambda agent: agent.spawned, default=None)


def _halt(state: Session, agent: Agent) -> tuple[str, str]:
    """Why an agent cannot go on, as an outcome of the session."""
    who = "" if agent.id == "main" else f"{agent.id}: "
    if agent.call is not None and agent.ending != "budget":
        return "provider", f"{who}{agent.call.failure}: {agent.call.message}"
    return "budget", f"{who}{agent.reason}"


def judge(state: Session, agent: Agent, run: ToolRun) -> policy.Verdict:
    """What the permission rules say of a tool use, in the stricter of the session's mode and the agent's own."""
    spec = spec_of(agent, run.tool)
    if spec is None or approval.parsed(run.args) is None:
        return policy.Verdict(decision="allow", rule=NOTHING_CAN_RUN, remember="")
    known = _policy(agents.stricter(state.mode, agent.mode), state.allow, state.ask, state.deny, state.remembered)
    args = approval.parsed(run.args) or {}
    paths = applying.applied_paths(state, agent.id, args) if run.tool == applying.TOOL else ()
    return _verdict(run.tool, run.args, spec.recovery, spec.writes, root(state, agent.id), known, paths)


@lru_cache(maxsize=USES_REMEMBERED)
def _verdict(
    tool: str,
    text: str,
    recovery: RecoveryClass,
    writes: bool,
    workspace: str,
    known: policy.Policy,
    paths: tuple[str, ...],
) -> policy.Verdict:
    """Remembered, because every use of a batch is looked at again until it has started. `paths` are those that do not
    stand in the arguments."""
    args = approval.parsed(text)
    assert args is not None, "asked of arguments that are no object"
    path, outside = named_path(args, workspace) if recovery in ("pure", "reconcilable") else ("", False)
    if outside:
        return policy.Verdict(decision="deny", rule=OUTSIDE.format(path=path), remember="")
    request = policy.Request(
        tool=tool,
        recovery_class=recovery,
        args=args,
        paths=paths or ((path,) if path else ()),
        writes=writes,
        outside=outside,
        workspace=workspace,
    )
    return policy.judge(request, known)


@lru_cache(maxsize=64)
def _policy(
    mode: str, allow: tuple[str, ...], ask: tuple[str, ...], deny: tuple[str, ...], remembered: tuple[str, ...]
) -> policy.Policy:
    """The rules as they can be judged. What any process may have submitted is not trusted to be well formed.

    A rule to allow that cannot be read allows nothing; while one to ask or deny cannot be read, no rule allows.
    """
    unreadable: list[str] = []

    def parse(texts: tuple[str, ...]) -> tuple[policy.Rule, ...]:
        rules: list[policy.Rule] = []
        for text in texts:
            try:
                rules.append(policy.parse_rule(text))
            except ConfigError:
                unreadable.append(text)
        return tuple(rules)

    asks, denies = parse(ask), parse(deny)
    try:
        known = policy.parse_mode(mode)
    except ConfigError:
        known = "default"
    if unreadable:
        return policy.Policy(
            mode="plan" if known == "plan" else "default", allow=(), ask=asks, deny=denies, remembered=()
        )
    return policy.Policy(mode=known, allow=parse(allow), ask=asks, deny=denies, remembered=parse(remembered))
