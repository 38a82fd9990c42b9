"""The state of a session: everything that is computed from its events, and nothing else.

Nobody outside the fold changes it; inside, it changes in place, so that an event costs what it touches and not what
exists. Transcripts only grow. All of it can be written as one checkpoint and read back equal.
"""

from typing import Literal

import msgspec

from muse.event.content import Git, Instruction, ModelRef, Observed, RecoveryClass, Role, Settings, ToolSpec, Usage
from muse.event.conversation import Said, TranscriptItem, bytes_of
from muse.event.kinds.agents import AgentWanted

STATE_VERSION = 10
"""Of the checkpoint format and of the fold that made it: raise it when either changes."""

ToolPhase = Literal["new", "asked", "approved", "running", "doubted", "settling", "retry", "done"]
ModelPhase = Literal["running", "doubted", "settling", "failed", "retry"]


class ModelCall(msgspec.Struct, kw_only=True):
    """The agent's open model call. `attempt` is the last one made, `failures` how many failed in this epoch, `status`
    the HTTP status of the last failure, `ref` the model that was asked. `retry_until` is the date until which the
    provider wants no request: the agent is parked. `items` and `request_bytes` are what was sent, `refused_bytes` what
    was too large."""

    key: str
    phase: ModelPhase
    attempt: int
    epoch: int
    intent: int
    cause: int
    failures: int = 0
    failure: str = ""
    status: int = 0
    message: str = ""
    retry_after_ms: int | None = None
    retry_until: str = ""
    jitter_permille: int = 0
    cancelling: bool = False
    ref: ModelRef | None = None
    purpose: Literal["turn", "summary"] = "turn"
    items: int = 0
    request_bytes: int = 0
    refused_bytes: int = 0


class ToolRun(msgspec.Struct, kw_only=True):
    """One tool use of the last response: from the model's words to its one result. `children` are the agents that it
    spawned; `question` is the seq of the question that it asked, `answer` that of what answered it;
    `agents` says how many agents there were when it was started."""

    key: str
    use: str
    tool: str
    args: str
    phase: ToolPhase = "new"
    attempt: int = 0
    epoch: int = 0
    intent: int = 0
    cause: int = 0
    recovery: RecoveryClass = "opaque"
    observed: Observed = Observed()
    request: int = 0
    shown_sha256: str = ""
    approval: int = 0
    allowed_by: str = ""
    remember: str = ""
    timed_out: bool = False
    cancelling: bool = False
    text: str = ""
    error: bool = False
    children: list[str] = []
    question: int = 0
    answer: int = 0
    answer_text: str = ""
    agents: int = 0


class Agent(msgspec.Struct, kw_only=True):
    """One lane. `items` is the transcript; `batch` the tool uses of the last response until all have a result.

    Of a child: `spawned_by` is the parent's call, `index` which of its children it is, `wanted` the seq at which a
    person wanted it, `workspace` the folder that it works in ("": the session's), `tree` the line of snapshots there,
    `preparing` that this folder is being made, `kept` that it was not taken away at the end.
    `finished` is the seq of its `agent.finished`, `result` what that says, `undelivered` its own children whose
    results it has not been given. `ref` is the model it asks (None: the session's), `fallback` how many fallbacks it
    has gone through, `foreign` the seq up to which other models answered. `context_tokens` is the size of the last
    request as the provider counted it with its answer,
    `added_bytes` what the transcript of `items_bytes` got since; `refused_tokens` the size of a request that was too
    large. `summary`, written by `summary_call`, is to replace the start of the first `summary_upto` items; `aside` is
    the call that waits meanwhile. What was compacted began at event `compacted_from` (0: nothing was). `woken_from`
    is what it was (`finished`, `outcome`, `reason`, `kept`) when words began the running turn. `usage_below`,
    `answered_below`, `turns_below` and `elapsed_below` count the agent and all below it.
    """

    id: str
    parent: str = ""
    depth: int = 0
    spawned: int = 0
    spawned_by: str = ""
    wanted: int = 0
    index: int = 0
    name: str = ""
    role: str = ""
    task: str = ""
    mode: str = ""
    background: bool = False
    isolation: Literal["shared", "worktree"] = "shared"
    workspace: str = ""
    base: str = ""
    tree: str = ""
    preparing: bool = False
    kept: bool = False
    children: list[str] = []
    finished: int = 0
    cancelled: bool = False
    result: str = ""
    undelivered: list[str] = []
    ref: ModelRef | None = None
    fallback: int = 0
    foreign: int = 0
    context_tokens: int = 0
    added_bytes: int = 0
    items_bytes: int = 0
    summary: str = ""
    summary_call: str = ""
    summary_upto: int = 0
    aside: ModelCall | None = None
    refused_tokens: int = 0
    compacted_from: int = 0
    usage_below: Usage = Usage()
    answered: int = 0
    answered_below: int = 0
    turns: int = 0
    turns_below: int = 0
    turn_counted: bool = False
    elapsed_seconds: int = 0
    elapsed_below: int = 0
    changed: dict[str, str] = {}
    system: str = ""
    model: str = ""
    tools: tuple[ToolSpec, ...] = ()
    items: list[TranscriptItem] = []
    steers: list[Said] = []
    queue: list[Said] = []
    batch: list[ToolRun] = []
    call: ModelCall | None = None
    next_n: int = 1
    turn: bool = False
    ending: str = ""
    outcome: str = ""
    reason: str = ""
    paused: bool = False
    calls_in_turn: int = 0
    calls_max: int = 0
    cause: int = 0
    usage: Usage = Usage()
    steps: int = 0
    woken_from: tuple[int, str, str, bool] | None = None

    def add(self, *items: TranscriptItem) -> None:
        """Put items at the end of the transcript."""
        self.items.extend(items)
        size = sum(bytes_of(item) for item in items)
        self.items_bytes += size
        self.added_bytes += size

    def saved(self) -> "Agent":
        """A copy that a speculative fold can be undone with; the transcript is shared and cut back by length."""
        return msgspec.structs.replace(
            self,
            steers=list(self.steers),
            queue=list(self.queue),
            batch=[msgspec.structs.replace(run, children=list(run.children)) for run in self.batch],
            children=list(self.children),
            undelivered=list(self.undelivered),
            changed=dict(self.changed),
            call=msgspec.structs.replace(self.call) if self.call else None,
        )


class PolicyStep(msgspec.Struct, frozen=True):
    """What an opening or a person changed at `seq`: another mode, more rules, or (`replaces`) other rules."""

    seq: int
    mode: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    replaces: bool = False


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that has not fired. `until` (RFC 3339) overrides the duration."""

    key: str
    agent: str
    duration_ms: int
    until: str
    seq: int


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a person wants, said at `seq`, and that has neither been spawned nor refused."""

    seq: int
    body: AgentWanted


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the machine that a call left running, as far as the log knows. `epoch` is that of the last owner who
    saw it run, `seq` the event that named it; `ending`: a person asked for its end."""

    agent: str
    call: str
    pid: int
    started: int
    boot_id: str
    command: str
    epoch: int
    seq: int
    ending: bool = False

    @property
    def key(self) -> str:
        """Names it in this session."""
        return process_key(self.pid, self.started)


def process_key(pid: int, started: int) -> str:
    """How a process is found among those of a session."""
    return f"{pid}:{started}"


class Session(msgspec.Struct, kw_only=True):
    """The whole. `seq` is the last event folded; `active` holds the agents that are in a turn, `unfinished` the
    children that have not finished, `held` those of them that have a slot to work in, `waiting` those that want one, in
    the order of spawning. `wants` holds the agents that people want below one, in the order in which they said so.
    `edits` holds which call writes to which file just now; `questions` the open ones. `tree` names the snapshot of the
    workspace that the changes so far lead up to, "" where they are not all known. `imported` names the format of the
    file that an imported log was made from, `missing` what that did not record."""

    session: str
    seq: int = 0
    epoch: int = 0
    opened: int = 0
    name: str = ""
    rules: int = 0
    workspace: str = ""
    git: Git | None = None
    date: str = ""
    settings: Settings | None = None
    instructions: tuple[Instruction, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    mode: str = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    remembered: tuple[str, ...] = ()
    policy: tuple[PolicyStep, ...] = ()
    agents: dict[str, Agent] = {}
    active: set[str] = set()
    unfinished: set[str] = set()
    held: set[str] = set()
    waiting: list[str] = []
    wants: dict[str, tuple[Want, ...]] = {}
    edits: dict[str, str] = {}
    questions: dict[int, str] = {}
    roles: tuple[Role, ...] = ()
    usage: Usage = Usage()
    answered: int = 0
    turns: int = 0
    elapsed_seconds: int = 0
    timers: dict[str, Timer] = {}
    approvals: dict[int, str] = {}
    processes: dict[str, Process] = {}
    closed: bool = False
    clean: bool = True
    outcome: str = ""
    reason: str = ""
    prompts: int = 0
    early: tuple[Said, ...] = ()
    unknown: list[str] = []
    redacted: list[str] = []
    recovered: list[str] = []
    cut: int = 0
    tree: str = ""
    imported: str = ""
    missing: tuple[str, ...] = ()

    @property
    def incomplete(self) -> bool:
        """Whether something that belongs here could not be folded: for reading only, nothing may be decided from it."""
        return bool(self.unknown or self.redacted or self.recovered or self.imported)

    def run(self, key: str) -> ToolRun | None:
        """The open tool run with this key, if its agent still has it."""
        agent = self.agents.get(key.partition("/")[0])
        return next((run for run in agent.batch if run.key == key), None) if agent else None


class Undo(msgspec.Struct):
    """What is needed to take back a speculative fold: the session's own small parts, and touched agents."""

    session: Session
    agents: dict[str, tuple[Agent | None, int]] = {}


def remember(state: Session) -> Undo:
    """Begin a speculative fold of `state`; pass each agent to `touch` before it changes."""
    return Undo(
        msgspec.structs.replace(
            state,
            agents={},
            active=set(state.active),
            unfinished=set(state.unfinished),
            held=set(state.held),
            waiting=list(state.waiting),
            wants=dict(state.wants),
            edits=dict(state.edits),
            questions=dict(state.questions),
            timers=dict(state.timers),
            approvals=dict(state.approvals),
            processes=dict(state.processes),
            unknown=list(state.unknown),
            redacted=list(state.redacted),
            recovered=list(state.recovered),
        )
    )


def touch(undo: Undo, state: Session, agent_id: str) -> None:
    """Save an agent before its first change since `remember`."""
    if agent_id not in undo.agents:
        agent = state.agents.get(agent_id)
        undo.agents[agent_id] = (agent.saved(), len(agent.items)) if agent else (None, 0)


def undone(undo: Undo, state: Session) -> Session:
    """The state as it was at `remember`. The given `state` must not be used again."""
    agents = state.agents
    for agent_id, (agent, length) in undo.agents.items():
        if agent is None:
            agents.pop(agent_id, None)
        else:
            del agent.items[length:]
            agents[agent_id] = agent
    return msgspec.structs.replace(undo.session, agents=agents)
