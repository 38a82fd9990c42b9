"""What changed in a file, as a unified diff; binary and very large contents are named, not shown.

Contents are handed in by `Contents`; this module must not know where they are kept.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

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

_LOOKS: Final[dict[str, Look]] = {"+": "add", "-": "remove"}

_Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]

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
    for group in _Matcher(old_lines, new_lines, start, end).get_grouped_opcodes(CONTEXT_LINES):
        yield from _hunk(group, old_lines, new_lines)


class _Matcher(difflib.SequenceMatcher[str]):
    """Compares only what is between the same lines at both ends: a comparison that sees some of those too may move a
    change among them, and then the context after it would not be whole."""

    def __init__(self, old: list[str], new: list[str], start: int, end: int) -> None:
        super().__init__(None, old[start : len(old) - end], new[start : len(new) - end])
        self._opcodes = [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in super().get_opcodes()]
        if start:
            self._opcodes.insert(0, ("equal", 0, start, 0, start))
        if end:
            self._opcodes.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))

    def get_opcodes(self) -> list[_Opcode]:
        return self._opcodes


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> Iterator[Line]:
    _, old_from, _, new_from, _ = group[0]
    _, _, old_to, _, new_to = group[-1]
    yield Line(f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@", "dim")
    for tag, a, b, c, d in group:
        sides = [(" ", old[a:b])] if tag == "equal" else [("-", old[a:b]), ("+", new[c:d])]
        for sign, lines in sides:
            for line in lines:
                yield from _diff_line(sign, line)


def _range(first: int, end: int) -> str:
    """Lines of a hunk as headings name them: counted from 1, an empty one by the line before it."""
    count = end - first
    if count == 1:
        return f"{first + 1}"
    return f"{first + 1 if count else first},{count}"


def _same_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the start, and of the rest at the end."""
    room = min(len(old), len(new))
    start = next((at for at in range(room) if old[at] != new[at]), room)
    room -= start
    end = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    return start, end


def _diff_line(sign: str, line: str) -> Iterator[Line]:
    yield Line(visible(sign + line.removesuffix("\n")), _LOOKS.get(sign, "plain"))
    if not line.endswith("\n"):
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
