"""Reading a log from its SQLite file: pages, the head, blobs, fold checkpoints, and what opening proves.

Nothing here writes. While a log is open nothing else in the process may open its file, `-wal` or `-shm`: closing such
a second descriptor would drop SQLite's locks. This module must not know ownership.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import apsw

from muse.errors import Damaged, InvalidEvent, LogError, StoreUnavailable, UsageError
from muse.event.codec import parse_header
from muse.event.commitment import genesis
from muse.log import blobs, chain, schema
from muse.log.place import refuse_remote
from muse.log.protocol import FOLLOW_POLL_SECONDS, PAGE_BYTES, PAGE_EVENTS, Head, Stored
from muse.log.schema import SALVAGE_HINT, fetch, number
from muse.log.wal import Tail, look_behind

_LAST_ROW: Final = 2**63 - 1

_EVENTS: Final = (
    "SELECT e.seq, e.header, e.body, e.key, e.leaf_count, e.root, e.hash, h.leaves"
    " FROM events e LEFT JOIN hidden h ON h.seq = e.seq"
)
_MISFILED: Final = (
    "SELECT seq FROM events"
    """ WHERE instr(header, CAST('"id":"' || lower(hex(id)) || '"' AS BLOB)) = 0 ORDER BY seq"""
)
_MAY_BE_MISSING: Final = {bytes, type(None)}
_LAST: Final = "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1"


class SqliteReader:
    """The reading half of `SqliteLog`."""

    def __init__(self, path: Path, db: apsw.Connection, session: str, commands: Mapping[str, int], read_only: bool):
        self.path = path
        self.session = session
        self.read_only = read_only
        self._commands = commands
        self._db = db
        self._head = Head(0, genesis(session))
        self._broken = False
        self._is_unsynced = False
        self._closed = False
        self._data_version = 0
        self.tail = Tail()
        self._adopt_connection(db)

    @classmethod
    def open(
        cls, path: Path | str, *, commands: Mapping[str, int] | None = None, read_only: bool = False, check: bool = True
    ) -> Self:
        """Open a log. `check` follows the chain of stored roots through the whole file and raises Damaged at the
        first event that does not fit; without it a damaged log can be read, for `verify` and `recover`.

        Raises UsageError (missing), NotALog, NewerLog, Damaged or StoreUnavailable.
        """
        path = Path(path).absolute()
        if not read_only:
            refuse_remote(path.parent)
        db = schema.connect(path, read_only=read_only)
        try:
            found = fetch(db, tuple[str], "SELECT value FROM meta WHERE key = 'session'")
            if not found:
                raise Damaged(f"{path} does not say which session it is")
            log = cls(path, db, found[0][0], commands or {}, read_only)
            log._look_behind()
            if check:
                log._head = log.check()
            else:
                with contextlib.suppress(
                    apsw.CorruptError, apsw.IOError
                ):  # who asked for no check wants what can be read
                    log._head = log._last()
        except apsw.Error as error:
            db.close()
            raise schema.translate(error, path) from error
        except (LogError, UsageError):
            db.close()
            raise
        return log

    # ------------------------------------------------------------------ events

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        """See `Log.read`."""
        while page := self._read_page(after, before):
            yield from page
            after = page[-1].seq

    def follow(self, after: int, stopped: Callable[[], bool]) -> Iterator[Stored]:
        """See `Log.follow`."""
        while True:
            for event in self.read(after):
                yield event
                after = event.seq
            if stopped():
                return
            time.sleep(FOLLOW_POLL_SECONDS)

    def _read_page(self, after: int, before: int | None) -> list[Stored]:
        with self._reading():
            return self._page(after, before)

    def _page(self, after: int, before: int | None, *, limited: bool = True) -> list[Stored]:
        page: list[Stored] = []
        room = PAGE_BYTES
        last = _LAST_ROW if before is None else before - 1
        cursor = self._db.cursor()
        try:
            for row in cursor.execute(f"{_EVENTS} WHERE e.seq > ? AND e.seq <= ? ORDER BY e.seq", (after, last)):
                event = _stored(row)
                page.append(event)
                room -= len(event.header) + len(event.body or event.hidden or b"")
                if limited and (room <= 0 or len(page) == PAGE_EVENTS):
                    break
        finally:
            cursor.close(True)  # ends the read transaction
        return page

    def changed(self) -> bool:
        """See `Log.changed`."""
        with self._reading():
            version = self._read_data_version()
        moved = version != self._data_version
        self._data_version = version
        return moved

    def _read_data_version(self) -> int:
        return number(self._db, "PRAGMA data_version")

    def head(self) -> Head:
        """See `Log.head`."""
        with self._reading():
            return self._last()

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """See `Log.find`."""
        found = {}
        with self._reading():
            for id_ in ids:
                rows = fetch(self._db, tuple[int], "SELECT seq FROM events WHERE id = ?", (bytes.fromhex(id_),))
                if rows:
                    found[id_] = rows[0][0]
        return found

    # ------------------------------------------------------------------ blobs and caches

    def get_blob(self, root: str) -> bytes:
        """See `Log.get_blob`."""
        return b"".join(self.stream_blob(root))

    def stream_blob(self, root: str) -> Iterator[bytes]:
        """See `Log.stream_blob`."""
        with self._reading():
            yield from blobs.read_blob(self._db, root)

    def blob_key(self, root: str) -> bytes | None:
        """See `Log.blob_key`."""
        with self._reading():
            return blobs.key_of(self._db, root)

    def unnamed_blobs(self) -> tuple[int, int]:
        """How many contents no event names, and what they take up: left by a writer that died."""
        sql = (
            "SELECT count(DISTINCT blob), coalesce(sum(length(data)), 0) FROM chunks"
            " WHERE blob IN (SELECT blob FROM blobs WHERE named IS NULL)"
        )
        with self._reading():
            return fetch(self._db, tuple[int, int], sql)[0]

    def headers(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """See `Log.headers`."""
        sql = f"SELECT seq, header FROM events WHERE seq > ? ORDER BY seq LIMIT {PAGE_EVENTS}"
        while True:
            with self._reading():
                page = fetch(self._db, tuple[int, bytes], sql, (after,))
            if not page:
                return
            for seq, header in page:
                _require_bytes(seq, header)
                yield seq, header
            after = page[-1][0]

    def load_checkpoint(self, version: int, before: int | None = None) -> tuple[int, bytes] | None:
        """See `Log.load_checkpoint`."""
        with self._reading():
            sql = "SELECT seq, state FROM checkpoints WHERE version = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
            newest = _LAST_ROW if before is None else before
            found = fetch(self._db, tuple[int, bytes], sql, (version, newest))
        return found[0] if found else None

    # ------------------------------------------------------------------ upkeep

    def structure_faults(self) -> list[tuple[int, str]]:
        """What is wrong with the file as a database, with the seq of the event concerned or 0: SQLite's own check,
        ids that are not those of their headers, and the epoch kept beside the events."""
        self._require_usable()
        try:
            faults = [(0, text) for (text,) in fetch(self._db, tuple[str], "PRAGMA integrity_check") if text != "ok"]
            misfiled = fetch(self._db, tuple[int], _MISFILED)
            faults += [(seq, "the id column is not the header's id") for (seq,) in misfiled]
            planted = fetch(self._db, tuple[str], "SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')")
            faults += [(0, f"{name} is no part of a log") for (name,) in planted]
            tables = fetch(self._db, tuple[str], "SELECT name FROM sqlite_schema WHERE type = 'table'")
            missing = [name for name in schema.TABLE_NAMES if (name,) not in tables]
            faults += [(0, f"the table {name} is missing") for name in missing]
            astray = fetch(self._db, tuple[int], "SELECT seq FROM events WHERE seq < 1 ORDER BY seq LIMIT 1")
            faults += [(0, f"an event has the number {seq}") for (seq,) in astray]
            newest = fetch(self._db, tuple[bytes], "SELECT header FROM events ORDER BY seq DESC LIMIT 1")
            if fault := self.tail_fault:
                faults.append((fault.seq, str(fault)))
            if newest and f'"epoch":{self._epoch()},'.encode() not in newest[0][0]:
                faults.append((0, "the epoch kept beside the events is not that of the last one"))
        except apsw.Error as error:
            meaning = schema.translate(error, self.path)
            if not isinstance(meaning, Damaged):
                raise meaning from error
            faults = [(0, str(meaning))]
        return faults

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        self._closed = True
        with contextlib.suppress(apsw.Error):  # a reader has nothing to lose
            self._db.close(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look_behind(self) -> None:
        """See what stands behind the end of the write-ahead log. A writer cuts off an append that is not whole, so that
        nothing of it can ever be taken for what comes after."""
        self.tail = look_behind(self._db, self.path)
        if self.tail.lost:
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # it would overwrite what `recover` can save
        elif self.tail.unfinished and not self.read_only:
            with contextlib.suppress(apsw.Error):  # busy, or a full disk: the next opening does it
                if self._is_left_unfinished():
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _is_left_unfinished(self) -> bool:
        """Whether nobody is at the append that is not whole: who is, has written it once another may write. To move a
        living owner's log into the main file would look to it as if somebody rewrote that."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("ROLLBACK")
        seen, self.tail = self.tail, look_behind(self._db, self.path)
        return self.tail.unfinished and self.tail.used == seen.used

    def check(self) -> Head:
        """Follow the chain of stored roots through the whole log; its head. Raises Damaged at the first event that does
        not fit, or where events stand behind damage to the write-ahead log."""
        with self._reading():
            try:
                head = self._check_chain()
            except Damaged as error:
                error.hint = error.hint or SALVAGE_HINT
                raise
            if fault := self.tail_fault:
                raise fault
        return head

    @property
    def tail_fault(self) -> Damaged | None:
        """What is wrong with the end of the log, None for nothing: events that were appended cannot be read."""
        if not self.tail.lost:
            return None
        seq = self._last().seq + 1
        return Damaged(
            f"{self.path}-wal is damaged: events from {seq} on stand behind the damage", seq=seq, hint=SALVAGE_HINT
        )

    @property
    def end_fault(self) -> Damaged | None:
        """What can be seen to be wrong with the end of the log without following the chain to it."""
        with self._reading():
            try:
                return self.tail_fault or self._epoch_fault(self._last().seq)
            except InvalidEvent:  # its header is none: following the chain tells which is the first of such
                return None

    def _check_chain(self) -> Head:
        head = Head(0, genesis(self.session))
        rows = self._db.execute("SELECT seq, header, leaf_count, root, hash FROM events ORDER BY seq")
        for seq, header, count, root, hash_ in rows:
            _require_bytes(seq, header, root, hash_)
            _require_count(seq, count)
            head = chain.check_link(head, Stored(seq, header, None, None, count, root, hash_))
        if fault := self._epoch_fault(head.seq):
            raise fault
        return head

    def _epoch_fault(self, seq: int) -> Damaged | None:
        """What is wrong with the epoch of the last event, which is `seq`."""
        last = fetch(self._db, tuple[bytes], "SELECT header FROM events WHERE seq = ?", (seq,))
        if not last or parse_header(last[0][0]).epoch <= self._epoch():
            return None
        return Damaged(f"event {seq} is of an epoch that was never opened", seq=seq, hint=SALVAGE_HINT)

    def _adopt_connection(self, db: apsw.Connection) -> None:
        self._db = db
        seen = schema.seen_at(self.path)
        self._identity = (seen.st_dev, seen.st_ino)
        self._data_version = self._read_data_version()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._require_usable()
        try:
            yield
        except apsw.Error as error:
            raise schema.translate(error, self.path) from error
        except UnicodeDecodeError as error:  # a damaged row says that bytes are text
            raise Damaged(f"{self.path} is damaged: a row holds text that is none") from error

    def _require_usable(self) -> None:
        self._require_open()
        if self._broken:
            raise StoreUnavailable(f"{self.path}: an earlier write failed; reopen and look what is there")

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")

    def _last(self) -> Head:
        found = fetch(self._db, tuple[int, bytes], _LAST)
        return Head(*found[0]) if found else Head(0, genesis(self.session))

    def _epoch(self) -> int:
        return number(self._db, "SELECT value FROM meta WHERE key = 'epoch'")


def _stored(row: tuple[Any, ...]) -> Stored:
    """An event from its row. SQLite checks the types of a STRICT table when it writes, and damage comes later."""
    seq, header, body, key, count, root, hash_, hidden = row
    is_whole = type(header) is type(root) is type(hash_) is bytes
    if not is_whole or not {type(body), type(key), type(hidden)} <= _MAY_BE_MISSING:
        _require_bytes(seq, None)
    _require_count(seq, count)
    return Stored(seq, header, body, key, count, root, hash_, hidden)


def _require_bytes(seq: int, *values: object) -> None:
    if not all(isinstance(value, bytes) for value in values):
        raise Damaged(f"the row of event {seq} is damaged", seq=seq, hint=SALVAGE_HINT)


def _require_count(seq: int, count: object) -> None:
    if not isinstance(count, int) or not 0 < count < 2**32:
        raise Damaged(f"the row of event {seq} is damaged", seq=seq, hint=SALVAGE_HINT)
