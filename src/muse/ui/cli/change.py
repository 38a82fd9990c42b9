"""What a call that waits would change in its file, as the file is now: for the person who is asked, and for programs.

It stands below the text that is recorded as shown, and is no part of it. This module must not know how it is answered.
"""

from itertools import islice
from typing import Final

import msgspec

from muse import app
from muse.view.diff import contents_diff
from muse.view.line import Line
from muse.view.visible import one_line

CHANGE_LINES_MAX: Final = 200


class Change(msgspec.Struct, frozen=True):
    """What becomes of a file: a unified diff of it, of which `is_cut` says that there is more; `is_new` where there is
    no such file yet; or the `problem` that it cannot be done now."""

    path: str = ""
    is_new: bool = False
    problem: str = ""
    lines: tuple[Line, ...] = ()
    is_cut: bool = False


def change_of(tool: str, args: str, workspace: str) -> Change | None:
    """What a call would change in its file as the file is now; None for a call that changes no file."""
    found = app.preview(tool, args, workspace) if args else None
    if found is None:
        return None
    if found.problem:
        return Change(problem=one_line(found.problem))
    lines = tuple(islice(contents_diff(found.path, found.before, found.after), CHANGE_LINES_MAX + 1))
    is_cut = len(lines) > CHANGE_LINES_MAX
    return Change(one_line(found.path), found.before is None, "", lines[:CHANGE_LINES_MAX], is_cut)


def change_lines(tool: str, args: str, workspace: str) -> list[Line]:
    """The same for a person. Empty for a call that changes no file."""
    change = change_of(tool, args, workspace)
    if change is None:
        return []
    if change.problem:
        return [Line(f"as the file is now, this cannot be done: {change.problem}", "bad")]
    if change.is_new:
        return [Line("there is no such file yet", "dim")]  # all of it stands above
    more = [Line("… and more", "dim")] if change.is_cut else []
    return [Line("what it changes in the file as it is now:", "dim"), *change.lines, *more]


def change_fields(tool: str, args: str, workspace: str) -> dict[str, object] | None:
    """The same for a program: the diff as one text."""
    change = change_of(tool, args, workspace)
    if change is None:
        return None
    diff = "".join(f"{line.text}\n" for line in change.lines)
    return {
        "path": change.path, "new_file": change.is_new, "problem": change.problem, "diff": diff, "cut": change.is_cut,
    }  # fmt: skip
