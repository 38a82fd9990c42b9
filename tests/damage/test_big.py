"""A large log costs no more memory than a small one: opened, verified and recovered (B34)."""

import subprocess
import sys
from pathlib import Path

import pytest

SMALL_MIB, LARGE_MIB = 8, 120
ROOT = Path(__file__).parents[2]


def peak(what: str, path: Path, *more: object) -> int:
    """The peak of memory (MiB) of a process of its own that does this."""
    command = [sys.executable, "-m", "tests.damage.big", what, str(path), *map(str, more)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
def test_a_large_log_is_opened_verified_and_recovered_in_the_memory_of_a_small_one_b34(tmp_path: Path) -> None:
    for size in (SMALL_MIB, LARGE_MIB):
        peak("make", tmp_path / f"{size}.muse", size)
    assert (tmp_path / f"{LARGE_MIB}.muse").stat().st_size > LARGE_MIB * 1024 * 1024
    for what in ("open", "verify", "recover"):
        small, large = (peak(what, tmp_path / f"{size}.muse") for size in (SMALL_MIB, LARGE_MIB))
        assert large < 128, what
        assert large < small + 16, what
