"""A sample of the night (`make night` plays all of it, with fifty kills of a fan-out before)."""

from pathlib import Path

import pytest

from tests.crash.matrix.checks import Finding
from tests.crash.task import seed
from tests.night import page
from tests.night.night import SAMPLE, Night, Report


@pytest.mark.long
def test_a_night_of_eight_agents_under_kills_quotas_and_compactions_leaves_every_zero_a_zero() -> None:
    report = Night(SAMPLE, seed()).play()
    print(page.as_text(report, ""))
    assert report.findings == []


def test_a_report_names_every_zero_what_was_found_and_goes_between_its_markers(tmp_path: Path) -> None:
    report = Report(seed=7, findings=[Finding("lost", "something")], content_bytes=2, file_bytes=3)
    place = tmp_path / "page.md"
    place.write_text(f"before\n{page.BEGIN}\nof last week\n{page.END}\nafter\n")
    page.write_into(place, report, "50 kills")
    text = place.read_text()
    assert text.startswith(f"before\n{page.BEGIN}\n")
    assert text.endswith(f"{page.END}\nafter\n")
    for words in (
        "seed 7",
        "| run again | 0 |",
        "| lost | 1 |",
        "| unverified | 0 |",
        "1.50 times its content",
        "50 kills",
    ):
        assert words in text
    assert "of last week" not in text
