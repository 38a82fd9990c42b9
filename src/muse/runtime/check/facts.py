"""Every fact must fit what it belongs to: a result its intent, a doubt's end its doubt, an opening what stood before.

A fact cannot be derived, but it cannot stand just anywhere either: it names a call, an attempt and a cause, and these
have to be as the state just before it has them. This module looks at calls and at the session; `surroundings` at what
is around them. It must not know what may be decided.
"""

from collections.abc import Callable
from typing import Any, Final

from muse.event.envelope import Event
from muse.event.kinds import (
    COMMANDS,
    ApprovalDecided,
    ApprovalRequested,
    CommandRefused,
    EffectReconciled,
    LogRedacted,
    ModelFailed,
    ModelResponded,
    OwnershipTaken,
    SessionOpened,
    ToolFinished,
)  # fmt: skip
from muse.fold.state import Agent, ModelCall, Session, ToolRun
from muse.log.chain import ABOUT_THE_LOG
from muse.runtime.check.owed import Part
from muse.runtime.check.report import Diverged, Divergence
from muse.runtime.check.surroundings import Surroundings
from muse.runtime.recovery import ALLOWED
from muse.runtime.session import FORMAT_VERSION

COMMANDS_REMEMBERED_MAX: Final = 10_000
"""Commands that a refusal may still name."""

OF_THE_SESSION: Final = frozenset(
    {
        "session.opened", "session.closed", "ownership.taken", "log.redacted", "log.recovered", "log.imported",
        "head.signed",
    }
)  # fmt: skip
"""What belongs to no agent in particular stands in the lane of `main`."""


class Facts:
    """Holds the facts of one log against the state before each; `noted` after each event was folded."""

    def __init__(self) -> None:
        self._around = Surroundings()
        self._commands: dict[int, str] = {}
        self._last_of_owner = ""
        self._doubts: dict[str, int] = {}
        self._found: dict[str, tuple[int, str]] = {}
        self._at_opening: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        self._offered: dict[str, str] = {}
        """The rule that the last request about a call offered to remember."""
        self.elsewhere: Divergence | None = None
        """An opening that names another session: right only in a log that was saved from that one's."""

    def stands(self, state: Session, event: Event) -> None:
        """Raises `Diverged` for any event, a decision too, that stands in another epoch or lane than it may."""
        epoch = state.epoch + 1 if event.type == "session.opened" else state.epoch
        if event.epoch != epoch and event.type not in ABOUT_THE_LOG:
            raise Diverged("cause", f"{event.type} names another epoch than the one it is in", epoch, event.epoch)
        if event.type in OF_THE_SESSION and event.agent != "main":
            raise Diverged("cause", f"{event.type} belongs to the session, not to one agent", "main", event.agent)

    def check(self, state: Session, event: Event) -> None:
        """Raises `Diverged` for a fact or a command that does not fit."""
        if event.type in COMMANDS and self._listed and event.v > self._listed.get(event.type, 0):
            what = f"{event.type} is no command that the owner understands, and no store takes such a one"
            raise Diverged("order", what, self._listed.get(event.type, "not listed"), event.v)
        rule = _RULES.get(type(event.body))
        if rule is not None:
            rule(self, state, event, event.body)
        self._around.check(state, event)

    def noted(self, state: Session, event: Event, part: Part) -> None:
        """Take in an event that was folded, and what it was to its append."""
        if part == "command":
            self._commands[event.seq] = event.agent
            if len(self._commands) > COMMANDS_REMEMBERED_MAX:
                self._commands.pop(next(iter(self._commands)))
        elif part != "log":
            self._last_of_owner = event.type
        if event.type == "log.recovered":
            self.elsewhere = None
        if event.type == "effect.doubted":
            self._doubts[getattr(event.body, "call", "")] = event.seq
        if isinstance(event.body, ApprovalRequested):
            self._offered[event.body.call] = event.body.remember
        elif isinstance(event.body, ToolFinished):
            self._offered.pop(event.body.call, None)
        if isinstance(event.body, SessionOpened):
            self._at_opening = dict(_waiting(state))
            self._found.clear()
            self._listed = {one.type: one.v for one in event.body.commands}
        self._around.noted(state, event)

    # -- where an event stands ---------------------------------------------------------------------------------------

    def _opened(self, state: Session, event: Event, body: SessionOpened) -> None:
        crashed = self._last_of_owner not in ("", "session.closed")
        _require_cause(event, 0)
        if body.format != FORMAT_VERSION:
            raise Diverged("order", "session.opened names another format than the log has", FORMAT_VERSION, body.format)
        if body.crashed != crashed:
            what = "session.opened says of the last owner what the log does not"
            raise Diverged("order", what, f"crashed: {crashed}", f"crashed: {body.crashed}")
        if body.session not in ("", state.session) and self.elsewhere is None:
            why = Diverged("order", "session.opened names another session", state.session, body.session)
            self.elsewhere = why.at(event.seq, event.agent, event.type)
        if state.opened and body.instructions:
            raise Diverged("order", "instructions are read once, at the first opening", "none", "instructions")
        types = [one.type for one in body.commands]
        if types != sorted(set(types)):
            raise Diverged("order", "the commands that an owner understands are listed once each, in order")

    def _taken(self, state: Session, event: Event, body: OwnershipTaken) -> None:
        _require_cause(event, state.opened)
        if state.opened != state.seq or body.epoch != state.epoch:
            what = "ownership.taken belongs to the opening just before it"
            raise Diverged("order", what, f"epoch {state.epoch}, after #{state.opened}", f"epoch {body.epoch}")

    def _refused(self, state: Session, event: Event, body: CommandRefused) -> None:
        agent = self._commands.pop(body.command, None)
        if agent is None:
            raise Diverged("no_intent", f"#{body.command} is no command that could still be refused")
        _require_cause(event, body.command)
        if agent != event.agent:
            raise Diverged("cause", "a refusal stands in the lane of its command", agent, event.agent)
        if body.text:
            raise Diverged("content", "who gave a command is not refused in words of its own", recorded=body.text)

    def _redacted(self, state: Session, event: Event, body: LogRedacted) -> None:
        if list(body.seqs) != sorted(set(body.seqs)) or any(not 0 < seq < event.seq for seq in body.seqs):
            raise Diverged("order", "log.redacted names events before it, in order", recorded=body.seqs)

    # -- what ends what ----------------------------------------------------------------------------------------------

    def _model_result(self, state: Session, event: Event, body: ModelResponded | ModelFailed) -> None:
        call = _agent(state, event).call
        if call is None or call.key != body.call or call.phase != "running" or call.epoch != state.epoch:
            raise Diverged("no_intent", f"{event.type} of {body.call}, which is not being asked", _asked(call))
        _require_attempt(event.type, body.call, call.attempt, body.attempt)
        _require_cause(event, call.intent)
        if isinstance(body, ModelFailed) and body.failure == "cancelled" and not call.cancelling:
            raise Diverged("no_intent", f"{body.call} was cancelled, and nobody asked for that")
        if isinstance(body, ModelFailed) and body.retry_until:
            _require_long_wait(state, body)

    def _finished(self, state: Session, event: Event, body: ToolFinished) -> None:
        run = _run(state, event, body.call)
        if run is None or run.phase not in ("running", "settling") or run.epoch > state.epoch:
            raise Diverged("no_intent", f"tool.finished of {body.call}, which is not running", _phase(run))
        _require_attempt(event.type, body.call, run.attempt, body.attempt)
        cause, verdict = self._found.pop(body.call, (0, "")) if run.phase == "settling" else (run.intent, "")
        _require_cause(event, cause)
        if run.phase == "running" and run.epoch < state.epoch:
            raise Diverged(
                "no_intent", f"tool.finished of {body.call}, which an earlier owner ran and nobody looked at"
            )
        _require_end(run, body, verdict)
        self._around.ended(run, body)

    def _reconciled(self, state: Session, event: Event, body: EffectReconciled) -> None:
        run, call = _run(state, event, body.call), _agent(state, event).call
        found: ToolRun | ModelCall | None = run
        if run is None and call is not None and call.key == body.call:
            found = call
        if found is None or not _in_doubt(found) or body.call in self._found:
            raise Diverged("no_intent", f"effect.reconciled of {body.call}, which is not in doubt")
        _require_attempt(event.type, body.call, found.attempt, body.attempt)
        _require_cause(event, self._doubts.get(body.call, 0), self._at_opening.get(body.call))
        recovery = run.recovery if run is not None else "repeatable"
        if body.verdict not in ALLOWED[recovery]:
            what = f"a call of class {recovery} cannot be found {body.verdict} after a crash"
            raise Diverged("order", what, ", ".join(sorted(ALLOWED[recovery])), body.verdict)
        if run is not None:
            self._found[body.call] = event.cause, body.verdict

    def _answered(self, state: Session, event: Event, body: ApprovalDecided) -> None:
        """A person's answer that counts binds to what was asked; one that comes late, or answers nothing, is kept and
        changes nothing."""
        run = state.run(body.call)
        if run is None or event.agent != run.key.partition("/")[0] or body.request != run.request:
            return
        if run.phase == "new":
            raise Diverged("no_intent", f"{body.call} is answered, and nobody was asked")
        if run.phase != "asked":
            return
        _require_cause(event, run.request, 0)
        shown = run.shown_sha256
        if body.shown_sha256 != shown:
            what = f"a person's answer about {body.call} carries the digest of exactly what was shown"
            raise Diverged("content", what, shown, body.shown_sha256)
        if body.decision == "allow" and body.remember not in ("", offered := self._offered.get(body.call, "")):
            what = f"a person's answer about {body.call} remembers a rule that was not offered"
            raise Diverged("content", what, offered or "none", body.remember)


_RULES: Final[dict[type, Callable[[Facts, Session, Event, Any], None]]] = {
    SessionOpened: Facts._opened, OwnershipTaken: Facts._taken, CommandRefused: Facts._refused,
    LogRedacted: Facts._redacted, ModelResponded: Facts._model_result, ModelFailed: Facts._model_result,
    ToolFinished: Facts._finished, EffectReconciled: Facts._reconciled, ApprovalDecided: Facts._answered,
}  # fmt: skip


def _require_end(run: ToolRun, body: ToolFinished, verdict: str) -> None:
    """How a run ended must not contradict itself, nor what was said of it beforehand."""
    if body.status == "ok" and (body.exit_code not in (None, 0) or body.timed_out or run.observed.error):
        said = run.observed.error or f"exit code {body.exit_code}, timed out: {body.timed_out}"
        raise Diverged("content", f"{body.call} went well and did not", "an error", said)
    if verdict == "done" and body.status == "unknown":
        raise Diverged("content", f"{body.call} was found done, and how it ended is unknown", "an outcome", body.status)
    if run.recovery != "reconcilable":
        return
    told = {"done": "ok", "unknown": "unknown"}.get(verdict, body.status)
    if body.status != told:
        raise Diverged("content", f"{body.call} was found {verdict}, and ended otherwise", told, body.status)
    if body.status == "ok" and run.observed.summary and body.text != run.observed.summary:
        what = f"{body.call} ended in other words than were made beforehand"
        raise Diverged("content", what, run.observed.summary, body.text)


def _require_long_wait(state: Session, body: ModelFailed) -> None:
    """A date is given for a wait that parks an agent, and for no shorter one."""
    assert state.settings is not None
    least, wanted = state.settings.park_seconds_min * 1000, body.retry_after_ms or 0
    if wanted < least:
        what = f"the failure of {body.call} gives a date for a wait that is not long"
        raise Diverged("order", what, f"at least {least} ms", f"{wanted} ms")


def _agent(state: Session, event: Event) -> Agent:
    agent = state.agents.get(event.agent)
    if agent is None:
        raise Diverged("no_intent", f"{event.type} of {event.agent}, an agent that is not there")
    return agent


def _run(state: Session, event: Event, call: str) -> ToolRun | None:
    """The open run of a call, which must be in this agent's lane."""
    _agent(state, event)
    if call.partition("/")[0] != event.agent:
        raise Diverged("cause", f"{event.type} of {call} stands in another agent's lane", recorded=event.agent)
    return state.run(call)


def _require_attempt(type: str, call: str, expected: int, recorded: int) -> None:
    if expected != recorded:
        raise Diverged("no_intent", f"{type} of another attempt at {call}", expected, recorded)


def _require_cause(event: Event, *allowed: int | None) -> None:
    if event.cause not in allowed:
        causes = " or ".join(f"#{cause}" if cause else "none" for cause in allowed if cause is not None)
        raise Diverged("cause", f"{event.type} names another cause than it must", causes, f"#{event.cause}")


def _waiting(state: Session) -> list[tuple[str, int]]:
    """The calls that are in doubt when an owner opens, with what last befell each: recovery names that as its cause."""
    found = [(run.key, run.cause) for agent in state.agents.values() for run in agent.batch if _in_doubt(run)]
    return found + [(one.call.key, one.call.cause) for one in state.agents.values() if one.call and _in_doubt(one.call)]


def _in_doubt(found: ToolRun | ModelCall) -> bool:
    return found.phase in ("doubted", "settling")


def _asked(call: ModelCall | None) -> str:
    return "no open request" if call is None else f"{call.key} is {call.phase}, of epoch {call.epoch}"


def _phase(run: ToolRun | None) -> str:
    return "no such call is open" if run is None else f"{run.key} is {run.phase}"
