"""What a call would do to its file as the file is now: for a person who is asked. Looks, and changes nothing.

Secrets are not put back into texts here: what a person sees may stand on a shared screen.
"""

from pathlib import Path

import msgspec

from muse.effect.protocol import Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Refusal
from muse.effect.tool.edit import EditTool
from muse.effect.tool.paths import inside
from muse.effect.tool.replacing import ReplacingTool
from muse.effect.tool.write import WriteTool


class Preview(msgspec.Struct, frozen=True):
    """The file of a call with its content now (None: there is none) and afterwards; or why it cannot be done now."""

    path: str = ""
    before: bytes | None = None
    after: bytes = b""
    problem: str = ""


def preview(tool: str, args: dict[str, object] | None, root: Path) -> Preview | None:
    """What an `edit` or a `write` would change in the workspace at `root`; None for any other call."""
    kinds: dict[str, type[ReplacingTool]] = {"edit": EditTool, "write": WriteTool}
    if tool not in kinds or args is None:
        return None
    one, workspace = kinds[tool](), Workspace(root)
    try:
        given = one.arguments(args)
        location = inside(workspace, given.text("path"))
        image = files.read_image(workspace.root, location)
        before = None if image is None else image.data
        return Preview(location.relative, before, one.plan(given, workspace, location, before).data)
    except Refusal as refusal:
        return Preview(problem=str(refusal))
    except OSError as error:
        return Preview(problem=error.strerror or str(error))
