"""A host as a program of its own, to be killed: `host.py <run_dir> <epoch> <what> …`. Prints a line for each step."""

import json
import os
import sys
from pathlib import Path

import anyio

from muse.effect.runner import CommandSpec, Runner


def spec(n: int, script: str) -> CommandSpec:
    return CommandSpec(
        call=f"main/{n}", attempt=1, args_digest="digest", argv=["bash", "-c", script], cwd=os.getcwd(),
        env=dict(os.environ),
    )  # fmt: skip


async def main() -> None:
    runner = Runner(Path(sys.argv[1]), int(sys.argv[2]))
    match sys.argv[3:]:
        case ["start", n, script]:
            accepted = await runner.start(spec(int(n), script))
            print(json.dumps({"keeper": accepted.keeper.pid}), flush=True)
            await runner.wait(f"main/{n}", 1)
        case ["many", first, count]:
            for n in range(int(first), int(first) + int(count)):
                print(n, flush=True)
                await runner.start(spec(n, f"echo {n} >> effects"))
        case other:
            raise SystemExit(f"no such thing to do: {other}")


if __name__ == "__main__":
    anyio.run(main)
