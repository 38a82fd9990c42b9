"""Sessions of any length in memory: a model with a small window, whose answers and results a test gives, taken through
the rules step by step, and what must be true of every transcript on the way."""

from collections.abc import Sequence
from typing import Any

import msgspec

from muse.decide.context import Builder, Rules, next_request
from muse.decide.due import due
from muse.effect.model import anthropic, openai, scripted
from muse.event.content import Block, Host, ModelFacts, Settings, ToolSpec, Usage
from muse.event.conversation import Answered, Resulted, Said, bytes_of
from muse.event.envelope import Event
from muse.event.kinds import (
    KINDS,
    ContextCompacted,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    ToolFinished,
    UserPrompted,
)  # fmt: skip
from muse.fold.evolve import evolve
from muse.fold.state import Session, remember, undone
from muse.runtime.checkpoint import write_state

BUILDERS = {
    "scripted": Builder(scripted.BUILDER, scripted.build),
    "anthropic": Builder(anthropic.BUILDER, anthropic.build),
    "openai": Builder(openai.BUILDER, openai.build),
}
RULES = Rules(version=3, builders=BUILDERS)
TYPE_OF = {kind.body: name for name, kind in KINDS.items()}
TOOLS = (
    ToolSpec(name="read", description="", schema="{}", recovery="pure"),
    ToolSpec(name="recall", description="", schema="{}", recovery="pure"),
)
DECISIONS_MAX = 50


def settings(window: int = 10_000, dialect: str = "scripted", **more: Any) -> Settings:
    facts = (ModelFacts(name="p/m", context_tokens=window),) if window else ()
    return Settings(
        provider="p", dialect=dialect, model="m", mode="yolo", facts=facts, output_tokens_max=500, **more
    )  # fmt: skip


class Long:
    """One session. `events` is its log; each decision is taken from `due` and checked against what must hold."""

    def __init__(self, given: Settings | None = None, tools: Sequence[ToolSpec] = TOOLS, rules: int = 3) -> None:
        self.state = Session(session="s")
        self.events: list[Event] = []
        self.requests: list[tuple[int, bytes]] = []
        self.said: list[tuple[int, str]] = []
        self.epoch = 0
        self.tools, self.settings, self.rules = tuple(tools), given or settings(), rules
        self.open()

    def open(self, given: Settings | None = None) -> None:
        self.epoch += 1
        self.settings = given or self.settings
        host = Host(name="h", pid=1)
        body = SessionOpened(
            format=1, rules=self.rules, workspace="/w", host=host, settings=self.settings, tools=self.tools
        )
        self.put(body)

    def put(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> Event:
        """The next event of the log; folded once for a try, taken back, and folded for good."""
        seq = self.state.seq + 1
        event = Event(seq, f"{seq:032x}", "", TYPE_OF[type(body)], 1, agent, cause, self.epoch, body)
        before = write_state(self.state)
        undo = remember(self.state)
        evolve(self.state, event, undo)
        self.state = undone(undo, self.state)
        assert write_state(self.state) == before
        evolve(self.state, event)
        self.events.append(event)
        if isinstance(body, UserPrompted):
            self.said.append((seq, body.text))
        self.sound()
        return event

    @property
    def main(self) -> Any:
        return self.state.agents["main"]

    @property
    def compactions(self) -> list[ContextCompacted]:
        return [event.body for event in self.events if isinstance(event.body, ContextCompacted)]

    def decide(self) -> list[msgspec.Struct]:
        """Take what is due until nothing is."""
        taken: list[msgspec.Struct] = []
        while found := due(self.state, self.state.agents, RULES):
            assert len(taken) < DECISIONS_MAX, f"no end: {taken[-3:]}"
            one = found[0]
            if isinstance(one.body, ModelRequested):
                self.requests.append((self.state.seq + 1, one.request))
            self.put(one.body, one.agent, one.cause)
            taken.append(one.body)
        return taken

    def prompt(self, text: str = "do it") -> list[msgspec.Struct]:
        self.put(UserPrompted(text=text))
        return self.decide()

    def answer(self, text: str = "", uses: int = 0, usage: Usage | None = None) -> list[msgspec.Struct]:
        """The open model call is answered."""
        call = self.main.call
        blocks = [Block(kind="text", text=text)] if text else []
        blocks += [Block(kind="tool_use", id=f"u{n}", name="read", args="{}") for n in range(uses)]
        body = ModelResponded(
            call=call.key, attempt=call.attempt, blocks=tuple(blocks), stop="end_turn", usage=usage or Usage()
        )
        self.put(body, cause=call.intent)
        return self.decide()

    def fail(self, failure: Any) -> list[msgspec.Struct]:
        call = self.main.call
        self.put(ModelFailed(call=call.key, attempt=call.attempt, failure=failure, message="no"), cause=call.intent)
        return self.decide()

    def results(self, *texts: str) -> list[msgspec.Struct]:
        """The running tool calls end."""
        for text in texts:
            run = next(run for run in self.main.batch if run.phase == "running")
            self.put(ToolFinished(call=run.key, attempt=run.attempt, status="ok", text=text), cause=run.intent)
        return self.decide()

    def work(self, count: int, size: int) -> None:
        """So many calls with results of this size; summaries are written where they are wished."""
        for number in range(count):
            self.sum_up()
            self.answer(f"step {number}", uses=1)
            self.results(f"{number:05d} " + "x" * size)
        self.sum_up()

    def sum_up(self, text: str = "what was done so far") -> None:
        while self.main.call is not None and self.main.call.purpose == "summary":
            self.answer(text)

    # -- what holds everywhere -------------------------------------------------------------------------------------

    def sound(self) -> None:
        """Sizes are right, pairs whole, and each dialect can build what the agent would send."""
        for agent in self.state.agents.values():
            assert agent.items_bytes == sum(map(bytes_of, agent.items))
            open_uses: list[str] = []
            for item in agent.items:
                if isinstance(item, Resulted):
                    open_uses.remove(item.use)
                    continue
                assert not open_uses, f"{open_uses} have no result before {item}"
                if isinstance(item, Answered):
                    open_uses = [block.id for block in item.blocks if block.kind == "tool_use"]
            assert not open_uses or agent.batch
            assert not isinstance(agent.items[-1] if agent.items else None, Said) or agent.items[-1].source != "summary"

    def rebuilt(self) -> None:
        """Each request that was sent is what the log gives."""
        for seq, sent in self.requests:
            state = Session(session="s")
            for event in self.events[: seq - 1]:
                evolve(state, event)
            asked = self.events[seq - 1].body
            assert isinstance(asked, ModelRequested)
            assert next_request(state, state.agents["main"], RULES, asked.purpose).body == sent
