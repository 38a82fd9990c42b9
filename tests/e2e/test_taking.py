"""Taking a session from the process that runs it: ended as the kernel knows it, fenced where it cannot be ended.

B17: a second client can always attach, and an explicit take-over fences the old owner by its epoch. Effects are counted
outside, in files of the workspace.
"""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from muse.log.lock import read_owner
from tests.e2e.rig import MUSE, Rig
from tests.e2e.test_same_lines import watched

WAITS = {"uses": [["shell", {"command": "echo ran >> ran.txt; until [ -e go ]; do sleep 0.02; done"}]]}
THEN = {"uses": [["shell", {"command": "echo then >> then.txt"}]]}
DONE = {"text": "Done."}


def taken(rig: Rig) -> list[dict[str, object]]:
    return [event["body"] for event in rig.of_type("ownership.taken")]


def test_a_busy_session_names_its_owner_and_the_three_ways_on(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        for words in (["resume", "last"], ["--continue"]):
            refused = rig.muse(*words)
            assert refused.returncode == 7
            said = " ".join(refused.stderr.split())
            assert f"process {run.process.pid} runs this session" in said
            for way in ("muse attach", "muse steer", "--take-over"):
                assert way in said
        (rig.workspace / "go").touch()
        assert run.end() == 0, run.errors


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_session_is_taken_from_its_owner_and_nothing_runs_twice(rig: Rig, stopped: bool) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, THEN, DONE]), "go on") as run:
        run.until("tool.started")
        rig.wait_for((rig.workspace / "ran.txt").exists)
        if stopped:
            os.kill(run.process.pid, signal.SIGSTOP)
        second = rig.start("resume", "last", "--take-over", "--json", out="second")
        rig.wait_for(lambda: len(rig.of_type("session.opened")) == 2)
        if stopped:
            assert run.process.wait(30) == -signal.SIGKILL
            with pytest.raises(ProcessLookupError):
                os.kill(run.process.pid, signal.SIGCONT)
        else:
            assert run.process.wait(30) == 143
        (rig.workspace / "go").touch()
        assert second.wait(60) == 0, rig.said()
    assert (rig.read("ran.txt"), rig.read("then.txt")) == ("ran\n", "then\n")
    (told,) = taken(rig)
    assert (told["epoch"], told["previous_pid"], "forced" in told) == (2, run.process.pid, False)
    assert ("killed" if stopped else "left when asked") in str(told["evidence"])
    opened = rig.of_type("session.opened")
    assert [event["seq"] + 1 for event in opened[1:]] == [event["seq"] for event in rig.of_type("ownership.taken")]
    rig.verify()


def test_what_the_lock_file_says_is_no_reason_to_end_a_process(rig: Rig) -> None:
    """Anybody can write into it."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
            run.until("tool.started")
            lock = rig.path().with_suffix(".lock")
            owner = read_owner(lock)
            assert owner is not None
            lock.write_text(json.dumps({"pid": bystander.pid}))
            (rig.workspace / "go").touch()
            done = rig.muse("resume", "last", "--take-over")
            assert done.returncode == 0, done.stderr
            assert run.process.wait(30) in (0, 143)
        assert bystander.poll() is None
        bystander.kill()


def test_taking_over_what_nobody_runs_is_a_plain_resume(rig: Rig) -> None:
    assert rig.muse("exec", "--yolo", "-m", rig.script([DONE, DONE]), "greet").returncode == 0
    again = rig.muse("resume", "last", "more", "--take-over")
    assert again.returncode == 0, again.stderr
    assert taken(rig) == []
    alone = rig.muse("resume", "last", "more", "--force")
    assert alone.returncode == 2
    assert "--take-over" in alone.stderr


def test_an_idle_session_is_taken_over_and_says_so(rig: Rig) -> None:
    with watched(rig, "--json", "-m", rig.script([DONE]), "greet") as run:
        run.until("session.closed")
        os.kill(run.process.pid, signal.SIGSTOP)
        done = rig.muse("resume", "last", "--take-over")
        assert done.returncode == 0, done.stderr
        assert f"taken over from process {run.process.pid}" in done.stderr
    assert len(taken(rig)) == 1
    rig.verify()


def apart(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where other processes cannot be seen: in a pid namespace of its own."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc", MUSE, *arguments]
    return subprocess.run(
        inside, cwd=rig.workspace, env=rig.environment, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def can_unshare() -> bool:
    tried = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a pid namespace")
def test_an_owner_that_cannot_be_seen_is_left_alone_and_fenced_when_forced(rig: Rig, tmp_path: Path) -> None:
    """SIGSTOP, a forced take-over, SIGCONT: the old owner starts nothing more, and exits with 7."""
    slow = {"text": "Hello.", "delay_ms": 1500}
    model = rig.script([slow, THEN, DONE])
    with watched(rig, "exec", "--yolo", "--json", "-m", model, "greet") as run:
        run.until("model.requested")
        os.kill(run.process.pid, signal.SIGSTOP)
        refused = apart(rig, "resume", "last", "--take-over")
        assert refused.returncode == 7
        assert str(run.process.pid) in refused.stderr
        assert "--force" in refused.stderr
        assert len(rig.of_type("session.opened")) == 1
        forced = apart(rig, "resume", "last", "--take-over", "--force", "-m", rig.script([DONE], "new.json"))
        assert forced.returncode == 0, forced.stderr
        assert "one effect may start twice" in forced.stderr
        os.kill(run.process.pid, signal.SIGCONT)
        assert run.end() == 7, run.errors
    assert not (rig.workspace / "then.txt").exists()
    (told,) = taken(rig)
    assert (told["epoch"], told["previous_pid"], told["forced"]) == (2, run.process.pid, True)
    assert "one effect may start twice" in str(told["evidence"])
    assert {event["epoch"] for event in rig.events() if event["seq"] > rig.of_type("ownership.taken")[0]["seq"]} == {2}
    third = rig.muse("resume", "last", "more")
    assert third.returncode == 0, third.stderr
    rig.verify()


def test_a_chat_takes_over_and_goes_on(rig: Rig) -> None:
    with watched(rig, "--json", "-m", rig.script([DONE, {"text": "And again."}]), "greet") as run:
        run.until("session.closed")
        os.kill(run.process.pid, signal.SIGSTOP)
        done = subprocess.run(
            [MUSE, "--continue", "--take-over"], cwd=rig.workspace, env=rig.environment, input="once more\n",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "And again." in done.stdout
    assert len(taken(rig)) == 1
    rig.verify()


def test_an_agent_may_not_take_its_own_session_over(rig: Rig) -> None:
    command = f"{MUSE} resume last --take-over; echo code $?"
    asks = {"uses": [["shell", {"command": f"MUSE_HOME={rig.muse_home} {command}"}]]}
    done = rig.muse("exec", "--yolo", "--sandbox", "off", "-m", rig.script([asks, DONE]), "go on")
    assert done.returncode == 0, done.stderr
    assert "code 2" in str(rig.of_type("tool.finished")[0]["body"]["text"])
    assert "resume --take-over" in rig.of_type("note.added")[0]["body"]["text"]
    assert taken(rig) == []
