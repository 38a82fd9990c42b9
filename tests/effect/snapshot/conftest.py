"""A workspace with a home and a private folder, looked at through real git."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from muse.effect.snapshot import Contents, Difference, Snapshots, Taken

NAMED = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]


class Seen(NamedTuple):
    """What a comparison says of one path: contents (None: none), git's modes, and the note."""

    before: bytes | None
    after: bytes | None
    modes: tuple[int, int]
    note: str = ""


class World:
    """The workspace `root`, the user's `home`, muse's `muse`."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home, self.muse = folder / "work", folder / "home", folder / "muse"
        for path in (self.root, self.home):
            path.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C"}
        self._owners = 0
        self._open: list[Snapshots] = []
        self.snapshots = self.owner()

    def owner(
        self, name: str = "", root: Path | None = None, extra: Mapping[str, str] | None = None, seconds: float = 60.0
    ) -> Snapshots:
        """Snapshots of the workspace for one more owner."""
        self._owners += 1
        made = Snapshots(
            self.muse, root or self.root, name or f"owner.{self._owners}", timeout_seconds=seconds,
            environment=self.environment | dict(extra or {}),
        )  # fmt: skip
        self._open.append(made)
        return made

    def close(self) -> None:
        for one in self._open:
            one.close()

    # -- the user's doing --------------------------------------------------------------------------------------------

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *NAMED, *arguments], cwd=cwd or self.root, env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode()

    def repository(self, *, commit: bool = True, cwd: Path | None = None) -> None:
        self.git("init", "-q", "-b", "main", cwd=cwd)
        if commit:
            self.git("add", "-A", cwd=cwd)
            self.git("commit", "-q", "--allow-empty", "-m", "start", cwd=cwd)

    def write(self, name: str, data: bytes | str = b"", mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        path.chmod(mode)
        return path

    # -- looking -----------------------------------------------------------------------------------------------------

    def changed(self, do: Callable[[], object], by: Snapshots | None = None) -> dict[bytes, Seen]:
        """What two looks, before and after, say of `do`."""
        snapshots = by or self.snapshots
        before = snapshots.take()
        do()
        return self.between(before, snapshots.take(), snapshots)

    def between(self, before: Taken, after: Taken, by: Snapshots | None = None) -> dict[bytes, Seen]:
        found: dict[bytes, Seen] = {}

        def use(prefix: bytes, differences: Iterator[Difference], contents: Contents) -> None:
            for one in differences:
                ids = [name for name in (one.before_id, one.after_id) if name]
                data = dict(contents.fetch(ids))
                found[prefix + one.path] = Seen(
                    data.get(one.before_id), data.get(one.after_id), (one.before_mode, one.after_mode), one.note
                )

        (by or self.snapshots).compare(before.id, after.id, use)
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path.resolve())
    yield made
    made.close()
