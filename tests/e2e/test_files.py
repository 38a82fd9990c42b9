"""Every change to files is in the log: seen from the command line, through crashes, and with ten thousand files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer
from tests.e2e.rig import MUSE, PATIENCE_SECONDS, Rig

PEAK_BYTES_MAX = 200 * 1000 * 1000
MEASURED = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)"""
"""Runs a command from a small process (the peak of a child counts from its fork on) and prints its peak in KiB."""


def paths(rig: Rig) -> list[list[str]]:
    return [[one["path"] for one in event["body"]["changes"]] for event in rig.of_type("files.changed")]


def test_what_a_command_changed_is_in_log_replay_and_show(rig: Rig) -> None:
    command = "echo more >> README.md; rm src/tax.py; mkdir new; echo 1 > new/a; chmod +x src/shop.py"
    model = rig.script([{"uses": [["shell", {"command": command}]]}, {"text": "done"}])
    assert rig.muse("exec", "--yolo", "-m", model, "go").returncode == 0
    (event,) = rig.of_type("files.changed")
    assert (event["body"]["calls"], event["body"]["external"]) == (["main/2"], True)
    line = next(line for line in rig.muse("log").stdout.splitlines() if "files" in line)
    for part in ("README.md (21 B → 26 B)", "new new/a (2 B)", "by main/2, or others meanwhile"):
        assert part in line
    replayed = rig.muse("replay", "--plain").stdout
    assert "new new/a (2 B)" in replayed
    shown = rig.muse("show", f"@{event['seq']}").stdout
    for part in ("+more", "deleted src/tax.py", "-RATE = 19", "new file new/a", "mode 644 → 755"):
        assert part in shown, shown
    rig.verify()
    kept = rig.muse("show", f"@{event['seq']}", "--json")
    assert json.loads(kept.stdout.splitlines()[0])["type"] == "files.changed", kept.stdout


def test_what_a_person_changes_between_two_runs_is_in_the_log(rig: Rig) -> None:
    step = {"uses": [["shell", {"command": "echo 1 >> mine"}]]}
    model = rig.script([step, {"text": "one"}, step, {"text": "two"}])
    assert rig.muse("exec", "--yolo", "-m", model, "go").returncode == 0
    (rig.workspace / "README.md").write_text("by hand\n")
    assert rig.muse("resume", "last", "again").returncode == 0
    external = [event["body"] for event in rig.of_type("files.changed") if not event["body"].get("calls")]
    assert [[one["path"] for one in body["changes"]] for body in external] == [["README.md"]]
    assert paths(rig) == [["mine"], ["README.md"], ["mine"]]
    assert "by others" in rig.muse("log").stdout


def test_after_a_kill_of_everything_the_next_request_names_the_files_of_the_killed_command(rig: Rig) -> None:
    command = "echo x >> README.md; rm src/tax.py; echo 1 > made; touch ready; sleep 600"
    steps = [Step(uses=(("shell", {"command": command}),)), Step(text="I looked.")]
    with AnthropicServer(steps) as server:
        rig.provider("anthropic", server.base_url)
        rig.start("exec", "--yolo", "go")
        rig.wait_for((rig.workspace / "ready").exists)
        rig.kill_all()
        done = rig.muse("resume", "last")
        assert done.returncode == 0, done.stderr
        told = json.loads(server.requests[-1].body)["messages"][-1]["content"]
    assert server.violations == []
    (text,) = (block["content"] for block in told if block["type"] == "tool_result")
    text = text if isinstance(text, str) else "".join(part["text"] for part in text)
    assert "outcome unknown" in text
    changed = "README.md (changed), made (new), ready (new), src/tax.py (deleted)"
    assert f"Files of the workspace that changed since it was started: {changed}." in text
    (event,) = rig.of_type("files.changed")
    assert (event["body"]["calls"], event["body"]["after_crash"]) == (["main/2"], True)
    types = [event["type"] for event in rig.events()]
    assert types.index("files.changed") < types.index("tool.finished") < types.index("session.closed")
    rig.verify()


def test_a_command_that_outlives_the_host_answers_as_ever_and_its_changes_are_recorded(rig: Rig) -> None:
    command = "echo 1 > first; touch ready; until [ -e go ]; do sleep 0.05; done; echo 2 > second; echo out"
    model = rig.script([{"uses": [["shell", {"command": command}]]}, {"text": "done"}])
    host = rig.start("exec", "--yolo", "-m", model, "go")
    rig.wait_for((rig.workspace / "ready").exists)
    host.kill()
    host.wait()
    (rig.workspace / "go").touch()
    assert rig.muse("resume", "last").returncode == 0
    (event,) = rig.of_type("files.changed")
    assert sorted(one["path"] for one in event["body"]["changes"]) == ["first", "go", "ready", "second"]
    assert event["body"]["after_crash"]
    (result,) = (event["body"] for event in rig.of_type("tool.finished"))
    assert result["status"] == "ok"
    assert result["text"].startswith("out\n")
    assert "first" not in result["text"]


@pytest.mark.parametrize("point", ["before_observe:1", "before_effect:2", "after_effect:2", "before_append:5"])
def test_a_kill_at_a_failpoint_loses_no_change_and_records_none_twice(rig: Rig, point: str) -> None:
    model = rig.script([{"uses": [["shell", {"command": "echo 1 >> made"}]]}, {"text": "done"}])
    first = rig.muse("exec", "--yolo", "-m", model, "go", extra={"MUSE_FAILPOINT": point})
    assert first.returncode == -9
    assert rig.muse("resume", "last").returncode == 0
    assert rig.read("made") == "1\n"
    assert paths(rig) == [["made"]]
    rig.verify()


def test_switched_off_the_log_says_that_changes_are_not_known(rig: Rig) -> None:
    model = rig.script([{"uses": [["shell", {"command": "echo 1 > made"}]]}, {"text": "done"}])
    assert rig.muse("exec", "--yolo", "-m", model, "-c", "snapshots=false", "go").returncode == 0
    unknown = [event["body"] for event in rig.of_type("files.unknown")]
    assert [body["calls"] for body in unknown] == [["main/2"]]
    assert "switched off" in unknown[0]["why"]
    assert paths(rig) == []
    assert not (rig.muse_home / "snapshots").exists()


@pytest.mark.long
def test_ten_thousand_files_changed_by_one_command_fit_into_little_memory(rig: Rig) -> None:
    program = (
        "import os\nfor n in range(10000):\n    d = f'many/{n // 100}'\n    os.makedirs(d, exist_ok=True)\n"
        "    open(f'{d}/{n}', 'w').write(f'{n}\\n' * 200)\n"
    )
    (rig.folder / "make.py").write_text(program)
    model = rig.script([{"uses": [["shell", {"command": f"{sys.executable} {rig.folder}/make.py"}]]}, {"text": "done"}])
    with (rig.folder / "errors").open("wb") as errors:
        host = subprocess.run(
            [sys.executable, "-S", "-c", MEASURED, MUSE, "exec", "--yolo", "-m", model, "go"], cwd=rig.workspace,
            env=rig.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, check=False,
            timeout=2 * PATIENCE_SECONDS,
        )  # fmt: skip
    assert host.returncode == 0, (rig.folder / "errors").read_text()[-2000:]
    assert int(host.stdout) * 1024 < PEAK_BYTES_MAX
    events = rig.of_type("files.changed")
    assert sum(len(event["body"]["changes"]) for event in events) == 10_000
    assert max(len(event["body"]["changes"]) for event in events) == 256
    rig.verify()


def test_two_sessions_in_one_workspace_do_not_hold_each_other_up(rig: Rig, tmp_path: Path) -> None:
    commands = [[["shell", {"command": f"echo {n} >> $MUSE_SESSION.txt"}]] for n in range(4)]
    model = rig.script([*({"uses": uses} for uses in commands), {"text": "done"}])
    hosts = [rig.start("exec", "--yolo", "-m", model, "go", out=f"out{n}") for n in range(2)]
    assert [host.wait(PATIENCE_SECONDS) for host in hosts] == [0, 0], rig.said()
    for log in rig.logs():
        changed = rig.of_type("files.changed", session=log.stem)
        own = [event for event in changed if f"{log.stem}.txt" in [one["path"] for one in event["body"]["changes"]]]
        assert len(own) == 4
        assert rig.of_type("files.unknown", session=log.stem) == []
