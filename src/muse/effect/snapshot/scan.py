"""One look at a work tree: what is new or changed goes into the private index, and the whole becomes a tree.

git lists what differs from the index; here it is decided what of that is taken in. A file that is too large or cannot
be read gets a stand-in: an entry without content (a gitlink, which needs no object) whose id is made from what `lstat`
says, so that a change of it shows. Repositories within are not entered; they are named to the caller. This module must
not know what a change is.
"""

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from muse.effect.snapshot.git import (
    Deadline,
    Git,
    GitFailed,
    SnapshotError,
    packs_in_bulk,
)  # fmt: skip
from muse.effect.snapshot.objects import Entry, Objects, name_of
from muse.effect.snapshot.place import Place, unusable

FILE_BYTES_MAX: Final = 8 << 20
"""Larger files are named when they change, and not copied."""

COPIED_BYTES_MAX: Final = 8 << 30
"""A snapshot that would have to copy more than this is not taken."""

FREE_BYTES_MIN: Final = 128 << 20
"""What has to stay free on the disk that the copies go to, or a tenth of it if that is less."""

BATCH_BYTES: Final = 256 << 20
BATCH_FILES: Final = 20_000
"""What one git command takes in, so that what is done counts when a later one fails."""

LAID_OVER_MAX: Final = 32
LAID_OVER_BYTES_MAX: Final = 1 << 20
GROWN_BYTES_MAX: Final = 64 << 10
"""What may differ from the index, for git to be spared: it is read at every look. More goes into the index. A file may
grow by so much while it is looked at."""

BULK_FILES: Final = 200
"""From so many files on they go into one pack instead of one file each."""

HANDLED_ONE_BY_ONE_MAX: Final = 64
"""How many files that git cannot take in are looked for; more, and the snapshot fails."""

EXCLUDE_BYTES_MAX: Final = 1 << 20
"""How much of a file of patterns is passed on."""

IGNORED_ENTRIES_MAX: Final = 1_000
"""How many entries of ignored folders are looked at."""

LOOSE_OBJECTS_MAX: Final = 10_000
"""With more contents than this in files of their own, old ones are taken away when an owner leaves."""

REFRESH_EVERY: Final = 32
YOUNG_SECONDS: Final = 60.0

_MARK: Final = "00000000"
_KINDS: Final = {"01": "large", "02": "unreadable"}
_NO_ROOM: Final = ("No space left", "Disk quota", "insufficient permission", "Read-only file system", "unable to write")

_STATUS: Final = (
    "status", "--porcelain", "-z", "--untracked-files=all", "--ignored=matching", "--ignore-submodules=all",
)  # fmt: skip

StandIn = Literal["large", "unreadable"]


class Look(msgspec.Struct):
    """What one look found: the tree, the repositories within (relative, without a slash at the end), and of each
    ignored file or folder something that changes when it does."""

    tree: str
    nested: tuple[bytes, ...]
    ignored: dict[bytes, int]


class _Sorted(msgspec.Struct):
    taken: list[tuple[bytes, int]] = []
    stand_ins: dict[bytes, str] = {}
    gone: list[bytes] = []
    nested: list[bytes] = []
    ignored: list[bytes] = []
    is_astray: bool = False


def stand_in(oid: str) -> StandIn | None:
    """What an entry without content stands for, None if it is no stand-in."""
    kind = _KINDS.get(oid[8:10]) if oid.startswith(_MARK) else None
    return "large" if kind == "large" else "unreadable" if kind == "unreadable" else None


class Scan:
    """Looks at one work tree, again and again, for one owner."""

    def __init__(
        self,
        program: str,
        place: Place,
        top: Path,
        work: Path,
        excludes: Path | None = None,
        users: Path | None = None,
        without: Path | None = None,
    ) -> None:
        """`top` is the root of the repository that `work` belongs to, or `work`; `excludes` and `users` are the files
        of patterns of that repository and of the user, if there are such; `without` is a folder that is left out."""
        self._git = Git(program, place.git_folder, place.objects, top, work)
        self.git = Git(program, place.git_folder, place.objects, place.git_folder, place.git_folder)
        """For comparing trees, also of a work tree that is no more."""
        self.objects = Objects(place.objects)
        """For the same without starting git."""
        self._program = program
        self._place = place
        self._work = work
        self._prefix = os.fsencode(os.path.relpath(work, top)) + b"/" if work != top else b""
        self._excludes = excludes
        self._users = users
        self._without = b""
        if without is not None and without.is_relative_to(top) and without != top:
            self._without = os.fsencode(without.relative_to(top)) + b"/"
        self._base = ""
        self._laid: tuple[str, dict[bytes, Entry | None], str] = ("", {}, "")
        self._looks = 0
        self._young_until = 0.0
        self._stand_ins: dict[bytes, str] = {}

    @property
    def prefix(self) -> bytes:
        """What stands before the paths of trees."""
        return self._prefix

    def look(self, deadline: Deadline) -> Look:
        """The work tree as it is. Raises SnapshotError; then nothing is known, and the next look begins afresh."""
        known, self._base = self._base, ""
        try:
            self._place.unlock()
            if not self._place.is_whole():
                self._place.forget()
                known = ""
            elif known and not self.objects.is_there(known):
                known = ""
            try:
                found, tree = self._looked(known, deadline)
            except GitFailed as error:
                if _is_no_room(error):
                    self._prune(deadline, "now")
                    raise
                # An index that cannot be read, say, or one that names contents which are gone: begin anew, once.
                self._place.forget()
                found, tree = self._looked("", deadline)
        except OSError as error:
            raise unusable(self._work, error) from error
        return Look(tree, tuple(found.nested), self._signatures(found.ignored))

    def _looked(self, known: str, deadline: Deadline) -> tuple[_Sorted, str]:
        if not known:
            self._stand_ins = self._stand_ins_there(deadline)
        self._uncover(deadline)
        found = self._listed(deadline)
        if known and not found.is_astray and (tree := self._laid_over(known, found)):
            self._base = known
            return found, tree
        if self._take_in(found, deadline) or found.is_astray or not known:
            known = self._git.run(deadline, "write-tree").decode().strip()
            self._place.point_at(known)
        self._base = known
        return found, known

    def _laid_over(self, base: str, found: _Sorted) -> str:
        """The tree of the index with the few small files laid over it that differ; "" when these are to go into the
        index: they are too many or too large, or hold what only git can tell. The index stays as it is, so that a step
        which changes a file starts no more commands than one which changes none."""
        stand_ins = any(self._stand_ins.get(path) != oid for path, oid in found.stand_ins.items())
        covered = any(path in self._stand_ins for path in (*found.gone, *(path for path, _ in found.taken)))
        size = sum(size for _, size in found.taken)
        if stand_ins or covered or len(found.taken) + len(found.gone) > LAID_OVER_MAX or size > LAID_OVER_BYTES_MAX:
            return ""
        if not found.taken and not found.gone:
            return base
        self._require_room(size)
        changes: dict[bytes, Entry | None] = {self._prefix + path: None for path in found.gone}
        contents: list[bytes] = []
        try:
            for path, length in found.taken:
                mode, data = _content(os.fsencode(self._work) + b"/" + path, length)
                changes[self._prefix + path] = Entry(mode, name_of("blob", data))
                contents.append(data)
            before, same, tree = self._laid
            if (before, same) != (base, changes) or not self.objects.is_there(tree):
                for data in contents:
                    self.objects.keep("blob", data)
                tree = self.objects.edited(base, changes) or ""
            self._laid = (base, changes, tree)
            return tree
        except OSError:
            return ""  # it vanished, say, or the disk is full: git will tell

    def _stand_ins_there(self, deadline: Deadline) -> dict[bytes, str]:
        """The stand-ins in the index."""
        if not (self._place.git_folder / "index").exists():
            return {}
        lines = self._git.run(deadline, "ls-files", "-z", "-s").split(b"\0")
        return {line.partition(b"\t")[2]: line[7:47].decode() for line in lines if line.startswith(b"160000 ")}

    def _uncover(self, deadline: Deadline) -> None:
        """Remove stand-ins where there is a folder now: git would take each for a repository, and look no further."""
        work = os.fsencode(self._work) + b"/"
        covering = [path for path in self._stand_ins if os.path.isdir(work + path) and not os.path.islink(work + path)]
        if covering:
            self._git.run(deadline, "update-index", "-z", "--index-info", data=self._removals(covering))
            for path in covering:
                del self._stand_ins[path]

    def _entry(self, path: bytes, oid: str) -> bytes:
        return b"160000 " + oid.encode() + b"\t" + self._prefix + path + b"\0"

    def _removals(self, paths: list[bytes]) -> bytes:
        return b"".join(b"0 " + b"0" * 40 + b"\t" + self._prefix + path + b"\0" for path in paths)

    def tidy(self, deadline: Deadline) -> None:
        """Take away old contents that no index needs, when there are many. Raises SnapshotError."""
        with suppress(OSError):
            if len(os.listdir(self._place.objects / "17")) > LOOSE_OBJECTS_MAX // 256:
                self._prune(deadline, "2.weeks.ago")

    def _prune(self, deadline: Deadline, expire: str) -> None:
        if not self._place.others:
            with suppress(GitFailed):
                self.git.run(deadline, "prune", f"--expire={expire}")

    # -- what differs ------------------------------------------------------------------------------------------------

    def _listed(self, deadline: Deadline) -> _Sorted:
        """What differs from the index, is not in it, or is ignored. One command that costs what the user's own
        `git status` does; now and then it brings the index up to date where only times changed."""
        self._pass_on_excludes()
        named = ("-c", f"core.excludesFile={self._users}") if self._users is not None else ()
        part = ("--", ".") if self._prefix else ()
        locks = () if self._is_to_refresh() else ("--no-optional-locks",)
        output = self._git.run(deadline, *locks, *named, *_STATUS, *part)
        found = _Sorted()
        paths: dict[bytes, None] = dict.fromkeys(self._stand_ins)
        for line in output.split(b"\0"):
            # Does the index differ from the tree that it became? Then somebody has changed it.
            found.is_astray = found.is_astray or line[:1] not in (b" ", b"?", b"!", b"")
            path = line[3 + len(self._prefix) :]
            if line.startswith(b"!! "):
                if line[3:] == self._without:
                    continue
                found.ignored.append(path)
            elif line[1:2] not in (b" ", b""):
                paths[path] = None
        self._sort_all(found, paths)
        return found

    def _is_to_refresh(self) -> bool:
        """Whether git may write the index while it looks, so that it need not compare contents again and again: of
        files that are as young as the index, which are many after a large change, or whose times alone changed."""
        self._looks += 1
        return self._looks % REFRESH_EVERY == 0 or time.monotonic() < self._young_until

    def _pass_on_excludes(self) -> None:
        """Copy the patterns that stand in the user's git folder to where git looks for them in ours."""
        patterns = b""
        if self._excludes is not None:
            with suppress(OSError), self._excludes.open("rb") as file:
                patterns = file.read(EXCLUDE_BYTES_MAX)
        if self._without:
            patterns += b"\n/" + re.sub(rb"([\\\\*?\[\]!#])", rb"\\\1", self._without) + b"\n"
        self._place.exclude(patterns)

    def _sort_all(self, found: _Sorted, paths: dict[bytes, None]) -> None:
        work = os.fsencode(self._work)
        links: dict[bytes, bool] = {}
        for path in paths:
            if path.endswith(b"/"):
                found.nested.append(path[:-1])
                continue
            if _is_below_link(path.rpartition(b"/")[0], work, links):
                found.gone.append(path)
                continue
            try:
                seen = os.lstat(work + b"/" + path)
            except (FileNotFoundError, NotADirectoryError):
                found.gone.append(path)
                continue
            except OSError:
                found.stand_ins[path] = _stand_in("02", None)
                continue
            self._sort(found, path, seen, work)

    def _sort(self, found: _Sorted, path: bytes, seen: os.stat_result, work: bytes) -> None:
        if _is_refused(self._prefix + path, stat.S_ISLNK(seen.st_mode)):
            found.ignored.append(path)
            found.gone.append(path)  # it may have been a file that git takes
        elif stat.S_ISREG(seen.st_mode):
            if seen.st_size > FILE_BYTES_MAX:
                found.stand_ins[path] = _stand_in("01", seen)
            elif not os.access(work + b"/" + path, os.R_OK):
                found.stand_ins[path] = _stand_in("02", seen)
            else:
                found.taken.append((path, seen.st_size))
        elif stat.S_ISLNK(seen.st_mode):
            found.taken.append((path, seen.st_size))
        else:  # a folder where a file was (its files are listed too), or a pipe, a socket, a device
            found.gone.append(path)

    # -- taking it in ------------------------------------------------------------------------------------------------

    def _take_in(self, found: _Sorted, deadline: Deadline) -> bool:
        """Bring the index up to date; whether anything was to be done."""
        self._require_room(sum(size for _, size in found.taken))
        stand_ins = {path: oid for path, oid in found.stand_ins.items() if self._stand_ins.get(path) != oid}
        data = self._removals([*found.gone, *stand_ins])
        data += b"".join(self._entry(path, oid) for path, oid in stand_ins.items())
        if data:
            self._git.run(deadline, "update-index", "-z", "--index-info", data=data)
            for path in found.gone:
                self._stand_ins.pop(path, None)
            self._stand_ins |= stand_ins
        if len(found.taken) >= BULK_FILES:
            self._young_until = time.monotonic() + YOUNG_SECONDS
        for batch in _batches(found.taken):
            self._add(batch, deadline)
        return bool(data or found.taken)

    def _add(self, paths: list[bytes], deadline: Deadline, tries: list[int] | None = None) -> None:
        """Take files in. One that git cannot take is found by halves: it vanished, or was cut while git had it mapped,
        which kills git by SIGBUS."""
        tries = [HANDLED_ONE_BY_ONE_MAX] if tries is None else tries
        bulk = ("-c", "core.bigFileThreshold=1") if len(paths) >= BULK_FILES and packs_in_bulk(self._program) else ()
        data = b"\0".join(paths) + b"\0"
        try:
            self._git.run(deadline, *bulk, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", data=data)
        except GitFailed as error:
            self._place.unlock()
            if _is_no_room(error) or tries[0] <= 0:
                raise
            if len(paths) == 1:
                tries[0] -= 1
                self._stand_in_for(paths[0], deadline)
                return
            middle = len(paths) // 2
            self._add(paths[:middle], deadline, tries)
            self._add(paths[middle:], deadline, tries)
        else:
            for path in paths:
                self._stand_ins.pop(path, None)

    def _stand_in_for(self, path: bytes, deadline: Deadline) -> None:
        """A file that git could not take in, though it looked as if: by its stand-in, or not at all if it is gone."""
        try:
            seen = os.lstat(os.fsencode(self._work) + b"/" + path)
        except OSError:
            return
        oid = _stand_in("02", seen)
        data = self._removals([path]) + self._entry(path, oid)
        self._git.run(deadline, "update-index", "-z", "--index-info", data=data)
        self._stand_ins[path] = oid

    def _require_room(self, size: int) -> None:
        if size > COPIED_BYTES_MAX:
            raise SnapshotError(
                f"{size >> 30} GiB would have to be copied to remember what the files are",
                hint="let git ignore what need not be recorded, or work in a smaller folder",
                lasting=True,
            )
        disk = shutil.disk_usage(self._place.folder)
        if size and disk.free - size < min(FREE_BYTES_MIN, disk.total // 10):
            raise SnapshotError(
                "there is too little free space to copy the files that changed",
                hint="free some space where MUSE_HOME is",
            )

    # -- what git ignores --------------------------------------------------------------------------------------------

    def _signatures(self, paths: list[bytes]) -> dict[bytes, int]:
        """Of each ignored file or folder a number that changes when it does, within a limit of entries."""
        work, left = os.fsencode(self._work), [IGNORED_ENTRIES_MAX]
        found: dict[bytes, int] = {}
        for path in paths[:IGNORED_ENTRIES_MAX]:
            with suppress(OSError):
                found[path] = hash(tuple(_signature(work + b"/" + path.rstrip(b"/"), left)))
        return found


def _signature(path: bytes, left: list[int]) -> Iterator[tuple[bytes, int, int, int]]:
    """What `lstat` says of a path and, folder by folder, of what is in it, until the limit is used up."""
    waiting = [path]
    while waiting and left[0] > 0:
        here = waiting.pop(0)
        left[0] -= 1
        seen = os.lstat(here)
        yield here, seen.st_size, seen.st_mtime_ns, seen.st_ino
        if stat.S_ISDIR(seen.st_mode):
            with suppress(OSError):
                waiting += sorted(entry.path for entry in os.scandir(here))[: left[0]]


def _is_below_link(folder: bytes, work: bytes, known: dict[bytes, bool]) -> bool:
    """Whether a folder of the work tree is a link by now, or stands below one; `known` keeps what was found."""
    if not folder:
        return False
    if folder not in known:
        above = _is_below_link(folder.rpartition(b"/")[0], work, known)
        known[folder] = above or os.path.islink(work + b"/" + folder)
    return known[folder]


def _content(path: bytes, length: int) -> tuple[int, bytes]:
    """git's mode of a file or link, and its content, which is not much longer than a moment before. Raises OSError."""
    seen = os.lstat(path)
    if stat.S_ISLNK(seen.st_mode):
        return 0o120000, os.readlink(path)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        seen = os.fstat(fd)
        data = file.read(length + GROWN_BYTES_MAX + 1)
    if not stat.S_ISREG(seen.st_mode) or len(data) > length + GROWN_BYTES_MAX:
        raise OSError("it is no file any more, or grew meanwhile")
    return 0o100755 if seen.st_mode & 0o100 else 0o100644, data


def _is_refused(path: bytes, is_link: bool) -> bool:
    """Whether no index takes such an entry (git's `verify_path`): `.git` in any case, and links named `.gitmodules`."""
    parts = path.lower().split(b"/")
    return b".git" in parts or (is_link and b".gitmodules" in parts)


def _stand_in(kind: str, seen: os.stat_result | None) -> str:
    what = () if seen is None else (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_mode)
    return f"{_MARK}{kind}{hashlib.sha1(repr(what).encode(), usedforsecurity=False).hexdigest()[:30]}"


def _is_no_room(error: GitFailed) -> bool:
    """Whether it is the folder of snapshots that could not be written to."""
    return any(word in str(error) for word in _NO_ROOM)


def _batches(files: list[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for path, length in files:
        batch.append(path)
        size += length
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
