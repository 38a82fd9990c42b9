"""Which folders a command may write to, what in them stays as it is, and what it must not even see.

Paths only: nothing here knows which part of the system enforces it. Whatever a repository says about itself (where its
git folder is) was written by somebody else, so it counts only where the other side says the same.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

CHILDREN_MAX: Final = 200
"""How many submodules and worktrees of a repository, or entries of a home of muse, are looked at."""
GIT_FILE_BYTES_MAX: Final = 8192

TEMPORARY: Final = ("/tmp", "/var/tmp")
_SHARED_MEMORY: Final = "/dev/shm"
_RECORDS: Final = ("sessions", "run", "snapshots", "archive", "cache", "removed", "chat_history")
_START_UP: Final = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".pam_environment",
    ".inputrc", ".gitconfig", ".ssh", ".config/git", ".config/fish", ".config/systemd", ".config/autostart",
    ".local/share/systemd",
)  # fmt: skip
"""What runs, or says what is run, when its user logs in, opens a shell or calls git or ssh."""
_GIT_KEPT: Final = ("hooks", "config", "config.worktree")
_DOORS: Final = (
    "/run/docker.sock", "/run/podman", "/run/containerd", "/run/dbus/system_bus_socket", "/run/systemd/private",
    "/run/screen", "/tmp/tmux-{user}", "/tmp/zellij-{user}", "/tmp/emacs{user}",
)  # fmt: skip
"""Sockets of services that start commands for whoever asks, outside every sandbox."""
_DOORS_OF_USER: Final = ("bus", "systemd", "podman", "docker.sock", "tmux-{user}", "zellij", "emacs")
"""The same, in the folder for what a user runs."""
_DOORS_AT_HOME: Final = (".screen", ".docker/run/docker.sock", ".docker/desktop/docker.sock", ".emacs.d/server")
_ADDRESSES: Final = ("DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST")


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What the paths of a session come to; all absolute, symlinks resolved where they exist.

    `writable`: folders, the workspace first. `temporary`: those of them that are only for temporary files. `readonly`
    and `hidden`: see `confine.Plan`; `record`: the part of `hidden` that holds this session's record and those of
    others; `personal`: the part of `readonly` that is the user's (start-up files, settings) and no repository's;
    `more`: the part of `writable` that the user named. `guarded`: folders inside writable ones that stay as they are as
    a whole, but for what in them is writable `again`.
    """

    workspace: str
    writable: tuple[str, ...]
    temporary: tuple[str, ...]
    readonly: tuple[str, ...]
    hidden: tuple[str, ...]
    record: tuple[str, ...]
    personal: tuple[str, ...]
    more: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def made(self) -> tuple[str, ...]:
        """Folders that are made when they are missing, since what does not exist cannot be kept as it is."""
        hooks = dict.fromkeys((os.path.join(self.workspace, ".git", "hooks"), *self.readonly))
        return (os.path.join(self.workspace, ".muse"), *(path for path in hooks if _is_for_hooks(path)))

    def pinned(self, writable: Iterable[str]) -> list[str]:
        """Folders inside writable ones that lead to what is kept or hidden: were one renamed, another could be put in
        its place, with other things in it."""
        found: set[str] = set()
        for root in writable:
            for path in (self.workspace, *self.readonly, *self.hidden, *self.guarded):
                if path != root and is_inside(path, root):
                    parents = [path] if path == self.workspace else []
                    parents += [str(one) for one in Path(path).parents if one != Path(root)]
                    found.update(one for one in parents if is_inside(one, root))
        return sorted(found, key=lambda path: (path.count("/"), path))


def places_of(
    workspace: Path, muse_home: Path, log: Path, settings: Path, environment: Mapping[str, str],
    more: tuple[str, ...] = (),
) -> Places:  # fmt: skip
    """The places of a session. `settings` is the folder of the user's settings, `more` are folders that the user lets
    commands write to besides."""
    root = os.path.realpath(workspace)
    home = os.path.realpath(environment.get("HOME") or os.path.expanduser("~"))
    git_writable, git_kept = _git(root)
    temporary = [*TEMPORARY, *([given] if os.path.isabs(given := environment.get("TMPDIR", "")) else [])]
    temporary = [os.path.realpath(path) for path in temporary if os.path.isdir(path)]
    others = [os.path.realpath(os.path.join(home, path.removeprefix("~/") if path != "~" else "")) for path in more]
    record = _records(os.path.realpath(muse_home), root)
    if not any(is_inside(os.path.realpath(log), one) for one in record):
        record += [f"{os.path.realpath(log)}{end}" for end in ("", "-wal", "-shm")]
        record.append(os.path.realpath(log.with_suffix(".lock")))
    writable = (root, *git_writable, *others, *temporary, _SHARED_MEMORY)
    personal = [os.path.realpath(settings), *(os.path.join(home, name) for name in _START_UP)]
    personal = [path for path in personal if any(is_inside(path, one) for one in writable)]
    doors = [path for path in _doors(home, environment) if not any(is_inside(one, path) for one in writable)]
    return Places(
        workspace=root,
        writable=_outermost(writable),
        temporary=tuple(temporary),
        readonly=tuple(dict.fromkeys([os.path.join(root, ".muse"), *git_kept, *personal])),
        hidden=(*record, *_outermost(doors)),  # a folder hides what is in it
        record=tuple(record),
        personal=tuple(personal),
        more=tuple(others),
    )


def tree_places(
    session: Places, workspace: Path, tree: Path, muse_home: Path, entry: Path | None, common: Path | None
) -> Places:
    """The places of an agent that works in `workspace`, in a working tree of its own in muse's home. Of the repository
    that the tree is linked to (its `entry` in the git folder `common`) only what `git add` and `git commit` need is
    writable; the workspace of the session, and the trees of other agents, are not."""
    root, home, own = (os.path.realpath(one) for one in (workspace, muse_home, tree))
    others = [path for path in session.writable if path != session.workspace]
    others = [path for path in others if common is None or path != str(common)]
    git_writable, git_kept = ([], []) if entry is None or common is None else _of_worktree(str(entry), str(common))
    guarded = [one for one in (session.workspace, home, str(common or "")) if one and _is_in_any(one, others)]
    records = [path for path in session.record if not is_inside(root, path)] + _beside(home, own)
    return Places(
        workspace=root,
        writable=_outermost((root, *git_writable, *others)),
        temporary=session.temporary,
        readonly=tuple(dict.fromkeys([f"{root}/.muse", f"{own}/.git", *git_kept, *session.personal])),
        hidden=tuple(dict.fromkeys([*records, *(path for path in session.hidden if path not in session.record)])),
        record=tuple(records),
        personal=session.personal,
        more=session.more,
        guarded=tuple(guarded),
        again=tuple(path for path in (root, *git_writable) if _is_in_any(path, guarded)),
    )


def _of_worktree(entry: str, common: str) -> tuple[list[str], list[str]]:
    kept = [f"{entry}/{name}" for name in ("gitdir", "commondir", *_GIT_KEPT)]
    return [entry, f"{common}/objects"], [*kept, f"{common}/objects/info"]


def _beside(home: str, own: str) -> list[str]:
    """All in muse's home that does not lead to this folder."""
    found: list[str] = []
    for folder in [one for one in _upwards(os.path.dirname(own)) if is_inside(one, home)]:
        found += [path for path in _children(folder) if not is_inside(own, path)]
    return list(dict.fromkeys([*(f"{home}/{name}" for name in _RECORDS), *found]))


def _is_in_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_inside(path, one) for one in folders)


def _is_for_hooks(path: str) -> bool:
    """Whether it is, or could be, the folder of hooks in a git folder, which is none of those that a link leads to."""
    folder, name = os.path.split(path)
    return name == "hooks" and os.path.isdir(folder) and not os.path.islink(folder)


def _doors(home: str, environment: Mapping[str, str]) -> list[str]:
    """Where such sockets stand, usually and by what the environment says."""
    user = os.geteuid()
    runtime = (f"/run/user/{user}", environment.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    found = [*_DOORS, *(f"{folder}/{name}" for folder in runtime for name in _DOORS_OF_USER)]
    found += [path for name in _DOORS_AT_HOME if os.path.lexists(path := f"{home}/{name}")]
    found += [environment.get("TMUX", "").partition(",")[0], environment.get("SCREENDIR", "")]
    found += [f"{environment.get('TMUX_TMPDIR') or '/tmp'}/tmux-{{user}}"]
    for address in ";".join(environment.get(name, "") for name in _ADDRESSES).split(";"):
        _, _, path = address.removeprefix("unix://").partition("unix:path=")
        found.append(path.partition(",")[0] or address.removeprefix("unix://"))
    return list(dict.fromkeys(path.replace("{user}", str(user)) for path in found if os.path.isabs(path)))


def _records(muse_home: str, workspace: str) -> list[str]:
    """The home of muse; of one that the workspace lies in, all that does not lead there."""
    if not is_inside(workspace, muse_home):
        return [muse_home]
    found = dict.fromkeys([*(f"{muse_home}/{name}" for name in _RECORDS), *_children(muse_home)])
    return [path for path in found if not is_inside(workspace, path)]


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder's own or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    found = list(dict.fromkeys(paths))
    return tuple(one for one in found if not any(one != other and is_inside(one, other) for other in found))


# -- git ---------------------------------------------------------------------------------------------------------------


def _git(workspace: str) -> tuple[list[str], list[str]]:
    """Git folders outside the workspace that its repository works in, and what in its git folders is kept."""
    place = next((f"{one}/.git" for one in _upwards(workspace) if os.path.lexists(f"{one}/.git")), None)
    if place is None:
        return [], []
    kept = []
    if os.path.isdir(place):
        folders = [os.path.realpath(place)] if not os.path.islink(place) else []
    else:
        kept.append(place)
        folders = _linked(place)
    for folder in folders:
        kept += [f"{folder}/{name}" for name in _GIT_KEPT]
        for below in ("modules", "worktrees"):
            kept += [f"{one}/{name}" for one in _children(f"{folder}/{below}") for name in _GIT_KEPT]
    return [folder for folder in folders if not is_inside(folder, workspace)], kept


def _upwards(folder: str) -> list[str]:
    return [folder, *(str(one) for one in Path(folder).parents if str(one) != "/")]


def _linked(place: str) -> list[str]:
    """The folders of a worktree or submodule whose `.git` is a file. What that says is text of the repository, so the
    folder must name this file in turn, or lie in the git folder of a repository around it."""
    text = _read(place)
    if not text.startswith("gitdir:"):
        return []
    folder = os.path.realpath(os.path.join(os.path.dirname(place), text.removeprefix("gitdir:").strip()))
    above = [f"{one}/.git" for one in _upwards(os.path.dirname(os.path.dirname(place)))]
    if any(os.path.isdir(one) and is_inside(folder, f"{one}/modules") for one in above):
        return [folder]
    names_back = os.path.realpath(_read(f"{folder}/gitdir").strip() or "/") == os.path.realpath(place)
    common = os.path.dirname(os.path.dirname(folder))
    if names_back and os.path.dirname(folder) == f"{common}/worktrees" and os.path.isdir(f"{common}/objects"):
        return [common]
    return []


def _children(folder: str) -> list[str]:
    """What a folder holds, up to a limit; nothing where it cannot be read."""
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder))[:CHILDREN_MAX]]
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(GIT_FILE_BYTES_MAX)
    except OSError:
        return ""
