"""What changed in a file, as a unified diff; binary and very large contents are named, not shown.

Contents are handed in by `Contents`; this module must not know where they are kept.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from muse.event.content import BlobRef, FileChange
from muse.view.amounts import size
from muse.view.line import Line, Look
from muse.view.visible import one_line, visible

DIFF_BYTES_MAX: Final = 512 * 1024
"""Contents over this size are named with their sizes only."""
CHANGED_LINES_MAX: Final = 2_000
"""Changes that span more lines than this are not compared line by line: that may cost the square."""
CONTEXT_LINES: Final = 3
NO_NEWLINE: Final = "\\ No newline at end of file"

_hunk: Final = re.compile(r"@@ -([0-9]+)(,[0-9]+|) \+([0-9]+)(,[0-9]+|) @@")
_LOOKS: Final[dict[str, Look]] = {"+": "add", "-": "remove"}

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


def contents_diff(path: str, before: bytes | None, after: bytes) -> Iterator[Line]:
    """How one content (None: no file) becomes another, as lines of a unified diff."""
    sizes = [len(data) for data in (before, after) if data is not None]
    change = FileChange(
        path=path, before=None if before is None else BlobRef("", len(before)), after=BlobRef("", len(after))
    )
    if max(sizes) > DIFF_BYTES_MAX:
        yield Line(f"too large to show: {_sizes(change)}", "dim")
    elif before == after:
        yield Line("nothing would change", "dim")
    else:
        yield from _text_diff(change, one_line(path), before or b"", after)


def _text_diff(change: FileChange, path: str, before: bytes, after: bytes) -> Iterator[Line]:
    old, new = _text(before), _text(after)
    if old is None or new is None:
        yield Line(f"binary: {_sizes(change)}", "dim")
        return
    old_lines, new_lines = _lines(old), _lines(new)
    start, end = _same_ends(old_lines, new_lines)
    changed = len(old_lines) - start - end, len(new_lines) - start - end
    if changed == (0, 0):
        return
    if min(changed) and max(changed) > CHANGED_LINES_MAX:
        yield Line(f"too much changed to compare: {changed[0]:,} lines became {changed[1]:,}", "dim")
        return
    yield Line("--- /dev/null" if change.before is None else f"--- a/{path}", "dim")
    yield Line("+++ /dev/null" if change.after is None else f"+++ b/{path}", "dim")
    skipped, left = max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)
    old_part, new_part = (lines[skipped : len(lines) - left] for lines in (old_lines, new_lines))
    found = difflib.unified_diff(old_part, new_part, lineterm="", n=CONTEXT_LINES)
    for text in islice(found, 2, None):  # its own two headings stand above
        yield from _diff_line(text, skipped)


def _same_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the start, and of the rest at the end."""
    room = min(len(old), len(new))
    start = next((at for at in range(room) if old[at] != new[at]), room)
    room -= start
    end = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    return start, end


def _diff_line(text: str, skipped: int) -> Iterator[Line]:
    """A line of a hunk, or its heading; `skipped` lines stand before what was compared."""
    if heading := _hunk.fullmatch(text):
        old, old_count, new, new_count = heading.groups()
        yield Line(f"@@ -{int(old) + skipped}{old_count} +{int(new) + skipped}{new_count} @@", "dim")
        return
    yield Line(visible(text.removesuffix("\n")), _LOOKS.get(text[0], "plain"))
    if not text.endswith("\n"):
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
