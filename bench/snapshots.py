"""What it costs to know which files a command changed, beside `git status` of the same tree.

A step looks twice: before the command, and after it. In one kind of step the command changes nothing, in the other one
file, whose contents of before and after are read then. The reference is the user's own `git status`, in turns with it.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, Section, Sizes, seconds
from muse.effect.snapshot import Contents, Difference, Snapshots

FILES_A_FOLDER = 50
SETTLED_SECONDS = 2.1
"""After so long no file is as young as the index, and nobody's git has to read contents again."""
STATUS = "git status"


def section(folder: Path, sizes: Sizes) -> Section:
    """Times at each size."""
    figures: list[Figure] = []
    for count in sizes.files:
        figures += _measured(folder / f"files-{count}", count, sizes.rounds)
    order = ("first snapshot", "step that changes nothing", "step that changes one file")
    figures.sort(key=lambda figure: order.index(figure.name.partition(", ")[0]))
    return Section(
        title="Which files a command changed",
        before=(
            "A workspace of files of some 300 bytes in a git repository. *First snapshot* reads every file, once for a "
            "workspace. A *step* looks before and after a command; where one file changed, its contents of before and "
            "after are read too. Aim: a step takes at most three times as long as `git status` of the same tree.",
        ),
        parts=(tuple(figures),),
        after=("The looks run beside the loop: other agents go on meanwhile.",),
    )


def make(place: Path, count: int) -> Path:
    """A repository of `count` committed files, and nothing to be done for its git."""
    root = place / "work"
    for number in range(count):
        if number % FILES_A_FOLDER == 0:
            (root / f"part_{number // FILES_A_FOLDER}").mkdir(parents=True)
        path = root / f"part_{number // FILES_A_FOLDER}" / f"module_{number}.py"
        path.write_text(f"VALUE_{number} = {number}\n" * 16)
    named = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for command in (("init", "-q"), ("add", "-A"), (*named, "commit", "-q", "-m", "start")):
        _git(root, *command)
    time.sleep(SETTLED_SECONDS)
    _git(root, "status")
    return root


def _measured(place: Path, count: int, rounds: int) -> list[Figure]:
    root = make(place, count)
    snapshots = Snapshots(place / "muse", root, "bench.1", environment={"PATH": os.environ["PATH"], "HOME": str(place)})
    (first,) = seconds(1, snapshots.take)
    time.sleep(SETTLED_SECONDS)
    snapshots.take()
    changed = root / "part_0" / "module_0.py"
    number = 0

    def quiet() -> None:
        assert snapshots.take().id == snapshots.take().id

    def busy() -> None:
        nonlocal number
        number += 1
        before = snapshots.take()
        changed.write_text(f"VALUE_0 = {number}\n")
        found: list[bytes] = []

        def use(prefix: bytes, differences: Iterator[Difference], contents: Contents) -> None:
            for one in differences:
                found.extend(data for _, data in contents.fetch([one.before_id, one.after_id]) if data is not None)

        snapshots.compare(before.id, snapshots.take().id, use)
        assert len(found) == 2

    def status() -> None:
        _git(root, "status")

    quiets, status_quiet = seconds(rounds, quiet, status)
    busies, status_busy = seconds(rounds, busy, status)
    snapshots.close()
    return [
        _figure("first snapshot", count, first, (status_quiet[0],), 0),
        _figure("step that changes nothing", count, quiets, status_quiet, 3),
        _figure("step that changes one file", count, busies, status_busy, 3),
    ]


def _figure(name: str, count: int, taken: tuple[float, ...], reference: tuple[float, ...], aim: float) -> Figure:
    return Figure(
        name=f"{name}, {count:,} files", unit="ms", samples=tuple(one * 1e3 for one in taken), reference=STATUS,
        reference_samples=tuple(one * 1e3 for one in reference), more_is_better=False, ratio_aim=aim,
    )  # fmt: skip


def _git(root: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "LC_ALL": "C"}
    subprocess.run(["git", *arguments], cwd=root, env=environment, stdout=subprocess.DEVNULL, check=True)
