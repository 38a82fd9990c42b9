"""What `apply` is about: the files that an agent below the caller changed in its own working tree.

They do not stand in the arguments, so they are taken from the state: rules are judged on them, and a person is shown
them.
"""

from collections.abc import Mapping
from typing import Any, Final

from muse.decide import approval
from muse.fold import agents, files
from muse.fold.state import Session, ToolRun

TOOL: Final = "apply"
NAMED_MAX: Final = 200


def applied_paths(state: Session, caller: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths, relative to the workspace of both, that a call of `apply` would write to."""
    return tuple(path for path, _ in _changed(state, caller, args))


def shown(state: Session, run: ToolRun) -> str:
    """What a person is shown of a call, as `approval.shown` gives it, and of `apply` the files as well."""
    args = approval.parsed(run.args)
    if run.tool != TOOL or args is None:
        return approval.shown(run.tool, run.args)
    found = _changed(state, run.key.partition("/")[0], args)
    named = [f"  {path} ({what})" for path, what in found[:NAMED_MAX]]
    if len(found) > NAMED_MAX:
        named.append(f"  and {len(found) - NAMED_MAX} more")
    agent = args.get("agent")
    lines = [
        f"apply what {agent} changed in its working tree:" if isinstance(agent, str) else f"apply {run.args}",
        *(named or ["  no files"]),
        f"(muse replay SESSION:{agent} shows each change of its files)",
    ]
    return approval.visible("\n".join(lines))


def _changed(state: Session, caller: str, args: Mapping[str, Any]) -> list[tuple[str, str]]:
    child = next((one for one in agents.below(state, caller) if one.id == args.get("agent")), None)
    if child is None:
        return []
    given = args.get("paths")
    wanted = [one.strip("/").removeprefix("./") for one in given if isinstance(one, str)] if given else [""]
    return [
        (path, what)
        for path, what in sorted(child.changed.items())
        if path != files.UNKNOWN and any(_is_at(path, place) for place in wanted)
    ]


def _is_at(path: str, place: str) -> bool:
    return place in ("", ".") or path == place or path.startswith(place + "/")
