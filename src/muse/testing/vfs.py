"""A disk that remembers: what SQLite wrote, synced and truncated, and the files as a power loss could have left them.

`Recorder` is a VFS for apsw that passes everything on and keeps a journal. `Replay` goes through the journal to any
point and rebuilds the folder: what was synced is there; of the rest any subset, by sector, the last one torn, sizes
lagging or ahead, new names and deletions perhaps not. Nothing that was not written is damaged (SQLite's "powersafe
overwrite"), and the shared memory (`-shm`) is never there. Everything is drawn from the `random.Random` handed in.
"""

import os
import random
from collections.abc import Hashable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import apsw

SECTORS: Final = (512, 4096)
KEPT: Final = 0.6
"""How likely it is that a write, or a sector of one, reached the disk."""


class Write(NamedTuple):
    """Bytes written to a file at an offset."""

    file: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file made this long."""

    file: int
    size: int


class Sync(NamedTuple):
    """Everything before this is durable in a file; the first one makes the name of a new file durable too."""

    file: int


class Name(NamedTuple):
    """A file was opened under a name: it may be new. `size` bytes were in it when it was first seen."""

    file: int
    path: str
    content: bytes
    is_new: bool


class Delete(NamedTuple):
    """A name was taken away; `durable` if its folder was synced for it."""

    path: str
    durable: bool


class Mark(NamedTuple):
    """What the test wants to remember of this moment: an append was acknowledged, say."""

    what: Hashable


Operation = Write | Truncate | Sync | Name | Delete | Mark


class Recorder(apsw.VFS):
    """The default VFS as long as it is entered; `journal` holds what was done, in order."""

    def __init__(self, name: str = "recording") -> None:
        self.journal: list[Operation] = []
        self._known: dict[tuple[int, int], int] = {}
        self._files = 0
        super().__init__(name, "unix", makedefault=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def mark(self, what: Hashable) -> None:
        """Remember this moment."""
        self.journal.append(Mark(what))

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """Open a file; databases and write-ahead logs are recorded."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = path is not None and not os.path.exists(path)
        opened = _File(self, name, flags)
        if path is not None:
            opened.number = self._number(str(path), is_new)
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete a file."""
        super().xDelete(filename, syncdir)
        self.journal.append(Delete(filename, syncdir))

    def _number(self, path: str, is_new: bool) -> int:
        """A file's number: one for each inode that was seen, for names change under open files."""
        seen = os.stat(path)
        number = self._known.get((seen.st_dev, seen.st_ino))
        if number is None or is_new:
            self._files += 1
            number = self._known[seen.st_dev, seen.st_ino] = self._files
            content = Path(path).read_bytes()  # before SQLite holds any lock on it
            self.journal.append(Name(number, path, content, is_new))
        else:
            self.journal.append(Name(number, path, b"", False))
        return number


class _File(apsw.VFSFile):
    """A file that tells its recorder."""

    def __init__(self, recorder: Recorder, name: Any, flags: list[int]) -> None:
        self.recorder = recorder
        self.number = 0
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.recorder.journal.append(Write(self.number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self.recorder.journal.append(Truncate(self.number, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.recorder.journal.append(Sync(self.number))


class _Disk:
    """One file: what is durable, and what was done since."""

    def __init__(self, content: bytes, named: bool) -> None:
        self.durable = bytearray(content)
        self.pending: list[Write | Truncate] = []
        self.named = named

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending = []
        self.named = True


class Replay:
    """Goes through a journal once, forwards; `image` may be asked at each stop."""

    def __init__(self, journal: list[Operation]) -> None:
        self.at = 0
        self.marks: list[Hashable] = []
        self._journal = journal
        self._disks: dict[int, _Disk] = {}
        self._names: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def to(self, stop: int) -> None:
        """Take in the journal up to (not with) operation `stop`."""
        while self.at < stop:
            self._take(self._journal[self.at])
            self.at += 1

    def _take(self, operation: Operation) -> None:
        match operation:
            case Write() | Truncate():
                self._disks[operation.file].pending.append(operation)
            case Sync():
                self._disks[operation.file].sync()
                self._gone = {path: file for path, file in self._gone.items() if file != operation.file}
            case Name():
                if operation.file not in self._disks:
                    self._disks[operation.file] = _Disk(operation.content, not operation.is_new)
                self._names[operation.path] = operation.file
                self._gone.pop(operation.path, None)
            case Delete():
                file = self._names.pop(operation.path, None)
                if file is not None and not operation.durable:
                    self._gone[operation.path] = file
            case Mark():
                self.marks.append(operation.what)

    def image(self, path: Path, target: Path, chance: random.Random) -> str:
        """Write the database `path` and its write-ahead log to `target`, as a power loss now could leave them. Returns
        how that was drawn."""
        told = []
        for suffix in ("", "-wal"):
            name = f"{path}{suffix}"
            file = self._names.get(name, self._gone.get(name))
            if file is None:
                continue
            disk = self._disks[file]
            if not disk.named and chance.random() < 0.3:
                told.append(f"{suffix or 'main'}: the new name is lost")
                continue
            if name in self._gone and chance.random() < 0.5:
                told.append(f"{suffix or 'main'}: the deletion holds")
                continue
            content, how = power_loss(bytes(disk.durable), disk.pending, chance)
            target.with_name(target.name + suffix).write_bytes(content)
            told.append(f"{suffix or 'main'}: {how}")
        return "; ".join(told)


def power_loss(durable: bytes, pending: list[Write | Truncate], chance: random.Random) -> tuple[bytes, str]:
    """What a file may hold after a power loss: `durable`, with any part of `pending`; and how it was drawn."""
    how = chance.choice(["nothing", "all", "first", "some", "sectors", "sectors", "torn", "torn"])
    sector = chance.choice(SECTORS)
    content = bytearray(durable)
    for operation in _kept(pending, how, sector, chance):
        _apply(content, operation)
    size = chance.choice(["as written", "as written", "as synced", "as asked"])
    if size == "as synced" and len(content) > len(durable):
        del content[len(durable) :]  # the data is on the disk, and the file's length is not
    elif size == "as asked":
        asked = max([len(content), *(one.offset + len(one.data) for one in pending if isinstance(one, Write))])
        content.extend(bytes(asked - len(content)))  # the length is on the disk, and the data is not
    return bytes(content), f"{how} of {len(pending)} by {sector}, size {size}"


def _kept(pending: list[Write | Truncate], how: str, sector: int, chance: random.Random) -> Sequence[Write | Truncate]:
    """The part of what was not synced that reached the disk."""
    match how:
        case "nothing":
            return []
        case "all":
            return pending
        case "first":
            return pending[: chance.randrange(len(pending) + 1)]
        case "some":
            return [one for one in pending if chance.random() < KEPT]
        case "torn":
            return _torn(pending, chance)
        case _:
            pieces = [piece for one in pending for piece in _sectors(one, sector)]
            return [piece for piece in pieces if chance.random() < KEPT]


def _torn(pending: list[Write | Truncate], chance: random.Random) -> list[Write | Truncate]:
    """The first operations, and of the next, if it is a write, its beginning, cut at any byte."""
    if not pending:
        return []
    at = chance.randrange(len(pending))
    last = pending[at]
    if isinstance(last, Truncate):
        return pending[: at + 1]
    return [*pending[:at], Write(last.file, last.offset, last.data[: chance.randrange(len(last.data) + 1)])]


def _sectors(write: Write | Truncate, sector: int) -> list[Write | Truncate]:
    """A write in the pieces that a disk takes one by one."""
    if isinstance(write, Truncate):
        return [write]
    pieces: list[Write | Truncate] = []
    at = write.offset
    end = write.offset + len(write.data)
    while at < end:
        until = min((at // sector + 1) * sector, end)
        pieces.append(Write(write.file, at, write.data[at - write.offset : until - write.offset]))
        at = until
    return pieces


def _apply(content: bytearray, operation: Write | Truncate) -> None:
    if isinstance(operation, Truncate):
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
        return
    end = operation.offset + len(operation.data)
    if len(content) < operation.offset:
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : end] = operation.data
