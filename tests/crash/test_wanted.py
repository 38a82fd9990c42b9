"""The host killed on the way from a person's wish for an agent to that agent: there is one, and it works once."""

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.rig import Rig

TASK = "look for the cause"
KILLED = -signal.SIGKILL
PLACES = (
    "after_claim:1", "before_append:1", "after_append:1", "worktree_begun:1", "after_append:2", "before_append:3",
    "after_append:3", "before_append:5",
)  # fmt: skip
"""In the order in which a resumed session comes by them, first of all those around the append that spawns."""


@pytest.mark.parametrize("isolation", ["shared", "worktree"])
def test_killed_between_the_wish_and_its_agent_there_is_one_agent_and_it_works_once(
    tmp_path: Path, isolation: str
) -> None:
    count = {"uses": [["shell", {"command": "echo child >> ~/count"}]]}
    lanes = [{"when": TASK, "steps": [count, {"text": "The moon."}]}]
    with Rig(tmp_path) as rig:
        script = rig.folder / "script.json"
        script.write_text(json.dumps({"steps": [{"text": "Done."}, {"text": "Ah."}], "lanes": lanes}))
        assert rig.muse("exec", "--yolo", "-m", f"scripted/{script}", "do it").returncode == 0
        said = rig.muse("spawn", "last", TASK, "--isolation", isolation, "--json")
        assert json.loads(said.stdout)["agent"] == "main.1"
        killed = [rig.muse("resume", "last", extra={"MUSE_FAILPOINT": place}).returncode == KILLED for place in PLACES]
        assert all(killed[:3]), killed
        done = rig.muse("resume", "last", "--json")
        assert done.returncode == 0, done.stderr
        assert (rig.home / "count").read_text() == "child\n"
        (wish,) = rig.of_type("agent.wanted")
        assert [(event["agent"], event["cause"]) for event in rig.of_type("agent.spawned")][1:] == [
            ("main.1", wish["seq"])
        ]
        assert len(rig.of_type("result.delivered")) == 1
        assert [event["body"]["outcome"] for event in rig.of_type("agent.finished")] == ["done"]
        verified = rig.muse("replay", "last", "--verify")
        assert (verified.returncode, "nothing diverges" in verified.stdout) == (0, True), verified.stdout


def test_a_wish_that_a_stopped_host_did_not_hear_is_followed_by_the_next_one(tmp_path: Path) -> None:
    wait = {"uses": [["shell", {"command": "touch ~/begun; until test -e ~/go; do sleep 0.02; done"}]]}
    lanes = [{"when": TASK, "steps": [{"text": "The moon."}]}]
    with Rig(tmp_path) as rig:
        script = rig.folder / "script.json"
        script.write_text(json.dumps({"steps": [wait, {"text": "Ah."}], "lanes": lanes}))
        host = rig.start("exec", "--yolo", "-m", f"scripted/{script}", "do it")
        rig.wait_for((rig.home / "begun").exists)
        host.send_signal(signal.SIGSTOP)
        said = rig.muse("spawn", "last", TASK, "--json")
        answer = json.loads(said.stdout)
        assert (answer["running"], answer["agent"], answer["refused"]) == (True, "", ""), "it may still come, or not"
        host.kill()
        host.wait()
        (rig.home / "go").touch()
        assert rig.muse("resume", "last").returncode == 0
        assert [event["cause"] for event in rig.of_type("agent.spawned")][1:] == [answer["seq"]]
        assert len(rig.of_type("result.delivered")) == 1
        assert rig.muse("replay", "last", "--verify").returncode == 0
