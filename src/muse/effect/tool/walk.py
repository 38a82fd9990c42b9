"""The files below a folder in a fixed order, without what `.gitignore` names, and without `.git`.

The rules are ripgrep's: `.gitignore` counts inside a git repository, from its root down; links are not followed;
hidden files are seen. The order is by name (as bytes) within each folder. Standard library only, because the fallback
of `grep` is built from this module.
"""

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from muse.effect.tool.patterns import Rules, gitignore

GITIGNORE_BYTES_MAX = 1 << 20
"""How much of a `.gitignore` file is read."""

DEPTH_MAX = 200
"""How deep folders are followed."""


class Entry(NamedTuple):
    """A path relative to where the walk began. `is_link`: a symlink, wherever it leads."""

    path: str
    is_folder: bool
    is_link: bool


class _Level(NamedTuple):
    folder: str
    rules: Rules | None
    has_git: bool


Choose = Callable[[str, bool], bool | None]
"""For a path and whether it is a folder: True take it whatever git ignores, False leave it out, None as git says."""


def walk(
    start: str,
    choose: Choose = lambda _path, _is_folder: None,
    failed: Callable[[OSError], None] = lambda _error: None,
    *,
    ignoring: bool = True,
) -> Iterator[Entry]:
    """Everything below `start` (absolute, no symlink in it). `failed` hears of folders that could not be read."""
    levels = [_level(folder) for folder in _repository_above(start)] if ignoring else []
    yield from _below(start, "", levels, choose, failed, ignoring)


def _below(
    folder: str, prefix: str, levels: list[_Level], choose: Choose, failed: Callable[[OSError], None], ignoring: bool
) -> Iterator[Entry]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        failed(error)
        return
    if ignoring:
        levels = [*levels, _level(folder)]
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        path = prefix + entry.name
        if entry.name == ".git" or _is_left_out(path, entry.path, is_folder, levels, choose):
            continue
        yield Entry(path, is_folder, entry.is_symlink())
        if is_folder and path.count("/") < DEPTH_MAX:
            yield from _below(entry.path, path + "/", levels, choose, failed, ignoring)


def _is_left_out(path: str, absolute: str, is_folder: bool, levels: list[_Level], choose: Choose) -> bool:
    chosen = choose(path, is_folder)
    if chosen is not None:
        return not chosen
    if not any(level.has_git for level in levels):
        return False
    for level in reversed(levels):
        ignored = level.rules.ignores(absolute[len(level.folder.rstrip("/")) + 1 :], is_folder) if level.rules else None
        if ignored is not None:
            return ignored
        if level.has_git:
            break
    return False


def _repository_above(start: str) -> list[str]:
    """The folders above `start`, outermost first, from the root of the git repository that it stands in."""
    above: list[str] = []
    folder = start
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return []
        above.append(parent)
        folder = parent
    return above[::-1]


def _level(folder: str) -> _Level:
    rules = None
    try:
        descriptor = os.open(os.path.join(folder, ".gitignore"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        pass  # most folders have none; one that cannot be read hides nothing
    else:
        with open(descriptor, "rb") as file:
            rules = gitignore(file.read(GITIGNORE_BYTES_MAX).decode("utf-8", "surrogateescape"))
    return _Level(folder, rules, os.path.lexists(os.path.join(folder, ".git")))
