"""File tools that keep to the sandbox. They run in the host, where no sandbox holds, so they are asked beforehand."""

from collections.abc import Mapping

from muse.effect.protocol import Keep, KeepFile, Show, Tool, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.sandbox.choice import Sandbox
from muse.event.content import Observed, ToolSpec


class GuardedTool:
    """A tool whose paths are looked at before it may write."""

    def __init__(self, tool: Tool, sandbox: Sandbox) -> None:
        self.spec: ToolSpec = tool.spec
        self._tool = tool
        self._sandbox = sandbox

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """As the tool says."""
        return self._tool.paths(workspace, args)

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """As the tool says; or that the sandbox refuses it, and nothing is looked at."""
        for path in self._tool.paths(workspace, call.args):
            if why := self._sandbox.refusal(path):
                return Observed(folder=str(workspace.root), error=why)
        return await self._tool.observe(call, workspace, keep)

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """As the tool does; what was refused stays so."""
        return await self._tool.run(call, observed, workspace, keep, keep_file, show, attach)

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """As the tool says."""
        return await self._tool.reconcile(call, observed, workspace)
