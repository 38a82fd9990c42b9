"""An export as a log that can be read: its events and blobs in memory, checked first like any export.

This module must not know what is made of them.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from muse.errors import Damaged, Incomplete
from muse.event.codec import parse_header
from muse.event.commitment import chain, genesis
from muse.event.envelope import Event, decode
from muse.event.strict_json import read_line
from muse.log.export_check import lines_of, verify_export
from muse.log.protocol import Head, Stored
from muse.log.verify import commitment


class ExportedLog:
    """The events of an export, in order, and its blobs: what `verify_story` reads of a log."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.events: list[Stored] = []
        self._blobs: dict[str, bytes | None] = {}

    @classmethod
    def open(cls, path: Path) -> "ExportedLog":
        """Raises `Damaged` naming the first bad event of an export that does not verify or is not whole."""
        with path.open("rb") as file:
            report = verify_export(lines_of(file))
        if report.exit_code != 0:
            bad = next((row for row in report.rows if row.state == "failed" or row.seq), None)
            detail = bad.detail if bad is not None else "it is not whole"
            raise Damaged(f"{path.name}: {detail}", seq=bad.seq if bad is not None else 0, hint="muse verify says more")
        log = cls(report.session)
        with path.open("rb") as file:
            for line in lines_of(file):
                log._take(read_line(line.removesuffix(b"\n")))
        return log

    def _take(self, line: dict[str, Any]) -> None:
        if "blob" in line:
            self._blobs[line["blob"]] = base64.b64decode(line["data"]) if "data" in line else None
        elif "header" in line:
            header = line["header"].encode()
            body = line["body"].encode() if "body" in line else None
            key = bytes.fromhex(line["key"]) if "key" in line else None
            leaves = line.get("leaves")
            found, _ = commitment(body, key, leaves, parse_header(header))
            before = self.events[-1].hash if self.events else genesis(self.session)
            hash_ = chain(before, header, found.count, found.root)
            hidden = None if leaves is None else msgspec.json.encode(leaves)
            seq = len(self.events) + 1
            self.events.append(Stored(seq, header, body, key, found.count, found.root, hash_, hidden))

    def read(self, after: int = 0, before: int | None = None) -> Iterator[Stored]:
        """As `Log.read`."""
        yield from self.events[after : None if before is None else max(before - 1, 0)]

    def decoded(self) -> Iterator[Event]:
        """Every event."""
        for stored in self.events:
            yield decode(stored.header, stored.body, stored.hidden)

    def head(self) -> Head:
        """As `Log.head`."""
        last = self.events[-1] if self.events else None
        return Head(last.seq, last.hash) if last else Head(0, genesis(self.session))

    def get_blob(self, root: str) -> bytes:
        """As `Log.get_blob`."""
        if root not in self._blobs:
            raise Damaged(f"blob {root} is not in the export")
        data = self._blobs[root]
        if data is None:
            raise Incomplete(f"blob {root} was hidden by redaction")
        return data

    def stream_blob(self, root: str) -> Iterator[bytes]:
        """As `Log.stream_blob`, in one piece."""
        yield self.get_blob(root)
