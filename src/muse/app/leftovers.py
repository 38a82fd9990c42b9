"""What no session needs any more: found first and said, then taken away one by one, each under the lock it needs.

Sessions with events are never touched, nor what a running one might use: where a lock is held, or a file is so young
that a process may just be about to use it, it stays and that is said. This module must not know how it is shown.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from muse.app import snapshot_folders, tree_folders
from muse.app.archiving import archived, forget, holding_of, is_in_active
from muse.app.indexing import stray_indexes
from muse.app.keeping import is_locked, left_running, recorded_calls, run_part, stop_runner, unrecorded_ends, usage
from muse.app.places import SUFFIX, archive_folder, catalog, open_log, run_folder, session_files, tombstones
from muse.config import muse_home
from muse.errors import Busy, MuseError
from muse.event.kinds import COMMANDS
from muse.log import lock
from muse.log.catalog import Entry
from muse.log.keeping import BESIDE, unlink_log

YOUNG_SECONDS: Final = 3600.0
"""What was touched within the last hour may belong to a process that is just beginning: it is no leftover yet."""

Kind = Literal[
    "run folder",
    "spool",
    "empty log",
    "draft",
    "beside a log",
    "tombstone",
    "unpacked",
    "blobs",
    "archive",
    "snapshots",
    "index",
    "working trees",
]


class Leftover(msgspec.Struct, frozen=True):
    """One thing that may go: `why` nothing needs it, how many files, and bytes as files say."""

    what: Kind
    path: str
    why: str
    files: int = 1
    size: int = 0
    session: str = ""


class Stays(msgspec.Struct, frozen=True):
    """Something that looks left over and is not taken, and why."""

    path: str
    why: str


class Found(msgspec.Struct):
    """What a look around found."""

    leftovers: list[Leftover] = []
    stays: list[Stays] = []


def look_around(clock: Callable[[], float] = time.time) -> Found:
    """Everything under MUSE_HOME that nothing needs. Changes nothing; `clock` gives seconds as file times do."""
    found = Found()
    old = clock() - YOUNG_SECONDS
    entries = {Path(entry.file).stem: entry for entry in catalog().entries(session_files())}
    _removals(found, entries)
    _run_folders(found, entries, old)
    _beside_logs(found, old)
    for entry in entries.values():
        _in_log(found, entry, old)
    _unpacked(found)
    _archives(found, old)
    _snapshots(found, entries)
    _working_trees(found, entries, old)
    _indexes(found)
    return found


def take_away(leftover: Leftover) -> str:
    """Take one leftover away, after a second look under its lock. Returns why it stays, "" when it is gone."""
    try:
        return _TAKES[leftover.what](leftover)
    except Busy:
        return "the session is running"
    except (MuseError, OSError) as error:
        return str(error)


# ---------------------------------------------------------------------- removals that were cut short


def _removals(found: Found, entries: dict[str, Entry]) -> None:
    folder = muse_home() / "removed"
    for stone in tombstones().pending():
        there = stone.session in entries
        why = "its removal was begun and did not happen" if there else "its removal was not brought to its end"
        path = folder / f"{stone.session}.json.pending"
        found.leftovers.append(Leftover("tombstone", str(path), why, session=stone.session))


def _settle_tombstone(leftover: Leftover) -> str:
    path = _log_of(leftover.session)
    if path is None:
        tombstones().finish(leftover.session)
        return ""
    held = lock.acquire(path.with_suffix(".lock"))  # who removes it holds this until the log is gone
    try:
        if path.exists():
            tombstones().drop(leftover.session)
            return ""
        return "the session is being removed"
    finally:
        held.release()


# ---------------------------------------------------------------------- what runners left


def _run_folders(found: Found, entries: dict[str, Entry], old: float) -> None:
    gone = {stone.session for stone in (*tombstones().all(), *tombstones().pending())}
    try:
        names = sorted(os.listdir(muse_home() / "run"))
    except OSError:
        return
    for session in names:
        part = run_part(session)
        if part is None:
            continue
        if left := left_running(session):
            found.stays.append(Stays(part.path, f"processes are still running: {'; '.join(left[:3])}"))
        elif (entry := entries.get(session)) is not None:
            _run_folder_of(found, entry, part.path, part.files, part.size)
        elif session in gone:
            why = "its session was removed"
            found.leftovers.append(Leftover("run folder", part.path, why, part.files, part.size, session))
        elif _is_in_use(session, old):
            found.stays.append(Stays(part.path, "it is in use, or was just made, for a log that stands elsewhere"))
        elif not _attempts(session):
            why = "it is of no session and holds no output"
            found.leftovers.append(Leftover("run folder", part.path, why, part.files, part.size, session))
        else:
            found.stays.append(Stays(part.path, "it holds output of commands whose log is not here (any more)"))


def _run_folder_of(found: Found, entry: Entry, path: str, files: int, size: int) -> None:
    if lock.is_held(Path(entry.file).with_suffix(".lock")):
        found.stays.append(Stays(path, "its session is running"))
        return
    attempts = _attempts(entry.session)
    done = _recorded(Path(entry.file)) if attempts else {}
    settled = [(call, attempt) for call, attempt in attempts if attempt <= done.get(call, -1)]
    if entry.state == "closed" and len(settled) == len(attempts):
        found.leftovers.append(
            Leftover(
                "run folder", path, "its session ended, and all results are in the log", files, size, entry.session
            )
        )
        return
    from muse.effect.runner import files as names

    for call, attempt in settled:
        folder = names.call_folder(path, call, attempt)
        count, amount = usage(Path(folder))
        why = f"the result of {call} is in the log"
        found.leftovers.append(Leftover("spool", folder, why, count, amount, entry.session))
    if len(settled) < len(attempts):
        found.stays.append(
            Stays(path, f"{len(attempts) - len(settled)} results are not in the log: resume the session")
        )


def _is_in_use(session: str, old: float) -> bool:
    """Whether a runner is there for a session whose log is not under MUSE_HOME, or one may just be coming."""
    from muse.effect.runner import files

    folder = run_folder(session)
    return not _is_older(folder, old) or is_locked(folder / files.LOCK)


def _attempts(session: str) -> list[tuple[str, int]]:
    from muse.effect.runner import files

    return files.attempts(str(run_folder(session)))


def _recorded(path: Path) -> dict[str, int]:
    """The newest attempt of each call of which the log holds all that is to be known. A log that cannot be read has
    none."""
    with suppress(MuseError), closing(open_log(path)) as log:
        waiting = unrecorded_ends(log)
        return {call: attempt for call, attempt in recorded_calls(log).items() if call not in waiting}
    return {}


def _take_run_folder(leftover: Leftover) -> str:
    path = _log_of(leftover.session)
    held = lock.acquire(path.with_suffix(".lock")) if path is not None else None
    try:
        if left_running(leftover.session):
            return "processes of it are running"
        if path is None and is_locked(Path(leftover.path, "runner.lock")):
            return "a runner is there"
        done = {} if path is None else _recorded(path)
        if path is not None and any(attempt > done.get(call, -1) for call, attempt in _attempts(leftover.session)):
            return "a result came in that is not in the log"
        stop_runner(leftover.session)
        shutil.rmtree(leftover.path)
    finally:
        if held is not None:
            held.release()
    return ""


def _take_spool(leftover: Leftover) -> str:
    from muse.effect.runner import files

    path = _log_of(leftover.session)
    if path is None:
        return "its session has gone"
    held = lock.acquire(path.with_suffix(".lock"))
    try:
        files.remove_attempt(leftover.path)
    finally:
        held.release()
    return ""


def _log_of(session: str) -> Path | None:
    return next((path for path in session_files() if path.stem == session), None)


# ---------------------------------------------------------------------- logs that never began, and what stands beside


def _in_log(found: Found, entry: Entry, old: float) -> None:
    path = Path(entry.file)
    if entry.state not in ("empty", "closed", "stopped") or not _is_older(path, old):
        return
    if lock.is_held(path.with_suffix(".lock")):
        return
    if entry.state == "empty":
        why = "no event was ever recorded in it"
        found.leftovers.append(Leftover("empty log", str(path), why, 1, path.stat().st_size, entry.session))
        return
    from muse.log.sqlite import SqliteLog

    with suppress(MuseError), closing(SqliteLog.open(path, commands=COMMANDS, read_only=True, check=False)) as log:
        count, size = log.unnamed_blobs()
        if count:
            why = f"{count} contents in it that no event names"
            found.leftovers.append(Leftover("blobs", str(path), why, 0, size, entry.session))


def _take_empty_log(leftover: Leftover) -> str:
    from muse.log.sqlite import SqliteLog

    path = Path(leftover.path)
    held = lock.acquire(path.with_suffix(".lock"))
    try:
        with closing(SqliteLog.open(path, commands=COMMANDS, read_only=True)) as log:
            if log.head().seq:
                return "it has events now"
        unlink_log(path, held)
    finally:
        held.release()
    return ""


def _sweep_blobs(leftover: Leftover) -> str:
    from muse.log.sqlite import SqliteLog

    with closing(SqliteLog.open(Path(leftover.path), commands=COMMANDS)) as log:
        log.hold()  # closing sweeps
    return ""


def _beside_logs(found: Found, old: float) -> None:
    """Files of SQLite, locks and drafts without the log that they belong to."""
    for path in sorted((muse_home() / "sessions").glob("*/*/*/*")):
        name = path.name
        if name.startswith(".") and ".new" in name:
            if _is_older(path, old):
                why = "a file that was never finished"
                found.leftovers.append(Leftover("draft", str(path), why, 1, path.lstat().st_size))
            continue
        suffix = next((end for end in (*(SUFFIX + end for end in BESIDE), ".lock") if name.endswith(end)), "")
        session = name.removesuffix(suffix)
        if not suffix or path.with_name(session + SUFFIX).exists() or not _is_older(path, old):
            continue
        if name.endswith("-wal") and path.lstat().st_size and not _was_removed(session):
            found.stays.append(Stays(str(path), "it may hold events of a log that is not here: put the log back"))
            continue
        why = "its log is gone"
        found.leftovers.append(Leftover("beside a log", str(path), why, 1, path.lstat().st_size, session))


def _take_beside(leftover: Leftover) -> str:
    path = Path(leftover.path)
    log = path.with_name(leftover.session + SUFFIX)
    held = lock.acquire(log.with_suffix(".lock"))
    try:
        if log.exists():
            return "its log is there again"
        path.unlink(missing_ok=True)
        log.with_suffix(".lock").unlink(missing_ok=True)
    finally:
        held.release()
    return ""


def _take_draft(leftover: Leftover) -> str:
    path = Path(leftover.path)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return ""


def _was_removed(session: str) -> bool:
    return any(stone.session == session for stone in (*tombstones().all(), *tombstones().pending()))


def _is_older(path: Path, old: float) -> bool:
    try:
        return path.lstat().st_mtime < old
    except OSError:
        return False


# ---------------------------------------------------------------------- copies that were unpacked for reading


def _unpacked(found: Found) -> None:
    for folder in _folders(muse_home() / "cache" / "unpacked"):
        pid, _, started = folder.name.partition(".")[0].partition("-")
        if pid.isdigit() and started.isdigit() and lock.start_time(int(pid)) == int(started):
            continue
        files, size = usage(folder)
        why = "an archived session was unpacked there to be read, by a process that has ended"
        found.leftovers.append(Leftover("unpacked", str(folder), why, files, size))


# ---------------------------------------------------------------------- archives of sessions that are in the list


def _archives(found: Found, old: float) -> None:
    for record in archived():
        active = is_in_active(record)
        if active:
            why = "the session is in the list again, with all that is in this archive"
            part = holding_of(record)
            found.leftovers.append(Leftover("archive", record.file, why, part.files, part.size, record.session))
        elif active is False:
            found.stays.append(Stays(record.file, "the session in the list is another one than the archive holds"))
        elif not Path(record.file).exists():
            found.stays.append(
                Stays(record.file, "the archive is not where it was put, and the session is nowhere else")
            )
    for path in sorted(archive_folder().glob(".*.new")):
        if _is_older(path, old):
            why = "a file that was never finished"
            found.leftovers.append(Leftover("draft", str(path), why, 1, path.lstat().st_size))


def _snapshots(found: Found, entries: dict[str, Entry]) -> None:
    for folder, sessions in snapshot_folders.sessions_of(entries.values()).items():
        if sessions & entries.keys():
            continue
        if snapshot_folders.is_in_use(folder):
            found.stays.append(Stays(str(folder), "a session works with it"))
        else:
            files, size = usage(folder)
            why = "snapshots of a folder that no session of the list is of"
            found.leftovers.append(Leftover("snapshots", str(folder), why, files, size))
    for folder in snapshot_folders.rests():
        files, size = usage(folder)
        found.leftovers.append(Leftover("draft", str(folder), "it was being taken away", files, size))


def _working_trees(found: Found, entries: dict[str, Entry], old: float) -> None:
    """Trees of sessions that are no more go; those of others stay, because they may hold what no log does."""
    away = {record.session for record in archived()}
    for session in tree_folders.sessions_with_trees():
        folder = tree_folders.worktree_folder(session)
        entry = entries.get(session)
        if entry is not None and lock.is_held(Path(entry.file).with_suffix(".lock")):
            found.stays.append(Stays(str(folder), "its session is running"))
        elif entry is not None or session in away:
            agents = ", ".join(path.name for path in tree_folders.agents_with_trees(session)) or "none"
            why = f"working trees of its agents ({agents}) were kept; they go with it: muse rm {session}"
            found.stays.append(Stays(str(folder), why))
        elif not _is_older(folder, old) and not _was_removed(session):
            found.stays.append(Stays(str(folder), "it was just made, for a log that stands elsewhere"))
        else:
            _trees_of_nobody(found, session, folder)


def _trees_of_nobody(found: Found, session: str, folder: Path) -> None:
    """The trees of a session that is gone: each that has commits stays, the others go."""
    agents = list(tree_folders.agents_with_trees(session))
    kept = [one for one in agents if tree_folders.has_commits(one)]
    for one in kept:
        how = f"git worktree remove {tree_folders.tree_in(one)}, in its repository, takes it away"
        why = f"its session is gone, and it has commits of its own: {how}"
        found.stays.append(Stays(str(one), why))
    for one in (agent for agent in agents if agent not in kept) if kept else (folder,):
        files, size = usage(one)
        why = "working trees of a session that is not in the list"
        found.leftovers.append(Leftover("working trees", str(one), why, files, size, session))


def _take_working_trees(leftover: Leftover) -> str:
    """All of a session, or that of one agent. One that has commits by now stays."""
    if _log_of(leftover.session) is not None:
        return "its session is in the list"
    whole = Path(leftover.path) == tree_folders.worktree_folder(leftover.session)
    agents = list(tree_folders.agents_with_trees(leftover.session)) if whole else [Path(leftover.path)]
    if any(map(tree_folders.has_commits, agents)):
        return "commits were made there meanwhile"
    if whole:
        return tree_folders.remove_trees(leftover.session)
    return tree_folders.remove_tree(leftover.session, Path(leftover.path))


def _indexes(found: Found) -> None:
    for path in stray_indexes():
        with suppress(OSError):
            found.leftovers.append(
                Leftover("index", str(path), "the session that it is of is not in the list", 1, path.lstat().st_size)
            )


def _take_snapshots(leftover: Leftover) -> str:
    return "" if snapshot_folders.take_folder_away(Path(leftover.path)) else "a session works with it"


def _take_archive(leftover: Leftover) -> str:
    record = next((one for one in archived() if one.session == leftover.session), None)
    path = _log_of(leftover.session)
    if record is None or path is None:
        return "the session is not in the list (any more)"
    held = lock.acquire(path.with_suffix(".lock"))  # who puts it away holds this until the log is gone
    try:
        if not is_in_active(record):
            return "the session is not in the list (any more)"
        forget(record)
    finally:
        held.release()
    return ""


def _take_folder(leftover: Leftover) -> str:
    shutil.rmtree(leftover.path)
    return ""


def _folders(place: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())


_TAKES: Final[dict[str, Callable[[Leftover], str]]] = {
    "tombstone": _settle_tombstone, "run folder": _take_run_folder, "spool": _take_spool,
    "empty log": _take_empty_log, "blobs": _sweep_blobs, "beside a log": _take_beside, "draft": _take_draft,
    "index": _take_draft, "unpacked": _take_folder, "archive": _take_archive, "snapshots": _take_snapshots,
    "working trees": _take_working_trees,
}  # fmt: skip
