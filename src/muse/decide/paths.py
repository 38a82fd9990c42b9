"""The paths a file tool names, by their letters alone.

Rules are judged on these, so no link is followed here; file tools refuse a path that goes through a link, and name the
real one, so that what was judged is what is touched.
"""

import posixpath
from collections.abc import Mapping

PATH_ARGUMENTS = ("path", "file_path")
"""The spellings that file tools take; they refuse a call that gives both."""


def named_path(args: Mapping[str, object], workspace: str) -> tuple[str, bool]:
    """(workspace-relative normal path, whether it lies outside). Without a path argument: (".", False). A path
    outside is returned absolute and normalised; `~` counts as outside."""
    text = next((value for name in PATH_ARGUMENTS if isinstance(value := args.get(name), str) and value), ".")
    if text.startswith("~"):
        return text, True
    root = posixpath.normpath(workspace)
    full = posixpath.normpath(posixpath.join(root, text))
    if full == root:
        return ".", False
    prefix = root if root.endswith("/") else root + "/"
    if full.startswith(prefix):
        return full[len(prefix) :], False
    return full, True
