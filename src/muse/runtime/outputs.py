"""Whole outputs of earlier calls, read back from the log: what the model got head and tail of only."""

from muse.event.content import BlobRef
from muse.event.envelope import decode
from muse.event.kinds import ToolFinished
from muse.log.protocol import Log
from muse.runtime.backwards import backwards


def read_output(log: Log, call: str, offset: int, limit: int) -> bytes | None:
    """At most `limit` bytes from `offset` of the whole output of a call; None when the log holds none. Reads the log
    backwards and the content chunk by chunk; the last result of the call counts."""
    found: ToolFinished | None = None
    for stored in backwards(log, log.head().seq + 1, ("tool.finished",), call.partition("/")[0]):
        body = None if stored.body is None else decode(stored.header, stored.body).body
        if isinstance(body, ToolFinished) and body.call == call:
            found = body
            break
    if found is None:
        return None
    if found.output is None:
        return found.text.encode()[offset : offset + limit] if isinstance(found.text, str) else None
    return _slice(log, found.output, offset, limit)


def _slice(log: Log, blob: BlobRef, offset: int, limit: int) -> bytes:
    parts, at = [], 0
    for chunk in log.stream_blob(blob.blob):
        if at + len(chunk) > offset and at < offset + limit:
            parts.append(chunk[max(0, offset - at) : offset + limit - at])
        at += len(chunk)
        if at >= offset + limit:
            break
    return b"".join(parts)
