"""A database in memory that answers one query and can do nothing else.

What a query reads is known when it is prepared (SQLite asks an authorizer about each column), so only that is filled
in. Nothing is written but by `fill`; no file is opened, no other database attached, no extension loaded. Memory is
bounded, and whoever waits can interrupt. This module must not know events.
"""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Self

import apsw

from muse.errors import LimitReached, UsageError
from muse.log.tables.views import BY_NAME, VIEWS, View

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""So much may rows and the query's own work take up."""
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024
QUERY_BYTES_MAX: Final = 1024 * 1024
STEPS_BETWEEN_LOOKS: Final = 50_000
"""Steps of SQLite's machine after which an interruption is noticed."""
INSERTED_AT_ONCE: Final = 500

_HINT: Final = "muse sql --schema prints the views and their columns"
_JSON_TABLES: Final = frozenset({"json_each", "json_tree"})
_SCHEMA_TABLES: Final = frozenset({"sqlite_schema", "sqlite_master"})
_FORBIDDEN: Final = frozenset({"load_extension", "fts3_tokenizer"})

_joins_by_name: Final = re.compile(r"\b(using|natural)\b", re.IGNORECASE)

Value = int | float | str | bytes | None


class Database:
    """The views, empty at first; `prepare` a query, `fill` what it reads, and ask for its `rows`."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._limit = apsw.hard_heap_limit(-1)
        apsw.hard_heap_limit(memory_bytes_max)
        self._db = apsw.Connection(":memory:")
        self._db.pragma("temp_store", 2)
        self._db.pragma("trusted_schema", 0)
        self._db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        for view in VIEWS:
            columns = ", ".join(f"{column.name} {column.kind}" for column in view.columns)
            self._db.execute(f"CREATE TABLE {view.name} ({columns})")
        self._db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        self._db.limit(apsw.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        self._db.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, QUERY_BYTES_MAX)
        self._db.set_progress_handler(lambda: False, STEPS_BETWEEN_LOOKS)  # in between, Python handles signals
        self._sql = ""
        self._names: list[str] = []

    def prepare(self, sql: str) -> Mapping[str, frozenset[str]]:
        """Take a query; the columns that it reads, by view. Raises UsageError for what is no single query of the
        views, with the place where it goes wrong."""
        seen = _Seen()
        cursor = self._db.cursor()
        cursor.exec_trace = seen.statement
        self._db.authorizer = seen.permit
        try:
            with _said_of(sql, seen):
                cursor.execute(sql)
        except apsw.ExecTraceAbort:
            pass
        finally:
            self._db.authorizer = None
        if not seen.has_select:
            raise UsageError("that is no query", hint="write SELECT …; nothing can be changed here")
        rest = sql.encode()[len(seen.first.encode()) :].decode(errors="replace").strip().strip(";").strip()
        if rest and not _is_comment(rest):
            raise UsageError(
                f"one query at a time; behind the first stands {rest[:40]!r}", hint="run the others after it"
            )
        self._sql, self._names = seen.first, seen.names
        if _joins_by_name.search(sql):  # of columns and views that meet only so, the authorizer is not asked
            named = set(re.findall(r"\w+", sql.lower())) | seen.used.keys()
            return {view.name: frozenset(view.names) for view in VIEWS if view.name in named}
        return {name: frozenset(columns) for name, columns in seen.used.items()}

    def fill(self, view: View, used: frozenset[str], session: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Put rows of a session into a view, only the columns used. Raises LimitReached when there is no more room."""
        names = [name for name in view.names if name in used and name != "session"]
        columns = ", ".join(["session", *names])
        sql = f"INSERT INTO {view.name} ({columns}) VALUES ({', '.join('?' * (len(names) + 1))})"
        with _said_of(self._sql, _Seen()), self._db:
            self._db.executemany(sql, ((session, *(row.get(name) for name in names)) for row in rows))

    def rows(self) -> tuple[list[str], Iterator[tuple[Value, ...]]]:
        """The names of the answer's columns, and its rows one by one. Raises UsageError and LimitReached."""
        self._db.pragma("query_only", 1)
        seen = _Seen()
        self._db.authorizer = seen.permit
        return self._names, self._given(seen)

    def _given(self, seen: "_Seen") -> Iterator[tuple[Value, ...]]:
        count = 0
        with _said_of(self._sql, seen):
            try:
                for row in self._db.execute(self._sql):
                    yield row
                    count += 1
            except UnicodeDecodeError:
                yield from islice(self._as_bytes(), count, None)

    def _as_bytes(self) -> Iterator[tuple[Value, ...]]:
        """The answer, its texts taken as bytes: half a character stands in it, such as JSON can hold."""
        names = [f"c{number}" for number in range(len(self._names))]
        columns = ", ".join(
            f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name}), typeof({name})" for name in names
        )
        sql = f"WITH answer({', '.join(names)}) AS ({self._sql.rstrip().rstrip(';')}\n) SELECT {columns} FROM answer"
        for row in self._db.execute(sql):
            yield tuple(
                value.decode(errors="replace") if kind == "text" and isinstance(value, bytes) else value
                for value, kind in zip(row[::2], row[1::2], strict=True)
            )

    def close(self) -> None:
        """Give everything back."""
        self._db.close(True)
        apsw.hard_heap_limit(self._limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Seen:
    """What SQLite asks about while it prepares a query, and what it may do."""

    def __init__(self) -> None:
        self.used: dict[str, set[str]] = {}
        self.has_select = False
        self.first = ""
        self.names: list[str] = []
        self.refused = ""

    def statement(self, cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        """Called with each statement before it runs; none does."""
        self.first = sql
        self.names = [str(column[0]) for column in cursor.get_description()]
        return False

    def permit(self, operation: int, one: str | None, two: str | None, _three: str | None, _four: str | None) -> int:
        """Reading the views is permitted, and nothing else (https://sqlite.org/c3ref/c_alter_table.html)."""
        if operation in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE):
            self.has_select = True
            return apsw.SQLITE_OK
        if operation == apsw.SQLITE_FUNCTION and (two or "").lower() not in _FORBIDDEN:
            return apsw.SQLITE_OK
        if operation == apsw.SQLITE_READ and one is not None:
            if one in BY_NAME:
                self.used.setdefault(one, set()).add(two or "")
                return apsw.SQLITE_OK
            if one in _JSON_TABLES | _SCHEMA_TABLES or not two:  # without a column it may be a table of the query's own
                return apsw.SQLITE_OK
        self.refused = self.refused or " ".join(filter(None, [_name_of(operation), one, two]))
        return apsw.SQLITE_DENY


def _name_of(operation: int) -> str:
    return str(apsw.mapping_authorizer_function.get(operation, operation)).removeprefix("SQLITE_").lower()


def _is_comment(text: str) -> bool:
    return all(not line.strip() or line.strip().startswith("--") for line in text.split("\n"))


@contextlib.contextmanager
def _said_of(sql: str, seen: _Seen) -> Iterator[None]:
    """What SQLite's errors mean to whoever asked."""
    try:
        yield
    except apsw.ExecTraceAbort:
        raise
    except apsw.AuthError as error:
        what = f" ({seen.refused})" if seen.refused else ""
        raise UsageError(f"a query can read the views and nothing else{what}", hint=_HINT) from error
    except apsw.BindingsError as error:
        raise UsageError("a query has no parameters: write the values", hint=_HINT) from error
    except (apsw.NoMemError, MemoryError) as error:
        raise LimitReached(
            "the query needs more memory than it may have (1 GiB)", hint="ask for fewer columns, or filter earlier"
        ) from error
    except apsw.TooBigError as error:
        raise LimitReached(f"a value has more than {VALUE_BYTES_MAX >> 20} MiB", hint="take a part of it") from error
    except apsw.Error as error:
        raise UsageError(
            _with_place(str(error), sql, getattr(error, "error_offset", -1)), hint=_near(error, sql)
        ) from error


def _with_place(message: str, sql: str, offset: int) -> str:
    """The message, and where known the line of the query with a mark below the place."""
    if offset < 0:
        return message
    at = len(sql.encode()[:offset].decode(errors="replace"))
    begin = sql.rfind("\n", 0, at) + 1
    end = sql.find("\n", at)
    line = sql[begin : len(sql) if end < 0 else end]
    number = sql.count("\n", 0, at) + 1
    return f"{message}, in line {number} at character {at - begin + 1}: {line[max(at - begin - 40, 0) :][:120]}"


def _near(error: apsw.Error, sql: str) -> str:
    """Which name may have been meant, and which there are."""
    what, _, wrong = str(error).rpartition(": ")
    if what == "no such table":
        names, listed = list(BY_NAME), f"the views are {', '.join(BY_NAME)}"
    elif what == "no such column":
        said = set(re.findall(r"\w+", sql.lower()))
        views = [view for view in VIEWS if view.name in said]
        names = [name for view in views for name in view.names]
        listed = "; ".join(f"{view.name} has {', '.join(view.names)}" for view in views)
    else:
        return _HINT
    close = difflib.get_close_matches(wrong.rpartition(".")[2].lower(), names, n=1)
    return "; ".join(filter(None, [f"did you mean {close[0]}?" if close else "", listed, _HINT]))
