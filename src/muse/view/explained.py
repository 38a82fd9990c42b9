"""What led to one event, and what it rests on: a table from body type to the rule that says so.

Used by `causes`, which walks. What was new in a request comes from the fold (`Known`), where it is to be had; failing
all else the header's `cause` is followed.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, Literal, Protocol

import msgspec

from muse.event import kinds
from muse.event.calls import number_of
from muse.event.content import Origin
from muse.event.conversation import Answered, Resulted, Said
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import COMMANDS
from muse.fold.state import Agent, Session
from muse.view.summary import refusal_words, who

SOURCES_MAX: Final = 8
"""So many rules are traced to where they come from."""
REFUSED_WITHIN_EVENTS: Final = 32
"""So many events after a command are looked at for its refusal."""

End = Literal["person", "start", "imported", "recovered", "redacted", "outside", "unknown", "limit"]


class Look(Protocol):
    """Where events come from. May raise what reading a log raises."""

    def event(self, seq: int) -> Event | None:
        """The event of this number, None where the log has none."""
        ...

    def earlier(self, before: int, types: tuple[str, ...], after: int = 0) -> Iterator[Event]:
        """Events of these types before event `before` and after event `after`, newest first."""
        ...


class Link(msgspec.Struct, frozen=True):
    """An earlier event, and in a few words how it led to this one ("asked for by")."""

    relation: str
    seq: int


class Known:
    """The fold after the event that was asked about (None where it cannot be had), with the answers of each agent at
    hand: a long way back asks for them again and again."""

    def __init__(self, state: Session | None) -> None:
        self.state = state
        self._answers: dict[str, list[tuple[int, Answered]]] = {}

    def agent(self, agent: str) -> Agent | None:
        """The agent, where it is known."""
        return self.state.agents.get(agent) if self.state is not None else None

    def answers(self, agent: str) -> list[tuple[int, Answered]]:
        """The responses in an agent's transcript, each with its place there."""
        if agent not in self._answers:
            items = found.items if (found := self.agent(agent)) is not None else []
            self._answers[agent] = [(at, item) for at, item in enumerate(items) if isinstance(item, Answered)]
        return self._answers[agent]


class Found(msgspec.Struct, kw_only=True):
    """What is known of an event: its cause, or (`end`, in `words`) why it goes no further; and what it rests on."""

    cause: Link | None = None
    rests: list[Link] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    end: End | None = None
    words: str = ""


def explained(event: Event, look: Look, known: Known) -> Found:
    """What led to an event. `known` holds the fold after the event that was asked about."""
    body = event.body
    if isinstance(body, Redacted):
        return _hidden(event)
    if isinstance(body, Unknown):
        return _by_header(event, "after")
    explain = _EXPLAINED.get(type(body))
    found = explain(event, body, look, known) if explain is not None else _by_header(event, "after")
    if found.cause is None and found.end is None:
        fallback = _by_header(event, "after")
        found.cause, found.end, found.words = fallback.cause, fallback.end, fallback.words
    return found


def _by_header(event: Event, relation: str) -> Found:
    if event.cause:
        return Found(cause=Link(relation, event.cause))
    return Found()


def _hidden(event: Event) -> Found:
    """Of a redacted event its header is left, which says what led to it."""
    if event.type in COMMANDS:
        return Found(end="redacted", words=f"a person's {event.type}, whose text is hidden by redaction")
    if event.cause:
        return Found(cause=Link("after", event.cause), notes=["its text is hidden by redaction"])
    return Found(end="redacted", words="its text is hidden by redaction, and with it what led to it")


# -- people and the log ------------------------------------------------------------------------------------------------


def _person(event: Event, body: Any, look: Look, known: Known) -> Found:
    """A command: somebody gave it, from outside."""
    rests = []
    if isinstance(body, kinds.QuestionAnswered):
        rests.append(Link("in answer to", body.question))
    by = who(getattr(body, "origin", Origin()))
    words = f"the words of {by}" if getattr(body, "text", "") or getattr(body, "task", "") else f"given by {by}"
    notes = [f"because: {body.why}"] if getattr(body, "why", "") else []
    if refusal := _refusal(event, look):
        notes.append(f"it is not followed: it was refused at #{refusal}")
    return Found(end="person", words=words, rests=rests, notes=notes)


def _refusal(event: Event, look: Look) -> int:
    """The event that says that a command is not followed, 0 for none: owners look at a command when it comes in."""
    for seq in range(event.seq + 1, event.seq + 1 + REFUSED_WITHIN_EVENTS):
        after = look.event(seq)
        if after is None:
            return 0
        if isinstance(after.body, kinds.CommandRefused) and after.body.command == event.seq:
            return seq
    return 0


def _opened(event: Event, body: kinds.SessionOpened, look: Look, known: Known) -> Found:
    return Found(
        end="start", words=f"the session was opened on {body.host.name or 'a host'} by process {body.host.pid}"
    )


def _imported(event: Event, body: kinds.LogImported, look: Look, known: Known) -> Found:
    return Found(end="imported", words=f"imported from {body.source}, which does not say more")


def _recovered(event: Event, body: kinds.LogRecovered, look: Look, known: Known) -> Found:
    lost = "what stood here was lost, and the log saved without it" if body.first_lost else "the log was saved then"
    return Found(end="recovered", words=lost)


def _refused(event: Event, body: kinds.CommandRefused, look: Look, known: Known) -> Found:
    return Found(cause=Link("refuses", body.command), notes=[f"because: {refusal_words(body)}"])


# -- calls -------------------------------------------------------------------------------------------------------------


def _finished(event: Event, body: kinds.ToolFinished, look: Look, known: Known) -> Found:
    cause = look.event(event.cause) if 0 < event.cause < event.seq else None
    if cause is not None and isinstance(cause.body, kinds.ApprovalDecided) and cause.body.decision == "deny":
        return Found(cause=Link("refused by", cause.seq))
    intent = _intent(event, body.call, look)
    if body.status == "cancelled" and (cancel := _cancel(event, body.call, intent, look)):
        rests = [Link("of", intent)] if intent else []
        return Found(cause=Link("cancelled by", cancel), rests=rests)
    if intent and (settled := _settled(event, body.call, intent, look)):
        return Found(cause=Link("settled by", settled))
    if not intent:
        return _asked_for(event, body.call, look, known)
    return Found(cause=Link("the result of", intent), rests=_children_of(event, body.call, intent, look))


def _settled(event: Event, call: str, intent: int, look: Look) -> int:
    """What became of the doubt about this run of the call, 0 where there was none."""
    settled = look.earlier(event.seq, ("effect.reconciled",), intent)
    return next((one.seq for one in settled if _call(one) == call), 0)


def _started(event: Event, body: kinds.ToolStarted, look: Look, known: Known) -> Found:
    found = _asked_for(event, body.call, look, known)
    if body.attempt > 1 and event.cause:
        found.rests.append(Link("again after", event.cause))
    if body.approval:
        found.rests.append(Link("allowed by", body.approval))
    if body.allowed_by:
        words = body.allowed_by.removeprefix("allowed by ")
        found.notes.append(f"allowed by {words}")
        found.rests += _sources(body.allowed_by, event.seq, look, known)
    return found


def _of_calls(event: Event, body: kinds.FilesChanged | kinds.FilesUnknown, look: Look, known: Known) -> Found:
    intents = [seq for call in body.calls if (seq := _intent(event, call, look))]
    if not intents:
        return Found(end="outside", words="changed by somebody else, outside the session")
    one_of = "made by" if len(intents) == 1 and not getattr(body, "external", False) else "made by one of"
    notes = ["or by somebody else meanwhile"] if getattr(body, "external", False) else []
    last = max(intents)
    rests = [Link("or by", seq) for seq in intents if seq != last]
    return Found(cause=Link(one_of, last), rests=rests, notes=notes)


def _process(event: Event, body: Any, look: Look, known: Known) -> Found:
    intent = _intent(event, body.call, look)
    return Found(cause=Link("left running by", intent) if intent else None)


def _approval_requested(event: Event, body: kinds.ApprovalRequested, look: Look, known: Known) -> Found:
    found = _asked_for(event, body.call, look, known)
    if body.rule:
        found.notes.append(f"because: {body.rule}")
        found.rests += _sources(body.rule, event.seq, look, known)
    return found


def _approval_decided(event: Event, body: kinds.ApprovalDecided, look: Look, known: Known) -> Found:
    found = Found()
    if body.by == "person":
        found.notes.append(f"decided by {who(body.origin)}")
    elif body.rule:
        found.notes.append(f"decided by a rule: {body.rule}")
        found.rests += _sources(body.rule, event.seq, look, known)
    elif body.by == "timeout" and event.cause:
        found.rests.append(Link("after", event.cause))
    if body.note:
        found.notes.append(f"with the words: {body.note}")
    if body.request:
        found.cause = Link("in answer to", body.request)
    else:
        found.cause = _asked_for(event, body.call, look, known).cause
    return found


def _call_of(event: Event, body: Any, look: Look, known: Known) -> Found:
    """A question, a message to another agent: a call's doing."""
    return _asked_for(event, body.call, look, known) if body.call else _by_header(event, "after")


def _doubted(event: Event, body: kinds.EffectDoubted, look: Look, known: Known) -> Found:
    opened = next((one.seq for one in look.earlier(event.seq, ("session.opened",))), 0)
    rests = [Link("found out at", opened)] if opened else []
    cause = Link("in doubt since", event.cause) if event.cause else None
    return Found(cause=cause, rests=rests)


def _reconciled(event: Event, body: kinds.EffectReconciled, look: Look, known: Known) -> Found:
    doubt = next(
        (one.seq for one in look.earlier(event.seq, ("effect.doubted",)) if _call(one) == body.call), event.cause
    )
    notes = [f"evidence: {body.evidence}"] if body.evidence else []
    return Found(cause=Link("settles", doubt) if doubt else None, notes=notes)


def _call(event: Event) -> str:
    call = getattr(event.body, "call", "")
    return call if isinstance(call, str) else ""


def _intent(event: Event, call: str, look: Look) -> int:
    """The start of a call's run before an event, 0 where the log has none."""
    cause = look.event(event.cause) if 0 < event.cause < event.seq else None
    if cause is not None and isinstance(cause.body, kinds.ToolStarted) and cause.body.call == call:
        return cause.seq
    lane = call.partition("/")[0]
    started = look.earlier(event.seq, ("tool.started",))
    return next((one.seq for one in started if one.agent == lane and _call(one) == call), 0)


def _asked_for(event: Event, call: str, look: Look, known: Known) -> Found:
    """The response of the model that asked for a call: keys count on from that of the response."""
    lane, number = call.partition("/")[0], number_of(call)
    answers = known.answers(lane)
    at = bisect_left(answers, number, key=lambda one: number_of(one[1].call)) - 1
    if at >= 0 and answers[at][1].seq < event.seq and _asks(answers[at][1], number):
        return Found(cause=Link("asked for by", answers[at][1].seq))
    for one in look.earlier(event.seq, ("model.responded",)) if number else ():
        if one.agent == lane and isinstance(one.body, kinds.ModelResponded) and _asks(one.body, number):
            return Found(cause=Link("asked for by", one.seq))
    return Found()


def _asks(answer: Answered | kinds.ModelResponded, number: int) -> bool:
    first = number_of(answer.call)
    return 0 < first < number <= first + sum(one.kind == "tool_use" for one in answer.blocks)


def _cancel(event: Event, call: str, since: int, look: Look) -> int:
    """The newest word after `since` that ended this call, its agent's turn, the agent or one above it; 0 for none. A
    prompt that is given instead of the running turn is one."""
    for one in look.earlier(event.seq, ("cancel.requested", "user.prompted"), since):
        body = one.body
        if isinstance(body, kinds.UserPrompted) and body.delivery == "replace" and one.agent == event.agent:
            return one.seq
        if not isinstance(body, kinds.CancelRequested) or body.target == "prompt":
            continue
        above = body.target == "tree" and event.agent.startswith(f"{one.agent}.")
        if (above or one.agent == event.agent) and (body.target not in ("call", "prompt") or body.call == call):
            return one.seq
    return 0


# -- models ------------------------------------------------------------------------------------------------------------


def _answered(event: Event, body: Any, look: Look, known: Known) -> Found:
    stopped = isinstance(body, kinds.ModelFailed) and body.failure == "cancelled"
    if stopped and (cancel := _cancel(event, body.call, event.cause, look)):
        return Found(cause=Link("cancelled by", cancel), rests=[Link("of", event.cause)] if event.cause else [])
    return Found(cause=Link("in answer to", event.cause) if event.cause else None)


def _requested(event: Event, body: kinds.ModelRequested, look: Look, known: Known) -> Found:
    """What was new in it since the last answer: results lead to the response that asked for them; a person's words,
    where they alone are new, are the cause."""
    found = Found()
    agent = known.agent(event.agent)
    if agent is None or body.purpose == "summary" or _was_compacted_since(agent, event.seq):
        return found
    if body.attempt > 1 and event.cause:
        found.rests.append(Link("again after", event.cause))
    answers = known.answers(event.agent)
    before = min(bisect_left(answers, body.items, key=itemgetter(0)), bisect_left(answers, event.seq, key=_seq_of))
    last, since = answers[before - 1] if before else (-1, None)
    end = min(body.items, answers[before][0]) if before < len(answers) else body.items
    new = [item for item in agent.items[last + 1 : end] if item.seq < event.seq]
    results = [Link("with the result", item.seq) for item in new if isinstance(item, Resulted)]
    said = [_said_in(item, look) for item in new if isinstance(item, Said)]
    begun = _begun_by(event, said, look)
    words = [begun] if begun else [link for link in said if link.relation in _WORDS]
    if results and since is not None:
        found.cause = Link("goes on from", since.seq)
    elif words:
        found.cause = words[-1]
    elif since is None and event.agent != "main":
        spawned = look.earlier(event.seq, ("agent.spawned",))
        found.cause = next((Link("begun by", one.seq) for one in spawned if one.agent == event.agent), None)
    elif event.cause:
        found.cause = Link("after", event.cause)
    told = found.cause.seq if found.cause is not None else 0
    found.rests += [link for link in (*said, *results) if link.seq != told]
    return found


def _was_compacted_since(agent: Agent, seq: int) -> bool:
    """Whether the transcript is another list than the one that a request at `seq` counted."""
    if not agent.compacted_from:
        return False
    return any(isinstance(item, Said) and item.source == "summary" and item.seq > seq for item in agent.items)


def _begun_by(event: Event, said: list[Link], look: Look) -> Link | None:
    """A child's first words are its task, which stands in the event that it was spawned with."""
    if event.agent == "main" or len(said) == 0:
        return None
    first = look.event(said[0].seq)
    spawned = first is not None and isinstance(first.body, kinds.AgentSpawned)
    return Link("begun by", said[0].seq) if spawned else None


def _seq_of(answer: tuple[int, Answered]) -> int:
    return answer[1].seq


_SAID: Final = {
    "prompt": "with the prompt", "steer": "with the steer", "notice": "with a notice of", "summary": "with the summary",
}  # fmt: skip
_MESSAGE: Final = "with the message"
_WORDS: Final = (_SAID["prompt"], _SAID["steer"], _MESSAGE)


def _said_in(item: Said, look: Look) -> Link:
    """What put words into a request. Those that join a turn may be another agent's."""
    event = look.event(item.seq) if item.source == "steer" else None
    is_message = event is not None and isinstance(event.body, kinds.AgentMessaged)
    return Link(_MESSAGE if is_message else _SAID[item.source], item.seq)


# -- agents, limits, timers --------------------------------------------------------------------------------------------


def _cancel_requested(event: Event, body: kinds.CancelRequested, look: Look, known: Known) -> Found:
    """A person's word, or the doing of an agent's call."""
    if not body.by:
        return _person(event, body, look, known)
    intent = _intent(event, body.by, look)
    return Found(cause=Link("wanted by", intent)) if intent else _by_header(event, "after")


def _model_changed(event: Event, body: kinds.ModelChanged, look: Look, known: Known) -> Found:
    return _by_header(event, "after") if body.reason else _person(event, body, look, known)


def _compacted(event: Event, body: kinds.ContextCompacted, look: Look, known: Known) -> Found:
    """By a summary that the model wrote, or because the last answer said how full the context is."""
    wrote = look.earlier(event.seq, ("model.responded",)) if body.call else ()
    summary = next((one.seq for one in wrote if _call(one) == body.call), 0)
    return Found(cause=Link("with the summary of", summary)) if summary else _by_header(event, "after")


def _children_of(event: Event, call: str, intent: int, look: Look) -> list[Link]:
    """The ends, since a call began, of the agents that it spawned."""
    begun = look.event(intent)
    if begun is None or not isinstance(begun.body, kinds.ToolStarted) or begun.body.recovery != "derived":
        return []
    spawned = look.earlier(event.seq, ("agent.spawned",), intent)
    children = {one.agent for one in spawned if _call(one) == call}
    ends = look.earlier(event.seq, ("agent.finished",), intent) if children else ()
    return [Link("with the result of", one.seq) for one in ends if one.agent in children][::-1]


def _spawned(event: Event, body: kinds.AgentSpawned, look: Look, known: Known) -> Found:
    if body.wanted:
        return Found(cause=Link("wanted by", body.wanted))
    if not body.call:
        return _by_header(event, "at")
    intent = _intent(event, body.call, look)
    return Found(cause=Link("spawned by", intent)) if intent else _asked_for(event, body.call, look, known)


def _ended(event: Event, body: Any, look: Look, known: Known) -> Found:
    """An agent or a session that came to its end."""
    if body.outcome == "cancelled" and (cancel := _cancel(event, "", 0, look)):
        return Found(cause=Link("cancelled by", cancel))
    if body.outcome == "provider":  # its header names what was to be answered
        failed = (one for one in look.earlier(event.seq, ("model.failed",), event.cause) if one.agent == event.agent)
        if (last := next(failed, None)) is not None:
            return Found(cause=Link("after", last.seq))
    return _by_header(event, "after")


def _delivered(event: Event, body: kinds.ResultDelivered, look: Look, known: Known) -> Found:
    finished = look.earlier(event.seq, ("agent.finished",))
    found = next((one.seq for one in finished if one.agent == body.child), event.cause)
    return Found(cause=Link("the result of", found) if found else None)


def _budget(event: Event, body: kinds.BudgetReached, look: Look, known: Known) -> Found:
    found = _by_header(event, "after")
    source = next(iter(look.earlier(event.seq, ("session.opened", "budget.raised"))), None)
    if source is not None:
        found.rests.append(Link("the limit is of", source.seq))
    return found


def _timer(event: Event, body: kinds.TimerFired, look: Look, known: Known) -> Found:
    return _by_header(event, "set by")


# -- where a rule comes from -------------------------------------------------------------------------------------------


def _sources(text: str, before: int, look: Look, known: Known) -> list[Link]:
    """The openings, changes of policy and remembered answers that hold the rules, or set the mode, of a text."""
    state = known.state
    if state is None:
        return []
    found: list[Link] = []
    steps = [step for step in reversed(state.policy) if step.seq < before]
    for step in steps:
        if any(rule and rule in text for rule in (*step.allow, *step.ask, *step.deny)):
            found.append(Link("by a rule of", step.seq))
        if step.replaces:
            break
    if text.startswith(("mode ", "plan mode")):
        found += [Link("in the mode of", step.seq) for step in steps if step.mode][:1]
    patterns = {pattern for pattern in state.remembered if pattern and pattern in text}
    if patterns and not found:
        for one in look.earlier(before, ("approval.decided",)):
            if isinstance(one.body, kinds.ApprovalDecided) and one.body.remember in patterns:
                found.append(Link("remembered by", one.seq))
                patterns.discard(one.body.remember)
            if not patterns:
                break
    return found[:SOURCES_MAX]


_COMMANDS: Final = tuple(kinds.KINDS[name].body for name in COMMANDS if name != "approval.decided")
_EXPLAINED: Final[dict[type, Callable[[Event, Any, Look, Known], Found]]] = {
    **dict.fromkeys((*_COMMANDS, kinds.LogRedacted), _person),
    kinds.SessionOpened: _opened, kinds.LogImported: _imported, kinds.LogRecovered: _recovered,
    kinds.CommandRefused: _refused, kinds.ToolFinished: _finished, kinds.ToolStarted: _started,
    kinds.FilesChanged: _of_calls, kinds.FilesUnknown: _of_calls, kinds.ProcessStarted: _process,
    kinds.ProcessAdopted: _process, kinds.ProcessReaped: _process, kinds.ApprovalRequested: _approval_requested,
    kinds.CancelRequested: _cancel_requested, kinds.ModelChanged: _model_changed, kinds.ContextCompacted: _compacted,
    kinds.ApprovalDecided: _approval_decided, kinds.QuestionAsked: _call_of, kinds.AgentMessaged: _call_of,
    kinds.EffectDoubted: _doubted, kinds.EffectReconciled: _reconciled, kinds.ModelResponded: _answered,
    kinds.ModelFailed: _answered, kinds.ModelRequested: _requested, kinds.AgentSpawned: _spawned,
    kinds.AgentFinished: _ended, kinds.SessionClosed: _ended, kinds.ResultDelivered: _delivered,
    kinds.BudgetReached: _budget, kinds.TimerFired: _timer,
}  # fmt: skip
"""Types not in this table are led to by their header's cause."""
