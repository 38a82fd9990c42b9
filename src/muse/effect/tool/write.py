"""The write tool: a whole file, new or replaced."""

from typing import ClassVar

from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, quote, schema_of
from muse.effect.tool.compare import count_changes, count_lines, counted
from muse.effect.tool.paths import Location
from muse.effect.tool.replacing import PATH, Planned, ReplacingTool
from muse.event.content import ToolSpec

_PARAMETERS = (
    PATH,
    Parameter(
        name="content",
        kind="string",
        required=True,
        description="The whole new content, written exactly as given.",
    ),
)

_DESCRIPTION = """\
Create a file or replace its whole content; missing folders are made. To change parts of a file use edit."""


class WriteTool(ReplacingTool):
    """Writes a whole file."""

    spec = ToolSpec(
        name="write", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="reconcilable", writes=True
    )
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def plan(self, args: Arguments, workspace: Workspace, location: Location, before: bytes | None) -> Planned:
        """The content as given, in UTF-8; a placeholder for a secret that the file holds is that secret."""
        if location.given.endswith("/"):
            raise Refusal(f"{quote(location.given)} names a folder: give the path of a file")
        try:
            data = self._secrets.restored(args.text("content"), before or b"").encode()
        except UnicodeEncodeError as error:
            raise Refusal(
                f"argument content holds half a surrogate pair at character {error.start}: give the whole character"
            ) from None
        lines = f"{counted(count_lines(data), 'line')}, {counted(len(data), 'byte')}"
        if before is None:
            return Planned(data, f"created {location.relative} ({lines})")
        if before == data:
            return Planned(data, f"{location.relative} already has exactly this content ({lines})")
        return Planned(data, f"wrote {location.relative} ({lines}; {count_changes(before, data)})")
