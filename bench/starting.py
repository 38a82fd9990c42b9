"""How long a user waits for nothing: the start of the command, and of a shell command under the runner."""

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio

from bench.measure import Figure, Section, Sizes
from muse.effect.runner import CommandSpec, Runner

MUSE = Path(sys.executable).with_name("muse")
COUNT_MODULES = """
import sys
from muse.ui.cli import cli
try:
    cli.main(["--help"], standalone_mode=False)
finally:
    print(len(sys.modules), sum(name.startswith("muse") for name in sys.modules), file=sys.stderr)
"""


def section(folder: Path, sizes: Sizes) -> Section:
    """`muse --help` against an empty program."""
    helps, empties = [], []
    for _ in range(sizes.rounds):
        helps.append([_seconds(str(MUSE), "--help") for _ in range(sizes.starts)])
        empties.append([_seconds(sys.executable, "-c", "pass") for _ in range(sizes.starts)])
    loaded = subprocess.run([sys.executable, "-c", COUNT_MODULES], capture_output=True, text=True, check=True)
    modules, own = loaded.stderr.split()
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(len(sys.modules))"], capture_output=True, text=True, check=True
    ).stdout.strip()
    fastest = min(min(samples) for samples in helps) * 1e3, min(min(samples) for samples in empties) * 1e3
    return Section(
        title="muse --help",
        before=(f"Wall clock of a whole process, the fastest of {sizes.starts} starts in each round.",),
        parts=(
            (
                Figure(
                    name="muse --help", unit="ms", samples=tuple(min(samples) * 1e3 for samples in helps),
                    reference="python -c pass", reference_samples=tuple(min(samples) * 1e3 for samples in empties),
                    more_is_better=False, value_aim=100,
                ),
            ),
        ),
        after=(
            f"The fastest of all: {fastest[0]:.0f} ms against {fastest[1]:.0f} ms. Modules loaded: {modules}, of them "
            f"{own} of muse; `python -c pass` loads {bare}.",
        ),
    )  # fmt: skip


def commands(folder: Path, sizes: Sizes) -> Section:
    """A shell command under the runner against one that is simply run."""
    runner, plain = anyio.run(_compare, folder, sizes)
    return Section(
        title="A shell command",
        before=(
            "`sh -c true` from its start to its exit status. Under the runner that is: accepted (epoch and digest "
            "of the arguments durable before the command begins), run by a keeper that outlives the host, output in "
            "a spool file, exit status written atomically and durably.",
        ),
        parts=(
            (
                Figure(
                    name="under the runner", unit="ms", samples=runner, reference="subprocess.run of the same",
                    reference_samples=plain, more_is_better=False,
                ),
            ),
        ),
        after=(
            "The difference is the start of the keeper, a Python process, and its flushes; a command pays it once.",
        ),
    )  # fmt: skip


async def _compare(folder: Path, sizes: Sizes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    runner = Runner(folder / "run", 1)
    argv, environment = ["sh", "-c", "true"], {"PATH": os.environ["PATH"]}
    ours, plain = [], []
    number = 0
    try:
        await runner.supervisor()
        for _ in range(sizes.rounds):
            begun = time.perf_counter()
            for _ in range(sizes.commands):
                number += 1
                spec = CommandSpec(
                    call=f"main/{number}", attempt=1, args_digest="0", argv=argv, cwd=str(folder), env=environment
                )
                await runner.start(spec)
                assert (await runner.wait(spec.call, 1)).code == 0
            between = time.perf_counter()
            for _ in range(sizes.commands):
                subprocess.run(argv, cwd=folder, env=environment, check=True)
            ours.append((between - begun) / sizes.commands * 1e3)
            plain.append((time.perf_counter() - between) / sizes.commands * 1e3)
    finally:
        await runner.stop(kill=True)
    return tuple(ours), tuple(plain)


def _seconds(*command: str) -> float:
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
