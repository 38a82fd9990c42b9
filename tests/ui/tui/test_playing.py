"""How long a step stays, and how times are written."""

from datetime import timedelta

from muse.ui.tui.listing import since
from muse.ui.tui.playing import IDLE_SECONDS_MAX, STEP_SECONDS_MIN, changed, delay, words


def at(seconds: float) -> str:
    """A header's time."""
    return f"2026-01-02T03:{int(seconds) // 60:02}:{seconds % 60:09.6f}Z"


def test_a_step_stays_as_long_as_it_did_and_long_waits_are_short() -> None:
    assert delay(at(1), at(2.5), 1) == 1.5
    assert delay(at(1), at(2.5), 2) == 0.75
    assert delay(at(1), at(1000), 1) == IDLE_SECONDS_MAX
    assert delay(at(5), at(1), 1) == STEP_SECONDS_MIN
    assert delay("no time", at(1), 1) == STEP_SECONDS_MIN


def test_speeds_double_and_halve_within_limits() -> None:
    assert [words(changed(1, by)) for by in (1, 2, -1, -2)] == ["×2", "×4", "×1/2", "×1/4"]
    assert words(changed(64, 1)) == "×64"
    assert words(changed(1 / 8, -1)) == "×1/8"


def test_a_length_of_time_takes_eight_columns_at_most() -> None:
    lengths = {
        0: "00:00.0",
        3.27: "00:03.2",
        3599.95: "59:59.9",
        3600: "1:00:00",
        359_999: "99:59:59",
        360_000: "4d04:00",
        -2: "-00:02.0",
    }
    assert {seconds: since(timedelta(seconds=seconds)) for seconds in lengths} == lengths
