"""Putting sessions away and taking them back: a packed copy, checked before the log goes, and a record of it.

Order makes it safe: the packed file is whole, unpacked again and verified before its record is written; the record is
durable before the log is unlinked. After a kill at any point there is the session, or its archive, or both (then `gc`
takes the archive away, because the session holds all of it). This module must not know how it is shown.
"""

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.app import keeping, snapshot_folders
from muse.app.commands import known_secrets
from muse.app.indexing import forget_index
from muse.app.keeping import Holding, Part
from muse.app.places import archive_folder, catalog, open_log, run_folder, session_files, tombstones, verify_file
from muse.config import muse_home
from muse.errors import Busy, Damaged, MuseError, UsageError
from muse.event.kinds import COMMANDS
from muse.failpoint import hit
from muse.log import lock
from muse.log.archive import SUFFIX, pack, require_room, unpack, unpacked_prefix
from muse.log.catalog import Entry
from muse.log.keeping import Tombstone, unlink_log, write_durable
from muse.log.place import private_folder, sync_folder, unavailable
from muse.log.protocol import Head
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import now

RECORD: Final = ".json"


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was put away: its packed `file`, how large that and the log are, the log's SHA-256 and its place
    below `sessions/`, and what a listing said of it then."""

    session: str
    archived: str
    file: str
    size: int
    original_size: int
    sha256: str
    place: str
    entry: Entry


def archived() -> list[Archived]:
    """The sessions that were put away, newest id first, also such that are in the active list again. A record that
    cannot be read says nothing."""
    found = []
    for path in archive_folder().glob(f"*{RECORD}"):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Archived))
    return sorted(found, key=lambda one: one.session, reverse=True)


def children() -> dict[str, list[str]]:
    """Which sessions, archived ones included, go on from which: parent → children. A log that cannot be read names no
    parent."""
    found: dict[str, list[str]] = {}
    for entry in (*catalog().entries(session_files()), *(record.entry for record in archived())):
        for parent in entry.parents:
            if entry.session not in found.setdefault(parent, []):
                found[parent].append(entry.session)
    return found


def snapshots_by_session() -> dict[Path, set[str]]:
    """The folders of snapshots, each with the sessions of the list that it is for."""
    entries = catalog().entries(session_files())
    listed = {entry.session for entry in entries}
    return {folder: sessions & listed for folder, sessions in snapshot_folders.sessions_of(entries).items()}


def put_away(found: Holding, children: Mapping[str, Iterable[str]], target: Path | None = None) -> Archived:
    """Pack a session, check the copy, and take the log out of the active list. Raises Busy, UsageError for one that is
    not finished, Damaged for one that does not verify, StoreUnavailable."""
    path, session = Path(found.entry.file), found.entry.session
    keeping.require_removable(session, path, children)
    held = lock.acquire(path.with_suffix(".lock"))
    try:
        keeping.require_removable_now(session)
        _require_finished(path, session)
        keeping.require_as_shown(found.entry)
        require_room((target or archive_folder()).absolute(), path.stat().st_size)
        record, head = _packed(found.entry, path, (target or archive_folder()).absolute())
        hit("in_archiving")
        _unlink_as_packed(path, held, head, record)
        hit("in_archiving")
        forget_index(path)
        keeping.remove_run_folder(session)
    finally:
        held.release()
    return record


def _unlink_as_packed(path: Path, held: lock.OwnerLock, packed: Head, record: Archived) -> None:
    """Take the log away if nobody spoke to the session since it was packed, which needs no lock. Raises Busy."""
    with closing(SqliteLog.open(path, commands=COMMANDS, check=False)) as log, log.standing_still() as head:
        if head != packed:
            forget(record)
            raise Busy(f"somebody spoke to {record.session} just now", hint=f"muse resume {record.session} goes on")
        unlink_log(path, held)


def _require_finished(path: Path, session: str) -> None:
    """Everything of it has to stand in the one file that is packed."""
    keeping.settle(path)
    log_ahead = path.with_name(f"{path.name}-wal")
    if log_ahead.exists() and log_ahead.stat().st_size:
        raise Busy(f"{session} is being read by another process", hint="end that, then try again")
    with closing(open_log(path)) as log:
        done = keeping.recorded_calls(log)
    from muse.effect.runner import files

    if any(attempt > done.get(call, -1) for call, attempt in files.attempts(str(run_folder(session)))):
        raise UsageError(
            f"{session} has results that are not in its log yet", hint=f"muse resume {session} records them"
        )


def _packed(entry: Entry, path: Path, target: Path) -> tuple[Archived, Head]:
    """The record of the packed file, both durable, the copy proven to be the log; and the log's head."""
    before = verify_file(path)
    if before.exit_code:
        raise Damaged(f"{path} does not verify", hint="muse verify says what is wrong, muse recover saves what it can")
    final = target / f"{entry.session}{SUFFIX}"
    if final.exists():
        raise UsageError(f"{final} is there already", hint="give another folder with --to, or move that file away")
    draft = final.with_name(f".{final.name}.{secrets.token_hex(4)}.new")
    try:
        size, sha256 = pack(path, draft)
        hit("in_archiving")
        _check_copy(draft, sha256, before)
        record = Archived(
            session=entry.session, archived=now(), file=str(final), size=size, original_size=path.stat().st_size,
            sha256=sha256, place=str(path.relative_to(muse_home() / "sessions")), entry=entry,
        )  # fmt: skip
        write_durable(_record_of(entry.session), msgspec.json.encode(record, order="sorted"))
        hit("in_archiving")
        os.replace(draft, final)
        sync_folder(target)
    except OSError as error:
        raise unavailable(final, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return record, before.head


def _check_copy(packed: Path, sha256: str, before: object) -> None:
    with tempfile.TemporaryDirectory(prefix=unpacked_prefix(), dir=_private_cache()) as folder:
        copy = Path(folder, packed.name.lstrip(".").partition(SUFFIX)[0] + ".muse")
        if unpack(packed, copy) != sha256 or verify_file(copy) != before:
            raise Damaged(f"{packed} is not what was packed", hint="check the disk; the session is as it was")


def _private_cache() -> Path:
    folder = muse_home() / "cache" / "unpacked"
    private_folder(folder)
    return folder


def take_back(record: Archived) -> Path:
    """Put an archived session back into the active list; returns its file. Raises UsageError when it is there already,
    Damaged when the archive is not what was put away."""
    path = muse_home() / "sessions" / record.place
    if path.exists():
        raise UsageError(f"{record.session} is in the active list already", hint="muse ls --all lists it")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        if unpack(Path(record.file), draft) != record.sha256:
            raise Damaged(f"{record.file} is not what was put away", hint="look for a copy of it elsewhere")
        os.link(draft, path)
        draft.unlink()
        sync_folder(path.parent)
        hit("in_archiving")
        tombstones().forget(record.session)
        forget(record)
    except OSError as error:
        raise unavailable(path, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return path


def forget(record: Archived) -> None:
    """Take the packed file and its record away: the session is elsewhere, or is to be gone."""
    Path(record.file).unlink(missing_ok=True)
    hit("in_archiving")
    _record_of(record.session).unlink(missing_ok=True)
    sync_folder(archive_folder())


def holding_of(record: Archived) -> Holding:
    """What an archived session takes up."""
    files = [path for path in (Path(record.file), _record_of(record.session)) if path.exists()]
    size = sum(path.stat().st_size for path in files)
    entry = msgspec.structs.replace(record.entry, file=record.file)
    return Holding(entry, (Part("archive", record.file, len(files), size),))


def remove_archived(record: Archived, children: Mapping[str, Iterable[str]], why: str = "") -> Tombstone:
    """Take an archived session away for good. Raises UsageError for one that a fork goes on from."""
    keeping.refuse_parent(record.session, children)
    entry = record.entry
    stone = Tombstone(
        session=record.session, removed=now(), name=entry.name, why=known_secrets().mask(why), events=entry.events,
        hash=entry.hash,
        size=holding_of(record).size,
    )  # fmt: skip
    stones = tombstones()
    stones.begin(stone)
    forget(record)
    stones.finish(record.session)
    return stone


def is_in_active(record: Archived) -> bool | None:
    """Whether the active list holds all of an archived session: None when it is not there at all."""
    path = next((path for path in session_files() if path.stem == record.session), None)
    if path is None:
        return None
    with suppress(MuseError), closing(open_log(path)) as log:
        last = next(log.read(after=record.entry.events - 1, before=record.entry.events + 1), None)
        return last is not None and last.hash.hex() == record.entry.hash
    return False


def _record_of(session: str) -> Path:
    return archive_folder() / f"{session}{RECORD}"
