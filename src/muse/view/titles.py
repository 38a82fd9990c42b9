"""What a tool call does, in a few words: the command, the path, the pattern.

Tools of other agents are known by the names that their files have for them; `docs/imports.md` lists them.
"""

from typing import Final

import msgspec

from muse.event.content import BlobRef
from muse.event.shells import SHELLS as SHELLS
from muse.event.shells import command_in
from muse.view.amounts import size
from muse.view.visible import command_line, headline, one_line

_PATH_NAMES: Final = ("path", "file_path", "notebook_path", "filename")
_SAID_NAMES: Final = ("description", "query", "url")
_AGENT_TOOLS: Final = ("spawn", "wait", "message", "cancel", "result", "ask")
_LOOKING_TOOLS: Final = ("diff", "apply", "recall", "output", "stop")
CALLED_MAX: Final = 16
"""Of the agents that a call means, so many are named."""
_WORDS_AT: Final[tuple[tuple[str | int, ...], ...]] = (
    ("message", "content"), ("message", "content", 0, "text"), ("attachment", "content"), ("attachment", "prompt"),
    ("attachment", "type"), ("payload", "message"), ("payload", "content", 0, "text"), ("payload", "text"),
    ("payload", "item", "text"), ("payload", "model"), ("content",), ("content", 0, "text"), ("summary",),
    ("aiTitle",), ("customTitle",), ("agentName",), ("lastPrompt",), ("permissionMode",), ("mode",), ("operation",),
    ("record_type",), ("payload", "id"), ("durationMs",), ("messageId",),
)  # fmt: skip
"""Where in a line of another agent's file that has no counterpart something for a reader may stand; the first wins."""


def arguments(args: str) -> dict[str, object] | None:
    """The arguments as an object, or None when the text is none."""
    try:
        value = msgspec.json.decode(args or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def command_of(tool: str, args: str | BlobRef) -> str:
    """The exact command of a shell call, "" for any other."""
    return command_in(tool, arguments(args)) if tool in SHELLS and isinstance(args, str) else ""


def kept_words(raw: str) -> str:
    """What a reader wants to know of a line of another agent's file, on one line."""
    value = arguments(raw)
    if value is None:
        return headline(raw, 200)
    for path in _WORDS_AT:
        found: object = value
        for step in path:
            if isinstance(step, str):
                found = found.get(step) if isinstance(found, dict) else None
            else:
                found = found[step] if isinstance(found, list) and len(found) > step else None
        if isinstance(found, str | int) and str(found).strip() and not isinstance(found, bool):
            return headline(str(found), 200)
    return ""


def _agents_title(tool: str, value: dict[str, object]) -> str:
    """What a call that handles agents, or asks a person, says: whom it means, and the words."""
    named = value.get("agents")
    children = named if isinstance(named, list) else [value] if tool == "spawn" else []
    if tool in ("spawn", "wait"):
        return headline(", ".join(filter(None, map(_called, children[:CALLED_MAX]))), 200)
    text = value.get("text") or value.get("question") or value.get("why")
    whom = value.get("to") or value.get("agent")
    return headline(": ".join(part for part in (whom, text) if isinstance(part, str) and part), 200)


def _called(child: object) -> str:
    named: object = child
    if isinstance(child, dict):
        named = next((child[key] for key in ("name", "task", "role") if child.get(key)), "")
    return headline(named, 60) if isinstance(named, str) else ""


def _looking_title(tool: str, value: dict[str, object]) -> str:
    """What a call that looks at what was done says: whose changes, to which paths; which call, or which events."""
    if tool in ("diff", "apply"):
        named = value.get("paths")
        paths = ", ".join(path for path in named if isinstance(path, str)) if isinstance(named, list) else ""
        return headline(": ".join(part for part in (value.get("agent"), paths) if isinstance(part, str) and part), 200)
    first, last, query = value.get("from"), value.get("to"), value.get("query")
    until = "" if last == first else f" to #{last}" if isinstance(last, int) else " on"
    events = f"#{first}{until}" if isinstance(first, int) else ""
    words = (value.get("call"), events, query)
    return headline(": ".join(word for word in words if isinstance(word, str) and word), 200)


def call_title(tool: str, args: str | BlobRef) -> str:
    """One line for a call's arguments."""
    if isinstance(args, BlobRef):
        return f"(arguments of {size(args.length)})"
    value = arguments(args)
    if value is None:
        return headline(args, 200)
    if command := command_of(tool, args):
        return command_line(command)
    if tool in _AGENT_TOOLS and (told := _agents_title(tool, value)):
        return told
    if tool in _LOOKING_TOOLS and (told := _looking_title(tool, value)):
        return told
    path = next((value[name] for name in _PATH_NAMES if isinstance(value.get(name), str)), None)
    pattern = value.get("pattern")
    if isinstance(pattern, str):
        where = f" in {one_line(str(path))}" if path else ""
        return f"{headline(pattern, 200)}{where}"
    if path is not None:
        return headline(str(path), 200)
    said = next((value[name] for name in _SAID_NAMES if isinstance(value.get(name), str)), None)
    return headline(args if said is None else str(said), 200) if value else ""
