"""Three versions of a text made into one, by `git merge-file` on copies in a temporary folder.

Nothing of the user's configuration is read. This module must not know where the versions come from.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.tool.files import is_binary

SECONDS_MAX: Final = 20
HUNKS_SHOWN_MAX: Final = 3
HUNK_CHARACTERS_MAX: Final = 1_000

_LABELS: Final = ("-L", "yours", "-L", "before", "-L", "the agent's")
_hunk: Final = re.compile(rb"^<{7}[^\n]*\n.*?^>{7}[^\n]*$", re.DOTALL | re.MULTILINE)


class Merged(msgspec.Struct, frozen=True):
    """`data` is the merged text, None where it could not be made: then `why`, and the places (`hunks`) in conflict."""

    data: bytes | None
    why: str = ""
    hunks: tuple[str, ...] = ()


def merge(program: str | None, ours: bytes, base: bytes, theirs: bytes, environment: Mapping[str, str]) -> Merged:
    """`theirs` and `ours`, which both came from `base`, as one. `program` is where git is."""
    if any(is_binary(data) for data in (ours, base, theirs)):
        return Merged(None, "both changed it, and binary files cannot be merged")
    if program is None:
        return Merged(None, "both changed it, and git, which merges, is not installed")
    with tempfile.TemporaryDirectory(prefix="muse-merge-") as folder:
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(folder, name).write_bytes(data)
        try:
            done = subprocess.run(
                [program, "merge-file", "-p", *_LABELS, "ours", "base", "theirs"],
                cwd=folder, env=_environment(folder, environment), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=SECONDS_MAX, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return Merged(None, f"both changed it, and git could not merge: {error}")
    if done.returncode == 0:
        return Merged(done.stdout)
    if 0 < done.returncode < 128:
        return Merged(None, "both changed the same lines", _hunks(done.stdout))
    return Merged(
        None, f"both changed it, and git could not merge: {done.stderr.decode(errors='replace').strip()[:200]}"
    )


def _hunks(text: bytes) -> tuple[str, ...]:
    found = []
    for place in list(_hunk.finditer(text))[:HUNKS_SHOWN_MAX]:
        shown = place[0].decode(errors="replace")
        found.append(shown if len(shown) <= HUNK_CHARACTERS_MAX else shown[:HUNK_CHARACTERS_MAX] + "…")
    return tuple(found)


def _environment(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": given.get("PATH", os.defpath),
        "HOME": folder,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(Path(folder).parent),
    }
