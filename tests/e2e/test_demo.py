"""`muse demo`, the installed command, in an empty home. What it claims is counted again from outside."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MUSE = str(Path(sys.executable).with_name("muse"))
PATIENCE_SECONDS = 120.0
TOOLS_WITHOUT_GIT = ("sh", "bash", "sleep")


class Demo:
    """A demo that runs, and what it has shown so far."""

    def __init__(
        self, tmp_path: Path, *flags: str, path: str = os.environ["PATH"], before: tuple[str, ...] = ()
    ) -> None:
        self.folder = tmp_path / "demo"
        home = tmp_path / "empty home"
        home.mkdir()
        self.out = tmp_path / "out"
        self.environment = {"PATH": path, "HOME": str(home), "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*before, MUSE, "demo", "--fast", "--dir", str(self.folder), *flags], cwd=tmp_path, umask=0o077,
                env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    @property
    def shown(self) -> str:
        return self.out.read_text()

    @property
    def counter(self) -> Path:
        return self.folder / "project" / "counter.txt"

    def wait_for(self, what: Callable[[], Any]) -> Any:
        """The first true value of `what` while the demo runs."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := what()):
            assert self.process.poll() is None, f"the demo ended before: {self.shown}"
            assert time.monotonic() < deadline, f"it did not come: {self.shown}"
            time.sleep(0.01)
        return found

    def end(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def muse(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Another muse command on the demo's sessions."""
        environment = self.environment | {"MUSE_HOME": str(self.folder / "home")}
        return subprocess.run(
            [MUSE, *arguments],
            env=environment,
            cwd=self.folder / "project",
            capture_output=True,
            text=True,
            check=False,
        )

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.muse("replay", "--json").stdout.splitlines()]

    def processes(self) -> list[str]:
        """Command lines of living processes that belong to this demo."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                cwd = os.readlink(place / "cwd")
            except OSError:
                continue
            if words and (str(self.folder) in words or cwd.startswith(str(self.folder))):
                found.append(words)
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start a demo in a folder of its own; it has ended when the test has."""
    started = []

    def begin(*flags: str, **more: Any) -> Demo:
        started.append(Demo(tmp_path, *flags, **more))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(PATIENCE_SECONDS)


def calls(events: list[dict[str, Any]], *types: str) -> list[str]:
    return [event["body"]["call"] for event in events if event["type"] in types]


def test_what_the_demo_claims_is_what_can_be_counted(start: Callable[..., Demo]) -> None:
    demo = start()
    assert demo.end() == 0, demo.shown
    shown, events = demo.shown, demo.events()

    assert "\x1b" not in shown
    assert max(len(line) for line in shown.splitlines() if str(demo.folder) not in line) <= 80

    opened = [event["seq"] for event in events if event["type"] == "session.opened"]
    finished = [event for event in events if event["type"] in ("tool.finished", "model.responded")]
    before = {event["body"]["call"] for event in finished if event["seq"] < opened[1]}
    after = calls([event for event in events if event["seq"] > opened[1]], "tool.started", "model.requested")
    slow = next(
        event for event in events if event["body"].get("tool") == "shell" and "slow.sh" in event["body"]["args"]
    )
    lines = demo.counter.read_text().splitlines()
    assert len(opened) == 2
    assert 35 <= len(before) <= 45
    assert not before & set(after)
    assert [line.split()[0] for line in lines].count("start") == 1
    assert lines.count("end") == 1
    assert lines[-1] == "end"
    claim = f" re-attached to #{slow['seq']}; {len(before)} finished steps, 0 run again; counter.txt: 1 start, 1 end"
    assert claim in shown.splitlines()

    started = calls(events, "tool.started")
    assert len(started) == len(set(started)) == len(calls(events, "tool.finished"))

    ticks = [int(seq) for seq in re.findall(r"✓ #(\d+)", shown)]
    assert ticks == [event["seq"] for event in finished]

    tests = subprocess.run(
        [sys.executable, "-B", "-m", "unittest"], cwd=demo.folder / "project", capture_output=True, text=True
    )
    assert tests.returncode == 0
    assert "Ran 9 tests" in tests.stderr

    assert (demo.folder / "home").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in demo.folder.glob("changed-copy*")] == ["changed-copy.muse"]
    assert demo.muse("verify").returncode == 0
    copy = demo.muse("verify", str(demo.folder / "changed-copy.muse"), "--json")
    assert copy.returncode == 6
    assert f"exit 6: the first bad event is #{json.loads(copy.stdout)['first_bad']}\n" in shown
    log = next((demo.folder / "home" / "sessions").rglob("*.muse")).read_bytes()
    changed = (demo.folder / "changed-copy.muse").read_bytes()
    assert sum(one != other for one, other in zip(log, changed, strict=True)) == 1

    for words in ("replay", "export --format md"):
        line = next(line for line in shown.splitlines() if f"muse {words} " in line)
        command = line.strip().partition("   ")[0]
        tried = subprocess.run(["sh", "-c", command], env=demo.environment, capture_output=True, text=True, check=False)
        assert tried.returncode == 0, command
        assert "Make the tests pass." in tried.stdout
    assert not demo.processes()


@pytest.mark.long
def test_a_command_that_was_started_twice_makes_the_demo_fail(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_for(lambda: demo.counter.exists() and "tick 1" in demo.counter.read_text())
    with demo.counter.open("a") as counter:
        counter.write("start (pid 1)\n")
    assert demo.end() == 1
    assert "✗ not as promised: the slow command started 2 times, not once\n" in demo.shown
    assert "counter.txt: 2 starts, 1 end\n" in demo.shown


@pytest.mark.long
def test_a_resume_that_fails_makes_the_demo_fail(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_for(lambda: demo.counter.exists())
    (demo.folder / "script.json").unlink()
    assert demo.end() == 1
    assert "not as promised: the resumed agent ended with exit code" in demo.shown
    assert not demo.processes()


@pytest.mark.long
def test_a_person_can_kill_the_host(start: Callable[..., Demo]) -> None:
    demo = start("--you-kill-it")
    found = demo.wait_for(lambda: re.search(r"^ +kill -9 (\d+)$", demo.shown, re.MULTILINE))
    os.kill(int(found[1]), signal.SIGKILL)
    assert demo.end() == 0, demo.shown
    lines = demo.counter.read_text().splitlines()
    assert [line.split()[0] for line in lines].count("start") == lines.count("end") == 1
    assert "; counter.txt: 1 start, 1 end\n" in demo.shown


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(start: Callable[..., Demo], number: signal.Signals) -> None:
    demo = start("--you-kill-it")
    demo.wait_for(lambda: demo.counter.exists())
    assert demo.processes()
    demo.process.send_signal(number)
    assert demo.end() == 128 + number
    assert not demo.processes()


@pytest.mark.long
def test_it_needs_neither_git_nor_a_network(start: Callable[..., Demo], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in TOOLS_WITHOUT_GIT:
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    unshare = ("unshare", "--map-root-user", "--net")
    alone = bool(shutil.which("unshare")) and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    demo = start(
        "--json", path=str(tmp_path / "bin"), before=(shutil.which("unshare") or "", *unshare[1:]) if alone else ()
    )
    assert demo.end() == 0, demo.shown
    assert "git" in demo.shown.partition("$ python")[0]
    told = json.loads(demo.shown.splitlines()[-1])
    assert (told["folder"], told["broken"], told["facts"]["recovered"]["again"]) == (str(demo.folder), [], 0)
    assert not (demo.folder / "project" / ".git").exists()


def test_a_folder_that_holds_something_is_left_alone(start: Callable[..., Demo], tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine").write_text("mine")
    demo = start()
    assert demo.end() == 2
    assert "is not empty" in demo.shown
    assert [path.name for path in demo.folder.iterdir()] == ["mine"]
