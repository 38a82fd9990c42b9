"""The tools by which a model handles other agents and asks people: what they are called, what they take.

They touch nothing but the log (recovery class `derived`): how their calls go on and end is decided in
`decide.agents` from the state alone. This module must not know states.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from muse.event.content import ToolSpec

AGENTS_A_CALL_MAX: Final = 64
TASK_CHARACTERS_MAX: Final = 100_000
NAMES_MAX: Final = 200
SECONDS_MAX: Final = 7 * 24 * 3600
OPTIONS_MAX: Final = 20

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TASK_CHARACTERS_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Names = Annotated[tuple[_Name, ...], msgspec.Meta(max_length=NAMES_MAX)]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One child that `spawn` wants."""

    task: _Text
    name: _Name = ""
    role: _Name = ""
    model: _Name = ""
    tools: _Names | None = None
    mode: _Name = ""
    isolation: Literal["", "shared", "worktree"] = ""


class Spawn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `spawn`."""

    agents: Annotated[tuple[Wanted, ...], msgspec.Meta(min_length=1, max_length=AGENTS_A_CALL_MAX)]
    background: bool = False


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `wait`. No `agents`: all that have not finished."""

    agents: _Names = ()
    until: Literal["all", "any"] = "all"
    seconds: Annotated[int, msgspec.Meta(ge=0, le=SECONDS_MAX)] = 0


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `message`."""

    to: _Name
    text: _Text


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `cancel`."""

    agent: _Name
    why: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `result`."""

    agent: _Name


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `ask`."""

    question: _Text
    options: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=OPTIONS_MAX)] = ()


Arguments = Spawn | Wait | Message | Cancel | Result | Ask

_TAKES: Final[dict[str, type[msgspec.Struct]]] = {
    "spawn": Spawn, "wait": Wait, "message": Message, "cancel": Cancel, "result": Result, "ask": Ask,
}  # fmt: skip

_ONE_AGENT: Final = (
    '{"type":"object","properties":{'
    '"task":{"type":"string","description":"All that it needs to know: it sees nothing of this conversation."},'
    '"name":{"type":"string","description":"A short name for people."},'
    '"role":{"type":"string","description":"The name of a role."},'
    '"model":{"type":"string","description":"provider/model; yours when left out."},'
    '"tools":{"type":"array","items":{"type":"string"},"description":"Some of your tools; all when left out."},'
    '"mode":{"type":"string","enum":["plan","default","accept-edits","yolo"],'
    '"description":"At most what this session allows."},'
    '"isolation":{"type":"string","enum":["shared","worktree"],"description":"worktree: it works in a working tree of '
    "its own, made from your files as they are now; you read its changes with diff and take them over with apply. "
    'shared: it works in your files."}'
    '},"required":["task"],"additionalProperties":false}'
)
_SCHEMAS: Final = {
    "spawn": '{"type":"object","properties":{'
    f'"agents":{{"type":"array","minItems":1,"maxItems":{AGENTS_A_CALL_MAX},"items":{_ONE_AGENT}}},'
    '"background":{"type":"boolean","description":"true: go on at once; each result reaches you when it is there."}'
    '},"required":["agents"],"additionalProperties":false}',
    "wait": '{"type":"object","properties":{'
    '"agents":{"type":"array","items":{"type":"string"},"description":"Their ids; all that work when left out."},'
    '"until":{"type":"string","enum":["all","any"]},'
    '"seconds":{"type":"integer","minimum":0,"description":"Wait no longer than this; 0: as long as it takes."}'
    '},"additionalProperties":false}',
    "message": '{"type":"object","properties":{'
    '"to":{"type":"string","description":"The id of an agent below you, or parent."},'
    '"text":{"type":"string"}},"required":["to","text"],"additionalProperties":false}',
    "cancel": '{"type":"object","properties":{"agent":{"type":"string"},"why":{"type":"string"}},'
    '"required":["agent"],"additionalProperties":false}',
    "result": '{"type":"object","properties":{"agent":{"type":"string"}},'
    '"required":["agent"],"additionalProperties":false}',
    "ask": '{"type":"object","properties":{"question":{"type":"string"},'
    '"options":{"type":"array","items":{"type":"string"},"description":"Answers to choose from, if there are any."}},'
    '"required":["question"],"additionalProperties":false}',
}
_DESCRIPTIONS: Final = {
    "spawn": "Give tasks to other agents, which work side by side. Each starts with its task alone and ends with a"
    " result. Without background this returns when all of them have ended, with their results.",
    "wait": "Wait until agents that you spawned in the background have ended. Their results reach you by themselves.",
    "message": "Say something to an agent below you, or to your parent; it reads it before its next step. One that has"
    " ended goes on with it.",
    "cancel": "Stop an agent below you, and all below it. What it has done so far stays.",
    "result": "The state of an agent that you spawned, and its result once it has ended.",
    "ask": "Ask the person you work for, and wait for the answer. Only for what you cannot find out or decide.",
}

NAMES: Final = tuple(_TAKES)
"""What these tools are called."""


def agent_tools(roles: Mapping[str, str] | None = None) -> tuple[ToolSpec, ...]:
    """Their specifications; `roles` are the roles that may be named, with a line on each."""
    known = "".join(f"\n- {name}: {text}" for name, text in sorted((roles or {}).items()))
    more = {"spawn": f"\nRoles:{known}"} if known else {}
    return tuple(
        ToolSpec(
            name=name, description=_DESCRIPTIONS[name] + more.get(name, ""), schema=_SCHEMAS[name], recovery="derived"
        )
        for name in NAMES
    )


def arguments(tool: str, value: Mapping[str, Any]) -> Arguments | str:
    """The arguments of a call, or why they are none. A single child may be given to `spawn` without a list."""
    if tool == "spawn" and "agents" not in value and "task" in value:
        rest = {key: one for key, one in value.items() if key != "background"}
        value = {"agents": [rest]} | ({"background": value["background"]} if "background" in value else {})
    try:
        return msgspec.convert(value, _TAKES[tool])  # type: ignore[return-value]  # one of the union's members
    except msgspec.ValidationError as error:
        return f"These arguments are not right: {error}. Takes: {_SCHEMAS[tool]}"
