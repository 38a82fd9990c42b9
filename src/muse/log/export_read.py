"""An export as a log that can be read: held in memory, with the ids, numbers, roots and hashes that it has.

What is wrong with it is found by the same code that verifies exports; what stands before that stays readable. This
module must not know where the lines come from.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muse.errors import Damaged, UsageError
from muse.event.codec import Header
from muse.event.commitment import Root
from muse.log.blobs import chunks_of
from muse.log.export_check import Export, Fault, Unfinished
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.protocol import Stored
from muse.log.verify import Named


class ExportLog(MemoryLog):
    """The log that an export holds. `end_fault` says what is wrong with it, from that event on."""

    end_fault: Damaged | None = None


def read_export(lines: Iterable[bytes], *, commands: Mapping[str, int], check: bool) -> ExportLog:
    """The log of an export given as lines with their ends. Raises UsageError where not even the first says of what.
    With `check` raises Damaged, naming the event, when it is not whole."""
    export = _Kept()
    fault: Damaged | None = None
    try:
        for line in lines:
            export.line(line)
        export.end()
        if not export.closed:
            raise Unfinished
    except Unfinished:
        hint = "the rest of the file is missing; what is there can be read"
        fault = Damaged(f"the export breaks off after event {export.head.seq}", seq=export.head.seq + 1, hint=hint)
    except Fault as error:
        fault = Damaged(f"event {error.seq}: {error.detail}", seq=error.seq, hint="`muse verify FILE` says more")
    if export.place is None:
        raise UsageError(str(fault or "the export is empty"), hint="give a session, its file, or a whole export")
    if fault is not None and check:
        raise fault
    log = ExportLog(export.place, commands=commands)
    log.end_fault = fault
    return log


class _Kept(Export):
    """Checks an export, and keeps what was found good."""

    def __init__(self) -> None:
        super().__init__(None)
        self.place: MemoryPlace | None = None
        self._root: Root | None = None
        self._bytes = b""

    def _first(self, value: dict[str, Any]) -> None:
        super()._first(value)
        self.place = MemoryPlace(self.session)

    def _content(self, value: dict[str, Any], header: Header) -> tuple[Root, list[Named]]:
        self._root, named = super()._content(value, header)
        return self._root, named

    def _event(self, value: dict[str, Any]) -> None:
        super()._event(value)
        place, root = self.place, self._root
        assert place is not None, "the first line comes first"
        assert root is not None, "an event that was checked has a root"
        hidden = msgspec.json.encode(value["leaves"]) if "leaves" in value else None
        body = value["body"].encode() if hidden is None else None
        key = bytes.fromhex(value["key"]) if hidden is None else None
        head = self.head
        header = value["header"].encode()
        place.events.append(Stored(head.seq, header, body, key, root.count, root.root, head.hash, hidden))
        place.ids[self.header.id] = head.seq

    def _data(self, value: object) -> bytes:
        self._bytes = super()._data(value)
        return self._bytes

    def _blob(self, value: dict[str, Any]) -> None:
        self._bytes = b""
        super()._blob(value)
        assert self.place is not None, "the first line comes first"
        key = None if "hidden" in value else bytes.fromhex(value["key"])
        self.place.hold(value["blob"], key, list(chunks_of(self._bytes)) if key is not None else [], value["length"])
