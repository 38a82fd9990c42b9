"""The log in one SQLite file: durable appends, one owner, any number of readers and submitters.

Every write is one `BEGIN IMMEDIATE` transaction that checks the head, and for the owner the epoch, before it appends.
This module must not know what events mean beyond which types are commands.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import apsw

from muse.errors import Conflict, Damaged, Fenced, InvalidEvent, StoreUnavailable, UsageError
from muse.event.codec import BlobRef, Header, parse_header
from muse.failpoint import hit
from muse.log import blobs, chain, schema
from muse.log.chain import Row
from muse.log.guard import Activity, Guard, Unexplained
from muse.log.lock import OwnerLock, acquire, replace
from muse.log.place import (
    has_room,
    private_file,
    private_folder,
    refuse_long,
    refuse_remote,
    sync_folder,
    unavailable,
)
from muse.log.protocol import (
    Appended,
    Claim,
    Draft,
    Head,
    Ownership,
    Stored,
)
from muse.log.reader import SqliteReader
from muse.log.schema import fetch, number

OWNER_RETRY_SECONDS: Final = 0.0005
TIDY_PAGES: Final = 1_024
"""Pages in the write-ahead log (4 MiB) from which `tidy` checkpoints."""
WAL_PAGES_MAX: Final = 8_192
"""Pages in the write-ahead log (32 MiB) at which an append checkpoints by itself, because nobody called `tidy`."""

LOOKS_MAX: Final = 3
"""How often an append looks at all of the log, because others change it, before it gives up."""

_INSERT: Final = (
    "INSERT INTO events (seq, id, header, key, leaf_count, root, hash, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_MISFILED: Final = (
    "SELECT seq FROM events WHERE seq > ? AND seq <= ?"
    """ AND instr(header, CAST('"id":"' || lower(hex(id)) || '"' AS BLOB)) = 0"""
)


def _remove(path: Path) -> None:
    """Take a log's file away, and what SQLite leaves beside it where it could not close in order."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):  # a read-only disk, say: what went wrong before is the error to tell
            path.with_name(path.name + suffix).unlink(missing_ok=True)


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


class SqliteLog(SqliteReader):
    """One session's log in a SQLite file; the contract of every method is `muse.log.protocol.Log`.

    Made by `create` or `open`. `commands` maps each command type to the newest version this process knows.
    """

    def __init__(self, path: Path, db: apsw.Connection, session: str, commands: Mapping[str, int], read_only: bool):
        self._ownership: SqliteOwnership | None = None
        self._guard: Guard | None = None
        self._others: list[SqliteLog] = []
        self._begun = self._ended = 0
        self._commands_seen = False
        self._in_doubt: set[str] = set()
        self._listed: tuple[int, dict[str, int] | None] = (0, None)
        self._my_blobs: set[int] = set()
        self._old_blobs = 0
        super().__init__(path, db, session, commands, read_only)

    # ------------------------------------------------------------------ making and opening

    @classmethod
    def create(cls, path: Path | str, session: str, *, commands: Mapping[str, int]) -> "SqliteLog":
        """Make a log without events, and the folders that lead to it (0700); the file is whole or not there.

        Raises UsageError if the name is taken, StoreUnavailable if the place cannot keep a log.
        """
        path = Path(path).absolute()
        refuse_long(path)
        refuse_remote(path.parent)
        private_folder(path.parent)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        try:
            private_file(draft)
            schema.build(draft, session)
            os.link(draft, path)  # unlike a rename, this refuses a name that is taken
            draft.unlink()
            sync_folder(path.parent)
        except FileExistsError as error:
            raise UsageError(f"there is a file at {path} already") from error
        except OSError as error:
            raise unavailable(path, error) from error
        except apsw.Error as error:
            raise schema.translate(error, path) from error
        finally:
            _remove(draft)
        try:
            return cls.open(path, commands=commands)
        except StoreUnavailable:  # the disk held the file, but not what belongs to an open one: nobody has it yet
            _remove(path)
            raise

    def _adopt_connection(self, db: apsw.Connection) -> None:
        super()._adopt_connection(db)
        self._identities: dict[str, tuple[int, int]] = {}
        self._wal_pages = 0
        if not self.read_only:
            db.set_wal_hook(self._count_pages)

    def _count_pages(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def another(self) -> "SqliteLog":
        """See `Log.another`."""
        other = type(self).open(self.path, commands=self._commands, check=False)
        self._others.append(other)
        return other

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
        self._guard.check_files(self._db, self._ownership.lock)
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

    def missed(self, after: int) -> Iterator[Stored]:
        """See `Log.missed`."""
        while True:
            with self._reading():
                if self._ownership is not None:
                    self._require_epoch(self._ownership.epoch)
                page = self._page(after, None)
                self._accept([event for event in page if event.seq > self._head.seq])
            yield from page
            if not page:
                break
            after = page[-1].seq
        if self._guard is not None and not self._in_doubt:
            self._look(self._guard)

    def _look(self, guard: Guard) -> None:
        """Between appends: whether what others did is explained, and if not, whether it did any harm."""
        with self._reading():
            try:
                if guard.look(self._db, commands=self._commands_seen):
                    self._commands_seen = False
                    guard.audit(self._db, self._head.seq)
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
            raise Damaged(f"event {misfiled[0][0]} is filed under another id", seq=misfiled[0][0])
        for event, head in zip(events, self._guard.foreign(self._head, events), strict=True):
            header = parse_header(event.header)
            if header.id not in self._in_doubt:
                self._accept_command(event, header)
                self._commands_seen = True
            self._head = head

    def _accept_command(self, event: Stored, header: Header) -> None:
        try:
            if header.type not in self._commands or header.epoch != self._epoch():
                raise InvalidEvent(f"a {header.type} of epoch {header.epoch} is no command")
            chain.check_speaker(header.type, event.body or b"")
        except InvalidEvent as error:
            raise Damaged(
                f"event {event.seq} was put into the log by another process: {error}", seq=event.seq,
                hint="nothing more was started; `muse show` says what it is, `muse verify` what can be trusted",
            ) from error  # fmt: skip

    # ------------------------------------------------------------------ appending

    def append(self, facts: Sequence[Draft], decisions: Sequence[Draft], expected_head: int, epoch: int) -> Appended:
        """See `Log.append`."""
        return self._append(facts, lambda _missed, _first: decisions, expected_head, epoch, decisions)

    def append_deciding(
        self,
        facts: Sequence[Draft],
        derive: Callable[[Sequence[Stored], int], Sequence[Draft]],
        expected_head: int,
        epoch: int,
    ) -> Appended:
        """See `Log.append_deciding`."""
        return self._append(facts, derive, expected_head, epoch, None)

    def _append(
        self,
        facts: Sequence[Draft],
        derive: Callable[[Sequence[Stored], int], Sequence[Draft]],
        expected_head: int,
        epoch: int,
        decisions: Sequence[Draft] | None,
    ) -> Appended:
        for _ in range(LOOKS_MAX):
            guard = self._require_owner(epoch)
            try:
                done = self._append_once(facts, derive, expected_head, epoch, decisions)
            except Unexplained:
                self._verify(guard)
            except StoreUnavailable:
                self._in_doubt.update(draft.id for draft in (*facts, *(decisions or ())))
                raise
            else:
                self._bound_wal()
                return done
        raise self._unsteady()

    def _append_once(
        self,
        facts: Sequence[Draft],
        derive: Callable[[Sequence[Stored], int], Sequence[Draft]],
        expected_head: int,
        epoch: int,
        decisions: Sequence[Draft] | None,
    ) -> Appended:
        if decisions is not None:
            try:
                return self._append_new([*facts, *decisions], facts, expected_head, epoch)
            except apsw.ConstraintError:
                pass  # an id is in the log already: look at each
        with self._writing():
            head = self._checked_last(epoch)
            new_facts = self._not_yet_here(chain.without_repeats(facts))
            first = head.seq + 1
            if decisions is None:
                missed = self._page(expected_head, first, limited=False) if head.seq > expected_head else []
                derived, kept = list(derive(missed, first)), True
            else:
                derived = list(decisions)
                kept = head.seq == expected_head
            new_decisions = self._not_yet_here(chain.without_repeats(derived))
            if not kept:
                kept = bool(derived) and not new_decisions
                new_decisions = []
            new = chain.without_repeats([*new_facts, *new_decisions])
            rows, new_head = chain.place(new, head, epoch)
            self._insert(rows, chain.named_blobs(new))
        self._head = new_head
        return Appended(first, new_head, kept)

    def _append_new(self, drafts: list[Draft], facts: Sequence[Draft], expected_head: int, epoch: int) -> Appended:
        """The usual case: no id is in the log. All hashing is done before the lock is taken.

        Raises apsw.ConstraintError, with nothing written, if an id is."""
        known = self._head
        names = chain.named_blobs(drafts)
        # A head that others moved is not known yet: drafts may name a cause beyond it, so they cannot be placed there.
        placed = chain.place(drafts, known, epoch) if known.seq == expected_head else None
        with self._writing():
            head = self._checked_last(epoch)
            kept = head.seq == expected_head
            if not kept:
                placed = chain.place(facts, head, epoch)
            elif placed is None or head.seq != known.seq:
                placed = chain.place(drafts, head, epoch)
            self._insert(placed[0], names)
        self._head = placed[1]
        return Appended(head.seq + 1, placed[1], kept)

    def submit(self, command: Draft) -> int:
        """See `Log.submit`."""
        self._require_writable()
        self._require_same_file()
        chain.check_commitment(command)
        names = chain.named_blobs([command])
        with self._writing():
            there = self._same_event(command)
            if there is not None:
                return there
            chain.check_command(command, self._commands, self._listed_commands())
            head = self._last()
            rows, new_head = chain.place([command], head, self._epoch())
            self._insert(rows, names)
        self._head = new_head
        self._bound_wal()
        return new_head.seq

    def _insert(self, rows: list[Row], names: Mapping[str, list[BlobRef]]) -> None:
        self._db.executemany(_INSERT, rows)
        for row in rows:
            if names and (refs := names.get(row.id.hex())):
                blobs.name_blobs(self._db, refs, row.seq)
            if b'"type":"session.opened"' in row.header:
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (row.seq,))

    def _not_yet_here(self, drafts: list[Draft]) -> list[Draft]:
        return [draft for draft in drafts if self._same_event(draft) is None]

    def _same_event(self, draft: Draft) -> int | None:
        """The seq of this very event if it is in the log. Raises Conflict if its id stands for another."""
        sql = "SELECT seq, header, body FROM events WHERE id = ?"
        found = fetch(self._db, tuple[int, bytes, bytes | None], sql, (bytes.fromhex(draft.id),))
        if not found:
            return None
        seq, header, body = found[0]
        if not chain.is_same(draft, header, body):
            raise Conflict(f"event id {draft.id} is in the log (seq {seq}) with other content")
        return seq

    def _listed_commands(self) -> dict[str, int] | None:
        opened = number(self._db, "SELECT value FROM meta WHERE key = 'opened'")
        if self._listed[0] != opened:
            found = fetch(self._db, tuple[bytes | None], "SELECT body FROM events WHERE seq = ?", (opened,))
            self._listed = (opened, chain.listed_commands(found[0][0]) if found else None)
        return self._listed[1]

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
            if self._guard is not None:
                self._guard.wrote()
        except apsw.ConstraintError:
            self._roll_back()
            raise
        except apsw.Error as error:
            self._broken = True
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
            raise Damaged(f"{self.path} was rewritten while it was in use", seq=min(head.seq + 1, known.seq))
        if head.seq > known.seq:
            self._accept(self._page(known.seq, None, limited=False))
        if self._guard is not None and self._guard.look(self._db, commands=self._commands_seen):
            self._commands_seen = False
            self._guard.audit(self._db, head.seq)
        return head

    # ------------------------------------------------------------------ blobs

    def put_blob(self, data: bytes | Iterable[bytes], key: bytes) -> tuple[str, int]:
        """See `Log.put_blob`."""
        self._require_writable()
        row, root, length = blobs.write_blob(self._db, data, key, self._blob_transaction)
        self._my_blobs.add(row)
        return root, length

    def put_blobs(self, contents: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, int]]:
        """See `Log.put_blobs`."""
        self._require_writable()
        found: list[tuple[str, int]] = []
        for group in blobs.grouped(contents):
            if len(group) == 1:  # which may be larger than one transaction holds
                found.append(self.put_blob(*group[0]))
                continue
            with self._blob_transaction():
                written = [blobs.write_blob(self._db, data, key, contextlib.nullcontext) for data, key in group]
            self._my_blobs.update(row for row, _, _ in written)
            found += [(root, length) for _, root, length in written]
        return found

    @contextlib.contextmanager
    def _blob_transaction(self) -> Iterator[None]:
        with self._writing():
            yield
        self._bound_wal()

    # ------------------------------------------------------------------ fold checkpoints

    def save_checkpoint(self, seq: int, version: int, state: bytes) -> None:
        """See `Log.save_checkpoint`. Of older ones, one for each doubling of the distance is kept, for seeking."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (version, seq, state))
            held = fetch(self._db, tuple[int], "SELECT seq FROM checkpoints WHERE version = ?", (version,))
            for old in chain.thinned([at for (at,) in held], seq):
                self._db.execute("DELETE FROM checkpoints WHERE version = ? AND seq = ?", (version, old))

    # ------------------------------------------------------------------ upkeep

    def redact(
        self, events: Mapping[int, bytes], roots: Iterable[str], epoch: int, records: Sequence[Draft] = ()
    ) -> None:
        """See `Log.redact`. What was deleted is overwritten (`secure_delete`), in the main file once the write-ahead
        log is moved there and cut: StoreUnavailable, with the redaction done, if a reader holds that up too long."""
        for _ in range(LOOKS_MAX):
            guard = self._require_owner(epoch)
            try:
                return self._redact(events, roots, epoch, records)
            except Unexplained:
                self._verify(guard)
        raise self._unsteady()

    def _unsteady(self) -> Damaged:
        return Damaged(f"{self.path} is changed by others again and again while it is in use")

    def _redact(self, events: Mapping[int, bytes], roots: Iterable[str], epoch: int, records: Sequence[Draft]) -> None:
        with self._writing():
            rows, new_head = chain.place(records, self._checked_last(epoch), epoch)
            for seq, leaves in events.items():
                sql = "SELECT header, leaf_count, root FROM events WHERE seq = ?"
                found = fetch(self._db, tuple[bytes, int, bytes], sql, (seq,))
                if not found:
                    raise InvalidEvent(f"event {seq} is not in the log")
                chain.check_leaves(seq, leaves, *found[0])
                self._db.execute("UPDATE events SET body = NULL, key = NULL WHERE seq = ?", (seq,))
                self._db.execute("INSERT OR REPLACE INTO hidden VALUES (?, ?)", (seq, leaves))
            for root in roots:
                blobs.hide_blob(self._db, root)
            self._db.execute("DELETE FROM checkpoints")
            self._insert(rows, chain.named_blobs(records))
        self._head = new_head
        with self._reading():
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._wal_pages = 0
        self._settle()

    def _settle(self) -> None:
        """The files moved because of us."""
        if self._guard is not None:
            self._guard.settle()

    def room(self) -> bool:
        """See `Log.room`: more than `place.reserve_bytes` of the log's file system is free."""
        self._require_open()
        return has_room(self.path.parent)

    def tidy(self, pages: int = TIDY_PAGES) -> bool:
        """Move the write-ahead log into the main file if it holds at least `pages` pages; whether that was tried.

        For the owner to call between appends, when nothing waits: with large rows it takes some milliseconds.
        """
        if self._wal_pages < pages or self._broken:
            return False
        with self._reading():
            hit("in_tidy")
            self._begun += 1
            try:
                _, moved = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.BusyError:  # another process is at it
                return False
            finally:
                self._ended += 1
                self._settle()
        if moved >= self._wal_pages:
            self._wal_pages = 0
        return True

    def _bound_wal(self) -> None:
        if self._wal_pages >= WAL_PAGES_MAX:
            # What was appended is durable already; a lasting error will meet the next append.
            with contextlib.suppress(StoreUnavailable):
                self.tidy(WAL_PAGES_MAX)

    def reopen(self) -> None:
        """See `Log.reopen`."""
        self._require_open()
        with contextlib.suppress(apsw.Error):  # it failed before; what counts is whether a new one works
            # On a full disk a checkpoint would take the space that was just made free.
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._db.close(True)
        self._broken = True
        db = schema.connect(self.path, read_only=self.read_only)
        self._adopt_connection(db)
        if self._ownership is not None:
            db.set_busy_handler(schema.Patience(OWNER_RETRY_SECONDS))
        try:
            if self._guard is not None:  # the owner's own head stays: what follows it is looked at like any other
                self._guard.take(db)
            else:
                self._head = self._last()
        except apsw.Error as error:
            raise schema.translate(error, self.path) from error
        self._broken = False

    def close(self) -> None:
        """See `Log.close`."""
        owner = self._ownership is not None and self._ownership.held
        try:
            if owner and not self._broken:
                # Upkeep only: on a full or failing disk the next owner does it, and closing must not fail for it.
                with contextlib.suppress(apsw.Error, StoreUnavailable):
                    self._sweep()
                    hit("in_close")
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            with contextlib.suppress(apsw.Error):  # every commit was durable before: there is nothing left to lose
                self._db.close(True)
            self._closed = True
            if self._ownership is not None:
                self._ownership.release()

    def _sweep(self) -> None:
        """Drop unnamed blobs that were there at the claim or are ours; one that a submitter stored since is about to
        be named."""
        for row in blobs.unnamed_blobs(self._db, self._old_blobs, self._my_blobs):
            with self._writing():
                blobs.drop_blob(self._db, row)
