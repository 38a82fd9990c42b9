"""The state pane: what was true after a step, as lines for people and as one value for programs.

Agents with what each is doing, what is open (calls, approvals, questions, timers, processes), mode and rules, tokens,
cost and the size of the context. Shared by the screen of `muse replay` and by `replay --state`. This module must not
know widths or colours, nor how a state was come by.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from muse.event.content import Usage
from muse.fold.state import Agent, Session, ToolRun
from muse.view.agents_told import brief, called_words
from muse.view.amounts import duration, money, plural, size
from muse.view.fleet import OVER, Doing, doing
from muse.view.line import Line, Look
from muse.view.summary import tokens
from muse.view.titles import call_title
from muse.view.visible import headline, middle, one_line, visible

LISTED_MAX: Final = 100
"""Of each kind (agents, calls, rules …) so many are listed; the rest is counted."""
WORKSPACE_COLUMNS: Final = 48


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large an agent's context is: items and bytes of its last request (event `seq`), and the tokens that the
    provider counted in it, 0 where it has not answered."""

    seq: int
    items: int
    request_bytes: int
    tokens: int = 0


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person that nobody has answered."""

    seq: int
    agent: str
    text: str


class Beside(msgspec.Struct, frozen=True):
    """What belongs into the pane and is no part of the fold."""

    sizes: Mapping[str, Size] = {}
    questions: Sequence[Question] = ()


NOTHING_BESIDE: Final = Beside()


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call without its result. `since`: the event that brought it where it is; `approval`: the request that waits."""

    call: str
    tool: str
    title: str
    phase: str
    attempt: int
    since: int
    approval: int = 0


class AgentNow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent at this step. `state` and `about` are those of `view.fleet`, `doing` is all of it in a few words;
    `calls` the open ones; `queued` words that wait; `wanted` where people want agents below it; `used_below` what it
    used with all below it."""

    agent: str
    parent: str
    name: str
    role: str
    state: str
    about: str
    doing: str
    turn: bool
    outcome: str
    paused: bool
    calls: tuple[OpenCall, ...]
    queued: int
    wanted: tuple[int, ...]
    items: int
    request_bytes: int
    request_tokens: int
    usage: Usage
    usage_below: Usage
    steps: int


class WaitingTimer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that has not fired; `until` is a date, where a provider gave one."""

    key: str
    agent: str
    seq: int
    duration_ms: int
    until: str


class WaitingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that nobody has given or refused."""

    seq: int
    agent: str
    call: str
    what: str


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a call left running, as far as the log knows."""

    pid: int
    agent: str
    call: str
    command: str
    seq: int


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pane says; `--state --json` prints it. `unsure` names what could not be folded; `imported` is
    the format of the file that the log was made from, `missing` what that did not record."""

    session: str
    seq: int
    name: str
    closed: bool
    outcome: str
    reason: str
    epoch: int
    workspace: str
    model: str
    mode: str
    allow: tuple[str, ...]
    ask: tuple[str, ...]
    deny: tuple[str, ...]
    remembered: tuple[str, ...]
    agents: tuple[AgentNow, ...]
    approvals: tuple[WaitingApproval, ...]
    questions: tuple[Question, ...]
    timers: tuple[WaitingTimer, ...]
    processes: tuple[RunningProcess, ...]
    usage: Usage
    unsure: tuple[str, ...]
    imported: str = ""
    missing: tuple[str, ...] = ()


def panel(state: Session, beside: Beside = NOTHING_BESIDE) -> Panel:
    """What the pane says of a state."""
    agents = tuple(_agent(state, agent, beside.sizes.get(agent.id)) for agent in state.agents.values())
    settings = state.settings
    usage: Usage = Usage()
    for agent in state.agents.values():
        usage = _sum(usage, agent.usage)
    return Panel(
        session=state.session, seq=state.seq, name=state.name, closed=state.closed, outcome=state.outcome,
        reason=state.reason, epoch=state.epoch, workspace=state.workspace,
        model=f"{settings.provider}/{settings.model}" if settings else "", mode=state.mode,
        allow=state.allow, ask=state.ask, deny=state.deny, remembered=state.remembered,
        agents=agents, approvals=tuple(_approvals(state)), questions=tuple(beside.questions),
        timers=tuple(
            WaitingTimer(key=one.key, agent=one.agent, seq=one.seq, duration_ms=one.duration_ms, until=one.until)
            for one in sorted(state.timers.values(), key=lambda one: one.seq)
        ),
        processes=tuple(
            RunningProcess(pid=one.pid, agent=one.agent, call=one.call, command=one.command, seq=one.seq)
            for one in sorted(state.processes.values(), key=lambda one: one.seq)
        ),
        usage=usage, unsure=(*state.unknown, *state.redacted, *state.recovered),
        imported=state.imported, missing=state.missing,
    )  # fmt: skip


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in Usage.__struct_fields__})


def _agent(state: Session, agent: Agent, sent: Size | None) -> AgentNow:
    calls = tuple(_open(run) for run in agent.batch if run.phase != "done")
    what = doing(state, agent)
    return AgentNow(
        agent=agent.id, parent=agent.parent, name=agent.name, role=agent.role, state=what.word, about=what.about,
        doing=_doing(state, agent, what), turn=agent.turn, outcome=agent.outcome,
        paused=agent.paused, calls=calls, queued=len(agent.queue) + len(agent.steers),
        wanted=tuple(want.seq for want in state.wants.get(agent.id, ())),
        items=sent.items if sent else 0, request_bytes=sent.request_bytes if sent else 0,
        request_tokens=sent.tokens if sent else 0, usage=agent.usage,
        usage_below=agent.usage_below if agent.children else agent.usage, steps=agent.steps,
    )  # fmt: skip


def _open(run: ToolRun) -> OpenCall:
    return OpenCall(
        call=run.key, tool=run.tool, title=call_title(run.tool, run.args), phase=run.phase, attempt=run.attempt,
        since=run.cause, approval=run.request if run.phase == "asked" else 0,
    )  # fmt: skip


def _doing(state: Session, agent: Agent, what: Doing) -> str:
    """In a few words what an agent is doing."""
    if not what.step:
        reason = agent.reason if what.word in OVER and not what.about else ""
        return f"{what.words}{f': {headline(reason, 120)}' if reason else ''}"
    if agent.call is not None:
        waits = ", waits to ask again" if f"retry:{agent.call.key}" in state.timers and what.word == "running" else ""
        return f"{what.words}, {what.step}{waits} ({what.call})"
    return f"{what.words}, {_batch(agent.batch)}"


def _batch(batch: list[ToolRun]) -> str:
    counts = {"asked": 0, "running": 0, "waiting": 0, "in doubt": 0, "done": 0}
    named = {"asked": "asked", "running": "running", "done": "done", "doubted": "in doubt", "settling": "in doubt"}
    for run in batch:
        counts[named.get(run.phase, "waiting")] += 1
    words = {"asked": "wait for approval", "running": "running", "waiting": "to start"}
    parts = [f"{number} {words.get(what, what)}" for what, number in counts.items() if number]
    return f"{plural(len(batch), 'call')}: {', '.join(parts)}"


def _approvals(state: Session) -> Iterator[WaitingApproval]:
    for seq, call in sorted(state.approvals.items()):
        run = state.run(call)
        what = f"{run.tool} {call_title(run.tool, run.args)}".rstrip() if run else ""
        yield WaitingApproval(seq=seq, agent=call.partition("/")[0], call=call, what=what)


# -- as lines --------------------------------------------------------------------------------------------------------


def panel_lines(now: Panel) -> Iterator[Line]:
    """The pane for people. Every text is safe to show."""
    for line in _lines(now):
        yield Line(visible(line.text.replace("\n", " ").replace("\t", " ")), line.look)


def _lines(now: Panel) -> Iterator[Line]:
    yield from _session_lines(now)
    yield _title("agents", len(now.agents))
    for agent in now.agents[:LISTED_MAX]:
        yield from _agent_lines(agent)
    yield from _more(len(now.agents))
    yield from _open_lines(now)
    yield from _rule_lines(now)


def _session_lines(now: Panel) -> Iterator[Line]:
    reason = f": {headline(now.reason, 200)}" if now.reason else ""
    yield Line(f"after #{now.seq}: {f'closed, {brief(now.outcome)}{reason}' if now.closed else 'open'}", "head")
    if now.imported:
        missing = f"; not recorded: {', '.join(brief(part) for part in now.missing)}" if now.missing else ""
        yield Line(f"imported from {brief(now.imported)}{missing}", "head")
    if now.name:
        yield Line(f"name     {brief(now.name)}")
    if now.model:
        yield Line(f"model    {brief(now.model)}")
    yield Line(f"mode     {brief(now.mode)}")
    if now.workspace:
        yield Line(f"in       {middle(one_line(now.workspace), WORKSPACE_COLUMNS)}")
    yield Line(f"used     {tokens(now.usage) or 'nothing counted'}")
    for what in now.unsure[:LISTED_MAX]:
        yield Line(f"not all is known: {brief(what)} could not be folded", "bad")
    yield from _more(len(now.unsure))


def _title(what: str, number: int) -> Line:
    return Line(f"{what} ({number:,})" if number else f"{what}: none", "head" if number else "dim")


def _more(number: int) -> Iterator[Line]:
    if number > LISTED_MAX:
        yield Line(f"  … and {number - LISTED_MAX:,} more", "dim")


def _agent_lines(agent: AgentNow) -> Iterator[Line]:
    called = called_words(agent.name, agent.role)
    yield Line(f"  {agent.agent}{f' {called}' if called else ''}  {agent.doing}", "plain" if agent.turn else "dim")
    if agent.request_bytes:
        counted = f", {agent.request_tokens:,} tokens" if agent.request_tokens else ""
        yield Line(f"    context {plural(agent.items, 'item')}, {size(agent.request_bytes)}{counted}", "dim")
    if used := tokens(agent.usage):
        below = tokens(agent.usage_below) if agent.usage_below != agent.usage else ""
        yield Line(f"    used {used}{f'; with all below it {below}' if below else ''}", "dim")
    if agent.queued:
        yield Line(f"    {plural(agent.queued, 'message')} for it wait")
    for seq in agent.wanted[:LISTED_MAX]:
        yield Line(f"    an agent below it is wanted since #{seq}")


_PHASES: Final = {
    "new": ("·", "new"), "asked": ("?", "waits for approval"), "approved": ("·", "allowed, not started"),
    "running": ("…", "running"), "doubted": ("!", "in doubt"), "settling": ("!", "in doubt, being settled"),
    "retry": ("·", "to be started again"),
}  # fmt: skip


def _open_lines(now: Panel) -> Iterator[Line]:
    calls = [call for agent in now.agents for call in agent.calls]
    yield _title("open calls", len(calls))
    for call in calls[:LISTED_MAX]:
        mark, words = _PHASES[call.phase]
        again = f", attempt {call.attempt}" if call.attempt > 1 else ""
        look: Look = "bad" if mark == "!" else "plain"
        yield Line(f"  {mark} {call.call}  {brief(call.tool)} {headline(call.title, 120)}".rstrip(), look)
        yield Line(f"    {words} since #{call.since}{again}", "dim")
    yield from _more(len(calls))
    yield _title("approvals waiting", len(now.approvals))
    for one in now.approvals[:LISTED_MAX]:
        yield Line(f"  ? #{one.seq}  {one.call}  {headline(one.what, 120)}".rstrip())
    yield from _more(len(now.approvals))
    if now.questions:
        yield _title("questions", len(now.questions))
    for question in now.questions[:LISTED_MAX]:
        yield Line(f"  ? #{question.seq}  {question.agent}: {headline(question.text, 200)}")
    yield from _more(len(now.questions))
    yield _title("timers", len(now.timers))
    for timer in now.timers[:LISTED_MAX]:
        length = f"until {brief(timer.until)}" if timer.until else duration(timer.duration_ms)
        name = "budget of time" if timer.key.startswith("budget:") else brief(timer.key)
        yield Line(f"  … {name}  {length}  since #{timer.seq}")
    yield from _more(len(now.timers))
    yield _title("processes left running", len(now.processes))
    for process in now.processes[:LISTED_MAX]:
        yield Line(f"  · {process.pid}  {headline(process.command, 120)}  of {brief(process.call)}, #{process.seq}")
    yield from _more(len(now.processes))


def _rule_lines(now: Panel) -> Iterator[Line]:
    rules = [(name, rule) for name in ("allow", "ask", "deny") for rule in getattr(now, name)]
    rules += [("always", rule) for rule in now.remembered]
    yield _title("rules", len(rules))
    for name, rule in rules[:LISTED_MAX]:
        yield Line(f"  {name:<7}{brief(rule)}")
    yield from _more(len(rules))


# -- as JSON ---------------------------------------------------------------------------------------------------------

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def panel_json(now: Panel) -> str:
    """One line: `{"seq": …, "state": …}`."""
    return _ENCODER.encode({"seq": now.seq, "state": now}).decode()


def spent(usage: Usage) -> str:
    """Tokens and cost in the room of a status line: `12,345 tokens, $0.0042`."""
    counted = usage.input + usage.cache_read + usage.cache_write + usage.output
    cost = f", {money(usage.cost_microusd)}" if usage.cost_microusd else ""
    return f"{counted:,} tokens{cost}"
