"""`make night`: a fan-out under fire with fifty kills, then the night. Prints a report; fails when a zero is none.

python -m tests.night --seed 7
python -m tests.night --sample            what `make test` plays of the night
python -m tests.night --only fan-out
"""

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from muse.testing.wire import AnthropicServer
from tests.crash.matrix.checks import Finding
from tests.e2e.rig import Rig
from tests.night import page, work
from tests.night.fan_out import CHILDREN, Fire, script
from tests.night.night import SAMPLE, Night, Plan, progress

FIRE_KILLS, FIRE_CALLS = 50, 10


def fan_out(seed: int) -> tuple[list[Finding], str]:
    """Eight children and a host that is killed fifty times: what was found, and what there was of it in words."""
    with tempfile.TemporaryDirectory(prefix="muse-fire-") as folder, AnthropicServer(script(FIRE_CALLS)) as server:
        with Rig(Path(folder) / "a", work.files(CHILDREN)) as rig:
            rig.provider("anthropic", server.base_url)
            fire = Fire(rig, server, FIRE_CALLS, FIRE_KILLS, random.Random(seed))
            fire.play()
            found = fire.findings()
            words = (
                f"8 children, {len(fire.session.events)} events, the host killed {fire.session.kills} times, "
                f"{len(fire.person.said)} words of people: {len(found)} findings"
            )
            print(f"fan-out under fire (seed {seed}): {words}")
            return found, words


def main() -> int:
    """0 when every zero is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.night", description=__doc__)
    parser.add_argument("--seed", type=int, help="(default: MUSE_CRASH_SEED, or drawn)")
    parser.add_argument("--sample", action="store_true", help="a night of less than a minute")
    parser.add_argument("--only", choices=["fan-out", "night"])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put what was counted into this page, if it is all")
    given = parser.parse_args()
    seed = given.seed
    if seed is None:
        seed = int(os.environ.get("MUSE_CRASH_SEED") or random.SystemRandom().randrange(2**32))
    progress(f"seed {seed}")
    found: list[Finding] = []
    fired = ""
    if given.only != "night" and not given.sample:
        found, fired = fan_out(seed)
    if given.only != "fan-out":
        report = Night(SAMPLE if given.sample else Plan(), seed, progress).play()
        found += report.findings + ([Finding("night", report.slow)] if report.slow else [])
        print("\n".join(f"{name}: {value}" for name, value in report.rows()))
        if given.write and fired:
            page.write_into(given.write, report, fired)
    for finding in found:
        print(f"{finding.zero}: {finding.text[:1000]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
