"""What is due of the agents that people want: each begins as soon as it can, or it is said why it cannot be.

A person's words are a command, `agent.wanted`, and the child is a decision, so that it is there once however often the
host dies in between (docs/decisions/0030). What a child is like stands in `decide.agents`, for both who may want one.
"""

from collections.abc import Iterator

import msgspec

from muse.decide import agents
from muse.decide.agent_tools import Wanted
from muse.decide.decision import Due
from muse.event.kinds import AgentWanted, CommandRefused
from muse.fold.state import Agent, Session


def wanted(state: Session, agent: Agent) -> Iterator[Due]:
    """The first of the agents that people want below this one, or its refusal. Below one that is paused, or whose
    folder is still being made, it waits."""
    want = next(iter(state.wants.get(agent.id, ())), None)
    if want is None:
        return
    one = read(want.body)
    why = one if isinstance(one, str) else refusal(state, agent, one)
    if why:
        yield Due(agent.id, want.seq, CommandRefused(command=want.seq, why="impossible", text=why))
    elif isinstance(one, Wanted) and not agent.paused and not agent.preparing:
        yield agents.new_child(state, agent, one, want.seq, background=True, wanted=want.seq)


def read(body: AgentWanted) -> Wanted | str:
    """What a person wants, or why it is nothing that could be."""
    fields = {name: getattr(body, name) for name in Wanted.__struct_fields__}
    try:
        return msgspec.convert(fields, Wanted)
    except msgspec.ValidationError as error:
        return f"It cannot be read: {error}."


def refusal(state: Session, parent: Agent, one: Wanted, *, before: int = 0) -> str:
    """Why a person cannot have this agent below that one, "" if they can; `before` it so many others will be there."""
    if parent.cancelled:
        return f"{parent.id} was cancelled, and stays so."
    if parent.finished:
        return f"{parent.id} has finished: nobody there would read the result."
    return agents.unfit(state, parent, len(state.agents) + before, (one,), by_person=True)
