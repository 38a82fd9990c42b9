"""What records the changes of files in a session: snapshots below MUSE_HOME, contents through a handle of its own."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from muse.config import Config, muse_home
from muse.log.protocol import Log
from muse.runtime.changes import Changes

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets


class Watching:
    """`changes` for one owner of a session. `close` when it has ended."""

    def __init__(
        self, config: Config, log: Log, workspace: Path, epoch: int, secrets: "KnownSecrets",
        writable: tuple[str, ...] = (), *, tree_of: str = "", beside: Path | None = None,
    ) -> None:  # fmt: skip
        """`writable` are the folders that commands may write to. `tree_of` is the agent that `workspace` is the own
        working tree of, made from the workspace `beside`; nobody else works there."""
        from muse.effect.programs import search_path
        from muse.effect.snapshot import TREE, Snapshots

        self._log = log
        self._handle: Log | None = None
        owner = f"{TREE}{log.session}.{tree_of.replace('.', '-')}.{epoch}" if tree_of else f"{log.session}.{epoch}"
        self.snapshots = Snapshots(
            muse_home(),
            workspace,
            owner,
            beside=beside,
            timeout_seconds=config.snapshot_timeout,
            environment={**os.environ, "PATH": search_path((str(workspace), *writable))},
            off=not config.snapshots,
        )
        self.changes = Changes(self.snapshots, self._contents, secrets.is_in, exclusive=bool(tree_of))

    def _contents(self) -> Log:
        if self._handle is None:
            self._handle = self._log.another()
        return self._handle

    def close(self) -> None:
        """Let go of what was opened."""
        self.snapshots.close()
        if self._handle is not None:
            self._handle.close()
