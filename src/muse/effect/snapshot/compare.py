"""What differs between two trees, with the contents of both sides, one path at a time.

Contents are read from git as they are asked for, a bounded number at once, so that a change of ten thousand files does
not stand in memory. This module must not know where trees come from, nor who changed what.
"""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import msgspec

from muse.effect.snapshot.git import Deadline, Git, GitFailed, process_output
from muse.effect.snapshot.objects import EMPTY_TREE, Entry, Objects
from muse.effect.snapshot.scan import FILE_BYTES_MAX, stand_in

ASKED_AT_ONCE: Final = 64
"""Objects that git is asked for before their contents are read: what is asked fits into a pipe."""

TOO_LARGE: Final = f"not copied: larger than {FILE_BYTES_MAX >> 20} MiB"
UNREADABLE: Final = "not copied: it could not be read"
TOO_MUCH: Final = "not copied: together the changes are too large"
GONE: Final = "the content of before is gone from the folder of snapshots"

_NOTHING: Final = "0" * 40
_NO_ENTRY: Final = Entry(0, _NOTHING)
_NOTES: Final = {"large": TOO_LARGE, "unreadable": UNREADABLE}


class Difference(msgspec.Struct, frozen=True):
    """One path that differs. Modes are git's (0o100644, 0o100755, 0o120000 for a symbolic link, whose content is where
    it leads; 0: there is nothing); an id names a content. `note` says why there is no content."""

    path: bytes
    before_mode: int
    after_mode: int
    before_id: str
    after_id: str
    note: str = ""


class Contents:
    """Reads contents by id: itself where it can, and by a git that is started when the first one needs it. `content`
    gives None for one that is not there, or is too large."""

    def __init__(self, objects: Objects, start: "Callable[[], subprocess.Popen[bytes]]") -> None:
        self._objects = objects
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None

    def fetch(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        """The contents, in order. Each is read before the next."""
        for start in range(0, len(ids), ASKED_AT_ONCE):
            part = ids[start : start + ASKED_AT_ONCE]
            there = {one for one in part if self._objects.is_there(one)}
            if len(there) < len(part):
                self._ask([one for one in part if one not in there])
            for one in part:
                data = self._objects.content(one, FILE_BYTES_MAX) if one in there else self._answer()
                yield one, data

    def close(self) -> None:
        """Nothing more is asked."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _ask(self, ids: list[str]) -> None:
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{one}\n" for one in ids).encode())
        self._process.stdin.flush()

    def _answer(self) -> bytes | None:
        assert self._process is not None
        out = self._process.stdout
        assert out is not None
        words = out.readline().split()
        if len(words) != 3:
            if not words:
                raise GitFailed("git cat-file ended early")
            return None
        size = int(words[2])
        if size > FILE_BYTES_MAX:
            for left in range(size, 0, -FILE_BYTES_MAX):
                out.read(min(left, FILE_BYTES_MAX))
            out.read(1)
            return None
        data = out.read(size)
        out.read(1)
        if len(data) != size:
            raise GitFailed("git cat-file ended early")
        return data


class Compared(NamedTuple):
    """One work tree at two moments: what reads it, with git or without, its trees, what stands before its paths in
    these, and what stands before them in the workspace."""

    git: Git
    objects: Objects
    before: str
    after: str
    prefix: bytes
    place: bytes


def differences(one: Compared, deadline: Deadline) -> Iterator[Difference]:
    """The paths that differ, in git's order, without `place`. Raises GitFailed when a tree is not there."""
    return (_difference(*entry) for entry in _entries(one, deadline))


def across(trees: Iterable[Compared], deadline: Deadline) -> Iterator[Difference]:
    """The paths that differ in any of several trees, each once and with `place`: what left one of them and is in
    another one, because a repository began or ended around it, differs only if it is not the same there. Raises
    GitFailed when a tree is not there."""
    found: dict[bytes, _Entry] = {}
    for tree in trees:
        for entry in _entries(tree, deadline):
            path = tree.place + entry.path
            other = found.pop(path, _Entry(path, 0, 0, _NOTHING, _NOTHING))
            gone, come = (other, entry) if other.old_mode else (entry, other)
            if not other.old_mode and not other.new_mode:
                found[path] = entry._replace(path=path)
            elif (gone.old_mode, gone.old) != (come.new_mode, come.new):
                found[path] = _Entry(path, gone.old_mode, come.new_mode, gone.old, come.new)
    return (_difference(*entry) for entry in found.values())


class _Entry(NamedTuple):
    path: bytes
    old_mode: int
    new_mode: int
    old: str
    new: str


def _entries(tree: Compared, deadline: Deadline) -> Iterator[_Entry]:
    if (found := tree.objects.changed(tree.before, tree.after)) is not None:
        for path, old, new in found:
            was, now = old or _NO_ENTRY, new or _NO_ENTRY
            yield _Entry(path[len(tree.prefix) :], was.mode, now.mode, was.id, now.id)
        return
    with tree.git.started(deadline, "diff-tree", "-r", "-z", "--no-renames", tree.before, tree.after) as process:
        output = process_output(process)
    yield from _parsed(output, tree.prefix)


def _parsed(output: bytes, prefix: bytes) -> Iterator[_Entry]:
    fields = output.split(b"\0")
    for head, path in zip(fields[0::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = head[1:].decode().split(" ", 4)
        yield _Entry(path[len(prefix) :], int(old_mode, 8), int(new_mode, 8), old, new)


def has_tree(git: Git, deadline: Deadline, *trees: str) -> bool:
    """Whether these trees are there."""
    try:
        for tree in trees:
            if tree != EMPTY_TREE:
                git.run(deadline, "cat-file", "-e", f"{tree}^{{tree}}")
    except GitFailed:
        return False
    return True


@contextmanager
def reading(git: Git, objects: Objects, deadline: Deadline) -> Iterator[Contents]:
    """A reader of contents. Raises SnapshotError."""
    with ExitStack() as stack:

        def start() -> "subprocess.Popen[bytes]":
            return stack.enter_context(git.started(deadline, "cat-file", "--batch", takes_input=True))

        contents = Contents(objects, start)
        yield contents
        contents.close()


def _difference(path: bytes, old_mode: int, new_mode: int, old: str, new: str) -> Difference:
    kinds = [kind for kind in (stand_in(new), stand_in(old)) if kind is not None]
    return Difference(
        path=path,
        before_mode=_file_mode(old_mode),
        after_mode=_file_mode(new_mode),
        before_id="" if old == _NOTHING or stand_in(old) else old,
        after_id="" if new == _NOTHING or stand_in(new) else new,
        note=_NOTES[kinds[0]] if kinds else "",
    )


def _file_mode(mode: int) -> int:
    """git's mode; that of a stand-in, which says nothing of the file, as one of a plain file."""
    return 0o100644 if mode == 0o160000 else mode
