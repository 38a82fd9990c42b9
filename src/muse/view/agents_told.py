"""What is told of an agent in a few words: how it is called, and what makes it another one than most.

Names and roles are others' texts, and made safe here. This module must not know how rows look.
"""

from typing import Final

from muse.event import kinds
from muse.view.visible import headline

BRIEF_CHARACTERS: Final = 160
TOOLS_NAMED_MAX: Final = 4


def brief(text: str) -> str:
    """A name, a path, a rule: on one line, and never longer than a row can bear."""
    return headline(text, BRIEF_CHARACTERS)


def called_words(name: str, role: str) -> str:
    """How an agent is called beside its id: `cart`, `cart (reviewer)`, `(reviewer)`, ""."""
    return f"{brief(name)} ({brief(role)})".strip() if role and role != name else brief(name)


def spawn_words(body: kinds.AgentSpawned) -> str:
    """What makes a child another one than most: `, in the background, in a working tree of its own, mode plan`."""
    parts = [
        f"as wanted at #{body.wanted}" if body.wanted else "",
        "in the background" if body.background else "",
        "in a working tree of its own" if body.isolation == "worktree" else "",
        f"mode {brief(body.mode)}" if body.mode and body.parent else "",
        f"model {brief(body.model)}" if body.model and body.parent else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def wanted_words(body: kinds.AgentWanted) -> str:
    """What a person wants of an agent beside its task: `, with read and grep, mode plan`."""
    where = {"": "", "worktree": "in a working tree of its own", "shared": "in its parent's files"}
    parts = [
        f"with {_tools(body.tools)}" if body.tools is not None else "",
        where[body.isolation],
        f"mode {brief(body.mode)}" if body.mode else "",
        f"model {brief(body.model)}" if body.model else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def _tools(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - TOOLS_NAMED_MAX} more" if len(names) > TOOLS_NAMED_MAX else ""
    return f"{', '.join(brief(name) for name in names[:TOOLS_NAMED_MAX])}{more}" if names else "no tools"
