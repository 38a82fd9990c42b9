"""Where snapshots of one work tree are kept: contents that sessions share, and a private GIT_DIR for each owner.

    $MUSE_HOME/snapshots/<key>/objects/           contents, as git keeps them
    $MUSE_HOME/snapshots/<key>/lists/             names of snapshots that have repositories within
    $MUSE_HOME/snapshots/<key>/owners/<owner>/    index, HEAD and configuration; `held` is the kernel lock of its owner

An agent's own working tree shares the contents with the workspace that it was made from: its owners are named `tree.…`.
All of it is a cache: what changed stands in the log. An owner's folder has a name of its own in each of its lives, so a
git command that outlived its host disturbs nobody; the next owner begins with a copy of the newest index that is whole,
and takes away what the dead left. This module must not know what is in a tree.
"""

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from muse.effect.snapshot.git import SnapshotError
from muse.effect.snapshot.objects import Objects

_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	autocrlf = false
	eol = lf
	safecrlf = false
	attributesFile = /dev/null
	protectHFS = false
	protectNTFS = false
	precomposeUnicode = false
	trustctime = true
	checkStat = default
	preloadIndex = true
	splitIndex = false
	sparseCheckout = false
	looseCompression = 1
	compression = 1
	fsync = none
	logAllRefUpdates = false
[gc]
	auto = 0
[maintenance]
	auto = false
[index]
	threads = true
	skipHash = true
[status]
	renames = false
	submoduleSummary = false
[feature]
	manyFiles = false
"""
_ATTRIBUTES: Final = "* -text -eol -filter -ident -working-tree-encoding\n"
_UNBORN: Final = "ref: refs/heads/none\n"
_NOBODY: Final = "muse <muse> 0 +0000"

_GATE_TRIES: Final = 100
_GATE_SECONDS: Final = 0.01
"""While one owner comes in, the next waits at the gate; not for ever, because that one may be stopped."""
_HELD_TRIES: Final = 10
"""Others hold an owner's lock for a moment when they look whether it lives."""


TREE: Final = "tree."
"""What the names of owners begin with that look at a working tree of its own, not at the workspace."""


class Place:
    """The folder of one work tree, while one owner uses it. `git_folder` is the owner's own."""

    def __init__(self, folder: Path, owner: str) -> None:
        """Raises SnapshotError when the folder cannot be used."""
        self.folder = folder
        self._owners = folder / "owners"
        self.git_folder = self._owners / owner
        self._lock: int | None = None
        try:
            gate = _through_gate(folder)
            try:
                self._make()  # behind the gate: until it is held, others take an owner's folder for that of a dead one
                self._lock = _locked(self.git_folder / "held", tries=_HELD_TRIES)
                if gate is not None:
                    self._take_over()
            finally:
                if gate is not None:
                    os.close(gate)
        except OSError as error:
            raise unusable(folder, error) from error
        if self._lock is None:
            raise SnapshotError(f"another process takes snapshots as {owner}")

    @property
    def objects(self) -> Path:
        """Where contents are."""
        return self.folder / "objects"

    @property
    def others(self) -> bool:
        """Whether another owner uses this folder now."""
        return any(_is_held(path) for path in self._owners.glob("*/held") if path.parent != self.git_folder)

    @property
    def is_shared(self) -> bool:
        """Whether another owner works in the same work tree now."""
        held = (path for path in self._owners.glob("*/held") if path.parent != self.git_folder)
        is_own = self.git_folder.name.startswith(TREE)
        return not is_own and any(_is_held(path) for path in held if not path.parent.name.startswith(TREE))

    def is_whole(self) -> bool:
        """Whether what git needs is still there; somebody may have deleted it."""
        own = ("held", "refs", "config", "info/attributes")
        return self.objects.is_dir() and all((self.git_folder / name).exists() for name in own)

    def forget(self) -> None:
        """Start anew: with an empty index, and with folders that are whole. Raises SnapshotError."""
        try:
            self._make()
            if not (self.git_folder / "held").exists():
                self.close()
                self._lock = _locked(self.git_folder / "held", tries=_HELD_TRIES)
            for name in ("index", "index.lock"):
                (self.git_folder / name).unlink(missing_ok=True)
            _write(self.git_folder / "HEAD", _UNBORN)
        except OSError as error:
            raise unusable(self.folder, error) from error

    def unlock(self) -> None:
        """Take away the lock of a git command that was killed. Nobody else uses this owner's folder. Raises OSError."""
        (self.git_folder / "index.lock").unlink(missing_ok=True)

    def point_at(self, tree: str) -> None:
        """Make HEAD a commit of this tree, so that git finds quickly what differs from it."""
        text = f"tree {tree}\nauthor {_NOBODY}\ncommitter {_NOBODY}\n\n"
        name = Objects(self.objects).keep("commit", text.encode())
        _put(self.git_folder / "HEAD", f"{name}\n".encode())

    def exclude(self, patterns: bytes) -> None:
        """Have git ignore what these patterns name, besides what `.gitignore` files do. Raises OSError."""
        path = self.git_folder / "info" / "exclude"
        if not path.exists() or path.read_bytes() != patterns:
            _put(path, patterns)

    def close(self) -> None:
        """Give the place back. The index stays, for the next owner to begin with."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make(self) -> None:
        own = self.git_folder
        top = (self.folder.parent, self.folder)
        for part in (*top, self._owners, self.objects, self.folder / "lists", own, own / "refs", own / "info"):
            _make_private(part)
        _write(own / "config", _CONFIG)
        _write(own / "info" / "attributes", _ATTRIBUTES)
        if not (own / "HEAD").exists():
            _write(own / "HEAD", _UNBORN)

    def _take_over(self) -> None:
        """Begin with the newest index that a dead owner left, and take away all that the dead left."""
        kind = self.git_folder.name.startswith(TREE)
        folders = [path for path in self._owners.iterdir() if path != self.git_folder]
        folders = [path for path in folders if path.name.startswith(TREE) == kind]
        dead = [path for path in folders if not _is_held(path / "held")]
        own = self.git_folder.name.rpartition(".")[0]
        if not (self.git_folder / "index").exists():
            begun = [path for path in dead if not kind or path.name.rpartition(".")[0] == own]
            for path in sorted(begun, key=lambda path: _changed_at(path / "index"), reverse=True)[:1]:
                for name in ("index", "HEAD"):
                    with suppress(OSError):
                        shutil.copy2(path / name, self.git_folder / name)
        for path in dead:
            shutil.rmtree(path, ignore_errors=True)


def key_of(work: Path, top: Path) -> str:
    """The name of the folder for a work tree: of where it is, and of the repository that it belongs to."""
    return hashlib.sha256(os.fsencode(work) + b"\0" + os.fsencode(top)).hexdigest()[:32]


def unusable(folder: Path, error: OSError) -> SnapshotError:
    """The error for a folder that cannot be used; it names the path at which it failed, where the error says so."""
    named = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    return SnapshotError(
        f"{named if os.path.isabs(named) else folder} cannot be used: {error.strerror or error}",
        hint="see its mode, its owner and the disk's free space",
    )


def _write(path: Path, text: str) -> None:
    """Put the text there, if it is not."""
    with suppress(FileNotFoundError):
        if path.read_text(encoding="utf-8") == text:
            return
    _put(path, text.encode())


def _put(path: Path, data: bytes) -> None:
    """A reader sees the old content or the new."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    temporary.replace(path)


def _make_private(folder: Path) -> None:
    """A folder for its owner only, whatever the umask."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _through_gate(folder: Path) -> int | None:
    """A descriptor that holds the gate of `folder`, which is made if it is not there; None when that takes too long. A
    folder that was taken away while we waited at its gate is made anew."""
    for _ in range(_GATE_TRIES):
        _make_private(folder.parent)
        with suppress(FileNotFoundError):
            _make_private(folder)
            gate = _locked(folder / "gate", tries=1)
            if gate is not None:
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(gate), (folder / "gate").stat()):
                        return gate
                os.close(gate)
        time.sleep(_GATE_SECONDS)
    return None


def _locked(path: Path, tries: int) -> int | None:
    """A descriptor that holds the kernel lock on `path`; None while another process does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    for left in reversed(range(tries)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_GATE_SECONDS)
        else:
            return fd
    os.close(fd)
    return None


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
