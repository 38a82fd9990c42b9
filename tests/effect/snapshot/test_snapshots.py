"""What a snapshot sees, byte for byte, in every kind of workspace."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.effect.snapshot.conftest import Seen, World

FILE, PROGRAM, LINK, NONE = 0o100644, 0o100755, 0o120000, 0
MIB = 1 << 20


def tree_digest(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a folder: mode and content; links by where they lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, hashlib.sha256(data).digest())
    return found


@pytest.mark.parametrize("kind", ["no repository", "no commit", "clean", "dirty"])
def test_every_kind_of_change_is_seen_with_both_contents(world: World, kind: str) -> None:
    for name in ("changed", "deleted", "renamed", "chmod", "file", "folder/below", "linked", "staged"):
        world.write(name, f"{name}\n")
    if kind != "no repository":
        world.repository(commit=kind != "no commit")
    if kind == "dirty":
        world.write("changed", "changed\ndirty\n")
        world.write("staged", "staged twice\n")
        world.git("add", "staged")
        world.write("untracked", "u")
        (world.root / "linked").unlink()
    before = world.root.joinpath("changed").read_bytes()

    def work() -> None:
        world.write("changed", b"\0\xff")
        (world.root / "deleted").unlink()
        (world.root / "renamed").rename(world.root / "renamed2")
        (world.root / "chmod").chmod(0o755)
        (world.root / "file").unlink()
        world.write("file/in/it", "deep")
        shutil.rmtree(world.root / "folder")
        world.write("folder", "now a file")
        world.write("new/in/new folder", "")
        (world.root / "empty folder").mkdir()
        (world.root / "linked").unlink(missing_ok=True)
        (world.root / "linked").symlink_to("nowhere/at all")

    linked = (None, NONE) if kind == "dirty" else (b"linked\n", FILE)
    assert world.changed(work) == {
        b"changed": Seen(before, b"\0\xff", (FILE, FILE)),
        b"deleted": Seen(b"deleted\n", None, (FILE, NONE)),
        b"renamed": Seen(b"renamed\n", None, (FILE, NONE)),
        b"renamed2": Seen(None, b"renamed\n", (NONE, FILE)),
        b"chmod": Seen(b"chmod\n", b"chmod\n", (FILE, PROGRAM)),
        b"file": Seen(b"file\n", None, (FILE, NONE)),
        b"file/in/it": Seen(None, b"deep", (NONE, FILE)),
        b"folder/below": Seen(b"folder/below\n", None, (FILE, NONE)),
        b"folder": Seen(None, b"now a file", (NONE, FILE)),
        b"new/in/new folder": Seen(None, b"", (NONE, FILE)),
        b"linked": Seen(linked[0], b"nowhere/at all", (linked[1], LINK)),
    }


def test_what_did_not_change_has_the_same_name(world: World) -> None:
    world.write("a", "a")
    assert world.snapshots.take().id == world.snapshots.take().id
    assert world.changed(lambda: os.utime(world.root / "a", (1, 1))) == {}


def test_an_empty_workspace_is_one(world: World) -> None:
    assert world.changed(lambda: world.write("first", "1")) == {b"first": Seen(None, b"1", (NONE, FILE))}
    assert world.changed((world.root / "first").unlink) == {b"first": Seen(b"1", None, (FILE, NONE))}


def test_a_change_of_the_same_size_in_the_same_moment_is_seen(world: World) -> None:
    """File times are too coarse to tell: git has to look at the content."""
    world.write("a", "0000")
    world.snapshots.take()
    for number in range(1, 60):
        old, new = f"{number - 1:04}".encode(), f"{number:04}".encode()
        assert world.changed(lambda new=new: world.write("a", new)) == {b"a": Seen(old, new, (FILE, FILE))}  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    [b"new\nline", b"tab\t", b'"quoted"', b"back\\slash", b"*?[a]", b"-n", b":(top)x", b" ", b"\xff\xfe", b"\xc3\xa4",
     b"#x", b"!x", b".git2", b"git~1", b"a" * 255],
)  # fmt: skip
def test_names_of_all_kinds(world: World, name: bytes) -> None:
    path = os.fsencode(world.root) + b"/" + name

    def write(text: bytes) -> None:
        with open(path, "wb") as file:
            file.write(text)

    assert world.changed(lambda: write(b"1")) == {name: Seen(None, b"1", (NONE, FILE))}
    assert world.changed(lambda: write(b"22")) == {name: Seen(b"1", b"22", (FILE, FILE))}
    assert world.changed(lambda: os.unlink(path)) == {name: Seen(b"22", None, (FILE, NONE))}


def canary(world: World, name: str) -> str:
    """A program that leaves a mark when it runs."""
    path = world.home / f"{name}.sh"
    path.write_text(f"#!/bin/sh\necho ran >> '{world.home}/{name}.ran'\ncat\n")
    path.chmod(0o755)
    return str(path)


def test_nothing_of_the_user_runs_and_bytes_are_exact(world: World) -> None:
    names = ("clean", "smudge", "process", "textconv", "fsmonitor", "hook", "diff", "pager", "ssh")
    programs = {name: canary(world, name) for name in names}
    config = (
        f"[filter \"c\"]\n\tclean = {programs['clean']}\n\tsmudge = {programs['smudge']}\n\trequired = true\n"
        f"[filter \"p\"]\n\tprocess = {programs['process']}\n"
        f"[diff]\n\texternal = {programs['diff']}\n[diff \"t\"]\n\ttextconv = {programs['textconv']}\n"
        f"[core]\n\tautocrlf = true\n\tfsmonitor = {programs['fsmonitor']}\n\thooksPath = {world.home}/hooks\n"
        f"\tpager = {programs['pager']}\n\tsshCommand = {programs['ssh']}\n"
    )  # fmt: skip
    hooks = world.home / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
        shutil.copy(programs["hook"], hooks / hook)
    world.write("seen.txt", "x")
    world.repository()
    own = world.root / ".git" / "config"
    own.write_text(own.read_text() + config)
    shutil.copytree(hooks, world.root / ".git" / "hooks", dirs_exist_ok=True)
    world.home.joinpath(".gitconfig").write_text(config)
    attributes = (
        "*.c filter=c\n*.p filter=p diff=t\n*.txt text=auto eol=crlf\n*.i ident\n*.u working-tree-encoding=UTF-16\n"
    )
    world.write(".gitattributes", attributes)
    (world.root / ".git" / "info" / "attributes").write_text(attributes)
    contents = {
        "a.c": b"clean\r\nme\n", "b.p": b"process\r\n", "crlf.txt": b"one\r\ntwo\nthree\r\n", "lf.txt": b"one\ntwo\n",
        "x.i": b"$Id$ and $Id: 1234 $\n", "y.u": "\ufeffutf-16".encode("utf-16-le"),
    }  # fmt: skip

    def work() -> None:
        for name, data in contents.items():
            world.write(name, data)

    found = world.changed(work)
    assert found == {name.encode(): Seen(None, data, (NONE, FILE)) for name, data in contents.items()}
    assert world.changed(lambda: world.write("crlf.txt", b"one\ntwo\nthree\n")) == {
        b"crlf.txt": Seen(contents["crlf.txt"], b"one\ntwo\nthree\n", (FILE, FILE))
    }
    assert list(world.home.glob("*.ran")) == []


def test_the_users_repository_is_not_touched(world: World) -> None:
    world.write("a", "a")
    world.write("b", "b")
    world.repository()
    world.write("b", "stashed")
    world.git("stash")
    world.write("a", "staged")
    world.git("add", "a")
    world.write("a", "worked on")
    os.utime(world.root / "b", (1, 1))  # so that the user's own git would refresh its index
    before = tree_digest(world.root / ".git")
    found = world.changed(lambda: world.write("a", "again"))
    assert found == {b"a": Seen(b"worked on", b"again", (FILE, FILE))}
    assert tree_digest(world.root / ".git") == before
    assert world.git("stash", "list").count("\n") == 1


def test_variables_of_git_in_the_environment_change_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.repository()
    other = world.home / "other"
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_GLOBAL"):
        monkeypatch.setenv(name, str(other / name))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    assert world.changed(lambda: world.write("a", "1\r\n")) == {b"a": Seen(None, b"1\r\n", (NONE, FILE))}
    assert not other.exists()


# -- what is named and not copied --------------------------------------------------------------------------------------


def test_what_git_ignores_is_named_and_not_copied(world: World) -> None:
    """By any of the files in which a user says it."""
    world.repository()
    world.write(".gitignore", "*.log\nbuild/\n")
    (world.root / ".git" / "info" / "exclude").write_text("mine\n")
    users = world.home / "ignore me"
    users.write_text("*.tmp\n")
    world.home.joinpath(".gitconfig").write_text(f'[core]\n\texcludesFile = "{users}"\n')
    for name in ("a.log", "build/deep/out", "mine", "x.tmp", "still.log"):
        world.write(name, "1")
    first = world.snapshots.take()
    assert first.ignored == ()
    for name in ("a.log", "build/deep/out", "mine", "new.tmp", "seen"):
        world.write(name, "other")
    (world.root / "x.tmp").unlink()
    second = world.snapshots.take()
    assert second.ignored == (b"a.log", b"build/", b"mine", b"new.tmp", b"x.tmp")
    assert world.between(first, second) == {b"seen": Seen(None, b"other", (NONE, FILE))}
    assert world.snapshots.take().ignored == ()


def test_the_usual_place_for_patterns_of_the_user_counts(world: World) -> None:
    place = world.home / ".config" / "git" / "ignore"
    place.parent.mkdir(parents=True)
    place.write_text("*.bak\n")
    assert world.changed(lambda: world.write("a.bak")) == {}


def test_a_huge_file_is_named_and_not_copied(world: World) -> None:
    huge = world.write("huge", os.urandom(8 * MIB + 1))
    world.snapshots.take()
    assert sum(path.stat().st_size for path in world.muse.rglob("*")) < MIB
    note = "not copied: larger than 8 MiB"
    with huge.open("r+b") as file:
        found = world.changed(lambda: (file.write(b"x"), file.flush()))
    assert found == {b"huge": Seen(None, None, (FILE, FILE), note)}
    assert world.changed(lambda: None) == {}
    assert world.changed(lambda: world.write("huge", "small")) == {b"huge": Seen(None, b"small", (FILE, FILE), note)}
    assert world.changed(lambda: world.write("huge", bytes(9 * MIB))) == {
        b"huge": Seen(b"small", None, (FILE, FILE), note)
    }
    again = world.owner()  # which begins with that index
    assert world.changed(lambda: None, again) == {}
    assert world.changed(huge.unlink, again) == {b"huge": Seen(None, None, (FILE, NONE), note)}


def test_a_huge_file_that_becomes_a_folder_hides_nothing(world: World) -> None:
    huge = world.write("huge", bytes(9 * MIB))

    def work() -> None:
        huge.unlink()
        world.write("huge/inside", "1")

    assert world.changed(work)[b"huge/inside"] == Seen(None, b"1", (NONE, FILE))
    assert world.changed(lambda: world.write("huge/inside", "2")) == {b"huge/inside": Seen(b"1", b"2", (FILE, FILE))}


def test_pipes_and_sockets_are_no_files(world: World) -> None:
    world.write("a", "a")

    def work() -> None:
        os.mkfifo(world.root / "pipe")
        (world.root / "a").unlink()
        os.mkfifo(world.root / "a")

    assert world.changed(work) == {b"a": Seen(b"a", None, (FILE, NONE))}


def test_the_home_of_muse_is_no_part_of_the_workspace_that_it_stands_in(world: World) -> None:
    world.muse = world.root / "data [x]" / "muse"
    inside = world.owner()
    first = inside.take()
    world.write("data [x]/muse/sessions/log.muse", "grows")
    world.write("data [x]/seen", "1")
    second = inside.take()
    assert second.ignored == ()
    assert world.between(first, second, inside) == {b"data [x]/seen": Seen(None, b"1", (NONE, FILE))}


# -- repositories in repositories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_repository_within_is_looked_into(world: World, commit: bool) -> None:
    world.repository()
    world.write("in/ner/a", "1")
    world.write("in/ner/deeper/b", "1")
    world.repository(commit=commit, cwd=world.root / "in/ner/deeper")
    world.repository(commit=commit, cwd=world.root / "in/ner")
    inner = tree_digest(world.root / "in/ner/.git")

    def work() -> None:
        world.write("in/ner/a", "2")
        world.write("in/ner/deeper/b", "2")
        world.write("in/ner/new", "")
        world.write("outer", "1")

    assert world.changed(work) == {
        b"outer": Seen(None, b"1", (NONE, FILE)),
        b"in/ner/a": Seen(b"1", b"2", (FILE, FILE)),
        b"in/ner/new": Seen(None, b"", (NONE, FILE)),
        b"in/ner/deeper/b": Seen(b"1", b"2", (FILE, FILE)),
    }
    assert tree_digest(world.root / "in/ner/.git") == inner


def test_a_submodule_is_looked_into(world: World) -> None:
    source = world.home / "source"
    source.mkdir()
    (source / "s").write_text("1")
    world.repository(cwd=source)
    world.repository()
    world.git("submodule", "add", "-q", str(source), "sub")
    world.git("commit", "-q", "-m", "with it")
    modules = tree_digest(world.root / ".git")
    assert world.changed(lambda: world.write("sub/s", "2")) == {b"sub/s": Seen(b"1", b"2", (FILE, FILE))}
    assert tree_digest(world.root / ".git") == modules


def test_a_repository_that_comes_or_goes_is_seen(world: World) -> None:
    world.repository()
    source = world.home / "source"
    source.mkdir()
    (source / "s").write_text("1")
    world.repository(cwd=source)
    assert world.changed(lambda: world.git("clone", "-q", str(source), "got")) == {
        b"got/s": Seen(None, b"1", (NONE, FILE))
    }
    assert world.changed(lambda: shutil.rmtree(world.root / "got")) == {b"got/s": Seen(b"1", None, (FILE, NONE))}


def test_a_folder_that_becomes_a_repository_did_not_change(world: World) -> None:
    world.write("sub/a", "1")
    world.repository()
    assert world.changed(lambda: world.repository(cwd=world.root / "sub")) == {}
    assert world.changed(lambda: world.write("sub/a", "2")) == {b"sub/a": Seen(b"1", b"2", (FILE, FILE))}


@pytest.mark.parametrize("inner", [False, True])
def test_a_repository_that_becomes_a_folder_changed_only_where_its_files_did(world: World, inner: bool) -> None:
    world.repository()
    for name in ("sub/same", "sub/other", "sub/gone", "sub/far/deep"):
        world.write(name, name)
    world.write("sub/huge", bytes(9 << 20))
    world.repository(cwd=world.root / "sub")
    if inner:
        world.repository(cwd=world.root / "sub" / "far")

    def do() -> None:
        shutil.rmtree(world.root / "sub" / ".git")
        world.write("sub/other", "2")
        world.write("sub/new", "3")
        (world.root / "sub" / "gone").unlink()
        (world.root / "sub" / "far" / "deep").chmod(0o755)

    assert world.changed(do) == {
        b"sub/other": Seen(b"sub/other", b"2", (FILE, FILE)),
        b"sub/new": Seen(None, b"3", (NONE, FILE)),
        b"sub/gone": Seen(b"sub/gone", None, (FILE, NONE)),
        b"sub/far/deep": Seen(b"sub/far/deep", b"sub/far/deep", (FILE, PROGRAM)),
    }


def test_a_repository_that_ends_is_read_from_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / 'a:b "c" \\d'
    folder.mkdir()
    world = World(folder)
    world.repository()
    world.write("sub/a", "1")
    world.repository(cwd=world.root / "sub")

    def do() -> None:
        shutil.rmtree(world.root / "sub" / ".git")
        world.write("sub/a", "2")

    assert world.changed(do) == {b"sub/a": Seen(b"1", b"2", (FILE, FILE))}
    world.close()


@pytest.mark.parametrize("name", [".Git", "sub/.GIT/config"])
def test_a_file_of_a_name_that_git_refuses_is_named(world: World, name: str) -> None:
    world.write("a", "1")
    world.repository()
    world.snapshots.take()
    world.write(name, "1")
    assert world.snapshots.take().ignored == (name.encode(),)
    assert world.snapshots.take().ignored == ()
    world.write(name, "more")
    assert world.snapshots.take().ignored == (name.encode(),)
    (world.root / name).unlink()
    assert world.snapshots.take().ignored == (name.encode(),)


def test_a_list_of_submodules_that_becomes_a_link_is_gone_and_named(world: World) -> None:
    world.write(".gitmodules", "1")
    world.repository()
    before = world.snapshots.take()
    (world.root / ".gitmodules").unlink()
    (world.root / ".gitmodules").symlink_to("elsewhere")
    after = world.snapshots.take()
    assert world.between(before, after) == {b".gitmodules": Seen(b"1", None, (FILE, NONE))}
    assert after.ignored == (b".gitmodules",)


def test_a_worktree_is_a_workspace_and_shares_the_excludes(world: World) -> None:
    world.write("a", "1")
    world.repository()
    (world.root / ".git" / "info" / "exclude").write_text("mine\n")
    other = world.home / "other tree"
    world.git("worktree", "add", "-q", str(other), "-b", "other")
    snapshots = world.owner(root=other)

    def work() -> None:
        (other / "a").write_text("2")
        (other / "mine").write_text("ignored")
        world.write("a", "not here")

    assert world.changed(work, snapshots) == {b"a": Seen(b"1", b"2", (FILE, FILE))}


def test_a_workspace_below_the_root_of_its_repository(world: World) -> None:
    """What the repository ignores is ignored there, and what is beside it is not looked at."""
    world.repository()
    world.write(".gitignore", "/part/out\n*.log\n")
    world.write("part/a", "1")
    snapshots = world.owner(root=world.root / "part")

    def work() -> None:
        world.write("part/a", "2")
        world.write("part/out/x", "ignored")
        world.write("part/x.log", "ignored")
        world.write("beside", "elsewhere")
        world.write("part/deep/b", "1")

    assert world.changed(work, snapshots) == {
        b"a": Seen(b"1", b"2", (FILE, FILE)),
        b"deep/b": Seen(None, b"1", (NONE, FILE)),
    }
    shutil.rmtree(world.root / "part")
    (world.root / "part").mkdir()
    assert world.changed(lambda: world.write("part/c", "1"), snapshots)[b"c"] == Seen(None, b"1", (NONE, FILE))
