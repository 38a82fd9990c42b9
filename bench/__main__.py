"""`make bench`: measure, and write docs/performance.md.

`python -m bench [NAME …] [--folder FOLDER]` measures some of the sections and prints them; without a name it measures
all and writes the page. Where an aim is missed, which stands beside its figure, the exit code is 1. FOLDER stands on
the disk to be measured; by default a folder beside the page.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import (
    agents_view,
    appender,
    children,
    fleet,
    growth,
    replay,
    searching,
    signals,
    snapshots,
    starting,
    whole_log,
)
from bench.measure import FULL, Section, Sizes, missed
from bench.page import PAGE, page, section_text

SECTIONS: dict[str, Callable[[Path, Sizes], Section]] = {
    "appender": appender.section,
    "fleet": fleet.section,
    "children": children.section,
    "agents": agents_view.section,
    "growth": growth.section,
    "log": whole_log.section,
    "help": starting.section,
    "commands": starting.commands,
    "snapshot": snapshots.section,
    "replay": replay.section,
    "verify": replay.verifying,
    "search": searching.section,
    "signals": signals.section,
}


def main() -> int:
    """0 when everything was measured and every aim was reached, 1 when one was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and write docs/performance.md.")
    parser.add_argument("names", nargs="*", choices=[*SECTIONS, []], help="measure and print only these")
    parser.add_argument(
        "--folder", type=Path, default=PAGE.parent.parent / ".cache", help="a folder on the disk to measure"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    found = []
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-") as made:
        for name in given.names or SECTIONS:
            print(f"bench: {name} …", file=sys.stderr, flush=True)
            found.append(SECTIONS[name](Path(made), FULL))
            print(section_text(found[-1]))
        if not given.names:
            PAGE.write_text(page(found, Path(made), load), encoding="utf-8")
            print(f"bench: wrote {PAGE.name}", file=sys.stderr)
    return exit_code(found)


def exit_code(sections: Iterable[Section]) -> int:
    """Say which aims were missed, on standard error; 1 when there are any."""
    lines = [line for section in sections for line in missed(section)]
    for line in lines:
        print(f"bench: missed: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
