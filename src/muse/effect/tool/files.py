"""Reading and durable replacing of one file inside the workspace.

A path is walked from the workspace root one component at a time and no symlink is followed, so a folder that is
swapped for a link after the path was resolved leads nowhere. Only regular files are opened: pipes, devices and
sockets could block for ever. This module must not know which tool asks, nor what the content means.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.tool.arguments import Refusal, quote
from muse.effect.tool.paths import Location
from muse.failpoint import hit

FILE_BYTES_MAX: Final = 32 << 20
"""The largest file that write and edit take, before and after."""

BINARY_BYTES_LOOKED_AT: Final = 8192
"""A file with a NUL in its first so many bytes is taken for binary, as git does."""

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symlink"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Image(msgspec.Struct, frozen=True):
    """A file as it was read. `stamp` changes when its content does; `owner` is user and group."""

    data: bytes
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int, int, int]


def digest(image: Image | None) -> str:
    """SHA-256 of the content in hex, "" where there is no file."""
    return "" if image is None else hashlib.sha256(image.data).hexdigest()


def is_binary(data: bytes) -> bool:
    """Whether content is taken for something other than text."""
    return b"\0" in data[:BINARY_BYTES_LOOKED_AT]


@contextmanager
def opened_folder(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A descriptor of a folder below `root`, walked without following symlinks.

    With `create`, missing folders are made and their names made durable. Raises OSError.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            assert part not in ("", ".", "..")
            below = _open_below(folder, part, create=create)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _open_below(folder: int, part: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(part, 0o777, dir_fd=folder)
            os.fsync(folder)
    return os.open(part, _OPEN_FOLDER, dir_fd=folder)


@contextmanager
def opened_file(root: Path, location: Location) -> Iterator[int]:
    """A descriptor of a regular file for reading. Raises Refusal for anything else that exists, OSError otherwise."""
    if not location.parts:
        raise Refusal(f"{quote(location.given)} is a folder, not a file: use glob to list it")
    with opened_folder(root, location.parts[:-1]) as folder:
        name = location.parts[-1]
        _check_regular(location, os.stat(name, dir_fd=folder, follow_symlinks=False))
        file = os.open(name, _OPEN_FILE, dir_fd=folder)
    try:
        _check_regular(location, os.fstat(file))
        yield file
    finally:
        os.close(file)


def _check_regular(location: Location, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((name for test, name in _KINDS if test(found.st_mode)), "no regular file")
    hint = "use glob to list it" if kind == "a folder" else "only regular files can be read and written"
    raise Refusal(f"{quote(location.given)} is {kind}, not a file: {hint}")


def read_image(root: Path, location: Location) -> Image | None:
    """The file with all that is needed to replace it, None when there is none. Raises Refusal and OSError."""
    try:
        with opened_file(root, location) as file:
            found = os.fstat(file)
            if found.st_size > FILE_BYTES_MAX:
                raise Refusal(_too_large(location, found.st_size))
            data = read_all(file, FILE_BYTES_MAX + 1)
            after = os.fstat(file)
    except FileNotFoundError:
        return None
    if len(data) > FILE_BYTES_MAX:
        raise Refusal(_too_large(location, len(data)))
    if _stamp(found) != _stamp(after):
        raise Refusal(f"{quote(location.given)} is being written by something else right now: read it again")
    return Image(data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid), _stamp(found))


def read_all(file: int, limit: int) -> bytes:
    """At most `limit` bytes from where the descriptor stands."""
    parts = []
    while limit > 0 and (part := os.read(file, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _too_large(location: Location, size: int) -> str:
    return (
        f"{quote(location.given)} has {size} bytes; write and edit take at most {FILE_BYTES_MAX}: "
        "use shell (sed -i, a script) for it"
    )


def _stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def new_file_mode() -> int:
    """Permission bits of a file made under this process's umask."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            masks = [line.split()[1] for line in status if line.startswith("Umask:")]
        return 0o666 & ~int(masks[0], 8)
    except (OSError, IndexError, ValueError):
        return 0o644


def temporary_name(call: str, args_text: str, after_sha256: str) -> str:
    """The name under which one call, in any attempt, writes its new content before the rename."""
    seed = "\0".join((call, args_text, after_sha256)).encode("utf-8", "surrogatepass")
    return f".muse-{hashlib.sha256(seed).hexdigest()[:24]}.tmp"


def replace(root: Path, location: Location, before: Image | None, data: bytes, mode: int, temporary: str) -> None:
    """Put `data` in the place of `before`, durably, with its mode, owner and extended attributes.

    A reader sees the old content or the new, never a part. Raises Refusal when the file is not `before` any more,
    OSError when the system refuses; in both cases the file is untouched and the temporary is gone.
    """
    with opened_folder(root, location.parts[:-1], create=True) as folder:
        name = location.parts[-1]
        if before is not None and not os.access(name, os.W_OK, dir_fd=folder):
            raise Refusal(f"{quote(location.given)} is read-only: change its mode with shell first if you mean it")
        _remove(folder, temporary)
        try:
            _write_temporary(folder, name, temporary, before, data, mode)
            hit("file_synced")
            _put_in_place(folder, name, temporary, before, location)
            hit("file_renamed")
        finally:
            _remove(folder, temporary)
        os.fsync(folder)


def _write_temporary(folder: int, name: str, temporary: str, before: Image | None, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        hit("file_temporary")
        if before is not None:
            _keep_owner(file, before)
            _keep_attributes(folder, name, file)
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def _keep_owner(file: int, before: Image) -> None:
    now = os.fstat(file)
    if (now.st_uid, now.st_gid) == before.owner:
        return
    try:
        os.fchown(file, *before.owner)
    except PermissionError:
        raise Refusal(
            f"the file belongs to user {before.owner[0]}, group {before.owner[1]}, which a replaced file would not: "
            "use shell if it is to be changed in place"
        ) from None


def _keep_attributes(folder: int, name: str, file: int) -> None:
    """Access lists and other extended attributes, as far as the file system lets them be copied."""
    if not hasattr(os, "listxattr"):
        return
    try:
        source = os.open(name, _OPEN_FILE, dir_fd=folder)
    except OSError:
        return
    try:
        for attribute in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(file, attribute, os.getxattr(source, attribute))
    except OSError:
        return
    finally:
        os.close(source)


def _put_in_place(folder: int, name: str, temporary: str, before: Image | None, location: Location) -> None:
    changed = f"{quote(location.given)} changed while it was being written: read it again, then repeat the change"
    if before is None:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise Refusal(changed) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
        else:
            return
    if _stamp_of(folder, name) != (None if before is None else before.stamp):
        raise Refusal(changed)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _stamp_of(folder: int, name: str) -> tuple[int, int, int, int] | None:
    try:
        return _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def settle(root: Path, location: Location, temporary: str, *, written: bool) -> None:
    """After a crash: remove the temporary of the call, and where its content is in place make that durable."""
    try:
        with opened_folder(root, location.parts[:-1]) as folder:
            _remove(folder, temporary)
            if written:
                os.fsync(folder)
    except FileNotFoundError:
        return
    hit("in_settle")
    if written:
        with opened_file(root, location) as file:
            os.fsync(file)


_WHY: Final = {
    errno.EACCES: "permission denied",
    errno.EPERM: "the system does not permit it",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "a name in it is too long",
    errno.ELOOP: "a part of it is a symlink that leads round in a circle, or was changed into one just now",
    errno.ENOTDIR: "a part of it is a file, not a folder",
}


def explain(given: str, error: OSError) -> str:
    """One line for a model about an error of the operating system."""
    number = error.errno or 0
    return f"{quote(given)} could not be used: {_WHY.get(number, error.strerror or type(error).__name__)}"
