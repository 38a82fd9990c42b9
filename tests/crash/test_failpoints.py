"""The host killed at every append, just before and just after it, and on both sides of every effect."""

import json
import subprocess
import threading
from pathlib import Path

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer
from tests.crash.task import FILES, Crashing, edit, read, shell, write
from tests.e2e.rig import Rig

KILLED = -9
STEPS = [
    Step(text="First.", uses=(shell("s0"), read(), edit("e2"))),
    Step(uses=(write("w3"),)),
    Step(uses=(shell("s4", 0.2), shell("s5"))),
    Step(text="All done."),
]
"""Ten steps: four model calls, six tool calls."""


def crash_at_each(tmp_path: Path, place: str) -> int:
    """For each time that the place is reached a session of its own, killed there and run to its end. Their number."""
    count = 0
    with AnthropicServer(STEPS) as server:
        killed = True
        while killed:
            count += 1
            with Rig(tmp_path / str(count), FILES) as rig:
                rig.provider("anthropic", server.base_url)
                run = Crashing(rig, STEPS)
                killed = run.life(failpoint=f"{place}:{count}") == KILLED
                if killed:
                    run.to_the_end()
                run.assert_each_step_once()
                run.assert_log()
    assert server.violations == []
    return count - 1


@pytest.mark.long
@pytest.mark.parametrize("place", ["before_append", "after_append"])
def test_a_kill_at_every_append_loses_and_repeats_nothing(tmp_path: Path, place: str) -> None:
    assert crash_at_each(tmp_path, place) >= 10


@pytest.mark.long
@pytest.mark.parametrize("place", ["before_effect", "after_effect"])
def test_a_kill_on_either_side_of_every_effect_loses_and_repeats_nothing(tmp_path: Path, place: str) -> None:
    assert crash_at_each(tmp_path, place) == len(STEPS) + sum(len(step.uses) for step in STEPS)


@pytest.mark.long
@pytest.mark.parametrize("failpoint", ["after_append:3", "before_append:4"])
def test_a_session_that_is_killed_in_every_life_still_gets_to_its_end(tmp_path: Path, failpoint: str) -> None:
    """A life settles a doubt, starts what is due and records a result; no more, and none of it is lost."""
    with AnthropicServer(STEPS) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url)
        run = Crashing(rig, STEPS)
        lives = 1
        while run.life(failpoint=failpoint) == KILLED:
            lives += 1
            assert lives < 50, "it does not get on"
        run.assert_each_step_once()
        run.assert_log()
    assert lives > 5
    assert server.violations == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["before_claim", "after_claim", "before_recovery", "after_recovery"])
@pytest.mark.parametrize("first", ["before_effect:2", "after_effect:3", "after_effect:5"])
def test_a_recovery_that_is_killed_is_begun_again(tmp_path: Path, place: str, first: str) -> None:
    with AnthropicServer(STEPS) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url)
        run = Crashing(rig, STEPS)
        assert run.life(failpoint=first) == KILLED
        assert run.life(failpoint=f"{place}:1") == KILLED
        assert run.life(failpoint=f"{place}:2") in (KILLED, 0)
        if not run.ended:
            run.to_the_end()
        run.assert_each_step_once()
        run.assert_log()
    assert server.violations == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["before_append", "after_append"])
def test_a_cancel_holds_through_kills_at_every_append_that_follows(tmp_path: Path, place: str) -> None:
    steps = [Step(uses=(shell("s0", 30), shell("s1"))), Step(text="Never said.")]
    with AnthropicServer(steps) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url, "max_parallel_tools = 1")
        run = Crashing(rig, steps)

        def kill_it_once_it_runs(process: subprocess.Popen[str]) -> None:
            rig.wait_for(lambda: run.started() == {"s0 start": 1})
            process.kill()

        run.life(6, kill=kill_it_once_it_runs)
        assert rig.muse("cancel", "last", "--why", "enough").returncode == 0
        lives = 1
        while (code := run.life(failpoint=f"{place}:{lives}")) == KILLED:
            lives += 1
        assert code in (130, 0), run.errors
        assert rig.events()[-1]["body"]["outcome"] == "cancelled"
        assert lives > 2
        assert run.started() == {"s0 start": 1}
        assert rig.events() == [json.loads(line) for line in run.lines]
        assert [e["body"]["status"] for e in rig.of_type("tool.finished")] == ["cancelled"]
        assert len(server.requests) == 1
        assert rig.muse("resume", "last", "what now?").returncode == 0
    assert server.violations == []


@pytest.mark.long
def test_a_resume_with_nothing_left_to_do_closes_what_the_crash_left_open(tmp_path: Path) -> None:
    """The turn was cancelled while nobody ran it: then no step is left, and the log says how it ended."""
    steps = [Step(uses=(shell("s0"),)), Step(text="Never said.")]
    with AnthropicServer(steps) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url)
        run = Crashing(rig, steps)
        assert run.life(failpoint="before_observe:1") == KILLED
        assert rig.muse("cancel", "last", "--why", "enough").returncode == 0
        assert run.life() == 130
        assert (rig.events()[-1]["type"], rig.events()[-1]["body"]["outcome"]) == ("session.closed", "cancelled")
        assert not run.started()
        assert run.life() == 0  # now nothing is left at all, and that is said
        assert "nothing is left to do" in run.errors


def say_yes(rig: Rig, over: threading.Event) -> None:
    """A person elsewhere who approves every request, each once, whether or not somebody runs the session."""
    answered: set[int] = set()
    while not over.wait(0.02):
        for event in rig.of_type("approval.requested"):
            if event["seq"] not in answered:
                done = rig.muse("approve", f"last@{event['seq']}")
                assert done.returncode == 0, done.stderr
                answered.add(event["seq"])


@pytest.mark.long
@pytest.mark.parametrize("place", ["before_append", "after_append"])
def test_approvals_hold_through_kills_at_every_append(tmp_path: Path, place: str) -> None:
    """Each is asked for once and holds for its call; what is not approved does not run."""
    steps = [Step(uses=(shell("s0"), shell("s1"), write("w2"))), Step(uses=(shell("s3"),)), Step(text="All done.")]
    with AnthropicServer(steps) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url)
        run = Crashing(rig, steps, "--approval-timeout", "3600")
        over = threading.Event()
        person = threading.Thread(target=say_yes, args=(rig, over))
        lives = 1
        run.life(8)  # two of the three ask by then
        person.start()
        try:
            while not run.ended:
                assert run.life(failpoint=f"{place}:{lives}") in (KILLED, 0), run.errors
                lives += 1
        finally:
            over.set()
            person.join()
        assert lives > 3
        run.assert_each_step_once()
        run.assert_log()
        asked = [event["body"]["call"] for event in rig.of_type("approval.requested")]
        assert len(asked) == len(set(asked)) == 4
    assert server.violations == []
