"""A session in a folder, opened as often as a test wants, with a tool whose effect is counted outside."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec

from muse.decide.context import Builder, Rules
from muse.effect.model import scripted
from muse.effect.model.scripted import ScriptedModel, Step
from muse.effect.protocol import Tool, ToolCall, ToolResult, Verdict, Workspace
from muse.errors import MuseError
from muse.event.content import Observed, Settings, ToolSpec
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS
from muse.log.protocol import Log
from muse.log.sqlite import SqliteLog
from muse.runtime.dispatch import Equipment
from muse.runtime.seal import seal
from muse.runtime.session import Running, Session, claim

RULES = Rules(version=1, builders={"scripted": Builder(scripted.BUILDER, scripted.build)})
SETTINGS = Settings(provider="scripted", dialect="scripted", model="-", mode="yolo", retry_base_ms=1)


class Tally:
    """A tool whose effect is a line in a file outside, and which waits while `hold` is set."""

    spec = ToolSpec(name="tally", description="", schema="{}", recovery="opaque", writes=True)

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tally.txt"
        self.hold: anyio.Event | None = None
        self.started = anyio.Event()

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Any) -> Observed:
        return Observed()

    async def run(
        self,
        call: ToolCall,
        observed: Observed,
        workspace: Workspace,
        keep: Any,
        keep_file: Any,
        show: Any,
        attach: bool,
    ) -> ToolResult:
        with self.file.open("a") as file:
            file.write(f"{call.call}\n")
        self.started.set()
        if self.hold is not None:
            await self.hold.wait()
        return ToolResult(status="ok", text=f"tallied {call.call}")

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        return Verdict(verdict="unknown", evidence="nobody counted")

    def counts(self) -> Counter[str]:
        return Counter(self.file.read_text().split()) if self.file.exists() else Counter()


def steps(count: int) -> list[Step]:
    """A script of `count` responses with two tool uses each, then an answer."""
    return [Step(text=f"step {n}", uses=(("tally", {"n": n}), ("tally", {"m": n}))) for n in range(count)] + [
        Step(text="done")
    ]


class Rig:
    """One session in a folder, opened as often as a test wants."""

    def __init__(self, folder: Path, script: list[Step]) -> None:
        self.path = folder / "s.muse"
        self.tally = Tally(folder)
        self.model = ScriptedModel(script)
        self.folder = folder
        self.seen: list[Event] = []
        SqliteLog.create(self.path, "s", commands=COMMANDS).close()

    def handle(self) -> SqliteLog:
        return SqliteLog.open(self.path, commands=COMMANDS)

    def submit(self, body: msgspec.Struct) -> int:
        log = self.handle()
        try:
            return log.submit(seal(body, "main", 0))
        finally:
            log.close()

    def open(
        self,
        wrap: Callable[[Log], Log] = lambda log: log,
        tools: Mapping[str, Tool] | None = None,
        on_fatal: Callable[[MuseError], None] | None = None,
    ) -> Running:
        has = tools or {"tally": self.tally}
        log = wrap(self.handle())
        ownership = claim(log, SETTINGS, str(self.folder), lambda epoch: tuple(tool.spec for tool in has.values()))
        equipment = Equipment(
            model=self.model,
            tools=has,
            workspace=Workspace(self.folder),
            log=log,
            blobs=self.handle,
            settled=lambda call, attempt: None,
            on_signal=lambda call, text: None,
        )
        return Running(log, ownership, RULES, equipment, self.seen.append, on_fatal=on_fatal)

    def run(self, wrap: Callable[[Log], Log] = lambda log: log) -> Session:
        running = self.open(wrap)
        try:
            return anyio.run(running.run)
        finally:
            running.release()

    def events(self) -> list[Event]:
        log = self.handle()
        try:
            return [decode(stored.header, stored.body) for stored in log.read()]
        finally:
            log.close()
