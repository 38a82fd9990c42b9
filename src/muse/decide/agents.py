"""What is due of agents among themselves: children to be spawned, results to be given, calls that wait to be ended.

The tools `spawn`, `wait`, `message`, `cancel`, `result` and `ask` touch nothing but the log, so nothing of them is ever
in doubt: what they come to is decided here, from the state, and can be derived again (docs/decisions/0025). Nothing is
said twice: a result is part of the call that waited for it, or is delivered once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from muse.decide import approval
from muse.decide.agent_tools import Ask, Cancel, Message, Result, Spawn, Wait, Wanted, arguments
from muse.decide.context import child_prompt
from muse.decide.decision import Due
from muse.decide.permission import parse_mode
from muse.errors import ConfigError
from muse.event.content import Role
from muse.event.conversation import Answered
from muse.event.kinds import (
    AgentFinished,
    AgentMessaged,
    AgentSpawned,
    CancelRequested,
    QuestionAsked,
    ResultDelivered,
    TimerSet,
    ToolFinished,
)  # fmt: skip
from muse.fold.agents import below, stuck
from muse.fold.files import changes_text
from muse.fold.models import chosen_in_vain, model_ref, ref_of
from muse.fold.state import Agent, ModelCall, Session, ToolRun

RESULT_CHARACTERS_MAX: Final = 50_000
"""Of what a child said last, so much is its result; the whole stands in its own lane."""
CHARACTERS_A_CALL_MAX: Final = 200_000
"""Of the results that one call gives together."""
TASK_TOLD_CHARACTERS_MAX: Final = 2_000
"""Of the task that a person gave an agent, which its parent does not know, so much is told with its result."""
STRICTNESS: Final = {"plan": 0, "default": 1, "accept-edits": 2, "yolo": 3}
"""How much a mode frees."""
NOBODY: Final = "Nobody answered within {seconds} s. Decide as well as you can, and say what you assumed."


def stricter(a: str, b: str) -> str:
    """The stricter of two permission modes; "" says nothing."""
    return min((mode for mode in (a, b) if mode), key=lambda mode: STRICTNESS.get(mode, 0), default="")


# -- a child's end, and its result -------------------------------------------------------------------------------------


def ended(state: Session, agent: Agent) -> Iterator[Due]:
    """A child whose turn is over, and which nothing will wake, finishes. One whose model will never take its request,
    or was chosen for it in vain, finishes as failed, so that its parent can go on."""
    if not agent.parent or agent.finished or (agent.preparing and agent.turn):
        return
    call = agent.call
    if agent.turn and call is not None and _is_given_up(state, agent, call):
        yield Due(agent.id, call.cause, AgentFinished(outcome="failed", text=_cut(_no_answer(state, agent, call))))
        return
    if agent.turn or agent.queue or (agent.outcome == "done" and _is_to_go_on(state, agent)):
        return
    outcome = agent.outcome if agent.outcome in ("done", "cancelled") else "failed"
    said = _last_words(agent)
    parts = [agent.reason if outcome != "done" else "", said, changes_text(agent)]
    text = _cut("\n\n".join(part for part in parts if part))
    yield Due(agent.id, agent.cause, msgspec.convert({"outcome": outcome, "text": text}, AgentFinished))


def _is_to_go_on(state: Session, agent: Agent) -> bool:
    """Whether there are children whose results will begin another turn, or will be."""
    return bool(agent.undelivered) or any(_open(state, agent)) or agent.id in state.wants


NEVER_TAKEN: Final = frozenset({"invalid", "too_large"})
"""Failures of a request that no waiting mends."""


def _is_given_up(state: Session, agent: Agent, call: ModelCall) -> bool:
    """Whether neither time nor another try of the session will get this request of a child answered."""
    if call.phase != "failed" or not stuck(state, agent):
        return False
    return call.failure in NEVER_TAKEN or chosen_in_vain(state, agent)


def _no_answer(state: Session, agent: Agent, call: ModelCall) -> str:
    """What the parent is told of it."""
    ref, role = model_ref(state, agent), _role(state, agent.role)
    by = f", which {_called(role)} names," if role is not None and role.model == agent.model != "" else ""
    why = f"{call.failure}: {call.message}" if call.message else call.failure
    return f"its model {ref.name}{by} gave no answer: {why}"


def _called(role: Role) -> str:
    return f"the role {role.name}" + (f" ({role.path})" if role.path else "")


def deliveries(state: Session, agent: Agent) -> Iterator[Due]:
    """Results of children that ended in the background: into the running turn, or, when it has ended well and the last
    of them is there, into one of its own."""
    if not agent.undelivered or agent.ending or agent.cancelled:
        return
    if not agent.turn and (agent.outcome != "done" or agent.finished or any(_open(state, agent))):
        return
    child = next((state.agents[one] for one in agent.undelivered if state.agents[one].finished), None)
    if child is None:
        return
    task = f"Its task: {_cut(child.task, TASK_TOLD_CHARACTERS_MAX)}\n\n" if child.wanted else ""
    text = f"[{_titled(child)} has ended: {child.outcome}]\n{task}{child.result}"
    body = ResultDelivered(child=child.id, text=text, outcome=_outcome(child))
    yield Due(agent.id, child.finished, body)


def _outcome(child: Agent) -> Any:
    return child.outcome if child.outcome in ("done", "failed", "cancelled") else ""


def _open(state: Session, agent: Agent) -> Iterator[str]:
    return (child for child in agent.children if child in state.unfinished)


def _titled(agent: Agent) -> str:
    told = ", ".join(part for part in (agent.name, "started by the user" if agent.wanted else "") if part)
    return f"Agent {agent.id} ({told})" if told else f"Agent {agent.id}"


def _last_words(agent: Agent) -> str:
    last = next((item for item in reversed(agent.items) if isinstance(item, Answered)), None)
    return "\n".join(block.text for block in last.blocks if block.kind == "text") if last is not None else ""


def _cut(text: str, most: int = RESULT_CHARACTERS_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


# -- calls -------------------------------------------------------------------------------------------------------------


def call_due(state: Session, agent: Agent, run: ToolRun) -> Iterator[Due]:
    """What is due of a running call of one of these tools: what it brings about, then its end."""
    given = arguments(run.tool, approval.parsed(run.args) or {})
    if isinstance(given, str):
        yield _end(agent, run, given, status="error")
        return
    yield from _CALLS[type(given)](state, agent, run, given)


def _end(agent: Agent, run: ToolRun, text: str, *, status: str = "ok") -> Due:
    body = {"call": run.key, "attempt": run.attempt, "status": status, "text": _cut(text, CHARACTERS_A_CALL_MAX)}
    return Due(agent.id, run.intent, msgspec.convert(body, ToolFinished))


def _spawn(state: Session, agent: Agent, run: ToolRun, given: Spawn) -> Iterator[Due]:
    if not run.children and run.cancelling:
        yield _end(agent, run, "Nothing was spawned: the call was cancelled.", status="cancelled")
        return
    if not run.children and (wrong := unfit(state, agent, run.agents, given.agents)):
        yield _end(agent, run, wrong, status="error")
        return
    if len(run.children) < len(given.agents) and not run.cancelling:
        at = len(run.children)
        yield new_child(state, agent, given.agents[at], run.intent, call=run.key, index=at, background=given.background)
        return
    children = [state.agents[child] for child in run.children]
    if given.background:
        names = "\n".join(f"- {_titled(child)}" for child in children)
        yield _end(agent, run, f"Working in the background:\n{names}\nEach result reaches you when it is there.")
        return
    working = [child for child in children if not child.finished]
    if working and run.cancelling:
        yield from _cancels(working, run)
    elif not working:
        ends = "\n\n".join(f"{_titled(child)}: {child.outcome}\n{child.result}".rstrip() for child in children)
        yield _end(agent, run, ends, status="cancelled" if run.cancelling else "ok")


def _cancels(working: list[Agent], run: ToolRun) -> Iterator[Due]:
    """Who waits for children in the foreground takes them along when it is cancelled."""
    for child in working:
        if not child.cancelled:
            yield Due(child.id, run.cause, CancelRequested(target="tree", by=run.key, why="its parent was cancelled"))


def unfit(state: Session, agent: Agent, there: int, given: Sequence[Wanted], *, by_person: bool = False) -> str:
    """Why none of these children of an agent can be where so many agents are `there` (with `main`), "" if all can:
    said to the agent, or to the person who wants them."""
    settings = state.settings
    assert settings is not None
    if agent.depth >= settings.agents_depth_max:
        last = f"{agent.id} is on the last." if by_person else "you are on the last: do it yourself."
        return f"Agents can be spawned {settings.agents_depth_max} levels deep, and {last}"
    if there - 1 + len(given) > settings.agents_total_max:
        return f"A session may have {settings.agents_total_max:,} agents, and {there - 1:,} are there already."
    return next((wrong for one in given if (wrong := _unfit(state, agent, one, by_person=by_person))), "")


def _unfit(state: Session, agent: Agent, one: Wanted, *, by_person: bool) -> str:
    role = _role(state, one.role)
    if one.role and role is None:
        names = ", ".join(role.name for role in state.roles) or "none"
        return f"There is no role {one.role!r}. There are: {names}."
    tools = one.tools if one.tools is not None else ()
    offered = {spec.name for spec in (state.tools if by_person else agent.tools)}
    if unknown := [name for name in tools if name not in offered]:
        names = ", ".join(sorted(offered))
        if by_person:
            return f"The session has no tool {unknown[0]!r}. It has: {names}."
        return f"You have no tool {unknown[0]!r} to give. You have: {names}."
    if one.model and ref_of(state, one.model) is None:
        own = f"that of {agent.id}" if by_person else "your own"
        return f"No provider for the model {one.model!r}: leave it out for {own}."
    if not one.model and role is not None and ref_of(state, role.model) is None:
        return f"No provider for the model {role.model!r}, which {_called(role)} names: name another for this agent."
    try:
        _mode(one, role, by_person=by_person)
    except ConfigError as error:
        return f"{error}; {error.hint}."
    return ""


def _role(state: Session, name: str) -> Role | None:
    return next((role for role in state.roles if role.name == name), None) if name else None


def new_child(state: Session, agent: Agent, one: Wanted, cause: int, *, background: bool, **more: Any) -> Due:
    """The next child of an agent. `more` says who wants it: a call, which of its children this is, or a person."""
    role, id = _role(state, one.role), f"{agent.id}.{len(agent.children) + 1}"
    mode = _mode(one, role, by_person="wanted" in more)
    tools = _tools(state, agent, one, role, by_person="wanted" in more)
    isolation = one.isolation or (role.isolation if role else "") or _isolation(state, agent, tools, mode)
    body = AgentSpawned(
        task=one.task, tools=tools, parent=agent.id, background=background, name=one.name, role=one.role,
        model=one.model or (role.model if role else "") or agent.model,
        mode=stricter(mode, agent.mode), isolation=_as_isolation(isolation),
        system=child_prompt(state, agent, id, role, isolation), **more,
    )  # fmt: skip
    return Due(id, cause, body)


def _mode(one: Wanted, role: Role | None, *, by_person: bool) -> str:
    """The mode that is wanted for it: of what an agent asks for and what the role says the stricter, since a model may
    not free what a person wrote down. What a person asks for by name counts. "": none. Raises ConfigError."""
    asked, of_role = (parse_mode(mode) if mode else "" for mode in (one.mode, role.mode if role else ""))
    return asked if by_person and asked else stricter(asked, of_role)


def _as_isolation(text: str) -> Any:
    return "worktree" if text == "worktree" else "shared"


def _tools(state: Session, agent: Agent, one: Wanted, role: Role | None, *, by_person: bool) -> tuple[str, ...]:
    """The child's tools, in the order of the session's: those that were asked for, of what its role and its parent
    have. What a person asks for by name may be any of the session's. All can read again what left their own
    conversation; the deepest children cannot spawn."""
    assert state.settings is not None
    named = by_person and one.tools is not None
    of_role = role.tools if role is not None and role.tools and not named else None
    names = [spec.name for spec in (state.tools if named else agent.tools)]
    for chosen in (one.tools, of_role):
        names = [name for name in names if chosen is None or name in chosen or name == "recall"]
    if agent.depth + 1 >= state.settings.agents_depth_max:
        names = [name for name in names if name != "spawn"]
    return tuple(names)


def _isolation(state: Session, agent: Agent, tools: tuple[str, ...], mode: str) -> str:
    """A child that may write gets a working tree of its own where the workspace is a repository."""
    writes = any(spec.writes for spec in state.tools if spec.name in tools)
    planning = "plan" in (mode, state.mode, agent.mode)
    return "worktree" if writes and not planning and state.git is not None else "shared"


def _wait(state: Session, agent: Agent, run: ToolRun, given: Wait) -> Iterator[Due]:
    unknown = [name for name in given.agents if name not in agent.children]
    if unknown:
        yield _end(agent, run, f"You spawned no agent {unknown[0]!r}. You spawned: {_named(agent)}.", status="error")
        return
    meant = [state.agents[name] for name in given.agents or agent.children]
    working = [child for child in meant if not child.finished]
    met = not working or (given.until == "any" and len(working) < len(meant) and bool(given.agents))
    if not met and given.until == "any" and not given.agents:
        met = any(child.finished > run.intent for child in meant)
    states = "\n".join(f"- {_titled(child)}: {child.outcome if child.finished else 'works'}" for child in meant)
    if run.cancelling:
        yield _end(agent, run, f"The wait was cancelled.\n{states}", status="cancelled")
    elif met:
        yield _end(agent, run, f"{states}\nTheir results have reached you, or do now." if meant else "No agents.")
    elif run.timed_out:
        yield _end(agent, run, f"{given.seconds} s are over.\n{states}")
    elif given.seconds and f"wait:{run.key}" not in state.timers:
        yield Due(agent.id, run.intent, TimerSet(key=f"wait:{run.key}", duration_ms=given.seconds * 1000))


def _named(agent: Agent) -> str:
    return ", ".join(agent.children) or "none"


def _message(state: Session, agent: Agent, run: ToolRun, given: Message) -> Iterator[Due]:
    to = agent.parent if given.to == "parent" else given.to
    known = {agent.parent, *(child.id for child in below(state, agent.id))} - {""}
    if to not in known:
        text = f"There is no agent {given.to!r} that you can speak to. There are: {', '.join(sorted(known)) or 'none'}."
        yield _end(agent, run, text, status="error")
    elif state.agents[to].cancelled:
        yield _end(agent, run, f"{to} was cancelled: it reads nothing any more.", status="error")
    elif not run.answer:
        yield Due(agent.id, run.intent, AgentMessaged(to=to, text=given.text, call=run.key))
    else:
        yield _end(agent, run, f"{to} reads it before its next step.")


def _cancel(state: Session, agent: Agent, run: ToolRun, given: Cancel) -> Iterator[Due]:
    found = next((child for child in below(state, agent.id) if child.id == given.agent), None)
    if found is None:
        names = ", ".join(child.id for child in below(state, agent.id)) or "none"
        yield _end(agent, run, f"There is no agent {given.agent!r} below you. There are: {names}.", status="error")
    elif found.finished:
        ended = f"{found.id} was cancelled." if found.cancelled else f"{found.id} had ended already: {found.outcome}."
        yield _end(agent, run, ended)
    elif not found.cancelled:
        yield Due(found.id, run.intent, CancelRequested(target="tree", by=run.key, why=given.why))


def _result(state: Session, agent: Agent, run: ToolRun, given: Result) -> Iterator[Due]:
    found = next((child for child in below(state, agent.id) if child.id == given.agent), None)
    if found is None:
        names = ", ".join(child.id for child in below(state, agent.id)) or "none"
        yield _end(agent, run, f"There is no agent {given.agent!r} below you. There are: {names}.", status="error")
    elif found.finished:
        yield _end(agent, run, f"{_titled(found)}: {found.outcome}\n{found.result}".rstrip())
    else:
        yield _end(agent, run, f"{_titled(found)} has not ended.")


def _ask(state: Session, agent: Agent, run: ToolRun, given: Ask) -> Iterator[Due]:
    assert state.settings is not None
    seconds = state.settings.approval_timeout_seconds
    if run.answer:
        yield _end(agent, run, run.answer_text)
    elif run.cancelling:
        yield _end(agent, run, "The question was cancelled.", status="cancelled")
    elif not run.question:
        yield Due(agent.id, run.intent, QuestionAsked(call=run.key, text=given.question, options=given.options))
    elif run.timed_out:
        yield _end(agent, run, NOBODY.format(seconds=seconds), status="error")
    elif seconds and f"question:{run.key}" not in state.timers:
        yield Due(agent.id, run.question, TimerSet(key=f"question:{run.key}", duration_ms=seconds * 1000))


_CALLS: Final[dict[type, Callable[[Session, Agent, ToolRun, Any], Iterator[Due]]]] = {
    Spawn: _spawn, Wait: _wait, Message: _message, Cancel: _cancel, Result: _result, Ask: _ask,
}  # fmt: skip


def held_up(state: Session, agent: Agent) -> bool:
    """Whether the agent cannot go on until a person does something about a provider or a limit: it is stuck, or waits
    only for agents that are."""
    if agent.turn and stuck(state, agent):
        return True
    if agent.turn:
        runs = [run for run in agent.batch if run.phase != "done"]
        return bool(runs) and all(_waits_in_vain(state, agent, run) for run in runs)
    below_it = [state.agents[child] for child in _open(state, agent)]
    return agent.outcome == "done" and bool(below_it) and all(held_up(state, child) for child in below_it)


def _waits_in_vain(state: Session, agent: Agent, run: ToolRun) -> bool:
    if run.phase != "running" or run.tool not in ("spawn", "wait") or f"wait:{run.key}" in state.timers:
        return False
    awaited = run.children if run.tool == "spawn" else agent.children
    working = [state.agents[child] for child in awaited if child in state.unfinished]
    return bool(working) and all(held_up(state, child) for child in working)
