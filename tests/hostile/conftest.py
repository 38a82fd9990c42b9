"""A user's machine, a strict provider of either dialect, and an eye on the memory of every process of muse."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.rig import Rig

MEMORY_KIB_MAX = 200 * 1024
"""What host, supervisor and each keeper may have taken at their peak."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        yield made


@pytest.fixture(params=["anthropic", "openai"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def peaks(rig: Rig) -> Iterator[dict[str, int]]:
    """The highest VmHWM in KiB (proc_pid_status(5)) of the rig's own processes while the block runs, by what they are:
    `host`, `runner` (supervisor and keepers)."""
    found: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for pid in rig.processes():
                with suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    kind = "runner" if b"supervisor.py" in line else "host" if b"/muse\0" in line else ""
                    kib = _high_water(pid)
                    if kind and kib:
                        found[kind] = max(found.get(kind, 0), kib)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _high_water(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def within_bounds(found: dict[str, int]) -> None:
    """Both were seen, and neither took more than it may."""
    print(f"peak memory: {found}")
    assert set(found) == {"host", "runner"}
    assert max(found.values()) < MEMORY_KIB_MAX


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc (Linux)")
