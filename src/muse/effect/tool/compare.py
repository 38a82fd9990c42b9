"""How much two contents differ, in lines: a few words for a result, not a diff."""

import difflib
from typing import Final

COMPARED_LINES_MAX: Final = 400
"""Up to so many differing lines are counted one by one; beyond, the whole changed region counts."""


def count_lines(data: bytes) -> int:
    """Lines of a content; a last line without its end counts."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 line`, `2 lines`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_changes(before: bytes, after: bytes) -> str:
    """Added and removed lines, as `+3 -1 lines`."""
    old, new = before.split(b"\n"), after.split(b"\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    same = 0
    if max(len(old), len(new)) <= COMPARED_LINES_MAX:
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        same = sum(block.size for block in blocks)
    return f"+{len(new) - same} -{len(old) - same} lines"
