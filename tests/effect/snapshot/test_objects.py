"""Trees and contents that are read and written without git: git itself is the oracle."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.snapshot.objects import EMPTY_TREE, Changed, Entry, Objects

FILE, PROGRAM, LINK, GITLINK = 0o100644, 0o100755, 0o120000, 0o160000
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


class Oracle:
    """A bare repository in which git does the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "--bare", ".")
        self.objects = Objects(folder / "objects")

    def git(self, *arguments: str, data: bytes = b"") -> bytes:
        done = subprocess.run(["git", *arguments], cwd=self.folder, env=ENVIRONMENT, input=data, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tree(self, files: dict[bytes, Entry]) -> str:
        """The tree of these files, through git's index."""
        (self.folder / "index").unlink(missing_ok=True)
        lines = [b"%o %s\t%s\0" % (entry.mode, entry.id.encode(), path) for path, entry in files.items()]
        self.git("update-index", "--add", "-z", "--index-info", data=b"".join(lines))
        return self.git("write-tree", "--missing-ok").decode().strip()

    def differences(self, before: str, after: str) -> list[Changed]:
        fields = self.git("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")
        found = []
        for head, path in zip(fields[0::2], fields[1::2], strict=False):
            old_mode, new_mode, old, new, _ = head[1:].decode().split(" ")
            entries = [Entry(int(mode, 8), of) if int(mode, 8) else None for mode, of in
                       ((old_mode, old), (new_mode, new))]  # fmt: skip
            found.append(Changed(path, *entries))
        return sorted(found, key=lambda one: one.path)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(tmp_path_factory.mktemp("objects"))


NAMES = st.sampled_from([b"a", b"a.b", b"a-", b"a0", b"b", b"\xff", b"A"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
ENTRIES = st.builds(Entry, st.sampled_from([FILE, PROGRAM, LINK, GITLINK]), st.sampled_from(["1" * 40, "2" * 40]))


def without_clashes(files: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """As in a real folder: what is a file has nothing below it."""
    return {path: entry for path, entry in files.items() if not any(path.startswith(one + b"/") for one in files)}


FILES = st.dictionaries(PATHS, ENTRIES, max_size=6).map(without_clashes)


@given(before=FILES, after=FILES)
@settings(max_examples=60, deadline=None)
def test_a_tree_that_is_edited_into_another_is_gits_and_differs_as_git_says(
    oracle: Oracle, before: dict[bytes, Entry], after: dict[bytes, Entry]
) -> None:
    changes = {path: after.get(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    old, new = oracle.tree(before), oracle.tree(after)
    oracle.git("read-tree", "--empty")
    assert oracle.objects.edited(old, changes) == new
    assert oracle.objects.changed(old, new) == oracle.differences(old, new)
    assert Objects(oracle.folder / "objects").changed(new, old) == oracle.differences(new, old)


def test_what_is_kept_git_reads(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    for data in (b"", b"text\n", b"\0\xff" * 5000):
        name = oracle.objects.keep("blob", data)
        assert name == oracle.git("hash-object", "--stdin", data=data).decode().strip()
        assert oracle.git("cat-file", "blob", name) == data
        assert oracle.objects.content(name, 1 << 20) == data
    tree = oracle.objects.edited(EMPTY_TREE, {b"x/y": Entry(FILE, name), b"x/z": Entry(LINK, name)})
    assert tree is not None
    assert oracle.git("ls-tree", "-r", "--format=%(objectmode) %(path)", tree) == b"100644 x/y\n120000 x/z\n"
    oracle.git("fsck", "--strict")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "objects").glob("??/*"))


def test_what_is_there_already_is_made_young_again(tmp_path: Path) -> None:
    """Old contents that nothing names are taken away; one that is wanted again is not old."""
    oracle = Oracle(tmp_path)
    name = oracle.objects.keep("blob", b"text")
    path = tmp_path / "objects" / name[:2] / name[2:]
    os.utime(path, (1, 1))
    oracle.objects.keep("blob", b"text")
    oracle.git("prune", "--expire=2.weeks.ago")
    assert path.exists()


def test_what_git_has_to_be_asked_is_none(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    name = oracle.objects.keep("blob", b"text" * 100)
    assert oracle.objects.content(name, 399) is None, "too large"
    path = tmp_path / "objects" / name[:2] / name[2:]
    whole = path.read_bytes()
    other = oracle.objects.keep("blob", b"other")
    for damaged in (b"", whole[:-3], b"\xff" + whole[1:], (tmp_path / "objects" / other[:2] / other[2:]).read_bytes()):
        path.write_bytes(damaged)
        assert oracle.objects.content(name, 1 << 20) is None
    tree = oracle.objects.edited(EMPTY_TREE, {b"x/y": Entry(FILE, other)})
    assert tree is not None
    assert oracle.objects.content(tree, 1 << 20) is None, "a tree is no content"
    oracle.git("pack-objects", "-q", "objects/pack/pack", data=f"{tree}\n{other}\n".encode())
    oracle.git("prune-packed")
    fresh = Objects(tmp_path / "objects")
    assert fresh.content(other, 1 << 20) is None
    assert fresh.edited(tree, {b"a": None}) is None
    assert fresh.changed(tree, EMPTY_TREE) is None
