"""What a log store promises. SQLite, memory and (later) Postgres satisfy it with the same bytes.

A store keeps one session's events in order, the blobs they name, and disposable fold checkpoints. It knows bytes,
ids, sequence numbers and epochs; it knows nothing of what an event means, except which types are commands.
The conformance suite in `muse.testing.store` is the executable form of this page.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PAGE_EVENTS = 1_000
PAGE_BYTES = 8 * 1024 * 1024
BLOB_TRANSACTION_BYTES = 4 * 1024 * 1024
FOLLOW_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no place in the log yet: all of it but `seq` and `epoch`.

    `body` is canonical (docs/format.md), `count` and `root` are its commitment under `key`: both are computed before
    any lock is taken. `id` is 32 lower-case hex digits, unique in the log; `time` RFC 3339 UTC with microseconds.
    `cause` is a seq, 0 for none.
    """

    id: str
    time: str
    type: str
    v: int
    agent: str
    cause: int
    body: bytes
    key: bytes
    count: int
    root: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """One event as the log holds it. `body` and `key` are None where the event was redacted (`hidden` then holds
    the disclosed leaves as docs/format.md gives them). `hash` is the chain value after this event."""

    seq: int
    header: bytes
    body: bytes | None
    key: bytes | None
    count: int
    root: bytes
    hash: bytes
    hidden: bytes | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The last event's seq and chain value; of an empty log 0 and hash_0."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did. `first` is the seq of the first new event. When `decisions_kept` is False the head had
    moved: the facts stand in the log, the decisions do not and must be derived again."""

    first: int
    head: Head
    decisions_kept: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """What `claim` knows when it asks for the `session.opened` draft: the new epoch, and whether the previous owner
    left without closing (`crashed`: the last event that is no command is there and is not `session.closed`; commands
    need no owner, so they may come in after a close or before the first opening)."""

    epoch: int
    crashed: bool
    head: Head


class Ownership(Protocol):
    """The right to append, held through a kernel lock and an epoch."""

    epoch: int

    def release(self) -> None:
        """Give the lock back; the log stays open for reading. Harmless when called twice."""


class Log(Protocol):
    """One session's log. Calls block; an instance may move between threads but is used by one at a time.

    Errors, for every method: `StoreUnavailable` for I/O errors, a full or read-only disk; `Damaged` for a file that
    SQLite or the chain shows to be broken.
    """

    session: str

    def another(self) -> "Log":
        """Another handle of this process on the same log, for another thread; close it before this one. What it
        writes is known to this one as this process's own."""
        ...

    def claim(
        self,
        build: Callable[[Claim], Draft],
        also: Callable[[Claim], Sequence[Draft]] | None = None,
        *,
        seize: bool = False,
    ) -> Ownership:
        """Take the lock and, in one write transaction, append the `session.opened` that `build` returns and what
        `also` returns after it.

        Raises `Busy` (naming the owner's pid when known) while another process holds the lock; with `seize` it is
        taken all the same, and the old owner is `Fenced` at its next append. The opened event is checkpointed into
        the main file before this returns.
        """
        ...

    def hold(self) -> Ownership:
        """Take the lock without opening an epoch, for upkeep of a session that is not going to run: nothing is
        appended, the epoch is the last one. `redact` and a `close` that sweeps are what it is for.

        Raises `Busy` while another process holds the lock.
        """
        ...

    def append(self, facts: Sequence[Draft], decisions: Sequence[Draft], expected_head: int, epoch: int) -> Appended:
        """Append facts, then decisions, in one durable transaction. Owner only.

        Facts are never refused to the owner of `epoch`. If the head is not `expected_head`, only the facts are
        appended (after what came in). Events whose id is in the log with the same type and body are not appended
        again; with other content: `Conflict`. Every blob named must be there, else `InvalidEvent`. A newer epoch in
        the log raises `Fenced`. After `StoreUnavailable` the append is in doubt: `reopen`, then `find` its ids.
        """
        ...

    def append_deciding(
        self,
        facts: Sequence[Draft],
        derive: Callable[[Sequence[Stored], int], Sequence[Draft]],
        expected_head: int,
        epoch: int,
    ) -> Appended:
        """As `append`, but under the write lock: `derive(missed, first)` gets what came in after `expected_head` and
        the seq the first fact will have, and returns the decisions. For an owner that lost the race three times."""
        ...

    def submit(self, command: Draft) -> int:
        """Append one command from any process, durably, and return its seq. Same id and content: the old seq, and
        no second event. Same id, other content: `Conflict`. A malformed id, a type that is no command, a command
        version that the last `session.opened` does not list, an approval decided by others than a person:
        `InvalidEvent`."""
        ...

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        """Events with after < seq < before, in order, a page (1,000 events or 8 MiB) a read transaction; no
        transaction is open while the caller holds a yielded event."""
        ...

    def missed(self, after: int) -> Iterator[Stored]:
        """As `read(after)`, for the owner: each event that it did not append itself was looked at before it is
        yielded, and so was whatever else others did to the log. Raises `Damaged` for what no other process may do,
        `Fenced` when a newer epoch has begun."""
        ...

    def follow(self, after: int, stopped: Callable[[], bool]) -> Iterator[Stored]:
        """Like `read`, then waits for more (within 50 ms of their commit) until `stopped()` is true."""
        ...

    def changed(self) -> bool:
        """Whether another connection may have committed since the last call: cheap enough to ask every 20 ms."""
        ...

    def head(self) -> Head:
        """The last event's seq and chain value."""
        ...

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """Which of these event ids are in the log, and their seqs."""
        ...

    def put_blob(self, data: bytes | Iterable[bytes], key: bytes) -> tuple[str, int]:
        """Store content durably (in transactions of at most 4 MiB, zstd where it helps) and return (root, length),
        which an event may name from then on. `key` is 32 random bytes."""
        ...

    def put_blobs(self, contents: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, int]]:
        """As `put_blob` for each (content, key), in as few transactions of at most 4 MiB as can be, in order."""
        ...

    def get_blob(self, root: str) -> bytes:
        """The whole content, checked against its root. Unknown: `Damaged`. Hidden by redaction: `Incomplete`."""
        ...

    def stream_blob(self, root: str) -> Iterator[bytes]:
        """The content in chunks of at most 64 KiB, each checked; for content that must not be held in memory."""
        ...

    def blob_key(self, root: str) -> bytes | None:
        """The key under which a blob's root was made (for exports), None where it was hidden. Unknown: `Damaged`."""
        ...

    def headers(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """(seq, header) of the events after `after`, in order, without touching their bodies: for listings."""
        ...

    def save_checkpoint(self, seq: int, version: int, state: bytes) -> None:
        """Keep a fold checkpoint: a cache that anyone may delete. Older ones of the same version may be dropped."""
        ...

    def load_checkpoint(self, version: int, before: int | None = None) -> tuple[int, bytes] | None:
        """The newest checkpoint of this version at or below `before` (seq, state), or None."""
        ...

    def redact(
        self, events: Mapping[int, bytes], roots: Iterable[str], epoch: int, records: Sequence[Draft] = ()
    ) -> None:
        """Take content out for good, and append the events that say so, in one transaction. Owner only.

        `events` gives the disclosed leaves (docs/format.md) that replace the body and key of each seq, `roots` the
        blobs whose key and bytes go; fold checkpoints, which may hold the text, go too. Raises `InvalidEvent`, with
        nothing changed, for leaves that do not have the event's root or hide a clear key, or a seq that is not there;
        `Damaged` for an unknown blob. When it returns, the bytes are overwritten in the store; copies elsewhere are
        out of reach.
        """
        ...

    def room(self) -> bool:
        """Whether there is space for what a run writes before it has stopped cleanly; True where the system does not
        say. The owner asks about once a second and before it starts anything: cheap. Raises `StoreUnavailable`
        where the owner's disk takes no changes any more."""
        ...

    def tidy(self) -> bool:
        """Do upkeep that is due, and say whether there was any: for the owner to call between appends, when nothing
        waits. It may take some milliseconds; never called, it is done inside an append now and then."""
        ...

    def reopen(self) -> None:
        """Close and open again after `StoreUnavailable`; nothing of a failed transaction is assumed."""
        ...

    def close(self) -> None:
        """Release the lock if held, sweep blobs that no event names (owner only), truncate the write-ahead log."""
        ...
