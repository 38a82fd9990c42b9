"""Rows as lines of text, with or without colour, at a given width.

Colour is one escape sequence before and one after a part, and only what this module writes is ever an escape: rows
hold none. Whether to colour is decided by the front door.
"""

from typing import Final

from muse.view.amounts import duration
from muse.view.line import Line
from muse.view.timeline import Row
from muse.view.visible import columns, fit, wrap

WIDTH_MIN: Final = 40
SEQ_COLUMNS: Final = 4
AGENT_COLUMNS: Final = 6
LABEL_COLUMNS: Final = 8

_RESET: Final = "\x1b[0m"
_BY_SEVERITY: Final = {"quiet": "2", "normal": "", "good": "32", "bad": "31", "attention": "33"}
_BY_LOOK: Final = {"plain": "", "dim": "2", "head": "1", "add": "32", "remove": "31", "bad": "31"}


def paint(text: str, code: str, colour: bool) -> str:
    """The text in an SGR style (ECMA-48), or as it stands."""
    return f"\x1b[{code}m{text}{_RESET}" if colour and code and text else text


def row_parts(row: Row, room: int | None = None) -> tuple[str, str, str]:
    """Mark and label; the summary, cut so that all three fit into `room` columns (None: whole); and what stands at the
    end (how long, which call), which is kept when the summary is cut, or "" where there is no room for both."""
    what = f"{row.mark} {row.label:<{LABEL_COLUMNS}} "
    end = f"  {row.ending}" if row.ending else ""
    if row.duration_ms is not None:
        end += f"  {duration(row.duration_ms)}"
    if row.call:
        end += f"  ({row.call})"
    if room is None:
        return what, row.summary, end
    left = room - columns(what) - columns(end)
    if left < 8:
        end, left = "", left + columns(end)
    return what, fit(row.summary, max(left, 1)), end


def row_words(row: Row) -> str:
    """What a row says, whole: mark, label, summary, duration and call."""
    return "".join(row_parts(row)).rstrip()


def row_text(row: Row, *, width: int | None = None, colour: bool = False) -> str:
    """One line: seq, agent, mark, label, summary, duration and call; cut to `width` columns (None: whole)."""
    start = f"#{row.seq:<{SEQ_COLUMNS}} {row.agent:<{AGENT_COLUMNS}} "
    room = None if width is None else max(width, WIDTH_MIN) - columns(start)
    what, summary, end = row_parts(row, room)
    code = _BY_SEVERITY[row.severity]
    middle = summary if row.severity != "quiet" else paint(summary, code, colour)
    line = f"{paint(start, '2', colour)}{paint(what, code, colour)}{middle}{paint(end, '2', colour)}"
    return line if colour else line.rstrip()


def line_text(line: Line, *, indent: str = "", width: int | None = None, colour: bool = False) -> list[str]:
    """A line of detail, wrapped to the width."""
    code = _BY_LOOK[line.look]
    parts = [line.text] if width is None else wrap(line.text, max(width - len(indent), WIDTH_MIN))
    return [f"{indent}{paint(part, code, colour)}".rstrip() if part else "" for part in parts]


def detail_text(row: Row, *, indent: str = "    ", width: int | None = None, colour: bool = False) -> list[str]:
    """The detail of a row, indented."""
    return [text for line in row.detail for text in line_text(line, indent=indent, width=width, colour=colour)]
