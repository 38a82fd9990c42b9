"""Files that a command writes for the user: whole or not there, and never over something by accident."""

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from muse.errors import UsageError


def write_file(path: Path, chunks: Iterable[bytes], *, force: bool = False) -> None:
    """Write chunks to a file that appears whole: see `write_with`."""

    def produce(write: Callable[[bytes], object]) -> None:
        for chunk in chunks:
            write(chunk)

    write_with(path, produce, force=force)


def write_with(path: Path, produce: Callable[[Callable[[bytes], object]], object], *, force: bool = False) -> None:
    """Let `produce` write to a new file beside `path`, then give it that name, durably. Without `force` a name that
    is taken is refused, also when it is taken meanwhile. Only its owner may read the file, as with the logs.

    Raises `UsageError` when the place cannot be written.
    """
    if not force and os.path.lexists(path):
        raise _taken(path)
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", hint="choose another place") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            produce(file.write)
            file.flush()
            os.fsync(file.fileno())
        _give_name(Path(draft), path, force)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", hint="choose another place") from error
    finally:
        Path(draft).unlink(missing_ok=True)


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} is there already", hint="choose another name, or --force to overwrite it")


def _give_name(draft: Path, path: Path, force: bool) -> None:
    """Unlike a rename, a link refuses a name that is taken; a few file systems have no links."""
    if not force:
        try:
            os.link(draft, path)
            return
        except FileExistsError:
            raise
        except OSError:
            if os.path.lexists(path):
                raise FileExistsError(path) from None
    os.replace(draft, path)
