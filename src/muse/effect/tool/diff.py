"""The diff tool: what an agent below the caller changed in its working tree, as a unified diff from the log.

Class `pure`: nothing is looked at but the log.
"""

import difflib
from collections.abc import Mapping
from typing import ClassVar, Final

import anyio
import anyio.to_thread

from muse.effect.protocol import Keep, KeepFile, Show, ToolCall, ToolResult, Workspace
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, schema_of, take
from muse.effect.tool.children import AGENT, PATHS, ChildChanges, Children, chosen, kind_of
from muse.effect.tool.files import is_binary
from muse.effect.tool.output import TEXT_BYTES_MAX
from muse.effect.tool.pure import PureTool
from muse.event.content import BlobRef, FileChange, Observed, ToolSpec
from muse.event.text import clean

LINES_MAX: Final = 5_000
"""Contents with more lines than this are not compared line by line: that may cost the square."""

CONTENT_BYTES_MAX: Final = 512 << 10
WORKS: Final = "(it has not finished: more may come)"
NOT_WHOLE: Final = "(a look at its files failed: it may have changed more than this)"

_PARAMETERS: Final = (AGENT, PATHS)
_DESCRIPTION = """\
Show what an agent that you spawned changed in its own working tree, as a unified diff. Your own files are not \
changed by it; apply takes the changes over."""


class DiffTool(PureTool):
    """Shows what a child changed."""

    spec = ToolSpec(name="diff", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def __init__(self, children: Children) -> None:
        self._children = children

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        """None: it looks into the log."""
        return ()

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """Not without a caller."""
        raise Refusal("nobody asks")

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Keep, keep_file: KeepFile, show: Show,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        """The diff, as far as it fits into a result."""
        try:
            args = take(self.spec.name, self.parameters, call.args)
            found = await self._children.changes(call.call.partition("/")[0], args.text("agent"))
            return ToolResult(status="ok", text=await self._shown(found, chosen(found, args.texts("paths"))))
        except Refusal as refusal:
            return ToolResult(status="error", text=str(refusal))
        except anyio.get_cancelled_exc_class():
            return ToolResult(status="cancelled", text="cancelled")

    async def _shown(self, found: ChildChanges, changes: tuple[FileChange, ...]) -> str:
        parts: list[str] = []
        size = 0
        left: list[str] = []
        for change in changes:
            part = "" if left else await self._one(change)
            size += len(part.encode())
            if left or size > TEXT_BYTES_MAX:
                left.append(change.path)
            else:
                parts.append(part)
        if not changes:
            parts.append(f"{found.agent} changed no files.")
        if left:
            named = ", ".join(left[:20]) + (f" and {len(left) - 20} more" if len(left) > 20 else "")
            parts.append(f"(not shown, there was no room: {named}; ask for them with paths)")
        parts += [WORKS] if found.is_working else []
        parts += [] if found.is_whole else [NOT_WHOLE]
        return "\n".join(parts)

    async def _one(self, change: FileChange) -> str:
        heading = heading_of(change)
        if change.note:
            return f"{heading}\n(content not recorded: {change.note})"
        sides = [ref for ref in (change.before, change.after) if ref is not None]
        if any(ref.length > CONTENT_BYTES_MAX for ref in sides):
            return f"{heading}\n(too large to show)"
        before, after = await self._content(change.before), await self._content(change.after)
        return await anyio.to_thread.run_sync(unified, heading, change.path, before, after)

    async def _content(self, ref: BlobRef | None) -> bytes | None:
        return None if ref is None else await self._children.content(ref)


def heading_of(change: FileChange) -> str:
    """The first line about a path."""
    if not change.before_mode:
        kind = kind_of(change.after_mode)
        return f"new {kind} {change.path}"
    if not change.after_mode:
        return f"deleted {change.path}"
    old, new = kind_of(change.before_mode), kind_of(change.after_mode)
    return f"changed {change.path}" + (f" (a {old} became a {new})" if old != new else "")


def unified(heading: str, path: str, before: bytes | None, after: bytes | None) -> str:
    """A heading and the unified diff below it."""
    if is_binary(before or b"") or is_binary(after or b""):
        sizes = [f"{len(data):,} bytes" if data is not None else "nothing" for data in (before, after)]
        return f"{heading}\n(binary: {' became '.join(sizes)})"
    old, new = _lines(before), _lines(after)
    if max(len(old), len(new)) > LINES_MAX and before is not None and after is not None:
        return f"{heading}\n({len(old):,} lines became {len(new):,}: too many to compare)"
    names = "/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}"
    return "\n".join([heading, *difflib.unified_diff(old, new, *names, lineterm="")])


def _lines(data: bytes | None) -> list[str]:
    if not data:
        return []
    text = clean(data).text
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines
