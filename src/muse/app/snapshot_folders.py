"""The folders of snapshots below MUSE_HOME: whose they are, what they hold, and taking one away.

They are caches: what changed stands in the log. One is named after its work tree, and holds the names of the sessions
that worked there last; where any session of the list may use it, it stays. This module must not know how a snapshot is
taken.
"""

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from muse.config import muse_home
from muse.event.needles import Needles
from muse.log import lock
from muse.log.catalog import Entry

GONE: Final = ".gone-"
READ_BYTES: Final = 1 << 20
_ENVIRONMENT: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}


def snapshot_folder() -> Path:
    """Where all of them stand."""
    return muse_home() / "snapshots"


def folders() -> list[Path]:
    """Each of them."""
    return sorted(path for path in snapshot_folder().glob("*") if path.is_dir() and not path.name.startswith("."))


def rests() -> list[Path]:
    """Those that were being taken away when somebody was killed."""
    return sorted(snapshot_folder().glob(f"{GONE}*"))


def sessions_of(entries: Iterable[Entry]) -> dict[Path, set[str]]:
    """The sessions that each folder is for: those that worked there last, and of the `entries` those whose workspace it
    is."""
    from muse.effect.snapshot.place import key_of
    from muse.effect.snapshot.repository import top_of

    keys: dict[str, set[str]] = {}
    for entry in entries:
        work = Path(entry.workspace)
        for top in {top_of(work), Path(entry.git_root or entry.workspace)} if entry.workspace else ():
            keys.setdefault(key_of(work, top), set()).add(entry.session)
    found = {}
    for folder in folders():
        owners = {_session_of(path.name) for path in (folder / "owners").glob("*")}
        found[folder] = owners | keys.get(folder.name, set())
    return found


def _session_of(owner: str) -> str:
    """The session of an owner: `SESSION.EPOCH`, or `tree.SESSION.AGENT.EPOCH` of an agent's own working tree."""
    return owner.split(".")[1] if owner.startswith("tree.") else owner.rpartition(".")[0]


def is_in_use(folder: Path) -> bool:
    """Whether a session works with it now."""
    return any(_is_locked(path) for path in (folder / "owners").glob("*/held"))


def _is_locked(path: Path) -> bool:
    try:
        return lock.is_held(path)
    except OSError:
        return False


def take_folder_away(folder: Path) -> bool:
    """Take one away at one stroke; False when a session works with it, or is just about to."""
    try:
        gate = os.open(folder / "gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return True
    doomed = folder.with_name(f"{GONE}{folder.name}.{secrets.token_hex(4)}")
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an owner that comes in waits here
        if is_in_use(folder):
            return False
        folder.rename(doomed)
    except BlockingIOError:
        return False
    finally:
        os.close(gate)
    shutil.rmtree(doomed)
    return True


def folder_holds(folder: Path, needles: Needles) -> bool:
    """Whether a snapshot in it holds one of the needles. What cannot be looked into counts as holding it."""
    for place, _, names in os.walk(folder):
        if any(needles.is_in_parts(_chunks(Path(place, name))) for name in names):
            return True
    from muse.effect.programs import search_path

    program = shutil.which("git", path=search_path((os.getcwd(),)))
    if program is None:
        return True
    with tempfile.TemporaryDirectory(prefix=".reading-", dir=snapshot_folder()) as empty:  # where no command can write
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= _ENVIRONMENT
        git = [program, "--git-dir", empty]
        try:
            subprocess.run(
                [program, "init", "-q", "--bare", "--template=", empty],
                env=environment,
                check=True,
                capture_output=True,
            )
            command = [*git, "cat-file", "--batch-all-objects", "--batch", "--unordered"]
            environment["GIT_OBJECT_DIRECTORY"] = str(folder / "objects")
            with subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                out = process.stdout
                assert out is not None
                if needles.is_in_parts(iter(lambda: out.read(READ_BYTES), b"")):
                    process.kill()
                    return True
            return process.returncode != 0
        except (OSError, subprocess.CalledProcessError):
            return True


def _chunks(path: Path) -> Iterator[bytes]:
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            while part := file.read(READ_BYTES):
                yield part
