"""What a tool call does, in a few words: the command, the path, the pattern."""

import msgspec

from muse.event.content import BlobRef
from muse.view.amounts import size
from muse.view.visible import command_line, headline, one_line

_PATH_NAMES = ("path", "file_path")


def arguments(args: str) -> dict[str, object] | None:
    """The arguments as an object, or None when the text is none."""
    try:
        value = msgspec.json.decode(args or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def command_of(tool: str, args: str | BlobRef) -> str:
    """The exact command of a shell call, "" for any other."""
    value = arguments(args) if tool == "shell" and isinstance(args, str) else None
    command = value.get("command") if value else None
    return command if isinstance(command, str) else ""


def call_title(tool: str, args: str | BlobRef) -> str:
    """One line for a call's arguments."""
    if isinstance(args, BlobRef):
        return f"(arguments of {size(args.length)})"
    value = arguments(args)
    if value is None:
        return headline(args, 200)
    if command := command_of(tool, args):
        return command_line(command)
    path = next((value[name] for name in _PATH_NAMES if isinstance(value.get(name), str)), None)
    pattern = value.get("pattern")
    if isinstance(pattern, str):
        where = f" in {one_line(str(path))}" if path else ""
        return f"{headline(pattern, 200)}{where}"
    if path is not None:
        return headline(str(path), 200)
    return headline(args, 200) if value else ""
