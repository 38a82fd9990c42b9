"""Who may write into the log's one SQLite file: transactions, ownership, and what others did to it meanwhile.

Every write is one `BEGIN IMMEDIATE` transaction that checks the head, and for the owner the epoch and, through its
guard, that nobody changed the files behind its back. This module must not know what events mean.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import apsw

from muse.errors import Damaged, Fenced, InvalidEvent, StoreUnavailable
from muse.event.codec import BlobRef, Header, parse_header
from muse.failpoint import hit
from muse.log import blobs, chain, schema
from muse.log.chain import Row
from muse.log.guard import Activity, Guard, Unexplained, refuse_planted
from muse.log.lock import OwnerLock, acquire, replace
from muse.log.protocol import Claim, Draft, Head, Ownership, Stored
from muse.log.reader import SqliteReader
from muse.log.schema import fetch

OWNER_RETRY_SECONDS: Final = 0.0005

_INSERT: Final = (
    "INSERT INTO events (seq, id, header, key, leaf_count, root, hash, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_MISFILED: Final = (
    "SELECT seq FROM events WHERE seq > ? AND seq <= ?"
    """ AND instr(header, CAST('"id":"' || lower(hex(id)) || '"' AS BLOB)) = 0"""
)


class SqliteOwnership:
    """The right to append to one `SqliteLog`."""

    def __init__(self, epoch: int, lock: OwnerLock) -> None:
        self.epoch = epoch
        self.lock = lock

    @property
    def held(self) -> bool:
        """Whether the lock is still held."""
        return self.lock.held

    def release(self) -> None:
        """Give the lock back; the log stays open for reading. Harmless when called twice."""
        self.lock.release()


class SqliteOwner(SqliteReader):
    """The owning half of `SqliteLog`."""

    def __init__(self, path: Path, db: apsw.Connection, session: str, commands: Mapping[str, int], read_only: bool):
        self._ownership: SqliteOwnership | None = None
        self._guard: Guard | None = None
        self._others: list[SqliteOwner] = []
        self._begun = self._ended = 0
        self._commands_seen = False
        self._in_doubt: set[str] = set()
        self._old_blobs = 0
        self._touch_at = 0.0
        super().__init__(path, db, session, commands, read_only)

    def _adopt_connection(self, db: apsw.Connection) -> None:
        super()._adopt_connection(db)
        self._identities: dict[str, tuple[int, int]] = {}
        self._wal_pages = 0
        if not self.read_only:
            db.set_wal_hook(self._count_pages)

    def _count_pages(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _activity(self) -> Activity:
        """The ends are counted first: what ends in between then counts as still going on."""
        ended = sum(other._ended for other in self._others)
        return Activity(sum(other._begun for other in self._others), ended)

    # ------------------------------------------------------------------ ownership

    def claim(
        self,
        build: Callable[[Claim], Draft],
        also: Callable[[Claim], Sequence[Draft]] | None = None,
        *,
        seize: bool = False,
    ) -> Ownership:
        """See `Log.claim`."""
        self._require_writable()
        with self._reading():
            refuse_planted(self._db, self.path)
        lock = replace(self.lock_path) if seize else acquire(self.lock_path)
        try:
            epoch = self._append_opened(build, also)
            with contextlib.suppress(apsw.BusyError):  # a reader that held on for ten seconds; the event is durable
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
            self._old_blobs = blobs.last_row(self._db)
            self._watch()
        except apsw.Error as error:
            lock.release()
            raise schema.translate(error, self.path) from error
        except BaseException:
            lock.release()
            raise
        self._ownership = SqliteOwnership(epoch, lock)
        self._db.set_busy_handler(schema.Patience(OWNER_RETRY_SECONDS))
        return self._ownership

    def hold(self) -> Ownership:
        """See `Log.hold`."""
        self._require_writable()
        lock = acquire(self.lock_path)
        try:
            with self._reading():
                epoch, self._head, self._old_blobs = self._epoch(), self._last(), blobs.last_row(self._db)
                self._watch()
        except BaseException:
            lock.release()
            raise
        self._ownership = SqliteOwnership(epoch, lock)
        return self._ownership

    def _watch(self) -> None:
        self._guard = Guard(self._db, self.path, self.session, self._activity)
        self._require_same_file()

    @property
    def lock_path(self) -> Path:
        """The file whose kernel lock makes its holder the owner; it stays as long as the log does."""
        return self.path.with_suffix(".lock")

    def _append_opened(self, build: Callable[[Claim], Draft], also: Callable[[Claim], Sequence[Draft]] | None) -> int:
        with self._writing():
            head = self._last()
            epoch = self._epoch() + 1
            with contextlib.closing(self._db.cursor()) as cursor:
                newest_first = (header for (header,) in cursor.execute("SELECT header FROM events ORDER BY seq DESC"))
                crashed = chain.left_open(newest_first, self._commands)
            found = Claim(epoch, crashed, head)
            draft = build(found)
            if draft.type != chain.OPENED:
                raise ValueError(f"a claim appends {chain.OPENED}, not {draft.type}")
            drafts = [draft, *(also(found) if also is not None else ())]
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (epoch,))
            rows, new_head = chain.place(drafts, head, epoch)
            self._insert(rows, chain.named_blobs(drafts))
        self._head = new_head
        return epoch

    def _require_owner(self, epoch: int) -> Guard:
        """Raises Fenced or Damaged unless this process owns the session, in this epoch, and its files are there."""
        self._require_writable()
        if self._ownership is None or not self._ownership.held or self._guard is None:
            raise Fenced("this process does not own the session")
        if epoch != self._ownership.epoch:
            raise Fenced(f"epoch {epoch} is over: this process opened epoch {self._ownership.epoch}")
        self._guard.check_files(self._db)
        return self._guard

    def _require_same_file(self) -> None:
        try:
            seen = self.path.stat()
        except OSError as error:
            raise Damaged(f"{self.path} was removed while it was in use") from error
        if (seen.st_dev, seen.st_ino) != self._identity:
            raise Damaged(f"{self.path} was replaced while it was in use")
        # SQLite keeps both of these as long as anyone has the log open; with another one beside the log, other
        # processes would neither see what is written here nor be kept from writing over it
        for suffix in ("-wal", "-shm"):
            beside = self._beside(suffix)
            known = self._identities.get(suffix)
            if known is None and beside is not None:
                self._identities[suffix] = beside
            elif known != beside:
                raise Damaged(f"{self.path}{suffix} was removed or replaced while it was in use")

    def _beside(self, suffix: str) -> tuple[int, int] | None:
        try:
            seen = os.stat(f"{self.path}{suffix}")
        except OSError:
            return None
        return (seen.st_dev, seen.st_ino)

    def changed(self) -> bool:
        """See `Log.changed`. For the owner also whether its files are where they were, so that a log that is removed
        is noticed, and saved, while nothing is appended."""
        if self._guard is not None and self._ownership is not None and self._ownership.held and not self._broken:
            with self._reading():
                moved = self._guard.check_all(self._db, self._ownership.lock)
            if moved:
                self._look(self._guard)
        return super().changed()

    def missed(self, after: int) -> Iterator[Stored]:
        """See `Log.missed`."""
        while True:
            with self._reading():
                if self._ownership is not None:
                    self._require_epoch(self._ownership.epoch)
                # What others said between the claim and the first fold was read, but never looked at closely.
                page = self._page(after if self._guard is None else min(after, self._head.seq), None)
                self._accept([event for event in page if event.seq > self._head.seq])
            yield from (event for event in page if event.seq > after)
            if not page:
                break
            after = max(after, page[-1].seq)
        if self._guard is not None and not self._in_doubt:
            self._look(self._guard)

    def _look(self, guard: Guard) -> None:
        """Between appends: whether what others did is explained, and if not, whether it did any harm."""
        with self._reading():
            try:
                if guard.look(self._db, commands=self._commands_seen, writing=False):
                    self._commands_seen = False
                    guard.audit(self._db, self._head)
            except Unexplained:
                self._verify(guard)

    def _verify(self, guard: Guard) -> None:
        """Look at all of the log. What it says of itself then holds; what is only kept beside it is dropped."""
        guard.verify(self._db, self._head)
        with self._writing():
            self._db.execute("DELETE FROM checkpoints")

    def _accept(self, events: list[Stored]) -> None:
        """Take events of others for right after a close look. Raises Damaged for what no other may append."""
        if self._guard is None or not events:
            return
        misfiled = fetch(self._db, tuple[int], _MISFILED, (events[0].seq - 1, events[-1].seq))
        if misfiled:
            raise self._guard.rewritten("it is filed under another id", misfiled[0][0])
        for event, head in zip(events, self._guard.foreign(self._head, events), strict=True):
            header = parse_header(event.header)
            if header.id not in self._in_doubt:
                self._accept_command(self._guard, event, header)
                self._commands_seen = True
            self._head = head

    def _accept_command(self, guard: Guard, event: Stored, header: Header) -> None:
        try:
            if header.type not in self._commands or header.epoch != self._epoch():
                raise InvalidEvent(f"a {header.type} of epoch {header.epoch} is no command")
            chain.check_speaker(header.type, event.body or b"")
        except InvalidEvent as error:
            raise Damaged(
                f"event {event.seq} was put into {self.path} by another process: {error}", seq=event.seq,
                hint=guard.known_end(),
            ) from error  # fmt: skip

    # ------------------------------------------------------------------ transactions

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One write transaction. After an error of SQLite it is unknown what is on disk, and nothing more is written
        until `reopen`; our own refusals roll back cleanly."""
        self._require_writable()
        self._begun += 1
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            hit("before_commit")
            self._db.execute("COMMIT")
            hit("after_commit")
            self._in_doubt.clear()
            if self._guard is not None:
                self._guard.wrote()
        except apsw.ConstraintError:
            self._roll_back()
            raise
        except apsw.Error as error:
            self._broken = True
            self._is_unsynced = self._is_unsynced or isinstance(error, apsw.IOError)
            self._roll_back()
            raise schema.translate(error, self.path) from error
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._ended += 1

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            with contextlib.suppress(apsw.Error):  # the error that led here is the one to tell
                self._db.execute("ROLLBACK")

    def _require_writable(self) -> None:
        self._require_usable()
        if self.read_only:
            raise StoreUnavailable(f"{self.path} was opened for reading only")

    def _require_epoch(self, epoch: int) -> None:
        if self._epoch() != epoch:
            raise Fenced(
                f"epoch {self._epoch()} has begun: this process no longer owns the session",
                hint="another process goes on with it: muse attach shows what it does",
            )

    def _checked_last(self, epoch: int) -> Head:
        """The head, after making sure that the epoch is still ours and that nobody rewrote what we wrote."""
        self._require_epoch(epoch)
        head, known = self._last(), self._head
        if head.seq < known.seq or (head.seq == known.seq and head.hash != known.hash):
            raise Damaged(
                f"{self.path} was rewritten while it was in use: its end is not what it was",
                seq=min(head.seq + 1, known.seq),
                hint=f"it ended so: {known.seq}:{known.hash.hex()}; muse verify --head compares it with that",
            )
        if head.seq > known.seq:
            self._accept(self._page(known.seq, None, limited=False))
        if self._guard is not None and self._guard.look(self._db, commands=self._commands_seen):
            self._commands_seen = False
            self._guard.audit(self._db, head)
        return head

    def _insert(self, rows: list[Row], names: Mapping[str, list[BlobRef]]) -> None:
        self._in_doubt.update(row.id.hex() for row in rows)
        self._db.executemany(_INSERT, rows)
        for row in rows:
            if names and (refs := names.get(row.id.hex())):
                blobs.name_blobs(self._db, refs, row.seq)
            if b'"type":"session.opened"' in row.header:
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (row.seq,))
