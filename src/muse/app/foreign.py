"""Files that are no logs and can be read as one: other agents' session files, and exports of ours.

A foreign file becomes a log in memory, made anew each time it is looked at. Everything in that log follows from the
file's bytes alone, event ids and keys as well, so that what is shown of it is the same on every machine. Such keys hide
nothing: who guesses a text can compute its leaf. That costs nothing while the log is only shown; a log that is kept
(`muse import`) has drawn ids and keys, as any other has, or what is taken out of it later could be guessed from them.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final

import msgspec

from muse.app import places
from muse.app.archiving import archived
from muse.errors import MuseError, StoreUnavailable, UsageError
from muse.event import codec, commitment
from muse.event.content import BlobRef
from muse.event.kinds import COMMANDS, KINDS, LogImported
from muse.ingest.formats import HEAD_BYTES, READERS, Format, recognise
from muse.ingest.lines import LINE_BYTES_MAX, SourceFile, read_line, text
from muse.ingest.writer import Import, Keep, Made
from muse.log.export_check import lines_of
from muse.log.export_read import read_export
from muse.log.memory import MemoryLog, MemoryPlace
from muse.log.place import sync_folder
from muse.log.protocol import Draft, Log

FILE_BYTES_MAX: Final = 1024 * 1024 * 1024
AGENT_FILES_MAX: Final = 2_000
DRAWN_LETTERS: Final = 6
"""Of the eight letters that end a session's id, those that are not its milliseconds."""
APPEND_EVENTS: Final = 500
APPEND_BYTES: Final = 4 * 1024 * 1024
FLAT_FILES_MAX: Final = 5_000
FIRST_LINE_BYTES: Final = 4 * 1024 * 1024
AGENT_START: Final = "agent-"
AGENTS_PATTERN: Final = "subagents/**/agent-*.jsonl"
"""Where Claude Code puts the files of a session's agents, below the folder named like the session's file."""
EXPORT_START: Final = b'{"muse_export":'

_TYPE_OF: Final = {kind.body: name for name, kind in KINDS.items()}

Secret = Callable[[str, bytes], bytes]
"""32 bytes for what is named so, or for this content: the same ones again (a view), or drawn (a session)."""


class Source(msgspec.Struct, frozen=True):
    """A foreign session as it was found: its format, its file and those of its agents, and the digest of them all."""

    format: Format
    files: tuple[SourceFile, ...]
    digest: bytes


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What `muse import` did with a file. `is_new` is False for one whose session is there already; `earlier` is a
    session that was imported from this source before it changed."""

    file: str
    session: str
    format: str
    events: int
    unknown: int = 0
    unreadable: int = 0
    is_new: bool = True
    earlier: str = ""


def is_export(path: Path) -> bool:
    """Whether a file begins as an export of ours does. A pipe or a device does not: whoever opens one may wait for
    ever."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_START)) == EXPORT_START


def format_of(path: Path) -> Format:
    """Which agent wrote a file, "" for one of another kind. Raises OSError."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if len(head) == HEAD_BYTES and b"\n" not in head:
            head += file.readline(LINE_BYTES_MAX)
        return recognise(head)


def open_view(path: Path, *, check: bool) -> Log | None:
    """A log in memory of a foreign session's file or an export, None where it is neither."""
    try:
        if is_export(path):
            with path.open("rb") as file:
                return read_export(lines_of(file), commands=COMMANDS, check=check)
        source = find(path)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}", hint="check the file's mode") from error
    if source is None:
        return None
    place = MemoryPlace("")

    def secret(name: str, content: bytes) -> bytes:
        return sha256(b"muse-view\0" + name.encode() + b"\0" + (content or source.digest)).digest()

    log = MemoryLog(place, commands=COMMANDS)
    made = READERS[source.format](source.files, _keep_in(log, secret))
    place.session = log.session = session_id(made)
    owned = log.hold()
    for drafts in _batches(made, secret):
        log.append(drafts, [], log.head().seq, owned.epoch)
    owned.release()
    return log


def find(path: Path) -> Source | None:
    """The foreign session in a file, with its agents' files beside it; None for a file of another kind. Raises OSError,
    and UsageError for a file that is too large to be read as one."""
    format_ = format_of(path)
    if not format_:
        return None
    files = [_read(path, path.name)]
    if format_ == "claude-code":
        beside = [file for file in _agents_beside(path) if file.is_file() and not file.is_symlink()]
        files += [_read(file, file.relative_to(path.parent).as_posix()) for file in beside[:AGENT_FILES_MAX]]
    digest = sha256()
    for file in files:
        digest.update(sha256(file.data).digest())
    return Source(format_, tuple(files), digest.digest())


def _agents_beside(path: Path) -> list[Path]:
    """The files of a session's agents: in the folder of its name, or, as older versions put them, in its own folder,
    where they name the session."""
    if path.name.startswith(AGENT_START):
        return []
    folder = path.with_suffix("")
    inside = sorted(folder.glob(AGENTS_PATTERN)) if folder.is_dir() else []
    flat = sorted(path.parent.glob(f"{AGENT_START}*.jsonl"))[:FLAT_FILES_MAX]
    return inside + [file for file in flat if file.is_file() and _session_in(file) == path.stem]


def _session_in(path: Path) -> str:
    """The session that the first line of an agent's file names, "" where it cannot be told."""
    with suppress(OSError), path.open("rb") as file:
        return text(read_line(file.readline(FIRST_LINE_BYTES)).value, "sessionId")
    return ""


def _read(path: Path, name: str) -> SourceFile:
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise UsageError(f"{path} has {size:,} bytes: more than {FILE_BYTES_MAX:,} are not read as one session")
    return SourceFile(os.fsencode(name).decode("utf-8", "replace"), path.read_bytes())


def _keep_in(log: Log, secret: Secret) -> Keep:
    def keep(content: bytes) -> BlobRef:
        root, length = log.put_blob(content, secret("blob", content or b"\0"))
        return BlobRef(root, length)

    return keep


def session_id(made: Import) -> str:
    """The id of an imported session: of the moment at which the source begins, and of the id that it has in the source.
    Nothing of its content is in it, which may be redacted later."""
    about = _about(made)
    named = sha256(f"{about.format_name} {about.source_session}".encode()).digest()
    return _id_at(datetime.fromisoformat(made.events[0].time), named[:DRAWN_LETTERS])


def _about(made: Import) -> LogImported:
    about = made.events[0].body
    assert isinstance(about, LogImported), "an import begins with what it is"
    return about


def _id_at(moment: datetime, drawn: Sequence[int]) -> str:
    letters = places.SESSION_ALPHABET
    high, low = divmod(moment.microsecond // 1000, len(letters))
    tail = letters[high] + letters[low] + "".join(letters[number % len(letters)] for number in drawn)
    return f"{moment:%Y%m%d-%H%M%S}-{tail}"


def _draft(made: Made, seq: int, secret: Secret) -> Draft:
    name = _TYPE_OF[type(made.body)]
    data, plain = codec.canonical(made.body)
    key = secret(f"event {seq}", b"")
    root = commitment.commit(plain, key)
    return Draft(
        id=secret(f"id {seq}", b"").hex()[:32], time=made.time, type=name, v=KINDS[name].version, agent=made.agent,
        cause=made.cause, body=data, key=key, count=root.count, root=root.root,
    )  # fmt: skip


def _batches(made: Import, secret: Secret) -> Iterator[list[Draft]]:
    batch: list[Draft] = []
    size = 0
    for seq, one in enumerate(made.events, 1):
        draft = _draft(one, seq, secret)
        batch.append(draft)
        size += len(draft.body)
        if len(batch) == APPEND_EVENTS or size >= APPEND_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# -- keeping one -----------------------------------------------------------------------------------------------------


def import_session(
    path: Path, *, name: str = "", again: bool = False, progress: Callable[[int], None] | None = None
) -> Imported:
    """Keep a foreign session as one of our own, closed and frozen. One that is there already is not made again, unless
    `again`; one whose file has changed since is. Raises UsageError for a file of another kind."""
    try:
        source = find(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if source is None:
        hint = "muse import takes session files of Claude Code and Codex (docs/imports.md)"
        raise UsageError(f"{path} is no session file of an agent that is known here", hint=hint)
    measured = READERS[source.format](source.files, lambda content: BlobRef("0" * 64, len(content)))
    named = session_id(measured)
    about = _about(measured)
    done = Imported(
        file=str(path), session=named, format=source.format, events=len(measured.events),
        unknown=sum(one.count for one in about.unknown), unreadable=about.unreadable,
    )  # fmt: skip
    if not again and (there := _there_already(measured, named)):
        return msgspec.structs.replace(done, session=there, is_new=False)
    session = _free_id(named, measured)
    earlier = named if session != named and not again and _is_taken(named) else ""
    done = msgspec.structs.replace(done, session=session, earlier=earlier)
    final = places.session_path(session)
    draft = final.with_name(f".{session}.{secrets.token_hex(4)}.new")  # gc knows these
    try:
        _write(draft, session, source, name, progress)
        os.link(draft, final)  # unlike a rename, this refuses a name that is taken
        sync_folder(final.parent)
    except FileExistsError:
        return msgspec.structs.replace(done, is_new=False)
    except OSError as error:
        raise StoreUnavailable(f"{final}: {error.strerror or error}", hint="check the disk") from error
    finally:
        for left in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm"), draft.with_suffix(".lock")):
            with suppress(OSError):
                left.unlink(missing_ok=True)
    return done


def _there_already(made: Import, named: str) -> str:
    """The session that was imported from the same bytes, "" for none. Sessions of one moment are looked at, archived
    ones too; where what would tell was taken out, the same id counts as the same file."""
    wanted = [one.body.sha256 for one in made.events if isinstance(one.body, LogImported)]
    moment = named[:-DRAWN_LETTERS]
    active = sorted(places.session_path(named).parent.glob(f"{moment}*{places.SUFFIX}"))
    put_away = sorted(record.file for record in archived() if record.session.startswith(moment))
    for path in (*active, *map(Path, put_away)):
        session = path.name.partition(".")[0]
        with suppress(MuseError):
            found = _digests(path)
            if found == wanted or (not all(found) and session == named):
                return session
    return ""


def _digests(path: Path) -> list[str]:
    """The digests of the files that a session was imported from, "" for each that was taken out."""
    found = []
    with closing(places.open_log(path, check=False)) as log:
        for seq, header in log.headers():
            if b'"type":"log.imported"' in header:
                event = places.event_at(log, seq)
                found.append(getattr(event.body, "sha256", "") if event is not None else "")
    return found


def _free_id(session: str, made: Import) -> str:
    """The id to keep a session under: its own, another one of the same moment where that is taken, and one of now where
    the source claims to be of the future, so that sessions made later still sort after it."""
    moment = datetime.fromisoformat(made.events[0].time)
    if moment > datetime.now(UTC):
        return places.new_session_id()
    while _is_taken(session):
        session = _id_at(moment, secrets.token_bytes(DRAWN_LETTERS))
    return session


def _is_taken(session: str) -> bool:
    return places.session_path(session).exists() or any(record.session == session for record in archived())


def _write(draft: Path, session: str, source: Source, name: str, progress: Callable[[int], None] | None) -> None:
    from muse.log.sqlite import SqliteLog

    def secret(_name: str, _content: bytes) -> bytes:
        return secrets.token_bytes(commitment.KEY_BYTES)

    log = SqliteLog.create(draft, session, commands=COMMANDS)
    try:
        owned = log.hold()
        made = _named(READERS[source.format](source.files, _keep_in(log, secret)), name)
        for drafts in _batches(made, secret):
            log.append(drafts, [], log.head().seq, owned.epoch)
            if progress is not None:
                progress(log.head().seq)
    finally:
        log.close()


def _named(made: Import, name: str) -> Import:
    first, *rest = made.events
    if not name or not isinstance(first.body, LogImported):
        return made
    return Import([msgspec.structs.replace(first, body=msgspec.structs.replace(first.body, name=name)), *rest])


def foreign_files(folder: Path) -> list[Path]:
    """The session files in a folder and below, sorted; agents' files stand with their session's, and are left out where
    that is there."""
    found = []
    for path in sorted(folder.rglob("*.jsonl")):
        with suppress(OSError):
            if path.is_file() and not _belongs_to_another(path) and format_of(path):
                found.append(path)
    return found


def _belongs_to_another(path: Path) -> bool:
    """Whether a file is that of an agent whose session's file is there."""
    owner = next((parent.parent for parent in path.parents if parent.name == "subagents"), None)
    if owner is not None:
        return owner.with_name(f"{owner.name}.jsonl").is_file()
    session = _session_in(path) if path.name.startswith(AGENT_START) else ""
    return session != "" and path.with_name(f"{PurePath(session).name}.jsonl").is_file()


def what_it_is(path: Path) -> str:
    """What a file is that can be read as a log and is none, "" for any other (also one that cannot be read)."""
    names = {"claude-code": "a session file of Claude Code", "codex": "a session file of Codex", "": ""}
    with suppress(OSError):
        return "an export" if is_export(path) else names[format_of(path)]
    return ""
