"""docs/replay.md and docs/agents.md have the keys, signs and words of the screens, and pictures of them."""

import re
from html import unescape
from pathlib import Path
from typing import get_args

import pytest

from muse.ui.tui import fleet_keys
from muse.ui.tui.fleet import help_lines
from muse.ui.tui.keys import KEYS, Key, table
from muse.ui.tui.looks import in_ascii
from muse.ui.tui.minimap import SIGNS
from muse.ui.tui.sources import keys_and_signs
from muse.view.fleet import MEANINGS, AgentRow, SessionRows, Word
from muse.view.marks import Mark

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "replay.md").read_text(encoding="utf-8")
AGENTS = (DOCS / "agents.md").read_text(encoding="utf-8")
PICTURES = DOCS / "pictures"


def test_the_page_and_the_help_list_every_key() -> None:
    assert table() in PAGE
    shown = "\n".join(line.text for line in keys_and_signs().lines)
    for key in KEYS:
        assert f"{key.shown:<13} {key.words}" in shown


def test_the_page_of_agents_and_its_help_list_every_key_and_word() -> None:
    assert table(fleet_keys.KEYS, fleet_keys.GROUPS) in AGENTS
    shown = "\n".join(line.text for line in help_lines())
    for key in fleet_keys.KEYS:
        assert f"{key.shown:<13} {key.words}" in shown
    assert set(MEANINGS) == set(get_args(Word))
    for word, meaning in MEANINGS.items():
        assert f"| `{word}` | {meaning} |" in AGENTS
        assert f"{word:<13} {meaning}" in shown


def test_the_page_of_agents_names_every_field() -> None:
    for field in (*AgentRow.__struct_fields__, *SessionRows.__struct_fields__):
        assert f"`{field}`" in AGENTS


@pytest.mark.parametrize("keys", [KEYS, fleet_keys.KEYS])
def test_no_key_does_two_things(keys: tuple[Key, ...]) -> None:
    names = [name for key in keys for name in key.keys.split(",")]
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


@pytest.mark.parametrize("name", re.findall(r"pictures/([a-z0-9-]+)\.svg", PAGE + AGENTS))
def test_a_picture_is_of_the_screen_of_today(name: str) -> None:
    text = (PICTURES / f"{name}.txt").read_text(encoding="utf-8")
    drawn = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert "/71  checkout.muse  closed" in text or text.startswith("━━ checkout · stopped · 7 agents")
    words = re.findall(r">([^<>]+)</text>", drawn)
    assert "".join("".join(map(unescape, words)).split()) == "".join(text.split())
