"""The night's part of docs/guarantees.md: what one run counted and measured."""

from pathlib import Path
from typing import Final

from tests.crash.matrix import table
from tests.night.night import Report

BEGIN: Final = "<!-- night: begin (written by make night) -->"
END: Final = "<!-- night: end -->"


def as_text(report: Report, fan_out: str) -> str:
    """One table; `fan_out` is what came of the fan-out under fire."""
    facts = " · ".join(f"{name} {value}" for name, value in table.about(report.seed, report.seconds).items() if value)
    rows = [("the night", ""), ("---", "---"), *report.rows(), ("fan-out under fire", fan_out)]
    return "\n".join([facts, "", *(f"| {name} | {value} |" for name, value in rows), ""])


def write_into(path: Path, report: Report, fan_out: str) -> None:
    """Put it between its markers. Raises ValueError when the page has none."""
    table.put_between(path, BEGIN, END, as_text(report, fan_out))
