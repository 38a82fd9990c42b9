"""What binds an event: salted leaves, the tree over them, and the chain of events (docs/format.md).

Each value of a body is a leaf of its own with a salt derived from the event's key, so that a single value, down to a
line of a text, can be taken out later while the rest still proves what it is. Keys come in as arguments: nothing here
is random, and nothing here knows how keys or events are stored.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from muse.errors import InvalidEvent
from muse.event.codec import DEPTH_MAX, INTEGER_MAX, parse
from muse.event.leaves import BLOB, CHUNK, EMPTY_ARRAY, EMPTY_OBJECT, INTEGER, STRING, Parts, walk
from muse.event.leaves import PIECE_BYTES_MAX as PIECE_BYTES_MAX
from muse.event.leaves import Leaf as Leaf
from muse.event.leaves import leaves as leaves
from muse.event.strict_json import read

CHUNK_BYTES: Final = 65536
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16

_KIND_BYTES: Final = tuple(bytes((kind,)) for kind in range(9))
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_sha256: Final = hashlib.sha256


class Root(msgspec.Struct, frozen=True, gc=False):
    """What commits to a body or a blob: the number of leaves and the tree's root (32 bytes)."""

    count: int
    root: bytes


def commit(body: bytes | dict[str, object], key: bytes) -> Root:
    """The commitment to a body under its event key (32 bytes).

    Bytes are parsed strictly (InvalidEvent); a dict has to come from `codec.parse` or `codec.canonical`.
    """
    found = walk(parse(body) if isinstance(body, bytes) else body)
    return Root(len(found), tree(hashes_of(found, key)))


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


def hashes_of(found: list[Parts], key: bytes) -> list[bytes]:
    """The hashes of leaves in document order under their event's key.

    HMAC is written out so that the key's two blocks are hashed once, not once a leaf.
    """
    _check_key(key)
    block = key.ljust(64, b"\0")
    inner, outer = _sha256(block.translate(_INNER)), _sha256(block.translate(_OUTER))
    hashes = []
    for i, (kind, path, piece, text) in enumerate(found):
        within, around = inner.copy(), outer.copy()
        within.update(i.to_bytes(4, "big"))
        around.update(within.digest())
        parts = (
            b"\0", around.digest()[:SALT_BYTES], _KIND_BYTES[kind], len(path).to_bytes(4, "big"), path,
            piece.to_bytes(4, "big"), text,
        )  # fmt: skip
        hashes.append(_sha256(b"".join(parts)).digest())
    return hashes


class Hidden(msgspec.Struct, frozen=True):
    """A leaf of a redacted event that was taken out: only its hash is left."""

    hash: bytes


class Shown(msgspec.Struct, frozen=True):
    """A leaf of a redacted event that stays, with its salt."""

    leaf: Leaf
    salt: bytes


class Disclosed(msgspec.Struct, frozen=True):
    """What is left of a redacted body: its leaves in document order."""

    leaves: tuple[Hidden | Shown, ...]


Path = tuple[str | int, ...]
"""The steps to a value: a key of an object, an index of an array."""


def disclose(
    body: dict[str, object],
    key: bytes,
    hide: Callable[[Path], bool],
    clear: Collection[str] = (),
    *,
    hide_piece: Callable[[Path, int], bool] | None = None,
) -> Disclosed:
    """The redacted form of a parsed body: every leaf whose path (or, with `hide_piece`, piece) is to be hidden gone.

    `clear` are the top-level keys that this type of event never hides: InvalidEvent when `hide` asks for one.
    """
    found = walk(body)
    shown = Disclosed(tuple(Shown(Leaf(*parts), salt(key, i)) for i, parts in enumerate(found)))
    return hide_more(shown, hide, clear, hide_piece=hide_piece)


def hide_more(
    disclosed: Disclosed,
    hide: Callable[[Path], bool],
    clear: Collection[str] = (),
    *,
    hide_piece: Callable[[Path, int], bool] | None = None,
) -> Disclosed:
    """As `disclose`, for an event that was redacted before: what was hidden stays hidden."""

    def replaced(entry: Hidden | Shown) -> Hidden | Shown:
        if isinstance(entry, Hidden):
            return entry
        path = steps(entry.leaf.path)
        if not (hide(path) or (hide_piece is not None and hide_piece(path, entry.leaf.piece))):
            return entry
        if path and path[0] in clear:
            raise InvalidEvent(f"`{path[0]}` is a clear field of this type and cannot be hidden")
        return Hidden(leaf_hash(entry.salt, entry.leaf))

    return Disclosed(tuple(replaced(entry) for entry in disclosed.leaves))


def check_disclosed(disclosed: Disclosed, clear: Collection[str] = ()) -> Root:
    """The root that these leaves have; the caller compares it with the one in the chain.

    Raises InvalidEvent for a leaf that no body has, and when a key of `clear` (those that the type's bodies always
    hold) is not shown: a hidden leaf does not say what it was, so only what must be there can be missed.
    """
    for entry in disclosed.leaves:
        if isinstance(entry, Shown):
            _check_leaf(entry.leaf)
    if clear:
        _check_clear([entry.leaf for entry in disclosed.leaves if isinstance(entry, Shown)], clear)
    hashes = [
        leaf_hash(entry.salt, entry.leaf) if isinstance(entry, Shown) else entry.hash for entry in disclosed.leaves
    ]
    return Root(len(hashes), tree(hashes))


def encode_disclosed(disclosed: Disclosed) -> bytes:
    """The JSON text of a redacted body: an array, an object for each leaf (docs/format.md)."""
    entries = [_entry(entry) for entry in disclosed.leaves]
    return json.dumps(entries, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def parse_disclosed(data: bytes | str | list[Any]) -> Disclosed:
    """The redacted body of this JSON text, or of the array that was read from it. Raises InvalidEvent."""
    try:
        if isinstance(data, bytes):
            data = data.decode()
        entries = read(data) if isinstance(data, str) else data
        if not isinstance(entries, list) or not entries:
            raise InvalidEvent("a redacted body is an array of leaves")
        return Disclosed(tuple(_read_entry(dict(entry)) for entry in entries))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidEvent(f"not a redacted body: {error}") from error


def steps(path: bytes) -> Path:
    """The steps that the text of a leaf's path spells. Raises InvalidEvent unless it is exactly their text."""
    try:
        found = json.loads(path)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent("the path of a leaf is no JSON") from error
    if not isinstance(found, list) or not all(_is_step(step) for step in found):
        raise InvalidEvent("the path of a leaf is no list of steps")
    if json.dumps(found, separators=(",", ":")).encode() != path:
        raise InvalidEvent("the path of a leaf is not canonical")
    return tuple(found)


def _is_step(step: object) -> bool:
    if isinstance(step, str):
        return re.fullmatch(r"[a-z0-9_]+", step) is not None
    return type(step) is int and 0 <= step < 2**32


def _check_clear(shown: list[Leaf], clear: Collection[str]) -> None:
    """Refuses a clear key of which nothing is shown, or a piece without the one before it. Whether further pieces
    were hidden at its end cannot be seen."""
    pieces = {(leaf.path, leaf.piece): steps(leaf.path)[:1] for leaf in shown}
    missing = sorted(key for key in clear if (key,) not in pieces.values())
    if missing:
        raise InvalidEvent(f"the clear field `{missing[0]}` is hidden")
    for (path, piece), first in pieces.items():
        if piece and first[0] in clear and (path, piece - 1) not in pieces:
            raise InvalidEvent(f"a part of the clear field `{first[0]}` is hidden")


def _check_path(leaf: Leaf) -> None:
    """Refuses a path that leads nowhere in a canonical body, or to something else than this kind of leaf."""
    path = steps(leaf.path)
    levels = len(path) + (leaf.kind in (EMPTY_OBJECT, EMPTY_ARRAY, BLOB))
    is_place = type(path[0]) is str and "blob" not in path if path else leaf.kind == EMPTY_OBJECT
    if not is_place or levels > DEPTH_MAX:
        raise InvalidEvent("a leaf is shown at a path that no body has")


def _check_leaf(leaf: Leaf) -> None:
    """Refuses a shown leaf that no canonical body has."""
    _check_path(leaf)
    text = leaf.text
    if leaf.kind == STRING:
        well_formed = len(text) <= PIECE_BYTES_MAX and b"\n" not in text[:-1] and (text != b"" or leaf.piece == 0)
        well_formed = well_formed and _is_utf8(text)
    elif leaf.kind == INTEGER:
        well_formed = re.fullmatch(rb"0|-?[1-9][0-9]{0,15}", text) is not None and abs(int(text)) <= INTEGER_MAX
    elif leaf.kind == BLOB:
        well_formed = len(text) == 40 and int.from_bytes(text[32:], "big") <= INTEGER_MAX
    else:
        well_formed = 0 <= leaf.kind < BLOB and text == b""
    if not well_formed or (leaf.kind != STRING and leaf.piece != 0):
        raise InvalidEvent("a leaf is shown that no body has")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _entry(entry: Hidden | Shown) -> dict[str, object]:
    if isinstance(entry, Hidden):
        return {"hash": entry.hash.hex()}
    leaf = entry.leaf
    members: dict[str, object] = {
        "kind": leaf.kind, "path": leaf.path.decode(), "piece": leaf.piece, "salt": entry.salt.hex(),
    }  # fmt: skip
    if leaf.kind == BLOB:
        members |= {"blob": leaf.text[:32].hex(), "length": int.from_bytes(leaf.text[32:], "big")}
    elif leaf.kind in (INTEGER, STRING):
        members["text"] = leaf.text.decode()
    return members


def _read_entry(entry: dict[str, Any]) -> Hidden | Shown:
    if entry.keys() == {"hash"}:
        return Hidden(_from_hex(entry["hash"], 32))
    kind, piece = entry.pop("kind"), entry.pop("piece")
    if type(kind) is not int or type(piece) is not int or not 0 <= piece < 2**32:
        raise InvalidEvent("the kind and the piece of a leaf are integers")
    path, leaf_salt = entry.pop("path").encode(), _from_hex(entry.pop("salt"), SALT_BYTES)
    text = b""
    if kind == BLOB:
        length = entry.pop("length")
        if type(length) is not int:
            raise InvalidEvent("the length of a blob is an integer")
        text = _from_hex(entry.pop("blob"), 32) + length.to_bytes(8, "big")
    elif kind in (INTEGER, STRING):
        text = entry.pop("text").encode()
    if entry:
        raise InvalidEvent("a leaf has a member that it should not have")
    leaf = Leaf(kind, path, piece, text)
    _check_leaf(leaf)
    return Shown(leaf, leaf_salt)


def _from_hex(text: str, size: int) -> bytes:
    if not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", text):
        raise InvalidEvent(f"not {size} bytes in lower-case hex")
    return bytes.fromhex(text)


def _tail(kind: int, path: bytes, piece: int, text: bytes) -> bytes:
    return _KIND_BYTES[kind] + len(path).to_bytes(4, "big") + path + piece.to_bytes(4, "big") + text


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise InvalidEvent(f"a key has {KEY_BYTES} bytes, not {len(key)}")
