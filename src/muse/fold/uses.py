"""What a tool use of a model is, by the tools that its agent has: how it is taken up after a crash, and what it waits
for. This module must not know what tools do.
"""

from functools import lru_cache

from muse.event.content import RecoveryClass, ToolSpec
from muse.event.jsontext import sendable_object
from muse.fold.state import Agent, ToolRun

USES_REMEMBERED = 8192
"""Tool uses of which it is remembered what they are: more than one response holds."""


def spec_of(agent: Agent, tool: str) -> ToolSpec | None:
    """The specification of a tool that this agent has."""
    return next((spec for spec in agent.tools if spec.name == tool), None)


def recovery_of(agent: Agent, run: ToolRun) -> RecoveryClass:
    """The recovery class of a tool use; one that cannot run at all is `pure`."""
    spec = spec_of(agent, run.tool)
    return spec.recovery if spec is not None and _is_object(run.args) else "pure"


@lru_cache(maxsize=USES_REMEMBERED)
def _is_object(args: str) -> bool:
    return sendable_object(args or "{}") is not None


def waits(recovery: RecoveryClass, *, any_before: bool, edit_before: bool) -> bool:
    """Whether a use may not start yet because of earlier ones of its batch that have not ended: `any_before` but those
    that touch nothing but the log, `edit_before` one that edits files."""
    return edit_before or (recovery == "reconcilable" and any_before)


def all_wait(agent: Agent) -> bool:
    """Whether all that is open of the agent's last response waits for others: for agents, for a person, or for a call
    that does."""
    some = any_before = edit_before = False
    for run in agent.batch:
        if run.phase == "done":
            continue
        recovery = recovery_of(agent, run)
        if run.phase in ("running", "doubted", "settling"):
            if run.phase != "running" or run.recovery != "derived":
                return False
        elif run.phase != "asked" and not waits(recovery, any_before=any_before, edit_before=edit_before):
            return False
        some = True
        if recovery != "derived":
            any_before, edit_before = True, edit_before or recovery == "reconcilable"
    return some
