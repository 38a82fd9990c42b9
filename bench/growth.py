"""What a long session costs: bytes of its log and processor time of its calls, while its transcript grows.

The whole runtime runs: loop, rules, dispatch, fold, SQLite log, checkpoints. The model answers at once with one tool
use; the tool answers with a few lines.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec

from bench.fleet import SETTINGS
from bench.measure import Section, Sizes, Table
from muse.decide.context import Builder, Rules, next_request
from muse.effect.model import anthropic, openai, scripted
from muse.effect.model.scripted import Step, answer_of
from muse.effect.protocol import ModelAnswer, Show, ToolCall, ToolResult, Verdict, Workspace
from muse.event.content import Observed, ToolSpec
from muse.event.conversation import Answered, Resulted, Said
from muse.event.kinds import COMMANDS, ModelRequested, UserPrompted
from muse.fold.state import Session
from muse.log.sqlite import SqliteLog
from muse.runtime.dispatch import Equipment
from muse.runtime.seal import seal
from muse.runtime.session import Running, claim

DURATION = re.compile(rb'"duration_ms":[0-9]+,?')
BUILDERS = {
    "scripted": Builder(scripted.BUILDER, scripted.build),
    "anthropic": Builder(anthropic.BUILDER, anthropic.build),
    "openai": Builder(openai.BUILDER, openai.build),
}


class Lister:
    """A tool that answers with a few lines, none of them twice."""

    spec = ToolSpec(name="list", description="List a folder.", schema='{"type":"object"}', recovery="pure")

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None."""
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Any) -> Observed:
        """Nothing."""
        return Observed()

    async def run(self, call: ToolCall, observed: Observed, workspace: Workspace, *_: Any) -> ToolResult:
        """Five lines."""
        return ToolResult(status="ok", text="".join(f"{call.call} src/module_{n}.py 1,204 bytes\n" for n in range(5)))

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """It only reads."""
        return Verdict(verdict="not_done", evidence="it only reads")


class Counting:
    """A model that is asked `calls` times, each time uses the tool `uses` times, and then ends. It does not look at the
    request: what reading it would cost is the provider's."""

    def __init__(self, calls: int, uses: int = 1) -> None:
        self._calls = calls
        self._uses = uses
        self._asked = 0

    async def ask(self, request: bytes, call: str, attempt: int, show: Show) -> ModelAnswer:
        """The next answer."""
        self._asked += 1
        if self._asked == self._calls:
            return answer_of(Step(text="Done."), self._asked - 1)
        uses = tuple(("list", {"folder": f"src/part_{self._asked}_{n}"}) for n in range(self._uses))
        return answer_of(Step(text=f"I look at part {self._asked} next.", uses=uses), self._asked - 1)


class Grown(msgspec.Struct):
    """A session that has run, in numbers."""

    calls: int
    events: int
    content_bytes: int
    event_bytes: int
    timeless_bytes: int  # headers and bodies without how long anything took: the same on every machine, also a busy one
    file_bytes: int
    request_bytes: int
    cpu_ms_a_call: float
    state: Session


def run(folder: Path, calls: int, dialect: str = "anthropic", uses: int = 1) -> Grown:
    """Run a session of so many model calls, each with so many uses of a tool, to its end. The dialect is the one whose
    requests are built."""
    path = folder / f"grown-{calls}.muse"
    log = SqliteLog.create(path, "s", commands=COMMANDS)
    settings = msgspec.structs.replace(SETTINGS, dialect=dialect)
    ownership = claim(log, settings, str(folder), lambda _epoch: (Lister.spec,))
    log.submit(seal(UserPrompted(text="Look at everything."), "main", 0))
    equipment = Equipment(
        model=Counting(calls, uses),
        tools={"list": Lister()},
        workspace=Workspace(folder),
        log=log,
        blobs=lambda: log,
        settled=lambda _call, _attempt: None,
        on_signal=lambda _call, _text: None,
    )
    sent: list[int] = []

    def on_event(event: Any) -> None:
        if isinstance(event.body, ModelRequested):
            sent.append(event.body.request_bytes)

    running = Running(log, ownership, Rules(1, BUILDERS), equipment, on_event)
    begun = time.process_time()
    state = anyio.run(running.run)
    spent = time.process_time() - begun
    running.release()
    with SqliteLog.open(path, read_only=True) as closed:
        stored = list(closed.read())
    return Grown(
        calls=len(sent),
        events=len(stored),
        content_bytes=sum(_content(item) for item in state.agents["main"].items),
        event_bytes=sum(len(one.header) + len(one.body or b"") for one in stored),
        timeless_bytes=sum(len(one.header) + len(DURATION.sub(b"", one.body or b"")) for one in stored),
        file_bytes=path.stat().st_size,
        request_bytes=sum(sent),
        cpu_ms_a_call=spent / len(sent) * 1e3,
        state=state,
    )


def _content(item: Said | Answered | Resulted) -> int:
    if isinstance(item, Answered):
        return sum(len(block.text) + len(block.args) for block in item.blocks)
    return len(item.text)


def section(folder: Path, sizes: Sizes) -> Section:
    """Sessions of each length."""
    grown = [run(folder, calls) for calls in sizes.calls]
    rows = tuple(
        (
            f"{one.calls:,}", f"{one.events:,}", _kib(one.content_bytes / one.calls), _kib(one.event_bytes / one.calls),
            _kib(one.file_bytes / one.calls), _kib(one.request_bytes / one.calls), f"{one.cpu_ms_a_call:.2f} ms",
        )
        for one in grown
    )  # fmt: skip
    headings = ("calls", "events", "content a call", "headers and bodies a call", "log file a call",
                "whole requests a call", "processor time a call")  # fmt: skip
    last = grown[-1]
    return Section(
        title="A long session",
        before=(
            "Sessions of one agent, each call with one tool use and a result of five lines, run by the whole "
            "runtime. The log file holds the events, their keys and hashes, the provider's raw responses, and the "
            "fold's checkpoints. *Whole requests* is what a log that stored each request would add: the square.",
        ),
        parts=(Table(headings=headings, rows=rows), _requests(last.state, sizes.rounds)),
        after=(
            "What a call adds to the events does not depend on how long the session has run. The file holds the "
            "fold's checkpoints besides, each as large as the transcript; they are written ever more seldom and older "
            "ones are dropped, so that all of them together stay a small multiple of it. The request itself grows "
            "with the transcript, since all of it is sent: it is put together from text that is kept, and hashed, and "
            "that is why the processor time of a call grows. It is that of everything: the commits' system calls and "
            "all four events of a call are in it.",
        ),
    )


def _requests(state: Session, rounds: int) -> Table:
    """The next request of the longest session in each dialect: building it against hashing it."""
    rows = []
    agent = state.agents["main"]
    for dialect, builder in BUILDERS.items():
        assert state.settings is not None
        as_sent = msgspec.structs.replace(state, settings=msgspec.structs.replace(state.settings, dialect=dialect))
        first = _cpu_ms(lambda as_sent=as_sent: next_request(as_sent, agent, Rules(1, BUILDERS)).body)  # type: ignore[misc]
        data = next_request(as_sent, agent, Rules(1, BUILDERS)).body
        builds = sorted(
            _cpu_ms(lambda as_sent=as_sent: next_request(as_sent, agent, Rules(1, BUILDERS)).body)  # type: ignore[misc]
            for _ in range(rounds)
        )
        hashes = sorted(_cpu_ms(lambda data=data: hashlib.sha256(data).hexdigest()) for _ in range(rounds))  # type: ignore[misc]
        middle = rounds // 2
        rows.append(
            (
                builder.name, _kib(len(data)), f"{first:.1f} ms" if dialect != "anthropic" else "(built before)",
                f"{builds[middle]:.2f} ms ({builds[-1]:.2f})", f"{hashes[middle]:.2f} ms ({hashes[-1]:.2f})",
                f"{builds[middle] / max(hashes[middle], 1e-6):.1f}",
            )
        )  # fmt: skip
    headings = ("builder", "request", "first built", "built again (worst)", "one SHA-256 over it (worst)", "ratio")
    return Table(headings=headings, rows=tuple(rows))


def _cpu_ms(work: Any) -> float:
    begun = time.thread_time()
    work()
    return (time.thread_time() - begun) * 1e3


def _kib(count: float) -> str:
    return f"{count / 1024:,.2f} KiB" if count < 10_240 else f"{count / 1024:,.0f} KiB"
