"""Promise 1, checked: each model request can be rebuilt from the log, and its bytes have the digest that was recorded.

Folds the log once from its beginning. A request whose builder this build does not have, or that follows a redacted or
unknown event, is not checkable, which is no fault.
"""

from muse.decide.context import Rules, next_request
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import ModelRequested
from muse.fold.state import Session
from muse.log.protocol import Log
from muse.log.verify import Row
from muse.runtime.check.decisions import has_builder
from muse.runtime.check.story import BROKEN, Impossible, Story

WHAT = "requests"


def check_requests(log: Log, rules: Rules) -> Row:
    """The row of a verdict about the model requests of an intact log."""
    story, checked, unknown_builders = Story(log), 0, set[str]()
    try:
        for event in story.events():
            if isinstance(event.body, Redacted | Unknown) or story.state.recovered:
                detail = f"{checked} requests are rebuilt; those after #{event.seq} are not checkable: {_why(event)}"
                return Row(what=WHAT, state="not checkable", detail=detail)
            if isinstance(event.body, ModelRequested):
                verdict = _rebuilt(story.state, event, event.body, rules)
                if verdict is None:
                    unknown_builders.add(event.body.builder)
                elif verdict:
                    checked += 1
                else:
                    detail = f"the request of #{event.seq} cannot be rebuilt: the log gives other bytes than were sent"
                    return Row(what=WHAT, state="failed", detail=detail, seq=event.seq)
            story.fold(event)
    except Impossible as impossible:
        return Row(what=WHAT, state="failed", detail=str(impossible), seq=impossible.seq)
    if unknown_builders:
        names = ", ".join(sorted(unknown_builders))
        return Row(what=WHAT, state="not checkable", detail=f"{checked} are rebuilt; this build has no {names}")
    return Row(what=WHAT, state="proven", detail=f"model requests rebuilt from the log, byte for byte: {checked}")


def _rebuilt(state: Session, event: Event, body: ModelRequested, rules: Rules) -> bool | None:
    """Whether the bytes have the recorded digest; None when the builder is not at hand."""
    settings, agent = state.settings, state.agents.get(event.agent)
    if settings is None or agent is None:
        return False
    if not has_builder(state, event.agent, body.builder, rules):
        return None
    try:
        built = next_request(state, agent, rules, body.purpose)
    except BROKEN:  # a transcript that no run can have led to
        return False
    return (built.sha256, len(built.body), built.items) == (body.request_sha256, body.request_bytes, body.items)


def _why(event: Event) -> str:
    if not isinstance(event.body, Redacted | Unknown):
        return "what came before is lost"
    return "it was redacted" if isinstance(event.body, Redacted) else f"{event.type} v{event.v} is unknown here"
