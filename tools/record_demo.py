"""Records `muse demo` for the README: runs the installed command on a real pseudo-terminal and draws what it printed.

    .venv/bin/python tools/record_demo.py        writes docs/pictures/demo.txt and docs/pictures/demo.svg

The picture shows the captured bytes at the times at which they came; nothing is typed in afterwards. The same capture
gives the same picture. Where animation is not wanted (`prefers-reduced-motion`) or not known, the last screen stands
still. Standard library only.
"""

import codecs
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

COLUMNS: Final = 80
ROWS: Final = 34
CELL_WIDTH: Final = 8.4
CELL_HEIGHT: Final = 18
FONT_PIXELS: Final = 14
MARGIN: Final = 18
HOLD_SECONDS: Final = 7.0
"""How long the last screen stays before the story begins again."""
STEP_SECONDS: Final = 0.05
"""What comes within one such step appears together."""
SECONDS_MAX: Final = 120.0
PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"

GROUND, FRAME, TEXT, DIM = "#0d1117", "#30363d", "#e6edf3", "#9198a1"
COLOURS: Final = {31: "#ff7b72", 32: "#3fb950", 33: "#e3b341", 36: "#39c5cf"}
FONTS: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_sequence: Final = re.compile(r"\x1b\[([0-9;]*)m|\r?\n|[^\x00-\x1f\x7f]+")
_word: Final = re.compile(r"\S+(?: \S+)*")

Capture = Sequence[tuple[float, bytes]]
"""Seconds since the start, and what came then."""


class Run(NamedTuple):
    """Text in one style that came at one time. `row` and `column` count from 0."""

    at: float
    row: int
    column: int
    text: str
    style: tuple[int, ...]


def capture(command: Sequence[str], environment: dict[str, str], folder: Path) -> Capture:
    """Run a command on a pseudo-terminal of its own to its end. Raises SystemExit when it fails."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begun = time.monotonic()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=folder, start_new_session=True
    )
    os.close(slave)
    found: list[tuple[float, bytes]] = []
    while time.monotonic() - begun < SECONDS_MAX and select.select([master], [], [], SECONDS_MAX)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux says EIO when the last process has closed the terminal
            break
        if not data:
            break
        found.append((time.monotonic() - begun, data))
    os.close(master)
    if code := process.wait(10):
        raise SystemExit(f"the demo failed with exit code {code}:\n{plain(found)}")
    return found


def runs(recorded: Capture) -> list[Run]:
    """The runs of a capture. Raises ValueError for anything but text, line ends and styles, and for a line that is
    wider than the terminal."""
    found: list[Run] = []
    decoder = codecs.getincrementaldecoder("utf-8")()
    row = column = 0
    style: tuple[int, ...] = ()
    rest = ""
    for at, data in recorded:
        text, rest = rest + decoder.decode(data), ""
        while text:
            match = _sequence.match(text)
            if match is None:
                if len(text) < 8 and text[0] in "\x1b\r":
                    rest = text  # the beginning of a sequence whose end comes later
                    break
                raise ValueError(f"this cannot be drawn: {text[:8]!r}")
            text = text[match.end() :]
            if match[1] is not None:
                style = tuple(int(code) for code in match[1].split(";") if code not in ("", "0"))
            elif match[0].endswith("\n"):
                row, column = row + 1, 0
            else:
                found.append(Run(at, row, column, match[0], style))
                column += len(match[0])
                if column > COLUMNS:
                    raise ValueError(f"line {row + 1} is wider than {COLUMNS} columns")
    if rest:
        raise ValueError(f"the capture ends in the middle of {rest!r}")
    return found


def plain(recorded: Capture) -> str:
    """The text of a capture, without styles."""
    text = b"".join(data for _, data in recorded).decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")


def picture(recorded: Capture) -> str:
    """The capture as an animated SVG."""
    drawn = [word for run in runs(recorded) for word in _words(run)]
    begun = drawn[0].at
    steps = {run: round((run.at - begun) / STEP_SECONDS) for run in drawn}
    total = max(steps.values()) * STEP_SECONDS + HOLD_SECONDS
    width, height = round(COLUMNS * CELL_WIDTH + 2 * MARGIN), ROWS * CELL_HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">muse demo: a recording of the terminal</title>',
        "<style>",
        f"text{{font:{FONT_PIXELS}px {FONTS};fill:{TEXT}}}",
        f".s1{{font-weight:700}}.s2{{fill:{DIM}}}",
        *(f".s{code}{{fill:{colour}}}" for code, colour in COLOURS.items()),
        "@media (prefers-reduced-motion:no-preference){",
        *_appearing(sorted(set(steps.values())), total),
        *_scrolling(drawn, steps, total),
        "}",
        "</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{FRAME}"/>',
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - MARGIN}" height="{height - 2 * MARGIN}">',
        f'<g class="scroll" transform="translate(0 {-CELL_HEIGHT * _above(drawn[-1].row)})">',
        *(_element(run, steps[run]) for run in drawn),
        "</g>",
        "</svg>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _above(row: int) -> int:
    """How many rows have left the screen when this one and the cursor's below it are on it."""
    return max(0, row + 2 - ROWS)


def _words(run: Run) -> list[Run]:
    """The run cut at gaps of two blanks and more: an SVG drawer may make one blank of them."""
    return [run._replace(column=run.column + match.start(), text=match[0]) for match in _word.finditer(run.text)]


def _element(run: Run, step: int) -> str:
    x, y = run.column * CELL_WIDTH, run.row * CELL_HEIGHT + FONT_PIXELS
    classes = " ".join([f"t{step}", *(f"s{code}" for code in run.style)])
    return (
        f'<text class="{classes}" x="{x:.1f}" y="{y}" textLength="{len(run.text) * CELL_WIDTH:.1f}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(run.text)}</text>'
    )


def _appearing(steps: Iterable[int], total: float) -> list[str]:
    """A rule for each moment: hidden before it, shown from it to the end."""
    found = []
    for step in steps:
        percent = 100 * step * STEP_SECONDS / total
        hidden = f"0%{{opacity:0}}{percent:.3f}%{{opacity:1}}" if step else "0%{opacity:1}"
        found.append(f"@keyframes k{step}{{{hidden}100%{{opacity:1}}}}")
        found.append(f".t{step}{{animation:k{step} {total:.2f}s step-end infinite}}")
    return found


def _scrolling(drawn: Sequence[Run], steps: dict[Run, int], total: float) -> list[str]:
    """The screen moves up when a row below its last one comes."""
    moves: dict[int, int] = {0: 0}
    for run in drawn:
        moves[steps[run]] = max(_above(run.row), *moves.values())
    frames, last = [], -1
    for step, rows in sorted(moves.items()):
        if rows != last:
            frames.append(f"{100 * step * STEP_SECONDS / total:.3f}%{{transform:translateY({-CELL_HEIGHT * rows}px)}}")
            last = rows
    frames.append(f"100%{{transform:translateY({-CELL_HEIGHT * last}px)}}")
    return [
        f"@keyframes scroll{{{''.join(frames)}}}",
        f".scroll{{animation:scroll {total:.2f}s step-end infinite}}",
    ]


def main() -> None:
    """Record, and write both files."""
    muse = Path(sys.executable).with_name("muse")
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": f"{muse.parent}:{os.environ['PATH']}", "HOME": home, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        recorded = capture([str(muse), "demo"], environment, Path(home))
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "demo.txt").write_text(plain(recorded), encoding="utf-8")
    (PICTURES / "demo.svg").write_text(picture(recorded), encoding="utf-8")
    print(f"{recorded[-1][0]:.1f} s recorded: {PICTURES / 'demo.svg'}")


if __name__ == "__main__":
    main()
