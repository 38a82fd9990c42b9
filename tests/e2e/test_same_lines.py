"""What an outside process reads of `--json` while the session runs is what `replay --json` shows afterwards."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests import warm
from tests.e2e.rig import Rig


class Watched:
    """The command with its standard output read line by line as it comes."""

    def __init__(self, rig: Rig, *arguments: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop
        self.process = warm.Popen(
            [*rig.command, *arguments], cwd=rig.workspace, env=rig.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self.lines: list[str] = []

    def until(self, *types: str) -> dict[str, Any]:
        """Read on to the first event of one of these types."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            event: dict[str, Any] = json.loads(line)
            if event["type"] in types:
                return event
        raise AssertionError(f"it ended before {types}: {self.end()} {self.errors}")

    def end(self) -> int:
        """Read to the end; the exit code."""
        assert self.process.stdout is not None
        # Not communicate(), which loses what was read ahead; a line that a kill broke off is none.
        self.lines += [line for line in self.process.stdout if line.endswith("\n")]
        code = self.process.wait(timeout=60)
        self._errors.seek(0)
        self.errors = self._errors.read()
        return code

    def stop(self) -> None:
        """Kill it if it still runs, and let go of its streams."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@contextmanager
def watched(rig: Rig, *arguments: str) -> Iterator[Watched]:
    one = Watched(rig, *arguments)
    try:
        yield one
    finally:
        one.stop()


def replayed(rig: Rig) -> str:
    return rig.muse("replay", "last", "--json").stdout


STEPS = [
    {"text": "One.", "uses": [["shell", {"command": "echo one"}], ["read", {"path": "README.md"}]]},
    {"uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done; echo two"}]]},
    {"uses": [["write", {"path": "new.txt", "content": "zażółć \u2028 🦊\n"}]]},
    {"text": "Done."},
]


def test_the_lines_of_a_run_are_those_of_its_replay(rig: Rig) -> None:
    (rig.workspace / "go").touch()
    done = rig.muse("exec", "--yolo", "--json", "-m", rig.script(STEPS), "go on")
    assert done.returncode == 0
    assert done.stdout == replayed(rig)
    assert done.stdout == rig.muse("log", "last", "--json").stdout
    assert [json.loads(line)["seq"] for line in done.stdout.split("\n")[:-1]] == list(range(1, 22))


def test_commands_from_other_processes_stand_in_both_at_the_same_place(rig: Rig) -> None:
    asking = {"uses": [["shell", {"command": "touch asked"}]]}
    with watched(rig, "exec", "--json", "-m", rig.script([asking, *STEPS[:2], asking, STEPS[3]]), "go on") as run:
        run.until("approval.requested")
        assert rig.muse("approve").returncode == 0
        for _ in range(4):
            run.until("tool.started")
        assert rig.muse("steer", "last", "look at tests too").returncode == 0
        run.until("agent.steered")
        (rig.workspace / "go").touch()
        run.until("approval.requested")
        assert rig.muse("approve").returncode == 0
        assert run.end() == 0, run.errors
    assert "".join(run.lines) == replayed(rig)
    types = [json.loads(line)["type"] for line in run.lines]
    assert types.count("approval.decided") == 2
    assert types.count("agent.steered") == 1
    rig.verify()


def test_after_a_crash_the_lines_of_both_lives_are_those_of_the_replay(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script(STEPS), "go on") as first:
        for _ in range(3):
            first.until("tool.started")
        first.process.kill()
        first.end()
    assert rig.muse("steer", "last", "said while nobody ran it").returncode == 0
    last = json.loads(first.lines[-1])["seq"]
    (rig.workspace / "go").touch()
    with watched(rig, "resume", "last", "--json", "--after", str(last)) as second:
        assert second.end() == 0, second.errors
    assert "".join(first.lines + second.lines) == replayed(rig)
    again = rig.muse("resume", "last", "--json", "--after", "3")
    assert "".join(first.lines[:3]) + again.stdout == replayed(rig)


def test_a_reader_that_comes_late_and_follows_sees_the_same_lines(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script(STEPS), "go on") as run:
        for _ in range(3):
            run.until("tool.started")
        with watched(rig, "log", "last", "-f", "--json") as late:
            late.until("tool.started")
            (rig.workspace / "go").touch()
            late.until("session.closed")
            assert run.end() == 0
    assert late.lines == run.lines
