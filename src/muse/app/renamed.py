"""Whether a folder is one that sessions know under another name: it was renamed or moved, and they are of it still.

A workspace whose path is gone is taken for the folder at hand when it has the same inode number (a rename keeps it), or
when the repository there holds the commit that the session began from, at the same place below its root. A folder
that is still where it was is never anything else. This module must not know what is listed or resumed.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from muse.log.catalog import Entry
from muse.runtime import host

REPOSITORIES_MAX: Final = 8
"""So many commits of folders that are gone are looked for in a repository; each costs a start of git."""


def renamed(entries: Iterable[Entry], places: Iterable[str]) -> dict[str, str]:
    """Which of the workspaces, whose paths are gone, are now which of the `places` (the nearest counts): old path → new
    path. `entries` are newest first."""
    known: dict[str, Entry] = {}
    for entry in entries:
        if entry.workspace:
            known.setdefault(entry.workspace, entry)
    gone = [entry for entry in known.values() if not os.path.isdir(entry.workspace)]
    inodes = {place: _inode(place) for place in places}
    found: dict[str, str] = {}
    asked = 0
    for entry in gone:
        place = next((place for place, inode in inodes.items() if inode and inode == entry.inode), "")
        if not place and entry.git_head and asked < REPOSITORIES_MAX:
            asked += 1
            place = next((place for place in inodes if _holds(place, entry)), "")
        if place:
            found[entry.workspace] = place
    return found


def _inode(place: str) -> int:
    try:
        return host.inode(Path(place))
    except ValueError:
        return 0


def _holds(place: str, entry: Entry) -> bool:
    """Whether the repository around `place` is the one in which the session began."""
    try:
        below = Path(entry.workspace).relative_to(entry.git_root)
    except ValueError:
        return False
    root = Path(place)
    for part in reversed(below.parts):
        if root.name != part:
            return False
        root = root.parent
    return (root / ".git").exists() and host.has_commit(root, entry.git_head)
