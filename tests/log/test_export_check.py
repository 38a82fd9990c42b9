"""Exports against the vectors of docs/format.md, and exports that muse itself writes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from muse.log.export_check import verify_export

VECTORS = json.loads((Path(__file__).parents[2] / "docs" / "vectors" / "exports.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", VECTORS["exports"], ids=lambda case: case["name"])
def test_an_export_is_judged_as_the_format_page_says(case: dict[str, Any]) -> None:
    known = case.get("known")
    head = (known[0], bytes.fromhex(known[1])) if known else None
    report = verify_export(io.BytesIO(case["text"].encode("utf-8", "surrogatepass")), head=head)
    assert report.exit_code == case["exit"]
    if "first_bad" in case:
        failed = [row.seq for row in report.rows if row.state == "failed"]
        assert min(failed) == case["first_bad"]


def test_without_a_known_head_nothing_is_said_to_be_proven_against_rebuilding() -> None:
    whole = next(case for case in VECTORS["exports"] if case["name"] == "whole")
    report = verify_export(io.BytesIO(whole["text"].encode()))
    assert next(row.state for row in report.rows if row.what == "rebuilt chain, cut tail") == "not proven"
