"""How the events of an imported log fold: what a source left out is passed over, and nothing is ever decided from them.

A source says what happened, not what was about to. So a prompt begins a turn whatever went before it, calls that never
got a result stay behind, and who goes back in the conversation leaves what came after. Used by `evolve` only.
"""

from muse.event.calls import number_of
from muse.event.conversation import Resulted
from muse.event.kinds import LogImported
from muse.fold.state import Agent, Session


def begin(state: Session, body: LogImported) -> None:
    """The first of a log's imports says what it is; those of its other agents add nothing."""
    if state.imported:
        return
    state.imported, state.missing = body.format_name or "another agent", body.missing
    state.workspace, state.name = body.workspace, body.name


def settle(agent: Agent) -> None:
    """The conversation goes on: of the calls that are open, the results that are there enter it, and the rest never
    will, as far as the source tells."""
    agent.add(
        *(
            Resulted(seq=run.cause, call=run.key, use=run.use, text=run.text, error=run.error)
            for run in agent.batch
            if run.phase == "done"
        )
    )
    agent.batch.clear()
    agent.call = None


def prompted(agent: Agent) -> None:
    """A person's words begin a turn: one that still runs is over."""
    settle(agent)
    agent.turn, agent.ending = False, ""


def responded(agent: Agent, call: str) -> None:
    """Keys are counted from the response's own: no request was recorded that could have been counted."""
    settle(agent)
    agent.add(*agent.steers)
    agent.steers.clear()
    agent.next_n = max(agent.next_n, number_of(call) + 1)


def rewound(agent: Agent, to: int) -> None:
    """The conversation goes on from event `to`."""
    settle(agent)
    agent.items[:] = [item for item in agent.items if item.seq <= to]
    agent.turn, agent.ending = False, ""
