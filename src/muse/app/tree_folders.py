"""The working trees of agents below MUSE_HOME, when nobody works in them: what they hold, and taking them away.

    $MUSE_HOME/worktrees/<session>/<agent>/<name>

A tree may hold what no log does (commits, what git ignores), so it goes with its session only, or when there is no such
session any more. This module must not know how a tree is made.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from muse.config import muse_home


def worktree_folder(session: str) -> Path:
    """Where the working trees of a session are."""
    return muse_home() / "worktrees" / session


def entry_name(session: str, agent: str) -> str:
    """What a tree is called in the repository that it is linked to."""
    return f"muse-{session}-{agent}"


def sessions_with_trees() -> list[str]:
    """The sessions that have any, whether their logs are there or not."""
    with suppress(OSError):
        return sorted(path.name for path in (muse_home() / "worktrees").iterdir() if path.is_dir())
    return []


def agents_with_trees(session: str) -> Iterator[Path]:
    """The folder of each agent that has one."""
    with suppress(OSError):
        yield from sorted(path for path in worktree_folder(session).iterdir() if path.is_dir())


def remove_trees(session: str) -> str:
    """Take all trees of a session away, with their entries in the repositories. Returns what could not be, "" when all
    are gone."""
    from muse.effect.worktree import discard

    left = []
    for folder in agents_with_trees(session):
        try:
            discard(folder, entry_name(session, folder.name))
        except OSError as error:
            left.append(f"{folder}: {error.strerror or error}")
    with suppress(OSError):
        worktree_folder(session).rmdir()
    with suppress(OSError):
        worktree_folder(session).parent.rmdir()
    return "; ".join(left)


def commits_in_trees(session: str) -> list[str]:
    """The trees that hold commits which no branch of their repository is known to have: their folders."""
    from muse.effect.worktree import moved_on

    return [str(folder) for folder in agents_with_trees(session) if moved_on(folder)]
