"""A workspace, a runner and a small harness that does with a tool what the runtime does, without a log."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from muse.effect.protocol import Tool, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.runner import Runner
from muse.event.content import BlobRef, Observed


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root=root)


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path / "run", 1, idle_seconds=0.2)
    yield runner
    await runner.aclose()
    last = Runner(tmp_path / "run", 1000, idle_seconds=0.2)  # above every epoch that a test uses
    await last.stop(kill=True)


def blob_of(data: bytes) -> BlobRef:
    """The reference under which the harness keeps content: its SHA-256."""
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data))


class Harness:
    """Observes, runs and reconciles calls of one tool; `blobs` is what was kept, `shown` what was seen live."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        self.tool = tool
        self.workspace = workspace
        self.blobs: dict[str, bytes] = {}
        self.shown: list[str] = []
        self.on_show: Callable[[], None] = lambda: None
        self._calls = 0

    async def keep(self, data: bytes) -> BlobRef:
        reference = blob_of(data)
        self.blobs[reference.blob] = data
        return reference

    async def keep_file(self, path: Path) -> BlobRef:
        return await self.keep(path.read_bytes())

    def show(self, text: str) -> None:
        self.shown.append(text)
        self.on_show()

    def call(self, **args: object) -> ToolCall:
        self._calls += 1
        return ToolCall(
            call=f"main/{self._calls}",
            attempt=1,
            name=self.tool.spec.name,
            args=args,
            args_text=json.dumps(args),
            epoch=1,
        )

    async def observe(self, call: ToolCall) -> Observed:
        return await self.tool.observe(call, self.workspace, self.keep)

    async def run(self, call: ToolCall, observed: Observed | None = None, *, attach: bool = False) -> ToolResult:
        if observed is None:
            observed = await self.observe(call)
        return await self.tool.run(call, observed, self.workspace, self.keep, self.keep_file, self.show, attach)

    async def do(self, **args: object) -> ToolResult:
        return await self.run(self.call(**args))

    async def reconcile(self, call: ToolCall, observed: Observed) -> Verdict:
        return await self.tool.reconcile(call, observed, self.workspace)

    def paths(self, **args: object) -> tuple[str, ...]:
        return self.tool.paths(self.workspace, args)
