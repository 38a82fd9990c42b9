"""Approvals without a terminal: a request waits for a word from another process, and what was said holds."""

import json
from typing import Any

import pytest

from tests.e2e.rig import BIN, Event, Rig
from tests.e2e.test_same_lines import watched

ASKS = {"uses": [["shell", {"command": "echo ran >> ran.txt"}]]}
TWO = {"uses": [["shell", {"command": "echo a >> ran.txt"}], ["shell", {"command": "echo b >> ran.txt"}]]}
DONE = {"text": "Done."}


def ran(rig: Rig) -> list[str]:
    path = rig.workspace / "ran.txt"
    return path.read_text().split() if path.exists() else []


def result_of(rig: Rig, call: str) -> str:
    """What the model was told of a call."""
    found = [event for event in rig.of_type("tool.finished") if event["body"]["call"] == call]
    return str(found[-1]["body"]["text"])


def told(rig: Rig, steps: list[dict[str, Any]]) -> str:
    return rig.script([*steps, DONE])


def test_a_request_waits_until_another_process_approves_it(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [ASKS]), "go on") as run:
        request = run.until("approval.requested")
        listed = rig.muse("approvals", "--json")
        (waits,) = [json.loads(line) for line in listed.stdout.splitlines()]
        assert waits["seq"] == request["seq"]
        assert "echo ran >> ran.txt" in waits["shown"]
        assert ran(rig) == []
        done = rig.muse("approve", f"{rig.session()}@{request['seq']}")
        assert done.returncode == 0, done.stderr
        assert run.end() == 0, run.errors
    assert ran(rig) == ["ran"]
    (decided,) = rig.of_type("approval.decided")
    assert (decided["body"]["by"], decided["body"]["request"]) == ("person", request["seq"])
    assert decided["body"]["shown_sha256"] == request["body"]["shown_sha256"]
    assert done.stdout == f"#{decided['seq']}\n"
    (started,) = rig.of_type("tool.started")
    assert started["body"]["approval"] == decided["seq"]
    rig.verify()


def test_a_no_goes_to_the_model_with_its_note_and_the_run_goes_on(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [ASKS]), "go on") as run:
        request = run.until("approval.requested")
        assert rig.muse("deny", f"last@{request['seq']}", "--note", "use the Makefile").returncode == 0
        asked = run.until("model.requested")
        assert run.end() == 0, run.errors
    assert ran(rig) == []
    assert rig.of_type("tool.started") == []
    assert asked["body"]["items"] == 3
    shown = rig.muse("export", "last", "--format", "md")
    assert "use the Makefile" in shown.stdout
    rig.verify()


def test_nobody_answers_so_it_is_denied_and_the_run_ends_with_3_and_resumes(rig: Rig) -> None:
    done = rig.muse("exec", "--approval-timeout", "1", "-m", told(rig, [ASKS, ASKS]), "go on")
    assert done.returncode == 3, done.stderr
    assert "muse approve" in done.stderr
    (decided,) = rig.of_type("approval.decided")
    assert (decided["body"]["decision"], decided["body"]["by"]) == ("deny", "timeout")
    assert ran(rig) == []
    late = rig.muse("approve", f"last@{decided['body']['request']}")
    assert late.returncode == 2
    assert "late" in late.stderr
    again = rig.muse("resume", "last", "go on then", "--yolo")
    assert again.returncode == 0, again.stderr
    assert ran(rig) == ["ran"]
    rig.verify()


def test_of_two_answers_the_first_counts(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [ASKS]), "go on") as run:
        request = run.until("approval.requested")
        first = rig.start("deny", f"last@{request['seq']}", out="deny")
        second = rig.start("approve", f"last@{request['seq']}", out="approve")
        codes = sorted([first.wait(60), second.wait(60)])
        assert codes == [0, 2], rig.said()
        assert run.end() == 0, run.errors
    answers = [event for event in rig.of_type("approval.decided") if event["body"]["by"] == "person"]
    assert ran(rig) == (["ran"] if answers[0]["body"]["decision"] == "allow" else [])
    assert (answers[0]["body"]["decision"] == "allow") == (second.returncode == 0)
    rig.verify()


def test_a_batch_with_two_requests_takes_each_answer_for_its_own_call(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [TWO]), "go on") as run:
        requests = [run.until("approval.requested"), run.until("approval.requested")]
        both = rig.muse("approve")
        assert both.returncode == 2
        assert "2 requests wait" in both.stderr
        assert rig.muse("approve", f"last@{requests[1]['seq']}").returncode == 0
        started = run.until("tool.started")
        assert rig.muse("deny", f"last@{requests[0]['seq']}").returncode == 0
        assert run.end() == 0, run.errors
    assert started["body"]["call"] == requests[1]["body"]["call"]
    assert ran(rig) == ["b"]
    rig.verify()


def approvals(events: list[Event]) -> list[tuple[str, str]]:
    return [(e["type"], e["body"]["call"]) for e in events if e["type"].startswith("approval.")]


def test_an_open_request_outlives_a_kill_and_an_answer_given_meanwhile_holds_for_that_call_only(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [TWO, ASKS]), "go on") as run:
        requests = [run.until("approval.requested"), run.until("approval.requested")]
        run.process.kill()
        run.end()
    assert rig.muse("approve", f"last@{requests[0]['seq']}").returncode == 0
    assert ran(rig) == []
    with watched(rig, "resume", "last", "--json") as again:
        finished = again.until("tool.finished")
        assert finished["body"]["call"] == requests[0]["body"]["call"]
        listed = rig.muse("approvals", "--json").stdout
        assert json.loads(listed)["seq"] == requests[1]["seq"]
        assert ran(rig) == ["a"]
        assert rig.muse("approve", f"last@{requests[1]['seq']}").returncode == 0
        third = again.until("approval.requested")  # the next call asks anew
        assert ran(rig) == ["a", "b"]
        assert rig.muse("deny", f"last@{third['seq']}").returncode == 0
        assert again.end() == 0, again.errors
    assert ran(rig) == ["a", "b"]
    asked = [call for type_, call in approvals(rig.events()) if type_ == "approval.requested"]
    assert len(asked) == len(set(asked)) == 3
    rig.verify()


def test_what_waited_when_its_host_was_killed_is_listed_and_answered_while_nobody_runs_the_session(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [ASKS]), "go on") as run:
        request = run.until("approval.requested")
        run.process.kill()
        run.end()
    (left,) = [json.loads(line) for line in rig.muse("approvals", "--json").stdout.splitlines()]
    assert (left["session"], left["seq"], left["running"]) == (rig.session(), request["seq"], False)
    said = rig.muse("approvals").stdout
    assert "echo ran >> ran.txt" in said
    assert "nobody runs this session" in said
    assert f"waits for approval @{request['seq']}" in rig.muse("ls").stdout
    assert rig.muse("approve").returncode == 0
    assert rig.muse("approvals", "--json").stdout == ""
    assert ran(rig) == []
    assert rig.muse("resume", "last").returncode == 0
    assert ran(rig) == ["ran"]


def test_a_waiting_request_is_told_again_after_a_kill(rig: Rig) -> None:
    with watched(rig, "exec", "--json", "-m", told(rig, [ASKS]), "go on") as run:
        request = run.until("approval.requested")
        run.process.kill()
        run.end()
    process = rig.start("resume", "last", out="again")
    rig.wait_for(lambda: f"@{request['seq']}" in (rig.folder / "again.err").read_text())
    assert rig.muse("approve").returncode == 0
    assert process.wait(60) == 0
    assert ran(rig) == ["ran"]


def test_an_approval_given_before_a_kill_holds_for_exactly_that_call(rig: Rig) -> None:
    """B39: approved and started, killed: the command is attached to, neither asked for nor run again."""
    slow = {"uses": [["shell", {"command": "echo ran >> ran.txt; until [ -e go ]; do sleep 0.02; done"}]]}
    with watched(rig, "exec", "--json", "-m", told(rig, [slow, slow]), "go on") as run:
        run.until("approval.requested")
        assert rig.muse("approve").returncode == 0
        run.until("tool.started")
        rig.wait_for(lambda: ran(rig) == ["ran"])
        run.process.kill()
        run.end()
    (rig.workspace / "go").touch()
    with watched(rig, "resume", "last", "--json") as again:
        second = again.until("approval.requested")
        assert ran(rig) == ["ran"]
        assert rig.muse("deny", f"last@{second['seq']}").returncode == 0
        assert again.end() == 0, again.errors
    assert ran(rig) == ["ran"]
    rig.verify()


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_a_command_of_the_agent_may_not_answer(rig: Rig, word: str) -> None:
    """The agent's own shell calls `muse approve`: refused, and the log keeps only a note of it."""
    command = f"MUSE_HOME={rig.muse_home} muse {word} last > said.txt 2>&1; echo $? > code.txt"
    rig.environment["PATH"] = f"{BIN}:{rig.environment['PATH']}"
    steps = [{"uses": [["shell", {"command": command}], ["shell", {"command": "echo ran >> ran.txt"}]]}]
    with watched(rig, "exec", "--json", "-m", told(rig, steps), "go on") as run:
        requests = [run.until("approval.requested"), run.until("approval.requested")]
        assert rig.muse("approve", f"last@{requests[0]['seq']}").returncode == 0
        run.until("tool.finished")
        assert rig.muse("deny", f"last@{requests[1]['seq']}").returncode == 0
        assert run.end() == 0, run.errors
    assert rig.read("code.txt") == "2\n"
    assert "an agent may not" in rig.read("said.txt")
    notes = [event["body"]["text"] for event in rig.of_type("note.added")]
    assert notes == [f"refused: a command run by the agent tried: {word} last"]
    assert ran(rig) == []
    assert len(rig.of_type("approval.decided")) == 2
