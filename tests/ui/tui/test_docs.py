"""docs/replay.md has the keys and signs of the screen, and pictures of it."""

import re
from html import unescape
from pathlib import Path

import pytest

from muse.ui.tui.keys import KEYS, table
from muse.ui.tui.looks import in_ascii
from muse.ui.tui.minimap import SIGNS
from muse.ui.tui.sources import keys_and_signs
from muse.view.marks import Mark

PAGE = (Path(__file__).parents[3] / "docs" / "replay.md").read_text(encoding="utf-8")
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"


def test_the_page_and_the_help_list_every_key() -> None:
    assert table() in PAGE
    shown = "\n".join(line.text for line in keys_and_signs().lines)
    for key in KEYS:
        assert f"{key.shown:<13} {key.words}" in shown


def test_no_key_does_two_things() -> None:
    names = [name for key in KEYS for name in key.keys.split(",")]
    assert len(names) == len(set(names))


def test_the_signs_are_different_ones_in_ascii_too() -> None:
    signs = {sign for sign, _, _ in SIGNS.values()}
    plain = {sign if sign.isascii() else in_ascii(UnicodeEncodeError("ascii", sign, 0, 1, ""))[0] for sign in signs}
    assert len(plain) == len(signs) == 11
    assert all(sign.isascii() and len(sign) == 1 for sign in plain)


def test_the_page_lists_every_sign() -> None:
    assert set(SIGNS) == set(Mark)
    for sign, _, words in SIGNS.values():
        assert f"| `{sign}` | {words} |" in PAGE


@pytest.mark.parametrize("name", re.findall(r"pictures/([a-z0-9-]+)\.svg", PAGE))
def test_a_picture_is_of_the_screen_of_today(name: str) -> None:
    text = (PICTURES / f"{name}.txt").read_text(encoding="utf-8")
    drawn = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert "/71  checkout.muse  closed" in text
    words = re.findall(r">([^<>]+)</text>", drawn)
    assert "".join("".join(map(unescape, words)).split()) == "".join(text.split())
