"""The SQLite file: its tables, how a connection is set up and proven to be so, and what SQLite's errors mean.

Every connection goes through `connect`. This module must not know events, chains or ownership.
"""

import errno
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import quote

import apsw

from muse.errors import Damaged, LogError, NewerLog, NotALog, StoreUnavailable, UsageError
from muse.log.place import filesystem_type, hint_for, is_remote

R = TypeVar("R")

APPLICATION_ID: Final = 0x6D757365  # "muse"
FORMAT_VERSION: Final = 1
BUSY_TIMEOUT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.002

# A row number of `blobs` is never used again: a slow writer may still hold it. `body` and `data` stand last, so that a
# reader of the columns before them never touches their overflow pages.
TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    header BLOB NOT NULL,
    key BLOB,
    leaf_count INTEGER NOT NULL,
    root BLOB NOT NULL,
    hash BLOB NOT NULL,
    body BLOB
) STRICT;
CREATE TABLE hidden (seq INTEGER PRIMARY KEY, leaves BLOB NOT NULL) STRICT;
CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY AUTOINCREMENT,
    root BLOB UNIQUE,
    key BLOB,
    length INTEGER NOT NULL,
    named INTEGER
) STRICT;
CREATE TABLE chunks (
    blob INTEGER NOT NULL,
    i INTEGER NOT NULL,
    leaf BLOB NOT NULL,
    codec INTEGER NOT NULL,
    data BLOB,
    PRIMARY KEY (blob, i)
) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoints (
    version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (version, seq)
) STRICT;
"""

TABLE_NAMES: Final = ("meta", "events", "hidden", "blobs", "chunks", "checkpoints")

_READER_PRAGMAS: Final[tuple[tuple[str, int], ...]] = (
    ("mmap_size", 0),
    ("temp_store", 2),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
)
_WRITER_PRAGMAS: Final[tuple[tuple[str, int], ...]] = (
    ("synchronous", 2),
    ("fullfsync", 1),  # macOS: fsync there does not reach the platter
    ("checkpoint_fullfsync", 1),
    ("secure_delete", 1),
    ("wal_autocheckpoint", 0),
)

_OFF: Final = (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, apsw.SQLITE_DBCONFIG_ENABLE_VIEW)
"""What no log has, and what somebody could plant to have our own statements do something else."""

SALVAGE_HINT: Final = "`muse verify` says what can still be trusted; `muse recover` saves it into a new session"
_ANOTHER_HINT: Final = "give the file of a session; `muse ls` lists them"

_DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


def build(path: Path, session: str) -> None:
    """Turn an empty file into a log without events, whole on disk when this returns."""
    db = apsw.Connection(uri(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        _set(db, "application_id", APPLICATION_ID)
        _set(db, "user_version", FORMAT_VERSION)
        _prepare_writer(db)
        # No `with db:`: on a full disk SQLite has rolled back already, and a second one would hide why.
        db.execute("BEGIN IMMEDIATE")
        db.execute(TABLES)
        db.execute("INSERT INTO meta VALUES ('session', ?), ('epoch', 0), ('opened', 0)", (session,))
        db.execute("COMMIT")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close()


def connect(path: Path, *, read_only: bool, busy_seconds: float = RETRY_SECONDS) -> apsw.Connection:
    """Open a log's file and prove that it is one and that every setting holds.

    `busy_seconds` is how long to sleep between tries while another process writes. Raises UsageError (missing),
    NotALog, NewerLog, Damaged or StoreUnavailable.
    """
    _look_at(path)
    db: apsw.Connection | None = None
    try:
        db = _open(path, read_only)
        db.set_busy_handler(Patience(busy_seconds))
        for switch in _OFF:
            db.config(switch, 0)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        _identify(db, path)
        for name, value in _READER_PRAGMAS:
            _set(db, name, value)
        if read_only:
            _set(db, "query_only", 1)
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        else:
            _prepare_writer(db)
    except (apsw.Error, LogError) as error:
        if db is not None:
            db.close()
        if isinstance(error, LogError):
            raise
        if isinstance(error, apsw.NotADBError):
            raise NotALog(f"{path} is not a muse log: {error}", hint=_hint_for_no_log(path)) from error
        raise translate(error, path) from error
    return db


def fetch(
    db: apsw.Connection, _kind: type[R], sql: str, values: Sequence[int | float | str | bytes | None] = ()
) -> list[R]:
    """All rows of a query, typed as the caller says they are (the tables are STRICT, so they are)."""
    return cast("list[R]", db.execute(sql, values).fetchall())


def number(db: apsw.Connection, sql: str, values: Sequence[int | float | str | bytes | None] = ()) -> int:
    """The one integer that a query gives. Raises Damaged if a row that every log has is missing."""
    found = fetch(db, tuple[int], sql, values)
    if not found:
        raise Damaged("a row that every log has is missing", hint=SALVAGE_HINT)
    return found[0][0]


def translate(error: apsw.Error, path: Path) -> LogError:
    """What an error of SQLite means to the rest of muse."""
    if isinstance(error, _DAMAGED) or _is_sql_error(error) or _is_cut(error):
        return Damaged(f"{path} is damaged: {error}", hint=SALVAGE_HINT)
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"{path}: the disk is full", hint="free some space, then resume")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"{path}: another process kept it locked for {BUSY_TIMEOUT_SECONDS:.0f} s",
            hint="end what holds it, then try again",
        )
    return StoreUnavailable(f"{path}: {error}", hint=hint_for(path))


def _hint_for_no_log(path: Path) -> str:
    """A file that is named like a log may have been one."""
    if path.suffix != ".muse":
        return _ANOTHER_HINT
    return f"if it was one, `muse recover {path.stem}` saves what it still holds; `muse ls --all` lists the others"


def _is_sql_error(error: apsw.Error) -> bool:
    # Our statements are fixed, so "no such table" and its like mean that the file's schema is not ours any more.
    return type(error) is apsw.SQLError


def _is_cut(error: apsw.Error) -> bool:
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ


def _look_at(path: Path) -> None:
    """Judge the name without opening it: a second open in this process would drop SQLite's locks when closed."""
    seen = seen_at(path)
    if not stat.S_ISREG(seen.st_mode):
        raise NotALog(f"{path} is not a file", hint=_ANOTHER_HINT)
    if seen.st_size == 0:
        raise NotALog(f"{path} is empty", hint=_hint_for_no_log(path))


def seen_at(path: Path) -> os.stat_result:
    """What the system says of a log's file. Raises UsageError where there is none (any more), or StoreUnavailable."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"there is no log at {path}", hint=_ANOTHER_HINT) from error
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise StoreUnavailable(f"{path}: {reason}", hint=hint_for(path)) from error


def _open(path: Path, read_only: bool) -> apsw.Connection:
    if not read_only:
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise StoreUnavailable(f"{path} cannot be written", hint=hint_for(path))
        return apsw.Connection(uri(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    if _is_frozen(path):  # SQLite then takes no locks and makes no files
        return apsw.Connection(f"{uri(path)}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return apsw.Connection(uri(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def uri(path: Path) -> str:
    """A file's name for SQLite, whatever bytes it is made of (https://sqlite.org/uri.html)."""
    return f"file:{quote(os.fsencode(path.absolute()))}"


def _is_frozen(path: Path) -> bool:
    """Whether to read the main file alone: no write-ahead log, and none can (or may) be made beside it.

    Raises StoreUnavailable for a write-ahead log on a file system whose shared memory cannot be trusted.
    """
    try:
        has_wal = os.stat(f"{path}-wal").st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        has_wal = False
    kind = filesystem_type(path.parent)
    remote = kind is not None and is_remote(kind)
    if remote and has_wal:
        raise StoreUnavailable(
            f"{path} is on {kind} and has a write-ahead log",
            hint="copy it, with its -wal, to a local disk and read it there",
        )
    return not has_wal and (remote or not os.access(path.parent, os.W_OK))


def _identify(db: apsw.Connection, path: Path) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise NotALog(f"{path} is not a muse log", hint=_hint_for_no_log(path))
    version = db.pragma("user_version")
    if version > FORMAT_VERSION:
        raise NewerLog(
            f"{path} has format {version}; this muse knows formats up to {FORMAT_VERSION}", hint="install a newer muse"
        )
    if version != FORMAT_VERSION:
        raise Damaged(f"{path} says it has format {version}, which never was", hint=SALVAGE_HINT)


def _prepare_writer(db: apsw.Connection) -> None:
    mode = db.pragma("journal_mode", "wal")
    if mode != "wal":
        raise StoreUnavailable(f"SQLite keeps journal mode {mode} where WAL is needed")
    for name, value in _WRITER_PRAGMAS:
        _set(db, name, value)


def _set(db: apsw.Connection, name: str, value: int) -> None:
    """One pragma a call, read back: SQLite ignores what it does not know or cannot do without a word."""
    db.pragma(name, value)
    held = db.pragma(name)
    if held != value:
        raise StoreUnavailable(f"SQLite does not take {name} = {value} (it says {held})")


class Patience:
    """A busy handler with even, short sleeps: SQLite's own backs off up to 100 ms and so starves whoever waits long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + BUSY_TIMEOUT_SECONDS
        time.sleep(self._seconds)
        return now < self._until
