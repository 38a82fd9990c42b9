"""The glob tool: paths that match a pattern, in order. Class `pure`.

What git ignores is left out, unless the pattern itself names the ignored folder. Only the folders that can hold a
match are read.
"""

import os
import threading
from typing import ClassVar, Final

import anyio
import anyio.to_thread

from muse.effect.protocol import Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, schema_of
from muse.effect.tool.compare import counted
from muse.effect.tool.paths import Location, inside
from muse.effect.tool.patterns import Glob, literal_start
from muse.effect.tool.pure import PureTool
from muse.effect.tool.suggest import no_such_file
from muse.effect.tool.walk import walk
from muse.event.content import ToolSpec
from muse.event.text import clean

PATHS_MAX: Final = 1000
"""The most paths in one answer."""

ENTRIES_MAX: Final = 300_000
"""How many names are looked at."""

PATTERN_BYTES_MAX: Final = 4096
"""The longest pattern."""

_PARAMETERS: Final = (
    Parameter(
        name="pattern",
        kind="string",
        required=True,
        description="Like *.md (in that folder), **/*.py (at any depth), src/**/*.{ts,tsx}, */.",
        aliases=("glob",),
    ),
    Parameter(name="path", kind="string", description="Folder to look in (default: the workspace)."),
)

_DESCRIPTION = f"""\
List files whose path matches a pattern, ordered by path, at most {PATHS_MAX}. Folders are listed with a / at the end, \
unless the pattern has **. Files that .gitignore names are left out unless the pattern begins with their folder."""


class GlobTool(PureTool):
    """Lists paths."""

    spec = ToolSpec(name="glob", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """The paths, one a line, relative to the workspace."""
        stop = threading.Event()
        try:
            return await anyio.to_thread.run_sync(_find, args, workspace, stop, abandon_on_cancel=True)
        finally:
            stop.set()


def _find(args: Arguments, workspace: Workspace, stop: threading.Event) -> str:
    location, pattern = _place(args, workspace)
    try:
        with files.opened_folder(workspace.root, location.parts):
            pass
    except FileNotFoundError:
        raise Refusal(no_such_file(workspace.root, location, "folder")) from None
    except OSError as error:
        raise Refusal(files.explain(location.given, error)) from error
    matches = _Matches(pattern)
    failures: list[OSError] = []
    start = os.path.join(workspace.root, *location.parts)
    prefix = "".join(f"{part}/" for part in location.parts)
    seen = 0
    for entry in walk(start, matches.choose, failures.append):
        seen += 1
        if stop.is_set() or seen > ENTRIES_MAX:
            break
        matches.take(entry.path, entry.is_folder, prefix)
    notes = []
    if matches.count > PATHS_MAX:
        notes.append(f"{matches.count - PATHS_MAX} more: narrow the pattern")
    if seen > ENTRIES_MAX:
        notes.append(f"stopped after {ENTRIES_MAX} names: give a path to look in")
    if failures:
        notes.append(f"{counted(len(failures), 'folder')} could not be read")
    return "\n".join(matches.paths + [f"({note})" for note in notes]) if matches.count else _nothing(pattern, notes)


def _nothing(pattern: str, notes: list[str]) -> str:
    hint = f"for files at any depth use **/{pattern}" if "/" not in pattern else "check the folder, or use **/"
    return "\n".join([f"no files match ({hint}; what .gitignore names is left out)", *(f"({note})" for note in notes)])


class _Matches:
    """Collects what matches, and says which folders cannot hold a match."""

    def __init__(self, pattern: str) -> None:
        self.paths: list[str] = []
        self.count = 0
        self._folders_only = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        self._glob = Glob(pattern)

    def choose(self, path: str, is_folder: bool) -> bool | None:
        """Leave out folders that are too deep for the pattern."""
        return False if self._glob.depth is not None and path.count("/") > self._glob.depth else None

    def take(self, path: str, is_folder: bool, prefix: str) -> None:
        """Take a path if it matches."""
        if is_folder and not (self._folders_only or self._glob.depth is not None):
            return
        if (self._folders_only and not is_folder) or not self._glob.matches(path):
            return
        self.count += 1
        if self.count <= PATHS_MAX:
            self.paths.append(clean(prefix + path).text + ("/" if is_folder else ""))


def _place(args: Arguments, workspace: Workspace) -> tuple[Location, str]:
    """The folder to begin in and the pattern below it: what is plain at a pattern's beginning moves to the folder."""
    pattern, path = args.text("pattern"), args.text("path", ".")
    if not pattern or "\0" in pattern:
        raise Refusal("argument pattern must not be empty nor hold a NUL: give one like **/*.py")
    if clean(pattern).exact is not None:
        raise Refusal("argument pattern holds half a surrogate pair: give the whole character")
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise Refusal(f"argument pattern has {len(pattern.encode())} bytes, at most {PATTERN_BYTES_MAX} are taken")
    plain, rest = literal_start(pattern.removeprefix("./"))
    try:
        Glob(rest.rstrip("/"))
    except ValueError as error:
        raise Refusal(f"argument pattern is no glob: {error}") from None
    if ".." in rest.split("/"):
        raise Refusal("argument pattern must not go up with .. after a wildcard: give the folder as path")
    base = inside(workspace, path)
    if not plain:
        return base, rest
    return inside(workspace, os.path.normpath(os.path.join(base.relative, plain))), rest
