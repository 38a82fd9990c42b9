"""The log in memory: the model that other stores are tested against, and the store of tests and demonstrations.

A `MemoryPlace` is the "disk": several `MemoryLog`s on one place behave like several processes on one file, in order,
chain, refusals and ownership. Nothing survives the process. This module must not know SQLite.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muse.errors import Busy, Conflict, Damaged, Fenced, Incomplete, InvalidEvent, StoreUnavailable
from muse.event.codec import BlobRef
from muse.event.commitment import KEY_BYTES, commit_blob, genesis
from muse.log import chain
from muse.log.blobs import chunks_of
from muse.log.protocol import FOLLOW_POLL_SECONDS, PAGE_EVENTS, Appended, Claim, Draft, Head, Ownership, Stored


@dataclass(slots=True)
class _Blob:
    key: bytes | None
    chunks: list[bytes]
    length: int
    number: int
    named: int | None = None


@dataclass(slots=True)
class MemoryPlace:
    """What a file is to other stores: one session's events, blobs and checkpoints, and who owns them."""

    session: str
    events: list[Stored] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    blobs: dict[str, _Blob] = field(default_factory=dict)
    checkpoints: dict[tuple[int, int], bytes] = field(default_factory=dict)
    epoch: int = 0
    opened: int = 0
    owner: "MemoryOwnership | None" = None
    blob_count: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def hold(self, root: str, key: bytes | None, chunks: list[bytes], length: int) -> None:
        """Put a blob there that was checked already; without a key one that redaction hid."""
        self.blob_count += 1
        self.blobs[root] = _Blob(key, chunks, length, self.blob_count)


class MemoryOwnership:
    """The right to append to a `MemoryPlace`."""

    def __init__(self, epoch: int, place: MemoryPlace) -> None:
        self.epoch = epoch
        self.held = True
        self._place = place

    def release(self) -> None:
        """Give the place back. Harmless when called twice."""
        with self._place.lock:
            if self._place.owner is self:
                self._place.owner = None
            self.held = False


class MemoryLog:
    """A handle on a place; the contract of every method is `muse.log.protocol.Log`.

    `commands` maps each command type to the newest version this handle knows.
    """

    def __init__(self, place: MemoryPlace, *, commands: Mapping[str, int]) -> None:
        self.session = place.session
        self.place = place
        self._commands = commands
        self._ownership: MemoryOwnership | None = None
        self._closed = False
        self._seen = len(place.events)
        self._mine = 0
        self._my_blobs: set[str] = set()
        self._old_blobs = 0

    # ------------------------------------------------------------------ ownership

    def another(self) -> "MemoryLog":
        """See `Log.another`."""
        return MemoryLog(self.place, commands=self._commands)

    def claim(
        self,
        build: Callable[[Claim], Draft],
        also: Callable[[Claim], Sequence[Draft]] | None = None,
        *,
        seize: bool = False,
    ) -> Ownership:
        """See `Log.claim`."""
        self._require_open()
        place = self.place
        with place.lock:
            if place.owner is not None and not seize:
                raise Busy("another handle owns this session")
            crashed = chain.left_open((event.header for event in reversed(place.events)), self._commands)
            epoch = place.epoch + 1
            found = Claim(epoch, crashed, self._last())
            draft = build(found)
            if draft.type != chain.OPENED:
                raise ValueError(f"a claim appends {chain.OPENED}, not {draft.type}")
            self._add([draft, *(also(found) if also is not None else ())], epoch)
            place.epoch = epoch
            place.owner = self._ownership = MemoryOwnership(epoch, place)
            self._old_blobs = place.blob_count
        return self._ownership

    def hold(self) -> Ownership:
        """See `Log.hold`."""
        self._require_open()
        place = self.place
        with place.lock:
            if place.owner is not None:
                raise Busy("another handle owns this session")
            place.owner = self._ownership = MemoryOwnership(place.epoch, place)
            self._old_blobs = place.blob_count
        return self._ownership

    def _require_owner(self, epoch: int) -> None:
        self._require_open()
        if self._ownership is None or not self._ownership.held:
            raise Fenced("this handle does not own the session")
        if epoch != self._ownership.epoch or epoch != self.place.epoch:
            raise Fenced(f"epoch {epoch} is over")

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("this log is closed")

    # ------------------------------------------------------------------ appending

    def append(self, facts: Sequence[Draft], decisions: Sequence[Draft], expected_head: int, epoch: int) -> Appended:
        """See `Log.append`."""
        with self.place.lock:
            self._require_owner(epoch)
            is_current = self._last().seq == expected_head
            new_decisions = self._not_yet_here(decisions)
            kept = is_current or (bool(decisions) and not new_decisions)
            return self._append(facts, new_decisions if is_current else [], epoch, kept)

    def append_deciding(
        self,
        facts: Sequence[Draft],
        derive: Callable[[Sequence[Stored], int], Sequence[Draft]],
        expected_head: int,
        epoch: int,
    ) -> Appended:
        """See `Log.append_deciding`."""
        with self.place.lock:
            self._require_owner(epoch)
            decisions = derive(self.place.events[expected_head:], self._last().seq + 1)
            return self._append(facts, self._not_yet_here(decisions), epoch, True)

    def _append(self, facts: Sequence[Draft], decisions: Sequence[Draft], epoch: int, kept: bool) -> Appended:
        first = self._last().seq + 1
        self._add(chain.without_repeats([*self._not_yet_here(facts), *decisions]), epoch)
        return Appended(first, self._last(), kept)

    def submit(self, command: Draft) -> int:
        """See `Log.submit`."""
        self._require_open()
        chain.check_commitment(command)
        with self.place.lock:
            there = self._same_event(command)
            if there is not None:
                return there
            opened = self.place.opened
            listed = chain.listed_commands(self.place.events[opened - 1].body) if opened else None
            chain.check_command(command, self._commands, listed)
            self._add([command], self.place.epoch)
            return self._last().seq

    def _add(self, drafts: Sequence[Draft], epoch: int) -> None:
        """All of these or, when one is refused, none."""
        place = self.place
        rows, _ = chain.place(drafts, self._last(), epoch)
        names = chain.named_blobs(drafts)
        for refs in names.values():
            self._require_blobs(refs)
        for row, draft in zip(rows, drafts, strict=True):
            place.events.append(
                Stored(row.seq, row.header, row.body, row.key, row.leaf_count, row.root, row.hash, None)
            )
            place.ids[draft.id] = row.seq
            for ref in names.get(draft.id, []):
                blob = place.blobs[ref.blob]
                blob.named = blob.named or row.seq
            if draft.type == chain.OPENED:
                place.opened = row.seq
        self._mine += len(rows)

    def _require_blobs(self, refs: Iterable[BlobRef]) -> None:
        for ref in refs:
            blob = self.place.blobs.get(ref.blob)
            if blob is None:
                raise InvalidEvent(f"blob {ref.blob} is named before it is stored")
            if blob.length != ref.length:
                raise InvalidEvent(f"blob {ref.blob} has {blob.length} bytes, not {ref.length}")

    def _not_yet_here(self, drafts: Sequence[Draft]) -> list[Draft]:
        return [draft for draft in chain.without_repeats(drafts) if self._same_event(draft) is None]

    def _same_event(self, draft: Draft) -> int | None:
        seq = self.place.ids.get(draft.id)
        if seq is None:
            return None
        event = self.place.events[seq - 1]
        if not chain.is_same(draft, event.header, event.body):
            raise Conflict(f"event id {draft.id} is in the log (seq {seq}) with other content")
        return seq

    # ------------------------------------------------------------------ reading

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        """See `Log.read`."""
        while True:
            self._require_open()
            with self.place.lock:
                end = len(self.place.events) if before is None else max(before - 1, 0)
                page = self.place.events[after : min(end, after + PAGE_EVENTS)]
            if not page:
                return
            yield from page
            after = page[-1].seq

    def missed(self, after: int) -> Iterator[Stored]:
        """See `Log.missed`; nobody can reach into memory."""
        return self.read(after)

    def follow(self, after: int, stopped: Callable[[], bool]) -> Iterator[Stored]:
        """See `Log.follow`."""
        while True:
            for event in self.read(after):
                yield event
                after = event.seq
            if stopped():
                return
            time.sleep(FOLLOW_POLL_SECONDS)

    def changed(self) -> bool:
        """See `Log.changed`."""
        self._require_open()
        with self.place.lock:
            total = len(self.place.events)
            moved = total - self._seen > self._mine
            self._seen, self._mine = total, 0
        return moved

    def head(self) -> Head:
        """See `Log.head`."""
        self._require_open()
        with self.place.lock:
            return self._last()

    def _last(self) -> Head:
        events = self.place.events
        return Head(events[-1].seq, events[-1].hash) if events else Head(0, genesis(self.session))

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """See `Log.find`."""
        self._require_open()
        return {id_: self.place.ids[id_] for id_ in ids if id_ in self.place.ids}

    # ------------------------------------------------------------------ blobs and checkpoints

    def put_blob(self, data: bytes | Iterable[bytes], key: bytes) -> tuple[str, int]:
        """See `Log.put_blob`."""
        self._require_open()
        if len(key) != KEY_BYTES:
            raise InvalidEvent(f"a blob's key has {KEY_BYTES} bytes, not {len(key)}")
        chunks = list(chunks_of(data))
        root = commit_blob(chunks, key).root.hex()
        length = sum(len(chunk) for chunk in chunks)
        with self.place.lock:
            if root not in self.place.blobs:
                self.place.blob_count += 1
                self.place.blobs[root] = _Blob(key, chunks, length, self.place.blob_count)
            self._my_blobs.add(root)
        return root, length

    def put_blobs(self, contents: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, int]]:
        """See `Log.put_blobs`."""
        return [self.put_blob(data, key) for data, key in contents]

    def get_blob(self, root: str) -> bytes:
        """See `Log.get_blob`."""
        return b"".join(self.stream_blob(root))

    def stream_blob(self, root: str) -> Iterator[bytes]:
        """See `Log.stream_blob`."""
        self._require_open()
        blob = self.place.blobs.get(root)
        if blob is None:
            raise Damaged(f"blob {root} is not in the log")
        if blob.key is None:
            raise Incomplete(f"blob {root} was hidden by redaction")
        if commit_blob(blob.chunks, blob.key).root.hex() != root:
            raise Damaged(f"blob {root} is damaged")
        yield from blob.chunks

    def blob_key(self, root: str) -> bytes | None:
        """See `Log.blob_key`."""
        self._require_open()
        if root not in self.place.blobs:
            raise Damaged(f"blob {root} is not in the log")
        return self.place.blobs[root].key

    def headers(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """See `Log.headers`."""
        for event in self.read(after):
            yield event.seq, event.header

    def save_checkpoint(self, seq: int, version: int, state: bytes) -> None:
        """See `Log.save_checkpoint`."""
        self._require_open()
        with self.place.lock:
            held = self.place.checkpoints
            held[(version, seq)] = state
            for old in chain.thinned([at for known, at in held if known == version], seq):
                del held[(version, old)]

    def load_checkpoint(self, version: int, before: int | None = None) -> tuple[int, bytes] | None:
        """See `Log.load_checkpoint`."""
        self._require_open()
        with self.place.lock:
            seqs = [at for known, at in self.place.checkpoints if known == version and (before is None or at <= before)]
            return (max(seqs), self.place.checkpoints[(version, max(seqs))]) if seqs else None

    # ------------------------------------------------------------------ upkeep

    def redact(
        self, events: Mapping[int, bytes], roots: Iterable[str], epoch: int, records: Sequence[Draft] = ()
    ) -> None:
        """See `Log.redact`."""
        place = self.place
        with place.lock:
            self._require_owner(epoch)
            hidden_roots = list(roots)
            for seq, leaves in events.items():
                if not 0 < seq <= len(place.events):
                    raise InvalidEvent(f"event {seq} is not in the log")
                event = place.events[seq - 1]
                chain.check_leaves(seq, leaves, event.header, event.count, event.root)
            for root in hidden_roots:
                self.blob_key(root)
            self._add(records, epoch)
            for seq, leaves in events.items():
                place.events[seq - 1] = replace(place.events[seq - 1], body=None, key=None, hidden=leaves)
            for root in hidden_roots:
                place.blobs[root].key, place.blobs[root].chunks = None, []
            place.checkpoints.clear()

    def room(self) -> bool:
        """See `Log.room`; memory always has it."""
        self._require_open()
        return True

    def tidy(self) -> bool:
        """See `Log.tidy`; memory needs none."""
        self._require_open()
        return False

    def reopen(self) -> None:
        """See `Log.reopen`; memory does not fail, so there is nothing to look up."""
        self._require_open()

    def close(self) -> None:
        """See `Log.close`."""
        if self._ownership is not None and self._ownership.held:
            with self.place.lock:
                for root, blob in list(self.place.blobs.items()):
                    if blob.named is None and (blob.number <= self._old_blobs or root in self._my_blobs):
                        del self.place.blobs[root]
            self._ownership.release()
        self._closed = True

    def __enter__(self) -> "MemoryLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
