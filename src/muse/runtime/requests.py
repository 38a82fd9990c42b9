"""What a model was sent at any point of a log: the exact bytes, built again and compared with the recorded digest.

One fold from the nearest checkpoint serves the request and the one before it. A log is not trusted here: a story that
cannot be true makes a request that cannot be rebuilt, never a traceback.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from muse.decide.context import Built, Rules, next_request
from muse.errors import LogError
from muse.event import codec
from muse.event.conversation import Resulted
from muse.event.envelope import Event, Redacted, decode
from muse.event.kinds import ContextCompacted, ModelFailed, ModelRequested, ModelResponded, ToolFinished
from muse.event.sent import Compacted, Cut, Request, Sent
from muse.fold.evolve import evolve
from muse.fold.state import Agent, Session
from muse.log.protocol import Log, Stored
from muse.runtime.backwards import backwards, is_of
from muse.runtime.check.decisions import has_builder
from muse.runtime.check.story import BROKEN
from muse.runtime.checkpoint import fold

ANSWER_EVENTS_MAX: Final = 100_000
"""So many events after a request are looked at for its answer."""
COMPACTIONS_MAX: Final = 100
"""The newest so many are told."""
CUTS_MAX: Final = 200
LEFT_OUT: Final = " bytes left out"
"""What stands in the text of a result that the model got in part (`effect/tool/output.py`)."""


def request_at(log: Log, seq: int, agent: str, rules: Rules) -> Sent | None:
    """The newest request of an agent that is not after event `seq`, with the one before it; None when there is none.
    Raises what the log raises."""
    found = backwards(log, seq + 1, ("model.requested",), agent)
    asked = next(found, None)
    if asked is None:
        return None
    before = next(found, None)
    first = asked if before is None else before
    state, broken = Session(session=log.session), ""
    try:
        state = fold(log, before=first.seq)
    except BROKEN as error:
        broken = _impossible(first.seq, error)
    previous = None if before is None else _request(state, before, rules, broken)
    if before is not None and not broken:
        broken = _go_on(log, state, asked.seq)
    request = _request(state, asked, rules, broken)
    lane = state.agents.get(agent)
    return Sent(
        request=request,
        previous=previous,
        answer=_answer(log, asked, agent, request.asked),
        compacted=tuple(_compacted(log, asked.seq, agent)),
        cut=tuple(_cut(log, lane)) if lane is not None and request.data is not None else (),
    )


def built_again(state: Session, agent: str, asked: ModelRequested, rules: Rules) -> Built | str:
    """The request that this state gives, by the builder that the log names; or why there is none."""
    lane = state.agents.get(agent)
    if state.settings is None or lane is None:
        return f"nothing before it says what {agent} was told"
    if not has_builder(state, agent, asked.builder, rules):
        names = ", ".join(sorted(one.name for one in rules.builders.values()))
        return f"it was built by {asked.builder}, and this build has {names}"
    return next_request(state, lane, rules, asked.purpose)


def _go_on(log: Log, state: Session, upto: int) -> str:
    """Fold on to the event before `upto`. Returns why that cannot be, "" when it is done."""
    for stored in log.read(after=state.seq, before=upto):
        try:
            evolve(state, _event(stored))
        except BROKEN as error:
            return _impossible(stored.seq, error)
    return ""


def _event(stored: Stored) -> Event:
    return decode(stored.header, stored.body, stored.hidden)


def _impossible(seq: int, error: Exception) -> str:
    return f"the story up to #{seq} is an impossible one: {error or type(error).__name__}"


def _request(state: Session, stored: Stored, rules: Rules, broken: str) -> Request:
    event = _event(stored)
    asked = event.body
    if not isinstance(asked, ModelRequested):
        what = "redacted" if isinstance(asked, Redacted) else "unknown to this version"
        why = f"#{event.seq} itself is {what}"
        if isinstance(asked, Redacted) and state.incomplete:
            why = f"{_missing(state)}, and with it the digest of this request"
        return Request(seq=event.seq, agent=event.agent, asked=None, why=why)
    data, why, differs = None, broken, ""
    if not broken:
        try:
            built = built_again(state, event.agent, asked, rules)
        except BROKEN as error:
            built = _impossible(event.seq, error)
        if isinstance(built, str):
            why = built
        elif differs := _differences(built, asked):
            data = built.body
        else:
            return Request(seq=event.seq, agent=event.agent, asked=asked, data=built.body)
    if state.incomplete:  # then neither the lack of bytes nor other bytes say anything
        data, why, differs = None, f"what it was made of is not all there: {_missing(state)}", ""
    return Request(seq=event.seq, agent=event.agent, asked=asked, data=data, why=why, differs=differs)


def _missing(state: Session) -> str:
    """The first of what could not be folded."""
    if state.redacted:
        return f"{state.redacted[0]} is redacted"
    if state.unknown:
        return f"{state.unknown[0]} is unknown to this version"
    if state.recovered:
        return f"{state.recovered[0]} was lost, and this log saved without it"
    return f"the session was imported from {state.imported}"


def _differences(built: Built, asked: ModelRequested) -> str:
    """What differs from the record, "" when it is as recorded."""
    found = []
    if built.items != asked.items:
        found.append(f"{built.items} transcript items, recorded are {asked.items}")
    if len(built.body) != asked.request_bytes:
        found.append(f"{len(built.body):,} bytes, recorded are {asked.request_bytes:,}")
    if built.sha256 != asked.request_sha256:
        found.append(f"digest {built.sha256}, recorded is {asked.request_sha256}")
    return "; ".join(found)


def _answer(log: Log, stored: Stored, agent: str, asked: ModelRequested | None) -> Event | None:
    """The response to this attempt, or its failure; None where none came before the agent's next request."""
    if asked is None:
        return None
    with suppress(LogError):  # what comes after the request may be damaged; the request is not
        for one in log.read(after=stored.seq, before=stored.seq + ANSWER_EVENTS_MAX):
            if is_of(one, ("model.requested",), agent):
                return None
            if is_of(one, ("model.responded", "model.failed"), agent):
                event = _event(one)
                body = event.body
                if not isinstance(body, ModelResponded | ModelFailed):
                    return event
                if (body.call, body.attempt) == (asked.call, asked.attempt):
                    return event
    return None


def _compacted(log: Log, before: int, agent: str) -> Iterator[Compacted]:
    """What compaction hid from this agent up to here, in the order of the log."""
    seqs = []
    for seq, header in log.headers():
        if seq >= before:
            break
        if b"context.compacted" in header:
            seqs.append(seq)
    for seq in seqs[-COMPACTIONS_MAX:]:
        event = next((_event(one) for one in log.read(after=seq - 1, before=seq + 1)), None)
        if event is None or event.agent != agent or not isinstance(event.body, ContextCompacted):
            continue
        body, events, size = event.body, 0, 0
        for one in log.read(after=max(body.first, 1) - 1, before=min(body.last, seq) + 1):
            if codec.parse_header(one.header).agent == agent:
                events, size = events + 1, size + len(one.body or b"")
        after = len(body.text.encode())
        if body.method == "results":  # of the events in between, these calls' results only
            events, after = len(body.calls), after * len(body.calls)
            size = max(body.bytes_before - body.bytes_after, 0) + after
        yield Compacted(
            seq=seq, first=body.first, last=body.last, events=events, before=size, after=after, method=body.method
        )


def _cut(log: Log, lane: Agent) -> Iterator[Cut]:
    """The results among the agent's items that it got in part."""
    found = [item for item in lane.items if isinstance(item, Resulted) and LEFT_OUT in item.text]
    for item in found[-CUTS_MAX:]:
        event = next((_event(one) for one in log.read(after=item.seq - 1, before=item.seq + 1)), None)
        body = None if event is None else event.body
        if event is None or not isinstance(body, ToolFinished) or body.output is None:
            continue
        yield Cut(seq=event.seq, call=item.call, sent=len(item.text.encode()), whole=body.output.length)
