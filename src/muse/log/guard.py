"""What the owner remembers of its log's files from outside, so that nobody changes them behind its back.

A guard tells three things apart: nothing happened; something happened that commands or this process explain; something
happened that nothing explains, and then all of the log is looked at before the owner goes on. The first is the usual
case and costs a few microseconds. What it cannot notice stands in `docs/decisions/0013-noticing-tampering.md`.
This module must not know what events mean.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from muse.errors import Damaged, Fenced, MuseError, NotALog, UsageError
from muse.event.commitment import genesis
from muse.log import chain, schema
from muse.log.lock import OwnerLock
from muse.log.place import private_file, private_folder, sync_folder
from muse.log.protocol import Head, Stored
from muse.log.schema import fetch, number

AUDIT_EVENTS: Final = 16
"""So many old events are looked at again whenever somebody else wrote, in turn."""
AUDIT_BYTES: Final = 256 * 1024
CHECK_SECONDS: Final = 0.05
"""How often at most the files are looked at while nothing is appended."""
SAVED_NAMES_MAX: Final = 100
_DESCRIPTORS: Final = "/proc/self/fd"

_EVENTS: Final = (
    "SELECT e.seq, e.header, e.body, e.key, e.leaf_count, e.root, e.hash, h.leaves"
    " FROM events e LEFT JOIN hidden h ON h.seq = e.seq WHERE e.seq > ? AND e.seq <= ? ORDER BY e.seq"
)
_HASH: Final = "SELECT hash FROM events WHERE seq = ?"


class Activity(NamedTuple):
    """How many writes of this process's other handles have begun, and how many of those are over."""

    begun: int
    ended: int


class Unexplained(Exception):
    """Somebody changed the log, and no command explains it: `Guard.verify` must pass before anything is appended."""


_Seen = tuple[int, int, int, int, int, int]
"""Of a file: device, inode, links, size, when its content was changed (ns), and when anything of it was. The first two
are the file itself."""


class Guard:
    """The owner's memory of its files: `check_files` before a write transaction, `look` inside it, `wrote` after it.

    `activity` counts what this process writes through other handles.
    """

    def __init__(self, db: apsw.Connection, path: Path, session: str, activity: Callable[[], Activity]) -> None:
        self._path, self._session, self._activity = path, session, activity
        self._main_name, self._wal_name, self._shm_name = str(path), f"{path}-wal", f"{path}-shm"
        self._expected = _objects(db)
        self._found: Damaged | None = None
        self._known = Head(0, genesis(session))
        self._audited = 0
        self._check_at = 0.0
        self._main: _Seen = (0, 0, 0, 0, 0, 0)
        self.take(db)

    def take(self, db: apsw.Connection) -> None:
        """Take what is there now for right: after a write, a checkpoint or a reopening of our own."""
        found = _seen(self._main_name)
        if found is None:
            raise self._lost(db, None) if self._main[1] else Damaged(f"{self._path} was removed while it was opened")
        self._main, self._wal, self._shm = found, _seen(self._wal_name), _seen(self._shm_name)
        self._moved = self._main_moved = self._opened = False
        self._ended = self._activity().ended
        self._version = number(db, "PRAGMA data_version")
        self._schema = number(db, "PRAGMA schema_version")

    def wrote(self) -> None:
        """A transaction of the owner's was committed."""
        self._wal = _seen(self._wal_name)

    def settle(self) -> None:
        """A checkpoint of the owner's moved what was written into the main file."""
        self._wal = _seen(self._wal_name)
        main = _seen(self._main_name)
        if main is not None and main[:2] == self._main[:2]:
            self._main, self._main_moved = main, False

    @contextlib.contextmanager
    def own_handle(self) -> Iterator[None]:
        """While this process opens the log once more: that is no reason to look at anything."""
        before = _seen(self._wal_name)
        yield
        after = _seen(self._wal_name)
        if before == self._wal and _was_opened(before, after):
            self._wal = after

    # ------------------------------------------------------------------ before and inside a write

    def check_files(self, db: apsw.Connection) -> None:
        """Raises Damaged when the log, or what SQLite keeps beside it, is not at its place any more. Notes what else
        moved, for `look`. A log that was once found rewritten stays so."""
        if self._found is not None:
            raise self._found
        main = _seen(self._main_name)
        if main != self._main:
            if main is None or main[:2] != self._main[:2]:
                raise self._lost(db, main)
            self._moved = self._main_moved = True
        wal, shm = _seen(self._wal_name), _seen(self._shm_name)
        # With another one of these beside the log, other processes would neither see what is written here nor be kept
        # from writing over it.
        if wal != self._wal:
            self._require_same("-wal", self._wal, wal)
            if _was_opened(self._wal, wal):
                self._wal, self._opened = wal, True
            else:
                self._moved = True
        if shm != self._shm:
            self._require_same("-shm", self._shm, shm)
            self._shm = shm

    def check_all(self, db: apsw.Connection, lock: OwnerLock) -> bool:
        """As `check_files`, from time to time, and Fenced when the lock file is not at its place: then another process
        may take itself for the owner. Whether the main file moved."""
        now = time.monotonic()
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_SECONDS
        self.check_files(db)
        if not lock.in_place():
            raise Fenced(
                f"the lock file of {self._path} was removed or replaced: another process may own the session",
                hint="see who does: muse ls; what this process wrote is in the log",
            )
        return self._main_moved

    def look(self, db: apsw.Connection, *, commands: bool, writing: bool = True) -> bool:
        """Whether others wrote since the last look, in a way that is explained: by `commands` that were found to be
        right, or by this process's other handles; or whether they only opened the log. Not inside a write of our own
        (`writing`), another may be at one: what is not committed is then left to the next look. Raises Unexplained."""
        version, opened = number(db, "PRAGMA data_version"), self._opened
        self._opened = False
        if version == self._version and not self._moved:
            if opened:
                db.release_memory()  # so that what is looked at comes from the files
            return opened
        if version == self._version and not writing and not self._main_moved:
            self._opened = opened
            return False
        activity = self._activity()
        ours = activity.begun > self._ended
        explained = ours or (commands and not self._main_moved)  # a command leaves the main file as it is
        if not explained or number(db, "PRAGMA schema_version") != self._schema:
            raise Unexplained
        self._version, self._ended, self._moved = version, activity.ended, False
        self._wal = _seen(self._wal_name)
        if self._main_moved and (main := _seen(self._main_name)) is not None and main[:2] == self._main[:2]:
            self._main, self._main_moved = main, False
        return True

    # ------------------------------------------------------------------ looking at what is there

    def audit(self, db: apsw.Connection, known: Head) -> None:
        """Look at the next few old events, so that what was changed together with a rightful command is found too,
        if later. Raises Damaged."""
        self._known, last = known, known.seq
        if self._audited >= last:
            self._audited = 0
        before = fetch(db, tuple[bytes], _HASH, (self._audited,)) if self._audited else [(genesis(self._session),)]
        if not before:
            raise self.rewritten(f"event {self._audited} is missing", self._audited)
        head, size = Head(self._audited, before[0][0]), 0
        with contextlib.closing(db.cursor()) as cursor:
            for row in cursor.execute(_EVENTS, (self._audited, last)):
                event = Stored(*row)
                head = self._checked(head, event)
                size += len(event.body or b"")
                if head.seq - self._audited >= AUDIT_EVENTS or size >= AUDIT_BYTES:
                    break
        self._audited = head.seq

    def verify(self, db: apsw.Connection, known: Head) -> None:
        """Look at all of the log, with no cache of ours in between. Raises Damaged, naming the first event that is not
        what it was; `known` is the owner's own head."""
        from muse.log.sqlite import SqliteLog
        from muse.log.verify import verify

        self._known = known
        self.take(db)
        changed = _objects(db) ^ self._expected
        if changed:
            raise self.rewritten(f"its tables were changed ({sorted(changed)[0][1]})", 0)
        try:
            with SqliteLog.open(self._path, read_only=True, check=False) as fresh:
                if fresh.session != self._session:
                    raise self.rewritten("it says that it is another session", 0)
                report = verify(fresh, head=(known.seq, known.hash), jobs=1)
        except (NotALog, UsageError) as error:
            raise self.rewritten(str(error), 0) from error
        failed = [row for row in report.rows if row.state == "failed"]
        if failed:
            first = min(failed, key=lambda row: row.seq or 2**62)
            raise self.rewritten(first.detail, first.seq)

    def foreign(self, head: Head, events: list[Stored]) -> Iterator[Head]:
        """The head after each of these events, which others appended after `head`, each found to be whole and in its
        place. Raises Damaged."""
        self._known = head
        for event in events:
            head = self._checked(head, event)
            yield head

    def known_end(self) -> str:
        """What to do with a log that others rewrote: compare it with how it was."""
        end = f"{self._known.seq}:{self._known.hash.hex()}"
        return (
            "do not resume it before you know what was changed; what is whole of it: muse recover; "
            f"how it was: muse verify --head {end}"
        )

    def _checked(self, head: Head, event: Stored) -> Head:
        from muse.log.verify import check_event

        try:
            after = chain.check_link(head, event)
        except Damaged as error:
            raise self.rewritten(str(error), error.seq) from error
        faults = check_event(event).faults
        if faults:
            raise self.rewritten(f"event {event.seq}: {faults[0].detail}", event.seq)
        return after

    # ------------------------------------------------------------------ what went wrong

    def rewritten(self, what: str, seq: int) -> Damaged:
        """The error to raise, from now on at every write, for a log that was rewritten from event `seq` on."""
        where = f"event {seq}: " if seq and f"event {seq}" not in what else ""
        self._found = Damaged(
            f"{self._path} was rewritten while it was in use, or was damaged before: {where}{what}", seq=seq,
            hint=self.known_end(),
        )  # fmt: skip
        return self._found

    def _require_same(self, suffix: str, known: _Seen | None, found: _Seen | None) -> None:
        if known is not None and (found is None or found[:2] != known[:2]):
            raise Damaged(
                f"{self._path}{suffix} was removed or replaced while it was in use",
                hint="what it held is moved into the log as this process ends; then: muse verify, muse resume",
            )

    def _lost(self, db: apsw.Connection, found: _Seen | None) -> Damaged:
        """The log is not at its place. If it only has another name, that is said; else what it holds, which is still
        there behind the open file, is saved beside its place."""
        moved = _name_of(self._main[:2])
        if moved:
            another = "" if found is None else ", and another file was put in its place"
            return Damaged(
                f"{self._path} was renamed to {moved} while it was in use{another}",
                hint=f"put it back: mv {moved} {self._path}",
            )
        what = "removed" if found is None else "replaced by another file"
        try:
            saved = save(db, self._path)
        except (OSError, apsw.Error, MuseError) as error:
            hint = f"what it held could not be saved: {error}"
        else:
            hint = f"all of it was saved in {saved}; to go on from there: mv {saved} {self._path}"
        return Damaged(f"{self._path} was {what} while it was in use", hint=hint)


def refuse_planted(db: apsw.Connection, path: Path) -> None:
    """Raises Damaged when the file holds a trigger or a view: no log has any."""
    planted = [name for kind, name, _ in _objects(db) if kind not in ("table", "index")]
    if planted:
        raise Damaged(f"{path}: its tables were changed: {planted[0]} is none of them", hint=schema.SALVAGE_HINT)


def save(db: apsw.Connection, path: Path) -> Path:
    """A whole copy of an open log beside the place of its file, which may be gone; the copy's path. Raises OSError,
    StoreUnavailable or apsw.Error."""
    private_folder(path.parent)
    target = _free_name(path)
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", db, "main") as backup:
            backup.step()
        copy.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        copy.close()
    sync_folder(path.parent)
    return target


def _free_name(path: Path) -> Path:
    for number_ in range(1, SAVED_NAMES_MAX):
        target = path.with_name(f"{path.name}.saved{f'-{number_}' * (number_ > 1)}")
        with contextlib.suppress(FileExistsError):
            private_file(target)
            return target
    raise FileExistsError(f"{path.parent} is full of saved copies")


def _seen(name: str) -> _Seen | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _was_opened(known: _Seen | None, found: _Seen | None) -> bool:
    """Whether what befell the write-ahead log is what SQLite does to it when it opens it for root: its owner is set, to
    who it is already (os_unix.c, robustFchown). A few old events are looked at then, not all of the log, or every
    reader would hold the owner up for as long as that takes."""
    return os.geteuid() == 0 and known is not None and found is not None and found[:5] == known[:5]


def _name_of(file: tuple[int, int]) -> str:
    """The name that an open file has now, "" where it has none or the system does not say."""
    with contextlib.suppress(OSError):
        for number_ in os.listdir(_DESCRIPTORS):
            place = f"{_DESCRIPTORS}/{number_}"
            found = _seen(place)
            if found is not None and found[:2] == file and found[2]:
                return os.readlink(place)
    return ""


def _objects(db: apsw.Connection) -> frozenset[tuple[str, str, str]]:
    """Tables, indexes, triggers and views."""
    return frozenset(fetch(db, tuple[str, str, str], "SELECT type, name, coalesce(sql, '') FROM sqlite_schema"))
