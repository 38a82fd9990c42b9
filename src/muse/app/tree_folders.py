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
    left = [remove_tree(session, folder) for folder in list(agents_with_trees(session))]
    _leave(session)
    return "; ".join(filter(None, left))


def remove_tree(session: str, folder: Path) -> str:
    """The same of one of them; `folder` is its agent's."""
    from muse.effect.worktree import discard

    try:
        discard(folder, entry_name(session, folder.name))
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    _leave(session)
    return ""


def _leave(session: str) -> None:
    """Take away the folders that are empty now."""
    with suppress(OSError):  # others have trees
        worktree_folder(session).rmdir()
    with suppress(OSError):
        worktree_folder(session).parent.rmdir()


def tree_in(folder: Path) -> Path:
    """The tree in an agent's folder."""
    with suppress(OSError):
        return next((path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()), folder)
    return folder


def has_commits(folder: Path) -> bool:
    """Whether the tree in an agent's folder holds commits which no branch of its repository is known to have."""
    from muse.effect.worktree import moved_on

    return moved_on(folder)
