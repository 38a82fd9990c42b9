"""Playing many cases on several cores. A module of its own, so that a worker process finds it by its name."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from tests.crash.matrix.case import Result, Stage, play
from tests.crash.matrix.plan import SHARES

MINUTES_MAX = 60
ROUND = sum(SHARES.values())
"""Cases of a cell that are played together; with them every column has its share."""


def play_round(cell: str, numbers: range, seed: int, patches: tuple[str, ...]) -> list[Result]:
    """Play some cases of one cell; in a worker process."""
    with Stage(patches) as stage:
        return [play(stage, cell, number, seed) for number in numbers]


def rounds(cells: list[str]) -> Iterator[tuple[str, range]]:
    """Cell and cases, every cell in turn, without end."""
    begin = 0
    while True:
        for cell in cells:
            yield cell, range(begin, begin + ROUND)
        begin += ROUND


def play_until(cells: list[str], kills: int, seed: int, workers: int, patches: tuple[str, ...] = ()) -> list[Result]:
    """Play whole rounds until so many kills have hit, or the time is over."""
    results: list[Result] = []
    deadline = time.monotonic() + MINUTES_MAX * 60 * 0.9
    coming = rounds(cells)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: set[Future[list[Result]]] = set()
        begun = 0
        while True:
            enough = sum(result.kills for result in results) >= kills or time.monotonic() > deadline
            while len(running) < workers and not (enough and begun % len(cells) == 0):
                running.add(pool.submit(play_round, *next(coming), seed, patches))
                begun += 1
            if not running:
                return results
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                new = future.result()
                results += new
                _progress(results, new)


def _progress(results: list[Result], new: list[Result]) -> None:
    kills, wrong = sum(result.kills for result in results), sum(bool(result.findings) for result in results)
    said = [f"{kills} kills in {len(results)} sessions, {wrong} wrong"]
    for result in new:
        said += [f"  {result.cell!r} case {result.number}: {finding[:300]}" for finding in result.findings[:1]]
    print("\n".join(said), file=sys.stderr, flush=True)
