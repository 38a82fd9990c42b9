"""Moments as people write them; expected times are worked out by hand."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from muse.errors import UsageError
from muse.view.moments import Moment, moment

NOW = datetime(2026, 11, 30, 0, 45, 10, 5, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))
"""A place whose clocks are half past six when it is one o'clock in UTC."""


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11-29", "2026-11-29T00:00:00.000000Z", "2026-11-29T23:59:59.999999Z"),
        ("today", "2026-11-30T00:00:00.000000Z", "2026-11-30T23:59:59.999999Z"),
        ("yesterday", "2026-11-29T00:00:00.000000Z", "2026-11-29T23:59:59.999999Z"),
        ("now", "2026-11-30T00:45:10.000005Z", "2026-11-30T00:45:10.000005Z"),
        ("2h", "2026-11-29T22:45:10.000005Z", "2026-11-29T22:45:10.000005Z"),
        ("90 minutes ago", "2026-11-29T23:15:10.000005Z", "2026-11-29T23:15:10.000005Z"),
        ("10s", "2026-11-30T00:45:00.000005Z", "2026-11-30T00:45:00.000005Z"),
        ("1w", "2026-11-23T00:45:10.000005Z", "2026-11-23T00:45:10.000005Z"),
        ("00:30", "2026-11-30T00:30:00.000000Z", "2026-11-30T00:30:59.999999Z"),
        ("10:30:15", "2026-11-29T10:30:15.000000Z", "2026-11-29T10:30:15.999999Z"),
        ("2026-11-29T10:30", "2026-11-29T10:30:00.000000Z", "2026-11-29T10:30:59.999999Z"),
        ("2026-11-29 10:30:15", "2026-11-29T10:30:15.000000Z", "2026-11-29T10:30:15.999999Z"),
        ("2026-11-29T10:30:15.25Z", "2026-11-29T10:30:15.250000Z", "2026-11-29T10:30:15.250000Z"),
        ("2026-11-29T10:30:15+02:00", "2026-11-29T08:30:15.000000Z", "2026-11-29T08:30:15.999999Z"),
    ],
)
def test_what_a_text_names_is_included_whole_at_either_end(text: str, first: str, last: str) -> None:
    assert moment(text, NOW, end=False) == Moment(time=first)
    assert moment(text, NOW, end=True) == Moment(time=last)


def test_a_date_and_a_clock_without_a_zone_are_in_the_readers() -> None:
    here = NOW.astimezone(EAST)  # 06:15:10 on the 30th
    assert moment("2026-11-30", here, end=False).time == "2026-11-29T18:30:00.000000Z"
    assert moment("05:30", here, end=False).time == "2026-11-30T00:00:00.000000Z"
    assert moment("06:30", here, end=False).time == "2026-11-29T01:00:00.000000Z"  # yesterday's: today's is to come
    assert moment("2h", here, end=False) == moment("2h", NOW, end=False)


def test_a_day_with_a_change_of_clocks_is_as_long_as_it_was() -> None:
    from zoneinfo import ZoneInfo

    now = datetime(2026, 11, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert moment("2026-10-25", now, end=False).time == "2026-10-24T22:00:00.000000Z"
    assert moment("2026-10-25", now, end=True).time == "2026-10-25T22:59:59.999999Z"  # a day of 25 hours


def test_an_event_is_named_by_its_number() -> None:
    assert moment("@120", NOW, end=False) == moment("#120", NOW, end=True) == Moment(seq=120)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "2026-13-01", "2months", "@0", "@", f"@{'9' * 40}", "999999999w", "0001-01-01T00:00:00+14:00",
     "2h;", "1e3h", "٣h", "2026-11-30T10:30:00Zulu"],
)  # fmt: skip
def test_what_is_no_moment_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(UsageError):
        moment(text, NOW, end=False)
