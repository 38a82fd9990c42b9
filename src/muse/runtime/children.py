"""What an agent changed in its own working tree, read from the log: for the tools by which its parent looks at that.

From all that was recorded in the folder, one change a path: from what was there at first to what is there now. And what
was there when its parent took it over: who is spoken to goes on, and then what came since is taken over.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from muse.decide import applying, approval
from muse.effect.tool.arguments import Refusal, quote
from muse.effect.tool.children import ChildChanges, Children
from muse.errors import Damaged, Incomplete
from muse.event.content import BlobRef, FileChange
from muse.event.envelope import Event, decode
from muse.event.kinds import FilesChanged, ToolStarted
from muse.fold import agents, files
from muse.fold.state import Agent, Session
from muse.log.protocol import Log

_FILES_CHANGED: Final = b'"files.changed"'
_TOOL_STARTED: Final = b'"tool.started"'


def children(state: Callable[[], Session], log: Callable[[], Log]) -> Children:
    """For the tools of one owner. `log` opens a handle for reading, which is closed again."""

    async def changes(caller: str, agent_id: str) -> ChildChanges:
        now = state()
        agent = _meant(now, caller, agent_id)
        lanes, takers = _lanes(now, agent.id), _lanes(now, agents.home(now, caller))
        is_working = not agent.finished or any(one in lanes for one in now.unfinished)
        known = dict(agent.changed)
        found, taken = await anyio.to_thread.run_sync(_read, log, agent, lanes, takers)
        return ChildChanges(
            agent=agent.id,
            changes=tuple(change for change in found if change.path in known),
            taken=taken,
            is_working=is_working,
            is_whole=files.UNKNOWN not in known,
        )

    async def content(ref: BlobRef) -> bytes:
        return await anyio.to_thread.run_sync(_content, log, ref)

    return Children(changes, content)


def net_changes(log: Log, after: int, lanes: Collection[str]) -> list[FileChange]:
    """The changes in these lanes after an event, one a path and in their order. Blocks."""
    net: dict[str, FileChange] = {}
    for event in _events(log, after):
        if event.agent in lanes and isinstance(event.body, FilesChanged):
            _add(net, event.body)
    return _in_order(net)


def _events(log: Log, after: int) -> Iterator[Event]:
    """Those that say what changed, and those that begin a taking over."""
    for stored in log.read(after=after):
        if stored.body is None:
            continue
        begins = _TOOL_STARTED in stored.header and applying.TOOL.encode() in stored.body
        if begins or _FILES_CHANGED in stored.header:
            yield decode(stored.header, stored.body, stored.hidden)


def _add(net: dict[str, FileChange], body: FilesChanged) -> None:
    for change in body.changes:
        if change.before_mode or change.after_mode or change.before or change.after:
            net[change.path] = _joined(net.get(change.path), change)


def _in_order(net: dict[str, FileChange]) -> list[FileChange]:
    return [net[path] for path in sorted(net) if net[path].before_mode or net[path].after_mode]


def _joined(first: FileChange | None, last: FileChange) -> FileChange:
    if first is None:
        return last
    held = bool(last.after or not last.after_mode) and bool(first.before or not first.before_mode)
    return msgspec.structs.replace(
        last, before=first.before, before_mode=first.before_mode, note="" if held else last.note or first.note
    )


def _meant(state: Session, caller: str, agent_id: str) -> Agent:
    found = next((one for one in agents.below(state, caller) if one.id == agent_id), None)
    if found is None:
        own = ", ".join(one.id for one in agents.below(state, caller) if one.isolation == "worktree") or "none"
        raise Refusal(
            f"there is no agent {quote(agent_id)} below you; with a working tree of their own there are: {own}"
        )
    if found.isolation != "worktree":
        raise Refusal(f"{agent_id} works in a shared workspace: what it changed is there already")
    return found


def _lanes(state: Session, home: str) -> set[str]:
    """The agents that work in one folder."""
    return {one for one in state.agents if agents.home(state, one) == home}


def _read(
    log: Callable[[], Log], agent: Agent, lanes: Collection[str], takers: Collection[str]
) -> tuple[list[FileChange], dict[str, FileChange]]:
    """The changes in these lanes; and of the files that were taken over before what had become of them by then."""
    net: dict[str, FileChange] = {}
    begun: dict[str, dict[str, FileChange]] = {}
    taken: dict[str, FileChange] = {}
    handle = log()
    try:
        for event in _events(handle, agent.spawned):
            body = event.body
            if isinstance(body, ToolStarted) and event.agent in takers and _takes(body, agent.id):
                begun[body.call] = {one.path: net[one.path] for one in body.observed.changes if one.path in net}
            elif isinstance(body, FilesChanged) and event.agent in lanes:
                _add(net, body)
            elif isinstance(body, FilesChanged):
                done = {change.path for change in body.changes}
                for call in begun.keys() & set(body.calls):
                    taken |= {path: was for path, was in begun[call].items() if path in done}
    finally:
        handle.close()
    return _in_order(net), taken


def _takes(body: ToolStarted, agent_id: str) -> bool:
    if body.tool != applying.TOOL or not isinstance(body.args, str):
        return False
    return (approval.parsed(body.args) or {}).get("agent") == agent_id


def _content(log: Callable[[], Log], ref: BlobRef) -> bytes:
    handle = log()
    try:
        return handle.get_blob(ref.blob)
    except (Incomplete, Damaged) as error:
        raise Refusal(f"a content is not in the log any more: {error}") from error
    finally:
        handle.close()
