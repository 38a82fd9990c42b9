#!/usr/bin/env python3
"""Verify a muse jsonl export, as docs/format.md (version 1) defines it.

    python3 tools/verify_export.py FILE [--head SEQ:HASH] [--json] [--line-limit BYTES]
    python3 tools/verify_export.py --vectors docs/vectors

One file, written from the page alone: Python 3.11 or later, its standard library, nothing else. A FILE of `-` is the
standard input. The exit code is the page's: 0 proven, 6 damaged, 8 incomplete; 2 says that nothing was judged (usage,
a file that cannot be read, a line longer than the limit).

Memory is bounded by the longest line, plus 16 bytes of id for each event and 32 bytes of root for each blob.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

PROVEN, UNJUDGED, DAMAGED, INCOMPLETE = 0, 2, 6, 8

LINE_LIMIT = 64 * 1024 * 1024  # bytes of one line; the format sets no limit, --line-limit raises this one
MAX_INTEGER = 2**53
MAX_DEPTH = 64  # containers in a body
MAX_LEVELS = 200  # containers in a line
MAX_U32 = 2**32 - 1
PIECE_SIZE = 4096
CHUNK_SIZE = 65536
NULL, FALSE, TRUE, INTEGER, STRING, EMPTY_OBJECT, EMPTY_ARRAY, BLOB, CHUNK = range(9)

KEY = re.compile(r"[a-z0-9_]+")
BRACKET = re.compile(rb'"(?:\\.|[^"\\])*+"?|[\[{]|[\]}]', re.DOTALL)  # or a string, whose brackets do not count
DIGITS = re.compile(r"0|-?[1-9][0-9]*")
HEADER_KEYS = frozenset(("agent", "cause", "epoch", "id", "seq", "time", "type", "v"))
AGENT = re.compile(r"main(\.[1-9][0-9]*)*")
TYPE = re.compile(r"[a-z]+\.[a-z_]+")
TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z")
PATH = re.compile(r'\[\]|\["[a-z0-9_]+"(?:,(?:"[a-z0-9_]+"|0|[1-9][0-9]*))*\]')

CLEAR_KEYS_1 = """
agent.finished outcome; agent.messaged to; approval.decided by call decision; approval.requested call;
budget.raised limit value; budget.reached limit value; command.refused command why; context.compacted first last;
effect.doubted attempt call recovery; effect.reconciled attempt call verdict; files.unknown calls; head.signed seq;
log.imported events; log.recovered first_lost last_lost; log.redacted seqs; model.failed attempt call failure;
model.requested attempt builder call items request_bytes; model.responded attempt call stop; ownership.taken epoch;
process.adopted call pid; process.reaped call pid; process.started call pid; question.answered question;
question.asked call; result.delivered child; session.closed outcome; session.forked at; session.opened format rules;
session.rewound to; source.kept line; timer.fired key; timer.set duration_ms key; tool.finished attempt call status;
tool.started attempt call recovery; workspace.restored to
"""
CLEAR_KEYS = {(row.split()[0], 1): tuple(row.split()[1:]) for row in CLEAR_KEYS_1.split(";")}


class Fault(Exception):
    """A check of the page that fails."""


class Unfinished(Fault):
    """A line at whose beginning no whole JSON object stands."""


class Unjudged(Exception):
    """An input about which nothing is said."""


def need(holds: bool, otherwise: str) -> None:
    """Raise a Fault saying `otherwise` unless the check holds."""
    if not holds:
        raise Fault(otherwise)


# --- JSON -----------------------------------------------------------------------------------------------------------


def parse(text: str) -> tuple[Any, int, bool]:
    """Give the value of the JSON text at the start, where it ends, and whether an object in it repeats a key.

    A fraction, `-0` and an integer of many digits become a float, which no check of this file accepts.
    """
    repeated = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        members = dict(pairs)
        repeated = repeated or len(members) < len(pairs)
        return members

    def refuse(name: str) -> None:
        raise ValueError(name)

    decoder = json.JSONDecoder(
        object_pairs_hook=collect,
        parse_int=lambda digits: int(digits) if len(digits) < 20 and digits != "-0" else 0.5,
        parse_float=lambda _: 0.5,
        parse_constant=refuse,
    )
    try:
        value, end = decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Unfinished("no JSON text, or one nested too deeply") from error
    return value, end, repeated


def utf8(text: str) -> bytes:
    """Give a string's bytes; a string with a lone surrogate has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Fault("a string with a surrogate") from error


def is_integer(value: object, low: int, high: int = MAX_INTEGER) -> bool:
    """Tell whether a JSON value is an integer in a range."""
    return type(value) is int and low <= value <= high


def is_hex(value: object, size: int) -> bool:
    """Tell whether a JSON value is a string of `size` bytes in lower-case hex."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]*", value) is not None and len(value) == 2 * size


def canonical(value: Any, depth: int = 1) -> str:
    """Write a value in the canonical form of 1.1, or refuse it; `depth` is that of a container at this place."""
    if value is None or isinstance(value, bool):
        return {None: "null", False: "false", True: "true"}[value]
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, int):
        need(abs(value) <= MAX_INTEGER, "an integer out of range")
        return str(value)
    need(isinstance(value, dict | list), "a number that is no integer")
    need(depth <= MAX_DEPTH, "nested too deeply")
    if isinstance(value, list):
        return "[" + ",".join([canonical(item, depth + 1) for item in value]) + "]"
    need(all(KEY.fullmatch(key) for key in value), "a key that is not allowed")
    need("blob" not in value or (depth > 1 and is_blob_reference(value)), "the key blob in a wrong place")
    return "{" + ",".join([f'"{key}":{canonical(value[key], depth + 1)}' for key in sorted(value)]) + "}"


def is_blob_reference(value: dict[str, Any]) -> bool:
    """Tell whether an object has the shape of a blob reference."""
    return value.keys() == {"blob", "length"} and is_hex(value["blob"], 32) and is_integer(value["length"], 0)


def read_canonical(data: bytes) -> dict[str, Any]:
    """Give the object of which these are the canonical bytes, or refuse them."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Fault("invalid UTF-8") from error
    value, _, _ = parse(text)
    need(isinstance(value, dict), "no object")
    need(canonical(value) == text, "not in canonical form")
    return dict(value)


def read_header(data: bytes) -> dict[str, Any]:
    """Give the header of which these are the canonical bytes, or refuse them (1.2)."""
    header = read_canonical(data)
    need(header.keys() == HEADER_KEYS, "a header with other keys")
    for key, pattern in (("agent", AGENT), ("time", TIME), ("type", TYPE)):
        value = header[key]
        need(isinstance(value, str) and pattern.fullmatch(value) is not None, f"a header with a wrong {key}")
    try:
        date.fromisoformat(header["time"][:10])
    except ValueError as error:
        raise Fault("a header with a date that does not exist") from error
    need(is_hex(header["id"], 16), "a header with a wrong id")
    for key, low in (("seq", 1), ("v", 1), ("epoch", 0), ("cause", 0)):
        need(is_integer(header[key], low), f"a header with a wrong {key}")
    need(header["cause"] < header["seq"], "a cause that does not come before")
    return header


# --- Commitment -----------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A leaf of a body or a blob (2.1)."""

    kind: int
    path: str
    piece: int
    text: bytes


class Commitment(NamedTuple):
    """What the chain takes of a body."""

    leaf_count: int
    root: bytes


def sha256(*parts: bytes) -> bytes:
    """Hash the parts, joined."""
    return hashlib.sha256(b"".join(parts)).digest()


def u32(number: int) -> bytes:
    """Write a number in 4 bytes."""
    return number.to_bytes(4, "big")


class Tree:
    """The Merkle tree hash of RFC 6962 over leaf hashes, added one by one."""

    def __init__(self) -> None:
        """Start with no leaf."""
        self.count = 0
        self.full: list[bytes] = []  # roots of full subtrees, one for each bit of count, the largest first

    def add(self, leaf: bytes) -> None:
        """Add the next leaf's hash."""
        bits = self.count
        while bits & 1:
            leaf = sha256(b"\x01", self.full.pop(), leaf)
            bits >>= 1
        self.full.append(leaf)
        self.count += 1

    def root(self) -> bytes:
        """Give the root over all leaves so far."""
        if not self.full:
            return sha256()
        root = self.full[-1]
        for left in reversed(self.full[:-1]):
            root = sha256(b"\x01", left, root)
        return root


def pieces(value: str) -> Iterator[bytes]:
    """Cut a string into its pieces."""
    data = value.encode()
    start = 0
    while start < len(data) or not data:
        newline = data.find(b"\n", start, start + PIECE_SIZE)
        end = newline + 1 if newline >= 0 else min(start + PIECE_SIZE, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[start:end]
        if not data:
            return
        start = end


def leaves(value: Any, steps: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Give the leaves of a canonical value, in order."""
    path = "[" + ",".join(steps) + "]"
    if isinstance(value, str):
        for piece, text in enumerate(pieces(value)):
            yield Leaf(STRING, path, piece, text)
    elif isinstance(value, dict) and "blob" in value:
        yield Leaf(BLOB, path, 0, bytes.fromhex(value["blob"]) + value["length"].to_bytes(8, "big"))
    elif isinstance(value, dict) and value:
        for key in sorted(value):
            yield from leaves(value[key], (*steps, f'"{key}"'))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*steps, str(index)))
    elif isinstance(value, dict | list):
        yield Leaf(EMPTY_OBJECT if isinstance(value, dict) else EMPTY_ARRAY, path, 0, b"")
    elif isinstance(value, int) and not isinstance(value, bool):
        yield Leaf(INTEGER, path, 0, str(value).encode())
    else:
        yield Leaf({None: NULL, False: FALSE, True: TRUE}[value], path, 0, b"")


def leaf_hash(salt: bytes, leaf: Leaf) -> bytes:
    """Hash a leaf with its salt (2.2)."""
    path = leaf.path.encode()
    return sha256(b"\x00", salt, bytes([leaf.kind]), u32(len(path)), path, u32(leaf.piece), leaf.text)


def salted(key: bytes, listed: Iterable[Leaf]) -> Iterator[bytes]:
    """Give the hash of each leaf, salted under a key."""
    for i, leaf in enumerate(listed):
        yield leaf_hash(hmac.digest(key, u32(i), "sha256")[:16], leaf)


def commitment(hashes: Iterable[bytes]) -> Commitment:
    """Give the count and the root of leaf hashes."""
    tree = Tree()
    for leaf in hashes:
        tree.add(leaf)
    return Commitment(tree.count, tree.root())


def chunks(data: bytes) -> Iterator[Leaf]:
    """Give the leaves of a blob (3)."""
    for piece, start in enumerate(range(0, max(len(data), 1), CHUNK_SIZE)):
        yield Leaf(CHUNK, "", piece, data[start : start + CHUNK_SIZE])


def first_hash(session: str) -> bytes:
    """Give hash_0 (2.3)."""
    return sha256(b"\x03", b"muse-log-1", utf8(session))


def next_hash(before: bytes, header: bytes, body: Commitment) -> bytes:
    """Give hash_n from hash_(n-1) (2.3)."""
    return sha256(b"\x02", before, sha256(header), u32(body.leaf_count), body.root)


def session_leaf(chained: bytes) -> bytes:
    """Give an event's leaf in the session tree (2.4)."""
    return sha256(b"\x00", b"muse-event-1\n", chained)


# --- Redaction ------------------------------------------------------------------------------------------------------


def read_leaves(entries: Any) -> Iterator[tuple[bytes, Leaf | None]]:
    """Give what `read_leaf` does for each entry of a redacted event, or refuse them."""
    need(isinstance(entries, list) and entries != [], "leaves that are no array or empty")
    yield from map(read_leaf, entries)


def read_leaf(entry: Any) -> tuple[bytes, Leaf | None]:
    """Give the hash of an entry of a redacted event, and the leaf if it is shown; or refuse it (4)."""
    need(isinstance(entry, dict), "a leaf that is no object")
    if "hash" in entry:
        need(entry.keys() == {"hash"} and is_hex(entry["hash"], 32), "a hidden leaf of a wrong form")
        return bytes.fromhex(entry["hash"]), None
    kind = entry.get("kind")
    need(is_integer(kind, NULL, BLOB), "a leaf of a kind that no body has")
    content = {INTEGER: {"text"}, STRING: {"text"}, BLOB: {"blob", "length"}}.get(kind, set())
    need(entry.keys() == {"kind", "path", "piece", "salt"} | content, "a shown leaf with other members")
    need(is_hex(entry["salt"], 16), "a shown leaf with a wrong salt")
    need(is_integer(entry["piece"], 0, MAX_U32 if kind == STRING else 0), "a shown leaf with a wrong piece")
    check_path(entry["path"], kind)
    leaf = Leaf(kind, entry["path"], entry["piece"], shown_text(entry, kind))
    return leaf_hash(bytes.fromhex(entry["salt"]), leaf), leaf


def check_path(path: Any, kind: int) -> None:
    """Refuse a path that no leaf of this kind has in a canonical body."""
    need(isinstance(path, str) and PATH.fullmatch(path) is not None, "a shown leaf with a wrong path")
    steps = path[1:-1].split(",") if path != "[]" else []
    need(bool(steps) or kind == EMPTY_OBJECT, "a leaf without a path that is not the empty body")
    need('"blob"' not in steps, "a path into a blob reference")
    need(all(len(step) <= 10 and int(step) <= MAX_U32 for step in steps if step[0] != '"'), "an index out of range")
    own = 1 if kind in (EMPTY_OBJECT, EMPTY_ARRAY, BLOB) else 0
    need(len(steps) + own <= MAX_DEPTH, "a path that is too deep")


def shown_text(entry: dict[str, Any], kind: int) -> bytes:
    """Give the text of a shown leaf, or refuse it."""
    if kind == BLOB:
        need(is_blob_reference({key: entry[key] for key in ("blob", "length")}), "a shown blob of a wrong form")
        return bytes.fromhex(entry["blob"]) + int(entry["length"]).to_bytes(8, "big")
    if kind not in (INTEGER, STRING):
        return b""
    need(isinstance(entry["text"], str), "a text that is no string")
    text = utf8(entry["text"])
    if kind == INTEGER:
        fits = len(text) < 20 and DIGITS.fullmatch(entry["text"]) is not None
        need(fits and abs(int(text)) <= MAX_INTEGER, "an integer not in canonical form or out of range")
        return text
    need(len(text) <= PIECE_SIZE, "a piece that is too long")
    need(b"\n" not in text[:-1], "a piece with a newline inside")
    need(bool(text) or entry["piece"] == 0, "an empty piece that is not the first")
    return text


# --- Export ---------------------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """A head of a log."""

    seq: int
    hash: bytes


@dataclass
class Report:
    """What was found."""

    exit: int = PROVEN
    first_bad: int | None = None
    reason: str = ""
    session: str | None = None
    events: int = 0
    hash: str | None = None
    known_head: int | None = None
    redacted_events: int = 0
    shown_leaves: int = 0
    hidden_leaves: int = 0
    blobs: int = 0
    hidden_blobs: int = 0
    events_of_unknown_type: int = 0
    proven: list[str] = field(default_factory=list)
    not_proven: list[str] = field(default_factory=list)
    not_checkable: list[str] = field(default_factory=list)


def check_members(line: dict[str, Any], required: str, optional: str = "") -> None:
    """Refuse a line that has not the members given."""
    names = set(required.split())
    need(names <= line.keys() <= names | set(optional.split()), "a line with unknown or missing keys")


class Export:
    """The state of reading one export (5)."""

    def __init__(self, known: Head | None = None) -> None:
        """Start before the first line; `known` is a head from elsewhere."""
        self.known = known
        self.known_hash: bytes | None = None  # hash_N, once it is reached
        self.report = Report()
        self.head: Head | None = None  # that of the first line
        self.hash = b""
        self.ids: set[bytes] = set()
        self.blobs: dict[bytes, int] = {}
        self.unnamed: set[bytes] = set()
        self.ended = False

    def place(self) -> int:
        """Give the seq to name for a fault in the line now read."""
        return 0 if self.head is None else self.report.events + 1

    def advance(self, chained: bytes, seq: int) -> None:
        """Take hash_seq as the last one."""
        assert self.head is not None
        need(self.head.seq != seq or self.head.hash == chained, "another hash than the head in the first line")
        self.hash = chained
        if self.known and self.known.seq == seq:
            self.known_hash = chained

    def line(self, line: dict[str, Any]) -> None:
        """Check the next line."""
        if self.head is None:
            self.first_line(line)
        elif "header" in line:
            self.event_line(line)
        elif "blob" in line:
            self.blob_line(line)
        elif "end" in line:
            self.last_line(line)
        else:
            raise Fault("a line of an unknown kind")

    def first_line(self, line: dict[str, Any]) -> None:
        """Check the first line."""
        version = line.get("muse_export")
        need(is_integer(version, 0), "no muse export")
        need(version == 1, f"this verifier is too old for this export: it is of version {version}")
        check_members(line, "muse_export session head hash")
        session = line["session"]
        need(isinstance(session, str) and session != "", "a session that is no string or empty")
        need(is_integer(line["head"], 0) and is_hex(line["hash"], 32), "a head of a wrong form")
        start, head = first_hash(session), Head(line["head"], bytes.fromhex(line["hash"]))
        need(head.seq > 0 or head.hash == start, "another hash than the head in the first line")
        self.head = head
        self.report.session = session
        self.advance(start, 0)

    def event_line(self, line: dict[str, Any]) -> None:
        """Check an event and go on to it."""
        assert self.head is not None
        seq = self.report.events + 1
        redacted = "leaves" in line
        check_members(line, "header leaves" if redacted else "header body key", "hash")
        need(seq <= self.head.seq, "more events than the first line says")
        need(isinstance(line["header"], str), "a header that is no string")
        data = utf8(line["header"])
        header = read_header(data)
        need(header["seq"] == seq, f"the seq {header['seq']} where {seq} comes")
        identity = bytes.fromhex(header["id"])
        need(identity not in self.ids, "an id that an earlier event has")
        body = self.redacted_body(line, header) if redacted else self.whole_body(line)
        chained = next_hash(self.hash, data, body)
        need("hash" not in line or line["hash"] == chained.hex(), "another hash than the chain gives")
        self.advance(chained, seq)
        self.ids.add(identity)
        self.report.events = seq
        self.report.redacted_events += redacted
        self.report.events_of_unknown_type += (header["type"], header["v"]) not in CLEAR_KEYS

    def whole_body(self, line: dict[str, Any]) -> Commitment:
        """Check the body of an event that is not redacted."""
        need(isinstance(line["body"], str), "a body that is no string")
        need(is_hex(line["key"], 32), "a key of a wrong form")
        body = read_canonical(utf8(line["body"]))
        return commitment(salted(bytes.fromhex(line["key"]), map(self.name_blob, leaves(body))))

    def redacted_body(self, line: dict[str, Any], header: dict[str, Any]) -> Commitment:
        """Check the leaves of a redacted event."""
        tree = Tree()
        seen: set[tuple[str, str, int]] = set()  # top-level key, path and piece of what is shown
        for hashed, leaf in read_leaves(line["leaves"]):
            tree.add(hashed)
            if leaf:
                self.name_blob(leaf)
                seen.add((leaf.path[1:-1].split(",")[0].strip('"'), leaf.path, leaf.piece))
            self.report.shown_leaves += leaf is not None
            self.report.hidden_leaves += leaf is None
        for key in CLEAR_KEYS.get((header["type"], header["v"]), ()):
            shown = {(path, piece) for top, path, piece in seen if top == key}
            need(bool(shown), f"the clear key {key} is hidden")
            before = {(path, piece - 1) for path, piece in shown if piece}
            need(before <= shown, f"a part of the clear key {key} is hidden")
        return Commitment(tree.count, tree.root())

    def name_blob(self, leaf: Leaf) -> Leaf:
        """Check that the blob of a leaf of kind 7 came before, and note that it is named."""
        if leaf.kind == BLOB:
            root, length = leaf.text[:32], int.from_bytes(leaf.text[32:], "big")
            need(self.blobs.get(root) == length, "a blob that no earlier line has with that length")
            self.unnamed.discard(root)
        return leaf

    def blob_line(self, line: dict[str, Any]) -> None:
        """Check a blob."""
        hidden = "hidden" in line
        check_members(line, "blob length hidden" if hidden else "blob length key data")
        need(is_hex(line["blob"], 32) and is_integer(line["length"], 0), "a blob of a wrong form")
        root = bytes.fromhex(line["blob"])
        need(root not in self.blobs, "a blob that stands twice")
        if hidden:
            need(line["hidden"] is True, "a hidden blob of a wrong form")
        else:
            need(is_hex(line["key"], 32), "a key of a wrong form")
            data = decode_base64(line["data"])
            need(len(data) == line["length"], "a blob of another length")
            need(commitment(salted(bytes.fromhex(line["key"]), chunks(data))).root == root, "a blob of another root")
        self.blobs[root] = line["length"]
        self.unnamed.add(root)
        self.report.blobs += not hidden
        self.report.hidden_blobs += hidden

    def last_line(self, line: dict[str, Any]) -> None:
        """Check the last line."""
        assert self.head is not None
        check_members(line, "end events hash")
        need(line["end"] is True and is_integer(line["events"], 0), "a last line of a wrong form")
        need(line["events"] == self.report.events, "another number of events than the last line says")
        need(line["events"] == self.head.seq, "fewer events than the first line says")
        need(line["hash"] == self.hash.hex(), "another hash than the last line says")
        need(not self.unnamed, "a blob that no event names")
        self.ended = True


def decode_base64(text: Any) -> bytes:
    """Give the bytes of canonical base64."""
    need(isinstance(text, str), "data that is no string")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Fault("data that is no base64") from error
    need(base64.b64encode(data).decode() == text, "base64 not in canonical form")
    return data


def too_deep(line: bytes) -> bool:
    """Tell whether too many brackets are open at once, in a line that need not be whole."""
    opened = deepest = 0
    if line.count(b"[") + line.count(b"{") > MAX_LEVELS:
        for found in BRACKET.finditer(line):
            opened += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
            deepest = max(deepest, opened)
    return deepest > MAX_LEVELS


def read_line(line: bytes) -> dict[str, Any]:
    """Give the object that a line without its newline is; Unfinished if no whole one stands at its beginning."""
    need(not too_deep(line), "a line nested too deeply")
    end_of_text = len(line)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        end_of_text = error.start
        text = line[:end_of_text].decode()
    bare = text.lstrip(" \t\r\ufeff")
    value, end, repeated = parse(bare)
    if not isinstance(value, dict):
        raise Unfinished("no JSON object")
    need(len(bare) == len(text), "something before the object of a line")
    need(end == len(text) and end_of_text == len(line), "something after the object of a line")
    need(not repeated, "a repeated key")
    return value


def read_export(stream: BinaryIO, export: Export, limit: int) -> None:
    """Read lines to the end, or to a break."""
    while raw := stream.readline(limit + 1):
        if len(raw) > limit:
            raise Unjudged(f"a line of more than {limit} bytes before event {export.place()} (--line-limit)")
        need(not export.ended, "something follows the last line")
        need(export.head is not None or raw.startswith(b"{"), "no muse export")
        try:
            line = read_line(raw.removesuffix(b"\n"))
        except Unfinished:
            if raw.endswith(b"\n"):
                raise
            return
        export.line(line)


def verify(stream: BinaryIO, known: Head | None = None, limit: int = LINE_LIMIT) -> Report:
    """Check an export and say what was found."""
    export = Export(known)
    report = export.report
    try:
        read_export(stream, export, limit)
    except Fault as fault:
        report.exit, report.first_bad, report.reason = DAMAGED, export.place(), str(fault)
    else:
        judge_end(export)
    if export.head is not None:
        report.hash = export.hash.hex()
    describe(export)
    return report


def judge_end(export: Export) -> None:
    """Judge an export in which no line is at fault: its known head and whether it breaks off."""
    report, known = export.report, export.known
    if known and export.known_hash is not None:
        if export.known_hash != known.hash:
            report.exit, report.first_bad, report.reason = DAMAGED, known.seq, "another hash than the known head"
            return
        report.known_head = known.seq
    if not export.ended:
        report.exit, report.reason = INCOMPLETE, "the last line is missing"
    elif known and export.known_hash is None:
        report.exit, report.reason = INCOMPLETE, f"the known head is of event {known.seq}, which is not there"


def describe(export: Export) -> None:
    """Fill in what is proven, what is not, and what cannot be checked."""
    report = export.report
    anchored = report.known_head is not None
    if report.events:
        report.proven.append(f"events 1 to {report.events} are consistent in themselves and with each other")
    if anchored:
        report.proven.append(f"events 1 to {report.known_head} are what they were when the known head was taken")
    if report.blobs:
        report.proven.append(f"the bytes of {report.blobs} blobs are those that were named")
    if report.shown_leaves:
        report.proven.append(f"{report.shown_leaves} shown leaves of {report.redacted_events} redacted events")
    since = f" after event {report.known_head}" if anchored else ""
    report.not_proven += [
        f"that the log was not rebuilt from some event{since} on",
        f"that events at the end{since} were not cut off",
        f"that it is the only log of this session{since}",
        "that what an event says is true, that the times are right, that an effect outside happened or did not",
    ]
    if report.hidden_leaves:
        report.not_checkable.append(f"what {report.hidden_leaves} hidden leaves held")
    if report.hidden_blobs:
        report.not_checkable.append(f"the bytes of {report.hidden_blobs} hidden blobs")
    if report.events_of_unknown_type and report.redacted_events:
        report.not_checkable.append("clear keys in events of a type or version that the page does not list")


# --- Vectors --------------------------------------------------------------------------------------------------------

Outcome = tuple[str, bool]


def refused(check: Callable[[], object]) -> bool:
    """Tell whether a check refuses what it is given."""
    try:
        check()
    except Fault:
        return True
    return False


def body_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare bodies, their leaves, hashes and roots."""
    key = bytes.fromhex(file["key"])
    for case in file["valid"]:
        listed = list(leaves(read_canonical(case["body"].encode())))
        hashes = list(salted(key, listed))
        found = [
            {"kind": leaf.kind, "path": leaf.path, "piece": leaf.piece, "text": leaf.text.hex(), "hash": hashed.hex()}
            for leaf, hashed in zip(listed, hashes, strict=True)
        ]
        total = commitment(hashes)
        yield case["name"], (found, total.leaf_count, total.root.hex()) == (case["leaves"], case["count"], case["root"])
    roots = {case["name"]: case["root"] for case in file["valid"]}
    for one, other in file["different"]:
        yield f"{one}, {other}", roots[one] != roots[other]
    for case in file["invalid"]:
        data = bytes.fromhex(case["bytes"])
        yield case["name"], refused(lambda data=data: read_canonical(data))  # type: ignore[misc]


def header_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare which headers are accepted."""
    for group in ("valid", "invalid"):
        for case in file[group]:
            text = case["header"]
            yield case["name"], refused(lambda text=text: read_header(utf8(text))) == (group == "invalid")  # type: ignore[misc]


def blob_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare the chunks and roots of blobs."""
    for case in file["blobs"]:
        data = bytes.fromhex(case["repeat"]) * case["times"]
        total = commitment(salted(bytes.fromhex(file["key"]), chunks(data)))
        expected = (case["length"], case["count"], case["root"])
        yield case["name"], (len(data), total.leaf_count, total.root.hex()) == expected


def chain_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare a chain and its session tree."""
    chained, tree = first_hash(file["session"]), Tree()
    yield "hash_0", chained.hex() == file["hash_0"]
    yield "the session tree of none", tree.root().hex() == file["session_tree_of_none"]
    for case in file["events"]:
        header = case["header"].encode()
        total = commitment(salted(bytes.fromhex(case["key"]), leaves(read_canonical(case["body"].encode()))))
        chained = next_hash(chained, header, total)
        tree.add(session_leaf(chained))
        found = (total.leaf_count, total.root.hex(), chained.hex(), tree.root().hex())
        expected = (case["count"], case["root"], case["hash"], case["session_tree"])
        yield f"event {read_header(header)['seq']}", found == expected


def redacted_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare redacted bodies."""

    def total(listed: Any) -> tuple[int, str]:
        found = commitment(hashed for hashed, _ in read_leaves(listed))
        return found.leaf_count, found.root.hex()

    own = commitment(salted(bytes.fromhex(file["key"]), leaves(read_canonical(file["body"].encode()))))
    yield "the body", (own.leaf_count, own.root.hex()) == (file["count"], file["root"])
    for case in file["valid"]:
        yield case["name"], total(case["leaves"]) == (file["count"], file["root"])
    yield "collapsed", total(file["collapsed"]["leaves"]) == (file["collapsed"]["count"], file["root"])
    for case in file["changed"]:
        yield case["name"], total(case["leaves"])[1] == case["root"] != file["root"]
    for case in file["invalid"]:
        yield case["name"], refused(lambda listed=case["leaves"]: total(listed))  # type: ignore[misc]


def export_vectors(file: dict[str, Any]) -> Iterator[Outcome]:
    """Compare the exit codes and first bad events of whole exports."""
    for case in file["exports"]:
        known = Head(case["known"][0], bytes.fromhex(case["known"][1])) if case.get("known") else None
        data = bytes.fromhex(case["bytes"]) if "bytes" in case else case["text"].encode()
        report = verify(io.BytesIO(data), known)
        yield case["name"], (report.exit, report.first_bad) == (case["exit"], case.get("first_bad"))


VECTORS: dict[str, Callable[[dict[str, Any]], Iterator[Outcome]]] = {
    "bodies.json": body_vectors,
    "headers.json": header_vectors,
    "blobs.json": blob_vectors,
    "chain.json": chain_vectors,
    "redacted.json": redacted_vectors,
    "exports.json": export_vectors,
}


def run_vectors(directory: Path) -> int:
    """Run every vector, print how many agree and which do not, and give the exit code."""
    agreed = total = 0
    for name, run in VECTORS.items():
        outcomes: list[Outcome] = []
        try:
            outcomes.extend(run(json.loads((directory / name).read_text(encoding="utf-8"))))
        except (Fault, LookupError, TypeError) as error:
            outcomes.append((f"stopped by {error!r}", False))
        right = sum(agrees for _, agrees in outcomes)
        print(f"{name:<14} {right:>4} of {len(outcomes):>4} agree")
        for case, agrees in outcomes:
            if not agrees:
                print(f"    differs: {case}")
        agreed, total = agreed + right, total + len(outcomes)
    print(f"{'together':<14} {agreed:>4} of {total:>4} agree")
    return PROVEN if agreed == total else DAMAGED


# --- Command line ---------------------------------------------------------------------------------------------------


def print_report(report: Report, name: str) -> None:
    """Print what was found as a short table."""
    verdict = {PROVEN: "proven", DAMAGED: "damaged", INCOMPLETE: "incomplete"}[report.exit]
    print(f"{name!a}: {verdict}" + (f": {report.reason}" if report.reason else ""))
    if report.first_bad is not None:
        print(f"{'first bad':<14} event {report.first_bad}")
    print(f"{'head':<14} {report.events}:{report.hash or '-'}")
    for title, said in (
        ("proven", report.proven),
        ("not proven", report.not_proven),
        ("not checkable", report.not_checkable),
    ):
        for line in said or ["-"]:
            print(f"{title:<14} {line}")


def head_argument(text: str) -> Head:
    """Read SEQ:HASH."""
    match = re.fullmatch(r"(0|[1-9][0-9]{0,15}):([0-9a-f]{64})", text)
    if match is None or int(match[1]) > MAX_INTEGER:
        raise argparse.ArgumentTypeError("a head is SEQ:HASH, with HASH 64 lower-case hex digits")
    return Head(int(match[1]), bytes.fromhex(match[2]))


def size_argument(text: str) -> int:
    """Read a positive number of bytes."""
    if re.fullmatch(r"[1-9][0-9]{0,15}", text) is None:
        raise argparse.ArgumentTypeError("a number of bytes is needed")
    return int(text)


def check_file(name: str, known: Head | None, limit: int, as_json: bool) -> int:
    """Verify one export, print the report and give the exit code."""
    if name == "-":
        report = verify(sys.stdin.buffer, known, limit)
    else:
        with open(name, "rb") as stream:
            report = verify(stream, known, limit)
    if as_json:
        print(json.dumps(asdict(report), indent=2, sort_keys=True))
    else:
        print_report(report, name)
    return report.exit


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    parser = argparse.ArgumentParser(description="Verify a muse jsonl export as docs/format.md defines it.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the export, or - for the standard input")
    parser.add_argument("--head", type=head_argument, metavar="SEQ:HASH", help="a head known from elsewhere")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument(
        "--line-limit", type=size_argument, default=LINE_LIMIT, metavar="BYTES", help="longest line read"
    )
    parser.add_argument("--vectors", type=Path, metavar="DIR", help="run the vectors of DIR instead")
    options = parser.parse_args(arguments)
    if (options.file is None) == (options.vectors is None):
        parser.error("either FILE or --vectors DIR is needed")
    try:
        if options.vectors:
            return run_vectors(options.vectors)
        return check_file(options.file, options.head, options.line_limit, options.json)
    except Unjudged as reason:
        print(f"not checkable: {reason}", file=sys.stderr)
    except (OSError, ValueError, MemoryError) as error:
        print(f"cannot be read: {error!a}", file=sys.stderr)
    return UNJUDGED


if __name__ == "__main__":
    sys.exit(main())
