"""Agents that a person wants: what speaks against one beforehand, and what became of it."""

import time
from pathlib import Path
from typing import Final

import msgspec

from muse.app.places import events
from muse.app.roles import find_roles
from muse.decide import wanted
from muse.errors import MuseError
from muse.event.content import Role
from muse.event.envelope import Event
from muse.event.kinds import AgentSpawned, AgentWanted, CommandRefused
from muse.log.protocol import Log
from muse.runtime.session import Session

LOOK_SECONDS: Final = 0.02


def spawn_refusal(state: Session, parent: str, body: AgentWanted, *, runs: bool) -> str:
    """Why this agent cannot be below that one, "" if it can as far as is known: what was wanted before is there then.
    Where nobody `runs` the session, the role files are read as the next owner will."""
    if state.redacted or state.recovered:
        return "This session cannot go on: what its agents went by was redacted, or is lost."
    agent = state.agents.get(parent)
    if agent is None or state.settings is None:
        return ""
    if not runs and body.role not in {role.name for role in state.roles}:
        state = msgspec.structs.replace(state, roles=_roles(state) or state.roles)
    one = wanted.read(body)
    if isinstance(one, str):
        return one
    return wanted.refusal(state, agent, one, before=sum(map(len, state.wants.values())))


def _roles(state: Session) -> tuple[Role, ...]:
    try:
        return find_roles(Path(state.workspace)).roles
    except (MuseError, OSError):  # what keeps them from being read now is said at the opening
        return ()


def came_of(log: Log, seq: int, seconds: float) -> Event | None:
    """The event that answers what a person wanted at `seq`: an `agent.spawned`, or a `command.refused`. Waited for at
    most so long; None while there is none."""
    until, after = time.monotonic() + seconds, seq
    while True:
        for event in events(log, after):
            after, body = event.seq, event.body
            if isinstance(body, AgentSpawned) and body.wanted == seq:
                return event
            if isinstance(body, CommandRefused) and body.command == seq:
                return event
        if time.monotonic() >= until:
            return None
        time.sleep(LOOK_SECONDS)
