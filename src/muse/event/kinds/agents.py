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
    """Stop a call (`call` names it), the agent's turn, the agent, or the agent and all below it."""

    target: Literal["call", "turn", "agent", "tree"] = "turn"
    call: str = ""
    why: str = ""
    origin: Origin = Origin()


class AgentPaused(Content, frozen=True):
    """Start nothing new until continued."""

    why: str = ""
    origin: Origin = Origin()


class AgentContinued(Content, frozen=True):
    """Go on after a pause."""

    origin: Origin = Origin()


class AgentSpawned(Content, frozen=True):
    """An agent exists. `system` is its whole system prompt; `tools` names tools of the last `session.opened`."""

    task: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    mode: str = ""
    parent: str = ""
    call: str = ""
    background: bool = False
    workspace: str = ""


class AgentMessaged(Content, frozen=True):
    """One agent's words to another."""

    to: str
    text: str
    call: str = ""


class ResultDelivered(Content, frozen=True):
    """The result of a finished child enters its parent's conversation."""

    child: str
    text: str


class AgentFinished(Content, frozen=True):
    """The agent will do nothing more by itself."""

    outcome: Literal["done", "failed", "cancelled"]
    text: str = ""
