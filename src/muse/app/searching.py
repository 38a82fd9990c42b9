"""`muse search`: which events say something, newest first, over all sessions or some.

Indexes tell which events may; the log is asked whether they do, so that a hit is what stands there now. Where a
session has no index, and none can be made, its whole log is read, and that is said. This module must not know how
hits are shown.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from muse.app.indexing import index_of, remove_quietly, stray_indexes, up_to_date
from muse.app.places import open_log, read_session
from muse.errors import LogError, MuseError, UsageError
from muse.event.envelope import Event
from muse.log.search.query import Query, compiled, words_of
from muse.log.search.texts import TEXT_BYTES_MAX, TextKind, Texts
from muse.runtime.reading import Reading
from muse.view.filters import Filter, Past, calls_of, learn
from muse.view.timeline import Row, row

__all__ = ["Hit", "Listener", "Query", "Scope", "asked", "index_of", "search", "snippet", "sweep"]

SNIPPET_BEFORE: Final = 60
SNIPPET_CHARS: Final = 240
HITS_AT_ONCE: Final = 20
HITS_UNINDEXED: Final = 500
"""So many hits are read from a log before it is closed again: there may be more logs than open files. Without an index
it costs more to come back."""
WINDOW: Final = 500
"""Events read at once where there is no index."""
CAUSES: Final = 3
"""Steps back from an event to what its call is called."""
SEQ_END: Final = 2**53
_LATE: Final = "~"
"""After every time."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An event that says what was searched for. `kind` is what the text is, `snippet` a part of it around the first
    match, as it stands; `matches` are begin and end of each match in that, in characters. `file` is where the session
    was read from."""

    session: str
    file: str
    seq: int
    time: str
    agent: str
    type: str
    kind: TextKind
    snippet: str
    matches: tuple[tuple[int, int], ...]
    row: Row


class Scope(msgspec.Struct, frozen=True):
    """A session to search: its file, one agent's events (or all), and up to which event (0: the head)."""

    path: Path
    agent: str = ""
    upto: int = 0


class Listener:
    """Who is told what a search cannot put into hits. These do nothing; a front door overrides them."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def unread(self, text: str) -> None:
        """A session, or a part of it, could not be read."""

    def unindexed(self, why: str) -> None:
        """A session is searched without an index."""

    def progress(self, session: str, done: int, whole: int) -> None:
        """So many events of a session are in its index."""


def asked(text: str, patterns: Iterable[str] = (), *, whole: bool = False, exact: bool = False) -> Query:
    """The query for a text, or for regular expressions. Raises UsageError."""
    found = tuple(compiled(pattern, exact=exact) for pattern in patterns)
    if found:
        return Query(patterns=found, exact=exact)
    return Query(words=words_of(text, whole=whole), exact=exact)


def search(scopes: Iterable[Scope], query: Query, wanted: Filter, listener: Listener) -> Iterator[Hit]:
    """The hits in these sessions, the newest first."""
    waiting: list[tuple[tuple[int, ...], int, _Session, Hit | None]] = []
    for number, scope in enumerate(scopes):
        session = _Session(scope, query, wanted, listener)
        if (latest := session.latest()) is not None:
            heapq.heappush(waiting, (_newest_first(latest), number, session, None))
    while waiting:
        _, number, session, hit = heapq.heappop(waiting)
        if hit is not None:
            yield hit
        following = session.next_hit()
        if following is not None:
            heapq.heappush(waiting, (_newest_first(following.time), number, session, following))


def sweep() -> None:
    """Take away indexes of sessions that have gone."""
    with suppress(OSError):
        for path in stray_indexes():
            remove_quietly(path)


def _newest_first(time: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in time)


class _Session:
    """One session as a source of hits. Its log is open only while hits are read."""

    def __init__(self, scope: Scope, query: Query, wanted: Filter, listener: Listener) -> None:
        self._scope = scope
        self._query = query
        self._wanted = wanted
        self._needs_past = wanted != msgspec.structs.replace(
            wanted, calls=(), tools=(), paths=(), turns=(), approved_by=()
        )
        self._listener = listener
        self._candidates: list[int] | None = None
        self._below = scope.upto + 1 if scope.upto else SEQ_END
        self._ready: list[Hit] = []
        self._is_done = False
        self._allowed: frozenset[int] | None = None
        self._problems: set[str] = set()

    def latest(self) -> str | None:
        """A time that no hit is after; None when there is no hit for sure."""
        path = self._scope.path
        try:
            named = up_to_date(path, self._query, self._listener.note, self._listener.progress)
        except UsageError:
            if path.exists():
                raise
            return None  # it was removed just now
        except MuseError as error:
            self._listener.unindexed(str(error))
            return _LATE
        if named is None:
            return _LATE
        self._candidates = named.events
        if named.reached.problem:
            self._miss(f"{named.reached.problem}; what stands there was not searched")
        if named.reached.cut:
            self._say(f"of {named.reached.cut} texts over {TEXT_BYTES_MAX >> 20} MiB only the beginning was searched")
        return None if named.events == [] else named.reached.time

    def next_hit(self) -> Hit | None:
        """The next one back, None when there is none left."""
        if not self._ready and not self._is_done:
            try:
                with self._open() as reading:
                    self._read_some(reading)
            except UsageError:
                if self._scope.path.exists():
                    raise
                self._is_done = True  # it was removed just now
            except LogError as error:
                self._miss(str(error))
                self._is_done = True
            self._ready.reverse()
        return self._ready.pop() if self._ready else None

    def _open(self) -> Reading:
        path = self._scope.path
        return read_session(path) if index_of(path) is None else Reading(open_log(path, check=False))

    def _read_some(self, reading: Reading) -> None:
        """Fill `_ready` with the next hits back."""
        texts = Texts(reading.stream)
        enough = HITS_UNINDEXED if self._candidates is None else HITS_AT_ONCE
        if self._needs_past and self._allowed is None:
            self._allowed = self._by_past(reading)
        for event in self._back(reading):
            self._below = event.seq
            hit = self._hit(reading, event, texts)
            if hit is not None:
                self._ready.append(hit)
                if len(self._ready) == enough:
                    break
        else:
            self._is_done = True
        if texts.problem:
            self._miss(texts.problem)
        if texts.cut and self._candidates is None:
            self._say(f"of texts over {TEXT_BYTES_MAX >> 20} MiB only the beginning was searched")

    def _back(self, reading: Reading) -> Iterator[Event]:
        """Events below `_below` that may be hits, last first."""
        if self._candidates is not None:
            for seq in self._candidates:
                if seq < self._below and (self._allowed is None or seq in self._allowed):
                    event = reading.event(seq)
                    if event is not None:
                        yield event
            return
        end = min(self._below, reading.head().seq + 1)
        while end > 1:
            begin = max(end - 1 - WINDOW, 0)
            yield from reversed(self._window(reading, begin, end))
            end = begin + 1

    def _window(self, reading: Reading, after: int, before: int) -> list[Event]:
        """The events between, as far as they can be read."""
        found: list[Event] = []
        try:
            for event in reading.events(after, before):
                found.append(event)
        except LogError as error:
            self._miss(f"{error}; what is behind that was not searched")
        return found

    def _by_past(self, reading: Reading) -> frozenset[int]:
        """The events that the filter means, where that depends on what came before them."""
        past, found = Past(), set()
        before = None if self._candidates is None else self._candidates[0] + 1
        with suppress(LogError):  # it is met, and said, when hits are read
            for event in reading.events(before=before):
                learn(past, event)
                if self._wanted.matches(event, past, reading.content):
                    found.add(event.seq)
        return frozenset(found)

    def _hit(self, reading: Reading, event: Event, texts: Texts) -> Hit | None:
        if self._scope.agent and event.agent != self._scope.agent:
            return None
        if self._allowed is not None and event.seq not in self._allowed:
            return None
        if self._allowed is None and not self._wanted.matches(event, Past(), reading.content):
            return None
        held = texts.of(event)
        found = self._query.spans([one.text for one in held]) if held else None
        if found is None:
            return None
        at, spans = found
        text, matches = snippet(held[at].text, spans)
        return Hit(
            session=reading.session, file=str(self._scope.path), seq=event.seq, time=event.time, agent=event.agent,
            type=event.type, kind=held[at].kind, snippet=text, matches=matches, row=_row(reading, event),
        )  # fmt: skip

    def _say(self, problem: str) -> None:
        self._once(problem, self._listener.note)

    def _miss(self, problem: str) -> None:
        self._once(problem, self._listener.unread)

    def _once(self, problem: str, tell: Callable[[str], None]) -> None:
        if problem not in self._problems:
            self._problems.add(problem)
            tell(f"{self._scope.path.stem}: {problem}")


def snippet(text: str, spans: Sequence[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A part of the text around the first of the matches, within its lines, and where in it matches stand, in order."""
    first, end = spans[0]
    line_begin = text.rfind("\n", 0, first) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    begin = line_begin if first - line_begin <= SNIPPET_BEFORE else first - SNIPPET_BEFORE
    stop = min(line_end, begin + SNIPPET_CHARS)
    inside = tuple((max(a, begin) - begin, min(b, stop) - begin) for a, b in sorted(spans) if a < stop and b > begin)
    return text[begin:stop], inside or ((0, 0),)


def _row(reading: Reading, event: Event) -> Row:
    """The event's row; what its call is called stands in the events that led to it."""
    past = Past()
    if calls_of(event):
        led: list[Event] = []
        cause = event.cause
        while cause and len(led) < CAUSES and (before := reading.event(cause)) is not None:
            led.append(before)
            cause = before.cause
        for before in reversed(led):
            learn(past, before)
    learn(past, event)
    return row(event, past)
