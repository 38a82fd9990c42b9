"""Goes through a log once and derives it again, to the first place where it is not what the rules give.

Costs what the log holds: each event is folded once, each decision asked for once, each request built once, each blob
read once. It stops deriving where that cannot be done any more (redacted, unknown, imported, recovered, newer rules):
this is said, and is no divergence.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from muse.decide.context import Rules
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import LogImported, ModelRequested, SessionOpened
from muse.fold.state import Session
from muse.runtime.check import decisions
from muse.runtime.check.contents import Contents
from muse.runtime.check.facts import Facts
from muse.runtime.check.owed import Owed, Part, part_of
from muse.runtime.check.report import Diverged, Divergence, Left, Report, Why
from muse.runtime.check.story import Impossible, Story, Told

PROGRESS_EVERY: Final = 1_000
ASIDE: Final[tuple[Why, str]] = "hidden", "events that no agent goes by, taken out by redaction"
DUE_NAMED_MAX: Final = 20
"""Of what was to be decided next when the log ended."""


def verify_story(log: Told, rules: Rules, progress: Callable[[int], None] | None = None) -> Report:
    """The report on a log whose chain is whole. `progress` is told the seq now and then."""
    return _Walk(log, rules).run(progress or (lambda seq: None))


class _Walk:
    def __init__(self, log: Told, rules: Rules) -> None:
        self._rules = rules
        self._story = Story(log)
        self._contents = Contents(log)
        self._facts, self._owed = Facts(), Owed(rules)
        self._decisions: Counter[str] = Counter()
        self._left: dict[tuple[Why, str], list[int]] = {}
        self._requests = self._checked = self._events = 0
        self._over: tuple[Why, str] | None = None
        self._due: tuple[str, ...] = ()

    def run(self, progress: Callable[[int], None]) -> Report:
        divergence = None
        try:
            for event in self._story.events():
                if event.seq % PROGRESS_EVERY == 0:
                    progress(event.seq)
                divergence = self._event(event)
                self._events = event.seq
                if divergence is not None:
                    break
            else:
                divergence = self._facts.elsewhere or self._end()
        except Impossible as impossible:
            if self._over is None:
                why = Diverged("impossible", f"it cannot follow what stands before it: {impossible.why}")
                divergence = why.at(impossible.seq, impossible.agent, impossible.type)
        return self._report(divergence)

    def _event(self, event: Event) -> Divergence | None:
        if self._over is not None:
            self._passed_over(event)
            return None
        body = event.body
        if isinstance(body, SessionOpened) and body.rules not in decisions.KNOWN_RULES:
            self._over = "rules", f"decided by rules {body.rules}, which this build does not have"
            return None
        part = part_of(self._story.state, event)
        try:
            self._check(self._story.state, event, part)
        except Diverged as diverged:
            return diverged.at(event.seq, event.agent, event.type)
        woken = self._story.fold(event)
        self._facts.noted(self._story.state, event, part)
        self._owed.after(self._story.state, event, part, woken)
        self._over = _why_over(self._story.state, event)
        if self._over is not None:
            self._passed_over(event)
        elif isinstance(event.body, Redacted):
            self._left.setdefault(ASIDE, []).append(event.seq)
        return None

    def _check(self, state: Session, event: Event, part: Part) -> None:
        body = event.body
        if isinstance(body, Redacted | Unknown):
            return
        self._owed.before(state, part)
        self._facts.stands(state, event)
        if part == "decision":
            decisions.check(state, event, self._rules)
            self._decisions[event.type] += 1
            if isinstance(body, ModelRequested) and decisions.has_builder(
                state, event.agent, body.builder, self._rules
            ):
                self._requests += 1
            elif isinstance(body, ModelRequested):
                why = f"the bytes of requests by {body.builder}, a builder that this build does not have"
                self._left.setdefault(("builder", why), []).append(event.seq)
        else:
            self._facts.check(state, event)
            self._checked += 1
        self._contents.check(state, event)

    def _passed_over(self, event: Event) -> None:
        assert self._over is not None
        if isinstance(event.body, Redacted | Unknown) or decisions.is_decision(self._story.state, event):
            self._left.setdefault(self._over, []).append(event.seq)

    def _end(self) -> Divergence | None:
        state = self._story.state
        if self._over is None:
            try:
                self._owed.at_end(state)
                if not state.closed:
                    found = decisions.all_due(state, self._rules)
                    self._due = tuple(decisions.name_of(one) for one in found[:DUE_NAMED_MAX])
            except Diverged as diverged:
                return diverged.at(state.seq, "main", "end of the log")
        return None

    def _report(self, divergence: Divergence | None) -> Report:
        state, contents = self._story.state, self._contents
        left = [
            Left(why=why, detail=detail, count=len(seqs), first=seqs[0])
            for (why, detail), seqs in self._left.items()
        ]  # fmt: skip
        if contents.hidden:
            detail = "contents that were hidden by redaction"
            left.append(Left(why="hidden", detail=detail, count=len(contents.hidden), first=contents.hidden[0]))
        if contents.undecoded:
            detail = "answers without raw bytes to decode, or with a masked secret in them"
            seqs = contents.undecoded
            left.append(Left(why="no raw bytes", detail=detail, count=len(seqs), first=seqs[0]))
        return Report(
            session=state.session, events=self._events, agents=tuple(sorted(state.agents)),
            decisions=dict(sorted(self._decisions.items())), requests=self._requests, answers=contents.answers,
            facts=self._checked, contents=contents.checked, left=tuple(left), open=_open(state), due=self._due,
            closed=state.closed, divergence=divergence,
        )  # fmt: skip


def _why_over(state: Session, event: Event) -> tuple[Why, str] | None:
    """Why nothing can be decided from this state on, None while it can."""
    if isinstance(event.body, LogImported):
        return "imported", f"made from another agent's file, {event.body.format_name}: nothing was decided by muse"
    if state.redacted:
        return "redacted", f"what the agents went by was taken out: {state.redacted[0]}"
    if state.unknown:
        return "unknown", f"this build does not know {state.unknown[0]}"
    if state.recovered:
        return "recovered", f"events are lost from here on: {state.recovered[0]}"
    return None


def _open(state: Session) -> tuple[str, ...]:
    """The calls that had begun and not ended."""
    found: list[str] = []
    for name in sorted(state.agents):
        agent = state.agents[name]
        found += [run.key for run in agent.batch if run.phase in ("running", "doubted", "settling")]
        found += [agent.call.key] if agent.call and agent.call.phase in ("running", "doubted") else []
    return tuple(found)
