"""What an agent changed in its own working tree, read from the log: for the tools by which its parent looks at that.

From all that was recorded in the folder, one change a path: from what was there at first to what is there now.
"""

from collections.abc import Callable, Collection
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from muse.effect.tool.arguments import Refusal, quote
from muse.effect.tool.children import ChildChanges, Children
from muse.errors import Damaged, Incomplete
from muse.event.content import BlobRef, FileChange
from muse.event.envelope import decode
from muse.event.kinds import FilesChanged
from muse.fold import agents, files
from muse.fold.state import Agent, Session
from muse.log.protocol import Log

_FILES_CHANGED: Final = b'"files.changed"'


def children(state: Callable[[], Session], log: Callable[[], Log]) -> Children:
    """For the tools of one owner. `log` opens a handle for reading, which is closed again."""

    async def changes(caller: str, agent_id: str) -> ChildChanges:
        now = state()
        agent = _meant(now, caller, agent_id)
        lanes = {one for one in now.agents if agents.home(now, one) == agent.id}
        is_working = not agent.finished or any(one in lanes for one in now.unfinished)
        known = dict(agent.changed)
        found = await anyio.to_thread.run_sync(_read, log, agent.spawned, lanes)
        return ChildChanges(
            agent=agent.id,
            changes=tuple(change for change in found if change.path in known),
            is_working=is_working,
            is_whole=files.UNKNOWN not in known,
        )

    async def content(ref: BlobRef) -> bytes:
        return await anyio.to_thread.run_sync(_content, log, ref)

    return Children(changes, content)


def net_changes(log: Log, after: int, lanes: Collection[str]) -> list[FileChange]:
    """The changes in these lanes after an event, one a path and in their order. Blocks."""
    net: dict[str, FileChange] = {}
    for stored in log.read(after=after):
        if stored.body is None or _FILES_CHANGED not in stored.header:
            continue
        event = decode(stored.header, stored.body, stored.hidden)
        if event.agent not in lanes or not isinstance(event.body, FilesChanged):
            continue
        for change in event.body.changes:
            if change.before_mode or change.after_mode or change.before or change.after:
                net[change.path] = _joined(net.get(change.path), change)
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


def _read(log: Callable[[], Log], after: int, lanes: Collection[str]) -> list[FileChange]:
    handle = log()
    try:
        return net_changes(handle, after, lanes)
    finally:
        handle.close()


def _content(log: Callable[[], Log], ref: BlobRef) -> bytes:
    handle = log()
    try:
        return handle.get_blob(ref.blob)
    except (Incomplete, Damaged) as error:
        raise Refusal(f"a content is not in the log any more: {error}") from error
    finally:
        handle.close()
