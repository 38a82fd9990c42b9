"""Working trees for the agents of one owner's session: below muse's home, each with tools, a sandbox and snapshots of
its own.

    $MUSE_HOME/worktrees/<session>/<agent>/<name>

This module joins the making of trees with what works in them; when one is made or goes is not known here.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from muse.app.places import open_log, path_of
from muse.app.sandbox import sandbox_of_tree
from muse.app.tree_folders import entry_name, worktree_folder
from muse.app.watching import Watching
from muse.config import Config, muse_home
from muse.effect.protocol import Tool, Workspace
from muse.errors import MuseError
from muse.event.kinds import WorktreePrepared, WorktreeRemoved
from muse.event.text import clean
from muse.log.protocol import Log
from muse.runtime.children import net_changes
from muse.runtime.places import Place, left_behind
from muse.runtime.session import Session

if TYPE_CHECKING:
    from muse.effect.sandbox import Sandbox
    from muse.effect.tool.masking import KnownSecrets

AT_ONCE_MAX: Final = 2
"""Trees that are made or taken away at the same time."""

LEFT_OUT_NAMED_MAX: Final = 20
LEFT_NAMED_MAX: Final = 50

MADE_AGAIN: Final = frozenset({b"__pycache__", b".pytest_cache", b".mypy_cache", b".ruff_cache"})
"""Folders that the next run of a tool makes again (and `*.pyc`): where git ignores them, they keep no tree, or every
run of tests would (docs/worktrees.md)."""


class _Own:
    """What works in one tree."""

    def __init__(self, watching: Watching, sandbox: "Sandbox", tools: Mapping[str, Tool], workspace: Path) -> None:
        self.watching = watching
        self.sandbox = sandbox
        self.place = Place(Workspace(workspace), tools, watching.changes)

    def close(self) -> None:
        self.watching.close()
        self.sandbox.take_back()


class Worktrees:
    """See `muse.runtime.places.Trees`. `close` when the session has ended."""

    def __init__(
        self, config: Config, log: Log, workspace: Path, epoch: int, secrets: "KnownSecrets", sandbox: "Sandbox",
        tools: "Callable[[Sandbox], Mapping[str, Tool]]",
    ) -> None:  # fmt: skip
        """`sandbox` is the session's, `tools` makes the tools for another one."""
        self._config = config
        self._log = log
        self._workspace = workspace
        self._epoch = epoch
        self._secrets = secrets
        self._sandbox = sandbox
        self._tools = tools
        self._own: dict[str, _Own] = {}
        self._turn: anyio.Semaphore | None = None

    def place(self, agent: str, folder: Path) -> Place:
        """As the protocol says."""
        if agent not in self._own:
            self._own[agent] = self._opened(agent, folder)
        return self._own[agent].place

    async def prepare(self, agent: str, source: Path, since: int, lanes: frozenset[str]) -> WorktreePrepared:
        """As the protocol says."""
        self._forget(agent)
        async with self._at_once():
            return await anyio.to_thread.run_sync(self._prepare, agent, source, since, lanes)

    async def forgo(self, agent: str) -> None:
        """As the protocol says."""
        async with self._at_once():
            await anyio.to_thread.run_sync(self._discard, agent)

    async def remove(self, agent: str, state: Session) -> WorktreeRemoved:
        """As the protocol says."""
        found = state.agents[agent]
        path, base, tree = found.workspace, found.base, found.tree
        left, why = left_behind(state, agent)
        self.place(agent, Path(path))
        async with self._at_once():
            return await anyio.to_thread.run_sync(self._remove, agent, path, base, tree, left, why)

    def close(self) -> None:
        """Let go of what was opened; the trees stay."""
        for agent in list(self._own):
            self._forget(agent)

    def _at_once(self) -> anyio.Semaphore:
        if self._turn is None:
            self._turn = anyio.Semaphore(AT_ONCE_MAX)
        return self._turn

    def _folder(self, agent: str) -> Path:
        return worktree_folder(self._log.session) / agent

    def _forget(self, agent: str) -> None:
        if (own := self._own.pop(agent, None)) is not None:
            own.close()

    def _opened(self, agent: str, workspace: Path) -> _Own:
        sandbox = sandbox_of_tree(self._sandbox, workspace, self._tree_around(agent, workspace))
        watching = Watching(
            self._config, self._log, workspace, self._epoch, self._secrets, sandbox.writable,
            tree_of=agent, beside=self._workspace,
        )  # fmt: skip
        return _Own(watching, sandbox, self._tools(sandbox), workspace)

    def _tree_around(self, agent: str, workspace: Path) -> Path:
        folder = self._folder(agent)
        return next((one for one in (workspace, *workspace.parents) if one.parent == folder), workspace)

    def _prepare(self, agent: str, source: Path, since: int, lanes: frozenset[str]) -> WorktreePrepared:
        from muse.effect.snapshot import SnapshotError
        from muse.effect.worktree import make

        folder = self._folder(agent)
        try:
            made = make(muse_home(), folder, entry_name(self._log.session, agent), source, os.environ)
            workspace = str(made.workspace)
            if clean(workspace).exact is not None:
                return _failed("the folder's name is not UTF-8, and a log names folders as text")
            if since:
                self._lay_own_over(made.workspace, since, lanes)
        except (MuseError, OSError) as error:
            hint = getattr(error, "hint", "")
            return _failed(self._secrets.mask(f"{error}; {hint}" if hint else str(error)))
        own = self._own[agent] = self._opened(agent, made.workspace)
        tree = ""
        with suppress(SnapshotError):  # the first look says why
            tree = own.watching.snapshots.take().id
        left = made.left_out[:LEFT_OUT_NAMED_MAX]
        if len(made.left_out) > len(left):
            left = (*left, f"and {len(made.left_out) - len(left)} more")
        named = tuple(self._secrets.mask(clean(path).text) for path in left)
        return WorktreePrepared(path=workspace, base=made.base, tree=tree, left_out=named)

    def _lay_own_over(self, workspace: Path, since: int, lanes: frozenset[str]) -> None:
        """What the agent had changed in its earlier tree. Raises WorktreeError, OSError and what a log raises."""
        from muse.effect.worktree import put

        with closing(open_log(path_of(self._log), check=False)) as log:
            for change in net_changes(log, since, lanes):
                if change.after is not None or not change.after_mode:
                    data = None if change.after is None else log.get_blob(change.after.blob)
                    put(workspace, change.path, data, change.after_mode)

    def _remove(self, agent: str, path: str, base: str, tree: str, left: tuple[str, ...], why: str) -> WorktreeRemoved:
        own = self._own[agent]
        if not Path(path).is_dir():
            why = "it was gone already"
            left = ()
        elif not why:
            left, why = self._look_over(own, self._tree_around(agent, Path(path)), base, tree)
        if left:
            return WorktreeRemoved(path=path, left=left[:LEFT_NAMED_MAX], why=why)
        self._forget(agent)
        if wrong := self._discard(agent):
            return WorktreeRemoved(path=path, left=(".",), why=f"it could not be removed: {clean(wrong).text}")
        return WorktreeRemoved(path=path, why=why)

    def _discard(self, agent: str) -> str:
        """Why an agent's tree could not be taken away, "" if it is gone."""
        from muse.effect.worktree import discard

        try:
            discard(self._folder(agent), entry_name(self._log.session, agent))
        except OSError as error:
            return str(error)
        with suppress(OSError):  # other agents have trees
            self._folder(agent).parent.rmdir()
        return ""

    def _look_over(self, own: _Own, tree: Path, base: str, known: str) -> tuple[tuple[str, ...], str]:
        """What a tree holds that the log does not, and in words; "" when there is nothing."""
        from muse.effect.snapshot import SnapshotError
        from muse.effect.worktree import own_commits

        try:
            if commits := own_commits(tree, base):
                return (".git",), commits
            now = own.watching.snapshots.take().id
        except (SnapshotError, OSError) as error:
            return (".",), f"what it holds could not be found out: {clean(str(error)).text}"
        if not known or now != known:
            return (".",), "not all of its changes are recorded"
        kept = (one for one in own.watching.snapshots.not_held() if not _is_made_again(tree, one))
        held = [self._secrets.mask(clean(one).text) for one in kept]
        return tuple(held), "these are not recorded: ignored by git, or repositories of their own" if held else ""


def _is_made_again(tree: Path, path: bytes) -> bool:
    """Whether what git ignores there is no reason to keep a tree. A repository within always is one."""
    if not path.endswith(b".pyc") and MADE_AGAIN.isdisjoint(path.split(b"/")):
        return False
    inside = os.walk(os.path.join(os.fsencode(tree), path))
    return not any(b".git" in folders or b".git" in files for _, folders, files in inside)


def _failed(why: str) -> WorktreePrepared:
    return WorktreePrepared(path="", base="", error=clean(why).text)
