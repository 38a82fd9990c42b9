"""Whether a log is what was written: every byte, every link, every blob, and what cannot be told.

Events are checked one by one, on all cores where there are many (`check_event` knows no neighbours), then linked in
order. The verdict is a list of rows, each of which says what is proven, what failed, and what no log can prove about
itself. This module must not know how events are kept; exports are verified by the same code.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain as chained
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from muse.errors import Damaged, Incomplete, InvalidEvent
from muse.event.codec import Header, blob_refs, parse, parse_header
from muse.event.commitment import Root, Shown, chain, check_disclosed, commit, genesis, parse_disclosed
from muse.event.kinds import COMMANDS, required_clear
from muse.event.leaves import BLOB
from muse.log.chain import ABOUT_THE_LOG
from muse.log.evidence import RECOVERED, Evidence, evidence, fact_of
from muse.log.protocol import Head, Log, Stored
from muse.log.wal import Tail

State = Literal["proven", "failed", "not proven", "not checkable"]
BlobReader = Callable[[str], Iterator[bytes]]
Named = tuple[str, int]
"""A blob as an event names it: root and length."""

BATCH_EVENTS: Final = 500
BATCH_BYTES: Final = 1024 * 1024
BATCH_LEAVES: Final = 50_000
ALONE_BATCHES: Final = 60
ALONE_LEAVES: Final = 400_000
"""So many batches, or leaves in them, are checked in this process before others are started, which costs about as much.
It is leaves that cost: a text of short lines has hundreds of thousands of them in a megabyte."""
AHEAD_PER_JOB: Final = 3

STRUCTURE: Final = "file structure"
HEADERS: Final = "headers"
ORDER: Final = "order"
BODIES: Final = "bodies"
CHAIN: Final = "chain"
BLOBS: Final = "blobs"
OPENING: Final = "opening"


class Row(msgspec.Struct, frozen=True):
    """One line of the verdict. `seq` is the first event concerned, 0 when none can be named."""

    what: str
    state: State
    detail: str = ""
    seq: int = 0


class Report(msgspec.Struct, frozen=True):
    """The verdict. `exit_code` is 0 (nothing is wrong), 6 (something failed) or 8 (intact, but cut against a known
    head)."""

    session: str
    rows: tuple[Row, ...]
    events: int
    blobs: int
    head: Head
    exit_code: Literal[0, 6, 8]


class Fault(NamedTuple):
    """Something wrong: the part of the verdict it belongs to, the event (0: none), and what it is."""

    what: str
    seq: int
    detail: str


class Checked(NamedTuple):
    """What one event says about itself when looked at alone. `id`, `type` and `epoch` are None when its header
    cannot be read."""

    id: str | None
    type: str | None
    epoch: int | None
    faults: list[Fault]
    blobs: list[Named]
    redacted: bool


@runtime_checkable
class Structured(Protocol):
    """A store that can look over its own structure; `tail` is what stands behind its last append."""

    tail: Tail

    def structure_faults(self) -> list[tuple[int, str]]:
        """What is wrong, with the seq of the event concerned or 0."""
        ...


def verify(
    log: Log,
    *,
    head: tuple[int, bytes] | None = None,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check everything about a log opened with `check=False`. See `verify_stored` for the arguments."""
    faults: list[Fault] | None = None
    if isinstance(log, Structured):
        faults = [Fault(STRUCTURE, seq, detail) for seq, detail in log.structure_faults()]
    return verify_stored(
        log.session,
        log.read(),
        log.stream_blob,
        head=head,
        jobs=jobs,
        progress=progress,
        structure=faults,
        again=log.read,
        unfinished=isinstance(log, Structured) and log.tail.unfinished,
    )


def verify_stored(
    session: str,
    events: Iterable[Stored],
    blob_reader: BlobReader | None,
    *,
    head: tuple[int, bytes] | None = None,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    structure: list[Fault] | None = None,
    again: Callable[[], Iterable[Stored]] | None = None,
    unfinished: bool = False,
) -> Report:
    """Check events in order, and the blobs they name through `blob_reader` (None: blobs cannot be looked at).

    `head` is a (seq, hash) known from elsewhere. `jobs` is the number of processes, None for one a core; they are
    spawned, so a script that calls this on a large log needs the usual `__main__` guard. `progress` is called with
    the number of events done. `again` reads the events once more: of a log that was recovered, the chain of the
    damaged one is followed too. `unfinished` says that an append stands at the end that is not whole.
    """
    links = _Links(session, head)
    links.is_unfinished = unfinished
    source = _until_damage(iter(events), links)
    for batch, checked in _checked(source, jobs or os.cpu_count() or 1):
        for event, result in zip(batch, checked, strict=True):
            links.add(event, result)
        if progress is not None:
            progress(links.head.seq)
    if structure is not None:
        links.faults += structure
    found = evidence(again(), links.source) if again is not None and links.source and not links.broken_at else None
    hidden_blobs = _check_blobs(links, blob_reader, found.lost_blobs if found is not None else frozenset())
    return _report(links, structure is not None, blob_reader is not None, hidden_blobs, found)


# ---------------------------------------------------------------------- one event


def check_event(event: Stored) -> Checked:
    """Look at one event alone: canonical header and body, commitment under its key or by its disclosed leaves."""
    faults: list[Fault] = []
    header: Header | None = None
    try:
        header = parse_header(event.header)
        if header.seq != event.seq:
            faults.append(Fault(HEADERS, event.seq, f"the header says it is event {header.seq}"))
    except InvalidEvent as error:
        faults.append(Fault(HEADERS, event.seq, str(error)))
    named: list[Named] = []
    try:
        found, named = commitment(event.body, event.key, event.hidden, header)
        if (found.count, found.root) != (event.count, event.root):
            faults.append(Fault(BODIES, event.seq, "the body is not what the chain commits to"))
    except InvalidEvent as error:
        faults.append(Fault(BODIES, event.seq, str(error)))
    redacted = event.body is None
    if header is None:
        return Checked(None, None, None, faults, named, redacted)
    return Checked(header.id, header.type, header.epoch, faults, named, redacted)


_Plain = tuple[int, bytes, bytes | None, bytes | None, int, bytes, bytes, bytes | None]
_fields: Final[Callable[[Stored], _Plain]] = attrgetter(
    "seq", "header", "body", "key", "count", "root", "hash", "hidden"
)


def _check_plain(batch: list[_Plain]) -> list[tuple[Any, ...]]:
    """`check_event` for each, as another process does it: bare tuples cross over several times faster."""
    return [tuple(check_event(Stored(*fields))) for fields in batch]


def commitment(
    body: bytes | None, key: bytes | None, hidden: bytes | list[Any] | None, header: Header | None
) -> tuple[Root, list[Named]]:
    """What commits to an event's content, whole or redacted, and the blobs that it names.

    `hidden` are the disclosed leaves, as JSON text or read; `header` says which keys must be shown (None: not known).
    Raises InvalidEvent for what no event holds.
    """
    if body is not None:
        if key is None or hidden is not None:
            raise InvalidEvent("the event is half redacted")
        parsed = parse(body)
        return commit(parsed, key), [(ref.blob, ref.length) for ref in blob_refs(parsed)]
    if hidden is None or key is not None:
        raise InvalidEvent("the body is gone, and its leaves are not disclosed")
    disclosed = parse_disclosed(hidden)
    shown = [entry.leaf for entry in disclosed.leaves if isinstance(entry, Shown) and entry.leaf.kind == BLOB]
    named = [(leaf.text[:32].hex(), int.from_bytes(leaf.text[32:], "big")) for leaf in shown]
    clear = required_clear(header.type, header.v) if header is not None else frozenset()
    return check_disclosed(disclosed, clear), named


# ---------------------------------------------------------------------- all events


class _Links:
    """What is known of the events so far, and everything found wrong with their order."""

    def __init__(self, session: str, known: tuple[int, bytes] | None) -> None:
        self.session = session
        self.head = Head(0, genesis(session))
        self.known = known
        self.known_matches = known is not None and known == (0, self.head.hash)
        self.faults: list[Fault] = []
        self.blobs: dict[str, Named] = {}
        self.named_at: dict[str, int] = {}
        self.count = 0
        self.redacted: list[int] = []
        self.approvals = 0
        self.is_closed = False
        self.is_unfinished = False
        self.source = ""
        self._is_after_gap = False
        self._ids: set[bytes] = set()
        self._epoch = 0

    def add(self, event: Stored, checked: Checked) -> None:
        """Take the next event."""
        self.count += 1
        self.faults += checked.faults
        if checked.redacted:
            self.redacted.append(event.seq)
        if event.seq != self.head.seq + 1:
            self.faults.append(Fault(ORDER, self.head.seq + 1, f"event {event.seq} follows event {self.head.seq}"))
        if chain(self.head.hash, event.header, event.count, event.root) != event.hash:
            self.faults.append(Fault(CHAIN, event.seq, "the chain breaks here"))
        self.head = Head(event.seq, event.hash)
        if self.known is not None and self.known[0] == event.seq:
            self.known_matches = self.known[1] == event.hash
        for root, length in checked.blobs:
            self._name(root, length, event.seq)
        if checked.id is not None and checked.epoch is not None and checked.type is not None:
            self._add_header(event.seq, checked.id, checked.type, checked.epoch)
            self._is_after_gap = checked.type == RECOVERED
            if self._is_after_gap and (fact := fact_of(event)) is not None:
                self.source = fact.source
                self.is_closed = self.is_closed and not fact.first_lost  # what is lost came after the close

    def _add_header(self, seq: int, id_: str, type_: str, epoch: int) -> None:
        known = len(self._ids)
        self._ids.add(bytes.fromhex(id_))
        if len(self._ids) == known:
            self.faults.append(Fault(ORDER, seq, f"id {id_} stands twice"))
        if epoch < self._epoch:
            self.faults.append(Fault(ORDER, seq, f"epoch {epoch} after epoch {self._epoch}"))
        elif epoch > self._epoch:
            if type_ != "session.opened" and not self._is_after_gap:
                self.faults.append(Fault(OPENING, seq, f"epoch {epoch} begins without session.opened"))
            self._epoch = epoch
        if type_ == "approval.decided":
            self.approvals += 1
        if type_ not in COMMANDS and type_ not in ABOUT_THE_LOG:  # a command needs no owner: it may follow the close
            self.is_closed = type_ == "session.closed"

    def _name(self, root: str, length: int, seq: int) -> None:
        other = self.blobs.setdefault(root, (root, length))
        self.named_at.setdefault(root, seq)
        if other[1] != length:
            self.faults.append(Fault(BLOBS, seq, f"blob {root} is said to have {other[1]} and {length} bytes"))

    @property
    def broken_at(self) -> int:
        """The first event at which the chain, a header or the order does not hold, 0 when all do: what comes after is
        tied to nothing."""
        return min((fault.seq for fault in self.faults if fault.what in (CHAIN, HEADERS, ORDER)), default=0)

    def first(self, what: str) -> tuple[Fault | None, int]:
        """The first fault of a kind, and how many there are."""
        found = [fault for fault in self.faults if fault.what == what]
        return (min(found, key=lambda fault: fault.seq or 2**62) if found else None), len(found)


def _until_damage(events: Iterator[Stored], links: _Links) -> Iterator[Stored]:
    """The events up to where the store cannot be read any further."""
    try:
        yield from events
    except Damaged as error:
        links.faults.append(Fault(STRUCTURE, error.seq, str(error)))


def _batches(events: Iterator[Stored]) -> Iterator[list[Stored]]:
    batch: list[Stored] = []
    size = leaves = 0
    for event in events:
        batch.append(event)
        size += len(event.body or event.hidden or b"")
        leaves += event.count
        if len(batch) == BATCH_EVENTS or size >= BATCH_BYTES or leaves >= BATCH_LEAVES:
            yield batch
            batch, size, leaves = [], 0, 0
    if batch:
        yield batch


def _few(batches: Iterator[list[Stored]]) -> Iterator[list[Stored]]:
    """The first of them, as long as it is not worth while to start other processes."""
    leaves = 0
    for batch in islice(batches, ALONE_BATCHES):
        yield batch
        leaves += sum(event.count for event in batch)
        if leaves >= ALONE_LEAVES:
            return


def _checked(events: Iterator[Stored], jobs: int) -> Iterator[tuple[list[Stored], list[Checked]]]:
    """Each batch of events with what was found, in order; what is beyond a small log on all cores."""
    batches = _batches(events)
    for batch in batches if jobs == 1 else _few(batches):
        yield batch, [check_event(event) for event in batch]
    more = next(batches, None)
    if more is None:
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=spawn) as pool:
        waiting: deque[tuple[list[Stored], Future[list[tuple[Any, ...]]]]] = deque()
        for batch in chained([more], batches):
            waiting.append((batch, pool.submit(_check_plain, [_fields(event) for event in batch])))
            if len(waiting) > jobs * AHEAD_PER_JOB:
                done, future = waiting.popleft()
                yield done, [Checked(*result) for result in future.result()]
        for done, future in waiting:
            yield done, [Checked(*result) for result in future.result()]


def _check_blobs(links: _Links, blob_reader: BlobReader | None, lost: frozenset[str]) -> int:
    """Read every blob that an event names; how many of them are hidden, those not counted that a recovery `lost`."""
    hidden = 0
    if blob_reader is None:
        return hidden
    for root, length in links.blobs.values():
        seq = links.named_at[root]
        try:
            size = sum(len(chunk) for chunk in blob_reader(root))
        except Incomplete:
            hidden += root not in lost
        except Damaged as error:
            links.faults.append(Fault(BLOBS, seq, str(error)))
        else:
            if size != length:
                links.faults.append(Fault(BLOBS, seq, f"blob {root} has {size} bytes, not {length}"))
    return hidden


# ---------------------------------------------------------------------- the verdict

_MEANINGS: Final = {
    STRUCTURE: "the file is whole and its indexes agree",
    HEADERS: "every header is canonical",
    ORDER: "numbered without a gap, ids unique, epochs never go back",
    BODIES: "every body is canonical and is what its root commits to",
    CHAIN: "every event is linked to the one before",
    BLOBS: "every blob that an event names is there and has its root",
    OPENING: "every epoch begins with session.opened",
}


UNFINISHED: Final = (
    "an append at the end is not whole: it was cut off before it was acknowledged, or damaged since;"
    " the events before it are all there"
)


def hidden_words(events: int, blobs: int) -> str:
    """What redaction took out, counted."""
    return f"hidden by redaction: parts of {events} event{'s' * (events != 1)}, {blobs} blob{'s' * (blobs != 1)}"


def _report(
    links: _Links, has_structure: bool, has_blobs: bool, hidden_blobs: int, recovered: Evidence | None
) -> Report:
    rows = [_row(links, what) for what in (HEADERS, ORDER, BODIES, CHAIN, OPENING)]
    if has_structure or links.first(STRUCTURE)[0]:
        rows.insert(0, _row(links, STRUCTURE))
    can_tell = has_blobs or links.first(BLOBS)[0] is not None
    rows.append(_row(links, BLOBS) if can_tell else Row(BLOBS, "not checkable", "the blobs are not at hand"))
    if links.redacted or hidden_blobs:
        detail = hidden_words(len(links.redacted), hidden_blobs)
        rows.append(Row("hidden content", "not checkable", detail, links.redacted[0] if links.redacted else 0))
    if recovered is not None:
        state: State = "failed" if recovered.fault else "not proven" if recovered.lost else "proven"
        rows.append(Row("recovered", state, recovered.words, recovered.fault))
    if links.approvals:
        detail = "an approval proves that someone with this user's rights gave it, not who"
        rows.append(Row("who approved", "not proven", detail))
    known, is_cut = _known_head(links)
    rows += [_tail(links, known), known]
    failed = any(row.state == "failed" for row in rows)
    only_cut = is_cut and not any(row.state == "failed" for row in rows if row is not known)
    exit_code: Literal[0, 6, 8] = 8 if only_cut else 6 if failed else 0
    return Report(links.session, tuple(rows), links.count, len(links.blobs), links.head, exit_code)


def _row(links: _Links, what: str) -> Row:
    fault, count = links.first(what)
    if fault is None:
        return Row(what, "proven", _MEANINGS[what])
    more = f" (and {count - 1} more)" if count > 1 else ""
    return Row(what, "failed", fault.detail + more, fault.seq)


def _known_head(links: _Links) -> tuple[Row, bool]:
    """The row about a head kept elsewhere, and whether the log is cut against it."""
    what = "rebuilt chain, cut tail"
    if links.known is None:
        return Row(what, "not proven", "no head from elsewhere to compare with"), False
    seq = links.known[0]
    if seq > links.head.seq:
        detail = f"the known head is event {seq}; the log ends at {links.head.seq}"
        return Row(what, "failed", detail, links.head.seq + 1), True
    if 0 < links.broken_at <= seq and links.known_matches:
        return Row(what, "not checkable", f"the chain does not hold from event {links.broken_at} on"), False
    if not links.known_matches:
        return Row(what, "failed", f"event {seq} is not the known one: the log was rewritten", seq), False
    return Row(what, "proven", f"event {seq} is the known head"), False


def _tail(links: _Links, known: Row) -> Row:
    if links.broken_at:
        return Row("tail", "not checkable", f"the chain does not hold from event {links.broken_at} on")
    if links.known is not None and known.state == "proven" and links.known[0] == links.head.seq:
        return Row("tail", "proven", "the log ends at the known head")
    if links.is_unfinished:
        return Row("tail", "not proven", UNFINISHED)
    if links.is_closed:
        return Row("tail", "proven", "the session was closed; only a known head can show that it went on after that")
    return Row("tail", "not proven", "the session is open: it runs, or its end was lost; the tail may be missing")
