"""What a file tool makes is made again: its new content follows from its arguments and the old content alone.

This module must not know how contents are kept.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from muse.decide import approval
from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Refusal
from muse.effect.tool.edit import EditTool
from muse.effect.tool.paths import Location
from muse.effect.tool.replacing import ReplacingTool
from muse.effect.tool.write import WriteTool
from muse.event.kinds import ToolStarted
from muse.runtime.check.report import Diverged

_TOOLS: Final[dict[str, ReplacingTool]] = {"edit": EditTool(), "write": WriteTool()}
_NEEDS_BEFORE: Final = "edit"
_PLACEHOLDERS: Final = (b"[secret ", b"[api key]")
"""What may stand for a secret that only the file held."""


def can_be_made(body: ToolStarted) -> bool:
    """Whether the new content of a call can be made from what the log holds."""
    seen = body.observed
    if body.tool not in _TOOLS or not seen.path or seen.error or not isinstance(body.args, str):
        return False
    if body.tool == _NEEDS_BEFORE and seen.before is None:
        return not seen.before_sha256
    args = msgspec.json.encode(approval.parsed(body.args))
    return not any(placeholder in args for placeholder in _PLACEHOLDERS)


def require_made(body: ToolStarted, workspace: str, before: bytes | None) -> None:
    """Raises `Diverged` where the call, given this old content, makes another new one than it is said to have made."""
    seen, tool = body.observed, _TOOLS[body.tool]
    try:
        args = tool.arguments(approval.parsed(body.args) or {} if isinstance(body.args, str) else {})
        location = Location(args.text("path"), seen.path, inside=True)
        planned = tool.plan(args, Workspace(Path(workspace)), location, before)
    except Refusal as refusal:
        what = f"{body.call} cannot be done to the content that {seen.path} is said to have had"
        raise Diverged("content", what, "a refusal", str(refusal)) from refusal
    found = hashlib.sha256(planned.data).hexdigest()
    if found != seen.after_sha256:
        what = f"{body.call} makes another content of {seen.path} than it is said to have made"
        raise Diverged("content", what, found, seen.after_sha256)
