"""A session open for reading: its events decoded, its blobs, its head, its verdict and its export.

Front doors and exports read through this; they never see the store. It must not know how anything is shown.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from muse.decide.context import Rules
from muse.errors import Damaged, Incomplete, InvalidEvent, UsageError
from muse.event.commitment import genesis
from muse.event.content import BlobRef
from muse.event.envelope import Event, decode
from muse.fold.state import Session
from muse.log.chain import check_link
from muse.log.protocol import Head, Log, Stored

if TYPE_CHECKING:
    from muse.event.sent import Sent
    from muse.log.verify import Report as Report

VERIFY_HINT = "`muse verify` says what can still be trusted; `muse recover` saves what is before and after it"


class Position(msgspec.Struct, frozen=True):
    """An event's place in the chain: `hash` (hex) commits to it and to all before."""

    seq: int
    hash: str


class Reading:
    """One log, read only. Close it, or use it as a context.

    With `damage` (what opening found) the events before it can be read; every access beyond raises it.
    """

    def __init__(self, log: Log, damage: Damaged | None = None) -> None:
        self._log = log
        self._damage = damage
        self.session = log.session

    @property
    def damage(self) -> Damaged | None:
        """What opening found; events from `damage.seq` on cannot be read."""
        return self._damage

    @classmethod
    def open(cls, open_log: Callable[[bool], Log], *, check: bool = True) -> Self:
        """Open with the chain checked; `open_log(check)` opens. Where the check names a bad event, what is before it
        stays readable. Raises what opening raises when nothing is. Without `check` only the end is looked at, and
        whoever reads checks the rest (`follow_chain`)."""
        if not check:
            log = open_log(False)
            return cls(log, getattr(log, "end_fault", None))
        try:
            return cls(open_log(True))
        except Damaged as error:
            if error.seq <= 1:
                raise
            error.hint = error.hint or VERIFY_HINT
            return cls(open_log(False), error)

    def events(self, after: int = 0, before: int | None = None) -> Iterator[Event]:
        """Decoded events with after < seq < before. Raises `Damaged` naming the first that cannot be read."""
        for stored in self._read(after, before):
            yield _decoded(stored)

    def follow_chain(self, link: Head | None, before: int) -> Iterator[tuple[Head, Event]]:
        """The events after `link` (None: from the first), below `before`, each with its link: proven to follow the one
        before, as opening does it for the whole log. Raises `Damaged` at the first that does not."""
        link = Head(0, genesis(self.session)) if link is None else link
        for stored in self._read(link.seq, before):
            link = check_link(link, stored)
            yield link, _decoded(stored)

    def follow(self, after: int, stopped: Callable[[], bool]) -> Iterator[Event]:
        """As `events`, then waits for more until `stopped()`."""
        self._require_whole()
        for stored in self._log.follow(after, stopped):
            yield _decoded(stored)

    def event(self, seq: int) -> Event | None:
        """One event, or None where the log has none of that number."""
        return next(self.events(after=seq - 1, before=seq + 1), None)

    def raw(self, after: int, before: int) -> Iterator[tuple[bytes, bytes, Callable[[], Event]]]:
        """The events with after < seq < before as they are stored: header, body (empty where it was redacted), and
        what decodes them."""
        for stored in self._read(after, before):
            yield stored.header, stored.body or b"", partial(_decoded, stored)

    def stored(self, seq: int) -> Stored | None:
        """One event as it is stored: exact bytes, commitment and chain value."""
        return next(self._read(seq - 1, seq + 1), None)

    def fault(self, seq: int) -> str:
        """What is wrong with one event: its bytes are held against the root that the chain has of them, which reading
        alone does not do. "" where nothing is."""
        from muse.log.verify import check_event

        stored = self.stored(seq)
        return next((one.detail for one in check_event(stored).faults), "") if stored else ""

    def all_stored(self) -> Iterator[Stored]:
        """Every event as it is stored, in order. Raises `Damaged` at the first that cannot be read."""
        yield from self._read(0, None)

    def head(self) -> Position:
        """The last event's place."""
        head = self._log.head()
        return Position(head.seq, head.hash.hex())

    def at(self, seq: int) -> Position:
        """The place of event `seq`, which must be there."""
        stored = self.stored(seq)
        assert stored is not None, f"event {seq} is not in the log"
        return Position(seq, stored.hash.hex())

    def content(self, ref: BlobRef) -> bytes | None:
        """A blob's bytes, None where redaction hid them. Raises `Damaged`."""
        try:
            return self._log.get_blob(ref.blob)
        except Incomplete:
            return None

    def stream(self, root: str) -> Iterator[bytes]:
        """A blob in chunks. Raises `Damaged` or, for a hidden one, `Incomplete`."""
        return self._log.stream_blob(root)

    def earlier(self, before: int, types: tuple[str, ...], after: int = 0) -> Iterator[Event]:
        """Events of these types before event `before` and after event `after`, newest first."""
        from muse.runtime.backwards import backwards

        if self._damage is not None and before > self._damage.seq:
            self._require_whole()
        return map(_decoded, backwards(self._log, before, types, after=after))

    def last_of(self, agent: str) -> int:
        """The seq of the agent's last event, 0 when it has none."""
        from muse.runtime.backwards import last_of

        self._require_whole()
        return last_of(self._log, agent)

    def state_after(self, seq: int) -> Session | None:
        """The fold up to event `seq`, from the nearest checkpoint; None where the log tells an impossible story."""
        from muse.runtime.check.story import BROKEN
        from muse.runtime.checkpoint import fold

        if self._damage is not None and seq >= self._damage.seq:
            self._require_whole()
        try:
            return fold(self._log, before=seq + 1)
        except BROKEN:
            return None

    def request_at(self, seq: int, agent: str, rules: Rules) -> "Sent | None":
        """What the agent's newest request that is not after event `seq` was sent as, with the request before it; None
        when it has none. See `muse.runtime.requests`."""
        from muse.runtime.requests import request_at

        if self._damage is not None and seq >= self._damage.seq:
            self._require_whole()
        return request_at(self._log, seq, agent, rules)

    def export(
        self, write: Callable[[bytes], object], upto: int = 0, progress: Callable[[int], None] | None = None
    ) -> int:
        """Write the export format of docs/format.md, to event `upto` (0: all). Returns the number of events."""
        from muse.log.export import write_export

        if upto == 0 or (self._damage is not None and upto >= self._damage.seq):
            self._require_whole()
        return write_export(self._log, write, upto=upto, progress=progress)

    def _read(self, after: int, before: int | None) -> Iterator[Stored]:
        """Events up to the damage, which is raised where the reading comes to it."""
        bad = self._damage.seq if self._damage is not None else None
        if bad is None or (before is not None and before <= bad):
            yield from self._log.read(after=after, before=before)
            return
        yield from self._log.read(after=after, before=bad)
        self._require_whole()

    def _require_whole(self) -> None:
        if self._damage is not None:
            raise self._damage

    def close(self) -> None:
        """Close the log. Harmless when called twice."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def verify_file(
    path: Path,
    open_log: Callable[[Path], Log],
    rules: Rules,
    *,
    head: tuple[int, bytes] | None = None,
    progress: Callable[[int], None] | None = None,
) -> "Report":
    """The verdict on a session's file or on an export. See `muse.log.verify`; of an intact session's file, the model
    requests are rebuilt as well, and it is said whether commands could reach it."""
    if _is_export(path):
        from muse.log.export_check import lines_of, verify_export

        with path.open("rb") as file:
            return verify_export(lines_of(file), head=head, progress=progress)
    from muse.log.verify import verify
    from muse.runtime.confinement import check_sandbox
    from muse.runtime.rebuild import check_requests

    log = open_log(path)
    try:
        report = verify(log, head=head, progress=progress)
        if report.exit_code == 6:
            return report
        row, sandbox = check_requests(log, rules), check_sandbox(log)
        code: Literal[0, 6, 8] = 6 if row.state == "failed" else report.exit_code
        rows = (*report.rows[:-1], *((sandbox,) if sandbox else ()), row, report.rows[-1])
        return msgspec.structs.replace(report, rows=rows, exit_code=code)
    finally:
        log.close()


def _is_export(path: Path) -> bool:
    """Told by the name's ending; without one of ours, an export begins with `{` or broke off at once. A pipe or a
    device is none, and is not opened."""
    if path.suffix == ".muse" or (path.exists() and not path.is_file()):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    return start in (b"{", b"") or path.suffix == ".jsonl"


def _decoded(stored: Stored) -> Event:
    try:
        return decode(stored.header, stored.body, stored.hidden)
    except (InvalidEvent, UnicodeDecodeError) as error:
        raise Damaged(f"event {stored.seq} cannot be read: {error}", seq=stored.seq, hint=VERIFY_HINT) from error
