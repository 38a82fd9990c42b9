"""Makes the working tree of an agent, and takes it away.

    <folder>/            one an agent, in muse's home; `made` in it names the repository that the tree is linked to
    <folder>/<name>/     the tree: of the whole repository that the parent's workspace belongs to, or of its folder
    <folder>/going/      the tree while it is taken away: from then on nobody takes it for one that may hold something

What an earlier try left behind goes first, so making one again after a kill begins anew; the entry in the user's
repository has a name of its own (`muse-SESSION-AGENT`) by which it is found. Calls block. This module must not know
events.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.snapshot.git import SnapshotError
from muse.effect.snapshot.repository import git_folder, refuse_home, top_of
from muse.effect.worktree import copying
from muse.effect.worktree.copying import Limits, WorktreeError, lay_over, walked
from muse.effect.worktree.linked import Repository, drop_entry, linked
from muse.failpoint import hit

NOTE: Final = "made"
GOING: Final = "going"
NOTE_BYTES_MAX: Final = 8192


class Made(msgspec.Struct, frozen=True):
    """A working tree: `workspace` is where its agent works, in `tree`; `base` the commit that it is a worktree of, ""
    for a copy. `left_out` names what the parent has and it has not."""

    tree: Path
    workspace: Path
    base: str = ""
    left_out: tuple[str, ...] = ()


def make(home: Path, folder: Path, entry: str, source: Path, environment: Mapping[str, str] = os.environ) -> Made:
    """The working tree in `folder`, below muse's `home`, with the files of the workspace `source` as they are now.
    `entry` names it in the repository. Raises WorktreeError and OSError; then nothing of it is left."""
    source = Path(os.path.realpath(source))
    discard(folder, entry)
    try:
        refuse_home(source, environment)
        if not source.is_dir():
            raise WorktreeError(f"the workspace {source} is not there")
        if ".git" in source.parts:
            raise WorktreeError(f"{source} lies in a git folder, of which no working tree can be made")
        return _made(home, folder, entry, source, environment)
    except BaseException as error:
        with suppress(OSError):
            discard(folder, entry)
        if isinstance(error, SnapshotError):
            raise WorktreeError(str(error), hint=error.hint) from error
        raise


def discard(folder: Path, entry: str) -> None:
    """Take a tree away, whole or half made, and its entry `entry` in the repository. Whoever is killed at it goes on
    with it at the next call. Raises OSError."""
    going = folder / GOING
    _remove(going)
    for below in folder.glob("*/"):
        below.rename(going)
        hit("worktree_going")
        try:
            _remove(going)
        except OSError:
            with suppress(OSError):
                going.rename(below)
            raise
    hit("worktree_gone")
    common, _ = _noted(folder)
    if common is not None and (common / "worktrees").is_dir():
        drop_entry(common, entry)
    _remove(folder)


def moved_on(folder: Path) -> bool:
    """Whether the tree in `folder` has commits of its own."""
    _, base = _noted(folder)
    with suppress(OSError):
        trees = (tree for tree in folder.glob("*/") if tree.name != GOING)
        return any(own_commits(tree, base) for tree in trees if (tree / ".git").is_file())
    return True


def _noted(folder: Path) -> tuple[Path | None, str]:
    """The git folder that the tree in `folder` is linked to, and its first commit."""
    try:
        common, _, commit = (folder / NOTE).read_bytes()[:NOTE_BYTES_MAX].rpartition(b"\n")
    except FileNotFoundError:
        return None, ""
    return Path(os.fsdecode(common)), commit.decode("ascii", "replace")


def own_commits(tree: Path, base: str) -> str:
    """What of a worktree's history is not its first commit, in words, "" when there is nothing. Raises OSError."""
    found = linked(tree)
    if not base or found is None:
        return "" if not base else "its link to the repository is broken"
    head = (found.entry / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
    if head != base:
        return f"it has commits of its own, or another branch ({head.removeprefix('ref: ')[:60]})"
    log = found.entry / "logs" / "HEAD"
    moves = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    if any(line.split(" ", 2)[1] != base for line in moves if line.count(" ") > 1):
        return "commits were made in it that only its history names"
    return ""


def _made(home: Path, folder: Path, entry: str, source: Path, environment: Mapping[str, str]) -> Made:
    _make_private(home, folder)
    top = top_of(source)
    target = folder / (top.name or "workspace")
    if target.name in (NOTE, GOING, entry):
        target = folder / "workspace"
    if git_folder(top) is None:
        return _copied(folder, target, source, home)
    repository = Repository(source, environment)
    if repository.is_ignored(source):
        return _copied(folder, target, source, home)
    commit = repository.head()
    (folder / NOTE).write_bytes(os.fsencode(repository.common) + b"\n" + commit.encode())
    hit("worktree_begun")
    paths, sparse = repository.listed()
    if home.is_relative_to(top):
        inside = os.fsencode(home.relative_to(top))
        paths = [path for path in paths if path != inside and not path.startswith(inside + b"/")]
    if commit:
        repository.add(folder, entry, target, commit, sparse)
    else:
        target.mkdir()
    hit("worktree_added")
    limits = Limits(folder, copying.FILES_MAX, copying.BYTES_MAX)
    left = lay_over(top, target, paths, limits)
    hit("worktree_filled")
    workspace = target / source.relative_to(top)
    workspace.mkdir(parents=True, exist_ok=True)
    return Made(target, workspace, commit, tuple(left))


def _copied(folder: Path, target: Path, source: Path, home: Path) -> Made:
    target.mkdir()
    limits = Limits(folder, copying.FOLDER_FILES_MAX, copying.FOLDER_BYTES_MAX)
    left = lay_over(source, target, walked(source, home), limits)
    hit("worktree_filled")
    return Made(target, target, "", tuple(left))


def _make_private(home: Path, folder: Path) -> None:
    """The folder, and those above it up to muse's home, for their owner only, whatever the umask."""
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(home) and one != home]
    for one in reversed(above):
        one.mkdir(0o700, parents=True, exist_ok=True)
        one.chmod(0o700)


def _remove(folder: Path) -> None:
    """Also what a command made read-only, as caches of some tools are. Raises OSError."""
    if folder.is_symlink() or not folder.exists():
        folder.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o700)
        shutil.rmtree(folder)
