"""What a session takes up on disk, whether it may go, and its removal.

Nothing of a session is deleted but through here and `archiving` (its log) or `leftovers` (what no session needs). A
session that runs, that left processes running, or that a fork goes on from stays. This module must not know how a
person is asked.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from muse.app import snapshot_folders, tree_folders
from muse.app.commands import known_secrets
from muse.app.indexing import forget_index
from muse.app.places import events, open_log, run_folder, session_files, tombstones
from muse.config import muse_home
from muse.errors import Busy, MuseError, UsageError
from muse.event.kinds import ProcessReaped, ProcessStarted
from muse.failpoint import hit
from muse.log import lock
from muse.log.catalog import Entry
from muse.log.keeping import BESIDE, Tombstone, unlink_log
from muse.log.place import reserve_bytes
from muse.log.protocol import Log
from muse.runtime.redaction import clear_values
from muse.runtime.seal import now

if TYPE_CHECKING:
    from muse.effect.runner.protocol import Attempt

Kind = Literal["log", "run folder", "archive", "snapshots", "working trees"]


class Part(msgspec.Struct, frozen=True):
    """A file or folder that belongs to one session alone: how many files, and bytes as files say."""

    what: Kind
    path: str
    files: int
    size: int


class Holding(msgspec.Struct, frozen=True):
    """A session with all that would go with it."""

    entry: Entry
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def files(self) -> int:
        """Files of all parts."""
        return sum(part.files for part in self.parts)


def removed_sessions() -> list[Tombstone]:
    """Every session that was removed, newest id first; also one whose removal was cut short after its log had gone."""
    stones = tombstones()
    here = {path.stem for path in session_files()}
    found = {stone.session: stone for stone in stones.pending() if stone.session not in here}
    found |= {stone.session: stone for stone in stones.all()}
    return [found[session] for session in sorted(found, reverse=True)]


def log_parts(path: Path) -> Part:
    """A log with what stands beside it."""
    names = [path, *(path.with_name(path.name + suffix) for suffix in BESIDE), path.with_suffix(".lock")]
    sizes = [size for name in names if (size := _size(name)) is not None]
    return Part("log", str(path), len(sizes), sum(sizes))


def run_part(session: str) -> Part | None:
    """The folder of a session's runner, None where there is none."""
    folder = run_folder(session)
    if not folder.is_dir():
        return None
    files, size = usage(folder)
    return Part("run folder", str(folder), files, size)


def usage(folder: Path) -> tuple[int, int]:
    """Files below a folder, and their bytes. What vanishes meanwhile, or cannot be looked into, is not counted."""
    files = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if (found := _size(Path(place, name))) is not None:
                files, size = files + 1, size + found
    return files, size


class Disk(msgspec.Struct, frozen=True):
    """What MUSE_HOME takes up, in bytes: each session with its runner's folder (session → bytes), and all else by the
    name of its folder. `free` is what is left where it stands, `reserve` what a run leaves free when it stops."""

    free: int
    reserve: int
    sessions: dict[str, int]
    others: dict[str, int]

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.sessions.values()) + sum(self.others.values())


def disk_use() -> Disk:
    """What MUSE_HOME takes up. No log is opened for it."""
    home = muse_home()
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    space = shutil.disk_usage(place)
    sessions = {path.stem: log_parts(path).size for path in session_files()}
    others: dict[str, int] = {}
    for folder in sorted(path for path in home.glob("*") if path.is_dir() and path.name != "sessions"):
        others[folder.name] = usage(folder)[1]
    for session in sessions:
        run = run_part(session)
        if run is not None:
            sessions[session] += run.size
            others["run"] -= run.size
    return Disk(space.free, reserve_bytes(space.total), sessions, others)


def holding(entry: Entry, snapshots: Mapping[Path, set[str]] | None = None) -> Holding:
    """A session of the active list with all that would go with it: also folders of snapshots that are for it alone,
    by `snapshots` (see `snapshot_folders.sessions_of`). Raises UsageError for a file elsewhere."""
    path = Path(entry.file)
    if not is_home_of(path):
        raise UsageError(
            f"{path} is a copy outside {muse_home()}: muse keeps no account of it",
            hint=f"delete it yourself: rm {path}",
        )
    run = run_part(path.stem)
    alone = [folder for folder, sessions in (snapshots or {}).items() if sessions == {entry.session}]
    more = [Part("snapshots", str(folder), *usage(folder)) for folder in alone]
    if (trees := tree_folders.worktree_folder(path.stem)).is_dir():
        more.append(Part("working trees", str(trees), *usage(trees)))
    return Holding(entry, (log_parts(path), *([run] if run else ()), *more))


def is_home_of(path: Path) -> bool:
    """Whether a log stands where sessions are kept."""
    with suppress(OSError):
        return path.resolve().is_relative_to((muse_home() / "sessions").resolve())
    return False


def require_removable(session: str, path: Path, children: Mapping[str, Iterable[str]]) -> None:
    """Raises Busy for a session that runs or has left processes running, UsageError for one that a fork needs.
    `children` maps sessions to those that go on from them."""
    if lock.is_held(path.with_suffix(".lock")):
        owner = lock.read_owner(path.with_suffix(".lock"))
        who = f" (process {owner.pid})" if owner else ""
        raise Busy(f"{session} is running{who}", hint="end it first: muse cancel, or stop that process")
    if left := left_running(session):
        raise Busy(
            f"{session} has left processes running: {'; '.join(left[:3])}",
            hint=f"end them first: muse cancel {session} --processes",
        )
    refuse_parent(session, children)


def refuse_parent(session: str, children: Mapping[str, Iterable[str]]) -> None:
    """Raises UsageError for a session that another one goes on from."""
    if forks := sorted(children.get(session, ())):
        raise UsageError(
            f"{session} is what {', '.join(forks[:3])} goes on from: without it that session cannot be understood",
            hint="remove the fork first, or keep both; muse archive makes them smaller",
        )


def left_running(session: str) -> list[str]:
    """The commands of a session, and processes that such left running, that live now: a phrase each."""
    from muse.effect.runner import files, found_below, processes
    from muse.effect.runner.protocol import Exited, Lost, Running

    folder = run_folder(session)
    found: list[str] = []
    marked = [f"process {process.pid} of {call} ({process.command})" for call, process in found_below(folder)]
    for call, attempt in files.attempts(str(folder)):
        match _inspect(folder, call, attempt):
            case Running(accepted=accepted):
                found.append(f"{call} (process {accepted.command.pid})")
            case Lost(accepted=accepted, command_alive=True):
                found.append(f"{call} (process {accepted.command.pid}, its keeper is gone)")
            case Exited(accepted=accepted, exit=exit):
                found += [
                    f"process {one.pid} of {call} ({one.command})"
                    for one in exit.left_running
                    if processes.is_alive(one.pid, one.start_time, accepted.keeper.boot_id)
                ]
            case _:
                pass
    return [*found, *(words for words in marked if words.partition(" of ")[0] not in " ".join(found))]


def _inspect(folder: Path, call: str, attempt: int) -> "Attempt | None":
    from muse.effect.runner import Runner
    from muse.effect.runner.protocol import RunnerError

    try:
        return Runner(folder, 0).inspect(call, attempt)
    except RunnerError:  # what it wrote cannot be read: nothing is known to live
        return None


def recorded_calls(log: Log) -> dict[str, int]:
    """The newest attempt of each call whose result the log holds; what it says of it may be hidden."""
    found: dict[str, int] = {}
    for stored in log.read():
        if b'"type":"tool.finished"' not in stored.header:
            continue
        clear = clear_values(stored)
        call = str(clear.get("call", ""))
        found[call] = max(int(str(clear.get("attempt", -1))), found.get(call, -1))
    return found


def unrecorded_ends(log: Log) -> set[str]:
    """The calls of which a process that was left running has ended, and how stands in the runner's folder alone."""
    from muse.effect.runner import files

    running: dict[tuple[str, int], str] = {}
    for event in events(log):
        match event.body:
            case ProcessStarted(call=call, pid=pid, started=started):
                running[(call, pid)] = str(started)
            case ProcessReaped(call=call, pid=pid):
                running.pop((call, pid), None)
            case _:
                pass
    folder = str(run_folder(log.session))
    return {
        call
        for call, attempt in files.attempts(folder)
        for line in files.read_lines(os.path.join(files.call_folder(folder, call, attempt), files.ENDS))
        if running.get((call, line.get("pid", 0))) == line.get("start_time")
    }


def stop_runner(session: str) -> None:
    """End the session's runner, which waits a while for more commands before it ends by itself. For a session that
    nobody owns and that left nothing running. Raises RunnerError."""
    from muse.effect.runner import Runner, files

    folder = run_folder(session)
    if not is_locked(folder / files.LOCK):
        return
    import anyio

    epoch = 0
    with suppress(ValueError):
        epoch = int((files.read_json(str(folder / files.EPOCH)) or {}).get("epoch", 0))
    anyio.run(partial(Runner(folder, epoch).stop))


def remove(found: Holding, children: Mapping[str, Iterable[str]], why: str = "") -> Tombstone:
    """Take a session away for good; what is left is the tombstone. Raises what `require_removable` raises, and Busy
    when somebody opens it just now."""
    path, entry = Path(found.entry.file), found.entry
    session = path.stem
    require_removable(session, path, children)
    held = lock.acquire(path.with_suffix(".lock"))
    try:
        require_removable_now(session)
        settle(path)
        require_as_shown(entry)
        stone = Tombstone(
            session=session, removed=now(), name=entry.name, why=known_secrets().mask(why), events=entry.events,
            hash=entry.hash,
            size=found.size,
        )  # fmt: skip
        bury(stone, path, held)
        for part in found.parts:
            if part.what == "snapshots":
                snapshot_folders.take_folder_away(Path(part.path))
            elif part.what == "working trees":
                tree_folders.remove_trees(session)
    finally:
        held.release()
    return stone


def require_removable_now(session: str) -> None:
    """Under the lock: what was left running is looked at once more, then the idle runner ends."""
    if left := left_running(session):
        raise Busy(f"{session} has left processes running: {'; '.join(left[:3])}", hint="see muse processes")
    stop_runner(session)


def require_as_shown(entry: Entry) -> None:
    """Under the lock: raises Busy when the session went on since `entry` was made and shown; a person may have thought
    for long. Of a log that could not be read nothing is known."""
    found = entry.hash
    with suppress(MuseError), closing(open_log(Path(entry.file), check=False)) as log:
        found = log.head().hash.hex()
    if entry.hash and found != entry.hash:
        raise Busy(f"{entry.session} went on since it was shown", hint="look at it again, then repeat this")


def bury(stone: Tombstone, path: Path, held: lock.OwnerLock) -> None:
    """Tombstone, log, index, run folder, in the order that leaves no half session behind at any instant."""
    stones = tombstones()
    stones.begin(stone)
    hit("in_removal")
    unlink_log(path, held)
    hit("in_removal")
    forget_index(path)
    stones.finish(stone.session)
    hit("in_removal")
    remove_run_folder(stone.session)


def remove_run_folder(session: str) -> None:
    """Take the folder of a session's runner away; what cannot be deleted stays for `gc`."""
    shutil.rmtree(run_folder(session), ignore_errors=True)


def settle(path: Path) -> None:
    """Move the write-ahead log into the file, so that none is left that would belong to a copy put there later."""
    with suppress(MuseError):  # a damaged one goes as it is
        open_log(path, read_only=False, check=False).close()


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock on a file."""
    try:
        return lock.is_held(path)
    except OSError:
        return False


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None
