"""What docs/looking.md says of filters is what they are."""

import re
from datetime import UTC, datetime
from pathlib import Path

from muse.view.filters import TERMS, parsed

TEXT = (Path(__file__).parents[2] / "docs" / "looking.md").read_text(encoding="utf-8")


def test_the_table_of_filters_is_the_table_of_the_options() -> None:
    rows = re.findall(r"^\| `--([a-z-]+)( [A-Z]+)?` \| (.+) \|$", TEXT, re.MULTILINE)
    assert [(name, value.strip(), words) for name, value, words in rows] == [
        (term.name, term.value, term.help) for term in TERMS
    ]


def test_the_lines_for_the_screen_are_filters() -> None:
    (line,) = re.findall(r"the same is written (`.+?`);", TEXT, re.DOTALL)
    found = re.findall(r"`([^`]+)`", line)
    assert len(found) == 3
    for text in found:
        assert parsed(text, datetime(2026, 1, 1, tzinfo=UTC)).texts in ((), ("drop table",))
