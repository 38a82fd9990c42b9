"""Where muse finds the programs that it runs itself, outside every sandbox: nowhere that a command may write to.

A project's own folder of programs (`.venv/bin`, `node_modules/.bin`) often stands first in PATH, and whoever can write
there would have muse run it. This module must not know what the programs are for.
"""

import os
from collections.abc import Iterable, Mapping


def search_path(writable: Iterable[str], environment: Mapping[str, str] = os.environ) -> str:
    """PATH without what lies in a folder of `writable`, or leads there, or depends on the current folder."""
    roots = [os.path.realpath(folder).rstrip("/") + "/" for folder in writable]
    return os.pathsep.join(
        folder
        for folder in environment.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder) and not f"{os.path.realpath(folder)}/".startswith(tuple(roots))
    )
