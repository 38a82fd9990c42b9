"""A place in a log as people write it: `@120`, `2h` ago, `10:30`, `2026-11-30`, RFC 3339.

The clock and the reader's time zone come in with `now`. What a text names (a day, a minute, a second) is included
whole, whether it is where something begins or where it ends.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import msgspec

from muse.errors import UsageError
from muse.event.envelope import Event

AGO_MAX_SECONDS: Final = 100 * 365 * 86_400
SEQ_DIGITS_MAX: Final = 16
FORMS: Final = "@120 (an event), 2h (ago), 10:30, 2026-11-30, yesterday, or 2026-11-30T10:30:00Z"

_seq: Final = re.compile(r"[@#]([0-9]+)")
_ago: Final = re.compile(
    r"([0-9]{1,9})\s*(?:(s)|(s)ecs?|(s)econds?|(m)|(m)ins?|(m)inutes?|(h)|(h)ours?|(d)|(d)ays?|(w)|(w)eeks?)(?:\s+ago)?"
)
_clock: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MICROSECOND: Final = timedelta(microseconds=1)


class Moment(msgspec.Struct, frozen=True):
    """An event's number, or a time as headers have it (RFC 3339 UTC with microseconds); neither: no limit."""

    seq: int = 0
    time: str = ""

    def __bool__(self) -> bool:
        return bool(self.seq or self.time)

    def is_at_or_before(self, event: Event) -> bool:
        """Whether the event comes not before this."""
        return event.seq >= self.seq and event.time >= self.time

    def is_at_or_after(self, event: Event) -> bool:
        """Whether the event comes not after this, which is no empty moment."""
        return event.seq <= self.seq if self.seq else event.time <= self.time


def moment(text: str, now: datetime, *, end: bool) -> Moment:
    """The moment that `text` means at `now`, an aware time whose zone is the reader's; with `end` the last that is
    included, else the first. Raises UsageError."""
    given = text.strip()
    if found := _seq.fullmatch(given):
        if len(found[1]) > SEQ_DIGITS_MAX or int(found[1]) == 0:
            raise UsageError(f"{text!r}: there is no event {found[1][:20]}", hint="events are numbered 1, 2, 3 …")
        return Moment(seq=int(found[1]))
    span = _named(given.lower(), now) or _written(given, now)
    if span is None:
        raise UsageError(f"{text[:40]!r} is no moment", hint=f"write {FORMS}")
    first, length = span
    try:
        at = first + length - _MICROSECOND if end and length else first
        return Moment(time=f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0"))
    except OverflowError as error:
        raise UsageError(f"{text[:40]!r} is out of reach", hint=f"write {FORMS}") from error


_Span = tuple[datetime, timedelta]
_DAY: Final = timedelta(days=1)


def _named(text: str, now: datetime) -> _Span | None:
    if text == "now":
        return now, timedelta(0)
    if text in ("today", "yesterday"):
        return _day(now.date() - (_DAY if text == "yesterday" else timedelta(0)), now)
    if found := _ago.fullmatch(text):
        seconds = int(found[1]) * _UNITS[next(filter(None, found.groups()[1:]))]
        if seconds > AGO_MAX_SECONDS:
            raise UsageError(f"{text!r} is too long ago", hint=f"write {FORMS}")
        return now.astimezone(UTC) - timedelta(seconds=seconds), timedelta(0)
    if found := _clock.fullmatch(text):
        return _time_of_day(text, found, now)
    return None


def _time_of_day(text: str, found: re.Match[str], now: datetime) -> _Span:
    """The last such time of day that has begun."""
    try:
        clock = time(int(found[1]), int(found[2]), int(found[3] or 0), tzinfo=now.tzinfo)
    except ValueError as error:
        raise UsageError(f"{text!r} is no time of day", hint=f"write {FORMS}") from error
    at = datetime.combine(now.date(), clock)
    if at > now:
        at = datetime.combine(now.date() - _DAY, clock)
    return at, timedelta(seconds=1) if found[3] else timedelta(minutes=1)


def _written(text: str, now: datetime) -> _Span | None:
    """A date, or a date with a time; without a zone it is in the reader's."""
    try:
        if len(text) <= len("2026-11-30"):
            return _day(date.fromisoformat(text), now)
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
    if "." in text or "," in text:
        return at, _MICROSECOND
    return at, timedelta(seconds=1) if text.count(":") >= 2 else timedelta(minutes=1)


def _day(day: date, now: datetime) -> _Span:
    start = datetime.combine(day, time(), tzinfo=now.tzinfo)
    return start, datetime.combine(day + _DAY, time(), tzinfo=now.tzinfo) - start
