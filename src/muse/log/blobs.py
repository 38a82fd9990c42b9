"""Large content inside the log's file: cut into chunks, compressed where it helps, committed under its own key.

A blob is a row of `blobs` and its chunks; it has its root only once it is whole, and until an event names it, it may
be swept. This module must not know events; it is handed the connection and the way to begin a write transaction.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import apsw

from muse.errors import Damaged, Incomplete, InvalidEvent, StoreUnavailable
from muse.event.codec import BlobRef
from muse.event.commitment import CHUNK_BYTES, KEY_BYTES, chunk_hash, tree
from muse.log.protocol import BLOB_TRANSACTION_BYTES
from muse.log.schema import fetch, number

RAW: Final = 0
ZSTD: Final = 1
_CHUNKS_A_TRANSACTION: Final = BLOB_TRANSACTION_BYTES // CHUNK_BYTES

Transaction = Callable[[], AbstractContextManager[object]]


def write_blob(
    db: apsw.Connection, data: bytes | Iterable[bytes], key: bytes, transaction: Transaction
) -> tuple[int, str, int]:
    """Store content in transactions of at most 4 MiB; (row, root, length). Content that is there under this key is
    not stored twice. Raises InvalidEvent for a key that has not 32 bytes, StoreUnavailable if a sweep came between."""
    if len(key) != KEY_BYTES:
        raise InvalidEvent(f"a blob's key has {KEY_BYTES} bytes, not {len(key)}")
    row: int | None = None
    leaves: list[bytes] = []
    length = 0
    for group, is_last in _groups(data):
        packed = []
        for chunk in group:
            leaf = chunk_hash(key, len(leaves), chunk)
            packed.append((len(leaves), leaf, *pack(chunk)))
            leaves.append(leaf)
            length += len(chunk)
        with transaction():
            if row is None:
                db.execute("INSERT INTO blobs (key, length) VALUES (?, 0)", (key,))
                row = db.last_insert_rowid()
            elif not number(db, "SELECT count(*) FROM blobs WHERE blob = ?", (row,)):
                raise StoreUnavailable("a new owner swept this blob while it was being written", hint="try again")
            db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", ((row, *one) for one in packed))
            if is_last:
                row = _finish(db, row, tree(leaves), length)
    assert row is not None
    return row, tree(leaves).hex(), length


def grouped(contents: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """(content, key) pairs, in order, as many as one transaction may hold; one that is larger stands alone."""
    group: list[tuple[bytes, bytes]] = []
    size = 0
    for data, key in contents:
        if group and size + len(data) > BLOB_TRANSACTION_BYTES:
            yield group
            group, size = [], 0
        group.append((data, key))
        size += len(data)
    if group:
        yield group


def read_blob(db: apsw.Connection, root: str) -> Iterator[bytes]:
    """The chunks of a blob, each checked before it is given out.

    Raises Damaged (unknown root, or content that is not what the root commits to) or Incomplete (redacted).
    """
    sql = "SELECT blob, key, length FROM blobs WHERE root = ?"
    found = fetch(db, tuple[int, bytes | None, int], sql, (_bytes_of(root),))
    if not found:
        raise Damaged(f"blob {root} is not in the log")
    row, key, length = found[0]
    if key is None:
        raise Incomplete(f"blob {root} was hidden by redaction")
    leaves = [leaf for (leaf,) in fetch(db, tuple[bytes], "SELECT leaf FROM chunks WHERE blob = ? ORDER BY i", (row,))]
    if tree(leaves).hex() != root:
        raise Damaged(f"blob {root}: its chunks are not those its root commits to")
    given = 0
    for i, leaf in enumerate(leaves):
        sql = "SELECT codec, data FROM chunks WHERE blob = ? AND i = ?"
        codec, data = fetch(db, tuple[int, bytes | None], sql, (row, i))[0]
        if data is None:
            raise Incomplete(f"blob {root} was hidden by redaction")
        chunk = unpack(codec, data)
        if chunk is None or chunk_hash(key, i, chunk) != leaf:
            raise Damaged(f"blob {root}: chunk {i} is damaged")
        given += len(chunk)
        yield chunk
    if given != length:
        raise Damaged(f"blob {root} has {given} bytes, not {length}")


def key_of(db: apsw.Connection, root: str) -> bytes | None:
    """A blob's key, None where it was hidden by redaction. Raises Damaged for an unknown root."""
    found = fetch(db, tuple[bytes | None], "SELECT key FROM blobs WHERE root = ?", (_bytes_of(root),))
    if not found:
        raise Damaged(f"blob {root} is not in the log")
    return found[0][0]


def name_blobs(db: apsw.Connection, refs: Iterable[BlobRef], seq: int) -> None:
    """Record that event `seq` names these blobs. Raises InvalidEvent if one is missing or has another length."""
    for ref in refs:
        sql = "SELECT blob, length, named FROM blobs WHERE root = ?"
        found = fetch(db, tuple[int, int, int | None], sql, (_bytes_of(ref.blob),))
        if not found:
            raise InvalidEvent(f"blob {ref.blob} is named before it is stored")
        row, length, named = found[0]
        if length != ref.length:
            raise InvalidEvent(f"blob {ref.blob} has {length} bytes, not {ref.length}")
        if named is None:
            db.execute("UPDATE blobs SET named = ? WHERE blob = ?", (seq, row))


def unnamed_blobs(db: apsw.Connection, up_to: int, also: Collection[int]) -> list[int]:
    """Rows of blobs that no event names: those up to a row number, and of later ones those given."""
    rows = fetch(db, tuple[int], "SELECT blob FROM blobs WHERE named IS NULL")
    return [row for (row,) in rows if row <= up_to or row in also]


def drop_blob(db: apsw.Connection, row: int) -> None:
    """Delete one blob, inside the caller's transaction."""
    db.execute("DELETE FROM chunks WHERE blob = ?", (row,))
    db.execute("DELETE FROM blobs WHERE blob = ?", (row,))


def hide_blob(db: apsw.Connection, root: str) -> None:
    """Take a blob's key and bytes out, inside the caller's transaction; its row stays, for the length and the root.
    Raises Damaged for an unknown root."""
    key_of(db, root)
    db.execute("DELETE FROM chunks WHERE blob = (SELECT blob FROM blobs WHERE root = ?)", (_bytes_of(root),))
    db.execute("UPDATE blobs SET key = NULL WHERE root = ?", (_bytes_of(root),))


def last_row(db: apsw.Connection) -> int:
    """The highest row number in use, 0 if there is none."""
    return number(db, "SELECT coalesce(max(blob), 0) FROM blobs")


def chunks_of(data: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """Content in pieces of 64 KiB, the last one shorter; empty content is one empty piece."""
    if isinstance(data, bytes):
        for start in range(0, len(data) or 1, CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]
        return
    rest = bytearray()
    is_empty = True
    for part in data:
        rest += part
        whole = len(rest) - len(rest) % CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            yield bytes(rest[start : start + CHUNK_BYTES])
            is_empty = False
        del rest[:whole]
    if rest or is_empty:
        yield bytes(rest)


def pack(chunk: bytes) -> tuple[int, bytes]:
    """(codec, stored bytes) of a chunk: zstd if that is shorter."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    smaller = zstd.compress(chunk)
    return (ZSTD, smaller) if len(smaller) < len(chunk) else (RAW, chunk)


def unpack(codec: int, data: bytes) -> bytes | None:
    """The chunk that was packed, or None if the stored bytes cannot be one."""
    if codec == RAW:
        return data if len(data) <= CHUNK_BYTES else None
    if codec != ZSTD:
        return None
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        chunk = zstd.ZstdDecompressor().decompress(data, max_length=CHUNK_BYTES + 1)
    except zstd.ZstdError:
        return None
    return chunk if len(chunk) <= CHUNK_BYTES else None


def _finish(db: apsw.Connection, row: int, root: bytes, length: int) -> int:
    """Give a whole blob its root; if its twin is there, keep that one instead."""
    twin = fetch(db, tuple[int], "SELECT blob FROM blobs WHERE root = ?", (root,))
    if twin:
        drop_blob(db, row)
        return twin[0][0]
    db.execute("UPDATE blobs SET root = ?, length = ? WHERE blob = ?", (root, length, row))
    return row


def _groups(data: bytes | Iterable[bytes]) -> Iterator[tuple[list[bytes], bool]]:
    """Chunks, as many as one transaction may hold, and whether they are the last."""
    group: list[bytes] = []
    for chunk in chunks_of(data):
        if len(group) == _CHUNKS_A_TRANSACTION:
            yield group, False
            group = []
        group.append(chunk)
    yield group, True


def _bytes_of(root: str) -> bytes:
    try:
        return bytes.fromhex(root)
    except ValueError:
        return b""
