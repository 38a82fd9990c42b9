"""What is known of the files of each folder that agents work in: which snapshot the changes lead up to, and what an
agent with a working tree of its own has changed there. Used by `evolve`, but for `changes_text`.

An event about files stands in the lane of an agent, and belongs to the folder that this one works in.
"""

from typing import Final

from muse.event.content import FileChange
from muse.event.envelope import Event
from muse.event.kinds import FilesChanged, FilesUnknown, WorktreeRemoved
from muse.fold import agents
from muse.fold.state import Agent, Session

NAMED_MAX: Final = 50
"""Files that a parent is told of by name."""

UNKNOWN: Final = "?"
"""What stands for a path in `Agent.changed` when it is not known which files changed."""


NOT_HELD: Final = ", not recorded"
"""What stands behind it for a file whose content the log does not hold."""


def changes_text(agent: Agent) -> str:
    """For the parent of an agent with a working tree of its own: which files it changed, and how to get at them. "" for
    one that works in a shared workspace."""
    if agent.isolation != "worktree" or (not agent.workspace and not agent.changed):
        return ""
    named = [f"{path} ({what})" for path, what in agent.changed.items() if path != UNKNOWN]
    lost = "What else it changed there is not known.\n" if UNKNOWN in agent.changed else ""
    if not named:
        return lost or "It changed no files in its working tree."
    shown = named[:NAMED_MAX]
    if len(named) > NAMED_MAX:
        shown.append(f"and {len(named) - NAMED_MAX} more")
    lines = "".join(f"  {one}\n" for one in shown)
    how = f'Your workspace does not have them: the tool diff shows them, apply takes them over (agent "{agent.id}").'
    return f"Files that it changed in its working tree:\n{lines}{lost}{how}"


def leads_to(state: Session, agent_id: str, tree: str) -> None:
    """All changes of the agent's folder until now lead up to this snapshot ("": nothing new is known)."""
    if not tree:
        return
    holder = _holder(state, agent_id)
    if holder is None:
        state.tree = tree
    else:
        holder.tree = tree


def lost(state: Session, agent_id: str) -> None:
    """What the files of the agent's folder are is not known any more."""
    holder = _holder(state, agent_id)
    if holder is None:
        state.tree = ""
    else:
        holder.tree = ""
        holder.changed[UNKNOWN] = "unknown"


def changed(state: Session, event: Event, body: FilesChanged) -> set[str]:
    """Files differ; of a working tree of its own it is kept in which way."""
    leads_to(state, event.agent, body.tree)
    holder = _holder(state, event.agent)
    if holder is not None:
        for change in body.changes:
            _note(holder.changed, change)
    return _told(state, holder)


def unknown(state: Session, event: Event, body: FilesUnknown) -> set[str]:
    """It could not be found out what changed."""
    lost(state, event.agent)
    return _told(state, _holder(state, event.agent))


def removed(state: Session, event: Event, body: WorktreeRemoved) -> set[str]:
    """The working tree is gone, or it was kept and nothing changes. Who goes on meanwhile gets another one."""
    agent = state.agents.get(event.agent)
    if agent is not None and body.path == agent.workspace:
        agent.kept = bool(body.left)
        if not body.left:
            agent.workspace = agent.tree = ""
            agent.preparing = agent.turn
    return {event.agent}


def _told(state: Session, holder: Agent | None) -> set[str]:
    """Who goes by what changed in a working tree: its agent, and those above, who may be about to apply it."""
    return set() if holder is None else {holder.id, *(one.id for one in agents.above(state, holder.id))}


def _holder(state: Session, agent_id: str) -> Agent | None:
    """The agent in whose own working tree this one works; None in the session's workspace."""
    agent = state.agents.get(agents.home(state, agent_id))
    return agent if agent is not None and agent.parent and agent.isolation == "worktree" else None


def _note(known: dict[str, str], change: FileChange) -> None:
    """From what a file was at the beginning to what it is now. What git ignores counts as nothing."""
    is_there, was_there = bool(change.after_mode or change.after), bool(change.before_mode or change.before)
    if not is_there and not was_there:
        return
    was = known.pop(change.path, "").removesuffix(NOT_HELD)
    before = was or ("changed" if was_there else "new")
    if is_there:
        held = "" if change.after is not None else NOT_HELD
        known[change.path] = ("changed" if before == "deleted" else before) + held
    elif before != "new":
        known[change.path] = "deleted"
