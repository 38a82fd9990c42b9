"""Searching all sessions and asking them in SQL, beside `grep -r` over their exports in the same rounds."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from bench import sessions
from bench.measure import Figure, Section, Sizes, Table, seconds
from muse import app
from muse.app import searching, tables
from muse.view.filters import Filter

GREP = "grep -rF over the exports"
READ = "read all rows"
QUERIES = {
    "SQL: calls by tool and status": "SELECT tool, status, count(*), sum(duration_ms) FROM calls GROUP BY tool, status",
    "SQL: all columns of all events": "SELECT * FROM events",
}


def section(folder: Path, sizes: Sizes) -> Section:
    """One session of each size, in a home of its own."""
    figures: list[Figure] = []
    rows: list[tuple[str, ...]] = []
    for count in sizes.events:
        home = folder / f"searched-{count}"
        with _home(home):
            made, row = _measured(home, count, sizes.rounds)
        figures += made
        rows.append(row)
        shutil.rmtree(home)
    figures.sort(key=lambda figure: figure.name.partition(", ")[0])
    return Section(
        title="Searching, and asking in SQL",
        before=(
            "Sessions of five agents with prompts, answers, tools, approvals, edits and failures, and the same as "
            "exports. *Index* is a search that makes the index; *search* finds a word that stands once, or nothing, "
            "when the index is there. `grep` reads every export each time.",
        ),
        parts=(tuple(figures), Table(headings=("events", "log", "export", "index"), rows=tuple(rows))),
        after=(
            "The index is made once for each session; later searches read what is new. It holds which three characters "
            "stand in which event; each hit is read from the log again. SQL reads every event's row and decodes those "
            "that a view is made of.",
        ),
    )  # fmt: skip


@contextmanager
def _home(home: Path) -> Iterator[None]:
    before = os.environ.get("MUSE_HOME")
    os.environ["MUSE_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MUSE_HOME"]
        else:
            os.environ["MUSE_HOME"] = before


def _measured(home: Path, count: int, rounds: int) -> tuple[list[Figure], tuple[str, ...]]:
    path = home / "sessions" / "2026" / "01" / "31" / "20260131-120000-00000000.muse"
    path.parent.mkdir(parents=True)
    sessions.make(path, count)
    export = home / "exports" / "session.jsonl"
    export.parent.mkdir()
    with export.open("wb") as file, app.read_session(path) as reading:
        reading.export(file.write)

    def grep(text: str) -> None:
        subprocess.run(["grep", "-rFc", text, str(export.parent)], capture_output=True, check=False)

    def index() -> None:
        shutil.rmtree(home / "cache", ignore_errors=True)
        hits(sessions.NEEDLE, 1)

    def hits(text: str, expected: int) -> None:
        query = searching.asked(text, whole=True)
        found = searching.search([searching.Scope(path)], query, Filter(), searching.Listener())
        assert len(list(islice(found, 2))) == expected

    makes, finds, misses, greps = seconds(
        rounds,
        index,
        lambda: hits(sessions.NEEDLE, 1),
        lambda: hits("no such needle", 0),
        lambda: grep(sessions.NEEDLE),
    )
    found = [
        _figure(f"{name}, {count:,} events", samples, GREP, greps)
        for name, samples in (("index", makes), ("search: found once", finds), ("search: found never", misses))
    ]
    found += _asked(path, count, rounds)
    (made,) = (home / "cache" / "search").rglob("*.index")
    sizes = (f"{one.stat().st_size / 1e6:,.1f} MB" for one in (path, export, made))
    return found, (f"{count:,}", *sizes)


def _asked(path: Path, count: int, rounds: int) -> list[Figure]:
    def readings() -> Iterator[app.Reading]:
        with app.read_session(path, check=False) as reading:
            yield reading

    def read() -> None:
        with app.read_session(path, check=False) as reading:
            assert sum(1 for _ in reading.all_stored()) == count

    def ask(query: str) -> None:
        with tables.ask(query, readings, lambda session, what: None) as (_, rows):
            assert sum(1 for _ in rows)

    works = [lambda query=query: ask(query) for query in QUERIES.values()]
    *asks, reads = seconds(rounds, *works, read)
    named = zip(QUERIES, asks, strict=True)
    return [_figure(f"{name}, {count:,} events", samples, READ, reads) for name, samples in named]


def _figure(name: str, samples: tuple[float, ...], reference: str, reference_samples: tuple[float, ...]) -> Figure:
    return Figure(
        name=name, unit="ms", samples=tuple(one * 1e3 for one in samples), reference=reference,
        reference_samples=tuple(one * 1e3 for one in reference_samples), more_is_better=False,
    )  # fmt: skip
