"""What sessions left running on this machine: listed, and ended."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec

from muse.app.places import open_log, path_of, run_folder, session_files, state_of
from muse.config import muse_home
from muse.errors import MuseError
from muse.log.protocol import Log
from muse.runtime.session import Session

FOLLOW_SECONDS = 20.0
"""How long an owner is waited for until its log says that processes are gone."""
LOOK_SECONDS = 0.05


class LeftRunning(msgspec.Struct, frozen=True, kw_only=True):
    """A living process that a call left running. `seq` is the event that names it, 0 where none does yet: it was
    started by one that is named, or its session was killed before it could be."""

    session: str
    call: str
    seq: int
    pid: int
    started: int
    command: str


def left_running(session: str, state: Session) -> list[LeftRunning]:
    """What lives of a session's background processes, in the order of their start. Calls that still run are not
    counted: their processes are theirs."""
    from muse.effect.protocol import LeftProcess
    from muse.effect.runner import found_below, lives

    found: dict[tuple[int, int], LeftRunning] = {}
    for one in state.processes.values():
        if lives(LeftProcess(pid=one.pid, started=one.started, boot_id=one.boot_id)):
            found[one.pid, one.started] = LeftRunning(
                session=session, call=one.call, seq=one.seq, pid=one.pid, started=one.started, command=one.command
            )
    running = {run.key for agent in state.agents.values() for run in agent.batch if run.phase != "done"}
    for call, process in found_below(run_folder(session)):
        key = (process.pid, process.started)
        if key not in found and call not in running:
            found[key] = LeftRunning(
                session=session, call=call, seq=0, pid=process.pid, started=process.started, command=process.command
            )
    return sorted(found.values(), key=lambda one: (one.started, one.pid))


def all_left_running() -> Iterator[LeftRunning]:
    """Those of every session, newest session first. Only sessions whose runner has left files are opened."""
    known = {path.stem: path for path in session_files()}
    for folder in sorted((muse_home() / "run").glob("*/calls"), reverse=True):
        path = known.get(folder.parent.name)
        if path is not None and any(folder.iterdir()):
            with contextlib.suppress(MuseError):  # a damaged session stops no listing
                yield from left_running_in(path)


def left_running_in(path: Path) -> list[LeftRunning]:
    """Those of the session in a file."""
    with contextlib.closing(open_log(path, check=False)) as log:
        return left_running(log.session, state_of(log))


def end_here(log: Log, state: Session, calls: set[str]) -> list[LeftRunning]:
    """End what these calls left running, in a session that nobody owns, and return what is still there. That a person
    wanted it must stand in the log before; that it is done, the next owner finds out and records."""
    from muse.effect.protocol import LeftProcess
    from muse.effect.runner import Runner, RunnerLeftovers

    async def end() -> None:
        runner = Runner(run_folder(log.session), state.epoch)
        try:
            leftovers = RunnerLeftovers(runner)
            for call in sorted(calls):
                named = [
                    LeftProcess(pid=one.pid, started=one.started, boot_id=one.boot_id)
                    for one in state.processes.values()
                    if one.call == call
                ]
                await leftovers.end(call, named)
        finally:
            await runner.aclose()

    anyio.run(end)
    return [one for one in left_running(log.session, state) if one.call in calls]


def ended_by_owner(log: Log, calls: set[str]) -> list[LeftRunning]:
    """Wait, within a limit, until the owner's log says that what these calls left running is gone; return what is
    not."""

    async def look() -> list[LeftRunning]:
        left: list[LeftRunning] = []
        with anyio.move_on_after(FOLLOW_SECONDS):
            while True:
                with contextlib.closing(open_log(path_of(log), check=False)) as fresh:
                    state = state_of(fresh)
                left = [one for one in left_running(log.session, state) if one.call in calls]
                if not left and not any(one.call in calls for one in state.processes.values()):
                    break
                await anyio.sleep(LOOK_SECONDS)
        return left

    return anyio.run(look)
