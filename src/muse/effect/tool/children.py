"""What the tools `diff` and `apply` are told of an agent below the caller: what it changed in its own working tree.

It comes from the log, so it is there when the tree is gone. Who is below whom, and where contents are, is the
runtime's matter; functions that know are passed in.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from muse.effect.tool.arguments import Parameter, Refusal, quote
from muse.event.content import BlobRef, FileChange

LINK: Final = 0o120000

AGENT: Final = Parameter(name="agent", kind="string", required=True, description="Its id, like main.1.")
PATHS: Final = Parameter(
    name="paths", kind="strings", description="Only these files or folders, relative to the workspace (default: all)."
)


class ChildChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent changed from the beginning of its tree to now, one entry a path, by path. `taken` has those paths
    that were taken over into the caller's folder before, each as it was then. `is_working`: it has not finished;
    `is_whole`: no look at its files failed."""

    agent: str
    changes: tuple[FileChange, ...]
    taken: Mapping[str, FileChange] = {}
    is_working: bool = False
    is_whole: bool = True


class Children(msgspec.Struct, frozen=True):
    """`changes(caller, agent)`: raises Refusal when there is no such agent below the caller, or none with a tree of its
    own. `content` gives the bytes of a blob of the log."""

    changes: Callable[[str, str], Awaitable[ChildChanges]]
    content: Callable[[BlobRef], Awaitable[bytes]]


def chosen(found: ChildChanges, paths: Iterable[str]) -> tuple[FileChange, ...]:
    """The changes at these paths and below them, all without any. Raises Refusal for one at which nothing changed."""
    wanted = [path.strip("/").removeprefix("./") for path in paths]
    if not wanted:
        return found.changes
    for path in wanted:
        if not any(is_at(change.path, path) for change in found.changes):
            named = ", ".join(change.path for change in found.changes[:20]) or "nothing"
            raise Refusal(f"{found.agent} changed nothing at {quote(path)}; it changed: {named}")
    return tuple(change for change in found.changes if any(is_at(change.path, path) for path in wanted))


def is_at(path: str, place: str) -> bool:
    """Whether a path is that place, or below it."""
    return place in ("", ".") or path == place or path.startswith(place + "/")


def kind_of(mode: int) -> str:
    """What git would call it."""
    return "link" if mode == LINK else "program" if mode & 0o100 else "file"
