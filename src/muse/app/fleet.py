"""Sessions and their agents, watched: what `muse agents` shows, kept up while other processes write the logs.

`Watched` follows one log by what is new in it, `Fleet` several; both only read. What a person says to an agent goes
through the log like everybody's words (`say`). It must not know how anything is shown.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from muse.app.commands import origin, owner_pid, refuse_agents, submit
from muse.app.late import closed_by, too_late
from muse.app.places import event_at, events, open_log
from muse.errors import MuseError
from muse.event.codec import parse_header
from muse.event.content import Origin
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, QuestionAnswered
from muse.runtime.tail import Tail, changes
from muse.view.fleet import SessionRows, Trail, session_rows
from muse.view.rest import Rest, rest

OWNER_SECONDS: Final = 1.0
"""How often it is looked who runs a session."""
FIND_SECONDS: Final = 3.0
"""How often it is looked for sessions that began."""
CHANGES_READ_MAX: Final = 5_000
"""Of what changed files before, so many events are read, the newest: a count of files needs no more."""
CLIENT: Final = "agents"


class Watched:
    """One session. `look` takes in what is new; `rows` tells it. Any thread may, one after another. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises what opening a log raises."""
        self.path = path
        self._log = open_log(path, check=False)
        self._lock = threading.Lock()
        self._looked = 0.0
        self._pid = 0
        self._problem = ""
        self._begin()

    def _begin(self) -> None:
        self._trail = Trail()
        self._tail = Tail(self._log, self._trail.words)
        self._problem = self._tail.broken
        changed: list[int] = []
        for seq, header in self._log.headers(0):
            if seq > self._tail.state.seq:
                break
            head = parse_header(header)
            self._trail.header(head.agent, head.time, head.type)
            if head.type == "files.changed":
                changed.append(seq)
        for agent, body in changes(self._log, changed[-CHANGES_READ_MAX:]):
            self._trail.changed(agent, body)

    def look(self) -> bool:
        """Whether there is something new; cheap where there is not. What cannot be read ends what is known."""
        with self._lock:
            return self._look()

    def _look(self) -> bool:
        before = self._pid
        if time.monotonic() - self._looked > OWNER_SECONDS or not self._looked:
            self._pid, self._looked = owner_pid(self.path), time.monotonic()
        news = self._pid != before
        if self._problem or not self._log.changed():
            return news
        try:
            for event in self._tail.news():
                news = True
                if event.type == "log.redacted":  # what was said may have been taken out
                    self._begin()
                    break
                self._trail.take(event)
            self._problem = self._tail.broken
        except MuseError as error:
            self._problem = str(error)
        return news or bool(self._problem)

    def rows(self, now: datetime | None = None) -> SessionRows:
        """All of it as of now."""
        clock = (now or datetime.now(UTC)).isoformat()
        with self._lock:
            return session_rows(
                self._tail.state, self._trail, file=str(self.path), pid=self._pid, now=clock, problem=self._problem
            )

    def rest(self, agent: str) -> Rest:
        """What became of an agent."""
        with self._lock:
            return rest(self._tail.state, agent, alive=bool(self._pid))

    def has(self, agent: str) -> bool:
        """Whether there is such an agent; `main` is there before it has begun."""
        with self._lock:
            return agent == "main" or agent in self._tail.state.agents

    @property
    def closed(self) -> bool:
        """Whether the session is closed, somebody running it or not."""
        return self._tail.state.closed

    @property
    def asks(self) -> bool:
        """Whether a request or a question of it waits for a person."""
        return bool(self._tail.state.approvals or self._tail.state.questions)

    @property
    def problem(self) -> str:
        """Why no more of it can be read, "" where nothing is wrong."""
        return self._problem

    def event(self, seq: int) -> Event | None:
        """One event of it."""
        with self._lock:
            return event_at(self._log, seq)

    @property
    def pid(self) -> int:
        """Who runs it, 0 for nobody."""
        return self._pid

    def args(self, call: str) -> str:
        """The arguments of an open call, "" where it is open no more."""
        with self._lock:
            run = self._tail.state.run(call)
        return run.args if run is not None else ""

    def close(self) -> None:
        """Close the log."""
        with self._lock:
            self._log.close()


class Fleet:
    """Several sessions, in the order in which they were found. One thread looks; what it told is for any to read.

    `find` gives the files of sessions to be watched from now on; those that were, stay. A session that cannot be opened
    is told once by `trouble`, and left out.
    """

    def __init__(self, find: Callable[[], Iterable[Path]], trouble: Callable[[str], object]) -> None:
        self._find = find
        self._trouble = trouble
        self._watched: dict[Path, Watched | None] = {}
        self._found = 0.0
        self.sessions: tuple[SessionRows, ...] = ()

    def look(self) -> bool:
        """Take in what is new, and tell it; whether there was any."""
        news = not self.sessions
        if time.monotonic() - self._found > FIND_SECONDS or not self._found:
            for path in self._find():
                news = self._add(path) or news
            self._found = time.monotonic()
        watched = [one for one in self._watched.values() if one is not None]
        news = any([one.look() for one in watched]) or news
        self.sessions = tuple(one.rows() for one in watched)
        return news

    def _add(self, path: Path) -> bool:
        if path in self._watched:
            return False
        try:
            self._watched[path] = Watched(path)
        except MuseError as error:
            self._watched[path] = None
            self._trouble(f"{path.name}: {error}")
        return self._watched[path] is not None

    def watched(self, file: str) -> Watched | None:
        """The session in this file, None for one that is not watched."""
        return self._watched.get(Path(file))

    @property
    def alive(self) -> bool:
        """Whether somebody runs one of them."""
        return any(session.pid for session in self.sessions)

    def close(self) -> None:
        """Close all logs."""
        for one in self._watched.values():
            if one is not None:
                one.close()


def say(path: Path, agent: str, body: Callable[[Origin], msgspec.Struct], tried: str, *, cause: int = 0) -> int:
    """Say something to an agent of a session, whoever runs it: `body` makes the command of where it comes from. Its
    seq, when it is durable. Raises UsageError below a runner, where the log keeps a note of what was `tried`, and
    for an answer that came too late."""
    with closing(open_log(path, read_only=False, check=False)) as log:
        refuse_agents(log, CLIENT, tried)
        made = body(origin(CLIENT))
        seq = submit(log, made, agent, cause=cause)
        answers = made.request if isinstance(made, ApprovalDecided) else 0
        answers = made.question if isinstance(made, QuestionAnswered) else answers
        asked = event_at(log, answers) if answers else None
        if asked is not None and (closed := closed_by(asked, events(log, answers, seq))) is not None:
            words = made.text if isinstance(made, QuestionAnswered) else ""
            raise too_late(asked, closed, None, log.session, words)
        return seq
