"""What is asked and answered about permission: the request, the modes, the policy and the verdict.

Only names and their spellings; how a verdict is reached stands in `policy`.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from muse.decide.patterns import Rule
from muse.errors import ConfigError

Mode = Literal["default", "accept-edits", "plan", "yolo"]
Decision = Literal["allow", "ask", "deny"]

MODES: Final[tuple[Mode, ...]] = ("default", "accept-edits", "plan", "yolo")
_SPELLINGS: Final[dict[str, Mode]] = {
    "default": "default",
    "ask": "default",
    "normal": "default",
    "suggest": "default",
    "untrusted": "default",
    "on-request": "default",
    "accept-edits": "accept-edits",
    "auto-edit": "accept-edits",
    "auto-accept-edits": "accept-edits",
    "plan": "plan",
    "read-only": "plan",
    "readonly": "plan",
    "yolo": "yolo",
    "bypass-permissions": "yolo",
    "dangerously-skip-permissions": "yolo",
    "dangerously-bypass-approvals-and-sandbox": "yolo",
}
_REFUSED_SPELLINGS: Final = {
    "dont-ask": "it denies what would ask elsewhere; use default, where nobody answering is a denial",
    "never": "it can mean never asking or never allowing; use yolo for the first, plan for the second",
    "full-auto": "it relies on a sandbox elsewhere; use accept-edits, with allow rules for commands",
    "auto": "it can mean edits or everything; use accept-edits for the first, yolo for the second",
}


class Policy(msgspec.Struct, frozen=True):
    """A mode and the rules: those of the settings, and those that a person's "always" added."""

    mode: Mode = "default"
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    remembered: tuple[Rule, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """A tool call to be judged.

    `paths` are the workspace-relative normalized paths that a file tool touches, "" for one outside. `writes`: it may
    change files. `outside`: it reaches outside the workspace. `workspace`, where known, is the absolute path of the
    folder in which commands run; it only lets absolute paths below it count as inside.
    """

    tool: str
    recovery_class: str
    args: Mapping[str, object] = {}
    paths: tuple[str, ...] = ()
    writes: bool = False
    outside: bool = False
    workspace: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """`rule` says to a person what decided. `remember` is the rule that "always" would add, "" if none is safe."""

    decision: Decision
    rule: str
    remember: str = ""


def parse_mode(text: str) -> Mode:
    """The mode that `text` names, also in the spellings of other agents. Raises ConfigError."""
    kebab = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text.strip().lstrip("-")[:80]).lower().replace("_", "-")
    kebab = re.sub(r"[\s-]+", "-", kebab)
    if kebab in _SPELLINGS:
        return _SPELLINGS[kebab]
    valid = ", ".join(MODES)
    shown = repr(text[:40].encode("utf-8", "backslashreplace").decode())
    if kebab in _REFUSED_SPELLINGS:
        raise ConfigError(f"no permission mode {shown} here: {_REFUSED_SPELLINGS[kebab]}", hint=f"one of {valid}")
    close = difflib.get_close_matches(kebab, _SPELLINGS, n=1, cutoff=0.6)
    hint = f"did you mean {_SPELLINGS[close[0]]}? One of {valid}" if close else f"one of {valid}"
    raise ConfigError(f"unknown permission mode {shown}", hint=hint)
