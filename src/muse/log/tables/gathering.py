"""One pass over a session's events for all the views that a query reads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from muse.errors import Damaged, InvalidEvent
from muse.log.protocol import Stored
from muse.log.tables import between
from muse.log.tables.others import Agents, Costs, Events, Files, Prompts, Sessions
from muse.log.tables.rows import Contents, Gatherer, Row, Streams, fact_of, type_of
from muse.log.tables.steps import Approvals, Calls, Doubts, ModelRequests, Processes

ROWS_AT_ONCE: Final = 2_000
"""Rows of a view with one row an event go on after so many events."""

_MAKERS: Final[dict[str, Callable[[frozenset[str], Contents], Gatherer]]] = {
    "sessions": Sessions, "events": Events, "prompts": Prompts, "calls": Calls, "model_requests": ModelRequests,
    "approvals": Approvals, "files": Files, "agents": Agents, "costs": Costs, "doubts": Doubts,
    "processes": Processes, **between.MAKERS,
}  # fmt: skip


def gather(
    session: str, events: Iterator[Stored], streams: Streams, used: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, list[Row]]]:
    """Rows for the views in `used`, some at a time: the view's name with them. Raises Damaged at an event that cannot
    be read, after the rows of what is before it."""
    contents = Contents(streams)
    gatherers = {name: _MAKERS[name](columns, contents) for name, columns in used.items()}
    problem: Damaged | None = None
    try:
        for number, stored in enumerate(events, 1):
            _give(session, stored, list(gatherers.values()))
            if number % ROWS_AT_ONCE == 0 and "events" in gatherers:
                yield "events", list(gatherers["events"].rows())
    except Damaged as error:
        problem = error
    for name, gatherer in gatherers.items():
        yield name, list(gatherer.rows())
    if problem is not None:
        raise problem


def _give(session: str, stored: Stored, gatherers: list[Gatherer]) -> None:
    kind = type_of(stored)
    takers = [one for one in gatherers if one.types is None or kind in one.types]
    if not takers:
        return
    try:
        fact = fact_of(session, stored, whole=any(one.bodies is None or kind in one.bodies for one in takers))
    except (InvalidEvent, UnicodeDecodeError) as error:
        raise Damaged(f"event {stored.seq} cannot be read: {error}", seq=stored.seq) from error
    for one in takers:
        one.take(fact)
