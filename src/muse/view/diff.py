"""What changed in a file, as a unified diff; binary and very large contents are named, not shown.

Contents are handed in by `Contents`; this module must not know where they are kept.
"""

import difflib
from collections.abc import Callable, Iterator
from typing import Final

from muse.event.content import BlobRef, FileChange
from muse.view.amounts import size
from muse.view.line import Line, Look
from muse.view.visible import one_line, visible

DIFF_BYTES_MAX: Final = 512 * 1024
"""Contents over this size are named with their sizes only."""
CONTEXT_LINES: Final = 3
NO_NEWLINE: Final = "\\ No newline at end of file"

_LOOKS: Final[dict[str, Look]] = {"+": "add", "-": "remove", "@": "dim"}

Contents = Callable[[BlobRef], bytes | None]
"""A blob's bytes, None where they are hidden."""


def file_diff(change: FileChange, contents: Contents) -> Iterator[Line]:
    """The change of one path as lines of a unified diff, with its headings."""
    path = one_line(change.path)
    yield Line(_heading(change, path), "head")
    if change.before_mode and change.after_mode and change.before_mode != change.after_mode:
        yield Line(f"mode {change.before_mode:o} → {change.after_mode:o}", "dim")
    if change.note:
        yield Line(f"content not recorded: {one_line(change.note)}", "dim")
        return
    if change.before is None and change.after is None:
        return
    sides = [ref for ref in (change.before, change.after) if ref is not None]
    if any(ref.length > DIFF_BYTES_MAX for ref in sides):
        yield Line(f"too large to show: {_sizes(change)}", "dim")
        return
    before, after = _side(change.before, contents), _side(change.after, contents)
    if before is None or after is None:
        yield Line("content hidden by redaction", "dim")
        return
    yield from _text_diff(change, path, before, after)


def _text_diff(change: FileChange, path: str, before: bytes, after: bytes) -> Iterator[Line]:
    old, new = _text(before), _text(after)
    if old is None or new is None:
        yield Line(f"binary: {_sizes(change)}", "dim")
        return
    names = (
        "/dev/null" if change.before is None else f"a/{path}",
        "/dev/null" if change.after is None else f"b/{path}",
    )
    for text in difflib.unified_diff(_lines(old), _lines(new), *names, lineterm="", n=CONTEXT_LINES):
        yield from _diff_line(text)


def _diff_line(text: str) -> Iterator[Line]:
    if text.startswith(("--- ", "+++ ")) and "\n" not in text:
        yield Line(text, "dim")
        return
    yield Line(visible(text.removesuffix("\n")), _LOOKS.get(text[:1], "plain"))
    if text[:1] in "+- " and not text.endswith("\n"):
        yield Line(NO_NEWLINE, "dim")


def _lines(text: str) -> list[str]:
    """Lines cut after newlines only (unlike `splitlines`), with their ends."""
    found = text.split("\n")
    whole = [f"{line}\n" for line in found[:-1]]
    return whole + ([found[-1]] if found[-1] else [])


def _side(ref: BlobRef | None, contents: Contents) -> bytes | None:
    return b"" if ref is None else contents(ref)


def _text(data: bytes) -> str | None:
    """The content as text, None if it is none (the NUL test is git's)."""
    if b"\0" in data[:8000]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _heading(change: FileChange, path: str) -> str:
    if change.before is None and change.after is not None:
        return f"new file {path}"
    if change.after is None and change.before is not None:
        return f"deleted {path}"
    return path


def _sizes(change: FileChange) -> str:
    before = size(change.before.length) if change.before else "nothing"
    after = size(change.after.length) if change.after else "nothing"
    return f"{before} → {after}"
