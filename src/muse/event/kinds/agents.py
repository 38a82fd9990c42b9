"""Bodies of what people and agents say to each other. The agent meant is the header's `agent`."""

from typing import Literal

from muse.event.content import Content, Origin


class UserPrompted(Content, frozen=True):
    """A person's prompt. While a turn runs: `queue` is a turn of its own afterwards, `steer` joins the running turn
    at its next model request, `replace` interrupts it first."""

    text: str
    delivery: Literal["queue", "steer", "replace"] = "queue"
    origin: Origin = Origin()


class AgentSteered(Content, frozen=True):
    """Words that join the running turn at its next model request."""

    text: str
    origin: Origin = Origin()


class AgentWanted(Content, frozen=True):
    """A person wants an agent below the one in whose lane this stands, in the background: it is spawned as soon as
    that can be decided, or refused. What is left out is the role's, or as its parent has it; `tools` are of those of
    the session."""

    task: str
    name: str = ""
    role: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    mode: str = ""
    isolation: Literal["", "shared", "worktree"] = ""
    origin: Origin = Origin()


class QuestionAsked(Content, frozen=True):
    """The agent asks a person; its tool call `call` waits for the answer."""

    call: str
    text: str
    options: tuple[str, ...] = ()


class QuestionAnswered(Content, frozen=True):
    """The answer to the question asked at seq `question`."""

    question: int
    text: str
    origin: Origin = Origin()


class CancelRequested(Content, frozen=True):
    """Stop a call (`call` names it), the agent's turn, the agent, or the agent and all below it; or take back the
    prompt of seq `prompt`, or the agent that was wanted there, while it waits. `by` names the call of the agent that
    wants it: then it is a decision, else a person's command."""

    target: Literal["call", "turn", "agent", "tree", "prompt"] = "turn"
    call: str = ""
    why: str = ""
    prompt: int = 0
    by: str = ""
    origin: Origin = Origin()


class AgentPaused(Content, frozen=True):
    """Start nothing new until continued: the agent, or it and all below it."""

    why: str = ""
    target: Literal["agent", "tree"] = "agent"
    origin: Origin = Origin()


class AgentContinued(Content, frozen=True):
    """Go on after a pause: the agent, or it and all below it."""

    target: Literal["agent", "tree"] = "agent"
    origin: Origin = Origin()


class AgentSpawned(Content, frozen=True):
    """An agent exists. `system` is its whole system prompt; `tools` names tools of the last `session.opened`.

    `call` is the parent's call that wanted it, `index` which of that call's children it is, from 0; `wanted` is the
    seq of the `agent.wanted` by which a person did. `model` is
    `provider/name`, "" for the session's. With `isolation` `worktree` it waits for its `worktree.prepared`."""

    task: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    mode: str = ""
    parent: str = ""
    call: str = ""
    background: bool = False
    workspace: str = ""
    index: int = 0
    name: str = ""
    role: str = ""
    isolation: Literal["shared", "worktree"] = "shared"
    wanted: int = 0


class AgentMessaged(Content, frozen=True):
    """One agent's words to another."""

    to: str
    text: str
    call: str = ""


class ResultDelivered(Content, frozen=True):
    """The result of a finished background child enters its parent's conversation, which is the header's agent."""

    child: str
    text: str
    outcome: Literal["", "done", "failed", "cancelled"] = ""


class AgentFinished(Content, frozen=True):
    """The agent will do nothing more by itself; `text` is its result. Words to it begin another turn, unless it was
    cancelled."""

    outcome: Literal["done", "failed", "cancelled"]
    text: str = ""
