"""The export: a log as lines of text that a stranger can verify. The format stands in docs/format.md §5.

Written as a stream: neither the log nor a blob is ever held whole. This module must not know how
events are kept or shown.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from muse.event.codec import blob_refs, parse
from muse.event.commitment import Shown, parse_disclosed
from muse.event.leaves import BLOB
from muse.log.protocol import Head, Log, Stored

EXPORT_VERSION: Final = 1
PROGRESS_EVENTS: Final = 500


def write_export(
    log: Log, write: Callable[[bytes], object], *, upto: int = 0, progress: Callable[[int], None] | None = None
) -> int:
    """Write the log, up to event `upto` (0: its head now), and return the number of events."""
    head = _head(log, upto)
    _line(write, {"muse_export": EXPORT_VERSION, "session": log.session, "head": head.seq, "hash": head.hash.hex()})
    written: set[str] = set()
    for stored in log.read(before=head.seq + 1):
        for root, length in _named(stored):
            if root not in written:
                written.add(root)
                _write_blob(log, write, root, length)
        _line(write, _event(stored))
        if progress is not None and stored.seq % PROGRESS_EVENTS == 0:
            progress(stored.seq)
    _line(write, {"end": True, "events": head.seq, "hash": head.hash.hex()})
    return head.seq


def _head(log: Log, upto: int) -> Head:
    if not upto:
        return log.head()
    last = next(log.read(after=upto - 1, before=upto + 1), None)
    assert last is not None, f"event {upto} is not in the log"
    return Head(last.seq, last.hash)


def _event(stored: Stored) -> dict[str, object]:
    fields: dict[str, object] = {"header": stored.header.decode()}
    if stored.body is not None and stored.key is not None:
        fields |= {"body": stored.body.decode(), "key": stored.key.hex()}
    else:
        fields["leaves"] = msgspec.Raw(stored.hidden or b"[]")
    return fields | {"hash": stored.hash.hex()}


def _write_blob(log: Log, write: Callable[[bytes], object], root: str, length: int) -> None:
    """A blob's line, its content encoded piece by piece."""
    key = log.blob_key(root)
    if key is None:
        _line(write, {"blob": root, "length": length, "hidden": True})
        return
    start = msgspec.json.encode({"blob": root, "length": length, "key": key.hex()})
    write(start.removesuffix(b"}") + b',"data":"')
    rest = b""
    for chunk in log.stream_blob(root):
        piece = rest + chunk
        whole = len(piece) - len(piece) % 3  # base64 takes three bytes at a time
        write(base64.b64encode(piece[:whole]))
        rest = piece[whole:]
    write(base64.b64encode(rest) + b'"}\n')


def _named(stored: Stored) -> Iterator[tuple[str, int]]:
    """The blobs that an event's visible leaves name."""
    if stored.body is not None:
        if b'"blob":' in stored.body:
            yield from ((ref.blob, ref.length) for ref in blob_refs(parse(stored.body)))
    elif stored.hidden is not None:
        for entry in parse_disclosed(stored.hidden).leaves:
            if isinstance(entry, Shown) and entry.leaf.kind == BLOB:
                yield entry.leaf.text[:32].hex(), int.from_bytes(entry.leaf.text[32:], "big")


def _line(write: Callable[[bytes], object], fields: dict[str, object]) -> None:
    write(msgspec.json.encode(fields) + b"\n")
