"""Which paths a sandbox opens, keeps and hides; what a repository says of itself is believed only where it is borne
out."""

import os
import subprocess
from pathlib import Path

import pytest

from muse.effect.sandbox import Places, places_of

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


def places(workspace: Path, home: Path, muse_home: Path | None = None, more: tuple[str, ...] = ()) -> Places:
    muse_home = muse_home or home / "muse"
    environment = {"HOME": str(home)}
    return places_of(
        workspace, muse_home, muse_home / "sessions" / "s.muse", home / ".config" / "muse", environment, more
    )


def opened(found: Places) -> set[str]:
    """Writable folders other than those for temporary files, where the tests live."""
    return set(found.writable) - {*found.temporary, "/dev/shm"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not below one for temporary files, as far as the code under test can tell."""
    monkeypatch.setattr("muse.effect.sandbox.places.TEMPORARY", ())
    return tmp_path


def test_a_repository_keeps_its_hooks_and_settings(root: Path) -> None:
    work = root / "work"
    git(work, "init", "-q")
    found = places(work, root / "home")
    assert opened(found) == {str(work)}
    for name in (".muse", ".git/hooks", ".git/config", ".git/config.worktree"):
        assert str(work / name) in found.readonly
    assert found.hidden[0] == str(root / "home" / "muse")


def test_below_the_root_of_a_repository_its_git_folder_is_written_too(root: Path) -> None:
    git(root / "work", "init", "-q")
    (root / "work" / "part").mkdir()
    found = places(root / "work" / "part", root / "home")
    assert opened(found) == {str(root / "work" / "part"), str(root / "work" / ".git")}
    assert str(root / "work" / ".git" / "hooks") in found.readonly


def test_a_worktree_writes_to_the_repository_that_it_belongs_to(root: Path) -> None:
    main, tree = root / "main", root / "tree"
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "one")
    git(main, "worktree", "add", "-q", str(tree))
    found = places(tree, root / "home")
    assert opened(found) == {str(tree), str(main / ".git")}
    assert {str(tree / ".git"), str(main / ".git" / "hooks"), str(main / ".git" / "config")} <= set(found.readonly)


def test_a_submodule_writes_to_its_part_of_the_repository_around_it(root: Path) -> None:
    outer, inner = root / "outer", root / "inner"
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "one")
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(inner), "sub")
    found = places(outer / "sub", root / "home")
    assert opened(found) == {str(outer / "sub"), str(outer / ".git" / "modules" / "sub")}
    assert str(outer / ".git" / "modules" / "sub" / "hooks") in found.readonly
    assert str(outer / ".git" / "modules" / "sub" / "config") in places(outer, root / "home").readonly


@pytest.mark.parametrize("says", ["gitdir: {home}", "gitdir: {home}/.git/worktrees/x", "gitdir: /", "nothing"])
def test_a_git_file_that_points_elsewhere_opens_nothing(root: Path, says: str) -> None:
    home, work = root / "home", root / "work"
    git(home, "init", "-q")
    (home / ".git" / "worktrees" / "x").mkdir(parents=True)
    (home / ".git" / "worktrees" / "x" / "gitdir").write_text(f"{home}/other/.git\n")
    work.mkdir()
    (work / ".git").write_text(says.format(home=home) + "\n")
    assert opened(places(work, home)) == {str(work)}


def test_a_linked_git_folder_opens_nothing(root: Path) -> None:
    git(root / "elsewhere", "init", "-q")
    (root / "work").mkdir()
    (root / "work" / ".git").symlink_to(root / "elsewhere" / ".git")
    assert opened(places(root / "work", root / "home")) == {str(root / "work")}


def test_in_a_home_that_is_the_workspace_start_up_files_are_kept(root: Path) -> None:
    home = root / "home"
    home.mkdir()
    found = places(home, home)
    wanted = {str(home / name) for name in (".bashrc", ".profile", ".zshenv", ".ssh", ".gitconfig", ".config/muse")}
    assert wanted <= set(found.personal)
    assert str(home / ".config") in found.pinned(found.writable)
    assert str(home) not in found.pinned(found.writable)


def test_elsewhere_they_are_out_of_reach_anyway(root: Path) -> None:
    (root / "work").mkdir()
    assert places(root / "work", root / "home").personal == ()


def test_every_folder_above_what_is_hidden_keeps_its_name(root: Path) -> None:
    work = root / "work"
    found = places(work, root / "home", work / "a" / "b" / "muse")
    assert found.pinned([str(work)]) == [str(work / "a"), str(work / "a" / "b")]
    assert found.pinned([str(root)]) == [str(work), str(work / "a"), str(work / "a" / "b")]


def test_a_log_elsewhere_is_hidden_with_what_belongs_to_it(root: Path) -> None:
    log = root / "work" / "kept.muse"
    (root / "work").mkdir()
    found = places_of(root / "work", root / "muse", log, root / "settings", {"HOME": str(root / "home")})
    wanted = {str(log), f"{log}-wal", f"{log}-shm", str(log.with_suffix(".lock"))}
    assert wanted <= set(found.record)
    assert wanted <= set(found.hidden)


def test_more_folders_can_be_opened_by_their_user(root: Path) -> None:
    (root / "work").mkdir()
    found = places(root / "work", root / "home", more=("~/.cache/go-build", "/opt/cache"))
    assert opened(found) == {str(root / "work"), str(root / "home" / ".cache" / "go-build"), "/opt/cache"}


def test_folders_inside_others_are_named_once(root: Path) -> None:
    (root / "work" / "in").mkdir(parents=True)
    found = places(root / "work", root / "home", more=(str(root / "work" / "in"),))
    assert opened(found) == {str(root / "work")}


def test_a_workspace_inside_the_home_of_muse_can_be_worked_in(root: Path) -> None:
    muse_home = root / "muse"
    work = muse_home / "worktrees" / "one"
    work.mkdir(parents=True)
    (muse_home / "objects").mkdir()
    found = places(work, root / "home", muse_home)
    assert {str(muse_home / name) for name in ("sessions", "run", "objects")} <= set(found.record)
    assert str(muse_home / "worktrees") not in found.record
    assert opened(found) == {str(work)}


def test_missing_hooks_are_made_wherever_the_repository_would_have_them(root: Path) -> None:
    git(root / "main", "init", "-q")
    git(root / "main", "commit", "-q", "--allow-empty", "-m", "x")
    git(root / "main", "worktree", "add", "-q", str(root / "tree"))
    (root / "main" / "part").mkdir()
    hooks = str(root / "main" / ".git" / "hooks")
    for work in (root / "main", root / "main" / "part", root / "tree"):
        assert {str(work / ".muse"), hooks} <= set(places(work, root / "home").made)


def test_nothing_is_made_behind_a_link_that_stands_for_a_git_folder(root: Path) -> None:
    work, other = root / "work", root / "other"
    work.mkdir()
    other.mkdir()
    (work / ".git").symlink_to(other)
    assert places(work, root / "home").made == (str(work / ".muse"),)


def test_sockets_that_start_commands_are_hidden_where_the_environment_has_them(root: Path) -> None:
    user = os.geteuid()
    environment = {
        "HOME": str(root / "home"), "TMUX": "/opt/t/own,1234,0", "TMUX_TMPDIR": "/opt/tmux", "SCREENDIR": "/opt/screen",
        "XDG_RUNTIME_DIR": "/opt/run", "DOCKER_HOST": "unix:///opt/docker.sock",
        "DBUS_SESSION_BUS_ADDRESS": "unix:abstract=/tmp/x;unix:path=/opt/bus,guid=0",
    }  # fmt: skip
    (root / "home" / ".screen").mkdir(parents=True)
    found = places_of(root, root / "home" / "muse", root / "s.muse", root / "home" / "settings", environment)
    expected = {
        "/opt/t/own", f"/opt/tmux/tmux-{user}", "/opt/screen", "/opt/run/bus", "/opt/run/systemd", "/opt/docker.sock",
        "/opt/bus", f"/tmp/tmux-{user}", f"/run/user/{user}/bus", f"{root}/home/.screen",
    }  # fmt: skip
    assert expected <= set(found.hidden)


def test_what_is_hidden_with_its_folder_is_not_named_again(root: Path) -> None:
    folder = f"/tmp/tmux-{os.geteuid()}"
    environment = {"HOME": str(root / "home"), "TMUX": f"{folder}/default,1234,0"}
    found = places_of(root, root / "home" / "muse", root / "s.muse", root / "home" / "settings", environment)
    assert folder in found.hidden
    assert f"{folder}/default" not in found.hidden
    assert not [path for path in found.hidden if path.count("/") == 1]
    found = places_of(root, root / "muse", root / "s.muse", root / "settings", environment | {"SCREENDIR": "/tmp"})
    assert folder in found.hidden


def test_no_setting_hides_what_is_to_be_worked_in(root: Path) -> None:
    environment = {"HOME": str(root), "SCREENDIR": str(root), "TMUX": f"{root}/work,1,0", "DOCKER_HOST": "tcp://h:1"}
    found = places_of(root / "work", root / "muse", root / "s.muse", root / "settings", environment)
    assert not {str(root), str(root / "work"), "tcp://h:1"} & set(found.hidden)
