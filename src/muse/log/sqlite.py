"""The log in one SQLite file: durable appends, one owner, any number of readers and submitters.

Every write is one `BEGIN IMMEDIATE` transaction that checks the head, and for the owner the epoch, before it appends.
This module must not know what events mean beyond which types are commands.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import apsw

from muse.errors import Conflict, Damaged, InvalidEvent, LogError, StoreUnavailable, UsageError
from muse.failpoint import hit
from muse.log import blobs, chain, schema
from muse.log.guard import Unexplained
from muse.log.owner import OWNER_RETRY_SECONDS, SqliteOwner
from muse.log.place import (
    has_room,
    private_file,
    private_folder,
    refuse_long,
    refuse_remote,
    sync_file,
    sync_folder,
    touch,
    unavailable,
)
from muse.log.protocol import (
    Appended,
    Draft,
    Head,
    Stored,
)
from muse.log.schema import fetch, number

TIDY_PAGES: Final = 1_024
"""Pages in the write-ahead log (4 MiB) from which `tidy` checkpoints."""
TOUCH_SECONDS: Final = 1.0
"""How often at most a file beside the log is touched, to see that the disk still takes changes."""
WAL_PAGES_MAX: Final = 8_192
"""Pages in the write-ahead log (32 MiB) at which an append checkpoints by itself, because nobody called `tidy`."""

LOOKS_MAX: Final = 3
"""How often an append looks at all of the log, because others change it, before it gives up."""


def _remove(path: Path) -> None:
    """Take a log's file away, and what SQLite leaves beside it where it could not close in order."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):  # a read-only disk, say: what went wrong before is the error to tell
            path.with_name(path.name + suffix).unlink(missing_ok=True)


class SqliteLog(SqliteOwner):
    """One session's log in a SQLite file; the contract of every method is `muse.log.protocol.Log`.

    Made by `create` or `open`. `commands` maps each command type to the newest version this process knows.
    """

    def __init__(self, path: Path, db: apsw.Connection, session: str, commands: Mapping[str, int], read_only: bool):
        self._listed: tuple[int, dict[str, int] | None] = (0, None)
        self._my_blobs: set[int] = set()
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

    def another(self) -> "SqliteLog":
        """See `Log.another`."""
        try:
            with self._guard.own_handle() if self._guard is not None else contextlib.nullcontext():
                other = type(self).open(self.path, commands=self._commands, check=False)
        except (UsageError, LogError) as error:  # what became of the file is told by whoever looks at it next
            raise StoreUnavailable(f"{self.path} cannot be opened any more: {error}") from error
        self._others.append(other)
        return other

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
            self._require_same_file()  # it may have been put away while this waited for its turn
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

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[Head]:
        """The head, which stays so while the block runs: who submits waits, and is refused when the file is gone."""
        with self._writing():
            yield self._last()

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
        self._flush_cut()
        self._wal_pages = 0
        self._settle()

    def _flush_cut(self) -> None:
        """SQLite cuts the write-ahead log without a flush: a power loss would bring back what stood in it."""
        wal = Path(f"{self.path}-wal")
        try:
            sync_file(wal)
        except OSError as error:
            raise unavailable(wal, error) from error

    def _settle(self) -> None:
        """The files moved because of us."""
        if self._guard is not None:
            self._guard.settle()

    def room(self) -> bool:
        """See `Log.room`: more than `place.reserve_bytes` of the log's file system is free, and it takes changes."""
        self._require_open()
        now = time.monotonic()
        if self._ownership is not None and now >= self._touch_at:
            self._touch_at = now + TOUCH_SECONDS
            touch(self.lock_path)
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
            if self._is_unsynced:
                self._write_again()
            if self._guard is not None:  # the owner's own head stays: what follows it is looked at like any other
                self._guard.take(db)
            else:
                self._head = self._last()
        except apsw.Error as error:
            raise schema.translate(error, self.path) from error
        self._broken = False

    def _write_again(self) -> None:
        """After a flush that failed, the system may show as written what is not on the disk, and will not write it
        again. So all of the write-ahead log goes to the main file before anything is built on it."""
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:  # a reader holds on: then at least a write of our own has to succeed
            self._db.execute("UPDATE meta SET value = value WHERE key = 'epoch'")
        self._is_unsynced = False
        self._wal_pages = 0

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
