"""The git worktree behind a working tree: an entry of the user's repository, and the commit that it begins at.

git is run in the user's repository here, and only so: with no configuration of the user or the system, no hooks, no
file system monitor, no transport, and with nothing checked out, so that no filter runs. What it writes is the one entry
below `worktrees/`; refs, index, stash and configuration of the user stay as they are. This module must not know which
files are laid over the tree.
"""

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.snapshot.git import Deadline, Git, GitFailed, SnapshotError, program, user_excludes
from muse.effect.snapshot.repository import git_folder, top_of
from muse.effect.worktree.copying import PREPARE_SECONDS_MAX, WorktreeError

LINK_BYTES_MAX: Final = 8192
ADD_TRIES_MAX: Final = 6
ADD_WAIT_SECONDS: Final = 0.05
"""Before the second try at adding a worktree; it doubles from there."""
_QUIET: Final = {
    "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0", "GIT_ADVICE": "0",
}  # fmt: skip
_ADD: Final = ("-c", "worktree.useRelativePaths=false", "worktree", "add", "--detach", "--no-checkout")


class Linked(msgspec.Struct, frozen=True):
    """Where a linked worktree is kept: its own part of the git folder, and the git folder that all of them share."""

    entry: Path
    common: Path


class Repository:
    """The user's repository around `source`, a folder with all links resolved. Calls block."""

    def __init__(self, source: Path, environment: Mapping[str, str]) -> None:
        """Raises WorktreeError when git cannot be used there."""
        self.top = top_of(source)
        folder = git_folder(self.top)
        assert folder is not None, "asked of a folder that is in no repository"
        self.folder = Path(os.path.realpath(folder))
        self.common = _common(self.folder)
        try:
            self._program = program(environment)
        except SnapshotError as error:
            raise WorktreeError(str(error), hint=error.hint) from error
        self._deadline = _Deadline(PREPARE_SECONDS_MAX)
        self._git = self._at(self.folder, self.top)
        self._users = user_excludes(self._program, source, environment)

    def head(self) -> str:
        """The commit that is checked out, "" while there is none."""
        try:
            return self._git.run(self._deadline, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        except GitFailed:
            return ""

    def is_ignored(self, folder: Path) -> bool:
        """Whether git ignores all that is in a folder of the work tree."""
        if folder == self.top:
            return False
        try:
            self._run("check-ignore", "-q", "--", os.path.relpath(folder, self.top))
        except WorktreeError:
            return False
        return True

    def listed(self) -> tuple[list[bytes], list[bytes]]:
        """What the work tree may hold, in the index or not, but for what is ignored: paths, with a slash at the end
        where another repository is; and those of the index that a sparse checkout leaves out. Raises WorktreeError."""
        output = self._run("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
        paths: dict[bytes, None] = {}
        sparse = []
        for line in output.split(b"\0"):
            if path := line[2:]:
                paths[path.rstrip(b"/")] = None
                if line.startswith(b"S "):
                    sparse.append(path)
        return list(paths), sparse

    def add(self, folder: Path, name: str, target: Path, commit: str, sparse: list[bytes]) -> None:
        """Make the worktree `target`, an empty folder that stands in `folder`, with its entry called `name` and its
        index as the commit is. Raises WorktreeError and OSError."""
        self._add(folder, name, commit)
        (folder / name).rename(target)
        found = linked(target, self.common)
        if found is None or found.entry.name != name:
            raise WorktreeError("git made the worktree under another name")
        (found.entry / "gitdir").write_text(f"{target / '.git'}\n", encoding="utf-8", errors="surrogateescape")
        inside = self._at(found.entry, target)
        inside.run(self._deadline, "read-tree", commit)
        if sparse:
            there = set(inside.run(self._deadline, "ls-files", "-z").split(b"\0"))
            data = b"\0".join(path for path in sparse if path in there)
            if data:
                inside.run(self._deadline, "update-index", "-z", "--skip-worktree", "--stdin", data=data + b"\0")

    def _add(self, folder: Path, name: str, commit: str) -> None:
        """git reads the entries of all worktrees when it adds one, and gives up where another git is just writing its
        own (`failed to read …/commondir`): one of 50 that are added two at a time. So it is tried again."""
        for tried in range(1, ADD_TRIES_MAX + 1):
            try:
                self._run(*_ADD, str(folder / name), commit)
                return
            except WorktreeError:
                if tried == ADD_TRIES_MAX:
                    raise
                drop_entry(self.common, name)
                shutil.rmtree(folder / name, ignore_errors=True)
                time.sleep(ADD_WAIT_SECONDS * 2 ** (tried - 1))

    def _run(self, *arguments: str) -> bytes:
        named = ("-c", f"core.excludesFile={self._users}") if self._users is not None else ()
        try:
            return self._git.run(self._deadline, *named, *arguments)
        except SnapshotError as error:
            raise WorktreeError(str(error), hint=error.hint) from error

    def _at(self, folder: Path, top: Path) -> Git:
        git = Git(self._program, folder, self.common / "objects", top, top)
        return git.with_environment(_QUIET, umask=-1)


class _Deadline(Deadline):
    def missed(self) -> SnapshotError:
        return SnapshotError(f"preparing a working tree took longer than {self.seconds:g} s", lasting=True)


def linked(tree: Path, common: Path | None = None) -> Linked | None:
    """What stands behind a working tree, if it is a linked one of that repository, or (None) of any: both sides must
    name each other, because the file in the tree can be written by whoever works there."""
    with suppress(OSError, ValueError):
        with (tree / ".git").open("rb") as file:
            text = os.fsdecode(file.read(LINK_BYTES_MAX))
        entry = Path(os.path.realpath(tree / text.removeprefix("gitdir:").strip()))
        found = Linked(entry, entry.parent.parent)
        right = entry.parent.name == "worktrees" and common in (None, found.common) and text.startswith("gitdir:")
        if right and (found.common / "objects").is_dir():
            return found
    return None


def drop_entry(common: Path, name: str) -> None:
    """Take the entry `name`, which is ours by its name, out of a repository. Raises OSError."""
    entry = common / "worktrees" / name
    if entry.is_symlink():
        entry.unlink()
    elif entry.is_dir():
        shutil.rmtree(entry)
    with suppress(OSError):  # others have worktrees
        entry.parent.rmdir()


def _common(folder: Path) -> Path:
    try:
        named = os.fsdecode((folder / "commondir").read_bytes()[:LINK_BYTES_MAX]).strip()
    except OSError:
        return folder
    return Path(os.path.realpath(folder / named))
