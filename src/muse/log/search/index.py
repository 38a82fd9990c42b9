"""The index of one session: which of its events may hold a query, kept in a file of its own that may go at any time.

An FTS5 table of three-character pieces without positions and without the texts, next to how far it has come in which
log. Each session has its own file, so that what is taken out of a session, or a session as a whole, leaves the index
with it. A file that is damaged, of another version or of another log is made anew; a digest of all rows tells damage
that SQLite does not see and that would hide hits. This module must not know what events mean; `docs/search.md` and
decision 23 say why it is so.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self, cast

import apsw
import msgspec

from muse.errors import StoreUnavailable
from muse.log.place import has_room, private_file, private_folder
from muse.log.schema import Patience, uri
from muse.log.search.query import Query, fold

INDEX_VERSION: Final = 2
APPLICATION_ID: Final = 0x6D757369  # "musi"
SUFFIX: Final = ".index"
BATCH_CHARS: Final = 8 * 1024 * 1024
BATCH_EVENTS: Final = 5_000
"""After so much the index is made durable, and others may have their turn."""
TERMS_MAX: Final = 1_000
"""Where a query has fewer than three characters, so many pieces that begin with it are looked up."""
RETRY_SECONDS: Final = 0.01
LAST: Final = "\n\n"
"""Behind each text, so that every character of it begins a piece."""

_TABLES: Final = """
CREATE TABLE state (
    version INTEGER, seq INTEGER, hash BLOB, time TEXT, stamp TEXT, redacted INTEGER, cut INTEGER, problem TEXT,
    digest BLOB
) STRICT;
CREATE VIRTUAL TABLE texts USING fts5(
    text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1'
);
"""
_DIGESTED: Final = (
    "SELECT version, seq, hash, time, stamp, redacted, cut, problem FROM state",
    "SELECT id, block FROM texts_data ORDER BY id",
    "SELECT segid, term, pgno FROM texts_idx ORDER BY segid, term",
    "SELECT k, v FROM texts_config ORDER BY k",
)
"""All that an answer is made of."""


class Reached(msgspec.Struct, frozen=True):
    """How far an index has come: to event `seq` with that chain value; `time` is the latest of any event, `stamp` the
    look of the log's files when all of them was in it. `redacted` is the last redaction before its first event was
    read, `cut` how many texts were longer than what is searched, `problem` why what follows could not be read."""

    seq: int = 0
    hash: bytes = b""
    time: str = ""
    stamp: str = ""
    redacted: int = 0
    cut: int = 0
    problem: str = ""


class Said(msgspec.Struct, frozen=True):
    """An event as the index takes it in: its place, chain value and time, its texts, and how many were cut."""

    seq: int
    hash: bytes
    time: str
    texts: list[str]
    cut: int = 0


More = Callable[["Reached"], Iterable[Said] | None]
"""What comes after how far an index has come, in order; None where it has to start anew."""


class Broken(Exception):
    """The file is no index of this version, or damaged: it has to be made anew."""


class Index:
    """One session's index, open."""

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self._path = path
        self._db = db

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """For reading; None where there is none. Raises Broken, or StoreUnavailable where it cannot be read."""
        try:
            if path.stat().st_size == 0:
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
        return cls(path, _connect(path, apsw.SQLITE_OPEN_READONLY))

    @classmethod
    def create(cls, path: Path) -> Self:
        """For writing; a new, private file where there is none. Raises Broken or StoreUnavailable."""
        private_folder(path.parent)
        try:
            with contextlib.suppress(FileExistsError):
                private_file(path)
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
        return cls(path, _connect(path, apsw.SQLITE_OPEN_READWRITE))

    def reached(self) -> Reached:
        """How far it has come. Raises Broken or StoreUnavailable."""
        with _translated(self._path):
            return self._reached()

    def _reached(self) -> Reached:
        if self._db.pragma("application_id") == 0:
            return Reached()
        rows = cast("list[Any]", self._db.execute("SELECT * FROM state").fetchall())
        if len(rows) != 1 or rows[0][0] != INDEX_VERSION:
            raise Broken(f"{self._path} is of another version")
        return Reached(*rows[0][1:-1])

    def grow(self, more: More, ending: Callable[[], Reached]) -> Reached:
        """Take in what `more` yields after how far the index has come by then. A batch is durable before the next
        begins, and another process may come between. `ending` gives what is to be kept at the end besides: stamp,
        redacted and problem. Returns how far it has come. Raises Broken or StoreUnavailable, and what `more` raises."""
        with _translated(self._path):
            is_first = True
            while True:
                self._require_room()
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    if is_first:
                        self._require_whole()
                        is_first = False
                    reached, is_all = self._batch(more, ending)
                    self._db.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(apsw.Error):
                        self._db.execute("ROLLBACK")
                    raise
                if is_all:
                    return reached

    def _batch(self, more: More, ending: Callable[[], Reached]) -> tuple[Reached, bool]:
        """One transaction; whether all is in it."""
        self._prepare()
        reached = self._reached()
        source = more(reached)
        if source is None:
            self._db.execute("INSERT INTO texts (texts) VALUES ('delete-all')")
            reached = Reached()
            source = more(reached) or ()
        room, count = BATCH_CHARS, BATCH_EVENTS
        seq, hash_, time, cut = reached.seq, reached.hash, reached.time, reached.cut
        for said in source:
            if said.texts:
                text = fold(LAST.join((*said.texts, ""))).replace("\0", "\ufffd")
                self._db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (said.seq, text))
                room -= len(text)
            count -= 1
            seq, hash_, time, cut = said.seq, said.hash, max(time, said.time), cut + said.cut
            if room <= 0 or count <= 0:
                break
        is_all = room > 0 and count > 0
        end = ending()
        stamp, problem = (end.stamp, end.problem) if is_all else ("", "")
        reached = Reached(seq, hash_, time, stamp, end.redacted, cut, problem)
        self._db.execute("DELETE FROM state")
        values = (INDEX_VERSION, *msgspec.structs.astuple(reached))
        self._db.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?, ?, x'')", values)
        if is_all:  # what is not finished is asked by nobody
            self._db.execute("INSERT INTO texts (texts) VALUES ('flush')")
            self._db.execute("UPDATE state SET digest = ?", (self._digest(),))
        return reached, is_all

    def candidates(self, query: Query) -> list[int] | None:
        """The events that may hold the query, last first; None where the index cannot tell: it may be any. Raises
        Broken or StoreUnavailable."""
        with _translated(self._path):
            self._db.execute("BEGIN")
            try:
                self._require_whole()
                return self._held(query)
            finally:
                self._db.execute("COMMIT")

    def _held(self, query: Query) -> list[int] | None:
        grams = query.grams
        if query.short:
            terms = self._terms(query.short)
            grams = [[term] for term in terms] if terms is not None else [[]]
        if not all(grams):
            return None
        if not grams:
            return []
        match = " OR ".join("(" + " AND ".join(map(_quoted, some)) + ")" for some in grams)
        sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC"
        return [row[0] for row in cast("list[tuple[int]]", self._db.execute(sql, (match,)).fetchall())]

    def _terms(self, start: str) -> list[str] | None:
        """The pieces that begin so, None for too many."""
        self._db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab('main', 'texts', 'row')")
        sql = "SELECT term FROM temp.terms WHERE term >= ? AND term < ? LIMIT ?"
        found = self._db.execute(sql, (start, start + "\U0010ffff", TERMS_MAX + 1)).fetchall()
        return None if len(found) > TERMS_MAX else [str(row[0]) for row in found]

    def _prepare(self) -> None:
        if self._db.pragma("application_id") == 0:
            self._db.pragma("application_id", APPLICATION_ID)
            self._db.execute(_TABLES)
            self._db.execute("INSERT INTO state VALUES (?, 0, x'', '', '', 0, 0, '', x'')", (INDEX_VERSION,))

    def _require_whole(self) -> None:
        """Inside a transaction. Raises Broken where a finished index does not hold what was written."""
        if self._db.pragma("application_id") == 0:
            return
        self._reached()
        digests = cast("list[tuple[bytes]]", self._db.execute("SELECT digest FROM state").fetchall())
        if digests[0][0] not in (b"", self._digest()):
            raise Broken(f"{self._path} is damaged")

    def _digest(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for sql in _DIGESTED:
            for row in cast("Iterable[tuple[Any, ...]]", self._db.execute(sql)):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    digest.update(b"%d " % len(data))
                    digest.update(data)
        return digest.digest()

    def _require_room(self) -> None:
        if not has_room(self._path.parent):
            raise StoreUnavailable(f"{self._path.parent}: the disk is nearly full")

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(apsw.Error):
            self._db.close(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove(path: Path) -> bool:
    """Take an index away with what stands beside it; whether there was one. Raises OSError."""
    found = False
    for name in (path, path.with_name(f"{path.name}-journal")):
        try:
            os.unlink(name)
            found = True
        except FileNotFoundError:
            continue
    return found


def _connect(path: Path, flags: int) -> apsw.Connection:
    with _translated(path):
        db = apsw.Connection(uri(path), flags=flags | apsw.SQLITE_OPEN_URI)
        try:
            db.set_busy_handler(Patience(RETRY_SECONDS))
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
            db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)  # FTS5 keeps tables of its own
            db.pragma("trusted_schema", 0)
            db.pragma("temp_store", 2)
            db.pragma("secure_delete", 1)
            if db.pragma("application_id") not in (0, APPLICATION_ID):
                raise Broken(f"{path} is no index")
        except BaseException:
            db.close()
            raise
    return db


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError) as error:
        raise Broken(f"{path}: {error}") from error
    except apsw.SQLError as error:  # our statements are fixed: the file's tables are not ours
        if type(error) is apsw.SQLError:
            raise Broken(f"{path}: {error}") from error
        raise StoreUnavailable(f"{path}: {error}") from error
    except apsw.Error as error:
        raise StoreUnavailable(f"{path}: {error}") from error


def _quoted(gram: str) -> str:
    return '"' + gram.replace("\0", "\ufffd").replace('"', '""') + '"'
