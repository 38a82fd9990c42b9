"""The reader's clock, as filters on the command line use it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from muse.ui.cli.filtering import Local, now
from muse.view.moments import moment


@pytest.fixture(params=["Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name: str = request.param
    monkeypatch.setenv("TZ", name)
    time.tzset()
    yield name
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["2026-10-25", "2026-03-29", "2026-07-01", "2026-10-25T02:30", "2026-12-24 18:00:00"])
@pytest.mark.parametrize("end", [True, False])
def test_a_day_here_is_what_the_time_zone_database_says(zone: str, text: str, end: bool) -> None:
    moment_here = datetime(2026, 12, 31, 12, tzinfo=UTC)
    here = moment(text, moment_here.astimezone(Local()), end=end)
    assert here == moment(text, moment_here.astimezone(ZoneInfo(zone)), end=end)


def test_now_is_now_in_the_readers_zone(zone: str) -> None:
    before = datetime.now(UTC)
    found = now()
    assert before <= found <= datetime.now(UTC)
    assert found.utcoffset() == before.astimezone(ZoneInfo(zone)).utcoffset()
    assert found.replace(tzinfo=None) - found.astimezone(UTC).replace(tzinfo=None) == found.utcoffset()
    assert found.tzinfo is not None
    assert found.dst() == timedelta(0)
