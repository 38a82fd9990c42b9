"""Saving what a damaged log still holds into a new one that verifies.

Every event that is proven by its commitment goes over under its old number, byte for byte: header, body, key, root. In
the place of each lost one stands a `log.recovered`, so that numbers, and what points at them, stay what they were. The
new log is a session of its own with a chain of its own; the old chain's values stand in those facts (docs/format.md
§6.1). The damaged file is only read.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import apsw
import msgspec

from muse.errors import InvalidEvent, NotALog, StoreUnavailable, UsageError
from muse.event.codec import BlobRef, canonical, parse_header
from muse.event.commitment import KEY_BYTES, chain, commit, genesis
from muse.event.kinds import LogRecovered, LostBlob
from muse.log import blobs, schema
from muse.log.chain import OPENED, Row, place
from muse.log.evidence import RECOVERED
from muse.log.place import private_file, private_folder, refuse_remote, sync_folder, unavailable
from muse.log.protocol import Draft, Head, Stored
from muse.log.rescue import rescue_blob
from muse.log.salvage import Salvage
from muse.log.verify import check_event

BATCH_EVENTS: Final = 200
PROGRESS_EVENTS: Final = 500
EVENTS_A_PAGE: Final = 16
"""More rows of events than this do not fit on a page: a longer gap between two seqs is a misread number."""

Progress = Callable[[str], None]


class Recovery(msgspec.Struct, frozen=True):
    """What a recovery did. `lost` are the gaps as (first, last), `head` the damaged log's last known event, with its
    chain value (hex) where that is known; `unproven` the events after a gap whose header nothing proves."""

    session: str
    source: str
    file: str
    saved: int
    lost: tuple[tuple[int, int], ...]
    lost_blobs: tuple[str, ...]
    head: int
    head_hash: str
    unproven: tuple[int, ...]
    is_cut: bool


class Judged(NamedTuple):
    """The verdict on one seq: the event if it is saved, else what is left of it. `hash` is the damaged log's chain
    value after it, None where it is not known; `linked` whether the chain up to it is proven."""

    seq: int
    event: Stored | None
    left: Stored | None
    hash: bytes | None
    linked: bool


def recover(
    source: Path, target: Path, session: str, *, before_damage: bool = False, progress: Progress | None = None
) -> Recovery:
    """Save the log in `source` into a new one, `session`, at `target`; with `before_damage` only what is before the
    first lost event. `target` is whole on disk when this returns, or not there.

    Raises UsageError (missing, target taken), NotALog (no event of a log in it), StoreUnavailable.
    """
    say = progress or (lambda _text: None)
    if target.exists():
        raise UsageError(f"there is a file at {target} already", hint="give -o another name")
    salvage = _looked_at(source, say)
    try:
        refuse_remote(target.parent)
        private_folder(target.parent)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
        try:
            private_file(draft)
            schema.build(draft, session)
            done = _fill(draft, salvage, source, session, before_damage, say)
            _flush(draft)
            os.link(draft, target)  # unlike a rename, this refuses a name that is taken
            draft.unlink()
            sync_folder(target.parent)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    except FileExistsError as error:
        raise UsageError(f"there is a file at {target} already", hint="give -o another name") from error
    except OSError as error:
        raise unavailable(target, error) from error
    except apsw.Error as error:
        raise schema.translate(error, target) from error
    finally:
        salvage.close()
    return msgspec.structs.replace(done, file=str(target))


def _looked_at(source: Path, say: Progress) -> Salvage:
    try:
        if not source.is_file():
            raise UsageError(f"there is no file {source}", hint="`muse ls --all` lists the sessions")
        salvage = Salvage(source, lambda done, count: say(f"{done:,} of {count:,} pages looked at"))
    except OSError as error:
        raise StoreUnavailable(
            f"{source}: {error.strerror or error}", hint="check the disk and the file's mode"
        ) from error
    if not salvage.events:
        whole = salvage.pages.main_bytes
        kind = "is empty" if whole == 0 else "holds no event of a muse log"
        salvage.close()
        raise NotALog(f"{source} {kind}: nothing can be saved from it", hint=_nothing_hint(source))
    return salvage


def _nothing_hint(source: Path) -> str:
    """What else may hold the session."""
    if source.suffix == ".muse" and not Path(f"{source}-wal").exists():
        return (
            f"its newest events may be in {source.name}-wal: put that beside it if you have it; else look for a backup"
        )
    return "give the file of a session; `muse ls --all` lists them"


# ---------------------------------------------------------------------- judging


class _Judge:
    """Goes through the seqs in order with the damaged log's chain value before each."""

    def __init__(self, salvage: Salvage, source: str) -> None:
        self._salvage = salvage
        self._hash: bytes | None = genesis(source) if source else None
        self._sure = bool(source)

    def judge(self, seq: int) -> Judged:
        """The verdict on the next seq."""
        candidates = list(self._salvage.event(seq))
        sound = [one for found in candidates for one in _sound(found)]
        if self._hash is not None:
            for one in sound:
                if _follows(self._hash, one) == one.hash:
                    return self._take(Judged(seq, one, None, one.hash, True), sure=True)
        for one in sound:
            known = self._settled(one)
            if known is not None:
                return self._take(Judged(seq, one, None, known, self._sure), sure=True)
        if sound and not self._sure and not self._next(seq):
            return self._take(Judged(seq, sound[0], None, sound[0].hash, False), sure=False)
        if sound and not self._sure and self._hash is None:
            return self._take(Judged(seq, sound[0], None, sound[0].hash, False), sure=False)
        return self._lost(seq, candidates)

    def _settled(self, one: Stored) -> bytes | None:
        """The chain value after an event whose stored one does not follow, if the next event settles which of the two
        is damaged in its favour; None if the event itself is, or nothing tells."""
        for after in self._next(one.seq):
            if self._hash is not None and _follows(computed := _follows(self._hash, one), after) == after.hash:
                return computed  # its stored chain value was damaged, and it was not
            if not self._sure and _follows(one.hash, after) == after.hash:
                return one.hash
        return None

    def _lost(self, seq: int, candidates: list[Stored]) -> Judged:
        """A lost event; its header and root may still carry the chain on."""
        for one in candidates:
            if self._hash is not None and _follows(self._hash, one) == one.hash:
                return self._take(Judged(seq, None, one, one.hash, True), sure=True)
        for one in candidates:
            if any(_follows(one.hash, after) == after.hash for after in self._next(seq)):
                return self._take(Judged(seq, None, None, one.hash, False), sure=True)
        return self._take(Judged(seq, None, None, None, False), sure=False)

    def _next(self, seq: int) -> list[Stored]:
        return list(self._salvage.event(seq + 1))

    def _take(self, judged: Judged, *, sure: bool) -> Judged:
        self._hash, self._sure = judged.hash, sure
        return judged


def _follows(before: bytes, event: Stored) -> bytes:
    return chain(before, event.header, event.count, event.root)


def _sound(event: Stored) -> Iterator[Stored]:
    """The event if it is proven by its own commitment, and as it is with a damaged count or root computed anew."""
    if not check_event(event).faults:
        yield event
    elif event.body is not None and event.key is not None:
        with contextlib.suppress(InvalidEvent):
            found = commit(event.body, event.key)
            mended = Stored(
                event.seq, event.header, event.body, event.key, found.count, found.root, event.hash, event.hidden
            )
            if (found.count, found.root) != (event.count, event.root) and not check_event(mended).faults:
                yield mended


def last_seq(salvage: Salvage) -> int:
    """The highest seq that can have been: a number far beyond all others is a misread one."""
    gap_max = salvage.pages.count * EVENTS_A_PAGE
    last = 0
    for seq in sorted({*salvage.events, *salvage.ids, salvage.last}):
        if seq > last + gap_max:
            break
        last = seq
    return last


def _source_of(salvage: Salvage, path: Path) -> str:
    """The damaged log's session: as its file says, or where that is lost, the file's name if its chain begins so."""
    said = salvage.session
    for name in (said, path.name.removesuffix(".muse")):
        for first in salvage.event(1):
            if name and _follows(genesis(name), first) == first.hash:
                return name
    return said or path.name.removesuffix(".muse")


# ---------------------------------------------------------------------- writing


class _Writer:
    """Writes the new log, row by row."""

    def __init__(self, db: apsw.Connection, session: str, source: str, salvage: Salvage) -> None:
        self.head = Head(0, genesis(session))
        self.epoch = 0
        self.opened = 0
        self.saved = 0
        self.lost: list[tuple[int, int]] = []
        self.lost_blobs: list[LostBlob] = []
        self.unproven: list[int] = []
        self.before: bytes | None = genesis(source)
        self._db = db
        self._source = source
        self._salvage = salvage
        self._gap: list[Judged] = []
        self._blobs: set[str] = set()
        self._since = 0

    def add(self, judged: Judged) -> None:
        """Take the verdict on the next seq."""
        if judged.event is None:
            self._gap.append(judged)
            return
        self.close_gap(judged.hash)
        if not judged.linked:
            self.unproven.append(judged.seq)
        self.before = judged.hash
        self._save(judged.event)

    def _save(self, event: Stored) -> None:
        header = parse_header(event.header)
        for root, length in check_event(event).blobs:
            if root not in self._blobs:
                self._blobs.add(root)
                lost = rescue_blob(self._db, self._salvage, root, length, event.seq)
                if lost is not None:
                    self.lost_blobs.append(lost)
        if event.hidden is not None:
            self._db.execute("INSERT INTO hidden VALUES (?, ?)", (event.seq, event.hidden))
        hash_ = _follows(self.head.hash, event)
        self._insert(bytes.fromhex(header.id), event, hash_)
        self.epoch = max(self.epoch, header.epoch)
        if header.type == OPENED:
            self.opened = event.seq
        self.saved += 1

    def _insert(self, id_: bytes, event: Stored, hash_: bytes) -> None:
        sql = "INSERT INTO events (seq, id, header, key, leaf_count, root, hash, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        row = (event.seq, id_, event.header, event.key, event.count, event.root, hash_, event.body)
        self._db.execute(sql, row)
        self.head = Head(event.seq, hash_)
        self._since += 1
        if self._since >= BATCH_EVENTS:
            self._db.execute("COMMIT")
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._db.execute("BEGIN IMMEDIATE")
            self._since = 0

    def close_gap(self, after: bytes | None) -> None:
        """Put a fact in the place of each lost event since the last saved one; `after` is the damaged log's chain value
        at the event that follows."""
        if not self._gap:
            return
        first, last = self._gap[0].seq, self._gap[-1].seq
        self.lost.append((first, last))
        for judged in self._gap:
            left = judged.left
            self.append(
                LogRecovered(
                    first_lost=first,
                    last_lost=last,
                    hash_before=self.before.hex() if self.before is not None else "",
                    hash_after=after.hex() if after is not None else "",
                    source=self._source,
                    header=left.header.decode() if left is not None else "",
                    leaves=left.count if left is not None else 0,
                    root=left.root.hex() if left is not None else "",
                    remains=self._remains(judged),
                )
            )
        self._gap = []

    def _remains(self, judged: Judged) -> BlobRef | None:
        """The bytes of a lost event as a blob: its body where that can be read, else its row."""
        found = next(self._salvage.event(judged.seq), None)
        data = found.body if found is not None and found.body is not None else self._salvage.remains(judged.seq)
        if not data:
            return None
        _, root, length = blobs.write_blob(self._db, data, secrets.token_bytes(KEY_BYTES), contextlib.nullcontext)
        return BlobRef(blob=root, length=length)

    def append(self, fact: LogRecovered) -> None:
        """Append a fact of this recovery."""
        body, plain = canonical(fact)
        key = secrets.token_bytes(KEY_BYTES)
        root = commit(plain, key)
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        draft = Draft(secrets.token_hex(16), time, RECOVERED, 1, "main", 0, body, key, root.count, root.root)
        rows, _ = place([draft], self.head, self.epoch)
        for row in rows:
            self._name(fact, row.seq)
            self._insert(row.id, _stored(row), row.hash)

    def _name(self, fact: LogRecovered, seq: int) -> None:
        named = [fact.remains, *(lost.rest for lost in fact.blobs)]
        blobs.name_blobs(self._db, [ref for ref in named if ref is not None], seq)


def _stored(row: Row) -> Stored:
    return Stored(row.seq, row.header, row.body, row.key, row.leaf_count, row.root, row.hash)


def _flush(path: Path) -> None:
    """Make a file that nobody has open durable."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _fill(
    draft: Path, salvage: Salvage, source_file: Path, session: str, before_damage: bool, say: Progress
) -> Recovery:
    source = _source_of(salvage, source_file)
    last = last_seq(salvage)
    judge = _Judge(salvage, source)
    db = schema.connect(draft, read_only=False)
    try:
        db.pragma("synchronous", 0)  # nobody knows of this file before all of it is flushed, once
        writer = _Writer(db, session, source, salvage)
        db.execute("BEGIN IMMEDIATE")
        end, seq = writer.before, 0
        for seq in range(1, last + 1):
            judged = judge.judge(seq)
            end = judged.hash
            if judged.event is None and before_damage:
                break
            writer.add(judged)
            if seq % PROGRESS_EVENTS == 0:
                say(f"{seq:,} of {last:,} events judged")
        is_cut = before_damage and writer.saved < last
        if is_cut:
            writer.lost.append((seq, last))
            end = None
        writer.close_gap(None)
        writer.append(_summary(writer, source, last, end, is_cut))
        db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (writer.epoch,))
        db.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (writer.opened,))
        db.execute("COMMIT")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close()
    return Recovery(
        session=session,
        source=source,
        file=str(draft),
        saved=writer.saved,
        lost=tuple(writer.lost),
        lost_blobs=tuple(one.root for one in writer.lost_blobs),
        head=last,
        head_hash=end.hex() if end is not None else "",
        unproven=tuple(writer.unproven),
        is_cut=is_cut,
    )


def _summary(writer: _Writer, source: str, last: int, end: bytes | None, is_cut: bool) -> LogRecovered:
    first, final = writer.lost[-1] if is_cut else (0, 0)
    return LogRecovered(
        first_lost=first,
        last_lost=final,
        hash_before=writer.before.hex() if writer.before is not None and is_cut else "",
        hash_after="",
        source=source,
        cut=is_cut,
        head=last,
        head_hash=end.hex() if end is not None else "",
        lost=sum(high - low + 1 for low, high in writer.lost),
        blobs=tuple(writer.lost_blobs),
    )
