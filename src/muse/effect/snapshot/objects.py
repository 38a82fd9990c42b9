"""Contents and trees in git's own form, read and written without starting git.

Only what stands in a file of its own (`objects/ab/cdef…`) is read here; None says that git has to be asked, which also
knows what is in packs and what is damaged. What is written is what git would have written, so that either can go on
with it. This module must not know a work tree, nor what a snapshot is.

An object is zlib of "KIND SIZE\\0" and its data, named by the SHA-1 of that. The data of a tree are its entries,
"MODE NAME\\0" and 20 bytes of id, in the order of their names, where a folder's name counts as if "/" followed it
(gitformat-pack(5), "tree object" in git's user manual).
"""

import hashlib
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = 0o040000
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without entries, which git knows without having it."""

TREE_BYTES_MAX: Final = 16 << 20
"""Of a larger folder git is asked."""

TREES_KEPT: Final = 64
"""Parsed trees that are kept in memory; a step reads the same ones again."""

TREES_COMPARED_MAX: Final = 512
"""Folders in which two trees differ; of more, git is asked."""


class Entry(NamedTuple):
    """What stands under a name: git's mode, and the id of the content or the folder."""

    mode: int
    id: str


class Changed(NamedTuple):
    """A path whose entries differ. None: there is none."""

    path: bytes
    before: Entry | None
    after: Entry | None


Tree = Mapping[bytes, Entry]


class Objects:
    """The objects in one folder. Raises OSError where that cannot be written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._trees: dict[str, Tree] = {}

    def is_there(self, name: str) -> bool:
        """Whether this object stands in a file of its own."""
        return os.path.exists(self._path(name))

    def content(self, name: str, bytes_max: int) -> bytes | None:
        """A content of at most that size, None for what git has to be asked."""
        return self._read(name, b"blob", bytes_max)

    def keep(self, kind: str, data: bytes) -> str:
        """Keep an object, unless it is there, and return its id. One that is there is as good as new: nobody takes it
        away as old."""
        whole, name = _named(kind, data)
        path = self._path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            _put(path, zlib.compress(whole, 1))
        return name

    def edited(self, tree: str, changes: Mapping[bytes, Entry | None]) -> str | None:
        """The tree with some paths set or (None) taken away, kept. None when git has to be asked."""
        found = self._tree(tree)
        if found is None:
            return None
        entries = dict(found)
        below: dict[bytes, dict[bytes, Entry | None]] = {}
        for path, change in changes.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = change
            elif change is not None:
                entries[name] = change
            elif (old := entries.get(name)) is not None and old.mode != FOLDER:
                del entries[name]
        for name, rests in below.items():
            old = entries.get(name)
            is_folder = old is not None and old.mode == FOLDER
            new = self.edited(old.id if old is not None and is_folder else EMPTY_TREE, rests)
            if new is None:
                return None
            if new != EMPTY_TREE:
                entries[name] = Entry(FOLDER, new)
            elif is_folder:
                del entries[name]
        return self._keep_tree(entries)

    def changed(self, before: str, after: str) -> list[Changed] | None:
        """The paths that differ between two trees. None when git has to be asked."""
        found: list[Changed] = []
        waiting = [(b"", before, after)]
        for count, (prefix, one, other) in enumerate(waiting):
            old, new = self._tree(one), self._tree(other)
            if old is None or new is None or count > TREES_COMPARED_MAX:
                return None
            for name in old.keys() | new.keys():
                was, now = old.get(name), new.get(name)
                if was == now:
                    continue
                below = (_folder(was), _folder(now))
                if below != (EMPTY_TREE, EMPTY_TREE):
                    waiting.append((prefix + name + b"/", *below))
                if (was := _file(was)) != (now := _file(now)):
                    found.append(Changed(prefix + name, was, now))
        return sorted(found)

    def _tree(self, name: str) -> Tree | None:
        if name == EMPTY_TREE:
            return {}
        if (found := self._trees.get(name)) is not None:
            return found
        data = self._read(name, b"tree", TREE_BYTES_MAX)
        return None if data is None else self._remember(name, dict(_parsed(data)))

    def _keep_tree(self, entries: dict[bytes, Entry]) -> str:
        if not entries:
            return EMPTY_TREE
        ordered = dict(sorted(entries.items(), key=_order))
        data = b"".join(b"%o %s\0%s" % (mode, name, bytes.fromhex(of)) for name, (mode, of) in ordered.items())
        kept = self.keep("tree", data)
        self._remember(kept, ordered)
        return kept

    def _remember(self, name: str, tree: Tree) -> Tree:
        if len(self._trees) >= TREES_KEPT:
            del self._trees[next(iter(self._trees))]
        self._trees[name] = tree
        return tree

    def _read(self, name: str, kind: bytes, bytes_max: int) -> bytes | None:
        try:
            with open(self._path(name), "rb") as file:
                packed = file.read()
            reader = zlib.decompressobj()
            whole = reader.decompress(packed, bytes_max + 64)
        except (OSError, zlib.error):
            return None
        head, _, data = whole.partition(b"\0")
        is_right = reader.eof and head == b"%s %d" % (kind, len(data)) and len(data) <= bytes_max
        return data if is_right and hashlib.sha1(whole, usedforsecurity=False).hexdigest() == name else None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name[2:]}"


def name_of(kind: str, data: bytes) -> str:
    """The id of an object."""
    return _named(kind, data)[1]


def _named(kind: str, data: bytes) -> tuple[bytes, str]:
    whole = f"{kind} {len(data)}\0".encode() + data
    return whole, hashlib.sha1(whole, usedforsecurity=False).hexdigest()


def _put(path: str, data: bytes) -> None:
    """A reader sees the whole or nothing, and nobody else sees it. What a kill leaves has a name that `git prune`
    knows."""
    folder = os.path.dirname(path)
    with suppress(FileExistsError):
        os.mkdir(folder)
        os.chmod(folder, 0o700)  # whatever the umask
    temporary = f"{folder}/tmp_obj_{os.getpid()}_{threading.get_ident()}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    os.replace(temporary, path)


def _parsed(data: bytes) -> Iterator[tuple[bytes, Entry]]:
    at = 0
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        yield name, Entry(int(mode, 8), data[end + 1 : end + 21].hex())
        at = end + 21


def _order(entry: tuple[bytes, Entry]) -> bytes:
    name, (mode, _) = entry
    return name + b"/" if mode == FOLDER else name


def _folder(entry: Entry | None) -> str:
    return entry.id if entry is not None and entry.mode == FOLDER else EMPTY_TREE


def _file(entry: Entry | None) -> Entry | None:
    return None if entry is None or entry.mode == FOLDER else entry
