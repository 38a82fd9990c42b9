"""A wall clock that jumps, an hour back and a day forward, changes nothing but the times that are shown (B62): not the
order of events and sessions, not who owns a session, not how long anything may take, and not what a resume does."""

import json
import signal
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

import pytest

from tests.e2e.fake_clock import FakeClock, Way, has_compiler
from tests.e2e.rig import Rig
from tests.e2e.test_same_lines import watched

HOUR, DAY = 3600, 86400


@pytest.fixture(params=["preload", "python"])
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    if found == "preload" and not has_compiler():
        pytest.skip("a clock for all libraries of a process needs Linux and a C compiler (cc)")
    return found


@pytest.fixture
def clock(rig: Rig, way: Way) -> FakeClock:
    return FakeClock(rig, way)


def waits(number: int) -> str:
    """A command that waits for a word of the test, counted outside."""
    return f"echo {number} >> ran.txt; until [ -e go{number} ]; do sleep 0.02; done; echo ended {number}"


def step(number: int) -> dict[str, object]:
    return {"uses": [["shell", {"command": waits(number)}]]}


def ran(rig: Rig) -> list[str]:
    path = rig.workspace / "ran.txt"
    return path.read_text().split() if path.exists() else []


def has_run(rig: Rig, number: int) -> Callable[[], bool]:
    return lambda: str(number) in ran(rig)


def spans(rig: Rig) -> list[float]:
    """Seconds from each event's time to the next one's."""
    times = [datetime.fromisoformat(event["time"]).timestamp() for event in rig.events()]
    return [after - before for before, after in pairwise(times)]


def accepted_at(rig: Rig) -> list[float]:
    """When the runner says that it took each command that it still knows of."""
    found = [json.loads(path.read_text()) for path in rig.muse_home.glob("run/*/calls/*/accepted")]
    return [accepted["time_ms"] / 1000 for accepted in found]


def test_b62_a_clock_that_jumps_under_a_running_session_and_at_its_resume_moves_no_event(
    rig: Rig, clock: FakeClock
) -> None:
    script = rig.script([*(step(n) for n in range(5)), {"text": "Done."}])
    with watched(rig, "exec", "--yolo", "--json", "-m", script, "go on") as run:
        for number, shift in enumerate((-HOUR, DAY, 0)):
            rig.wait_for(has_run(rig, number))
            if number == 1:  # the runner's clock is the changed one too
                assert min(accepted_at(rig)) < time.time() - HOUR / 2
            clock.shift(shift)
            (rig.workspace / f"go{number}").touch()
        rig.wait_for(has_run(rig, 3))
        run.process.kill()
        run.end()
    clock.shift(-DAY)
    with watched(rig, "resume", "last", "--json") as run:
        run.until("effect.reconciled")
        clock.shift(DAY)
        (rig.workspace / "go3").touch()
        rig.wait_for(has_run(rig, 4))
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 143
    clock.shift(-HOUR)
    (rig.workspace / "go4").touch()
    again = rig.muse("resume", "last")
    assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert ran(rig) == ["0", "1", "2", "3", "4"]
    events = rig.events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["epoch"] for event in events if event["type"] == "session.opened"] == [1, 2, 3]
    results = [event["body"] for event in events if event["type"] == "tool.finished"]
    assert [result["text"] for result in results] == [f"ended {n}\nexit code 0" for n in range(5)]
    assert all(0 <= result["duration_ms"] < 60_000 for result in results)
    jumps = [span for span in spans(rig) if abs(span) > HOUR / 2]  # the test did turn the clock
    assert len(jumps) >= 5
    assert min(jumps) < -DAY
    assert max(jumps) > DAY
    rig.verify()


def test_b62_a_time_out_runs_on_a_clock_that_only_goes_forward(rig: Rig, clock: FakeClock) -> None:
    """A day forward ends no command and no approval early; an hour back does not keep them waiting."""
    uses = [["shell", {"command": waits(0), "timeout_seconds": 600}]]
    late = [["shell", {"command": "echo late >> ran.txt; sleep 300", "timeout_seconds": 2}]]
    script = rig.script([{"uses": uses}, {"uses": late}, {"text": "Done."}])
    with watched(rig, "exec", "--approval-timeout", "600", "--json", "-m", script, "go on") as run:
        run.until("approval.requested")
        clock.shift(DAY)
        assert rig.muse("approve", "last", "--json").returncode == 0
        rig.wait_for(has_run(rig, 0))
        clock.shift(3 * DAY)
        rig.wait_for(lambda: rig.muse("ls", "--json").stdout)
        (rig.workspace / "go0").touch()
        run.until("approval.requested")
        assert rig.muse("approve", "last", "--json").returncode == 0
        rig.wait_for(lambda: "late" in ran(rig))
        clock.shift(-HOUR)
        assert run.end() == 0, run.errors
    first, second = (event["body"] for event in rig.of_type("tool.finished"))
    assert first["text"] == "ended 0\nexit code 0"
    assert "timed out" in second["text"]
    assert 2_000 <= second["duration_ms"] < 60_000
    rig.verify()


def test_b62_an_approval_that_nobody_answers_ends_under_a_clock_set_back(rig: Rig, clock: FakeClock) -> None:
    script = rig.script([{"uses": [["shell", {"command": "touch never"}]]}, {"text": "Done."}])
    with watched(rig, "exec", "--approval-timeout", "1", "--json", "-m", script, "go on") as run:
        run.until("approval.requested")
        clock.shift(-DAY)
        assert run.end() == 3, run.errors
    assert not (rig.workspace / "never").exists()
    rig.verify()


def test_b62_who_owns_a_session_does_not_depend_on_the_clock(rig: Rig, clock: FakeClock) -> None:
    script = rig.script([step(0), {"text": "Done."}])
    with watched(rig, "exec", "--yolo", "--json", "-m", script, "go on") as run:
        rig.wait_for(has_run(rig, 0))
        for shift in (DAY, -DAY):
            clock.shift(shift)
            second = rig.muse("resume", "last")
            assert second.returncode == 7, second.stderr
            (listed,) = rig.muse("ls", "--json").stdout.splitlines()
            assert (json.loads(listed)["state"], json.loads(listed)["pid"]) == ("running", run.process.pid)
        run.process.kill()
        run.end()
    (rig.workspace / "go0").touch()
    again = rig.muse("resume", "last")  # at once: no lease has to run out, whatever the clock says
    assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert ran(rig) == ["0"]
    rig.verify()


def test_b62_the_session_made_last_is_the_last_one_whatever_the_clock_said(rig: Rig, clock: FakeClock) -> None:
    made = []
    for number, shift in enumerate((DAY, -HOUR, 0, -DAY)):
        clock.shift(shift)
        done = rig.muse("exec", "--yolo", "-m", rig.script([{"text": f"I am {number}."}]), "who are you?")
        assert done.stdout == f"I am {number}.\n", done.stderr
        made += [path.stem for path in rig.logs() if path.stem not in made]
        listed = [json.loads(line)["session"] for line in rig.muse("ls", "--json").stdout.splitlines()]
        assert listed == list(reversed(made))
    assert "I am 3." in rig.muse("replay", "last").stdout
