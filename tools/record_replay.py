"""Draws the screens of `muse replay` and `muse agents` for the docs: the installed program in a real terminal (tmux).

    .venv/bin/python tools/record_replay.py      writes docs/pictures/replay*.txt, agents.txt and .svg

The sessions are those that the tests look at. The same screen gives the same picture.
"""

import re
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.ui.tui.fanout import write_fanout
from tests.ui.tui.made import write_session
from tests.ui.tui.terminals import Terminal
from tools.record_demo import (
    CELL_HEIGHT,
    CELL_WIDTH,
    COLOURS,
    DIM,
    FONT_PIXELS,
    FONTS,
    FRAME,
    GROUND,
    MARGIN,
    PICTURES,
    TEXT,
)

MUSE: Final = Path(sys.executable).with_name("muse")
SHADES: Final = {**COLOURS, 35: "#d2a8ff"}
SHOTS: Final = (
    ("replay", 43, 132, 36, (), "── #43"),
    ("replay-80", 32, 80, 24, (), "── #32"),
    ("replay-request", 46, 100, 34, ("d",), "against #38"),
    ("replay-why", 63, 100, 34, ("w",), "── why #63"),
)
"""Name, event, columns, rows, keys, and what the screen says when it is there."""
_sequence: Final = re.compile(r"\x1b\[([0-9;]*)m|[^\x1b]+")
_word: Final = re.compile(r"\S+(?: \S+)*")


class Piece(NamedTuple):
    """Text in one style, at its place. `style` holds codes of SGR (ECMA-48)."""

    row: int
    column: int
    text: str
    style: frozenset[int]


def cells(text: str) -> int:
    """How many columns a text takes."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) != 0 for sign in text)


def pieces(screen: str) -> Iterator[Piece]:
    """A screen with its styles, taken apart. Raises ValueError for a sequence that is no style."""
    for row, line in enumerate(screen.split("\n")):
        column, style = 0, frozenset[int]()
        at = 0
        while at < len(line):
            match = _sequence.match(line, at)
            if match is None:
                raise ValueError(f"this cannot be drawn: {line[at : at + 12]!r}")
            at = match.end()
            if match[1] is None:
                yield Piece(row, column, match[0], style)
                column += cells(match[0])
            else:
                style = _styled(style, [int(code or 0) for code in match[1].split(";")])


def _styled(style: frozenset[int], codes: list[int]) -> frozenset[int]:
    for code in codes:
        if code == 0:
            style = frozenset()
        elif code == 39:
            style = frozenset(one for one in style if one < 30)
        elif 30 <= code <= 37:
            style = frozenset(one for one in style if one < 30) | {code}
        elif code != 49:
            style = style | {code}
    return style


def picture(screen: str, columns: int, rows: int, title: str) -> str:
    """The screen as an SVG."""
    width, height = round(columns * CELL_WIDTH + 2 * MARGIN), rows * CELL_HEIGHT + 2 * MARGIN
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>text{{font:{FONT_PIXELS}px {FONTS};fill:{TEXT}}}.s1{{font-weight:700}}.s2{{fill:{DIM}}}"
        ".s4{text-decoration:underline}"
        + "".join(f".s{code}{{fill:{colour}}}" for code, colour in SHADES.items())
        + f".s7{{fill:{GROUND}}}</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{FRAME}"/>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
    ]
    for piece in pieces(screen):
        found += _drawn(piece)
    return "\n".join([*found, "</g>", "</svg>"]) + "\n"


def _drawn(piece: Piece) -> Iterator[str]:
    if 7 in piece.style:
        x, y = piece.column * CELL_WIDTH, piece.row * CELL_HEIGHT
        wide = cells(piece.text) * CELL_WIDTH
        yield f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{CELL_HEIGHT}" fill="{TEXT}"/>'
    for match in _word.finditer(piece.text):
        column = piece.column + cells(piece.text[: match.start()])
        classes = "".join(f" s{code}" for code in sorted(piece.style)).strip()
        named = f' class="{classes}"' if classes else ""
        yield (
            f'<text{named} x="{column * CELL_WIDTH:.1f}" y="{piece.row * CELL_HEIGHT + FONT_PIXELS}" '
            f'textLength="{cells(match[0]) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(match[0])}</text>'
        )


AGENTS: Final = ("agents", 116, 26, ("w", "a"), "may this run?")


def shot(
    name: str, line: str, columns: int, rows: int, keys: tuple[str, ...], begins: str, shows: str, folder: Path
) -> None:
    """One picture: of a command in `folder`, of its screen after some keys."""
    terminal = Terminal(f"{MUSE} {line}", columns, rows, folder, {"HOME": str(folder), "MUSE_HOME": f"{folder}/muse"})
    try:
        terminal.wait(lambda screen: begins in screen)
        if keys:
            terminal.keys(*keys)
        plain = terminal.wait(lambda screen: shows in screen and "reading" not in screen)
        styled = terminal.screen(styles=True)
    finally:
        terminal.close()
    (PICTURES / f"{name}.txt").write_text(plain, encoding="utf-8")
    command = line.partition(" ")[0]
    drawn = picture(styled, columns, rows, f"muse {command}: a screen of {columns} by {rows}")
    (PICTURES / f"{name}.svg").write_text(drawn, encoding="utf-8")
    print(PICTURES / f"{name}.svg")


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        write_session(folder / "checkout.muse")
        for name, seq, columns, rows, keys, shows in SHOTS:
            shot(name, f"replay checkout.muse@{seq}", columns, rows, keys, f"── #{seq} ", shows, folder)
        write_fanout(folder / "release.muse", "work")
        name, columns, rows, keys, shows = AGENTS
        shot(name, "agents release.muse", columns, rows, keys, "── main ", shows, folder)


if __name__ == "__main__":
    main()
