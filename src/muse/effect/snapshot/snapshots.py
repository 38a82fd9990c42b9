"""Snapshots of a workspace: the work tree, and every repository within it, each with a private folder of its own.

`take` looks and gives the look a name; `compare` says what differs between two names. The repositories within (nested
ones and submodules) are work trees of their own; the name of a snapshot that has some is that of a small file which
lists their trees. Calls block: they are for a worker thread. This module must not know sessions, calls or events.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.snapshot import compare
from muse.effect.snapshot.compare import Contents, Difference
from muse.effect.snapshot.git import Deadline, GitFailed, SnapshotError, program, user_excludes
from muse.effect.snapshot.objects import EMPTY_TREE
from muse.effect.snapshot.place import Place, key_of, unusable
from muse.effect.snapshot.repository import info_exclude, refuse_home, top_of
from muse.effect.snapshot.scan import Scan

NESTED_MAX: Final = 64
"""Repositories within a workspace that are looked at."""

TIMEOUT_SECONDS: Final = 20
"""How long one snapshot, or one comparison, may take."""


class Taken(msgspec.Struct, frozen=True):
    """A snapshot. `ignored` names what git ignores and changed since the one before; `shared`: whether another session
    works in the same folder now."""

    id: str
    ignored: tuple[bytes, ...] = ()
    shared: bool = False


class _Tree(msgspec.Struct):
    """One work tree: the workspace or a repository within it."""

    scan: Scan
    place: Place
    ignored: dict[bytes, int] | None = None


class Snapshots:
    """Snapshots of the workspace `root` (absolute, without symlinks), kept below `home` (which is no part of it, even
    where it stands within), for one owner of one session. Use from one thread at a time."""

    def __init__(
        self,
        home: Path,
        root: Path,
        owner: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        environment: Mapping[str, str] = os.environ,
        off: bool = False,
        beside: Path | None = None,
    ) -> None:
        """With `off`, every `take` is refused. `beside`: the root is a working tree that was made from that workspace,
        and shares its folder of contents; `owner` then begins with `TREE`. Such a root is looked at only while it and
        the folders above it, up to `home`, are folders, and no links that were put in their place."""
        self._home = home.resolve()
        self._folder = self._home / "snapshots"
        self._root = root
        self._owner = owner
        self._beside = beside
        below = [one for one in (root, *root.parents) if one.is_relative_to(home) and one != home]
        self._own_folders = (below or [root]) if beside is not None else []
        self._timeout = timeout_seconds
        self._environment = environment
        self._trees: dict[bytes, _Tree] = {}
        self._program = ""
        self._excludes: Path | None = None
        self._lasting: SnapshotError | None = None
        if off:
            self._lasting = SnapshotError("snapshots are switched off", hint="snapshots = true switches them on")

    def take(self) -> Taken:
        """The workspace as it is now. Raises SnapshotError; the next one then begins afresh."""
        if self._lasting is not None:
            raise self._lasting
        try:
            self._require_own_root()
            taken = self._take(Deadline(self._timeout))
            self._require_own_root()  # nor was it put there meanwhile
            return taken
        except SnapshotError as error:
            self._lasting = error if error.lasting else None
            raise
        except OSError as error:
            raise unusable(self._root, error) from error

    def compare(self, before: str, after: str, use: "Callable[[bytes, Iterator[Difference], Contents], None]") -> None:
        """Call `use` for each work tree that differs, with what stands before its paths, the differences, and a reader
        of contents. Raises SnapshotError, when `before` is gone for example."""
        deadline = Deadline(self._timeout)
        old, new = self._trees_of(before), self._trees_of(after)
        differing = []
        for name in sorted(old.keys() | new.keys()):
            one, other = old.get(name, EMPTY_TREE), new.get(name, EMPTY_TREE)
            if one != other:
                scan, prefix = self._tree(name).scan, name + b"/" if name else b""
                differing.append(compare.Compared(scan.git, scan.objects, one, other, scan.prefix, prefix))
        try:
            if old.keys() == new.keys() or len(differing) == 1:
                for tree in differing:
                    found = compare.differences(tree, deadline)
                    with compare.reading(tree.git, tree.objects, deadline) as contents:
                        use(tree.place, found, contents)
            elif differing:
                found = compare.across(differing, deadline)
                git = differing[0].git.with_objects_of(tree.git for tree in differing[1:])
                with compare.reading(git, differing[0].objects, deadline) as contents:
                    use(b"", found, contents)
        except GitFailed:
            if all(compare.has_tree(tree.git, deadline, tree.before, tree.after) for tree in differing):
                raise
            raise SnapshotError(_ANEW) from None

    def not_held(self) -> list[bytes]:
        """Of the last look, what no snapshot holds: ignored files and folders, and repositories within, of which only
        the files are held. With a slash at the end where it is a folder."""
        root = self._trees.get(b"")
        ignored = list(root.ignored or ()) if root is not None else []
        return sorted(
            [*ignored, *(name + b"/" for name, tree in self._trees.items() if name and tree.ignored is not None)]
        )

    def close(self) -> None:
        """Give up the folders of snapshots."""
        for tree in self._trees.values():
            with suppress(SnapshotError):
                tree.scan.tidy(Deadline(self._timeout))
            tree.place.close()
        self._trees.clear()

    def _require_own_root(self) -> None:
        """Whoever works in a working tree can put something else in its place: a symbolic link to what is not its own.
        Raises SnapshotError, and OSError where nothing is there."""
        for folder in self._own_folders:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise SnapshotError(
                    f"in place of the working tree's folder {folder} something else was put, a symbolic link say:"
                    " what it leads to is not looked at",
                    hint="put the folder back",
                )

    def _take(self, deadline: Deadline) -> Taken:
        if not self._program:
            refuse_home(self._root, self._environment)
            self._program = program(self._environment)
            self._excludes = user_excludes(self._program, self._root, self._environment)
        trees: dict[bytes, str] = {}
        ignored: list[bytes] = []
        waiting = [b""]
        while waiting:
            name = waiting.pop(0)
            if len(trees) > NESTED_MAX:
                raise SnapshotError(
                    f"more than {NESTED_MAX} repositories are within the workspace",
                    hint="let git ignore them, or work in one of them",
                    lasting=True,
                )
            tree = self._tree(name)
            look = tree.scan.look(deadline)
            trees[name] = look.tree
            prefix = name + b"/" if name else b""
            waiting += [prefix + path for path in look.nested]
            ignored += [prefix + path for path in _changed(tree.ignored, look.ignored)]
            tree.ignored = look.ignored
        for name in self._trees.keys() - trees.keys():  # a repository that is no more
            self._trees[name].ignored = None
        shared = any(self._trees[name].place.is_shared for name in trees)
        return Taken(self._named(trees), tuple(ignored), shared)

    def _tree(self, name: bytes) -> _Tree:
        if name not in self._trees:
            work = self._root / os.fsdecode(name) if name else self._root
            top = work if name else self._top(work)
            key = key_of(work, top)
            if self._beside is not None and not name:
                key = key_of(self._beside, top_of(self._beside))
            place = Place(self._folder / key, self._owner)
            scan = Scan(self._program, place, top, work, info_exclude(top), self._excludes, self._home)
            self._trees[name] = _Tree(scan, place)
        return self._trees[name]

    def _top(self, work: Path) -> Path:
        """The root of the repository. Of a copy that is none, its own folder: what is around muse's home has no say."""
        top = top_of(work)
        return top if self._beside is None or top.is_relative_to(self._home) else work

    # -- names -------------------------------------------------------------------------------------------------------

    def _named(self, trees: Mapping[bytes, str]) -> str:
        if len(trees) == 1:
            return trees[b""]
        text = json.dumps({os.fsdecode(name): tree for name, tree in sorted(trees.items())}).encode()
        digest = hashlib.sha256(text).hexdigest()[:40]
        path = self._list(digest)
        if not path.exists():
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            path.parent.chmod(0o700)
            temporary = path.with_name(f"{digest}.{os.getpid()}.new")
            temporary.write_bytes(text)
            temporary.chmod(0o600)
            temporary.replace(path)
        return f"{_LIST}{digest}"

    def _trees_of(self, name: str) -> dict[bytes, str]:
        if not name.startswith(_LIST):
            return {b"": name}
        try:
            found: dict[str, str] = json.loads(self._list(name.removeprefix(_LIST)).read_bytes())
        except (OSError, ValueError):
            raise SnapshotError(_ANEW) from None
        return {os.fsencode(path): tree for path, tree in found.items()}

    def _list(self, digest: str) -> Path:
        return self._tree(b"").place.folder / "lists" / digest


_LIST: Final = "list:"
_ANEW: Final = "what the files were before is gone from the folder of snapshots; from here on it is known again"


def _changed(before: Mapping[bytes, int] | None, after: Mapping[bytes, int]) -> list[bytes]:
    if before is None:
        return []
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
