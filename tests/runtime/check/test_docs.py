"""docs/verify-replay.md lists the classes that there are."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from muse.runtime.check.report import KINDS, Divergence, Left, Report, Why

PAGE = Path(__file__).parents[3].joinpath("docs", "verify-replay.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z_ ]+)` \| (.+) \|$", PAGE, re.MULTILINE))


def test_the_page_has_each_class_of_divergence_in_the_words_of_the_command() -> None:
    said = {name: words for name, words in ROWS.items() if name not in (*get_args(Why), "kind", "why")}
    assert said == KINDS


def test_the_page_has_each_reason_for_not_deriving() -> None:
    assert set(get_args(Why)) <= ROWS.keys()


def test_the_page_names_each_field_of_the_json() -> None:
    for kind in (Report, Divergence, Left):
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"\b{field.name}\b", PAGE), field.name
