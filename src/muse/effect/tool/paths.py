"""Where a path that a model wrote really leads, and whether that is inside the workspace.

Symlinks, `..`, `~` and absolute paths are resolved first; a path that goes through a symlink is answered with the real
one, and what the file tools then walk holds no symlink. Anything that could be git's own folder is reported as `.git`,
because writing there runs code. This module must not read or change any file.
"""

import os
import unicodedata
from typing import Final

import msgspec

from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Refusal, quote
from muse.event.text import clean

PATH_BYTES_MAX: Final = 4096
"""The longest path that Linux takes."""


class Location(msgspec.Struct, frozen=True):
    """A resolved path. `relative` is workspace-relative with `/` (`.` is the root), or absolute when outside."""

    given: str
    relative: str
    inside: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """The steps from the workspace root; empty for the root itself."""
        assert self.inside
        return () if self.relative == "." else tuple(self.relative.split("/"))


def locate(workspace: Workspace, given: str) -> Location:
    """Resolve a path as a model wrote it, against the workspace root. Raises Refusal for what is no path at all."""
    if not given:
        raise Refusal("argument path is empty: give a path relative to the workspace")
    if "\0" in given:
        raise Refusal("argument path holds a NUL character, which no path can hold: leave it out")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise Refusal("argument path holds half a surrogate pair, which no path can hold") from None
    if size > PATH_BYTES_MAX:
        raise Refusal(f"argument path has {size} bytes; the system takes at most {PATH_BYTES_MAX}")
    root = str(workspace.root)
    resolved = os.path.realpath(os.path.join(root, os.path.expanduser(given)))
    if not resolved.isprintable() and clean(resolved).exact is not None:
        raise Refusal(f"{quote(given)} leads to a name that is not Unicode: use shell for it")
    relative = _inside(root, resolved)
    return Location(given, resolved if relative is None else relative, relative is not None)


def inside(workspace: Workspace, given: str) -> Location:
    """The same, and Refusal when it leads out of the workspace or goes through a symlink.

    Permission rules are judged on the letters of a path, so a path whose letters say one thing and which leads to
    another is not followed: the message names the real one, to be asked for (and judged) by its own name.
    """
    location = locate(workspace, given)
    if not location.inside:
        leads = "" if location.relative == given else f", which leads to {quote(location.relative)},"
        raise Refusal(
            f"{quote(given)}{leads} is outside the workspace {workspace.root}: file tools stay inside it. "
            "Give a path relative to the workspace, or use shell"
        )
    if _inside(str(workspace.root), os.path.normpath(os.path.join(workspace.root, given))) != location.relative:
        raise Refusal(f"{quote(given)} goes through a symlink: give the real path {quote(location.relative)}")
    return location


def reported(workspace: Workspace, given: str) -> tuple[str, ...]:
    """What `Tool.paths` answers for one path: relative to the workspace, absolute outside; none when it is no path."""
    try:
        return (_with_git_named(workspace, locate(workspace, given)),)
    except Refusal:
        return ()


def _inside(root: str, resolved: str) -> str | None:
    """`resolved` relative to `root`, None when it is not below it."""
    if resolved == root:
        return "."
    prefix = root if root.endswith("/") else root + "/"
    return resolved[len(prefix) :] if resolved.startswith(prefix) else None


def _with_git_named(workspace: Workspace, location: Location) -> str:
    """The path, with every component that some file system takes for `.git` spelled so, and a linked `.git` found."""
    path = location.relative
    named = "/".join(".git" if _is_git_folder(part) else part for part in path.split("/"))
    link = workspace.root / ".git"
    if location.inside and os.path.islink(link):
        below = _inside(os.path.realpath(link), os.path.join(workspace.root, path))
        if below is not None:
            return ".git" if below == "." else f".git/{below}"
    return named


def _is_git_folder(part: str) -> bool:
    """Case does not count on some file systems, nor do invisible characters on HFS+, nor the short name on NTFS."""
    visible = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return visible.casefold().rstrip(" .") in (".git", "git~1")
