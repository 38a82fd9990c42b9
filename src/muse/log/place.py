"""Where a log may stand: private folders, durable directory entries, and file systems that keep locks.

SQLite's locks and shared memory need one kernel that sees every writer, so network and host-shared file systems are
refused by name. This module must not know what a log holds.
"""

import os
import re
from pathlib import Path
from typing import Final

from muse.errors import StoreUnavailable

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# Kernel names of file systems on which a second machine, or the host of a virtual one, may write unseen.
NETWORK_TYPES: Final = frozenset({"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "ceph"})
CLUSTER_TYPES: Final = frozenset({"glusterfs", "lustre", "gpfs", "ocfs2", "gfs2"})
HOST_TYPES: Final = frozenset({"9p", "virtiofs", "drvfs", "vboxsf"})
REMOTE_TYPES: Final = NETWORK_TYPES | CLUSTER_TYPES | HOST_TYPES
# The fuse file systems known to be of one machine and to honour locks; any other is refused.
LOCAL_FUSE: Final = frozenset({"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs"})

RESERVE_BYTES_MAX: Final = 16 * 1024 * 1024
RESERVE_DIVISOR: Final = 50
"""Below a fiftieth (2 %) of the file system, or RESERVE_BYTES_MAX if that is less, a run stops while it still can."""

PATH_BYTES_MAX: Final = 470
"""SQLite takes no path over 512 bytes (MAX_PATHNAME in its os_unix.c); a log's file is made under a longer name."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_octal: Final = re.compile(r"\\([0-7]{3})")


def private_folder(folder: Path) -> None:
    """Make `folder` and its missing parents, 0700 whatever the umask, each durable in its own parent.

    Raises StoreUnavailable when that cannot be done.
    """
    missing: list[Path] = []
    place = folder
    while not place.exists():
        missing.append(place)
        place = place.parent
    try:
        for made in reversed(missing):
            made.mkdir(FOLDER_MODE, exist_ok=True)
            made.chmod(FOLDER_MODE)
            sync_folder(made)
            sync_folder(made.parent)
    except OSError as error:
        raise unavailable(Path(error.filename or folder), error) from error


def refuse_long(path: Path) -> None:
    """Raises StoreUnavailable for a path that is too long for the file of a log and what belongs to it."""
    length = len(os.fsencode(path))
    if length > PATH_BYTES_MAX:
        raise StoreUnavailable(
            f"{path} is {length} bytes long, and a log's path may have {PATH_BYTES_MAX}",
            hint="set MUSE_HOME to a folder with a shorter path",
        )


def private_file(path: Path) -> None:
    """Make an empty file of mode 0600 whatever the umask. Raises FileExistsError if the name is taken."""
    made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(made, FILE_MODE)
    finally:
        os.close(made)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (fsync of the directory)."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_file(path: Path) -> None:
    """Make the length and bytes of a file durable. Not for a database that this process has open: closing a second
    descriptor drops SQLite's locks, which stand on the main file and its `-shm`, never on its `-wal`."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def has_room(folder: Path) -> bool:
    """Whether more than the reserve is free, for this user, where `folder` stands; True where the system does not
    say."""
    try:
        seen = os.statvfs(folder)
    except OSError:  # the folder is gone, say: the next append tells what that means
        return True
    free = seen.f_bfree if os.geteuid() == 0 else seen.f_bavail  # root may use what is kept back from others
    return seen.f_blocks == 0 or free * seen.f_frsize > reserve_bytes(seen.f_blocks * seen.f_frsize)


def touch(path: Path) -> None:
    """Change a file's times: a disk that became read-only, or does not answer any more, refuses. Raises
    StoreUnavailable."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(
            f"{path.parent} takes no changes any more: {error.strerror or error}",
            hint="nothing more is started; check the disk, then go on with `muse resume`",
        ) from error


def reserve_bytes(size_bytes: int) -> int:
    """How much of a file system of this size has to stay free."""
    return min(RESERVE_BYTES_MAX, size_bytes // RESERVE_DIVISOR)


def refuse_remote(folder: Path) -> None:
    """Raises StoreUnavailable if `folder` stands on a file system that cannot keep a log safe."""
    kind = filesystem_type(folder)
    if kind is not None and is_remote(kind):
        raise StoreUnavailable(
            f"{folder} is on {kind}, where locks and shared memory are not safe",
            hint="set MUSE_HOME to a folder on a local disk",
        )


def is_remote(kind: str) -> bool:
    """Whether a file system of this kernel name is refused."""
    return kind in REMOTE_TYPES or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def filesystem_type(folder: Path) -> str | None:
    """The kernel's name of the file system that holds `folder`, or None where /proc does not say (macOS)."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return type_in(mounts, os.path.realpath(folder))


def type_in(mounts: str, place: str) -> str | None:
    """As `filesystem_type`, from the text of a mountinfo file (proc(5)) and an absolute, resolved path.

    The longest mount point that leads to the path counts, and of equal ones the last, which hides the others.
    """
    best, found = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _octal.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), right.split(" ")[0]
    return found


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    """The error that a failed file operation becomes, with what the user may do about it."""
    return StoreUnavailable(f"{path}: {error.strerror or error}", hint=hint_for(path))


def hint_for(path: Path) -> str:
    """What to try when `path` cannot be used: the most likely cause that can be seen from here."""
    folder = path if path.is_dir() else path.parent
    if not os.access(folder, os.W_OK):
        return f"{folder} is not writable: set MUSE_HOME to a folder of yours, or open the log for reading"
    if path.exists() and not os.access(path, os.W_OK):
        return f"{path.name} is not writable for this user: open it for reading, or change its mode"
    return "check the disk's free space and health, then try again"
