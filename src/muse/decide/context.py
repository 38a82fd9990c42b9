"""From state to what a model is asked: the system prompt of an agent and its next request.

Pure: the same state gives the same request, in any process, at any time. The texts belong to the rules version.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Literal

import msgspec

from muse.decide import compaction
from muse.event.content import Role
from muse.event.conversation import Answered, ModelRequest, TranscriptItem
from muse.fold.models import facts_of as facts_of
from muse.fold.models import is_priced as is_priced
from muse.fold.models import model_ref
from muse.fold.models import ref_of as ref_of
from muse.fold.models import session_ref as session_ref
from muse.fold.state import Agent, Session

RULES_VERSION = 3
"""2: agents are told that their workspace has moved (`fold.evolve.MOVES_TOLD_SINCE`). 3: many agents; what a failed
attempt used is recorded; what only its own provider can read is sent to no other (`fold.calls.UNBOUND_SINCE`)."""

ANSWERS_REMEMBERED = 8192
"""Answers of other models that are kept without what is bound to those."""


class Builder(msgspec.Struct, frozen=True):
    """A dialect's request builder: `name` stands in the log (`anthropic/1`), `build` gives the exact bytes."""

    name: str
    build: Callable[[ModelRequest], bytes]


class Rules(msgspec.Struct, frozen=True):
    """Everything that decisions depend on and that is code: the version, and a builder for each dialect."""

    version: int
    builders: Mapping[str, Builder]


class Built(msgspec.Struct, frozen=True):
    """A request ready to be sent."""

    builder: str
    body: bytes
    items: int

    @property
    def sha256(self) -> str:
        """Digest of the exact bytes, in hex."""
        return hashlib.sha256(self.body).hexdigest()


SYSTEM_PROMPT = """\
You are a coding agent working in a person's repository through tools. Work on the task until it is done, then answer
with a short account of what you did and what you checked.

How to work:
- Look before you change: read the files you are about to edit, and search rather than guess.
- Make the smallest change that does the whole job, in the style of the code around it.
- Run the project's own tests or checks after a change, and read what they say.
- When a tool result says that something may or may not have happened, look at the real state before you go on.
- When a person refuses a call, do not try it again unchanged.
- Do not commit, push or change configuration outside the workspace unless you were asked to.\
"""


def system_prompt(state: Session) -> str:
    """The whole system prompt of an agent spawned now."""
    lines = [SYSTEM_PROMPT, "", f"Workspace: {state.workspace}"]
    if state.git is not None:
        changed = "an unknown number of" if state.git.changed < 0 else state.git.changed
        lines.append(f"Git: branch {state.git.branch or '(none)'}, {changed} changed paths at the start")
    if state.date:
        lines.append(f"Date: {state.date}")
    if state.mode == "plan":
        lines.append("You are in plan mode: read and think, change nothing, and answer with a plan.")
    for instruction in state.instructions:
        lines += ["", f"Instructions from {instruction.path}:", instruction.text]
        if instruction.cut:
            lines.append("(cut here: the file is longer)")
    return "\n".join(lines)


CHILD_PROMPT = """\
You are agent {id}, spawned by agent {parent} to do one task. Your last answer is your result: say in it what you did,
what you found, and what is left. Nobody reads what you say before that.\
"""


def child_prompt(state: Session, parent: Agent, id: str, role: Role | None, isolation: str) -> str:
    """The whole system prompt of a child that `parent` spawns."""
    lines = [parent.system if parent.id == "main" else parent.system.partition(CHILD_MARK)[0].rstrip("\n")]
    lines += ["", CHILD_MARK, CHILD_PROMPT.format(id=id, parent=parent.id)]
    if isolation == "worktree":
        lines.append("You work in a working tree of your own; where it is, you are told with your task.")
    if role is not None and role.prompt:
        lines += ["", f"Your role, {role.name}:", role.prompt]
    return "\n".join(lines)


CHILD_MARK = "---"


def next_request(state: Session, agent: Agent, rules: Rules, purpose: Literal["turn", "summary"] = "turn") -> Built:
    """The request that the agent's next model call sends, steers included; or the one that asks for a summary."""
    settings = state.settings
    assert settings is not None
    ref = model_ref(state, agent)
    builder = rules.builders[ref.dialect]
    items = tuple(chain(agent.items, agent.steers))
    if purpose == "summary":
        items = (*compaction.summary_items(state, agent), compaction.wish(agent))
    if agent.foreign:
        items = tuple(map(unbound(agent.foreign), items))
    request = ModelRequest(
        model=ref.model,
        system=agent.system,
        tools=agent.tools,
        items=items,
        output_tokens_max=settings.output_tokens_max,
    )
    return Built(builder.name, builder.build(request), len(items) - (purpose == "summary"))


def unbound(upto: int) -> Callable[[TranscriptItem], TranscriptItem]:
    """What a model is sent of answers that others gave up to event `upto`: texts and tool uses. What their providers
    alone can read (thoughts, their signatures, blocks of their own making) would be refused."""

    def plain(item: TranscriptItem) -> TranscriptItem:
        return _unbound(item) if isinstance(item, Answered) and item.seq <= upto else item

    return plain


@lru_cache(maxsize=ANSWERS_REMEMBERED)
def _unbound(item: Answered) -> Answered:
    kept = (block for block in item.blocks if block.kind in ("text", "tool_use"))
    return msgspec.structs.replace(item, blocks=tuple(msgspec.structs.replace(block, raw="") for block in kept))
