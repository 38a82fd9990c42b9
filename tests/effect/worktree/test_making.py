"""Working trees made of real repositories, hostile ones among them, and of folders; and taken away again."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from muse.effect.worktree import Made, WorktreeError, copying, discard, make, moved_on, own_commits

NAMED = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
ENTRY = "muse-s-main.1"


class World:
    """A user's repository `root`, and muse's home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.home, self.muse = folder / "shop", folder / "home", folder / "muse"
        self.root.mkdir()
        self.home.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C"}
        self.place = self.muse / "worktrees" / "s" / "main.1"

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *NAMED, *arguments], cwd=cwd or self.root, env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode()

    def begin(self, **files: str) -> None:
        self.git("init", "-q", "-b", "main")
        for name, text in files.items():
            (self.root / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "start")

    def make(self, source: Path | None = None) -> Made:
        return make(self.muse, self.place, ENTRY, source or self.root, self.environment)

    def users(self) -> dict[str, bytes]:
        """All in the user's git folder but for what belongs to worktrees."""
        top = self.root / ".git"
        found = {}
        for path in sorted(top.rglob("*")):
            if path.is_file() and "worktrees" not in path.relative_to(top).parts:
                found[str(path.relative_to(top))] = path.read_bytes()
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def files_below(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name != ".git":
            found[name] = path.read_text()
    return found


def test_a_tree_is_a_detached_worktree_of_the_head_with_all_that_is_not_committed_laid_over_it(world: World) -> None:
    world.begin(kept="one\n", changed="one\n", gone="one\n", **{".gitignore": "*.log\n"})
    (world.root / "changed").write_text("two\n")
    (world.root / "gone").unlink()
    (world.root / "staged").write_text("new\n")
    world.git("add", "staged")
    (world.root / "untracked").write_text("new\n")
    (world.root / "noise.log").write_text("x\n")
    (world.root / "script").write_text("#!/bin/sh\n")
    (world.root / "script").chmod(0o755)
    (world.root / "link").symlink_to("kept")
    before = world.users()
    made = world.make()
    assert files_below(made.tree) == {
        ".gitignore": "*.log\n", "changed": "two\n", "kept": "one\n", "link": "-> kept", "script": "#!/bin/sh\n",
        "staged": "new\n", "untracked": "new\n",
    }  # fmt: skip
    assert (made.tree / "script").stat().st_mode & 0o111
    assert made.workspace == made.tree == world.place / "shop"
    assert made.base == world.git("rev-parse", "HEAD").strip() == world.git("rev-parse", "HEAD", cwd=made.tree).strip()
    assert world.git("log", "--format=%s", cwd=made.tree) == "start\n"
    assert world.git("branch", "--show-current", cwd=made.tree) == ""
    status = world.git("status", "--porcelain", cwd=made.tree).splitlines()
    assert status == [" M changed", " D gone", "?? link", "?? script", "?? staged", "?? untracked"]
    assert str(made.tree) in world.git("worktree", "list")
    assert world.users() == before
    assert world.git("diff", "--cached", "--name-only") == "staged\n"


def test_what_a_child_commits_and_deletes_in_its_tree_leaves_the_users_files_branch_and_index_alone(
    world: World,
) -> None:
    world.begin(a="one\n", b="one\n")
    made = world.make()
    (made.tree / "a").write_text("two\n")
    world.git("add", "a", cwd=made.tree)
    world.git("commit", "-q", "-m", "own", cwd=made.tree)
    world.git("checkout", "-q", "HEAD~1", "--", ".", cwd=made.tree)
    (made.tree / "b").unlink()
    assert (world.root / "a").read_text() == (world.root / "b").read_text() == "one\n"
    assert world.git("status", "--porcelain") == ""
    assert world.git("log", "--format=%s") == "start\n"
    assert "commits of its own" in own_commits(made.tree, made.base)
    assert moved_on(world.place)


def test_commits_that_only_the_history_of_the_tree_names_count_as_its_own(world: World) -> None:
    world.begin(a="one\n")
    made = world.make()
    assert own_commits(made.tree, made.base) == ""
    assert not moved_on(world.place)
    world.git("commit", "-q", "--allow-empty", "-m", "lost", cwd=made.tree)
    world.git("reset", "-q", "--hard", made.base, cwd=made.tree)
    assert "history" in own_commits(made.tree, made.base)


def test_nothing_that_the_repository_or_the_user_configured_is_run(world: World) -> None:
    trace = world.folder / "ran"
    program = f"sh -c 'echo ran >> {trace}; cat'"
    world.begin(a="one\n", **{".gitattributes": "* filter=evil\n"})
    config = f'[filter "evil"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n'
    config += f"[core]\n\tfsmonitor = {program}\n\teditor = {program}\n\tsshCommand = {program}\n\tpager = {program}\n"
    (world.home / ".gitconfig").write_text(config)
    with (world.root / ".git" / "config").open("a") as file:
        file.write(config)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        hook = world.root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
        hook.chmod(0o755)
    trace.unlink(missing_ok=True)
    world.environment["GIT_DIR"] = "/nowhere"
    world.environment["GIT_INDEX_FILE"] = "/nowhere"
    made = world.make()
    assert not trace.exists()
    assert files_below(made.tree)["a"] == "one\n"


def test_a_link_out_of_the_repository_stays_a_link_and_nothing_is_read_through_one(world: World) -> None:
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    world.begin(a="one\n")
    (world.root / "d").mkdir()
    (world.root / "d" / "secret").write_text("tracked\n")
    world.git("add", ".")
    world.git("commit", "-q", "-m", "more")
    (world.root / "d" / "secret").unlink()
    (world.root / "d").rmdir()
    (world.root / "d").symlink_to(outside)
    made = world.make()
    assert files_below(made.tree) == {"a": "one\n", "d": f"-> {outside}"}


def test_repositories_within_are_named_and_not_taken_along(world: World) -> None:
    other = world.folder / "other"
    other.mkdir()
    world.begin(a="one\n")
    world.git("init", "-q", cwd=other)
    (other / "x").write_text("x\n")
    world.git("add", ".", cwd=other)
    world.git("commit", "-q", "-m", "x", cwd=other)
    world.git("submodule", "--quiet", "add", str(other), "sub")
    world.git("commit", "-q", "-m", "sub")
    world.git("clone", "-q", str(other), "nested")
    os.mkfifo(world.root / "pipe")
    made = world.make()
    assert set(made.left_out) >= {"nested/", "sub/"}
    assert set(files_below(made.tree)) == {".gitmodules", "a"}
    assert not (made.tree / "nested" / ".git").exists()


def test_a_sparse_checkout_stays_sparse_and_shows_no_deletions(world: World) -> None:
    world.begin(a="one\n")
    for name in ("in", "out"):
        (world.root / name).mkdir()
        (world.root / name / "f").write_text(f"{name}\n")
    world.git("add", ".")
    world.git("commit", "-q", "-m", "folders")
    world.git("sparse-checkout", "set", "in")
    made = world.make()
    assert set(files_below(made.tree)) == {"a", "in/f"}
    assert world.git("status", "--porcelain", cwd=made.tree) == ""


def test_a_tree_can_be_made_of_a_linked_worktree_and_of_a_detached_head(world: World) -> None:
    world.begin(a="one\n")
    linked = world.folder / "linked"
    world.git("worktree", "add", "-q", "--detach", str(linked))
    (linked / "b").write_text("two\n")
    made = world.make(linked)
    assert files_below(made.tree) == {"a": "one\n", "b": "two\n"}
    assert made.tree.name == "linked"
    assert len(world.git("worktree", "list").splitlines()) == 3


def test_in_a_repository_without_a_commit_what_git_does_not_ignore_is_copied(world: World) -> None:
    world.git("init", "-q")
    (world.root / "a").write_text("one\n")
    (world.root / ".gitignore").write_text("*.log\n")
    (world.root / "x.log").write_text("x\n")
    made = world.make()
    assert made.base == ""
    assert files_below(made.tree) == {".gitignore": "*.log\n", "a": "one\n"}


def test_of_a_workspace_below_the_root_the_agent_works_at_the_same_place_of_the_tree(world: World) -> None:
    world.begin(a="one\n")
    (world.root / "part").mkdir()
    (world.root / "part" / "f").write_text("f\n")
    made = world.make(world.root / "part")
    assert made.workspace == made.tree / "part"
    assert files_below(made.tree) == {"a": "one\n", "part/f": "f\n"}


def test_of_a_folder_that_is_no_repository_all_is_copied_but_git_folders_and_the_home_of_muse(world: World) -> None:
    world.muse = world.root / ".muse-home"
    world.place = world.muse / "worktrees" / "s" / "main.1"
    (world.root / "d").mkdir()
    (world.root / "d" / "f").write_text("f\n")
    (world.root / "link").symlink_to("d/f")
    nested = world.root / "nested"
    nested.mkdir()
    world.git("init", "-q", cwd=nested)
    (nested / "x").write_text("x\n")
    made = world.make()
    assert (made.base, made.tree) == ("", world.place / "shop")
    assert files_below(made.tree) == {"d/f": "f\n", "link": "-> d/f", "nested/x": "x\n"}


def test_what_is_too_much_to_copy_is_refused_and_nothing_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.begin(**{f"f{n}": "x\n" for n in range(8)})
    monkeypatch.setattr(copying, "FILES_MAX", 5)
    with pytest.raises(WorktreeError, match="more than 5 files"):
        world.make()
    assert not world.place.exists()
    assert world.git("worktree", "list").count("\n") == 1
    monkeypatch.setattr(copying, "FOLDER_BYTES_MAX", 1 << 20)
    plain = world.folder / "plain"
    plain.mkdir()
    (plain / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(WorktreeError, match="more than 1 MiB"):
        world.make(plain)


def test_a_home_folder_and_a_git_folder_are_refused(world: World) -> None:
    world.begin(a="one\n")
    with pytest.raises(WorktreeError, match="home folder"):
        world.make(world.home)
    with pytest.raises(WorktreeError, match="lies in a git folder"):
        world.make(world.root / ".git" / "info")


def test_a_tree_that_is_made_again_has_the_files_of_now(world: World) -> None:
    world.begin(a="one\n")
    world.make()
    (world.root / "a").write_text("two\n")
    made = world.make()
    assert files_below(made.tree) == {"a": "two\n"}
    assert len(world.git("worktree", "list").splitlines()) == 2


def test_an_entry_that_another_git_is_just_writing_does_not_keep_a_tree_from_being_made(world: World) -> None:
    world.begin(kept="one\n")
    half = world.root / ".git" / "worktrees" / "half"  # as `git worktree add` of somebody else leaves it for a moment
    half.mkdir(parents=True)
    (half / "gitdir").write_text(f"{world.folder}/half/.git\n")
    (half / "HEAD").write_text(world.git("rev-parse", "HEAD"))
    (half / "commondir").touch()
    writes = threading.Timer(0.1, (half / "commondir").write_text, ("../..\n",))
    writes.start()
    assert files_below(world.make().tree) == {"kept": "one\n"}
    writes.join()
    assert sorted(path.name for path in half.parent.iterdir()) == ["half", ENTRY]


def test_discarding_takes_away_only_our_own_entry_of_the_repository(world: World) -> None:
    world.begin(a="one\n")
    world.git("worktree", "add", "-q", "--detach", str(world.folder / "users"))
    made = world.make()
    (made.tree / "ro").mkdir()
    (made.tree / "ro" / "f").write_text("x")
    (made.tree / "ro").chmod(0o500)
    discard(world.place, ENTRY)
    assert not world.place.exists()
    assert [line.split()[0] for line in world.git("worktree", "list").splitlines()] == [
        str(world.root), str(world.folder / "users"),
    ]  # fmt: skip
    discard(world.place, ENTRY)


@pytest.fixture
def killed(world: World) -> Callable[[str], None]:
    """Make a tree, or take it away, in a process of its own that is killed at a failpoint."""

    def die(where: str) -> None:
        what = (
            "discard(Path(sys.argv[2]), sys.argv[3])" if where in ("worktree_going", "worktree_gone") else
            "make(*map(Path, sys.argv[1:3]), sys.argv[3], Path(sys.argv[4]), os.environ)"
        )  # fmt: skip
        code = f"import sys, os; from pathlib import Path; from muse.effect.worktree import discard, make; {what}"
        done = subprocess.run(
            [sys.executable, "-c", code, str(world.muse), str(world.place), ENTRY, str(world.root)],
            env=world.environment | {"MUSE_FAILPOINT": f"{where}:1"}, check=False, capture_output=True,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr

    return die


@pytest.mark.parametrize("where", ["worktree_begun", "worktree_added", "worktree_filled"])
def test_killed_anywhere_on_the_way_the_next_try_begins_anew(
    world: World, killed: Callable[[str], None], where: str
) -> None:
    world.begin(a="one\n")
    (world.root / "b").write_text("new\n")
    killed(where)
    made = world.make()
    assert files_below(made.tree) == {"a": "one\n", "b": "new\n"}
    assert len(world.git("worktree", "list").splitlines()) == 2
    assert sorted(os.listdir(world.root / ".git" / "worktrees")) == [ENTRY]


@pytest.mark.parametrize("where", ["worktree_going", "worktree_gone"])
def test_killed_while_it_is_taken_away_a_tree_is_gone_and_the_next_try_takes_the_rest(
    world: World, killed: Callable[[str], None], where: str
) -> None:
    """Half of one cannot be told from a tree with something in it that is nobody else's: it was kept for good."""
    world.begin(a="one\n")
    made = world.make()
    killed(where)
    assert not made.tree.exists()
    assert not moved_on(world.place)
    discard(world.place, ENTRY)
    assert not world.place.exists()
    assert not (world.root / ".git" / "worktrees").exists()


def test_a_tree_that_cannot_be_taken_away_stays_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in it that nobody may write to, whoever asks: here the system says so of all of them."""
    world.begin(a="one\n")
    made = world.make()

    def refuse(place: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(OSError, match="Read-only"):
        discard(world.place, ENTRY)
    assert files_below(made.tree) == {"a": "one\n"}
    assert own_commits(made.tree, made.base) == ""
