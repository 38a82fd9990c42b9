"""Playing a session at the speed at which it happened: how long a step stays. Pure."""

from typing import Final

from muse.ui.tui.listing import moment

IDLE_SECONDS_MAX: Final = 2.0
"""Nobody watches a command of ten minutes: longer waits are made as long as this."""
STEP_SECONDS_MIN: Final = 0.02
SPEED_MAX: Final = 64
SLOWEST: Final = 8
"""At the slowest a step takes so many times as long as it did."""


def delay(before: str, after: str, speed: float) -> float:
    """Seconds from an event to the next, by the times of their headers, at `speed` times the recorded one."""
    first, second = moment(before), moment(after)
    seconds = (second - first).total_seconds() if first is not None and second is not None else 0.0
    return max(min(seconds, IDLE_SECONDS_MAX) / speed, STEP_SECONDS_MIN)


def changed(speed: float, by: int) -> float:
    """Twice as fast, or half as fast, within the limits."""
    return min(max(speed * 2.0**by, 1 / SLOWEST), float(SPEED_MAX))


def words(speed: float) -> str:
    """`×2`, `×1/4`."""
    return f"×{speed:.0f}" if speed >= 1 else f"×1/{1 / speed:.0f}"
