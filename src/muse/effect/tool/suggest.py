"""Which file was probably meant when a path names none.

A look at a bounded part of the workspace: a hint, never an answer. This module must not open any file.
"""

import difflib
import os
from pathlib import Path
from typing import Final

from muse.effect.tool.arguments import quote
from muse.effect.tool.paths import Location

LOOKED_AT_MAX: Final = 20_000
"""How many names are looked at."""

SUGGESTIONS_MAX: Final = 3
_SKIPPED: Final = frozenset({".git", "node_modules", ".venv", "__pycache__"})


def no_such_file(root: Path, location: Location, kind: str = "file") -> str:
    """The message about a missing file, with the names that come close."""
    near = similar(root, location.relative)
    hint = f"did you mean {' or '.join(near)}?" if near else "use glob to find files"
    return f"no {kind} {quote(location.given)}; {hint}"


def similar(root: Path, relative: str) -> list[str]:
    """Paths below `root` whose own name or whole path comes close to `relative`."""
    name = relative.rpartition("/")[2]
    paths = _names(root)
    same_name = [path for path in paths if path.rpartition("/")[2].casefold() == name.casefold()]
    near = difflib.get_close_matches(relative, same_name, SUGGESTIONS_MAX, 0.0) if same_name else []
    if not near:
        folder = relative.rpartition("/")[0]
        siblings = [path for path in paths if path.rpartition("/")[0] == folder]
        near = difflib.get_close_matches(relative, siblings, SUGGESTIONS_MAX, 0.6)
    return near or difflib.get_close_matches(relative, paths[: LOOKED_AT_MAX // 10], SUGGESTIONS_MAX, 0.75)


def _names(root: Path) -> list[str]:
    found: list[str] = []
    looked_at = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        base = os.path.relpath(folder, root)
        found.extend(name if base == "." else f"{base}/{name}" for name in sorted(files) if name.isprintable())
        looked_at += 1 + len(folders) + len(files)
        if looked_at > LOOKED_AT_MAX:
            break
    return found[:LOOKED_AT_MAX]
