"""Taking a blob out of a damaged log: whole where every chunk is proven, else what is left of it.

A blob that is lost stands in the new log as a hidden one (its root and length, no key, no content), because events go
on naming it; the recovery's summary says that it is lost and not hidden. This module must not know events.
"""

import contextlib
import secrets
from collections.abc import Iterator

import apsw

from muse.event.codec import BlobRef
from muse.event.commitment import CHUNK_BYTES, KEY_BYTES, chunk_hash, tree
from muse.event.kinds import LostBlob
from muse.log import blobs
from muse.log.salvage import BlobRow, Salvage

INSERT_CHUNK = "INSERT INTO chunks VALUES (?, ?, ?, ?, ?)"


def rescue_blob(db: apsw.Connection, salvage: Salvage, root: str, length: int, seq: int) -> LostBlob | None:
    """Copy a blob that event `seq` names, inside the caller's transaction. Returns what is lost, None for nothing."""
    found = salvage.blobs.get(root)
    if found is None or found.length != length:
        _hide(db, root, length, seq)
        return LostBlob(root=root, length=length)
    if found.key is None:  # hidden by redaction, not lost
        _hide(db, root, length, seq)
        return None
    sql = "INSERT INTO blobs (root, key, length, named) VALUES (?, ?, ?, ?)"
    db.execute("SAVEPOINT blob")
    db.execute(sql, (bytes.fromhex(root), found.key, length, seq))
    row = db.last_insert_rowid()
    leaves: list[bytes] = []
    for i in range(max(1, -(-length // CHUNK_BYTES))):
        packed = _chunk(salvage, found, found.key, i)
        if packed is None:
            break
        leaf, codec, data = packed
        leaves.append(leaf)
        db.execute(INSERT_CHUNK, (row, i, leaf, codec, data))
    is_whole = bool(leaves) and tree(leaves).hex() == root
    if not is_whole:
        db.execute("ROLLBACK TO blob")
    db.execute("RELEASE blob")
    if is_whole:
        return None
    _hide(db, root, length, seq)
    return LostBlob(root=root, length=length, rest=_rest(db, salvage, found, found.key))


def _chunk(salvage: Salvage, blob: BlobRow, key: bytes, i: int) -> tuple[bytes, int, bytes] | None:
    """A chunk as it is stored, if it is proven by its leaf."""
    for leaf, codec, data in salvage.chunk(blob.row, i):
        chunk = blobs.unpack(codec, data) if data is not None else None
        if chunk is not None and data is not None and chunk_hash(key, i, chunk) == leaf:
            return leaf, codec, data
    return None


def _rest(db: apsw.Connection, salvage: Salvage, blob: BlobRow, key: bytes) -> BlobRef | None:
    """A new blob of the chunks that are left, None where none is."""

    def left() -> Iterator[bytes]:
        for i in range(max(1, -(-blob.length // CHUNK_BYTES))):
            packed = _chunk(salvage, blob, key, i)
            if packed is not None:
                yield blobs.unpack(packed[1], packed[2]) or b""

    if next(left(), None) is None:
        return None
    _, root, length = blobs.write_blob(db, left(), secrets.token_bytes(KEY_BYTES), contextlib.nullcontext)
    return BlobRef(blob=root, length=length)


def _hide(db: apsw.Connection, root: str, length: int, seq: int) -> None:
    sql = "INSERT INTO blobs (root, key, length, named) VALUES (?, NULL, ?, ?)"
    db.execute(sql, (bytes.fromhex(root), length, seq))
