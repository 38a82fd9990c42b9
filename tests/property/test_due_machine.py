"""Any sequence of commands, outcomes, crashes and decisions keeps the promises of fold and due.

The world is played by hypothesis: it picks which due decision is taken, how each effect ends, what people say, and when
the host dies. Events go through their stored bytes, so what is folded live is what a replay would fold.
"""

from collections import Counter
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muse.decide.context import Builder, Rules, next_request
from muse.decide.decision import Due
from muse.decide.due import due
from muse.effect.model import scripted
from muse.event import codec
from muse.event.content import Block, Host, Settings, ToolSpec, Usage
from muse.event.conversation import Answered, Resulted, TranscriptItem
from muse.event.envelope import Event, decode
from muse.event.kinds import (
    COMMANDS,
    KINDS,
    AgentContinued,
    AgentPaused,
    AgentSteered,
    ApprovalDecided,
    CancelRequested,
    CommandVersion,
    EffectReconciled,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    PolicyChanged,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
    SessionClosed,
    SessionOpened,
    TimerFired,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.fold.evolve import evolve
from muse.fold.state import Session, remember, undone
from muse.runtime.checkpoint import read_state, write_state

RULES = Rules(version=1, builders={"scripted": Builder(scripted.BUILDER, scripted.build)})
TOOLS = (
    ToolSpec(name="read", description="", schema="{}", recovery="pure"),
    ToolSpec(name="write", description="", schema="{}", recovery="reconcilable", writes=True),
    ToolSpec(name="shell", description="", schema="{}", recovery="attachable", writes=True),
    ToolSpec(name="post", description="", schema="{}", recovery="opaque", writes=True),
)
USES = st.sampled_from(
    [
        ("read", '{"path": "a"}'),
        ("write", '{"path": "a", "content": "x"}'),
        ("write", '{"path": "b", "content": "x"}'),
        ("shell", '{"command": "make"}'),
        ("shell", '{"command": "ls"}'),
        ("post", "{}"),
        ("nothing", "{}"),
        ("shell", "{broken"),
    ]
)
TYPE_OF = {kind.body: name for name, kind in KINDS.items()}
VERDICTS = {
    "pure": ["retried"],
    "reconcilable": ["done", "not_done", "unknown"],
    "attachable": ["attached", "not_done", "unknown"],
    "opaque": ["unknown"],
}
FAILURES = ["rate_limited", "overloaded", "network", "cut", "auth", "invalid", "too_large"]


def pairing(items: list[TranscriptItem]) -> None:
    """Every tool use is answered exactly once, in order, before anything else is said."""
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        if isinstance(item, Resulted):
            raise AssertionError(f"a result without its use: {item}")
        if isinstance(item, Answered):
            uses = [block.id for block in item.blocks if block.kind == "tool_use"]
            results = items[at : at + len(uses)]
            assert [result.use if isinstance(result, Resulted) else None for result in results] == uses
            at += len(uses)


class World(RuleBasedStateMachine):
    """A session and everything around it."""

    @initialize(
        mode=st.sampled_from(["yolo", "accept-edits", "default", "plan"]),
        parallel=st.sampled_from([1, 2, 8]),
        timeout=st.sampled_from([0, 60]),
        uses=st.lists(USES, min_size=1, max_size=4),
    )
    def open(self, mode: str, parallel: int, timeout: int, uses: list[tuple[str, str]]) -> None:
        self.state = Session(session="s")
        self.stored: list[tuple[bytes, bytes]] = []
        self.epoch = 0
        self.uses = 0
        self.starts: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.settings = Settings(
            provider="scripted",
            dialect="scripted",
            model="m",
            mode=mode,
            parallel_tools_max=parallel,
            approval_timeout_seconds=timeout,
            model_calls_max=9,
            model_attempts_max=3,
        )
        self.crash()
        self.person_prompts("queue")
        self.go_on(2)
        self.model_responds(uses, "end_turn")

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
        others = {one for one in self.state.agents}
        before = {agent_id: self.own_due(agent_id) for agent_id in others}
        woken = evolve(self.state, event)
        for agent_id in others - woken:
            if self.state.agents[agent_id].turn:
                assert self.own_due(agent_id) == before[agent_id], "an agent not woken has nothing new"
        return woken

    def own_due(self, agent_id: str) -> list[Due]:
        return [one for one in due(self.state, {agent_id}, RULES) if not isinstance(one.body, SessionClosed)]

    def note(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ToolStarted):
            assert body.call not in self.finished, "a finished step is never run again"
            self.starts[body.call] += 1
            assert self.starts[body.call] <= 1 + self.again[body.call], "no start in silence"
        elif isinstance(body, EffectReconciled) and body.verdict in ("not_done", "retried"):
            self.again[body.call] += 1
        elif isinstance(body, ToolFinished):
            assert body.call not in self.finished
            self.finished.add(body.call)

    # -- what may happen -------------------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 7))
    def decide(self, pick: int) -> None:
        found = due(self.state, self.state.agents, RULES)
        if found:
            self.take(found[pick % len(found)])

    @rule(steps=st.integers(1, 5))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.decide(0)

    def take(self, one: Due) -> None:
        if isinstance(one.body, ModelRequested):
            agent = self.state.agents[one.agent]
            pairing([*agent.items, *agent.steers])
            assert next_request(self.state, agent, RULES).sha256 == one.body.request_sha256
        if isinstance(one.body, ToolStarted):
            assert len(self.running()) < self.settings.parallel_tools_max
        if isinstance(one.body, ToolStarted) and one.body.recovery == "reconcilable":
            batch = self.state.agents[one.agent].batch
            assert not any(run.phase == "running" and run.recovery == "reconcilable" for run in batch)
        self.append(one.body, one.agent, one.cause)

    @precondition(lambda self: self.open_model() is not None)
    @rule(uses=st.lists(USES, min_size=1, max_size=4))
    def model_wants_tools(self, uses: list[tuple[str, str]]) -> None:
        self.model_responds(uses, "end_turn")

    @precondition(lambda self: self.open_model() is not None)
    @rule(uses=st.lists(USES, max_size=1), stop=st.sampled_from(["end_turn", "max_tokens", "refusal"]))
    def model_responds(self, uses: list[tuple[str, str]], stop: Any) -> None:
        call = self.open_model()
        assert call is not None
        blocks = [Block(kind="text", text="…")]
        for name, args in uses:
            self.uses += 1
            blocks.append(Block(kind="tool_use", id=f"u{self.uses}", name=name, args=args))
        body = ModelResponded(
            call=call.key,
            attempt=call.attempt,
            blocks=tuple(blocks),
            stop="tool_use" if uses else stop,
            usage=Usage(input=1, output=2),
        )
        self.append(body, "main", call.intent)

    @precondition(lambda self: self.open_model() is not None)
    @rule(failure=st.sampled_from(FAILURES), after=st.sampled_from([None, 5000]), jitter=st.integers(0, 999))
    def model_fails(self, failure: Any, after: int | None, jitter: int) -> None:
        call = self.open_model()
        assert call is not None
        if call.cancelling:
            failure = "cancelled"
        body = ModelFailed(
            call=call.key, attempt=call.attempt, failure=failure, retry_after_ms=after, jitter_permille=jitter,
            partial="half an answ",
        )  # fmt: skip
        self.append(body, "main", call.intent)

    @precondition(lambda self: self.running())
    @rule(pick=st.integers(0, 7), status=st.sampled_from(["ok", "error", "unknown"]))
    def tool_ends(self, pick: int, status: Any) -> None:
        runs = self.running()
        run = runs[pick % len(runs)]
        end = "cancelled" if run.cancelling else status
        self.append(
            ToolFinished(call=run.key, attempt=run.attempt, status=end, text=f"out {run.key}"), "main", run.intent
        )

    @precondition(lambda self: self.doubted())
    @rule(pick=st.integers(0, 7), which=st.integers(0, 2))
    def recover_one(self, pick: int, which: int) -> None:
        self.recover(pick, which)

    @rule(which=st.integers(0, 2))
    def crash_and_recover(self, which: int) -> None:
        self.crash()
        self.go_on(5)
        while self.doubted():
            self.recover(0, which)

    def recover(self, pick: int, which: int) -> None:
        doubted = self.doubted()
        call, recovery, attempt, cause = doubted[pick % len(doubted)]
        verdicts: list[Any] = VERDICTS.get(recovery, ["retried"])
        verdict = verdicts[which % len(verdicts)]
        self.append(EffectReconciled(call=call, attempt=attempt, verdict=verdict), "main", cause)
        if verdict in ("done", "unknown"):
            status: Any = "ok" if verdict == "done" else "unknown"
            self.append(ToolFinished(call=call, attempt=attempt, status=status, text="found"), "main", cause)

    @precondition(lambda self: self.state.timers)
    @rule(pick=st.integers(0, 7))
    def timer_fires(self, pick: int) -> None:
        timer = sorted(self.state.timers.values(), key=lambda one: one.key)[pick % len(self.state.timers)]
        self.append(TimerFired(key=timer.key), timer.agent, timer.seq)

    @rule(delivery=st.sampled_from(["queue", "steer", "replace"]))
    def person_prompts(self, delivery: Any) -> None:
        self.append(UserPrompted(text="do it", delivery=delivery))

    @rule(
        body=st.sampled_from(
            [
                AgentSteered(text="and that"), AgentPaused(), AgentContinued(), NoteAdded(text="hm"),
                CancelRequested(target="turn"), CancelRequested(target="agent", why="enough"),
                CancelRequested(target="call", call="main/2"), CancelRequested(target="call", call="main/3"),
                PolicyChanged(allow=("shell(make)",)), PolicyChanged(mode="accept-edits"),
            ]
        )
    )  # fmt: skip
    def person_speaks(self, body: msgspec.Struct) -> None:
        self.append(body)

    @rule(pid=st.integers(1, 2), kind=st.sampled_from([ProcessStarted, ProcessAdopted, ProcessReaped]))
    def process_is_noticed(self, pid: int, kind: Any) -> None:
        known = f"{pid}:7" in self.state.processes
        if known == (kind is not ProcessStarted):
            self.append(kind(call="main/2", pid=pid, started=7))
            assert (f"{pid}:7" in self.state.processes) == (kind is not ProcessReaped)

    @rule(allow=st.booleans(), off=st.sampled_from([0, 0, 0, 1]), always=st.booleans())
    def person_answers(self, allow: bool, off: int, always: bool) -> None:
        for seq, key in list(self.state.approvals.items()):
            body = ApprovalDecided(
                call=key, decision="allow" if allow else "deny", by="person", request=seq + off, note="because",
                remember="shell(make)" if always else "",
            )  # fmt: skip
            self.append(body)

    @rule()
    def crash(self) -> None:
        self.epoch += 1
        body = SessionOpened(
            format=1, rules=1, workspace="/w", host=Host(name="h", pid=1), settings=self.settings, tools=TOOLS,
            crashed=not self.state.clean, commands=tuple(CommandVersion(type=t, v=v) for t, v in COMMANDS.items()),
        )  # fmt: skip
        self.append(body)

    @rule(steps=st.integers(1, 6))
    def fold_and_take_back(self, steps: int) -> None:
        """A speculative fold that is undone leaves nothing behind."""
        before = write_state(self.state)
        undo = remember(self.state)
        for _ in range(steps):
            found = due(self.state, self.state.agents, RULES)
            if not found:
                break
            body, agent = found[0].body, found[0].agent
            seq = self.state.seq + 1
            evolve(self.state, Event(seq, f"{seq:032x}", "", TYPE_OF[type(body)], 1, agent, 0, self.epoch, body), undo)
        self.state = undone(undo, self.state)
        assert read_state(write_state(self.state)) == read_state(before)

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def a_closed_log_has_nothing_due(self) -> None:
        if getattr(self, "state", None) is not None and self.state.closed:
            assert not due(self.state, self.state.agents, RULES)
            assert not self.running()

    def teardown(self) -> None:
        if getattr(self, "state", None) is None:
            return
        assert read_state(write_state(self.state)) == self.state, "a checkpoint is the state"
        again = Session(session="s")
        for header, data in self.stored:
            evolve(again, decode(header, data))
        assert again == self.state, "replay is live"
        self.drain()

    def drain(self) -> None:
        """When people only agree and effects only succeed, the session closes."""
        self.append(AgentContinued())
        for _ in range(2_000):
            if self.state.closed:
                return
            found = due(self.state, self.state.agents, RULES)
            call = self.open_model()
            if found and not isinstance(found[0].body, SessionClosed):
                self.take(found[0])
            elif self.doubted():
                self.recover(0, 0)
            elif self.running():
                self.tool_ends(0, "ok")
            elif call is not None and call.cancelling:
                self.model_fails("cancelled", None, 0)
            elif call is not None:
                self.model_responds([], "end_turn")
            elif self.state.approvals:
                self.person_answers(True, 0, False)
            elif self.state.timers:
                self.timer_fires(0)
            elif found:
                self.take(found[0])
            else:
                assert not self.state.prompts, "nothing to do, and yet not closed"
                return
        raise AssertionError("the session never came to rest")

    # -- reading the state -------------------------------------------------------------------------------------------

    def open_model(self) -> Any:
        main = self.state.agents.get("main")
        call = main.call if main else None
        return call if call is not None and call.phase == "running" and call.epoch == self.epoch else None

    def running(self) -> list[Any]:
        main = self.state.agents.get("main")
        return [run for run in main.batch if run.phase == "running" and run.epoch == self.epoch] if main else []

    def doubted(self) -> list[tuple[str, str, int, int]]:
        main = self.state.agents.get("main")
        if main is None:
            return []
        found = [
            (run.key, run.recovery, run.attempt, run.cause)
            for run in main.batch
            if run.phase in ("doubted", "settling")
        ]
        if main.call is not None and main.call.phase in ("doubted", "settling"):
            found.append((main.call.key, "repeatable", main.call.attempt, main.call.cause))
        return found


World.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorld = World.TestCase


USE_LIST = [
    ("read", '{"path": "a"}'),
    ("write", '{"path": "a", "content": "x"}'),
    ("shell", '{"command": "make"}'),
    ("shell", '{"command": "make test"}'),
    ("post", "{}"),
    ("shell", "{broken"),
]


@pytest.mark.parametrize("seed", range(60))
def test_a_long_walk_keeps_every_promise(seed: int) -> None:
    """What the machine above reaches seldom: long turns with parallel batches, killed again and again."""
    chance = Random(seed)
    world = World()

    def uses() -> list[tuple[str, str]]:
        return [chance.choice(USE_LIST) for _ in range(chance.randint(1, 4))]

    mode = chance.choice(["yolo", "yolo", "default", "accept-edits"])
    world.open(mode=mode, parallel=chance.choice([1, 2, 8]), timeout=chance.choice([0, 60]), uses=uses())
    for _ in range(150):
        open_model = world.open_model()
        if world.running() and chance.random() < 0.4:
            world.tool_ends(chance.randrange(8), chance.choice(["ok", "error"]))
        elif world.doubted():
            world.recover(chance.randrange(8), chance.randrange(3))
        elif open_model is not None and chance.random() < 0.5:
            if open_model.cancelling or chance.random() < 0.2:
                world.model_fails(chance.choice(FAILURES), None, chance.randrange(1000))
            else:
                world.model_responds(uses() if chance.random() < 0.9 else [], "end_turn")
        elif chance.random() < 0.08:
            world.crash()
        elif chance.random() < 0.05:
            world.fold_and_take_back(5)
        elif chance.random() < 0.04:
            world.person_prompts(chance.choice(["queue", "steer", "replace"]))
        elif chance.random() < 0.03:
            world.person_speaks(CancelRequested(target=chance.choice(["turn", "agent"])))
        elif world.state.approvals and chance.random() < 0.3:
            world.person_answers(chance.random() < 0.7, 0, chance.random() < 0.3)
        elif world.state.timers and chance.random() < 0.2:
            world.timer_fires(0)
        else:
            world.decide(chance.randrange(8))
        world.a_closed_log_has_nothing_due()
    world.teardown()
