"""Every recorded decision must be due in the state just before it, and none that was due may be left out.

`due` says what might be decided; which of it comes first is a matter of what was ready, and is not compared. What
cannot be left out follows from how an owner works (`runtime.loop`): in one append it takes, one after the other, all
that is due and ready, and only an intent that the tool looks at first may not be ready. This module must not know
facts.
"""

from collections.abc import Callable, Iterable

import msgspec

from muse.decide.context import RULES_VERSION, Builder, Rules
from muse.decide.decision import Due
from muse.decide.due import due, spec_of
from muse.event.content import Observed
from muse.event.envelope import Event
from muse.event.kinds import (
    KINDS,
    AgentMessaged,
    AgentSpawned,
    ApprovalDecided,
    BudgetReached,
    CancelRequested,
    CommandRefused,
    ModelChanged,
    ModelRequested,
    ToolFinished,
    ToolStarted,
)  # fmt: skip
from muse.fold.models import model_ref
from muse.fold.state import Session
from muse.runtime.check.differences import bodies, one
from muse.runtime.check.report import Diverged
from muse.runtime.check.story import BROKEN

KNOWN_RULES = frozenset(range(1, RULES_VERSION + 1))
"""The versions of the rules that this build has, each as it was."""

REQUEST_FIELDS = frozenset({"items", "request_bytes", "request_sha256"})
NAMED_MAX = 5
_TYPE_OF = {kind.body: name for name, kind in KINDS.items()}


def is_decision(state: Session, event: Event) -> bool:
    """Whether the owner decided this, by the state before it: by its type and, of those that have two origins, by who
    gave it (an answer to an approval), who wants it (a cancelling), why (another model, a refusal), what it ends (a
    call that touches nothing but the log)."""
    match event.body:
        case ApprovalDecided(by=by):
            return by != "person"
        case CancelRequested(by=by):
            return by != ""
        case ModelChanged(reason=reason):
            return reason != ""
        case CommandRefused(why=why):
            return why == "impossible"
        case ToolFinished(call=call):
            run = state.run(call)
            return run is not None and run.phase != "done" and run.recovery == "derived"
    kind = KINDS.get(event.type)
    return kind is not None and kind.origin == "decision"


def has_builder(state: Session, agent_id: str, name: str, rules: Rules) -> bool:
    """Whether the bytes of this agent's next request can be built here, by this builder."""
    agent = state.agents.get(agent_id)
    if state.settings is None or agent is None:
        return False
    builder = rules.builders.get(model_ref(state, agent).dialect)
    return builder is not None and builder.name == name


def check(state: Session, event: Event, rules: Rules) -> None:
    """Raises `Diverged` unless this decision is due. Of a request whose builder is not at hand all but its bytes is
    compared."""
    body = event.body
    if isinstance(body, ToolStarted):
        body = msgspec.structs.replace(body, observed=Observed())
    if isinstance(body, ModelRequested) and not has_builder(state, event.agent, body.builder, rules):
        rules = _with_stand_in(state, event.agent, rules, body.builder)
        body = msgspec.structs.replace(body, request_bytes=0, request_sha256=STAND_IN_SHA256)
    found = _due(state, _deciders(state, event), rules)
    if any((one.agent, one.cause) == (event.agent, event.cause) and one.body == body for one in found):
        return
    raise _nearest(event, body, found)


def _deciders(state: Session, event: Event) -> set[str]:
    """The agents of whose decisions this may be one: the header names the agent that it is about, which another may
    have decided for it."""
    match event.body:
        case AgentSpawned(wanted=seq, parent=parent) if seq:
            return {event.agent, parent}
        case AgentSpawned(call=call) | AgentMessaged(call=call) | CancelRequested(by=call):
            return {event.agent, call.partition("/")[0]} if call else {event.agent}
        case BudgetReached():
            return set(state.agents)  # a limit of all is reached by any
    return {event.agent}


def left_out(state: Session, agents: Iterable[str], rules: Rules, busy: Callable[[Due], bool]) -> Due | None:
    """A decision that is due for these agents and waits for nothing, if there is one; `busy` says of which the place is
    not to be had."""
    found = _due(state, agents, rules)
    return next((one for one in found if not _is_looked_at_first(state, one) and not busy(one)), None)


def all_due(state: Session, rules: Rules) -> list[Due]:
    """What is due for any agent."""
    return _due(state, state.agents, rules)


def name_of(one: Due) -> str:
    """The type of a decision, and its call."""
    return f"{_TYPE_OF[type(one.body)]} {getattr(one.body, 'call', '')}".rstrip()


def _due(state: Session, agents: Iterable[str], rules: Rules) -> list[Due]:
    agents = list(agents)
    for agent_id in agents:
        rules = _with_stand_in(state, agent_id, rules)
    try:
        return due(state, agents, rules)
    except BROKEN as error:
        raise Diverged("impossible", f"nothing can be decided from this state: {error}") from error


STAND_IN_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of no bytes."""


def _with_stand_in(state: Session, agent_id: str, rules: Rules, name: str = "") -> Rules:
    """The rules with a builder for this agent's dialect: with a `name` that one, else one only where there is none."""
    agent = state.agents.get(agent_id)
    if state.settings is None or agent is None:
        return rules
    dialect = model_ref(state, agent).dialect
    if dialect in rules.builders and not name:
        return rules
    builders = {**rules.builders, dialect: Builder(name, lambda request: b"")}
    return msgspec.structs.replace(rules, builders=builders)


def _is_looked_at_first(state: Session, one: Due) -> bool:
    """Whether the tool, or the snapshot around it, is looked at before this intent, so that it may come later. Hosts
    once took a snapshot for a tool that the session has and the agent was not given, too."""
    if not isinstance(one.body, ToolStarted):
        return False
    tool = one.body.tool
    spec = spec_of(state.agents[one.agent], tool) or next((spec for spec in state.tools if spec.name == tool), None)
    looked_at = one.body.recovery in ("reconcilable", "attachable")
    return spec is not None and (looked_at or spec.writes)


def _nearest(event: Event, body: msgspec.Struct, found: list[Due]) -> Diverged:
    """Why none of what is due is this decision, told by the one that is most like it."""
    alike = [other for other in found if type(other.body) is type(body)]
    call = getattr(body, "call", None)
    near = next((other for other in alike if getattr(other.body, "call", None) == call), alike[0] if alike else None)
    if near is None:
        return Diverged("not_due", f"{event.type} is not due here", f"due: {_named(found)}", one(body))
    if near.body == body:
        expected, recorded = (f"agent {x.agent}, cause {x.cause}" for x in (near, event))
        return Diverged("cause", f"{event.type} is due, but not by this agent or cause", expected, recorded)
    if isinstance(body, ModelRequested) and isinstance(near.body, ModelRequested):
        differing = {name for name in body.__struct_fields__ if getattr(body, name) != getattr(near.body, name)}
        if differing <= REQUEST_FIELDS:
            return _other_request(body, near.body)
    what = f"{event.type} is due here with other arguments"
    return Diverged("arguments", what, one(near.body), one(body), bodies(near.body, body))


def _other_request(body: ModelRequested, near: ModelRequested) -> Diverged:
    """The sent bytes themselves are not in the log, so only their measures can be set side by side."""
    what = f"the request of {body.call} is not the one that the log gives: something that it was built from is another"
    expected, recorded = (
        f"{one.request_bytes} bytes of {one.items} items, sha256 {one.request_sha256}" for one in (near, body)
    )
    return Diverged("request", what, expected, recorded, bodies(near, body))


def _named(found: list[Due]) -> str:
    if not found:
        return "nothing"
    names = [name_of(one) for one in found]
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")
