"""Working trees of a session that is gone: what `gc` takes and what it keeps, with real repositories."""

import subprocess
import time
from pathlib import Path

import pytest

from muse.app.leftovers import YOUNG_SECONDS, look_around, take_away
from muse.app.tree_folders import entry_name, worktree_folder
from muse.effect.worktree import make

SESSION = "20260309-090000-00aaaaaa"
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a working tree for each of three agents of a session that has no log (any more)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MUSE_HOME", str(tmp_path / "muse"))
    shop = tmp_path / "shop"
    shop.mkdir()
    git(shop, "init", "-q", "-b", "main")
    (shop / "a").write_text("one\n")
    git(shop, "add", ".")
    git(shop, *WHO, "commit", "-q", "-m", "start")
    for agent in ("main.1", "main.2", "main.3"):
        make(tmp_path / "muse", worktree_folder(SESSION) / agent, entry_name(SESSION, agent), shop)
    return shop


def later() -> float:
    return time.time() + 2 * YOUNG_SECONDS


def commit(agent: str) -> None:
    tree = worktree_folder(SESSION) / agent / "shop"
    (tree / "a").write_text("two\n")
    git(tree, *WHO, "commit", "-q", "-a", "-m", "own")


def test_of_several_trees_only_the_one_with_commits_stays(repository: Path) -> None:
    commit("main.2")
    found = look_around(later)
    folder = worktree_folder(SESSION)
    (stays,) = found.stays
    assert (stays.path, f"git worktree remove {folder / 'main.2' / 'shop'}" in stays.why) == (
        str(folder / "main.2"),
        True,
    )
    assert [one.path for one in found.leftovers] == [str(folder / "main.1"), str(folder / "main.3")]
    assert [take_away(one) for one in found.leftovers] == ["", ""]
    assert [path.name for path in folder.iterdir()] == ["main.2"]
    assert git(repository, "worktree", "list").count("\n") == 2
    assert git(folder / "main.2" / "shop", "log", "--format=%s", "-1") == "own\n"


def test_all_go_at_once_where_none_has_any_and_none_where_one_was_made_since_the_look(repository: Path) -> None:
    found = look_around(later)
    (whole,) = found.leftovers
    assert (whole.path, found.stays) == (str(worktree_folder(SESSION)), [])
    commit("main.1")
    assert take_away(whole) == "commits were made there meanwhile"
    assert git(repository, "worktree", "list").count("\n") == 4
    git(worktree_folder(SESSION) / "main.1" / "shop", "reset", "-q", "--hard", "HEAD~")
    assert take_away(whole), "the commit is still named by the history of that tree"
    assert [take_away(one) for one in look_around(later).leftovers] == ["", ""]
    assert git(repository, "worktree", "list").count("\n") == 2
