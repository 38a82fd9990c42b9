"""Whether an export is what docs/format.md §5 says: read once, line by line, up to the first fault.

Events are checked by the same code as those of a log. The verdict has the same rows, so that both are shown alike.
This module must not know where the lines come from.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, Literal, NoReturn

from muse.errors import InvalidEvent, UsageError
from muse.event.codec import INTEGER_MAX, Header, parse_header
from muse.event.commitment import Root, chain, commit_blob, genesis
from muse.event.kinds import LogRecovered
from muse.event.strict_json import BadJson, read_line
from muse.log.blobs import chunks_of
from muse.log.evidence import RECOVERED, read_fact
from muse.log.export import EXPORT_VERSION
from muse.log.protocol import Head
from muse.log.verify import BLOBS, BODIES, CHAIN, HEADERS, ORDER, Named, Report, Row, commitment, hidden_words

LINES: Final = "lines"
LINE_BYTES_MAX: Final = 2**31
"""A line with the largest output that a command may leave (1 GiB) as base64 fits into it."""
PROGRESS_EVENTS: Final = 500

_hex: Final = re.compile(r"[0-9a-f]{64}")
_MEANINGS: Final = {
    LINES: "every line has its form, and the last one closes the export",
    HEADERS: "every header is canonical",
    ORDER: "numbered without a gap, ids unique",
    BODIES: "every body is canonical and is what its root commits to",
    CHAIN: "every event is linked to the one before, up to the head that the export names",
    BLOBS: "every blob that an event names is there before it and has its root",
}


class Fault(Exception):
    """The first fault: the row it belongs to, the seq concerned, and what it is."""

    def __init__(self, what: str, seq: int, detail: str) -> None:
        super().__init__(detail)
        self.what, self.seq, self.detail = what, seq, detail


class Unfinished(Exception):
    """The export breaks off here, in the middle of its last line."""


def lines_of(file: BinaryIO, limit: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """The lines of an export with their ends. Raises UsageError at one that is longer than `limit` bytes, and when
    the file cannot be read: about such a one nothing is said."""
    try:
        while line := file.readline(limit + 1):
            if len(line) > limit:
                raise UsageError(f"not checkable: a line of the export has more than {limit} bytes")
            yield line
    except OSError as error:
        raise UsageError(f"not checkable: the export cannot be read: {error.strerror or error}") from error


def verify_export(
    lines: Iterable[bytes], *, head: tuple[int, bytes] | None = None, progress: Callable[[int], None] | None = None
) -> Report:
    """Check an export given as lines with their ends (`lines_of`, an open binary file).

    `head` is a (seq, hash) known from elsewhere; `progress` is called with the number of events done.
    """
    export = Export(head)
    wrong: Fault | None = None
    try:
        for line in lines:
            export.line(line)
            if progress is not None and export.head.seq % PROGRESS_EVENTS == 0:
                progress(export.head.seq)
        export.end()
    except Unfinished:
        pass
    except Fault as error:
        wrong = error
    return _report(export, wrong)


class Export:
    """What was read of an export so far; `header` is that of the last event."""

    def __init__(self, known: tuple[int, bytes] | None) -> None:
        self.known = known
        self.known_hash: bytes | None = None
        self.session = ""
        self.promised: Head | None = None
        self.head = Head(0, b"")
        self.closed = False
        self.blobs: dict[str, int] = {}
        self.unnamed: set[str] = set()
        self.hidden_blobs = 0
        self.redacted: list[int] = []
        self.approvals = 0
        self.recovered: LogRecovered | None = None
        self.header = Header("main", 0, 0, "", 0, "", "", 0)
        self._ids: set[str] = set()

    def line(self, data: bytes) -> None:
        """Take the next line."""
        if self.closed:
            self._wrong(LINES, "something follows the last line")
        if self.promised is None and not data.startswith(b"{"):
            self._wrong(LINES, "this is no muse export")
        value = self._parsed(data)
        if self.promised is None:
            self._first(value)
        elif "header" in value:
            self._event(value)
        elif "blob" in value:
            self._blob(value)
        else:
            self._last(value)

    def end(self) -> None:
        """There are no more lines."""
        if self.closed and self.unnamed:
            self._wrong(BLOBS, f"blob {min(self.unnamed)} is named by no event")

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            return read_line(data.removesuffix(b"\n"))
        except BadJson as error:
            if error.is_cut and not data.endswith(b"\n"):
                raise Unfinished from error
            raise self._fault(LINES, f"a line cannot be read: {error}") from error

    def _first(self, value: dict[str, Any]) -> None:
        version = value.get("muse_export")
        if type(version) is int and version != EXPORT_VERSION:
            self._wrong(LINES, f"export format {version}: this muse is too old for it, or it is none", seq=0)
        if set(value) != {"muse_export", "session", "head", "hash"} or type(version) is not int:
            self._wrong(LINES, "the first line is not that of an export", seq=0)
        session = value["session"]
        if type(session) is not str or not session or not _is_text(session):
            self._wrong(LINES, "the first line names no session", seq=0)
        head, hash_ = self._number(value["head"], 0), self._hash(value["hash"], 0)
        self.session, self.promised = session, Head(head, hash_)
        self.head = Head(0, genesis(session))
        self._note_known()
        if head == 0 and hash_ != self.head.hash:
            self._wrong(CHAIN, "the first line's hash is not that of an empty session", seq=0)

    def _event(self, value: dict[str, Any]) -> None:
        seq = self.head.seq + 1
        redacted = "leaves" in value
        required = {"header", "leaves"} if redacted else {"header", "body", "key"}
        if not required <= set(value) <= required | {"hash"}:
            self._wrong(LINES, "a line of an event has other keys than it may")
        if any(type(value[name]) is not str for name in required - {"leaves"}) or not _is_text(value["header"]):
            self._wrong(LINES, "a line of an event holds something else than text")
        header = self._header(value["header"].encode())
        content, blobs = self._content(value, header)
        found = chain(self.head.hash, value["header"].encode(), content.count, content.root)
        assert self.promised is not None
        if seq > self.promised.seq:
            self._wrong(ORDER, f"there are more events than the first line says ({self.promised.seq})")
        stated = self._hash(value["hash"]) if "hash" in value else found
        if found != stated or (seq == self.promised.seq and found != self.promised.hash):
            self._wrong(CHAIN, "the chain breaks here")
        self._named(blobs)
        self.head = Head(seq, found)
        self._note_known()
        self.approvals += header.type == "approval.decided"
        if header.type == RECOVERED and "body" in value:
            self.recovered = read_fact(value["body"].encode()) or self.recovered
        if redacted:
            self.redacted.append(seq)

    def _header(self, data: bytes) -> Header:
        seq = self.head.seq + 1
        try:
            header = parse_header(data)
        except InvalidEvent as error:
            raise self._fault(HEADERS, str(error)) from error
        if header.seq != seq:
            self._wrong(HEADERS, f"the header says it is event {header.seq}")
        if header.id in self._ids:
            self._wrong(ORDER, f"id {header.id} stands twice")
        self._ids.add(header.id)
        self.header = header
        return header

    def _content(self, value: dict[str, Any], header: Header) -> tuple[Root, list[Named]]:
        """What commits to the event's body, and the blobs that it names."""
        try:
            if "leaves" in value:
                if type(value["leaves"]) is not list:
                    raise InvalidEvent("a redacted body is an array of leaves")
                return commitment(None, None, value["leaves"], header)
            return commitment(value["body"].encode(), self._hash(value["key"]), None, header)
        except (InvalidEvent, UnicodeEncodeError) as error:
            raise self._fault(BODIES, str(error)) from error

    def _named(self, named: list[Named]) -> None:
        for root, length in named:
            if root not in self.blobs:
                self._wrong(BLOBS, f"blob {root} is not in an earlier line")
            if self.blobs[root] != length:
                self._wrong(BLOBS, f"blob {root} has {self.blobs[root]} bytes, not {length}")
            self.unnamed.discard(root)

    def _blob(self, value: dict[str, Any]) -> None:
        hidden = "hidden" in value
        if set(value) != ({"blob", "length", "hidden"} if hidden else {"blob", "length", "key", "data"}):
            self._wrong(LINES, "a line of a blob has other keys than it may")
        root, length = self._hash(value["blob"]).hex(), self._number(value["length"])
        if root in self.blobs:
            self._wrong(BLOBS, f"blob {root} stands twice")
        if hidden:
            if value["hidden"] is not True:
                self._wrong(LINES, "`hidden` is true or is not there")
            self.hidden_blobs += 1
        else:
            data, key = self._data(value["data"]), self._hash(value["key"])
            if len(data) != length:
                self._wrong(BLOBS, f"blob {root} has {len(data)} bytes, not {length}")
            if commit_blob(chunks_of(data), key).root.hex() != root:
                self._wrong(BLOBS, f"blob {root}: its bytes are not what its root commits to")
        self.blobs[root] = length
        self.unnamed.add(root)

    def _last(self, value: dict[str, Any]) -> None:
        if set(value) != {"end", "events", "hash"} or value["end"] is not True:
            self._wrong(LINES, "a line is neither an event, nor a blob, nor the last one")
        events, hash_ = self._number(value["events"]), self._hash(value["hash"])
        assert self.promised is not None
        if events != self.head.seq or self.promised.seq != self.head.seq:
            self._wrong(
                ORDER, f"{self.head.seq} events, where the first line says {self.promised.seq}, the last {events}"
            )
        if hash_ != self.head.hash:
            self._wrong(CHAIN, "the last line's hash is not that of the last event")
        self.closed = True

    # -- small parts

    def _wrong(self, what: str, detail: str, seq: int | None = None) -> NoReturn:
        raise self._fault(what, detail, seq)

    def _fault(self, what: str, detail: str, seq: int | None = None) -> Fault:
        next_seq = 0 if self.promised is None else self.head.seq + 1
        return Fault(what, next_seq if seq is None else seq, detail)

    def _number(self, value: object, seq: int | None = None) -> int:
        if type(value) is not int or not 0 <= value <= INTEGER_MAX:
            self._wrong(LINES, "a number is none from 0 to 2^53", seq)
        return value

    def _hash(self, value: object, seq: int | None = None) -> bytes:
        if type(value) is not str or not _hex.fullmatch(value):
            self._wrong(LINES, "a hash, root or key is not 64 lower-case hex digits", seq)
        return bytes.fromhex(value)

    def _data(self, value: object) -> bytes:
        try:
            if type(value) is str:
                data = base64.b64decode(value, validate=True)
                if base64.b64encode(data).decode("ascii") == value:
                    return data
        except (binascii.Error, ValueError):
            pass
        raise self._fault(LINES, "a blob's data is no canonical base64")

    def _note_known(self) -> None:
        if self.known is not None and self.known[0] == self.head.seq:
            self.known_hash = self.head.hash


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _report(export: Export, wrong: Fault | None) -> Report:
    rows = [_row(what, export, wrong) for what in (LINES, HEADERS, ORDER, BODIES, CHAIN, BLOBS)]
    exit_code: Literal[0, 6, 8] = 0 if wrong is None else 6
    if wrong is None and not export.closed:
        if export.promised is not None:
            detail = f"incomplete after event {export.head.seq}: the last line is missing"
            rows[0] = Row(LINES, "not proven", detail, export.head.seq + 1)
        exit_code = 8
    if export.redacted or export.hidden_blobs:
        detail = hidden_words(len(export.redacted), export.hidden_blobs)
        rows.append(Row("hidden content", "not checkable", detail, export.redacted[0] if export.redacted else 0))
    if export.recovered is not None:
        lost = f"saved from {export.recovered.source}, {export.recovered.lost} events are lost"
        rows.append(Row("recovered", "not checkable", f"{lost}; the old chain is followed in a session's file only"))
    if export.approvals:
        detail = "an approval proves that someone with this user's rights gave it, not who"
        rows.append(Row("who approved", "not proven", detail))
    known = _known_row(export, wrong)
    rows.append(known)
    if known.state == "failed":
        exit_code = 8 if export.known_hash is None else 6
    return Report(export.session, tuple(rows), export.head.seq, len(export.blobs), export.head, exit_code)


def _row(what: str, export: Export, wrong: Fault | None) -> Row:
    if wrong is not None and wrong.what == what:
        return Row(what, "failed", wrong.detail, wrong.seq)
    if export.promised is None:
        return Row(what, "not checkable", "reading stopped in the first line: nothing is proven")
    if wrong is None:
        meaning = _MEANINGS[what]
        if not export.closed:
            meaning = meaning.replace("up to the head that the export names", "as far as the export goes")
        return Row(what, "proven", meaning)
    return Row(what, "not checkable", f"reading stopped at event {wrong.seq}; what is before it is proven")


def _known_row(export: Export, wrong: Fault | None) -> Row:
    what = "rebuilt chain, cut tail"
    if export.known is None:
        return Row(what, "not proven", "no head from elsewhere to compare with")
    seq, hash_ = export.known
    if wrong is not None:
        return Row(what, "not checkable", f"reading stopped at event {wrong.seq}")
    if seq > export.head.seq or export.promised is None:
        detail = f"the known head is event {seq}; the export ends at {export.head.seq}"
        return Row(what, "failed", detail, export.head.seq + 1)
    if export.known_hash != hash_:
        return Row(what, "failed", f"event {seq} is not the known one: the log was rewritten", seq)
    return Row(what, "proven", f"event {seq} is the known head")
