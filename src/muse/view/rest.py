"""Whether an agent has anything left to do by itself, and what became of it: for `muse wait` and `muse result`.

An agent works as long as it, or one below it, can go on without a person. Otherwise it is over, or somebody is awaited:
an answer, a `continue`, a provider that is well again, a larger budget. This module must not know who asks.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from muse.event.conversation import Answered, Said, TranscriptItem
from muse.fold.agents import below, stuck
from muse.fold.state import Agent, Session, ToolRun
from muse.fold.uses import all_wait
from muse.view.summary import outcome_words
from muse.view.visible import headline

Word = Literal[
    "done", "idle", "imported", "failed", "cancelled", "unanswered", "approval", "question", "paused", "provider",
    "budget", "stopped", "works",
]  # fmt: skip
"""`idle`: nobody has said anything to it yet. `approval`, `question` and `paused`: a person is awaited. `stopped`: it
would go on, and nobody runs its session. `works`: it goes on by itself."""
ENDED: Final[frozenset[Word]] = frozenset({"done", "idle", "imported", "failed", "cancelled", "unanswered"})
CODES: Final[dict[Word, int]] = {
    "done": 0, "idle": 0, "imported": 0, "failed": 1, "cancelled": 1, "unanswered": 3, "approval": 3, "question": 3,
    "paused": 3, "provider": 4, "budget": 5, "stopped": 7, "works": 7,
}  # fmt: skip
"""What each is as an exit code (docs/background.md)."""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an agent. `about` says why, `whom` is the agent that a person is awaited for, `seq` the request or
    question. `alive`: somebody runs the session. With `stopped`, `about` says why nobody can go on with it, if so."""

    agent: str
    word: Word
    about: str = ""
    whom: str = ""
    seq: int = 0
    alive: bool = False


def rest(state: Session, agent_id: str, *, alive: bool) -> Rest:
    """What became of an agent, as of a state; `alive` says whether somebody runs its session."""
    agent = state.agents.get(agent_id)
    if (ended := _ended(state, agent)) is not None:
        word, about = ended
        return Rest(agent=agent_id, word=word, about=about, alive=alive)
    if agent is None:
        idle = not (state.early or state.wants or state.redacted)
        return Rest(agent=agent_id, word="idle", alive=alive) if idle else _left(state, agent_id, alive=alive)
    all_of_it = [agent, *below(state, agent.id)]
    if not (any(_goes_on(state, one) for one in all_of_it) or _lacks(state)):
        if any(one.id in state.waiting for one in all_of_it):  # then those are awaited who keep the slots
            all_of_it += [state.agents[one] for one in sorted(state.held)]
        for word, about, whom, seq in _awaited(state, all_of_it):
            return Rest(agent=agent_id, word=word, about=about, whom=whom, seq=seq, alive=alive)
    return _left(state, agent_id, alive=alive)


def _left(state: Session, agent_id: str, *, alive: bool) -> Rest:
    """Something is left to do."""
    return Rest(agent=agent_id, word="works" if alive else "stopped", about="" if alive else _lacks(state), alive=alive)


def _lacks(state: Session) -> str:
    """What the log lacks, so that nobody can ever go on from it; "" where it does not."""
    lost = "events are lost" if state.recovered else ""
    return "what its agents went by was redacted" if state.redacted else lost


def _ended(state: Session, agent: Agent | None) -> tuple[Word, str] | None:
    """How it ended, None where it has not. `main` ends with its session, whose word counts: it says what kept a child
    from going on, too."""
    if agent is not None and agent.parent and agent.finished:
        return _word(agent.outcome), headline(agent.reason, 200)
    if state.closed and (agent is None or not agent.parent):
        return _word(state.outcome), _why(state.outcome, state.reason)
    if state.imported:
        return _word((agent.outcome if agent is not None else "") or "imported"), ""
    return None


def _word(outcome: str) -> Word:
    return next((word for word in CODES if word == outcome), "failed")


def _why(outcome: str, reason: str) -> str:
    return outcome_words(outcome, reason) if outcome in ("provider", "unanswered") else headline(reason, 200)


# -- whether it goes on ------------------------------------------------------------------------------------------------


def _goes_on(state: Session, agent: Agent) -> bool:
    """Whether it does something, or will, without a person and without those below it. Who is queued for a slot does
    when one of those that have one goes on."""
    if agent.finished or stuck(state, agent):
        return False
    if agent.id in state.waiting:
        return any(_goes_on(state, state.agents[one]) for one in state.held - {agent.id})
    if not agent.turn:
        return bool(agent.queue or agent.id in state.wants) and not agent.paused
    if agent.preparing:
        return True
    if agent.call is not None:
        return not agent.paused or agent.call.phase in ("running", "doubted", "settling")
    runs = [run for run in agent.batch if run.phase != "done"]
    return _some_go_on(state, agent, runs) if runs else not agent.paused


def _some_go_on(state: Session, agent: Agent, runs: list[ToolRun]) -> bool:
    """Whether one of these runs does something, or may start."""
    for run in runs:
        derived = run.phase == "running" and run.recovery == "derived"
        if run.phase in ("running", "doubted", "settling") and (not derived or f"wait:{run.key}" in state.timers):
            return True
    return not agent.paused and not all_wait(agent)


# -- who is awaited ----------------------------------------------------------------------------------------------------


def _awaited(state: Session, agents: list[Agent]) -> Iterator[tuple[Word, str, str, int]]:
    """What a person has to do first: word, why, the agent, the event that asks."""
    meant = {agent.id for agent in agents}
    asked: tuple[tuple[Word, dict[int, str]], ...] = (("approval", state.approvals), ("question", state.questions))
    for word, waiting in asked:
        for seq, call in sorted(waiting.items()):
            if (whom := call.partition("/")[0]) in meant:
                yield word, "", whom, seq
    for agent in agents:
        if agent.paused and (agent.turn or agent.queue or agent.id in state.wants):
            yield "paused", "", agent.id, 0
    for agent in agents:
        if stuck(state, agent):
            model = agent.call
            if agent.ending == "budget" or model is None:
                yield "budget", headline(agent.reason, 200), agent.id, 0
            else:
                yield "provider", outcome_words("provider", f"{model.failure}: {model.message}"), agent.id, 0


# -- its last words ----------------------------------------------------------------------------------------------------


class Words(msgspec.Struct, frozen=True):
    """What an agent said last, and the event that says it (0: it said nothing)."""

    text: str = ""
    seq: int = 0


def last_words(agent: Agent) -> Words:
    """The result of a child that has finished; else the last answer of the running or the last turn. A turn that came
    to its end is answered by its last response alone, however little that says."""
    if agent.parent and agent.finished:
        return Words(agent.result, agent.finished)
    for item in reversed(agent.items):
        if _begins_a_turn(item):
            break
        if isinstance(item, Answered):
            text = "".join(block.text for block in item.blocks if block.kind == "text")
            if text.strip() or agent.outcome == "done":
                return Words(text, item.seq)
    return Words()


def _begins_a_turn(item: TranscriptItem) -> bool:
    return isinstance(item, Said) and item.source == "prompt"
