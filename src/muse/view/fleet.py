"""The agents of a session as rows of a tree: what each does, what it has used, what it said last.

One vocabulary of what agents do (`Word`), for `muse agents`, the state pane of replay and whoever else names it. A row
comes from the state, and from a `Trail` of what events say and the fold does not keep. It costs what there are agents,
never what a transcript holds. This module must not know widths, colours, nor how a state was come by.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, Literal

import msgspec

from muse.event import kinds
from muse.event.content import Usage
from muse.event.envelope import Event, Redacted, Unknown
from muse.fold import agents as rules
from muse.fold.state import Agent, ModelCall, Session, ToolRun
from muse.view.agents_told import brief
from muse.view.amounts import plural
from muse.view.titles import arguments, call_title
from muse.view.visible import headline

Word = Literal[
    "idle", "preparing", "queued", "running", "waiting", "paused", "parked", "stuck", "cancelling", "done", "failed",
    "cancelled",
]  # fmt: skip
"""What an agent does. `idle`: it waits for a person's first words, or for the next after a turn that was ended."""
MEANINGS: Final[dict[Word, str]] = {
    "running": "asks its model or runs tools",
    "waiting": "for an approval, an answer, its children, or a file that another edits",
    "queued": "for a slot: so many agents work already as may",
    "preparing": "its working tree is being made",
    "paused": "by a person; nothing new starts",
    "parked": "until a date that the provider gave",
    "stuck": "a limit was reached, or the provider failed for good",
    "cancelling": "what runs is being ended",
    "idle": "waits for words",
    "done": "came to its end",
    "failed": "came to a bad end",
    "cancelled": "was ended by somebody",
}
"""In the order of a help."""
OVER: Final[frozenset[Word]] = frozenset({"done", "failed", "cancelled"})
_dated: Final = re.compile(r"until \d+-(\d\d-\d\d)T(\d\d:\d\d)[\d:.]*Z")
SAID_CHARACTERS: Final = 200
PATHS_MAX: Final = 10_000
"""Changed files of one agent that are told apart; more are not counted."""


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does: the `word`; `about`: for what it waits, why it is stuck; and its current `step`, of which
    `call` is the key."""

    word: Word
    about: str = ""
    step: str = ""
    call: str = ""

    @property
    def words(self) -> str:
        """`running`, `waiting: approval`, `parked: until 2026-03-10T07:00:00Z`."""
        return f"{self.word}: {self.about}" if self.about else self.word


class Spent(msgspec.Struct, frozen=True):
    """Tokens and cost; `input` counts all that went in, `cached` those of them that a cache of the provider held."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost_microusd: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. Times are those of headers, `seconds` from its first event until it was over, or until now. `own` is
    what it used, `below` the same with all agents below it. `approvals` and `questions` are its open ones, by seq; the
    last words are `said`, and `queued` counts words that wait for it."""

    agent: str
    parent: str
    depth: int
    name: str
    role: str
    task: str
    state: Word
    about: str
    step: str
    call: str
    own: Spent
    below: Spent
    began: str
    seconds: int
    said: str
    files: int
    children: int
    approvals: tuple[int, ...]
    questions: tuple[int, ...]
    queued: int
    background: bool
    isolation: str
    workspace: str
    model: str
    mode: str

    @property
    def words(self) -> str:
        """What it does, in words."""
        return f"{self.state}: {self.about}" if self.about else self.state

    @property
    def brief_words(self) -> str:
        """The same for a narrow column: the date of a parked one is `03-10 07:00Z`, so that nothing of it is cut."""
        found = _dated.match(self.about) if self.state == "parked" else None
        return f"parked: {found[1]} {found[2]}Z" if found else self.words


# -- what it does ------------------------------------------------------------------------------------------------------


def doing(state: Session, agent: Agent) -> Doing:
    """What an agent does, as of a state."""
    word, about = _word(state, agent)
    if word in OVER or word == "idle":
        return Doing(word=word, about=about)
    step, call = _step(agent)
    return Doing(word=word, about=about, step=step, call=call)


def _word(state: Session, agent: Agent) -> tuple[Word, str]:
    if agent.finished or not agent.turn:
        return _at_rest(state, agent)
    if agent.ending == "cancelled" or (agent.call is not None and agent.call.cancelling):
        return "cancelling", headline(agent.reason, 80)
    if _is_stuck(state, agent):
        return "stuck", _why_stuck(state, agent)
    if agent.paused:
        return "paused", _waits_for(state, agent)
    if agent.call is not None and rules.parked(state, agent.call):
        return "parked", f"until {brief(state.timers[f'retry:{agent.call.key}'].until)}"
    if agent.preparing:
        return "preparing", ""
    if agent.id in state.waiting:
        return "queued", ""
    waits = _waits_for(state, agent)
    return ("waiting", waits) if waits else ("running", "")


def _at_rest(state: Session, agent: Agent) -> tuple[Word, str]:
    """In no turn: it ended, or waits for words, or for children whose results are to wake it."""
    if not agent.finished and any(child in state.unfinished for child in agent.children):
        return "waiting", "children"
    if agent.cancelled or agent.outcome == "cancelled":
        return "cancelled", headline(agent.reason, 80)
    if agent.outcome == "done":
        return "done", ""
    if agent.outcome:
        return "failed", headline(agent.reason or (agent.result if agent.finished else ""), 80)
    return "idle", ""


def _is_stuck(state: Session, agent: Agent) -> bool:
    if agent.call is None or state.settings is not None:
        return rules.stuck(state, agent)
    return False  # an imported log does not say


def _why_stuck(state: Session, agent: Agent) -> str:
    call = agent.call
    if agent.ending != "budget" and call is not None and call.phase == "failed":
        return headline(f"{call.failure.replace('_', ' ')}: {call.message}".removesuffix(": "), 80)
    return headline(agent.reason, 80).replace("_", " ")


def _waits_for(state: Session, agent: Agent) -> str:
    """For whom all that is open of the last response waits; "" where something of it works. A person goes first: one
    approval that is open is told, whatever else runs."""
    found: list[str] = []
    works = agent.call is not None
    for run in agent.batch:
        if run.phase == "done":
            continue
        what = _waiting(state, run)
        works = works or not what
        if what and what not in found:
            found.append(what)
    people = [what for what in found if what in ("approval", "question")]
    return ", ".join(people if works else found)


def _waiting(state: Session, run: ToolRun) -> str:
    if run.phase == "asked":
        return "approval"
    if run.phase == "running" and run.recovery == "derived":
        return "children" if not run.question else "" if run.answer else "question"
    if run.phase in ("new", "approved", "retry") and state.edits and _held_by_another(state, run):
        return "edit"
    return ""


def _held_by_another(state: Session, run: ToolRun) -> bool:
    """Whether another call writes just now to the file that this one is to write to."""
    path = (arguments(run.args) or {}).get("path")
    if not isinstance(path, str) or not path:
        return False
    folder = rules.root(state, run.key.partition("/")[0])
    within = path.removeprefix(f"{folder}/").removeprefix("./")
    return state.edits.get(f"{folder}\0{within}", run.key) != run.key


def _step(agent: Agent) -> tuple[str, str]:
    """The current step in a few words, and its call."""
    if agent.call is not None:
        return _asking(agent.call), agent.call.key
    open_runs = [run for run in agent.batch if run.phase != "done"]
    if not open_runs:
        return "", ""
    first = min(open_runs, key=lambda run: _FIRST.get(run.phase, 2))
    more = f" +{len(open_runs) - 1}" if len(open_runs) > 1 else ""
    title = call_title(first.tool, first.args)
    return f"{brief(first.tool)}{more} {title}".rstrip(), first.key


_FIRST: Final = {"asked": 0, "running": 1, "doubted": 1, "settling": 1}
"""Which of several open calls is told: the one that a person is asked about, then one that runs."""
_PHASES: Final = {"doubted": ", in doubt", "settling": ", in doubt", "retry": ", again", "failed": ", failed"}


def _asking(call: ModelCall) -> str:
    what = "model, for a summary" if call.purpose == "summary" else "model"
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    return f"{what}{_PHASES.get(call.phase, '')}{again}"


# -- what only events say ----------------------------------------------------------------------------------------------


class Heard(msgspec.Struct):
    """One agent: times of its first and its last event, its last words, the files that it changed."""

    began: str = ""
    last: str = ""
    said: str = ""
    paths: set[str] = msgspec.field(default_factory=set)


class Trail:
    """What rows need of events beyond the state. `take` each of them in the order of the log, or for those that went
    before `header` (every one), `changed` (where files changed) and `words`."""

    def __init__(self) -> None:
        self.agents: dict[str, Heard] = {}
        self.last = ""
        """The time of the last event that was no command."""

    def header(self, agent: str, time: str, type_name: str) -> None:
        """An event of this agent, at this time. What people say may come days after anything went on."""
        heard = self.agents.setdefault(agent, Heard())
        heard.began = heard.began or time
        if type_name not in kinds.COMMANDS:
            heard.last = self.last = time

    def words(self, agent: str, text: str) -> None:
        """Its last words; a text without any leaves those before."""
        lines = text.strip().rsplit("\n", 1)
        if said := headline(lines[-1], SAID_CHARACTERS):
            self.agents.setdefault(agent, Heard()).said = said

    def changed(self, agent: str, body: kinds.FilesChanged) -> None:
        """Files that it changed."""
        paths = self.agents.setdefault(agent, Heard()).paths
        if body.calls and len(paths) < PATHS_MAX:
            paths.update(change.path for change in body.changes)

    def take(self, event: Event) -> None:
        """The next event."""
        self.header(event.agent, event.time, event.type)
        body = event.body
        if isinstance(body, Redacted | Unknown):
            return
        match body:
            case kinds.ModelResponded():
                for block in body.blocks:
                    if block.kind == "text":
                        self.words(event.agent, block.text)
            case kinds.AgentFinished():  # its result has more than its own words: what became of its files
                if not self.agents[event.agent].said:
                    self.words(event.agent, body.text)
            case kinds.FilesChanged():
                self.changed(event.agent, body)


# -- rows --------------------------------------------------------------------------------------------------------------


def agent_rows(state: Session, trail: Trail, now: str = "") -> tuple[AgentRow, ...]:
    """All agents as a tree, each before those below it, siblings in the order of spawning. `now` (RFC 3339) is what
    those that are not over are timed to; "": the last event, for a session in which nothing goes on."""
    children = _children(state)
    below = _sums(state, children)
    asked, questions = _by_agent(state.approvals), _by_agent(state.questions)
    found: list[AgentRow] = []
    todo = [agent_id for agent_id in reversed(children.get("", []))]
    while todo:
        agent = state.agents[todo.pop()]
        mine = children.get(agent.id, [])
        todo.extend(reversed(mine))
        found.append(
            _row(
                state,
                agent,
                trail,
                now,
                len(mine),
                below[agent.id],
                asked.get(agent.id, ()),
                questions.get(agent.id, ()),
            )
        )
    return tuple(found)


def _children(state: Session) -> dict[str, list[str]]:
    """By parent; "": those that have none here."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for agent in state.agents.values():  # in the order of spawning
        found.setdefault(agent.parent if agent.parent in seen else "", []).append(agent.id)
        seen.add(agent.id)
    return found


def _sums(state: Session, children: dict[str, list[str]]) -> dict[str, Spent]:
    """What each agent used together with all below it. Parents stand before their children."""
    found: dict[str, Spent] = {}
    for agent_id in reversed(state.agents):
        total = spent(state.agents[agent_id].usage)
        for child in children.get(agent_id, ()):
            total = _sum(total, found[child])
        found[agent_id] = total
    return found


def spent(usage: Usage) -> Spent:
    """A usage, as rows tell it."""
    went_in = usage.input + usage.cache_read + usage.cache_write
    return Spent(went_in, usage.output, usage.cache_read, usage.cost_microusd)


def _sum(a: Spent, b: Spent) -> Spent:
    return Spent(a.input + b.input, a.output + b.output, a.cached + b.cached, a.cost_microusd + b.cost_microusd)


def _by_agent(waiting: dict[int, str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for seq, call in sorted(waiting.items()):
        agent = call.partition("/")[0]
        found[agent] = (*found.get(agent, ()), seq)
    return found


def _row(
    state: Session, agent: Agent, trail: Trail, now: str, children: int, below: Spent, asked: tuple[int, ...],
    questions: tuple[int, ...],
) -> AgentRow:  # fmt: skip
    what = doing(state, agent)
    heard = trail.agents.get(agent.id) or Heard()
    still = what.word not in OVER and what.word != "idle"
    model = (agent.ref.name if agent.ref is not None else agent.model) or ""
    return AgentRow(
        agent=agent.id, parent=agent.parent, depth=agent.id.count("."), name=brief(agent.name), role=brief(agent.role),
        task=headline(agent.task, SAID_CHARACTERS), state=what.word, about=what.about, step=what.step, call=what.call,
        own=spent(agent.usage), below=below, began=heard.began,
        seconds=_between(heard.began, (now or trail.last) if still else heard.last), said=heard.said,
        files=max(len(heard.paths), len(agent.changed)), children=children, approvals=asked, questions=questions,
        queued=_queued(state, agent), background=agent.background, isolation=agent.isolation,
        workspace=agent.workspace, model=brief(model), mode=brief(agent.mode),
    )  # fmt: skip


def _queued(state: Session, agent: Agent) -> int:
    """Words of people that wait, the tasks of agents that are wanted below it among them."""
    steers = sum(said.source != "notice" for said in agent.steers)
    return len(agent.queue) + steers + len(state.wants.get(agent.id, ()))


def _between(begin: str, end: str) -> int:
    try:
        return max(int((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()), 0)
    except (ValueError, TypeError, OverflowError):  # no time, or one without a zone beside one that has it
        return 0


# -- a session ---------------------------------------------------------------------------------------------------------


class SessionRows(msgspec.Struct, frozen=True, kw_only=True):
    """One session with its agents. `state`: `running` (by process `pid`), `waiting` (running, and for a person),
    `closed`, or `stopped`: nobody runs it, and it was not closed. `problem` says why no more is known."""

    session: str
    file: str
    name: str
    workspace: str
    state: Literal["running", "waiting", "closed", "stopped"]
    pid: int
    outcome: str
    reason: str
    seq: int
    agents: tuple[AgentRow, ...]
    problem: str = ""

    @property
    def used(self) -> Spent:
        """Of all agents."""
        total = Spent()
        for row in self.agents:
            total = _sum(total, row.own)
        return total


def session_rows(
    state: Session, trail: Trail, *, file: str, pid: int, now: str, problem: str = "", name: str = ""
) -> SessionRows:
    """A session as of a state. `pid` is who runs it, 0 for nobody; then nothing of it goes on."""
    asks = bool(state.approvals or state.questions)
    how: Literal["running", "waiting", "closed", "stopped"] = "waiting" if asks else "running"
    if not pid:
        how = "closed" if state.closed else "stopped"
    return SessionRows(
        session=state.session, file=file, name=state.name or name, workspace=state.workspace, state=how, pid=pid,
        outcome=state.outcome if state.closed else "", reason=state.reason if state.closed else "", seq=state.seq,
        agents=agent_rows(state, trail, now if pid else ""), problem=problem,
    )  # fmt: skip


def counts(rows: Iterable[AgentRow]) -> str:
    """`12 agents: 8 running, 2 waiting, 2 done`."""
    found = Counter(row.state for row in rows)
    parts = ", ".join(f"{found[word]} {word}" for word in MEANINGS if found[word])
    return f"{plural(found.total(), 'agent')}: {parts}" if parts else "no agents"


def used_by(sessions: Iterable["SessionRows"]) -> Spent:
    """What all agents of some sessions used."""
    total = Spent()
    for session in sessions:
        total = _sum(total, session.used)
    return total


def news(before: Iterable[AgentRow], after: Iterable[AgentRow]) -> Iterator[AgentRow]:
    """The rows of agents that do something else than they did, or another step; and of new ones."""
    known = {row.agent: (row.state, row.about, row.step) for row in before}
    for row in after:
        if known.get(row.agent) != (row.state, row.about, row.step):
            yield row


def subtree(rows: Iterable[AgentRow], agent: str) -> Iterator[AgentRow]:
    """An agent and all below it."""
    return (row for row in rows if row.agent == agent or row.agent.startswith(f"{agent}."))
