"""Why an event happened: from it back to a person's words, each step an event of the log.

A step leads to one earlier event (its cause) and may rest on others: the approval or the rule that let a call pass, the
results that were new in a request, the cancel that ended a run. Every link goes to an earlier event, whatever a log
says, so the walk ends. Events come from `Look`; what was new in a request comes from the fold (`state`), where it is to
be had; failing all else the header's `cause` is followed. This module must not know where events are kept nor how the
answer is laid out.
"""

from typing import Final

import msgspec

from muse.event.envelope import Event
from muse.fold.state import Session
from muse.view.explained import End, Found, Known, Look, explained
from muse.view.timeline import Context, Row, learn, row
from muse.view.visible import one_line

STEPS_MAX: Final = 10_000
"""So many steps back are told; then the answer says that there are more."""
RESTS_MAX: Final = 256
"""So many events that one step rests on are told."""


class Rest(msgspec.Struct, frozen=True):
    """An event that a step rests on beside its cause."""

    relation: str
    row: Row


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the way back; `relation` says how it led to the step before, "" at the event that was asked about.
    `notes` are words that stand in no row: the rule, the reason."""

    relation: str
    row: Row
    notes: tuple[str, ...] = ()
    rests: tuple[Rest, ...] = ()


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: steps from the event back, where they end, and in words why they end there."""

    steps: tuple[Step, ...]
    end: End
    words: str


class _Point(msgspec.Struct, frozen=True):
    """An event on the way, before it has a row."""

    relation: str
    event: Event
    found: Found
    rests: list[tuple[str, Event]]


def why(event: Event, look: Look, state: Session | None, home: str = "") -> Chain:
    """Walk back from an event. `state` is the fold after it, or None where it cannot be had."""
    known, points, relation = Known(state), list[_Point](), ""
    while True:
        found = explained(event, look, known)
        rests = [(link.relation, one) for link in found.rests[:RESTS_MAX] if (one := _at(look, link.seq, event.seq))]
        points.append(_Point(relation, event, found, rests))
        if found.end is not None or found.cause is None:
            return _told(points, found.end or "unknown", found.words or "nothing says what led to it", home)
        cause = _at(look, found.cause.seq, event.seq)
        if cause is None:
            words = f"it names #{found.cause.seq} as its cause, and that is no earlier event"
            return _told(points, "unknown", words, home)
        if len(points) == STEPS_MAX:
            return _told(points, "limit", f"and further: muse why @{cause.seq}", home)
        relation, event = found.cause.relation, cause


def _told(points: list[_Point], end: End, words: str, home: str) -> Chain:
    """With rows, which know of calls what the events on the way say."""
    events = {one.seq: one for point in points for one in (point.event, *(rest for _, rest in point.rests))}
    context = Context(home=home)
    for seq in sorted(events):
        learn(context, events[seq])
    steps = tuple(
        Step(
            relation=point.relation,
            row=row(point.event, context),
            notes=tuple(one_line(note) for note in point.found.notes),
            rests=tuple(Rest(how, row(one, context)) for how, one in point.rests),
        )
        for point in points
    )
    return Chain(steps=steps, end=end, words=one_line(words))


def _at(look: Look, seq: int, before: int) -> Event | None:
    return look.event(seq) if 0 < seq < before else None
