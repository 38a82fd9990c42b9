"""The flags that say which events are meant, the same for every command that lists some.

`@filtering` adds them to a command, which gets them as `wanted`, a `muse.view.filters.Filter`. The clock and the
reader's time zone are looked at here.
"""

import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.ui.cli import completing
from muse.ui.cli.output import note
from muse.view.filters import TERMS, Filter, Past, Term, absent, calls_of, learn, made
from muse.view.visible import HANG, one_line

_SHORT = {"regex": "-E"}
_COMPLETING = {"type": completing.event_types, "kind": completing.kinds}


class Local(tzinfo):
    """The time zone of this machine, with its summer time."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """How far its clocks are from UTC at that moment."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not told apart from the offset."""
        return timedelta(0)

    def tzname(self, moment: datetime | None) -> str | None:
        """As the machine calls it."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """A moment in UTC as the clocks here show it."""
        return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def now() -> datetime:
    """The present moment, in the reader's time zone."""
    return datetime.now(UTC).astimezone(Local())


def filtering(command: Callable[..., int]) -> Callable[..., int]:
    """Add the filters to a command; it gets them as `wanted`."""

    @functools.wraps(command)
    def run(*args: object, **given: Any) -> int:
        terms = {term.name: given.pop(f"filter_{term.field}") for term in TERMS}
        return command(*args, wanted=made(terms, now()), **given)

    for term in reversed(TERMS):
        run = _option(term)(run)
    return run


def _option(term: Term) -> Callable[[Any], Any]:
    names = [*([_SHORT[term.name]] if term.name in _SHORT else []), f"--{term.name}", f"filter_{term.field}"]
    if not term.value:
        return click.option(*names, is_flag=True, help=term.help)
    many = term.field not in ("since", "until")
    return click.option(
        *names, multiple=many, default=None if many else "", metavar=term.value, help=term.help,
        shell_complete=_COMPLETING.get(term.name),
    )  # fmt: skip


def of_lane(wanted: Filter, lane: str) -> Filter:
    """`SESSION:AGENT` says the same as `--agent`. Raises UsageError when both are given and differ."""
    if not lane or lane in wanted.agents:
        return wanted
    if wanted.agents:
        raise UsageError(f"both :{lane} and --agent say which agent is meant", hint="leave one of them out")
    return msgspec.structs.replace(wanted, agents=(lane,))


def require_agent(lane: str, past: Past, session: str) -> None:
    """Raises UsageError when an address names an agent that the session has not; `past` has learned all events."""
    if lane and past.agents and lane not in past.agents:
        raise app.no_agent(lane, one_line(session), past.agents)


def chosen(
    reading: app.Reading,
    wanted: Filter,
    past: Past,
    *,
    before: int | None = None,
    seen: Callable[[Event], None] | None = None,
) -> Iterator[Event]:
    """The events that are meant, each when `past` has learned it; `seen` is told of all. With `whole_calls` the log is
    read twice: first for the calls."""
    belongs = _completed(reading, wanted, before) if wanted.whole_calls else None
    for event in reading.events(before=before):
        learn(past, event)
        if seen is not None:
            seen(event)
        if wanted.matches(event, past, reading.content) or (belongs is not None and belongs(event)):
            yield event


def _completed(reading: app.Reading, wanted: Filter, before: int | None) -> Callable[[Event], bool]:
    """Whether an event belongs to a call of which some event is meant."""
    past, calls = Past(), set[str]()
    for event in reading.events(before=before):
        learn(past, event)
        if wanted.matches(event, past, reading.content):
            calls.update(calls_of(event))
    return wanted.completed(calls)


def say_nothing_found(wanted: Filter, past: Past, session: str) -> None:
    """Tell a person that no event is meant, and why that may be; `past` has learned them all."""
    note(f"muse: nothing in {one_line(session)} is what the filters ask for")
    for line in absent(wanted, past):
        note(f"{' ' * HANG}{one_line(line)}")
