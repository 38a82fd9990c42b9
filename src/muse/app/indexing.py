"""The indexes of sessions: where they are, bringing one up to date with its log, and taking one away.

An index is a cache: it may be deleted at any time, and whoever searches makes it again. It goes with what it is of:
when a session is removed or archived, or anything is redacted in it. That nobody puts back what was just taken away is
made sure of by order: who indexes looks at the log once more when all is durable, and who takes something out of a log
removes the index after that. This module must not know what is searched for.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from muse.app.places import open_log
from muse.config import muse_home
from muse.errors import Damaged, LogError, MuseError, StoreUnavailable
from muse.event.codec import parse_header
from muse.event.envelope import decode
from muse.log.catalog import stamp_of
from muse.log.protocol import Log
from muse.log.search.index import SUFFIX, Broken, Index, Reached, Said, remove
from muse.log.search.query import Query
from muse.log.search.texts import Texts

__all__ = ["Named", "forget_index", "index_of", "indexes", "stray_indexes", "up_to_date"]

ATTEMPTS: Final = 2
"""An index that cannot be read is made anew so often less one."""


class Named(msgspec.Struct, frozen=True):
    """The events of a log that may hold a query, last first (None: any may), and how far the index has come."""

    reached: Reached
    events: list[int] | None


def index_of(path: Path) -> Path | None:
    """Where the index of a log is kept; None for a log that is not below MUSE_HOME, which has none."""
    try:
        inside = path.absolute().relative_to((muse_home() / "sessions").absolute())
    except ValueError:
        return None
    return _folder() / inside.parent / f"{inside.stem}{SUFFIX}"


def indexes() -> Iterator[tuple[Path, Path]]:
    """All indexes, each with the log that it is of."""
    for place, _, names in os.walk(_folder()):
        for name in names:
            path = Path(place, name)
            stem = name.removesuffix("-journal").removesuffix(SUFFIX)
            yield path, muse_home() / "sessions" / path.relative_to(_folder()).parent / f"{stem}.muse"


def stray_indexes() -> list[Path]:
    """Indexes of logs that are not there (any more)."""
    return [path for path, log in indexes() if not log.exists()]


def forget_index(path: Path) -> list[str]:
    """Take the index of a log away, after what it must not hold any more has left the log; the file, if there was one.
    Raises StoreUnavailable."""
    index = index_of(path)
    try:
        return [str(index)] if index is not None and remove(index) else []
    except OSError as error:
        raise StoreUnavailable(f"{index}: {error.strerror or error}", hint="delete it, then try again") from error


def up_to_date(
    path: Path, query: Query, said: Callable[[str], None], progress: Callable[[str, int, int], None]
) -> Named | None:
    """What the index of a log says of a query, with all in it that the log holds now; None for a log that has none.
    `said` is told when one had to be made anew, `progress` the session, how far it is and how far there is. Raises
    StoreUnavailable where it cannot be kept, and what opening a log raises."""
    place = index_of(path)
    if place is None:
        return None
    for _ in range(ATTEMPTS):
        try:
            return _named(path, place, query, progress)
        except Broken as error:
            said(f"the index of {path.stem} is made anew: {error}")
            remove_quietly(place)
    raise StoreUnavailable(f"the index of {path.stem} cannot be made")


def _named(path: Path, place: Path, query: Query, progress: Callable[[str, int, int], None]) -> Named | None:
    stamp = stamp_of(path)
    with contextlib.suppress(StoreUnavailable):  # what a killed writer left has to be rolled back, which needs a writer
        index = Index.open(place)
        if index is not None:
            with index:
                reached = index.reached()
                if stamp and reached.stamp == stamp:
                    return Named(reached, index.candidates(query))
    with closing(open_log(path, check=False)) as log:
        if not log.head().seq:
            return None
        source = _Source(log, stamp, progress)
        with Index.create(place) as index:
            reached = index.grow(source.more, source.ending)
            named = Named(reached, index.candidates(query))
        if source.redacted_since() or not path.exists():
            remove_quietly(place)
    return named


class _Source:
    """A log as an index reads it, up to the head at which it was opened."""

    def __init__(self, log: Log, stamp: str, progress: Callable[[str, int, int], None]) -> None:
        self._log = log
        self._stamp = stamp
        self._progress = progress
        self._texts = Texts(log.stream_blob)
        self._head = log.head().seq
        self._problem = ""
        self._redacted = self._found = 0
        self._since: int | None = None

    def more(self, reached: Reached) -> Iterable[Said] | None:
        """What comes after; None where the log is another one, or something was taken out of it since its first event
        was read."""
        if self._since is None or reached.seq < self._since:
            self._since, self._found = reached.seq, self._last_redaction(reached.seq, self._head)
        self._redacted = max(self._found, reached.redacted)
        if reached.seq == 0:
            return self._said(0)
        stored = next(self._log.read(after=reached.seq - 1, before=reached.seq + 1), None)
        if stored is None or stored.hash != reached.hash or reached.redacted != self._redacted:
            return None
        return self._said(reached.seq)

    def _said(self, after: int) -> Iterator[Said]:
        seq = after
        try:
            for stored in self._log.read(after=after, before=self._head + 1):
                seq = stored.seq
                event = decode(stored.header, stored.body, stored.hidden)
                self._texts.cut = 0
                texts = [one.text for one in self._texts.of(event)]
                yield Said(stored.seq, stored.hash, event.time, texts, self._texts.cut)
                self._progress(self._log.session, stored.seq, self._head)
        except (LogError, UnicodeDecodeError) as error:
            if isinstance(error, StoreUnavailable):
                raise
            self._problem = str(error) if isinstance(error, Damaged) else f"event {seq} cannot be read: {error}"

    def ending(self) -> Reached:
        """What the index keeps besides."""
        return Reached(stamp=self._stamp, redacted=self._redacted, problem=self._problem or self._texts.problem)

    def redacted_since(self) -> bool:
        """Whether something was taken out of the log since it was opened."""
        return self._last_redaction(self._head, None) > 0

    def _last_redaction(self, after: int, upto: int | None) -> int:
        last = 0
        for seq, header in self._log.headers(after):
            if upto is not None and seq > upto:
                break
            if b'"log.redacted"' in header and parse_header(header).type == "log.redacted":
                last = seq
        return last


def remove_quietly(index: Path) -> None:
    """Take an index away if that can be done."""
    with contextlib.suppress(OSError, MuseError):
        remove(index)


def _folder() -> Path:
    return muse_home() / "cache" / "search"
