"""A session of many agents and everything around it, played move by move, with the promises looked at after each.

Whoever plays picks which due decision is taken, how each effect ends, what people say and when the host dies. Events go
through their stored bytes, so what is folded live is what a replay would fold. What must hold is counted here, beside
the fold, from the events alone.
"""

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec

from muse.decide import agent_tools
from muse.decide.context import Builder, Rules, next_request
from muse.decide.decision import Due
from muse.decide.due import due
from muse.effect.model import scripted
from muse.event import codec
from muse.event.content import Block, FileChange, Git, Host, ModelRef, Role, Settings, ToolSpec, Usage
from muse.event.conversation import Answered, Resulted, TranscriptItem
from muse.event.envelope import Event, decode
from muse.event.kinds import (
    COMMANDS,
    KINDS,
    AgentContinued,
    AgentFinished,
    AgentSpawned,
    AgentWanted,
    ApprovalDecided,
    CancelRequested,
    CommandRefused,
    CommandVersion,
    EffectReconciled,
    FilesChanged,
    FilesUnknown,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    QuestionAnswered,
    ResultDelivered,
    SessionClosed,
    SessionOpened,
    TimerFired,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
    WorktreePrepared,
    WorktreeRemoved,
)
from muse.fold.evolve import evolve
from muse.fold.state import Agent, ModelCall, Session, ToolRun, remember, undone
from muse.runtime.checkpoint import read_state, write_state

RULES = Rules(version=1, builders={"scripted": Builder(scripted.BUILDER, scripted.build)})
TOOLS = (
    ToolSpec(name="read", description="", schema="{}", recovery="pure"),
    ToolSpec(name="write", description="", schema="{}", recovery="reconcilable", writes=True),
    ToolSpec(name="shell", description="", schema="{}", recovery="attachable", writes=True),
    ToolSpec(name="apply", description="", schema="{}", recovery="reconcilable", writes=True),
    ToolSpec(name="post", description="", schema="{}", recovery="opaque", writes=True),
    *agent_tools.agent_tools(),
)
TYPE_OF = {kind.body: name for name, kind in KINDS.items()}
VERDICTS = {
    "pure": ["retried"],
    "reconcilable": ["done", "not_done", "unknown"],
    "attachable": ["attached", "not_done", "unknown"],
    "opaque": ["unknown"],
}
FAILURES = ["rate_limited", "overloaded", "network", "cut", "auth", "invalid", "too_large"]
ROLES = (Role(name="scout", tools=("read", "spawn", "ask"), mode="plan"), Role(name="smith", isolation="worktree"))
MOVES_TO_REST_MAX = 6_000
"""Enough for every agent of a world to end what it has begun."""

Use = tuple[str, str]


def task(**more: Any) -> dict[str, Any]:
    return {"task": "t", **more}


AGENT_USES: list[Use] = [
    (name, json.dumps(args))
    for name, args in (
        ("spawn", task()), ("spawn", {"agents": [task(name="a"), task(name="b", role="scout")]}),
        ("spawn", task(background=True)), ("spawn", {"agents": [task(), task(), task()], "background": True}),
        ("spawn", task(isolation="worktree")), ("spawn", task(role="smith", background=True)),
        ("spawn", task(tools=["read", "spawn"])), ("spawn", task(role="nobody")), ("spawn", task(model="other/x")),
        ("spawn", task(model="near/x")),
        ("spawn", {"agents": []}), ("spawn", task(mode="yolo")), ("wait", {}), ("wait", {"until": "any"}),
        ("wait", {"agents": ["CHILD"], "seconds": 9}), ("wait", {"agents": ["main.99"]}),
        ("message", {"to": "CHILD", "text": "hm"}), ("message", {"to": "parent", "text": "so far"}),
        ("cancel", {"agent": "CHILD"}), ("cancel", {"agent": "CHILD", "why": "enough"}), ("result", {"agent": "CHILD"}),
        ("ask", {"question": "Which?", "options": ["a", "b"]}), ("apply", {"agent": "CHILD"}),
        ("apply", {"agent": "CHILD", "paths": ["d"]}),
    )
]  # fmt: skip
"""What a model does with other agents; CHILD becomes the id of one of its own."""
WANTS: list[AgentWanted] = [
    AgentWanted(task="w"), AgentWanted(task="w", name="a", role="scout"), AgentWanted(task="w", role="smith"),
    AgentWanted(task="w", tools=("read", "spawn"), mode="plan"), AgentWanted(task="w", isolation="worktree"),
    AgentWanted(task="w", role="nobody"), AgentWanted(task="w", model="other/x"), AgentWanted(task=""),
    AgentWanted(task="w", mode="free"), AgentWanted(task="w", tools=("hammer",)),
]  # fmt: skip
"""What a person wants, some of which cannot be."""


def pairing(items: list[TranscriptItem], lane: str = "main") -> None:
    """Every tool use is answered exactly once, in order, before anything else is said; nothing is of another lane."""
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        if isinstance(item, Resulted):
            raise AssertionError(f"a result without its use: {item}")
        if isinstance(item, Answered):
            assert item.call.startswith(f"{lane}/"), "nothing of a sibling leaks in"
            uses = [block.id for block in item.blocks if block.kind == "tool_use"]
            results = items[at : at + len(uses)]
            assert [result.use if isinstance(result, Resulted) else None for result in results] == uses
            at += len(uses)


class Played:
    """The session and everything around it."""

    def open(self, mode: str, parallel: int, timeout: int, uses: list[Use], **more: Any) -> None:
        """A session of which the first request was made and answered with these; `more` are settings."""
        self.open_silent(mode, parallel, timeout, **more)
        self.person_prompts("queue")
        while not self.open_models():
            self.decide(0)
        self.model_responds(uses, "end_turn")

    def open_silent(self, mode: str, parallel: int, timeout: int, **more: Any) -> None:
        """A session in which nobody has spoken yet."""
        self.state = Session(session="s")
        self.stored: list[tuple[bytes, bytes]] = []
        self.epoch = 0
        self.uses = 0
        self.starts: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.spawned: set[tuple[str, int]] = set()
        self.owed: dict[str, int] = {}
        self.wanted: set[int] = set()
        self.tokens: Counter[str] = Counter()
        self.dues: dict[str, list[Due]] = {}
        self.git: Git | None = None
        self.settings = Settings(
            provider="scripted", dialect="scripted", model="m", mode=mode, parallel_tools_max=parallel,
            approval_timeout_seconds=timeout, model_calls_max=9, model_attempts_max=3,
            models=(ModelRef(provider="near", dialect="scripted", model=""),),
        )  # fmt: skip
        self.settings = msgspec.structs.replace(self.settings, **more)
        self.crash()

    # -- the log ---------------------------------------------------------------------------------------------------

    def append(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> set[str]:
        seq = self.state.seq + 1
        name = TYPE_OF[type(body)]
        header = codec.encode_header(
            seq=seq, id=f"{seq:032x}", time="2026-01-01T00:00:00.000000Z", type=name, v=1, agent=agent, cause=cause,
            epoch=self.epoch,
        )  # fmt: skip
        data = codec.encode(body)
        event = decode(header, data)
        assert event.body == body, "what is folded live is what is read back"
        assert cause < seq
        self.note(event)
        self.stored.append((header, data))
        before = self.dues
        woken = evolve(self.state, event)
        self.dues = {agent_id: self.own_due(agent_id) for agent_id in self.state.agents}
        for agent_id in before.keys() - woken:
            assert self.dues[agent_id] == before[agent_id], f"{agent_id} was not woken by {name}, and has something new"
        self.slots_are_given_out()
        return woken

    def own_due(self, agent_id: str) -> list[Due]:
        """What is due for this agent, without what is the session's."""
        found = due(self.state, {agent_id}, RULES)
        return [one for one in found if not isinstance(one.body, SessionClosed) and not _is_clock(one)]

    def note(self, event: Event) -> None:
        """Counts what must not happen twice, or at all."""
        body, agent = event.body, self.state.agents.get(event.agent)
        if isinstance(body, ToolStarted | ModelRequested):
            assert agent is not None
            assert not agent.finished, f"{agent.id} has finished, and starts {body}"
            assert not agent.cancelled, f"{agent.id} was cancelled, and starts {body}"
        if isinstance(body, ToolStarted):
            assert body.call not in self.finished, "a finished step is never run again"
            self.starts[body.call] += 1
            assert self.starts[body.call] <= 1 + self.again[body.call], "no start in silence"
        elif isinstance(body, EffectReconciled) and body.verdict in ("not_done", "retried"):
            self.again[body.call] += 1
        elif isinstance(body, ToolFinished):
            assert body.call not in self.finished
            self.finished.add(body.call)
            run = self.state.run(body.call)
            if run is not None and run.tool == "spawn" and body.status != "error":
                self._given(run)
        elif isinstance(body, AgentSpawned) and body.parent:
            by = (body.call or f"#{body.wanted}", body.index)
            assert by not in self.spawned, "a parent never starts a child again that it has"
            assert not self.state.agents[body.parent].cancelled, "who was cancelled spawns nothing"
            self.spawned.add(by)
            self.answer(body.wanted)
        elif isinstance(body, AgentFinished):
            assert agent is not None
            assert not agent.finished, "nobody finishes twice"
            self.owed[event.agent] = event.seq
        elif isinstance(body, ResultDelivered):
            assert self.owed.pop(body.child, 0), "each result is delivered once"
        elif isinstance(body, CommandRefused) and body.why == "impossible":
            self.answer(body.command)
        elif isinstance(body, ModelResponded | ModelFailed):
            for whose in _above(event.agent):
                self.tokens[whose] += body.usage.input + body.usage.output

    def answer(self, wanted: int) -> None:
        """What a person wanted was spawned or refused, or they took it back."""
        if wanted:
            assert wanted in self.wanted, "a person wants each agent once"
            self.wanted.discard(wanted)

    def _given(self, run: ToolRun) -> None:
        """The results of children in the foreground are in the result of the call."""
        children = [self.state.agents[child] for child in run.children]
        for child in children:
            if not child.background:
                assert child.finished, f"{run.key} ends before {child.id}"
                self.owed.pop(child.id, None)

    def slots_are_given_out(self) -> None:
        state, most = self.state, self.settings.agents_parallel_max
        assert state.held <= state.unfinished
        assert not state.held & set(state.waiting)
        assert len(state.held) <= most
        assert not state.waiting or len(state.held) == most, "a slot is free, and somebody waits for one"
        assert state.waiting == sorted(state.waiting, key=lambda one: state.agents[one].spawned)
        assert all(not agent.finished for agent_id, agent in state.agents.items() if agent_id in state.unfinished)
        assert state.active == {agent_id for agent_id, agent in state.agents.items() if agent.turn}

    # -- what the owner does ---------------------------------------------------------------------------------------

    def decide(self, pick: int) -> None:
        found = due(self.state, self.state.agents, RULES)
        if found:
            self.take(found[pick % len(found)])

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.decide(0)

    def take(self, one: Due) -> None:
        body, agent = one.body, self.state.agents.get(one.agent)
        if isinstance(body, ModelRequested):
            assert agent is not None
            if body.purpose == "turn":
                pairing([*agent.items, *agent.steers], agent.id)
            assert next_request(self.state, agent, RULES).sha256 == body.request_sha256
            self.is_within_budget(agent)
            assert not agent.parent or agent.id in self.state.held, "who has no slot starts nothing"
        if isinstance(body, ToolStarted) and body.recovery != "derived":
            assert agent is not None
            assert not agent.parent or agent.id in self.state.held, "who has no slot starts nothing"
            assert len(self.running(agent)) < self.settings.parallel_tools_max
            if body.recovery == "reconcilable":
                assert not any(run.phase == "running" and run.recovery == "reconcilable" for run in agent.batch)
        assert agent is None or not agent.paused or not isinstance(body, ToolStarted | ModelRequested)
        self.append(body, one.agent, one.cause)

    def is_within_budget(self, agent: Agent) -> None:
        for limit in self.settings.limits:
            if limit.what != "tokens":
                continue
            owners = _above(agent.id) if limit.scope == "tree" else ["" if limit.scope == "session" else agent.id]
            for owner in owners:
                spent = self.spent(owner, alone=limit.scope == "agent")
                assert spent < limit.value, f"{agent.id} asks, and the {limit.scope} budget is used up"

    def spent(self, agent: str, *, alone: bool) -> int:
        """Tokens of an agent and all below it, or of it alone; of the session for ""."""
        if not agent:
            return self.tokens["main"]
        return self.tokens[agent] - sum(
            self.tokens[child] for child in self.state.agents if alone and child.rpartition(".")[0] == agent
        )

    # -- how effects end -------------------------------------------------------------------------------------------

    def model_responds(self, uses: list[Use], stop: Any, pick: int = 0, tokens: int = 3) -> None:
        agent, call = self.open_models()[pick % len(self.open_models())]
        if call.purpose == "summary":
            uses = []
        blocks = [Block(kind="text", text="…")]
        for name, args in uses:
            self.uses += 1
            child = agent.children[self.uses % len(agent.children)] if agent.children else "main.7"
            args = args.replace("CHILD", child)
            blocks.append(Block(kind="tool_use", id=f"u{self.uses}", name=name, args=args))
        body = ModelResponded(
            call=call.key, attempt=call.attempt, blocks=tuple(blocks), stop="tool_use" if uses else stop,
            usage=Usage(input=1, output=tokens - 1),
        )  # fmt: skip
        self.append(body, agent.id, call.intent)

    def model_fails(self, failure: Any, after: int | None, jitter: int, pick: int = 0, until: str = "") -> None:
        agent, call = self.open_models()[pick % len(self.open_models())]
        if call.cancelling:
            failure, until = "cancelled", ""
        body = ModelFailed(
            call=call.key, attempt=call.attempt, failure=failure, retry_after_ms=90_000 if until else after,
            jitter_permille=jitter, partial="half an answ", retry_until=until, usage=Usage(input=2),
        )  # fmt: skip
        self.append(body, agent.id, call.intent)

    def tool_ends(self, pick: int, status: Any) -> None:
        runs = self.all_running()
        agent, run = runs[pick % len(runs)]
        end = "cancelled" if run.cancelling else status
        body = ToolFinished(call=run.key, attempt=run.attempt, status=end, text=f"out {run.key}")
        self.append(body, agent.id, run.intent)

    def recover(self, pick: int, which: int) -> None:
        doubted = self.doubted()
        agent, call, recovery, attempt, cause = doubted[pick % len(doubted)]
        verdicts: list[Any] = VERDICTS.get(recovery, ["retried"])
        verdict = verdicts[which % len(verdicts)]
        self.append(EffectReconciled(call=call, attempt=attempt, verdict=verdict), agent, cause)
        if verdict in ("done", "unknown"):
            status: Any = "ok" if verdict == "done" else "unknown"
            self.append(ToolFinished(call=call, attempt=attempt, status=status, text="found"), agent, cause)

    def timer_fires(self, pick: int) -> None:
        timer = sorted(self.state.timers.values(), key=lambda one: one.key)[pick % len(self.state.timers)]
        self.append(TimerFired(key=timer.key), timer.agent, timer.seq)

    def tree_is_there(self, pick: int, error: str = "") -> None:
        agent = self.preparing()[pick % len(self.preparing())]
        path = "" if error else f"/trees/{agent.id}"
        self.append(WorktreePrepared(path=path, base="c0ffee", error=error), agent.id, agent.spawned)

    def tree_is_gone(self, pick: int, left: tuple[str, ...] = ()) -> None:
        done = [agent for agent in self.state.agents.values() if agent.finished and agent.workspace]
        if done:
            agent = done[pick % len(done)]
            self.append(WorktreeRemoved(path=agent.workspace, left=left), agent.id, agent.spawned)

    def files_change(self, pick: int) -> None:
        """A look finds that files of the folder that an agent works in changed."""
        agent = self.any_agent(pick)
        paths = ("a", "d/b", "d/c")[: 1 + pick % 3]
        changes = tuple(FileChange(path=path, after_mode=0o644) for path in paths)
        body = FilesChanged(changes=changes, tree=f"t{self.state.seq}") if pick % 5 else FilesUnknown(calls=(), why="")
        if agent in self.state.agents:
            self.append(body, agent, self.state.agents[agent].cause)

    # -- what people say, and what befalls the host ------------------------------------------------------------------

    def person_prompts(self, delivery: Any, pick: int = 0) -> None:
        self.append(UserPrompted(text="do it", delivery=delivery), self.any_agent(pick))

    def person_speaks(self, body: msgspec.Struct, pick: int = 0) -> None:
        self.append(body, self.any_agent(pick))

    def person_answers(self, allow: bool, off: int, always: bool) -> None:
        for seq, key in list(self.state.approvals.items()):
            body = ApprovalDecided(
                call=key, decision="allow" if allow else "deny", by="person", request=seq + off, note="because",
                remember="shell(make)" if always else "",
            )  # fmt: skip
            self.append(body, key.partition("/")[0])

    def person_tells(self, pick: int) -> None:
        """An answer to a question; now and then a second one."""
        asked = sorted(self.state.questions.items())
        if asked:
            seq, key = asked[pick % len(asked)]
            for text in ("a", "b")[: 1 + pick % 2]:
                self.append(QuestionAnswered(question=seq, text=text), key.partition("/")[0])

    def person_wants(self, body: AgentWanted, pick: int = 0) -> None:
        """An agent, below any other that is there; it may be one that has ended."""
        self.append(body, self.any_agent(pick))
        self.wanted.add(self.state.seq)

    def want_is_taken_back(self, pick: int) -> None:
        open_ = [(agent, want.seq) for agent, wants in self.state.wants.items() for want in wants]
        if open_:
            agent, seq = open_[pick % len(open_)]
            self.append(CancelRequested(target="prompt", prompt=seq), agent)
            self.wanted.discard(seq)

    def prompt_is_taken_back(self, pick: int) -> None:
        agent = self.state.agents.get(self.any_agent(pick))
        waits = [said.seq for said in (*agent.queue, *agent.steers)] if agent is not None else []
        if agent is not None and waits:
            self.append(CancelRequested(target="prompt", prompt=waits[pick % len(waits)]), agent.id)

    def crash(self) -> None:
        self.epoch += 1
        body = SessionOpened(
            format=1, rules=2, workspace="/w", host=Host(name="h", pid=1), settings=self.settings, tools=TOOLS,
            crashed=not self.state.clean, commands=tuple(CommandVersion(type=t, v=v) for t, v in COMMANDS.items()),
            roles=ROLES, git=self.git,
        )  # fmt: skip
        self.append(body)

    def crash_and_recover(self, which: int) -> None:
        self.crash()
        self.go_on(5)
        while self.doubted():
            self.recover(0, which)

    def fold_and_take_back(self, steps: int) -> None:
        """A speculative fold that is undone leaves nothing behind."""
        before = write_state(self.state)
        undo = remember(self.state)
        for _ in range(steps):
            found = due(self.state, self.state.agents, RULES)
            if not found:
                break
            one, seq = found[-1], self.state.seq + 1
            name = TYPE_OF[type(one.body)]
            event = Event(seq, f"{seq:032x}", "", name, 1, one.agent, one.cause, self.epoch, one.body)
            evolve(self.state, event, undo)
        self.state = undone(undo, self.state)
        assert read_state(write_state(self.state)) == read_state(before)

    # -- what always holds -------------------------------------------------------------------------------------------

    def a_closed_log_has_nothing_due(self) -> None:
        if self.state.closed:
            assert not due(self.state, self.state.agents, RULES)
            assert not self.all_running()
            assert not self.state.held

    def ends_well(self) -> None:
        """Replay is live, checkpoints are the state, any fold can be taken back, and all of it comes to rest."""
        assert read_state(write_state(self.state)) == self.state, "a checkpoint is the state"
        again = Session(session="s")
        events = [decode(header, data) for header, data in self.stored]
        chance = Random(len(events))
        takes_back = {chance.randrange(len(events)) for _ in range(6)}
        for at, event in enumerate(events):
            if at in takes_back:
                again = _there_and_back(again, events[at : at + chance.randint(1, 30)])
            evolve(again, event)
        assert again == self.state, "replay is live"
        self.drain()

    def drain(self) -> None:
        """When people only agree and effects only succeed, the session closes."""
        for agent_id in list(self.state.agents):
            if self.state.agents[agent_id].paused:
                self.append(AgentContinued(), agent_id)
        for _ in range(MOVES_TO_REST_MAX):
            if self.state.closed:
                self.all_is_delivered()
                return
            if not self.goes_on():
                assert not self.state.prompts, "nothing to do, and yet not closed"
                return
        raise AssertionError("the session never came to rest")

    def goes_on(self) -> bool:
        """One step towards the end; False where there is none."""
        found = due(self.state, self.state.agents, RULES)
        models = self.open_models()
        cancelling = [at for at, (_, call) in enumerate(models) if call.cancelling]
        if found:
            self.take(found[0])
        elif self.doubted():
            self.recover(0, 0)
        elif self.all_running():
            self.tool_ends(0, "ok")
        elif cancelling:
            self.model_fails("cancelled", None, 0, cancelling[0])
        elif models:
            self.model_responds([], "end_turn")
        elif self.preparing():
            self.tree_is_there(0)
        elif self.state.approvals:
            self.person_answers(True, 0, False)
        elif self.state.questions:
            self.person_tells(0)
        elif self.state.timers:
            self.timer_fires(0)
        else:
            return False
        return True

    def all_is_delivered(self) -> None:
        """What people wanted is there, or they know why not. Each result has reached the parent, but of parents that
        read nothing any more, or wait for other children."""
        assert not self.state.wants
        for child in self.owed:
            parent = self.state.agents[self.state.agents[child].parent]
            waits = any(other in self.state.unfinished for other in parent.children)
            over = parent.cancelled or parent.finished or parent.outcome != "done" or parent.turn or waits
            assert over, f"the result of {child} never reached {parent.id}"

    # -- reading the state -------------------------------------------------------------------------------------------

    def any_agent(self, pick: int) -> str:
        """One of the agents, `main` for 0."""
        agents = sorted(self.state.agents) or ["main"]
        return agents[pick % len(agents)]

    def open_models(self) -> list[tuple[Agent, ModelCall]]:
        return [
            (agent, agent.call)
            for _, agent in sorted(self.state.agents.items())
            if agent.call is not None and agent.call.phase == "running" and agent.call.epoch == self.epoch
        ]

    def open_model(self) -> ModelCall | None:
        """That of `main`, or of the first child that has one."""
        found = self.open_models()
        return found[0][1] if found else None

    def running(self, agent: Agent) -> list[ToolRun]:
        return [
            run
            for run in agent.batch
            if run.phase == "running" and run.epoch == self.epoch and run.recovery != "derived"
        ]

    def all_running(self) -> list[tuple[Agent, ToolRun]]:
        return [(agent, run) for _, agent in sorted(self.state.agents.items()) for run in self.running(agent)]

    def preparing(self) -> list[Agent]:
        return [agent for _, agent in sorted(self.state.agents.items()) if agent.preparing]

    def doubted(self) -> list[tuple[str, str, str, int, int]]:
        found = [
            (agent_id, run.key, run.recovery, run.attempt, run.cause)
            for agent_id, agent in sorted(self.state.agents.items())
            for run in agent.batch
            if run.phase in ("doubted", "settling")
        ]
        for agent_id, agent in sorted(self.state.agents.items()):
            if agent.call is not None and agent.call.phase in ("doubted", "settling"):
                found.append((agent_id, agent.call.key, "repeatable", agent.call.attempt, agent.call.cause))
        return found


def _is_clock(one: Due) -> bool:
    return isinstance(one.body, TimerSet) and one.body.key.startswith("budget:")


def _above(agent: str) -> list[str]:
    """The agent and those above it, by their ids."""
    return [agent, *(_above(agent.rpartition(".")[0]) if "." in agent else [])]


def _there_and_back(state: Session, events: list[Event]) -> Session:
    """The state after these events were folded and taken back, which is the same."""
    before = write_state(state)
    undo = remember(state)
    for event in events:
        evolve(state, event, undo)
    state = undone(undo, state)
    assert read_state(write_state(state)) == read_state(before), "what is taken back leaves nothing behind"
    return state
