"""Whether an owner left out a decision: the places in a log at which nothing may be due that waits for nothing.

One append holds facts, then all decisions that are due and ready, and is there whole or not at all. So where decisions
end, nothing more was due; and where facts end without any, nothing was, unless a command had come in just before them
(then the decisions of that append were dropped, to be derived again) or the owner stopped there for want of space.
"""

from typing import Final, Literal

from muse.decide.context import Rules
from muse.decide.decision import Due
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS, AgentMessaged, SessionClosed, ToolStarted, WorktreeRemoved
from muse.fold.agents import home, tree_is_to_go
from muse.fold.state import Session
from muse.log.chain import ABOUT_THE_LOG
from muse.runtime.check import decisions
from muse.runtime.check.differences import one
from muse.runtime.check.report import Diverged
from muse.runtime.loop import DECISIONS_MAX

Part = Literal["decision", "fact", "command", "opening", "log"]

OPENINGS: Final = frozenset({"session.opened", "ownership.taken"})


def part_of(state: Session, event: Event) -> Part:
    """What an event is to an append, by the state before it."""
    if decisions.is_decision(state, event):
        return "decision"
    if event.type in OPENINGS:
        return "opening"
    if event.type in ABOUT_THE_LOG:
        return "log"
    return "command" if event.type in COMMANDS else "fact"


class Owed:
    """Follows the appends of one log."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._waiting: set[str] = set()
        self._last: Part = "command"
        self._is_whole = False
        self._decided = 0
        self._held: Diverged | None = None
        self._going: set[str] = set()
        """Agents whose working tree may be being taken away: who works there waits, also who was woken since."""

    def before(self, state: Session, part: Part) -> None:
        """Raises `Diverged` when an event that is this to its append shows that something was left out before it."""
        if part == "log":
            return
        if self._held is not None and part in ("decision", "fact"):
            raise self._held
        if part == "opening":
            self._held = None
        ends = self._last == "decision" or (self._last == "fact" and part == "command")
        if self._is_whole and ends and part != "decision":
            left = self._left_out(state)
            if left is not None and self._last == "decision":
                raise left
            self._held = left

    def after(self, state: Session, event: Event, part: Part, woken: set[str]) -> None:
        """Take in an event that was folded, with the agents that it may have woken."""
        if part == "log":
            return
        self._follow_trees(state, event)
        self._waiting |= woken
        self._decided = self._decided + 1 if part == "decision" else 0
        if part == "fact":
            self._is_whole = self._is_whole or self._last == "opening"
        else:
            self._is_whole = part == "decision" and self._decided < DECISIONS_MAX
        self._last = part

    def at_end(self, state: Session) -> None:
        """Raises `Diverged` when something is still due at the end of a closed log, or of a whole append."""
        if state.closed:
            if left := decisions.all_due(state, self._rules):
                raise Diverged("left_due", "the session is closed, and something is still due", one(left[0].body))
        elif self._is_whole and self._last == "decision" and (missing := self._left_out(state)) is not None:
            raise missing

    def _left_out(self, state: Session) -> Diverged | None:
        left = decisions.left_out(state, self._waiting, self._rules, lambda one: self._is_busy(state, one))
        self._waiting = set()
        if left is None or (isinstance(left.body, SessionClosed) and _clears(state)):
            return None
        name = decisions.name_of(left)
        what = f"{name} was due for {left.agent} just before this, and nothing kept it from being decided"
        return Diverged("left_due", what, one(left.body), "nothing")

    def _follow_trees(self, state: Session, event: Event) -> None:
        if event.type in OPENINGS:
            self._going = {agent_id for agent_id in state.agents if tree_is_to_go(state, agent_id)}
        elif isinstance(event.body, WorktreeRemoved):
            self._going.discard(event.agent)
        else:
            for agent_id in (event.agent, event.body.to) if isinstance(event.body, AgentMessaged) else (event.agent,):
                if tree_is_to_go(state, owner := home(state, agent_id)):
                    self._going.add(owner)

    def _is_busy(self, state: Session, one: Due) -> bool:
        return isinstance(one.body, ToolStarted) and home(state, one.agent) in self._going


def _clears(state: Session) -> bool:
    """Whether a working tree is being taken away, or made for who has ended meanwhile: the session closes only after
    that, so that its log says so."""
    trees = (agent for agent in state.agents.values() if agent.parent and agent.isolation == "worktree")
    ended = (agent for agent in trees if agent.finished and not agent.kept)
    return any(agent.workspace or agent.preparing for agent in ended)
