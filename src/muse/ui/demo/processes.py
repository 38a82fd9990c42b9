"""The demo's processes: the host of the agent, other muse commands, tests, git; and the end of all of them.

Everything runs in the demo's own environment: its folder is HOME and MUSE_HOME, no key and no setting of the user is
passed on. What outlives its host (the runner, the slow command) is found by the folder's name when the demo ends.
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from muse.errors import MuseError
from muse.ui.demo.project import SLOW, test_command

WAIT_SECONDS_MAX: Final = 90.0
"""How long anything of the demo may keep it waiting."""
END_SECONDS_MAX: Final = 5.0
POLL_SECONDS: Final = 0.03
CHUNK_BYTES: Final = 65536
KEPT: Final = frozenset({"PATH", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"})
"""Variables that the demo's processes get from the user; those that begin with `LC_` too."""
PROJECT: Final = "project"
"""The project's folder in the demo's."""
RUNNER: Final = b"/effect/runner/"
"""What the command line of a runner, and of each keeper below it, holds."""
SLOW_WORDS: Final = b"\0".join(word.encode() for word in SLOW.split())
ENTRY: Final = "from muse.ui.cli import main; main()"
_tests_run: Final = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_tests_failed: Final = re.compile(r"(?:failures|errors)=(\d+)")

Line = dict[str, Any]


class Stuck(MuseError):
    """Something of the demo did not happen in time."""

    exit_code = 1


def environment(home: Path) -> dict[str, str]:
    """What the demo's processes see of the environment."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")}
    return kept | {"HOME": str(home), "MUSE_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}


def muse(*arguments: str) -> list[str]:
    """This very muse as a command line, whatever the folder it is started in."""
    return [sys.executable, "-P", "-c", ENTRY, *arguments]


class Host:
    """A muse process that runs a session, with its `--json` lines as they come."""

    def __init__(self, arguments: list[str], folder: Path, home: Path) -> None:
        self._errors = home / "stderr.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                muse(*arguments), cwd=folder, env=environment(home), start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.pid = self._process.pid

    def lines(self) -> Iterator[Line]:
        """Each event that it says is durable, until it ends. Raises `Stuck` when nothing comes for too long."""
        assert self._process.stdout is not None
        stream: IO[bytes] = self._process.stdout
        rest = b""
        while True:
            if not select.select([stream], [], [], WAIT_SECONDS_MAX)[0]:
                raise Stuck(f"the agent has been silent for {WAIT_SECONDS_MAX:.0f} s{self.said()}")
            data = os.read(stream.fileno(), CHUNK_BYTES)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (json.loads(line) for line in whole)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it cannot notice, and cannot tidy up."""
        self._process.kill()

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        try:
            code = self._process.wait(WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise Stuck(f"process {self.pid} does not end") from error
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def said(self) -> str:
        """The error that it wrote last, as the end of a sentence."""
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return next((f": {line}" for line in reversed(lines) if line.startswith("muse: ")), "")


def run_tests(folder: Path, home: Path) -> tuple[int, int]:
    """Run the project's tests. Returns how many ran and how many of them failed."""
    done = _run(test_command(), folder, home)
    found = counted(done.stderr)
    if found is None:
        raise Stuck(f"the project's tests did not run: {(done.stderr.strip().splitlines() or ['(silence)'])[-1]}")
    ran, failed = found
    return ran, ran if done.returncode and not failed else failed


def counted(text: str) -> tuple[int, int] | None:
    """How many tests ran and how many failed, by what unittest wrote; None where it says nothing of the kind."""
    ran = _tests_run.search(text)
    return None if ran is None else (int(ran[1]), sum(int(number) for number in _tests_failed.findall(text)))


def verify(path: Path, home: Path) -> tuple[int, int, int]:
    """`muse verify` of a log. Returns its exit code, the number of events, and the first bad one (0: none)."""
    done = _run(muse("verify", str(path), "--json"), home, home)
    with suppress(ValueError):
        report = json.loads(done.stdout)
        return done.returncode, report["events"], report["first_bad"] or 0
    return done.returncode, 0, 0


def begin_git(folder: Path, home: Path) -> bool:
    """Make the project a git repository with one commit. Returns False when there is no git, or it will not."""
    git = shutil.which("git")
    if git is None:
        return False
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "A till with three bugs"]):
        if _run([git, *words], folder, home).returncode:
            return False
    return True


def end_all(folder: Path, host: Host | None) -> None:
    """End every process that the demo started and that still runs: the host, then what outlives it."""
    if host is not None and host.alive:
        host.kill()
        host.wait()
    deadline = time.monotonic() + END_SECONDS_MAX
    while (left := _processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(OSError):  # the slow command leads a group, with its sleep in it
                os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _run(command: list[str], folder: Path, home: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, cwd=folder, env=environment(home) | {"GIT_CONFIG_NOSYSTEM": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, encoding="utf-8", errors="replace", timeout=WAIT_SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Stuck(f"{command[0]} did not end within {WAIT_SECONDS_MAX:.0f} s") from error


def _processes_of(folder: Path) -> list[int]:
    """Runners whose files are in the demo's folder, and the slow command in its project; nothing else that a person may
    have started there. Linux only: elsewhere the runner leaves by itself when it has been idle."""
    inside, project = os.fsencode(folder) + b"/", str(folder / PROJECT)
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            runs = RUNNER in words and inside in words
            if runs or (SLOW_WORDS in words and os.readlink(f"/proc/{name}/cwd") == project):
                found.append(int(name))
    return found
