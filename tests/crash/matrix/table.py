"""Adding up: one row for each cell and who was killed in it, as text, JSON and a part of `docs/guarantees.md`."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

import muse
from tests.crash.matrix.case import Result
from tests.crash.matrix.cells import CELLS
from tests.crash.matrix.checks import ZEROS

BEGIN: Final = "<!-- crash matrix: begin (written by make crash) -->"
END: Final = "<!-- crash matrix: end -->"
KILLS_PUBLISHED_MIN: Final = 2_000
"""A table of fewer kills is printed, and goes into no page."""


class Row(msgspec.Struct, kw_only=True):
    """One row. `sessions` were played; `kills` hit a process that was alive."""

    cell: str
    killed: str
    sessions: int = 0
    kills: int = 0
    zeros: dict[str, int] = {}
    doubts_allowed: int = 0
    doubts_seen: int = 0


class Table(msgspec.Struct, kw_only=True):
    """Everything about one run of the matrix."""

    about: dict[str, str]
    rows: list[Row]
    total: Row
    places: dict[str, str]
    failures: list[str]


def added_up(results: Sequence[Result], seed: int, seconds: float) -> Table:
    """The table of these results."""
    rows: dict[tuple[str, str], Row] = {}
    order = [(cell.name, killed) for cell in CELLS for killed in cell.killed]
    for result in results:
        key = (result.cell, result.killed)
        row = rows.setdefault(key, Row(cell=result.cell, killed=result.killed, zeros=dict.fromkeys(ZEROS, 0)))
        _add(row, result)
    total = Row(cell="all", killed="", zeros=dict.fromkeys(ZEROS, 0))
    for result in results:
        _add(total, result)
    failures = [
        f"seed {seed}, cell {result.cell!r}, case {result.number} ({result.killed}): {finding}"
        for result in results
        for finding in result.findings
    ]
    return Table(
        about=about(seed, seconds), rows=[rows[key] for key in order if key in rows], total=total,
        places=places(results), failures=failures,
    )  # fmt: skip


def _add(row: Row, result: Result) -> None:
    row.sessions += 1
    row.kills += result.kills
    row.doubts_allowed += result.allowed
    row.doubts_seen += result.seen
    for zero, n in result.zeros.items():
        row.zeros[zero] += n


def places(results: Sequence[Result]) -> dict[str, str]:
    """How many of the places that an undisturbed run reaches a first kill took place at, for each failpoint."""
    reached: dict[str, set[tuple[str, int]]] = {}
    killed: dict[str, set[tuple[str, int]]] = {}
    for result in results:
        for name, most in result.reached.items():
            reached.setdefault(name, set()).update((result.cell, n) for n in range(1, most + 1))
        for place in result.killed_at:
            name, _, count = place.partition(":")
            killed.setdefault(name, set()).add((result.cell, int(count)))
    names = sorted({*reached, *killed})
    return {name: f"{len(killed.get(name, set()))}/{len(reached.get(name, set()))}" for name in names}


def about(seed: int, seconds: float) -> dict[str, str]:
    """What a reader needs to judge or repeat the run; nothing that names the machine."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": getattr(muse, "__version__", ""),
        "commit": _commit(),
        "seed": str(seed),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}",
        "duration": f"{seconds / 60:.1f} min",
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "src")
        return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def as_text(table: Table) -> str:
    """The table for people, which is Markdown as well."""
    head = ["at work", "killed", "sessions", "kills", *ZEROS, "doubts allowed", "doubts seen"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2)]
    lines += [_cells(row) for row in [*table.rows, table.total]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    made = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    facts = " · ".join(f"{name} {value}" for name, value in table.about.items() if value)
    where = " · ".join(f"`{name}` {share}" for name, share in table.places.items())
    return "\n".join(
        [facts, "", *made, "", f"Places at which the first kill took place, of those reached: {where}", ""]
    )


def _cells(row: Row) -> list[str]:
    numbers = [row.sessions, row.kills, *(row.zeros[zero] for zero in ZEROS), row.doubts_allowed, row.doubts_seen]
    return [row.cell, row.killed, *map(str, numbers)]


def as_json(table: Table) -> str:
    """The table for programs."""
    plain: Any = msgspec.to_builtins(table)
    return json.dumps(plain, indent=2, ensure_ascii=False)


def write_into(path: Path, table: Table) -> None:
    """Put the table between its markers in a page. Raises ValueError when the page has none."""
    put_between(path, BEGIN, END, as_text(table))


def put_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put a text between two markers of a page. Raises ValueError when the page has none."""
    page = path.read_text()
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{path} has no place for the table: {begin} … {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
