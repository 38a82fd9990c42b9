"""The loop with many agents: the real loop, rules, fold and SQLite log, and effects that end at once.

Each agent goes on for ever: a model response with one tool use, its result, the next request. The pretended
dispatch hands in, at every step, the outcome of every intent of the step before, so that a step appends the outcomes
of all agents and the decisions that are due after them in one transaction.
"""

import os
import time
from pathlib import Path
from typing import cast

import anyio
import anyio.abc

from bench.bodies import KINDS, Kind, content_bytes, finished, text_of
from bench.measure import Figure, Section, Sizes
from muse.decide.context import Builder, Rules
from muse.decide.decision import Due
from muse.effect.model import scripted
from muse.event.content import Block, Settings, ToolSpec
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS, AgentSpawned, ModelRequested, ModelResponded, ToolStarted, UserPrompted
from muse.fold.state import Session
from muse.log.sqlite import SqliteLog
from muse.runtime.checkpoint import fold
from muse.runtime.dispatch import Dispatch, Outcomes
from muse.runtime.loop import Loop
from muse.runtime.seal import seal
from muse.runtime.session import claim

RULES = Rules(version=1, builders={"scripted": Builder(scripted.BUILDER, scripted.build)})
SETTINGS = Settings(provider="scripted", dialect="scripted", model="-", mode="yolo", model_calls_max=0, retry_base_ms=1)
TOOL = ToolSpec(name="note", description="Note something.", schema="{}", recovery="opaque")
SYSTEM = "You take notes."


class Instant:
    """A dispatch whose effects end as soon as their intent is durable.

    It lets `warm_up` events pass, then takes the time of `events` more, and stops the loop.
    """

    def __init__(self, text: str, warm_up: int, events: int) -> None:
        self._text = text
        self._first, self._last = warm_up, warm_up + events
        self._begun = self._ended = (0, 0.0, 0.0)
        self._seen = 0

    def per_second(self) -> float:
        """Events a second of wall clock."""
        return (self._ended[0] - self._begun[0]) / (self._ended[1] - self._begun[1])

    def cpu_microseconds(self) -> float:
        """Processor time an event."""
        return (self._ended[2] - self._begun[2]) / (self._ended[0] - self._begun[0]) * 1e6

    def begin(self, tasks: anyio.abc.TaskGroup, outcomes: Outcomes) -> None:
        """See `Dispatch.begin`."""
        self._loop = cast(Loop, outcomes)

    def ready(self, one: Due) -> bool:
        """Everything is."""
        return True

    def observe_wanted(self, *, durable: bool) -> None:
        """Nothing is looked at."""

    def observed(self, one: Due) -> Due:
        """Nothing was."""
        return one

    def react(self, event: Event, state: Session, request: bytes = b"") -> None:
        """Hand in at once what the intent leads to."""
        self._seen += 1
        if self._seen == self._first:
            self._begun = (self._seen, time.perf_counter(), time.process_time())
        elif self._seen == self._last:
            self._ended = (self._seen, time.perf_counter(), time.process_time())
            self._loop.stop()
        match event.body:
            case ModelRequested(call=call, attempt=attempt):
                use = Block(kind="tool_use", id=f"use_{call}", name="note", args='{"path": "src/parser.py"}')
                answer = ModelResponded(call=call, attempt=attempt, blocks=(use,), stop="tool_use", duration_ms=800)
                self._loop.post_bodies(event.agent, event.seq, answer)
            case ToolStarted(call=call, attempt=attempt):
                self._loop.post_bodies(event.agent, event.seq, finished(call, attempt, self._text))
            case _:
                pass


class Fleet:
    """A session of `agents` agents in a new log, all of them about to ask their model."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.log = SqliteLog.create(folder / f"{agents}-{time.monotonic_ns()}.muse", "s", commands=COMMANDS)
        self.ownership = claim(self.log, SETTINGS, str(folder), lambda _epoch: (TOOL,))
        names = ["main"] + [f"main.{n}" for n in range(1, agents)]
        spawned = AgentSpawned(system=SYSTEM, tools=(TOOL.name,))
        first = [seal(spawned, name, 1) for name in names]
        first += [seal(UserPrompted(text="Begin."), name, 0) for name in names]
        self.log.append(first, [], self.log.head().seq, self.ownership.epoch)

    def run(self, kind: Kind, events: int) -> Instant:
        """Run until so many events were timed. Once: the outcomes of the last intents are never handed in."""
        instant = Instant(text_of(kind), max(2, events // 10), events)
        state = fold(self.log)
        loop = Loop(self.log, self.ownership, state, RULES, cast(Dispatch, instant), lambda _event: None)
        anyio.run(loop.run)
        return instant

    def close(self) -> None:
        """Let the log go."""
        self.log.close()


def section(folder: Path, sizes: Sizes) -> Section:
    """One, some and many agents under one loop, with bodies of each kind."""
    figures = [_figure(folder, agents, "400 B", sizes) for agents in sizes.fleets]
    figures += [_figure(folder, sizes.fleets[-1], kind, sizes) for kind in KINDS[1:]]
    return Section(
        title="One loop, many agents",
        before=(
            "The real loop, rules, fold and SQLite log; only the effects are pretended and end at once. Each agent "
            "goes on for ever: response, tool start, result, next request. A step takes the outcomes of all agents, "
            "derives what is due after them (the exact bytes of each model request are built and hashed), and "
            "appends all of it in one durable transaction. Of each agent's four events one is the result with the "
            "body named here; the others have 120 to 210 bytes and 6 to 8 leaves.",
        ),
        parts=(tuple(figures),),
        after=(
            "Two events share a flush with one agent, and hundreds with many; from there on the processor is the "
            "limit: about half of an event's time is its salts and hashes, a sixth each the rules, the fold and "
            "SQLite.",
        ),
    )


def _figure(folder: Path, agents: int, kind: Kind, sizes: Sizes) -> Figure:
    events = min(sizes.loop_events, 600 * agents)
    raw = os.open(folder / "raw-fleet", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    row = bytes(content_bytes([seal(finished("main/1", 1, text_of(kind)), "main", 0)]))
    measured: list[float] = []
    references: list[float] = []
    try:
        for _ in range(sizes.rounds):
            begun = time.perf_counter()
            for _step in range(20):
                os.write(raw, row * agents)
                os.fdatasync(raw)
            references.append(20 * agents / (time.perf_counter() - begun))
            fleet = Fleet(folder, agents)
            measured.append(fleet.run(kind, events).per_second())
            fleet.close()
            fleet.log.path.unlink()
    finally:
        os.close(raw)
    return Figure(
        name=f"{agents} agent{'s' * (agents > 1)}, {kind}", unit="events/s", samples=tuple(measured),
        reference="write + fdatasync, as many rows at once", reference_samples=tuple(references),
        value_aim=8000 if agents == 256 and kind == "400 B" else 0,
    )  # fmt: skip
