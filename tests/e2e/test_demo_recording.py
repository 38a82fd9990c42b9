"""The recording of `muse demo` in docs/pictures: it shows the demo of today, and the renderer adds nothing."""

import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from muse.ui.demo.story import CAPTIONS, REAL, TITLE
from tools.record_demo import CELL_HEIGHT, CELL_WIDTH, FONT_PIXELS, PICTURES, capture, picture, plain, runs

MUSE = str(Path(sys.executable).with_name("muse"))
SVG = "{http://www.w3.org/2000/svg}"
TEXT = (PICTURES / "demo.txt").read_text(encoding="utf-8")
DRAWN = (PICTURES / "demo.svg").read_text(encoding="utf-8")


def lines_of(svg: str) -> list[str]:
    """The lines of text in a picture, put together from the places of its pieces."""
    lines: dict[int, str] = {}
    for piece in ET.fromstring(svg).iter(f"{SVG}text"):
        row = round((float(piece.attrib["y"]) - FONT_PIXELS) / CELL_HEIGHT)
        lines[row] = lines.get(row, "").ljust(round(float(piece.attrib["x"]) / CELL_WIDTH)) + (piece.text or "")
    return [lines.get(row, "") for row in range(max(lines) + 1)]


def test_the_recording_has_the_captions_of_the_code() -> None:
    assert re.findall(r"^ [1-9]   (.*)$", TEXT, re.MULTILINE) == list(CAPTIONS)
    assert [line.strip() for line in TEXT.splitlines()[:2]] == [TITLE, REAL]


def test_the_recording_is_of_a_demo_whose_claims_held() -> None:
    assert "✗ not as promised" not in TEXT
    assert re.search(r"re-attached to #\d+; \d+ finished steps, 0 run again; counter.txt: 1 start, 1 end", TEXT)


def test_the_picture_shows_the_recorded_text_and_no_other() -> None:
    assert lines_of(DRAWN) == [line.rstrip() for line in TEXT.splitlines()]


def test_the_picture_loads_nothing_and_runs_nothing() -> None:
    assert not re.search(r"<script|<image|<foreignObject|href|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", DRAWN)


def test_a_capture_may_be_cut_anywhere() -> None:
    data = "\x1b[1;32m✓\x1b[0m #5  a < b & c\r\n\x1b[2mquiet\x1b[0m\r\n".encode()
    whole = picture([(0.0, data)])
    assert lines_of(whole) == ["✓ #5  a < b & c", "quiet"]
    for at in range(1, len(data)):
        assert "".join(run.text for run in runs([(0.0, data[:at]), (0.0, data[at:])])) == "✓ #5  a < b & cquiet"
        assert lines_of(picture([(0.0, data[:at]), (1.0, data[at:])])) == lines_of(whole)


@pytest.mark.parametrize("data", [b"\x1b[2Jgone", b"\x1b[31", b"back\x08", b"x" * 81])
def test_what_cannot_be_drawn_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"drawn|wider|ends in"):
        runs([(0.0, data)])


@pytest.mark.long
def test_a_terminal_that_wants_no_colour_gets_none_and_a_capture_can_be_drawn(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "NO_COLOR": "1", "TMPDIR": str(tmp_path), "LANG": "C"}
    recorded = capture([MUSE, "demo", "--fast"], environment, tmp_path)
    text = plain(recorded)
    assert "\x1b" not in text
    assert not any(b"\x1b" in data for _, data in recorded)
    assert re.findall(r"^ [1-9]   (.*)$", text, re.MULTILINE) == list(CAPTIONS)
