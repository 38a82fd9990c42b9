"""What is left of a session that was removed: a tombstone, so that its absence has a reason and its return is noticed.

A tombstone is a small file of its own, durable before the log goes. It is written under a pending name first; the log
is unlinked, which is the one instant at which the session ceases to be; then the tombstone gets its name. So after a
kill at any point there is either the session (and a pending tombstone that means nothing) or its tombstone, with
leftovers that anybody may take away. This module must not know runners, archives or who asks.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from muse.failpoint import hit
from muse.log.lock import OwnerLock
from muse.log.place import private_folder, sync_folder, unavailable

SUFFIX: Final = ".json"
PENDING: Final = ".pending"
BESIDE: Final = ("-wal", "-shm")
"""What SQLite keeps beside a log while it is in use."""


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that was removed: what it was called, when and why it went, and what it held. `hash` (hex) is the
    chain value of its last event, "" where the log could not be read; `size` counts the bytes that were freed."""

    session: str
    removed: str
    name: str = ""
    why: str = ""
    events: int = 0
    hash: str = ""
    size: int = 0


class Tombstones:
    """The tombstones in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, stone: Tombstone) -> None:
        """Make the tombstone durable under its pending name: the session is still there. Raises StoreUnavailable."""
        write_durable(self._pending(stone.session), msgspec.json.encode(stone, order="sorted"))

    def finish(self, session: str) -> None:
        """The session is gone: give the pending tombstone its name. Raises StoreUnavailable."""
        pending, final = self._pending(session), self._folder / f"{session}{SUFFIX}"
        try:
            try:
                os.replace(pending, final)
            except FileNotFoundError:
                if not final.exists():  # else it was finished by somebody else
                    raise
            sync_folder(self._folder)
        except OSError as error:
            raise unavailable(pending, error) from error

    def drop(self, session: str) -> None:
        """The removal did not happen: take the pending tombstone away."""
        self._pending(session).unlink(missing_ok=True)

    def forget(self, session: str) -> None:
        """The session is back on purpose: its tombstone goes, durably."""
        (self._folder / f"{session}{SUFFIX}").unlink(missing_ok=True)
        if self._folder.is_dir():
            sync_folder(self._folder)

    def all(self) -> list[Tombstone]:
        """Every session that was removed, newest id first. A pending one counts where no log stands (see `pending`);
        the caller knows where logs stand."""
        return sorted(self._read(SUFFIX), key=lambda stone: stone.session, reverse=True)

    def pending(self) -> list[Tombstone]:
        """Those of removals that were begun and not finished: where the log is there, it never happened; where it is
        not, it did."""
        return list(self._read(SUFFIX + PENDING))

    def _read(self, ending: str) -> Iterator[Tombstone]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if name.endswith(ending) and not name.startswith("."):
                with contextlib.suppress(OSError, msgspec.MsgspecError):  # of another version, or damaged: says nothing
                    yield msgspec.json.decode((self._folder / name).read_bytes(), type=Tombstone)

    def _pending(self, session: str) -> Path:
        return self._folder / f"{session}{SUFFIX}{PENDING}"


def unlink_log(path: Path, lock: OwnerLock) -> None:
    """Take a log away durably: its file first, and only then what stands beside it, the lock file (which `lock` holds)
    last of all. Raises StoreUnavailable."""
    assert lock.held, "only the holder of the lock may take a log away"
    try:
        path.unlink(missing_ok=True)
        hit("in_removal")
        sync_folder(path.parent)
        for suffix in BESIDE:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
    except OSError as error:
        raise unavailable(path, error) from error


def write_durable(path: Path, data: bytes) -> None:
    """Replace a file (0600) at one stroke; when this returns, the new content survives a loss of power. Makes the
    folder. Raises StoreUnavailable."""
    private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        raise unavailable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
