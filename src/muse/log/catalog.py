"""What a listing says about each session, without folding it: from its first and last events and from running totals.

Totals are kept in a cache, so that a listing costs what is new; the cache holds numbers only (no word of a prompt, so
that redaction has nothing to take out of it), is tied to the chain value of the event up to which it counts, and may
be deleted at any time. A file that is damaged, foreign or newer is an entry that says so, never an error.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

import msgspec

from muse.errors import InvalidEvent, LogError, MuseError
from muse.event.codec import parse_header
from muse.event.commitment import Shown, parse_disclosed
from muse.event.envelope import Event, Redacted, decode
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSteered,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    LogImported,
    ModelResponded,
    QuestionAnswered,
    QuestionAsked,
    SessionClosed,
    SessionForked,
    SessionOpened,
    ToolFinished,
    UserPrompted,
)  # fmt: skip
from muse.event.text import clean
from muse.log.lock import boot_id, is_held, read_owner, start_time
from muse.log.protocol import Head, Log

CACHE_VERSION: Final = 4
CACHE_SESSIONS_MAX: Final = 10_000
PROMPT_CHARACTERS: Final = 400
CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a larger log a listing does not follow the chain: `muse verify` and whatever opens it do."""
SESSION_ID: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{8}")

_COUNTED: Final = frozenset(
    {
        "model.responded", "approval.requested", "approval.decided", "cancel.requested", "session.closed",
        "session.forked", "log.imported", "question.asked", "question.answered", "agent.paused", "agent.continued",
    }
)  # fmt: skip
_ASIDE: Final = frozenset({"note.added", "head.signed", "log.redacted", "log.recovered"})
"""Types that may follow a close and change nothing about how the session ended."""

State = Literal["running", "waiting", "closed", "stopped", "empty", "damaged"]


class Totals(msgspec.Struct):
    """What was counted up to event `seq`, whose chain value is `hash` (hex). `open` maps the seq of each unanswered
    approval request to its call, `questions` that of each unanswered question; `paused` names the agents that were
    paused, each with all below it or alone. `opened` and `prompted` are the seqs of the last opening and a
    person's first words; `parents` names the sessions whose events this one goes on from. `checked` is the stamp of the
    files (`stamp_of`) whose chain was found whole."""

    seq: int = 0
    hash: str = ""
    opened: int = 0
    prompted: int = 0
    outcome: str = ""
    open: dict[int, str] = {}
    questions: dict[int, str] = {}
    paused: tuple[str, ...] = ()
    input: int = 0
    output: int = 0
    cached: int = 0
    cost_microusd: int = 0
    parents: tuple[str, ...] = ()
    checked: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One session of a listing. Times are those of headers; `input` counts all tokens in, `cached` those of them that
    came from the provider's cache. `problem` says what is wrong with a damaged one. `hash` (hex) is the chain value of
    the last event, `parents` the sessions that this one was forked or imported from. `removed` is when this session was
    removed: its log has come back since. `inode`, `git_root` and `git_head` are what its workspace is known by when it
    was renamed. `imported` names the format of the file that it was made from."""

    session: str
    file: str
    state: State
    outcome: str = ""
    pid: int = 0
    approvals: tuple[int, ...] = ()
    questions: tuple[int, ...] = ()
    paused: tuple[str, ...] = ()
    name: str = ""
    workspace: str = ""
    model: str = ""
    prompt: str = ""
    prompted: int = 0
    events: int = 0
    last_time: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    cost_microusd: int = 0
    problem: str = ""
    hash: str = ""
    parents: tuple[str, ...] = ()
    removed: str = ""
    inode: int = 0
    git_root: str = ""
    git_head: str = ""
    imported: str = ""


@runtime_checkable
class Checkable(Protocol):
    """A store whose chain can be followed."""

    def check(self) -> Head:
        """The head. Raises Damaged."""
        ...


class _Kept(msgspec.Struct):
    version: int
    totals: dict[str, Totals]


class Catalog:
    """The entries of session files, with the cache in `file`. `removed` says which sessions were removed, and when."""

    def __init__(self, file: Path, open_log: Callable[[Path], Log], removed: Mapping[str, str] = {}) -> None:
        self._file = file
        self._open_log = open_log
        self._removed = removed
        self._totals: dict[str, Totals] = {}
        self._changed = False
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
            if kept.version == CACHE_VERSION:
                self._totals = kept.totals

    def entries(self, paths: Iterable[Path]) -> list[Entry]:
        """An entry for each file, in the order given; the cache is brought up to date."""
        found = [self._told(self._entry(path)) for path in paths]
        if self._changed:
            self._save()
        return found

    def _told(self, entry: Entry) -> Entry:
        removed = self._removed.get(entry.session, "")
        return msgspec.structs.replace(entry, removed=removed) if removed else entry

    def _entry(self, path: Path) -> Entry:
        try:
            log = self._open_log(path)
        except MuseError as error:
            return Entry(session=path.stem, file=str(path), state="damaged", problem=str(error))
        try:
            self._check(path, log)
            return self._read(path, log)
        except (LogError, ValueError, msgspec.MsgspecError) as error:
            place = _first_workspace(log)
            return Entry(session=log.session, file=str(path), state="damaged", problem=str(error), workspace=place)
        finally:
            log.close()

    def _check(self, path: Path, log: Log) -> None:
        """Follow the chain of a log that changed since it was last listed and that nobody owns: an owner notices
        damage itself. Once for each change, and not of the largest, so that a listing stays quick. Raises Damaged."""
        stamp = stamp_of(path)
        totals = self._totals.get(clean(str(path)).text)
        if not isinstance(log, Checkable) or not stamp or (totals is not None and totals.checked == stamp):
            return
        if path.stat().st_size > CHECKED_BYTES_MAX or owner_pid(path.with_suffix(".lock")):
            return
        log.check()
        if totals is None or not _still_there(log, totals):
            totals = Totals()
        self._totals[clean(str(path)).text] = msgspec.structs.replace(totals, checked=stamp)
        self._changed = True

    def _read(self, path: Path, log: Log) -> Entry:
        totals = self._counted(path, log)
        opened, prompted, last = (_event(log, seq) for seq in (totals.opened, totals.prompted, totals.seq))
        pid = owner_pid(path.with_suffix(".lock"))
        body = opened.body if opened and isinstance(opened.body, SessionOpened) else None
        source = opened.body if opened and isinstance(opened.body, LogImported) else None
        settings = body.settings if body else None
        git = body.git if body else None
        return Entry(
            session=log.session,
            file=str(path),
            state=_state(totals, pid),
            outcome=totals.outcome,
            pid=pid,
            approvals=tuple(sorted(totals.open)),
            questions=tuple(sorted(totals.questions)),
            paused=totals.paused,
            name=_name(opened) or _name(_event(log, 1) if totals.opened > 1 else None),
            workspace=_workspace(opened),
            inode=body.inode if body else 0,
            git_root=git.root if git else "",
            git_head=git.head if git else "",
            imported=source.format_name if source else "",
            model=f"{settings.provider}/{settings.model}" if settings else source.model if source else "",
            prompt=prompted.body.text[:PROMPT_CHARACTERS]
            if prompted and isinstance(prompted.body, UserPrompted | AgentSteered)
            else "",
            prompted=totals.prompted,
            events=totals.seq,
            last_time=last.time if last else "",
            input=totals.input,
            output=totals.output,
            cached=totals.cached,
            cost_microusd=totals.cost_microusd,
            hash=totals.hash if totals.seq else "",
            parents=totals.parents,
        )

    def _counted(self, path: Path, log: Log) -> Totals:
        """The totals up to the head: the cached ones and what came after."""
        head = log.head()
        totals = self._totals.get(clean(str(path)).text)
        if totals is None or not _still_there(log, totals):
            totals = Totals()
        if totals.seq == head.seq:
            return totals
        totals = msgspec.structs.replace(totals, open=dict(totals.open), questions=dict(totals.questions))
        for seq, header in log.headers(totals.seq):
            if seq > head.seq:
                break
            _count(totals, log, seq, header)
        totals.hash = head.hash.hex()
        self._totals[clean(str(path)).text] = totals
        self._changed = True
        return totals

    def _save(self) -> None:
        """Write the cache, whole or not at all; where that cannot be done the next listing counts again."""
        newest = sorted(name for name in self._totals if Path(name).exists())[-CACHE_SESSIONS_MAX:]
        kept = _Kept(CACHE_VERSION, {name: self._totals[name] for name in newest})
        draft = self._file.with_name(f".{self._file.name}.{secrets.token_hex(4)}")
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(kept))
            os.replace(draft, self._file)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def owner_pid(lock: Path) -> int:
    """The process that owns the session now, 0 if none does. A dead owner's lock is not touched, so that a listing
    never gets in the way of a claim."""
    owner = read_owner(lock)
    if owner is None:
        return 0
    if owner.boot_id and (owner.boot_id != boot_id() or start_time(owner.pid) != owner.started):
        return 0
    try:
        return owner.pid if is_held(lock) else 0
    except OSError:
        return 0


def _first_workspace(log: Log) -> str:
    """The folder that the first event names, "" where it cannot be read: damage elsewhere does not hide it."""
    try:
        opened = _event(log, 1)
    except (LogError, ValueError, msgspec.MsgspecError):
        return ""
    return _workspace(opened)


def _name(opened: Event | None) -> str:
    """What an opening names the session: its first owner does, those who go on with it do not say it again."""
    return opened.body.name if opened and isinstance(opened.body, SessionOpened | LogImported) else ""


def _workspace(opened: Event | None) -> str:
    """The folder that a `session.opened` names, also where something else in it was taken out."""
    if opened is None or not isinstance(opened.body, SessionOpened | LogImported | Redacted):
        return ""
    if isinstance(opened.body, SessionOpened | LogImported):
        return opened.body.workspace
    try:
        leaves = [entry.leaf for entry in parse_disclosed(opened.body.leaves).leaves if isinstance(entry, Shown)]
    except InvalidEvent:
        return ""
    return b"".join(leaf.text for leaf in leaves if leaf.path == b'["workspace"]').decode("utf-8", "replace")


def stamp_of(path: Path) -> str:
    """What changes whenever a log's files do, "" where they cannot be seen."""
    parts = []
    for name in (path, Path(f"{path}-wal")):
        try:
            seen = name.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return ""
        if seen.st_size:  # a reader leaves an empty write-ahead log for as long as it reads
            parts.append(f"{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}")
    return " ".join(parts)


def _still_there(log: Log, totals: Totals) -> bool:
    if totals.seq == 0:
        return True
    stored = next(log.read(after=totals.seq - 1, before=totals.seq + 1), None)
    return stored is not None and stored.hash.hex() == totals.hash


def _count(totals: Totals, log: Log, seq: int, header: bytes) -> None:
    kind = parse_header(header).type
    totals.seq = seq
    if kind not in _ASIDE and kind != "cancel.requested":
        totals.outcome = ""
    if kind == "session.opened" or (kind == "log.imported" and seq == 1):
        totals.opened = seq
    elif kind in ("user.prompted", "agent.steered"):
        totals.prompted = totals.prompted or seq
    elif kind in _COUNTED and (event := _event(log, seq)) is not None:
        _count_body(totals, event)
    elif kind == "tool.finished" and totals.questions and (event := _event(log, seq)) is not None:
        _ask_no_more(totals, event.body)


def _count_body(totals: Totals, event: Event) -> None:
    body = event.body
    match body:
        case ModelResponded():
            used = body.usage
            totals.input += used.input + used.cache_read + used.cache_write
            totals.output += used.output
            totals.cached += used.cache_read
            totals.cost_microusd += used.cost_microusd
        case SessionClosed():
            totals.outcome = body.outcome
        case ApprovalRequested():
            totals.open[event.seq] = body.call
        case ApprovalDecided(by="timeout"):
            _settle(totals, lambda call: call.partition("/")[0] == event.agent)  # the turn ends, and all that waits
        case ApprovalDecided():
            totals.open.pop(body.request, None)
        case CancelRequested():
            if body.target not in ("call", "prompt"):  # after a close these end what was left running, or nothing
                totals.outcome = ""
            _settle(totals, lambda call: _ended_by(event.agent, body, call))
        case SessionForked():
            totals.parents = (*totals.parents, body.parent)
        case LogImported() if session := _session_named(body.source):
            totals.parents = (*totals.parents, session)
        case _:
            _count_people(totals, event)


def _count_people(totals: Totals, event: Event) -> None:
    """What waits for a person, or because of one."""
    body = event.body
    match body:
        case QuestionAsked():
            totals.questions[event.seq] = body.call
        case QuestionAnswered():
            if totals.questions.get(body.question, "").partition("/")[0] == event.agent:
                totals.questions.pop(body.question)
        case AgentPaused() if event.agent not in totals.paused:
            totals.paused = (*totals.paused, event.agent)
        case AgentContinued():
            tree = f"{event.agent}." if body.target == "tree" else "."
            totals.paused = tuple(one for one in totals.paused if one != event.agent and not one.startswith(tree))
        case _:
            pass


def _session_named(source: str) -> str:
    """The session whose log (by name, whatever the folder) an import came from, "" for a file of another kind: no words
    of a log go into the cache."""
    name = source.rpartition("/")[2].removesuffix(".muse")
    return name if SESSION_ID.fullmatch(name) else ""


def _ended_by(agent: str, cancel: CancelRequested, call: str) -> bool:
    """Whether a cancel in an agent's lane ends a call; one that takes words back ends nothing."""
    lane = call.partition("/")[0]
    below = cancel.target == "tree" and lane.startswith(f"{agent}.")
    return call == cancel.call if cancel.call else cancel.target != "prompt" and (lane == agent or below)


def _ask_no_more(totals: Totals, body: object) -> None:
    """A call that ended for another reason than an answer leaves no question open."""
    if isinstance(body, ToolFinished):
        totals.questions = {seq: call for seq, call in totals.questions.items() if call != body.call}


def _settle(totals: Totals, ended: Callable[[str], bool]) -> None:
    totals.open = {seq: call for seq, call in totals.open.items() if not ended(call)}


def _event(log: Log, seq: int) -> Event | None:
    if not seq:
        return None
    stored = next(log.read(after=seq - 1, before=seq + 1), None)
    return decode(stored.header, stored.body, stored.hidden) if stored else None


def _state(totals: Totals, pid: int) -> State:
    if totals.outcome and not pid:
        return "closed"
    if pid:
        return "waiting" if totals.open or totals.questions else "closed" if totals.outcome else "running"
    return "stopped" if totals.seq else "empty"
