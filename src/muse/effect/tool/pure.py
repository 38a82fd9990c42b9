"""What the tools that only look have in common: nothing to record before, nothing to settle after a crash.

A subclass says what the answer is. Class `pure`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import anyio

from muse.effect.protocol import Keep, KeepFile, Show, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, take
from muse.effect.tool.paths import reported
from muse.event.content import Observed, ToolSpec


class PureTool(ABC):
    """A tool without any effect."""

    spec: ToolSpec
    parameters: ClassVar[tuple[Parameter, ...]]

    @abstractmethod
    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """The text for the model. Raises Refusal."""

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """The file or folder that is looked at."""
        try:
            return reported(workspace, take(self.spec.name, self.parameters, args).text("path", "."))
        except Refusal:
            return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Keep) -> Observed:
        """Nothing needs to be recorded before a look."""
        return Observed(folder=str(workspace.root))

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """The answer, or why there is none."""
        try:
            args = take(self.spec.name, self.parameters, call.args)
            args.call = call.call
            return ToolResult(status="ok", text=await self.answer(args, workspace))
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except anyio.get_cancelled_exc_class():
            return ToolResult(status="cancelled", text="cancelled")

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        """A look has no effect: look again."""
        return Verdict(verdict="retried", evidence="looking has no effect")
