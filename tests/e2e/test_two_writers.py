"""Several processes and one log: one linear history, one owner, nothing lost (B9, B14, B15, B18)."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.e2e.rig import Rig
from tests.e2e.test_same_lines import watched

SUBMITS = 1_000
PATIENCE_SECONDS = 240
CLIENT = f"""
import sys
from pathlib import Path
from muse import app
from muse.event.kinds import NoteAdded

log = app.open_log(Path(sys.argv[1]), read_only=False)
n = 0
while n < {SUBMITS} or not Path("over").exists():
    print(app.submit(log, NoteAdded(text=f"{{sys.argv[2]}} {{n}}"), "main"))
    n += 1
log.close()
"""


def client(rig: Rig, path: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(path), name], env=rig.environment, stdout=subprocess.PIPE, text=True,
        cwd=rig.workspace,
    )  # fmt: skip


def test_two_clients_with_1000_commands_each_leave_one_history_and_the_run_finishes(rig: Rig) -> None:
    """B15: every command stands in it once, in the order in which it was acknowledged. Neither client stops before the
    owner has done its work: an owner that gets no turn beside them never does."""
    waits = {"uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done"}]]}
    busy = [
        {"uses": [["read", {"path": "README.md"}], ["shell", {"command": f"echo {n} >> n.txt"}]]} for n in range(12)
    ]
    over = {"uses": [["shell", {"command": "touch over"}]]}
    script = rig.script([waits, *busy, over, {"text": "Done."}])
    run = rig.start("exec", "--yolo", "--json", "-m", script, "go on", out="run")  # a pipe that is full would stop it
    rig.wait_for(lambda: rig.logs() and rig.of_type("tool.started"))
    clients = [client(rig, rig.path(), name) for name in ("a", "b")]
    try:
        rig.wait_for(lambda: rig.of_type("note.added"))
        (rig.workspace / "go").touch()
        said = [one.communicate(timeout=PATIENCE_SECONDS)[0] for one in clients]
    finally:
        for one in clients:
            one.kill()
    assert run.wait(PATIENCE_SECONDS) == 0, rig.said()
    acknowledged = [[int(line) for line in lines.split()] for lines in said]
    assert rig.read("n.txt").split() == [str(n) for n in range(12)]
    events = rig.events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    notes = {event["seq"]: event["body"]["text"] for event in events if event["type"] == "note.added"}
    assert len(notes) == sum(map(len, acknowledged))
    for name, seqs in zip(("a", "b"), acknowledged, strict=True):
        assert [notes[seq] for seq in seqs] == [f"{name} {n}" for n in range(len(seqs))]
        assert len(seqs) >= SUBMITS
        assert seqs == sorted(seqs)
    shown = (rig.folder / "run").read_text()
    assert set(Counter(shown.splitlines()).values()) == {1}
    assert rig.muse("replay", "last", "--json").stdout.startswith(shown)
    rig.verify()


def test_a_second_resume_of_a_running_session_is_refused_and_names_the_owner(rig: Rig) -> None:
    """B14: it is refused before it can append anything."""
    waits = {"uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done"}]]}
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([waits, {"text": "Done."}]), "go on") as run:
        run.until("tool.started")
        second = rig.muse("resume", "last")
        assert second.returncode == 7
        assert str(run.process.pid) in second.stderr
        (rig.workspace / "go").touch()
        assert run.end() == 0, run.errors
    assert len(rig.of_type("session.opened")) == 1
    rig.verify()


def test_of_several_that_resume_a_dead_session_at_once_one_runs_it(rig: Rig) -> None:
    """B18: the lock of a killed owner is free at once."""
    waits = {"uses": [["shell", {"command": "echo ran >> ran.txt; until [ -e go ]; do sleep 0.02; done"}]]}
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([waits, {"text": "Done."}]), "go on") as run:
        run.until("tool.started")
        run.process.kill()
        run.end()
    resumes = [rig.start("resume", "last", "--json", out=f"r{n}") for n in range(4)]

    def ended() -> list[subprocess.Popen[bytes]]:
        return [one for one in resumes if one.poll() is not None]

    rig.wait_for(lambda: len(ended()) == 3)
    assert [one.returncode for one in ended()] == [7, 7, 7], rig.said()
    (rig.workspace / "go").touch()
    assert sorted(one.wait(60) for one in resumes) == [0, 7, 7, 7]
    assert rig.read("ran.txt") == "ran\n"
    opened = rig.of_type("session.opened")
    assert [event["epoch"] for event in opened] == [1, 2]
    rig.verify()


def test_right_after_a_kill_every_session_is_listed_and_can_be_opened(rig: Rig) -> None:
    """B9, B18: who runs a session is told by the kernel's lock, not by a clock."""
    waits = {"uses": [["shell", {"command": "until [ -e go ]; do sleep 0.02; done"}]]}
    names = ("one", "two", "three")
    for name in names:
        assert rig.muse("exec", "--name", name, "-m", rig.script([{"text": "Hello."}]), "greet").returncode == 0
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([waits, {"text": "Done."}]), "go on") as run:
        run.until("tool.started")
        run.process.kill()
        run.end()
    listed = [json.loads(line) for line in rig.muse("ls", "--json").stdout.splitlines()]
    assert len(listed) == len(rig.logs()) == 4
    assert {entry["name"] for entry in listed} >= set(names)
    (rig.workspace / "go").touch()
    assert rig.muse("resume", "last").returncode == 0
    rig.verify()


def test_a_command_with_an_id_said_by_many_processes_is_one_event(rig: Rig) -> None:
    done = rig.muse("exec", "--yolo", "-m", rig.script([{"text": "Hello."}]), "greet me")
    assert done.returncode == 0
    said = [rig.start("steer", "last", "say it again", "--id", "one", "--json", out=f"s{n}") for n in range(4)]
    assert [one.wait(60) for one in said] == [0, 0, 0, 0], rig.said()
    seqs = {json.loads((rig.folder / f"s{n}").read_text())["seq"] for n in range(4)}
    assert len(seqs) == len(rig.of_type("agent.steered")) == 1
    other = rig.muse("steer", "last", "something else", "--id", "one")
    assert other.returncode == 2
    rig.verify()
