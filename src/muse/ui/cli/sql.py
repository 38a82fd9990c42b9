"""`muse sql`: ask sessions in SQL, read only."""

import csv
import io
import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import Final

import click
import msgspec

from muse import app
from muse.app import tables
from muse.app.tables import Value
from muse.errors import Damaged, MuseError, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.options import words
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.text import paint
from muse.view.visible import columns, fit, visible

QUERY_BYTES_MAX: Final = 1024 * 1024
MEASURED_ROWS: Final = 1_000
"""Columns are as wide as these need; what comes later is cut."""
CELL_MAX: Final = 60
CELL_MIN: Final = 8
"""No column of a table that is too wide becomes narrower; what then has no room is cut."""
WHOLE: Final = ("address", "session")
"""Columns that are of no use in part."""
QUIET_SECONDS: Final = 0.5
"""What takes less is not talked about."""
GAP: Final = "  "
SCHEMA_HANG: Final = 20


@click.command("sql")
@click.argument("query", default="")
@click.argument("address", default="", metavar="[SESSION|PATH]", shell_complete=completing.sessions)
@click.option("-a", "--all", "everywhere", is_flag=True, help="Over all sessions.")
@click.option("--schema", is_flag=True, help="Print the views and what their columns say.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated (RFC 4180), with a header.")
@click.option("--json", "as_json", is_flag=True, help="One row a line, as a JSON object.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    query: str, address: str, everywhere: bool, schema: bool, as_csv: bool, as_json: bool, no_color: bool
) -> int:
    """Answer QUERY ("-": from standard input) over SESSION (default: the last one), or over --all.

    The views are sessions, events, prompts, calls, model_requests, approvals, files, agents, costs, doubts and
    processes (--schema). Nothing can be changed. On a terminal the answer is a table, elsewhere tab-separated lines.

    \b
    muse sql "SELECT address, command, exit_code FROM calls WHERE exit_code <> 0"
    muse sql --all "SELECT model, sum(cost_microusd) FROM costs GROUP BY model"
    """
    problems: list[str] = []
    with answers(colour=not no_color) as out:
        if schema:
            _print_schema(out, as_json=as_json)
            return 0
        if everywhere and address:
            raise UsageError("--all means every session", hint="leave the session out, or --all")
        if address and (lane := resolve(address).address.agent):
            raise UsageError("SQL asks whole sessions", hint=f"leave :{lane} out, and say WHERE agent = '{lane}'")

        def problem(session: str, what: str) -> None:
            problems.append(f"{session}: {what}; what is behind that was not asked")

        telling = _Telling()
        asked = tables.ask(_query(query), lambda: _readings(address, everywhere, problem), problem, telling.reading)
        with asked as (names, rows):
            first = list(islice(rows, 1))  # before the header: until then the query may turn out to be too large
            telling.clear()
            _print(names, chain(first, rows), out, as_csv=as_csv, as_json=as_json)
            out.flush()
    for text in problems:
        note(f"note: {visible(text)}")
    return Damaged.exit_code if problems and not everywhere else 0


def _query(text: str) -> str:
    if text == "-":
        data = sys.stdin.buffer.read(QUERY_BYTES_MAX + 1)
        if len(data) > QUERY_BYTES_MAX:
            raise UsageError("the query is over 1 MiB", hint="put the values into fewer words")
        text = data.decode(errors="replace")
    text = words(text)
    if not text.strip():
        raise UsageError("there is no query", hint='muse sql "SELECT * FROM calls"; muse sql --schema lists the views')
    if "\0" in text:
        raise UsageError("a query has no NUL in it", hint="write SELECT …")
    return text


def _readings(address: str, everywhere: bool, problem: tables.Problem) -> Iterator[app.Reading]:
    if not everywhere:
        with app.read_session(resolve(address).path) as reading:
            yield reading
        return
    for path in reversed(app.session_files()):
        try:
            reading = app.read_session(path, check=False)
        except MuseError as error:
            problem(path.stem, str(error))
            continue
        with closing(reading):
            yield reading


class _Telling:
    """Says on standard error which session is being read, when that takes long."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._is_telling = False

    def reading(self, session: str) -> None:
        """This one is next."""
        if time.monotonic() - self._begun > QUIET_SECONDS:
            self._is_telling = True
            progress(f"reading {short_id(session)}")

    def clear(self) -> None:
        """Take the passing word away."""
        if self._is_telling:
            progress("")


def _print(names: list[str], rows: Iterator[tuple[Value, ...]], out: Answers, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        keys = _distinct(names)
        for row in rows:
            fields = {key: _json_value(value) for key, value in zip(keys, row, strict=True)}
            out.json(msgspec.json.encode(fields).decode())
    elif as_csv:
        for line in chain([names], rows):
            out.raw(_csv_line(line, safe=out.terminal).encode())
    elif out.terminal:
        _print_table(names, rows, out)
    else:
        for line in chain([names], rows):
            out.line("\t".join(_cell(value).replace("\t", "\\t").replace("\n", "\\n") for value in line))


def _print_table(names: list[str], rows: Iterator[tuple[Value, ...]], out: Answers) -> None:
    first = [[_one_line(value) for value in row] for row in islice(rows, MEASURED_ROWS)]
    widths = [columns(name) for name in names]
    for row in first:
        widths = [max(width, columns(cell)) for width, cell in zip(widths, row, strict=True)]
    right = [bool(first) and all(_is_number(row[at]) for row in first) for at in range(len(names))]
    limit = CELL_MAX if len(names) > 1 else (out.width or CELL_MAX)
    widths = [min(width, max(limit, columns(name))) for width, name in zip(widths, names, strict=True)]
    if out.width is not None:
        widths = _narrowed(
            widths, [name in WHOLE or number for name, number in zip(names, right, strict=True)], out.width
        )
    out.line(paint(_line([visible(name) for name in names], widths, right, out), "1", out.colour))
    count = 0
    for cells in chain(first, ([_one_line(value) for value in row] for row in rows)):
        count += 1
        out.line(_line(cells, widths, right, out))
    if not count:
        note("no rows")


def _narrowed(widths: list[int], whole: list[bool], room: int) -> list[int]:
    """The widths, the widest made narrower until all columns stand side by side, but for those that stay `whole`."""
    found = list(widths)
    open_ = [at for at, stays in enumerate(whole) if not stays]
    while open_ and sum(found) + len(GAP) * (len(found) - 1) > room:
        widest = max(open_, key=lambda at: found[at])
        if found[widest] <= CELL_MIN:
            break
        found[widest] -= 1
    return found


def _line(cells: list[str], widths: list[int], right: list[bool], out: Answers) -> str:
    parts = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        text = fit(cell, width)
        blanks = " " * (width - columns(text))
        parts.append(f"{blanks}{text}" if is_right else f"{text}{blanks}")
    line = GAP.join(parts).rstrip()
    return line if out.width is None else fit(line, out.width)


def _is_number(cell: str) -> bool:
    return not cell or cell.lstrip("-").replace(".", "", 1).isdigit()


def _one_line(value: Value) -> str:
    return _cell(value).replace("\n", "⏎").replace("\t", " ")


def _cell(value: Value) -> str:
    """A value that is safe to show; newlines and tabs are left."""
    if value is None:
        return ""
    return value.hex() if isinstance(value, bytes) else visible(str(value))


def _csv_line(values: Iterable[Value], *, safe: bool) -> str:
    """A line of CSV; on a terminal nothing in it acts."""
    file = io.StringIO()
    plain = ("" if value is None else value.hex() if isinstance(value, bytes) else str(value) for value in values)
    csv.writer(file, lineterminator="\r\n").writerow([visible(text) if safe else text for text in plain])
    return file.getvalue()


def _json_value(value: Value) -> Value:
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _distinct(names: list[str]) -> list[str]:
    """Names of columns as keys of an object: what comes again gets a number."""
    found: list[str] = []
    for name in names:
        key, number = name, 1
        while key in found:
            number += 1
            key = f"{name}_{number}"
        found.append(key)
    return found


def _print_schema(out: Answers, *, as_json: bool) -> None:
    for view in tables.VIEWS:
        if as_json:
            out.json(msgspec.json.encode(view, order="sorted").decode())
            continue
        out.line(f"{paint(view.name, '1', out.colour)}: {view.says}")
        for column in view.columns:
            kind = "integer" if column.kind == "INTEGER" else "text"
            out.paragraph(f"    {column.name:<16} {kind:<8} {column.says}", SCHEMA_HANG + 9)
        out.line()
