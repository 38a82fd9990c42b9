"""From sections to the page docs/performance.md. This module must not know what was measured."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw

from bench.measure import ROUNDS, Figure, Section, Table
from muse.log.place import filesystem_type

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"

INTRODUCTION = """\
# Performance

Written by `make bench`; do not edit. Each figure stands beside a reference operation that was measured in the same
run, in alternating rounds on the same disk: the ratio says more than the figure, because the machine may be shared.
Median and worst of {rounds} rounds; the ratio is the median of the rounds' ratios, in parentheses the worst of them.

| | |
|---|---|
| date | {date} |
| machine | {machine}, {cores} cores, {system} {kernel} |
| software | {python}, SQLite {sqlite} |
| disk | {disk}, durable writes through fdatasync |
| load during the run | {load} processes wanting a core at the start, {load_after} at the end |
"""

HEADINGS = ("what", "median", "worst", "reference", "its median", "ratio (worst)", "aim")


def page(sections: Sequence[Section], folder: Path, load: float) -> str:
    """The whole page. `folder` is where files were written, `load` the load average before the run."""
    head = INTRODUCTION.format(
        rounds=ROUNDS,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=platform.machine(),
        cores=os.cpu_count(),
        system=platform.system(),
        kernel=platform.release().split("-")[0],
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=apsw.sqlite_lib_version(),
        disk=filesystem_type(folder) or "unknown file system",
        load=f"{load:.1f}",
        load_after=f"{os.getloadavg()[0]:.1f}",
    )
    return "\n".join([head, *(section_text(one) for one in sections)])


def section_text(section: Section) -> str:
    """One chapter."""
    parts = [f"## {section.title}", *section.before]
    for part in section.parts:
        table = part if isinstance(part, Table) else Table(headings=HEADINGS, rows=tuple(_row(one) for one in part))
        parts.append(_table(table))
    return "\n\n".join([*parts, *section.after]) + "\n"


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        f"{number(figure.median)} {figure.unit}",
        number(figure.worst),
        figure.reference,
        number(figure.reference_median),
        f"{number(figure.ratio)} ({number(figure.worst_ratio)})",
        figure.aim,
    )


def _table(table: Table) -> str:
    lines = [table.headings, ("---",) + ("--:",) * (len(table.headings) - 1), *table.rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float) -> str:
    """Three figures, thousands grouped."""
    if value >= 100:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}" if digits > 0 else f"{value:,.0f}"
    return f"{value:.3g}"
