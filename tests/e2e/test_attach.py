"""`muse attach`: a second process watches a running session, live, and touches nothing (B17)."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.e2e.rig import Rig
from tests.e2e.test_same_lines import watched

WAITS = {"text": "I will wait.", "uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done"}]]}
DONE = {"text": "All is done."}


def out(rig: Rig, name: str) -> str:
    return (rig.folder / name).read_text()


def lines(rig: Rig, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out(rig, name).splitlines()]


def test_what_is_attached_sees_every_event_once_and_ends_with_the_session(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        second = rig.start("attach", "--json", out="all")
        later = rig.start("attach", "last", "--json", "--after", "3", out="later")
        rig.wait_for(lambda: out(rig, "all").count("\n") == len(run.lines))
        assert rig.muse("steer", "last", "hurry").returncode == 0
        (rig.workspace / "go").touch()
        assert run.end() == 0, run.errors
    assert (second.wait(30), later.wait(30)) == (0, 0), rig.said()
    assert out(rig, "all") == "".join(run.lines)
    assert lines(rig, "all")[3:] == lines(rig, "later")
    assert "hurry" in out(rig, "all")


def test_the_conversation_is_shown_with_its_answer_and_how_to_speak(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        second = rig.start("attach", out="seen")
        rig.wait_for(lambda: "muse steer" in out(rig, "seen.err") and "I will wait." in out(rig, "seen.err"))
        assert f"process {run.process.pid} runs it" in out(rig, "seen.err")
        (rig.workspace / "go").touch()
        assert run.end() == 0, run.errors
    assert second.wait(30) == 0
    assert out(rig, "seen") == "All is done.\n"
    assert "go on" in out(rig, "seen.err")


def test_ctrl_c_detaches_and_the_session_goes_on(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        second = rig.start("attach", out="seen")
        rig.wait_for(lambda: "I will wait." in out(rig, "seen.err"))
        second.send_signal(signal.SIGINT)
        assert second.wait(30) == 130
        assert "detached" in out(rig, "seen.err")
        third = rig.start("attach", "--json", out="third")
        rig.wait_for(lambda: out(rig, "third").count("\n") == len(run.lines))
        third.kill()
        (rig.workspace / "go").touch()
        assert run.end() == 0, run.errors
    assert [event["type"] for event in rig.events() if event["type"] in ("cancel.requested", "note.added")] == []
    rig.verify()


def test_an_approval_is_announced_and_can_be_given_meanwhile(rig: Rig) -> None:
    asks = {"uses": [["shell", {"command": "touch allowed.txt"}]]}
    with watched(rig, "exec", "--json", "-m", rig.script([asks, DONE]), "go on") as run:
        asked = run.until("approval.requested")
        second = rig.start("attach", out="seen")
        rig.wait_for(lambda: f"@{asked['seq']}" in out(rig, "seen.err"))
        assert "touch allowed.txt" in out(rig, "seen.err")
        assert rig.muse("approve", f"last@{asked['seq']}").returncode == 0
        assert run.end() == 0, run.errors
    assert second.wait(30) == 0
    assert (rig.workspace / "allowed.txt").exists()


def test_an_ended_session_is_shown_and_its_outcome_is_the_exit_code(rig: Rig) -> None:
    failing = rig.script([{"failure": {"failure": "auth", "times": 9, "message": "wrong key"}}])
    assert rig.muse("exec", "-m", failing, "greet").returncode == 4
    seen = rig.muse("attach", "last", "--json")
    assert seen.returncode == 4
    assert seen.stdout == rig.muse("log", "last", "--json").stdout
    few = rig.muse("attach", "last", "--json", "-n", "2")
    assert few.stdout.splitlines() == seen.stdout.splitlines()[-2:]
    assert rig.muse("attach", "last@2").returncode == 2
    assert rig.muse("attach", "last", "--after", "999").returncode == 2


def test_a_killed_owner_ends_what_is_attached_and_is_told(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        second = rig.start("attach", out="seen")
        stays = rig.start("attach", "--follow", "--json", out="stays")
        rig.wait_for(lambda: "I will wait." in out(rig, "seen.err") and "tool.started" in out(rig, "stays"))
        run.process.kill()
        run.end()
        assert second.wait(30) == 1
        assert "is gone, and did not close it" in " ".join(out(rig, "seen.err").split())
        (rig.workspace / "go").touch()
        assert rig.muse("resume", "last").returncode == 0
        rig.wait_for(lambda: "session.closed" in out(rig, "stays"))
        stays.send_signal(signal.SIGINT)
        assert stays.wait(30) == 130
    assert lines(rig, "stays") == rig.events()


def test_it_stays_attached_to_a_chat_between_its_turns(rig: Rig) -> None:
    with watched(rig, "--json", "-m", rig.script([DONE, {"text": "Again."}]), "greet") as run:
        run.until("session.closed")
        os.kill(run.process.pid, signal.SIGSTOP)  # so that it does not leave: its input has ended
        second = rig.start("attach", "--json", out="seen")
        rig.wait_for(lambda: "session.closed" in out(rig, "seen"))
        with pytest.raises(subprocess.TimeoutExpired):  # several of its looks at the owner
            second.wait(1)
        os.kill(run.process.pid, signal.SIGCONT)
        assert run.end() == 0
    assert second.wait(30) == 0


def test_attaching_writes_nothing(rig: Rig) -> None:
    assert rig.muse("exec", "-m", rig.script([DONE]), "greet").returncode == 0
    before = rig.path().read_bytes()
    assert rig.muse("attach", "last").returncode == 0
    assert rig.path().read_bytes() == before


def test_who_stops_listening_ends_it(rig: Rig) -> None:
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([WAITS, DONE]), "go on") as run:
        run.until("tool.started")
        with watched(rig, "attach", "--json") as second:
            second.until("tool.started")
            assert second.process.stdout is not None
            second.process.stdout.close()
            assert rig.muse("steer", "last", "hurry").returncode == 0
            assert second.process.wait(30) == 0
            (rig.workspace / "go").touch()
            assert run.end() == 0, run.errors
            second.process.stdout = open(os.devnull)  # noqa: SIM115 - closed by stop
