"""From differences between two snapshots to what `files.changed` holds: contents as blobs, in the log before the event.

Runs in a worker thread. Contents are read, kept and forgotten a few MiB at a time, however much changed; of one that
the log has from earlier in this run, the blob is named again. This module must not know who changed what, nor when.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from muse.effect.snapshot import GONE, TOO_MUCH, Contents, Difference
from muse.event.content import BlobRef, FileChange, Observed
from muse.event.text import clean
from muse.log.protocol import BLOB_TRANSACTION_BYTES, Log

CHANGES_AN_EVENT_MAX: Final = 256
"""Paths that one event names."""

CHANGE_BYTES_MAX: Final = 1 << 30
"""Content that is copied of one look; what changed beyond that is named."""

BLOBS_REMEMBERED_MAX: Final = 20_000

WITHHELD: Final = "withheld: the content holds a known secret"
_LINK: Final = 0o120000


class Exact:
    """What a call says that it does to one file: what a look finds of just that is `held` back, and what is found on
    top of it belongs `later` in the log than what the call says of itself."""

    def __init__(self, call: str, observed: Observed) -> None:
        self.call = call
        self.path = observed.path
        self._observed = observed
        self.held: list[FileChange] = []
        self.later: list[FileChange] = []

    def takes(self, change: FileChange, before: bytes | None, after: bytes | None) -> bool:
        """Whether this change is the call's to tell, in full or in part."""
        seen = self._observed
        if _digest(before) != seen.before_sha256:
            return False
        if _digest(after) == seen.after_sha256:
            self.held.append(change)
        else:
            self.later.append(msgspec.structs.replace(change, before=seen.after, before_mode=seen.file_mode))
        return True


class Found:
    """What was found, up to a full event at a time: each is given to `full`, the rest is left in `changes`."""

    def __init__(self, exact: dict[str, Exact], full: Callable[[list[FileChange]], None]) -> None:
        self.exact = exact
        self.changes: list[FileChange] = []
        self._full = full

    def add(self, change: FileChange) -> None:
        """One more."""
        if len(self.changes) == CHANGES_AN_EVENT_MAX:
            full, self.changes = self.changes, []
            self._full(full)
        self.changes.append(change)


class Recorder:
    """Keeps contents. One for a session; `begin` before each comparison."""

    def __init__(self, is_withheld: Callable[[bytes], bool]) -> None:
        self._is_withheld = is_withheld
        self._known: dict[str, BlobRef | str] = {}
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = self._copied = 0

    def begin(self) -> None:
        """What is copied counts from here."""
        self._copied = 0
        if len(self._known) > BLOBS_REMEMBERED_MAX:
            self._known.clear()
        self._known = {name: ref for name, ref in self._known.items() if isinstance(ref, BlobRef)}

    def record(
        self, prefix: bytes, differences: Iterator[Difference], contents: Contents, log: Log, found: Found
    ) -> None:
        """Add each difference to `found`, its contents in the log."""
        while part := list(islice(differences, CHANGES_AN_EVENT_MAX)):
            exact = {one.path: found.exact.get(path_text(prefix + one.path)) for one in part}
            ids = dict.fromkeys(
                name for one in part if exact[one.path] is None for name in (one.before_id, one.after_id) if name
            )
            self._fetch([name for name in ids if name not in self._known], contents, log)
            for one in part:
                call = exact[one.path]
                if call is None:
                    found.add(self._change(prefix, one, log))
                else:
                    self._add_exact(prefix, one, contents, log, found, call)

    def _add_exact(
        self, prefix: bytes, one: Difference, contents: Contents, log: Log, found: Found, call: Exact
    ) -> None:
        ids = [name for name in (one.before_id, one.after_id) if name]
        data = dict(contents.fetch(ids))
        for name in ids:
            self._keep(name, data[name], log)
        self._flush(log)
        change = self._change(prefix, one, log)
        if not call.takes(change, data.get(one.before_id), data.get(one.after_id)):
            found.add(change)

    def _fetch(self, ids: list[str], contents: Contents, log: Log) -> None:
        for start, name in enumerate(ids):
            if self._copied >= CHANGE_BYTES_MAX:
                self._known |= dict.fromkeys(ids[start:], TOO_MUCH)
                break
            ((_, data),) = contents.fetch([name])
            self._keep(name, data, log)
        self._flush(log)

    def _keep(self, name: str, data: bytes | None, log: Log) -> None:
        if data is None:
            self._known[name] = GONE
        elif self._is_withheld(data):
            self._known[name] = WITHHELD
        elif not isinstance(self._known.get(name), BlobRef):
            if self._waiting_bytes + len(data) > BLOB_TRANSACTION_BYTES:
                self._flush(log)
            self._waiting.append((name, data))
            self._waiting_bytes += len(data)
            self._copied += len(data)

    def _flush(self, log: Log) -> None:
        if self._waiting:
            kept = log.put_blobs([(data, secrets.token_bytes(32)) for _, data in self._waiting])
            for (name, _), (root, length) in zip(self._waiting, kept, strict=True):
                self._known[name] = BlobRef(blob=root, length=length)
        self._waiting, self._waiting_bytes = [], 0

    def _change(self, prefix: bytes, one: Difference, log: Log) -> FileChange:
        before, after = (self._known.get(name, "") if name else "" for name in (one.before_id, one.after_id))
        notes = [note for note in (one.note, after, before) if isinstance(note, str) and note]
        name = clean(prefix + one.path)
        exact = None
        if name.exact is not None:
            exact = BlobRef(*log.put_blob(name.exact, secrets.token_bytes(32)))
        return FileChange(
            path=name.text,
            before=before if isinstance(before, BlobRef) else None,
            after=after if isinstance(after, BlobRef) else None,
            before_mode=_bits(one.before_mode),
            after_mode=_bits(one.after_mode),
            note=notes[0] if notes else "",
            exact_path=exact,
        )


def path_text(path: bytes) -> str:
    """A path as valid text."""
    return clean(path).text


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _bits(mode: int) -> int:
    """Permission bits; of a symbolic link its kind."""
    return mode if mode == _LINK else mode & 0o777
