"""`muse sql`: a query over one session or many, and the rows that answer it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from muse.errors import LogError
from muse.log.tables.database import Database, Value
from muse.log.tables.gathering import gather
from muse.log.tables.views import BY_NAME, VIEWS, Column, View
from muse.runtime.reading import Reading

__all__ = ["VIEWS", "Column", "Problem", "Value", "View", "ask"]

Problem = Callable[[str, str], None]
"""Is told a session, and what of it could not be read."""


@contextmanager
def ask(
    sql: str,
    readings: Callable[[], Iterator[Reading]],
    problem: Problem,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[list[str], Iterator[tuple[Value, ...]]]]:
    """The names of the answer's columns, and its rows, over the sessions that `readings` opens (closed when the next
    one is asked for); only what the query reads is read of them. `problem` is told the session and what could not be
    read of it, `progress` each session. Raises UsageError for what is no query, LimitReached for one that needs too
    much memory."""
    with Database() as database:
        used = database.prepare(sql)
        for reading in readings() if used else ():
            progress(reading.session)
            try:
                for name, rows in gather(reading.session, reading.all_stored(), reading.stream, used):
                    database.fill(BY_NAME[name], used[name], reading.session, rows)
            except LogError as error:
                problem(reading.session, str(error))
        yield database.rows()
