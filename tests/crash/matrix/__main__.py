"""The command: play cases on all cores until enough kills have hit, print the table, fail when a zero is none.

python -m tests.crash.matrix --seed 7 --kills 2000
python -m tests.crash.matrix --seed 7 --cell edit --case 12        one case again, with its plan
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

from tests.crash.matrix import table
from tests.crash.matrix.case import Stage, play
from tests.crash.matrix.cells import CELLS, cell_named
from tests.crash.matrix.plan import plan_of
from tests.crash.matrix.rounds import MINUTES_MAX, play_until


def _one_again(cell: str, number: int, seed: int, patches: tuple[str, ...]) -> int:
    print(f"{cell}, case {number}, seed {seed}: {plan_of(cell_named(cell), number, seed)}")
    with Stage(patches) as stage:
        result = play(stage, cell, number, seed)
    print(f"{result.kills} kills; doubts allowed {result.allowed}, seen {result.seen}; {result.seconds:.1f} s")
    for finding in result.findings:
        print(f"  {finding}")
    return 1 if result.findings else 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the plans (default: MUSE_CRASH_SEED, or drawn)")
    parser.add_argument("--kills", type=int, default=2500, help="play until so many hit (default 2500)")
    parser.add_argument("--cell", action="append", choices=[cell.name for cell in CELLS], help="only this one")
    parser.add_argument("--case", type=int, help="only this case of the cell")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table here, too")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put the table into this page, between its markers, if it is large enough to be published",
    )
    parser.add_argument("--plant", default="", metavar="PATCH,…", help="plant a fault (see launch.py)")
    return parser.parse_args()


def main() -> int:
    """Play, print, and say whether every zero is one."""
    given = _parsed()
    seed = given.seed
    if seed is None:
        seed = int(os.environ.get("MUSE_CRASH_SEED") or random.SystemRandom().randrange(2**32))
    patches = tuple(filter(None, given.plant.split(",")))
    cells = given.cell or [cell.name for cell in CELLS]
    if given.case is not None:
        return _one_again(cells[0], given.case, seed, patches)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    begun = time.monotonic()
    results = play_until(cells, given.kills, seed, given.workers, patches)
    made = table.added_up(results, seed, time.monotonic() - begun)
    print(table.as_text(made))
    if given.json:
        given.json.write_text(table.as_json(made) + "\n")
    if given.write and made.total.kills >= table.KILLS_PUBLISHED_MIN:
        table.write_into(given.write, made)
    for failure in made.failures:
        print(failure[:2000])
    for cell, number in dict.fromkeys((r.cell, r.number) for r in results if r.findings):
        print(f'again: python -m tests.crash.matrix --seed {seed} --cell "{cell}" --case {number}')
    if made.total.kills < given.kills:
        print(f"only {made.total.kills} kills hit within {MINUTES_MAX} minutes", file=sys.stderr)
        return 1
    return 1 if made.failures else 0


if __name__ == "__main__":
    sys.exit(main())
