"""Real runners in temporary folders. Whatever a test starts has ended when it is over, or the test fails."""

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from muse.effect.runner import CommandSpec, Runner

MARK = "MUSE_RUNNER_TEST"
LAST_EPOCH = 1_000_000
PATIENCE_SECONDS = 20.0

MakeRunner = Callable[..., Runner]
Shell = Callable[..., CommandSpec]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run" / "session"


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """In the environment of every command of the test, so that it is found whatever became of its parents."""
    return f"{MARK}={tmp_path}"


@pytest.fixture
def shell(tmp_path: Path, mark: str) -> Shell:
    """Make the spec of a shell script: `shell(4, "echo hi", timeout_ms=100)` is attempt 1 of call main/4."""

    def make(n: int, script: str, **given: object) -> CommandSpec:
        name, _, value = mark.partition("=")
        fields: dict[str, object] = {
            "call": f"main/{n}", "attempt": 1, "args_digest": f"digest-{n}", "argv": ["bash", "-c", script],
            "cwd": str(tmp_path), "env": {"PATH": os.environ["PATH"], name: value},
        }  # fmt: skip
        return CommandSpec(**(fields | given))  # type: ignore[arg-type]

    return make


@pytest.fixture
async def make_runner(run_dir: Path, mark: str, anyio_backend: str) -> AsyncIterator[MakeRunner]:
    """Make runners; afterwards all that runs in their folders is ended and nothing of the test is left."""
    made: list[Runner] = []

    def make(epoch: int = 1, folder: Path = run_dir, idle_seconds: float = 30.0) -> Runner:
        made.append(Runner(folder, epoch, idle_seconds=idle_seconds))
        return made[-1]

    yield make
    for runner in made:
        await runner.aclose()
    for folder in {folder for folder in (run_dir, *(runner.run_dir for runner in made)) if supervisors_of(folder)}:
        await Runner(folder, LAST_EPOCH).stop(kill=True)
    wait_until(lambda: not commands_with(mark) and not supervisors_of(run_dir.parent))


@pytest.fixture
async def runner(make_runner: MakeRunner) -> Runner:
    return make_runner()


def wait_until(condition: Callable[[], object]) -> None:
    """Look until something is so; fail after a long while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)


def commands_with(mark: str) -> list[int]:
    """Processes whose environment holds the mark."""
    return [pid for pid in _pids() if mark.encode() in _read(pid, "environ").split(b"\0")]


def supervisors_of(folder: Path) -> list[int]:
    """Supervisors and keepers (forked from them, so with the same command line) of runners below a folder."""
    found = []
    for pid in _pids():
        line = _read(pid, "cmdline")
        if b"supervisor.py" in line and os.fsencode(folder) in line:
            found.append(pid)
    return found


def lives(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def state_of(pid: int) -> str:
    """R, S, T … as proc_pid_stat(5) has it, "" for a process that is gone."""
    return "".join(_read(pid, "stat").rpartition(b")")[2].decode().split()[:1])


def parent_of(pid: int) -> int:
    return int(_read(pid, "stat").rpartition(b")")[2].split()[1])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
