"""What binds an event: salted leaves, the tree over them, and the chain of events (docs/format.md).

Each value of a body is a leaf of its own with a salt derived from the event's key, so that a single value, down to a
line of a text, can be taken out later while the rest still proves what it is. Keys come in as arguments: nothing here
is random, and nothing here knows how keys or events are stored.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from muse.errors import InvalidEvent
from muse.event.codec import is_blob_ref, parse

PIECE_BYTES_MAX: Final = 4096
CHUNK_BYTES: Final = 65536
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16

NULL: Final = 0
FALSE: Final = 1
TRUE: Final = 2
INTEGER: Final = 3
STRING: Final = 4
EMPTY_OBJECT: Final = 5
EMPTY_ARRAY: Final = 6
BLOB: Final = 7
CHUNK: Final = 8

_KIND_BYTES: Final = tuple(bytes((kind,)) for kind in range(9))
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_sha256: Final = hashlib.sha256

_Parts = tuple[int, bytes, int, bytes]


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """One leaf of a body: what kind, where (JSON text of the steps), which piece of its string, and its bytes."""

    kind: int
    path: bytes
    piece: int
    text: bytes


class Root(msgspec.Struct, frozen=True, gc=False):
    """What commits to a body or a blob: the number of leaves and the tree's root (32 bytes)."""

    count: int
    root: bytes


def leaves(body: dict[str, object]) -> list[Leaf]:
    """The leaves of a parsed body in document order. Raises InvalidEvent for a value that is no JSON of a body."""
    return [Leaf(*parts) for parts in _leaves(body)]


def commit(body: bytes | dict[str, object], key: bytes) -> Root:
    """The commitment to a body under its event key (32 bytes).

    Bytes are parsed strictly (InvalidEvent); a dict has to come from `codec.parse` or `codec.canonical`.
    """
    found = _leaves(parse(body) if isinstance(body, bytes) else body)
    return Root(len(found), tree(_hashes(found, key)))


def salt(key: bytes, i: int) -> bytes:
    """The salt of leaf `i` (from 0) under the key of its event or blob."""
    _check_key(key)
    return hmac.digest(key, i.to_bytes(4, "big"), "sha256")[:SALT_BYTES]


def leaf_hash(salt: bytes, leaf: Leaf) -> bytes:
    """The hash of a leaf under its salt (16 bytes)."""
    return _sha256(b"\0" + salt + _tail(leaf.kind, leaf.path, leaf.piece, leaf.text)).digest()


def tree(hashes: Sequence[bytes]) -> bytes:
    """The RFC 6962 Merkle tree hash over leaf hashes; of none, SHA-256 of nothing.

    Joining neighbours level by level and lifting an odd last node gives the same tree as the RFC's recursion.
    """
    if not hashes:
        return _sha256(b"").digest()
    level = list(hashes)
    while len(level) > 1:
        above = [_sha256(b"\1" + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def genesis(session: str) -> bytes:
    """hash_0: what the first event of the session is chained to."""
    return _sha256(b"\3muse-log-1" + session.encode()).digest()


def chain(previous: bytes, header: bytes, count: int, root: bytes) -> bytes:
    """hash_n, from hash_(n-1), the header's exact bytes, and the body's leaf count and root."""
    return _sha256(b"\2" + previous + _sha256(header).digest() + count.to_bytes(4, "big") + root).digest()


def session_tree(hashes: Iterable[bytes]) -> bytes:
    """The RFC 6962 tree over the events' hashes (hash_1 … hash_n): what a signature or a git trailer names."""
    return tree([session_leaf(event_hash) for event_hash in hashes])


def session_leaf(event_hash: bytes) -> bytes:
    """The leaf hash of one event in the session tree."""
    return _sha256(b"\0muse-event-1\n" + event_hash).digest()


class BlobCommitment:
    """Commits to a blob fed in parts of any size (`add`); `finish` gives its root. The key has 32 bytes."""

    def __init__(self, key: bytes) -> None:
        _check_key(key)
        self._key = key
        self._hashes: list[bytes] = []
        self._rest = bytearray()
        self.length = 0

    def add(self, data: bytes) -> None:
        """Takes the next bytes of the blob."""
        self._rest += data
        self.length += len(data)
        while len(self._rest) >= CHUNK_BYTES:
            self._add_chunk(bytes(self._rest[:CHUNK_BYTES]))
            del self._rest[:CHUNK_BYTES]

    def finish(self) -> Root:
        """The root over everything added; an empty blob is one empty chunk. Call once."""
        if self._rest or not self._hashes:
            self._add_chunk(bytes(self._rest))
            self._rest.clear()
        return Root(len(self._hashes), tree(self._hashes))

    def _add_chunk(self, chunk: bytes) -> None:
        self._hashes.append(chunk_hash(self._key, len(self._hashes), chunk))


def chunk_hash(key: bytes, i: int, chunk: bytes) -> bytes:
    """The leaf hash of chunk `i` (from 0) of a blob."""
    return leaf_hash(salt(key, i), Leaf(CHUNK, b"", i, chunk))


def commit_blob(chunks: Iterable[bytes], key: bytes) -> Root:
    """The commitment to a blob given in parts of any size, joined and cut anew into chunks of 64 KiB."""
    commitment = BlobCommitment(key)
    for chunk in chunks:
        commitment.add(chunk)
    return commitment.finish()


def pieces(text: str) -> list[bytes]:
    """The pieces of a string: cut after every U+000A, then at code point boundaries into at most 4096 bytes."""
    data = text.encode()
    newline = data.find(b"\n")
    if len(data) <= PIECE_BYTES_MAX and (newline == -1 or newline == len(data) - 1):
        return [data]
    lines = data.split(b"\n")
    last = lines.pop()
    found: list[bytes] = []
    for line in lines:
        _cut_line(line + b"\n", found)
    if last:
        _cut_line(last, found)
    return found


def _cut_line(line: bytes, found: list[bytes]) -> None:
    start = 0
    while len(line) - start > PIECE_BYTES_MAX:
        end = start + PIECE_BYTES_MAX
        while line[end] & 0xC0 == 0x80:
            end -= 1
        found.append(line[start:end])
        start = end
    found.append(line[start:] if start else line)


def _leaves(body: dict[str, object]) -> list[_Parts]:
    found: list[_Parts] = []
    _walk(body, b"", found)
    return found


def _walk(value: Any, path: bytes, found: list[_Parts]) -> None:
    """Adds the leaves of `value`; `path` is the JSON text of its steps without the closing bracket, "" at the top."""
    kind = type(value)
    if kind is str:
        whole = path + b"]"
        for i, piece in enumerate(pieces(value)):
            found.append((STRING, whole, i, piece))
    elif kind is int:
        found.append((INTEGER, path + b"]", 0, b"%d" % value))
    elif kind is dict and value:
        _walk_object(value, path, found)
    elif kind in (list, tuple) and value:
        step = path + b"," if path else b"["
        for i, item in enumerate(value):
            _walk(item, step + b"%d" % i, found)
    else:
        found.append((_bare_kind(value, kind), (path or b"[") + b"]", 0, b""))


def _walk_object(value: dict[str, object], path: bytes, found: list[_Parts]) -> None:
    if is_blob_ref(value):
        text = bytes.fromhex(str(value["blob"])) + int(str(value["length"])).to_bytes(8, "big")
        found.append((BLOB, path + b"]", 0, text))
        return
    step = path + b',"' if path else b'["'
    for key in sorted(value):
        _walk(value[key], step + key.encode() + b'"', found)


def _bare_kind(value: object, kind: type) -> int:
    """The kind of a leaf that has no text."""
    if value is None:
        return NULL
    if kind is bool:
        return TRUE if value else FALSE
    if kind is dict:
        return EMPTY_OBJECT
    if kind in (list, tuple):
        return EMPTY_ARRAY
    raise InvalidEvent(f"a body holds no {kind.__name__}")


def _hashes(found: list[_Parts], key: bytes) -> list[bytes]:
    """The leaf hashes. HMAC is written out so that the key's two blocks are hashed once, not once a leaf."""
    _check_key(key)
    block = key.ljust(64, b"\0")
    inner, outer = _sha256(block.translate(_INNER)), _sha256(block.translate(_OUTER))
    hashes = []
    for i, (kind, path, piece, text) in enumerate(found):
        within, around = inner.copy(), outer.copy()
        within.update(i.to_bytes(4, "big"))
        around.update(within.digest())
        data = b"\0" + around.digest()[:SALT_BYTES] + _tail(kind, path, piece, text)
        hashes.append(_sha256(data).digest())
    return hashes


def _tail(kind: int, path: bytes, piece: int, text: bytes) -> bytes:
    return _KIND_BYTES[kind] + len(path).to_bytes(4, "big") + path + piece.to_bytes(4, "big") + text


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise InvalidEvent(f"a key has {KEY_BYTES} bytes, not {len(key)}")
