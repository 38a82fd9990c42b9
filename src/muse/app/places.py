"""Where sessions are kept, and what is read from them."""

import errno
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muse.app.models import rules
from muse.config import muse_home
from muse.errors import MuseError, NotALog, StoreUnavailable, UsageError
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS
from muse.log.catalog import Catalog
from muse.log.keeping import Tombstones
from muse.log.protocol import Log
from muse.runtime import reading
from muse.runtime.checkpoint import fold
from muse.runtime.reading import Reading
from muse.runtime.session import Session

if TYPE_CHECKING:
    from muse.effect.tool.preview import Preview
    from muse.runtime.reading import Report

SESSION_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SUFFIX = ".muse"
ARCHIVE_SUFFIX = ".muse.zst"
DATE_FOLDERS = 3
"""Year, month and day lead to a session's file."""
YEAR_MAX = 9999

_id = re.compile(f"([0-9]{{8}}-[0-9]{{6}})-([{SESSION_ALPHABET}])([{SESSION_ALPHABET}])[{SESSION_ALPHABET}]{{6}}")


def new_session_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxxxxxx`: sorts by time; the last eight characters alone name it. The first two of them are
    the milliseconds, so that sessions made in one second sort too; the others are drawn.

    Under a clock that was set back it is the millisecond after the newest session's: `last` is what was made last."""
    moment = datetime.now(UTC)
    newest = _newest_moment(muse_home() / "sessions", DATE_FOLDERS)
    if newest is not None and newest > moment:
        moment = newest + timedelta(milliseconds=1)
    high, low = divmod(moment.microsecond // 1000, len(SESSION_ALPHABET))
    tail = SESSION_ALPHABET[high] + SESSION_ALPHABET[low] + "".join(secrets.choice(SESSION_ALPHABET) for _ in range(6))
    return f"{moment:%Y%m%d-%H%M%S}-{tail}"


def _newest_moment(folder: Path, depth: int) -> datetime | None:
    """When the newest session below a folder was made, as far as ids tell; None where there is none."""
    try:
        entries = sorted(folder.iterdir(), reverse=True)
    except OSError:
        return None
    found = (_newest_moment(entry, depth - 1) if depth else _moment(entry.stem) for entry in entries)
    return next((moment for moment in found if moment is not None), None)


def _moment(session: str) -> datetime | None:
    match = _id.fullmatch(session)
    try:
        moment = datetime.strptime(f"{match[1]}+0000", "%Y%m%d-%H%M%S%z") if match else None
    except ValueError:
        return None
    if match is None or moment is None or moment.year >= YEAR_MAX:
        return None
    milliseconds = SESSION_ALPHABET.index(match[2]) * len(SESSION_ALPHABET) + SESSION_ALPHABET.index(match[3])
    return moment + timedelta(milliseconds=milliseconds)


def session_path(session: str) -> Path:
    """The file of a session that is about to be made."""
    return muse_home() / "sessions" / session[:4] / session[4:6] / session[6:8] / f"{session}{SUFFIX}"


def run_folder(session: str) -> Path:
    """Where the session's runner keeps its files."""
    return muse_home() / "run" / session


def session_files() -> list[Path]:
    """All session files under MUSE_HOME, newest first."""
    return sorted((muse_home() / "sessions").glob(f"*/*/*/*{SUFFIX}"), key=lambda path: path.name, reverse=True)


_READABLE: Final = "give a session, its file, an export (.jsonl), or a session file of Claude Code or Codex"


def open_log(path: Path, *, read_only: bool = True, check: bool = True) -> Log:
    """The log in a file; to read, also that in an export, and what another agent's session file holds. Raises
    UsageError for a file of another kind; one that is named like a log and is none (any more) is damage."""
    from muse.log.sqlite import SqliteLog

    if path.name.endswith(ARCHIVE_SUFFIX):
        return _open_archived(path, read_only=read_only, check=check)
    try:
        return SqliteLog.open(path, commands=COMMANDS, read_only=read_only, check=check)
    except NotALog as error:
        if path.suffix == SUFFIX:
            raise
        from muse.app import foreign

        if read_only and (view := foreign.open_view(path, check=check)) is not None:
            return view
        if what := foreign.what_it_is(path):
            hint = "it can be read: muse replay, log, show, search and export take it as it is"
            raise UsageError(f"{path.name} is {what}: nothing goes on from it", hint=hint) from error
        raise UsageError(str(error), hint=_READABLE) from error


def _open_archived(path: Path, *, read_only: bool, check: bool) -> Log:
    from muse.log.archive import UnpackedLog

    if not read_only:
        session = path.name.removesuffix(ARCHIVE_SUFFIX)
        raise UsageError(f"{session} is archived: it can be read only", hint=f"muse archive --restore {session}")
    if not path.exists():
        raise UsageError(
            f"there is no file {path}", hint="was it moved? muse ls --archived says where archives were put"
        )
    return UnpackedLog.of(path, muse_home() / "cache" / "unpacked", commands=COMMANDS, check=check)


def archive_folder() -> Path:
    """Where archived sessions are recorded, and kept where no other folder was given."""
    return muse_home() / "archive"


def read_session(path: Path, *, check: bool = True) -> Reading:
    """A session open for reading only, its chain of stored roots followed; what is before damage stays readable.
    Without `check` it is open at once, however long it is, and `Steps` follows the chain while it is looked at."""
    return Reading.open(lambda whole: open_log(path, check=whole), check=check)


def verify_file(
    path: Path, head: tuple[int, bytes] | None = None, progress: Callable[[int], None] | None = None
) -> "Report":
    """The verdict on a session's file or an export. Raises UsageError for a file of another agent."""
    from muse.app import foreign

    if path.suffix != SUFFIX and (what := foreign.what_it_is(path)) and what != "an export":
        hint = "muse import keeps it as a session, whose log can be verified"
        raise UsageError(f"{path.name} is {what}: it proves nothing of itself", hint=hint)
    return reading.verify_file(path, lambda file: open_log(file, check=False), rules(), head=head, progress=progress)


def catalog() -> Catalog:
    """What listings say about sessions, with its cache."""
    removed = {stone.session: stone.removed for stone in tombstones().all()}
    return Catalog(muse_home() / "cache" / "catalog.json", lambda file: open_log(file, check=False), removed)


def tombstones() -> Tombstones:
    """The sessions that were removed from this home."""
    return Tombstones(muse_home() / "removed")


def create_log(session: str) -> Log:
    """A new, empty log for this session id. Raises UsageError where the place for logs cannot be made or written."""
    from muse.log.sqlite import SqliteLog

    try:
        return SqliteLog.create(session_path(session), session, commands=COMMANDS)
    except StoreUnavailable as error:
        cause = error.__cause__
        if cause is not None and (not isinstance(cause, OSError) or cause.errno in (errno.ENOSPC, errno.EDQUOT)):
            raise
        raise UsageError(
            f"sessions cannot be kept in {muse_home()}: {error}",
            hint="set MUSE_HOME to a folder of yours on a local disk",
        ) from error


def events(log: Log, after: int = 0, before: int | None = None) -> Iterator[Event]:
    """Decoded events of a log."""
    for stored in log.read(after=after, before=before):
        yield decode(stored.header, stored.body, stored.hidden)


def preview(tool: str, args: str, workspace: str) -> "Preview | None":
    """What a call that edits or writes a file would change in it as it is now; None for any other call."""
    from muse.decide.approval import parsed
    from muse.effect.tool.preview import preview as look

    return look(tool, parsed(args), Path(workspace))


def sqlite_version() -> str:
    """The version of the SQLite that keeps the logs."""
    import apsw

    return apsw.sqlite_lib_version()


def file_system(folder: Path) -> tuple[str, bool]:
    """The kernel's name of the file system of a folder ("" where unknown), and whether a log is safe on it."""
    from muse.log.place import filesystem_type, is_remote

    kind = filesystem_type(folder)
    return kind or "", kind is None or not is_remote(kind)


def event_at(log: Log, seq: int) -> Event | None:
    """The event with this seq, or None."""
    return next(events(log, seq - 1, seq + 1), None)


def discard_empty(log: Log) -> None:
    """Close a log, and take its file away when it holds no event: a session that never began. Where another process
    owns it, or the lock cannot be taken, it stays."""
    from muse.log.lock import acquire

    path = path_of(log)
    try:
        lock = acquire(path.with_suffix(".lock"))
    except MuseError:
        log.close()
        return
    try:
        empty = log.head().seq == 0
    except MuseError:
        empty = False
    try:
        log.close()
        if empty:  # the log first: as long as it is there, its lock file is, so that two never hold two locks for it
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
    finally:
        lock.release()


def path_of(log: Log) -> Path:
    """The file of a log that is kept in one."""
    path = getattr(log, "path", None)
    assert isinstance(path, Path), "this log is not kept in a file"
    return path


def has_cut_append(log: Log) -> bool:
    """Whether, when this log was opened, an append stood at its end that was not whole: cut off before it was
    acknowledged, or damaged since."""
    tail = getattr(log, "tail", None)
    return tail is not None and bool(tail.unfinished)


def state_of(log: Log, before: int | None = None) -> Session:
    """The state after the last event, or the last one below `before`."""
    return fold(log, before=before)
