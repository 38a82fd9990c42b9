"""Which sessions are open and nobody runs, and going on with them: each in a host of its own.

A session is open until an event says that it is closed: its owner was killed, the machine went down, it waits for an
answer or for a date. Who runs one already is left alone, and two that go over the sessions at once never run one twice:
the kernel's lock decides. This module must not know how it is told.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from muse.app.background import Begun, start_host
from muse.app.commands import state_to_go_on
from muse.app.places import catalog, open_log, session_files
from muse.app.settings import require_continuable
from muse.errors import Busy, MuseError
from muse.log.catalog import Entry

HOSTS_MAX: Final = 32
"""So many sessions run at once at most when all that are open are gone on with; those that run already count."""
STARTING_MAX: Final = 4
"""Hosts that are being started at the same time."""

Fate = Literal["open", "runs", "resumed", "nothing", "skipped", "failed"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is not closed, and what becomes of it. `open`: it can be gone on with; `nothing`: nothing was left
    to do; `skipped` and `failed` say why. `paused` are agents that stay as they are until they are continued, `waits`
    the approvals that it waits for. `code` is the exit code of what failed."""

    session: str
    file: str
    fate: Fate
    workspace: str = ""
    said: str = ""
    pid: int = 0
    why: str = ""
    hint: str = ""
    paused: tuple[str, ...] = ()
    waits: tuple[int, ...] = ()
    code: int = 0


def open_sessions(*, closed_by_provider: bool = False) -> list[Seen]:
    """Every session that is not closed, newest first; with `closed_by_provider` also those that a provider's refusal
    ended. Imported ones are closed."""
    found = []
    for entry in catalog().entries(session_files()):
        wanted = closed_by_provider and entry.outcome == "provider"
        if entry.state != "empty" and not entry.imported and (entry.state != "closed" or entry.pid or wanted):
            found.append(_seen(entry))
    return _within_limit(found)


def _seen(entry: Entry) -> Seen:
    seen = Seen(
        session=entry.session, file=entry.file, fate="open", workspace=entry.workspace, pid=entry.pid,
        said=entry.name or entry.prompt, waits=entry.approvals,
    )  # fmt: skip
    if entry.pid:
        return msgspec.structs.replace(seen, fate="runs")
    if entry.state == "damaged":
        return _stays(seen, entry.problem, f"muse verify {entry.session}")
    if entry.removed:
        return _stays(seen, f"it was removed on {entry.removed[:10]}, and its file came back")
    try:
        with closing(open_log(Path(entry.file))) as log:
            state = state_to_go_on(log)
            require_continuable(log, state)
    except MuseError as error:
        return _stays(seen, str(error), error.hint)
    if not state.prompts:
        return _stays(seen, "nothing was asked of it yet", f'muse resume {entry.session} "…"')
    if not os.path.isdir(state.workspace):
        return _stays(seen, f"its folder is gone: {state.workspace}", f"muse resume {entry.session} -C DIR")
    paused = tuple(agent.id for agent in state.agents.values() if agent.paused)
    return msgspec.structs.replace(seen, paused=paused)


def _stays(seen: Seen, why: str, hint: str = "") -> Seen:
    return msgspec.structs.replace(seen, fate="skipped", why=why, hint=hint)


def _within_limit(found: list[Seen]) -> list[Seen]:
    room = HOSTS_MAX - sum(seen.fate == "runs" for seen in found)
    for at, seen in enumerate(found):
        if seen.fate == "open":
            room -= 1
            if room < 0:
                found[at] = _stays(seen, f"{HOSTS_MAX} sessions run at once, and no more", "muse up again, later")
    return found


def go_on(found: list[Seen], said: Callable[[Seen], None]) -> Iterator[Seen]:
    """Go on with all that can be; what became of each, in the order given. `said` is told of each as it comes."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(STARTING_MAX) as starting:
        yield from starting.map(partial(_gone_on, said), found)


def _gone_on(said: Callable[[Seen], None], seen: Seen) -> Seen:
    if seen.fate == "open":
        seen = _started(seen)
        said(seen)
    return seen


def _started(seen: Seen) -> Seen:
    try:
        begun = start_host(["resume", "--quiet", "--", seen.file], folder=seen.workspace)
    except Busy:
        return msgspec.structs.replace(seen, fate="runs", why="another process was quicker")
    except MuseError as error:
        return msgspec.structs.replace(seen, fate="failed", why=str(error), hint=error.hint, code=error.exit_code)
    if isinstance(begun, Begun):
        return msgspec.structs.replace(seen, fate="resumed", pid=begun.pid)
    return msgspec.structs.replace(seen, fate="nothing", why="nothing is left to do")
