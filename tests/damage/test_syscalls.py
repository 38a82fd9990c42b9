"""System calls that fail: EIO and ENOSPC at each write and flush of an append, writes cut short, a reply that is lost.

The calls fail in a real process, by `strace -e inject` or by a limit of the kernel; nothing in muse knows of it.
"""

import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from muse.event.codec import parse_header
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS
from tests.e2e.rig import MUSE, PATIENCE_SECONDS, Rig

CHILD = str(Path(__file__).with_name("child.py"))
CALLS = "write,pwrite64,fdatasync,fsync"
INJECTED = "(INJECTED)"


@cache
def _why_not() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed (apt-get install strace)"
    tried = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=getppid:error=EIO", "true"]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        return "this process may not trace others (ptrace)"
    return ""


@pytest.fixture(autouse=True)
def _tracing(request: pytest.FixtureRequest) -> None:
    if "short" not in request.node.name and (why := _why_not()):
        pytest.skip(why)


class Traced:
    """A run of the child under strace: what it said, and its system calls in order."""

    def __init__(self, folder: Path, *command: str, inject: str = "") -> None:
        trace = folder / "trace"
        options = ["-e", f"inject={inject}"] if inject else []
        done = subprocess.run(
            ["strace", "-qq", "-o", str(trace), "-e", f"trace={CALLS}", *options, sys.executable, CHILD, *command],
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        self.code, self.said, self.error = done.returncode, done.stdout.splitlines(), done.stderr
        self.calls = trace.read_text(errors="replace").splitlines()

    @property
    def appended(self) -> list[str]:
        """The ids of every append that was acknowledged or found, in order."""
        ids: list[str] = []
        for line in self.said:
            word, *rest = line.split()
            if word == "append":
                ids += rest
        return ids


def made(folder: Path) -> Path:
    path = folder / "s.muse"
    SqliteLog.create(path, "s", commands=COMMANDS).close()
    return path


def ids_in(path: Path) -> list[str]:
    """The ids of the events after the opening, in order; the log verifies."""
    with SqliteLog.open(path, read_only=True) as log:
        assert verify(log, jobs=1).exit_code == 0
        return [parse_header(event.header).id for event in log.read(after=1)]


@cache
def _before_the_first_append(call: str) -> int:
    """How many of these calls a child makes until it is the owner."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run = Traced(Path(folder), "appends", str(made(Path(folder))), "1")
    owned = next(at for at, line in enumerate(run.calls) if "owned" in line)
    return sum(line.startswith(f"{call}(") for line in run.calls[:owned])


@pytest.mark.parametrize(
    ("call", "error", "phase", "step"),
    [
        *(("pwrite64", "EIO", phase, 31) for phase in (1, 2, 4, 7)),
        *(("pwrite64", "ENOSPC", phase, 29) for phase in (1, 3, 6)),
        *(("fdatasync", error, phase, 6) for error in ("EIO", "ENOSPC") for phase in (1, 2)),
    ],
)
def test_a_write_or_flush_that_fails_within_an_append_leaves_it_once_in_the_log(
    tmp_path: Path, call: str, error: str, phase: int, step: int
) -> None:
    path = made(tmp_path)
    first = _before_the_first_append(call) + phase
    run = Traced(tmp_path, "appends", str(path), "14", inject=f"{call}:error={error}:when={first}+{step}")
    assert (run.code, run.said[-1]) == (0, "end"), run.error
    assert sum(INJECTED in line for line in run.calls) >= 3
    assert run.said.count("failed") >= 3
    assert ids_in(path) == run.appended


def test_an_append_whose_flush_failed_is_found_by_its_id_and_not_doubled(tmp_path: Path) -> None:
    """The write had happened, only its flush was refused: it comes back after the reopening, and is made durable by
    writing all of it again before anything is built on it."""
    path = made(tmp_path)
    first = _before_the_first_append("fdatasync") + 2
    run = Traced(tmp_path, "appends", str(path), "2", inject=f"fdatasync:error=EIO:when={first}")
    assert [line for line in run.said if not line.startswith("append ")] == [
        "owned", "failed", "found", "appended", "end",
    ]  # fmt: skip
    assert ids_in(path) == run.appended
    failed = next(at for at, line in enumerate(run.calls) if INJECTED in line)
    found = next(at for at, line in enumerate(run.calls) if '"found' in line)
    again = [line for line in run.calls[failed + 1 : found] if not line.startswith("write(")]
    main = {line.split("(")[1].split(",")[0] for line in again if line.startswith("pwrite64(") and ", 4096, " in line}
    assert len(main) == 1, "all of the write-ahead log goes to one file, the main one"
    assert f"fdatasync({main.pop()})" in {line.split(" ")[0] for line in again}


@pytest.mark.parametrize(("call", "after"), [("fdatasync", 2), ("pwrite64", 3), ("write", 2)])
def test_an_owner_killed_between_commit_and_reply_leaves_all_or_nothing_and_is_not_doubled(
    tmp_path: Path, call: str, after: int
) -> None:
    """The last of these: killed in the system call that would have told of the append, which is durable then."""
    path = made(tmp_path)
    at = _before_the_first_append(call) + after + (1 if call == "write" else 0)
    run = Traced(tmp_path, "appends", str(path), "3", inject=f"{call}:signal=KILL:when={at}")
    assert run.code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    found = ids_in(path)
    assert found == run.appended[: len(found)]
    assert len(found) % 2 == 0
    if call == "write":
        assert found == run.appended
        assert found


def test_a_write_cut_short_at_any_byte_and_said_again_leaves_one_copy_b5(tmp_path: Path) -> None:
    """The kernel's limit on the length of a file cuts the write itself: a real short write, then EFBIG."""
    path = made(tmp_path)
    done = subprocess.run(
        [sys.executable, CHILD, "short", str(path), "211"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    asked = [id_ for word, *rest in lines if word == "append" for id_ in rest]
    assert int(lines[-1][1]) > 30
    found = ids_in(path)
    assert [id_ for id_ in found if id_ in set(asked)] == asked
    assert len(set(found)) == len(found)


# -- the whole command ---------------------------------------------------------------------------------------------


STEPS = 3


@pytest.fixture
def rig(tmp_path: Path) -> "Rig":
    return Rig(tmp_path / "machine")


def script(rig: Rig) -> str:
    uses = [{"uses": [["shell", {"command": f"echo {n} >> done.txt"}]]} for n in range(STEPS)]
    return rig.script([*uses, {"text": "all done"}])


def traced_exec(rig: Rig, inject: str = "") -> subprocess.CompletedProcess[str]:
    """`muse exec`, of which only the host is traced: its runner and its commands have a sound disk."""
    options = ["-e", f"inject={inject}"] if inject else []
    return subprocess.run(
        ["strace", "-qq", "-s", "4000", "-o", str(rig.folder / "trace"), "-e", f"trace={CALLS}", *options, MUSE, "exec",
         "--json", "--yolo", "-m", script(rig), "go"],
        cwd=rig.workspace, env=rig.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        timeout=2 * PATIENCE_SECONDS,
    )  # fmt: skip


@cache
def flushes_before_the_first_request() -> int:
    """How often the host flushes until it asks the model for the first time."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder) / "machine") as rig:
        assert traced_exec(rig).returncode == 0
        lines = (rig.folder / "trace").read_text(errors="replace").splitlines()
    asked = next(at for at, line in enumerate(lines) if line.startswith("write(1,") and "model.requested" in line)
    return sum(line.startswith("fdatasync(") for line in lines[:asked])


@pytest.mark.parametrize("when", [0, 1, 2, 4])
def test_a_run_goes_on_after_a_flush_that_failed_and_no_command_runs_twice(rig: Rig, when: int) -> None:
    """At once, or, where it was no append that failed (an output that was being stored), with `muse resume`."""
    with rig:
        done = traced_exec(rig, f"fdatasync:error=EIO:when={flushes_before_the_first_request() + when}")
        assert INJECTED in (rig.folder / "trace").read_text(errors="replace")
        if done.returncode == 1:
            assert "Go on: muse resume" in done.stderr
            done = rig.muse("resume")
        assert done.returncode == 0, done.stderr
        assert rig.read("done.txt").split() == ["0", "1", "2"]
        rig.verify()


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_run_whose_disk_stays_broken_stops_before_the_next_command_and_is_resumed_b31_b32(
    rig: Rig, error: str
) -> None:
    with rig:
        done = traced_exec(rig, f"fdatasync:error={error}:when={flushes_before_the_first_request() + 2}+")
        assert done.returncode == 1, done.stderr
        assert re.search(r"resume|disk", done.stderr)
        assert "Traceback" not in done.stderr
        ran = rig.read("done.txt").split() if (rig.workspace / "done.txt").exists() else []
        assert len(ran) < STEPS
        again = rig.muse("resume")
        assert again.returncode == 0, again.stderr
        assert rig.read("done.txt").split() == ["0", "1", "2"]
        rig.verify()


def test_every_folder_of_a_new_home_is_durable_before_the_first_append_is_acknowledged(rig: Rig) -> None:
    with rig:
        trace = rig.folder / "trace"
        done = subprocess.run(
            ["strace", "-qq", "-y", "-s", "200", "-o", str(trace), "-e",
             "trace=mkdir,fsync,fdatasync,link,linkat,write,pwrite64", MUSE, "exec", "--json", "--yolo", "-m",
             script(rig), "go"],
            cwd=rig.workspace, env=rig.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = trace.read_text(errors="replace").splitlines()
        told = next(at for at, line in enumerate(lines) if line.startswith("write(1<") and '\\"seq\\":1' in line)
        log = rig.path()
        folders = [log.parent, *log.parent.parents]
        folders = folders[: folders.index(rig.muse_home) + 1]
        assert len(folders) == 5
        for folder in folders:
            born = next(at for at, line in enumerate(lines) if line.startswith(f'mkdir("{folder}"'))
            for place in (folder, folder.parent):
                assert _synced(lines[born:told], place), f"{place} was not flushed after {folder} was made"
        named = next(at for at, line in enumerate(lines) if line.startswith("link") and f'"{log}"' in line)
        assert _synced(lines[named:told], log.parent)


def test_after_a_redaction_the_cut_of_the_write_ahead_log_is_flushed(tmp_path: Path) -> None:
    """Else a power loss right after it brings the old frames back, and the text with them."""
    path, trace = made(tmp_path), tmp_path / "trace"
    command = ["strace", "-qq", "-y", "-o", str(trace), "-e", "trace=ftruncate,fsync,fdatasync,write"]
    subprocess.run([*command, sys.executable, CHILD, "redacts", str(path)], check=True, capture_output=True)
    lines = trace.read_text(errors="replace").splitlines()
    asked, done = (next(at for at, line in enumerate(lines) if word in line) for word in ('"redact\\n', '"redacted\\n'))
    wal = rf"\(\d+<{re.escape(str(path))}-wal>"
    cut = next(at for at, line in enumerate(lines) if at > asked and re.match(rf"ftruncate{wal}, 0\)\s+= 0", line))
    assert any(re.match(rf"f(data)?sync{wal}\)\s+= 0", line) for line in lines[cut:done])


def _synced(lines: list[str], folder: Path) -> bool:
    return any(re.match(rf"f(data)?sync\(\d+<{re.escape(str(folder))}>\)\s+= 0", line) for line in lines)
