"""What of the user's own repository matters for a snapshot: its root, and the files that say what it ignores.

Files are looked at; git is not run in the user's repository, and nothing in it is changed. This module must not know
how a snapshot is taken.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from muse.effect.snapshot.git import SnapshotError

_GITFILE_BYTES_MAX: Final = 8192


def top_of(work: Path) -> Path:
    """The root of the repository that a folder belongs to, or the folder itself."""
    for folder in (work, *work.parents):
        if git_folder(folder) is not None:
            return folder
    return work


def git_folder(top: Path) -> Path | None:
    """The git folder of the repository whose root `top` is, None if it is none: for a worktree or a submodule, the one
    that its `.git` file names."""
    here = top / ".git"
    try:
        if here.is_file():
            with here.open("rb") as file:
                text = os.fsdecode(file.read(_GITFILE_BYTES_MAX))
            named = text.removeprefix("gitdir:").strip()
            here = top / named if named and text.startswith("gitdir:") else here
        return here if (here / "HEAD").is_file() else None
    except (OSError, ValueError):
        return None


def info_exclude(top: Path) -> Path | None:
    """The repository's own file of patterns, which it shares with its worktrees; None outside a repository."""
    folder = git_folder(top)
    if folder is None:
        return None
    try:
        common = folder / os.fsdecode((folder / "commondir").read_bytes()[:_GITFILE_BYTES_MAX]).strip()
    except (OSError, ValueError):
        common = folder
    return common / "info" / "exclude"


def refuse_home(work: Path, environment: Mapping[str, str]) -> None:
    """Raises SnapshotError for a home folder, and for any that holds one: what is in there is no project."""
    home = Path(environment.get("HOME") or "~").expanduser()
    if work == home or home.is_relative_to(work):
        raise SnapshotError(
            f"{work} is a home folder, or holds one, and is too much to look through at every step",
            hint="start muse in the folder of a project",
            lasting=True,
        )
