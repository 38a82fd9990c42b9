"""`python -m tools.compare`: run the same task under muse and under released frameworks, kill each in the same ways,
count, and write the table into docs/comparison.md between its markers. `--json` prints the numbers instead.
"""

import argparse
import json
import platform
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.compare.contestants import Framework, Muse, frameworks
from tools.compare.counted import Contestant, Crash, Steps, counted, crash, make_task, to_the_end, until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
STEPS = 6
QUICK_SECONDS, LONG_SECONDS = 0.3, 8.0
"""How long a step takes; a long one still runs when the resumed process is up."""
CUT_BYTES = 8192
WORDS = re.compile(r"error|corrupt|malformed|damage|missing|cut off|lost|not proven", re.IGNORECASE)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def calm(contestant: Contestant, place: Path) -> str:
    """The last request of a run without a crash, which shows that the task itself works."""
    folder = place / "calm"
    make_task(folder, [0.01] * STEPS)
    code, said = to_the_end(contestant, folder)
    steps = counted(folder)
    if code != 0 or [len(pids) for pids in steps.ends.values()] != [1] * STEPS:
        raise SystemExit(f"{contestant.name} does not do the task even undisturbed: {code} {said[-2000:]}")
    last = contestant.told(folder)[-1]
    contestant.end(folder)
    return last


def crashes(contestant: Contestant, place: Path, middles: int, randoms: int, seed: int) -> list[Crash]:
    """Kills in the middle of a long command at each of several steps, and at random times between quick ones."""
    before, found, rng = calm(contestant, place), [], random.Random(seed)
    for number in range(middles):
        at = number % STEPS
        folder = place / f"middle{number}"
        make_task(folder, [LONG_SECONDS if n == at else 0.05 for n in range(STEPS)])
        found.append(crash(contestant, folder, began(at), 0.2, before))
        say(f"{contestant.name}: killed in step {at}: {asdict(found[-1])}")
    for number in range(randoms):
        folder = place / f"random{number}"
        make_task(folder, [QUICK_SECONDS] * STEPS)
        wait = rng.uniform(0, QUICK_SECONDS * (STEPS - 1))
        found.append(crash(contestant, folder, began(0), wait, before))
        say(f"{contestant.name}: killed {wait:.2f} s after the first start: {asdict(found[-1])}")
    return found


def began(number: int) -> Callable[[Steps], bool]:
    """Whether a step has begun."""

    return lambda steps: number in steps.starts


# -- the end of the record is cut off ----------------------------------------------------------------------------------


def cut_records(contestant: Muse | Framework, place: Path) -> list[dict[str, Any]]:
    """Each cut, tried once."""
    cuts = (("the last 8 KiB of what was written last", cut_tail), ("the write-ahead log is gone", drop_wal))
    return [cut_record(contestant, place / f"cut{number}", *cut) for number, cut in enumerate(cuts)]


def cut_record(contestant: Muse | Framework, folder: Path, name: str, cut: Callable[[Path], bool]) -> dict[str, Any]:
    """Kill in mid-step, let its command end, cut the record's end off, go on: what is said, what is done."""
    at = STEPS - 2
    make_task(folder, [LONG_SECONDS / 8 if number == at else 0.05 for number in range(STEPS)])
    process = contestant.life(folder)
    until(lambda: at in counted(folder).starts or process.poll() is not None)
    process.kill()
    process.communicate()
    until(lambda: at in counted(folder).ends)
    applies = cut(contestant.record(folder))
    before = counted(folder)
    check = contestant.verify(folder) if isinstance(contestant, Muse) else None
    code, said = to_the_end(contestant, folder)
    after = counted(folder)
    contestant.end(folder)
    row = {
        "cut": name, "applies": applies, "exit_code": code,
        "said": [line for line in said.splitlines() if WORDS.search(line)][:4],
        "ran_again": sum(len(after.starts[number]) > len(before.starts[number]) for number in before.ends),
        "check_exit_code": check[0] if check else None,
        "check_said": [line.strip() for line in check[1].splitlines() if WORDS.search(line)] if check else [],
    }  # fmt: skip
    say(f"{contestant.name}: {row}")
    return row


def cut_tail(record: Path) -> bool:
    """Cut the end of the write-ahead log, or of the file where there is none."""
    wal = Path(f"{record}-wal")
    path = wal if wal.exists() and wal.stat().st_size > CUT_BYTES else record
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - CUT_BYTES))
    return True


def drop_wal(record: Path) -> bool:
    """Take the write-ahead log away, as a copy of the main file alone does; False where there is none."""
    wal = Path(f"{record}-wal")
    if not wal.exists():
        return False
    wal.unlink()
    Path(f"{record}-shm").unlink(missing_ok=True)
    return True


# -- the table ---------------------------------------------------------------------------------------------------------


def totals(found: list[Crash]) -> dict[str, int]:
    """The sums of a contestant's crashes."""
    names = ("killed", "finished_again", "killed_again", "side_by_side", "orphans", "silent", "completed")
    return {"crashes": len(found)} | {name: sum(getattr(one, name) for one in found) for name in names}


COUNTS = (
    "", "crashes", "task completed", "finished steps run again", "killed steps run again",
    "of these, beside the first copy", "orphans", "repeats that the model was not told of",
)  # fmt: skip
CUTS = ("record", "what was cut off", "going on", "finished commands run again", "a check on request")


def table(results: list[dict[str, Any]]) -> list[str]:
    """The counts, one contestant a row, and what became of the cut records."""
    counts = []
    for one in results:
        sums = one["totals"]
        killed = f"{sums['killed_again']} of {sums['killed']}"
        names = ("side_by_side", "orphans", "silent")
        row = [f"**{one['name']}**", sums["crashes"], sums["completed"], sums["finished_again"], killed]
        counts.append([*row, *(sums[name] for name in names)])
    cuts = [[one["name"], row["cut"], *cut_words(row)] for one in results for row in one["cuts"]]
    return [*rows(COUNTS, counts), "", *rows(CUTS, cuts)]


def cut_words(row: dict[str, Any]) -> list[object]:
    """What became of a cut record, in words."""
    if not row["applies"]:
        return ["there is none", "–", "–"]
    words = sorted(row["said"], key=lambda line: line[:1].isdigit())  # a line that begins with the time says less
    going = f"exit {row['exit_code']}, " + (f"said: {words[0].removeprefix('muse: ')}" if words else "nothing said")
    check = "none is offered"
    if row["check_exit_code"] is not None:
        said = re.sub(r"\s+", " ", next(iter(row["check_said"]), "nothing said"))
        check = f"`muse verify`: exit {row['check_exit_code']}, {said}"
    return [going, row["ran_again"], check]


def rows(names: tuple[str, ...], cells: list[list[object]]) -> list[str]:
    """A table of markdown."""
    lines: list[list[object]] = [list(names), ["---"] * len(names), *cells]
    return ["| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines]


def page_part(results: list[dict[str, Any]], seed: int) -> str:
    """What stands between the markers."""
    kernel = ".".join(platform.release().split(".")[:2])
    where = f"{platform.system()} {kernel}, Python {platform.python_version()}"
    lines = [f"Measured {datetime.now(UTC):%Y-%m-%d} on {where}; seed {seed}.", ""]
    lines += [f"- {one['name']}: {one['versions']}; {one['uses']}" for one in results]
    return "\n".join([*lines, "", *table(results)])


def write(part: str) -> None:
    """Put the part between the markers of the page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{part}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare", description=__doc__)
    parser.add_argument("--middles", type=int, default=STEPS, help="kills in the middle of a long command")
    parser.add_argument("--randoms", type=int, default=STEPS, help="kills at random times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a contestant's name, or a part of it")
    parser.add_argument("--json", action="store_true", help="print the numbers, and leave the page alone")
    given = parser.parse_args()
    results = []
    everyone: list[Muse | Framework] = [Muse(), *frameworks(ROOT / ".cache" / "compare")]
    for one in everyone:
        if given.only.lower() not in one.name.lower():
            continue
        if isinstance(one, Framework):
            say(f"{one.name}: making its environment")
            one.prepare()
        place = Path(tempfile.mkdtemp(prefix="compare-"))
        try:
            found = crashes(one, place, given.middles, given.randoms, given.seed)
            cuts = cut_records(one, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        problems = [crashed.problem for crashed in found if crashed.problem]
        results.append({"name": one.name, "versions": one.versions(), "uses": one.uses, "totals": totals(found),
                        "cuts": cuts, "problems": problems})  # fmt: skip
    if given.json:
        print(json.dumps(results, indent=1))
    elif given.only:
        print("\n".join(table(results)))
    else:
        write(page_part(results, given.seed))


main()
