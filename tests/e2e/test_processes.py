"""What commands leave running is in the log: named, adopted by each new owner, reaped with how it ended (B45, B47).

The oracle is the kernel: /proc says what lives, and since when.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import Rig

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are looked at in /proc"),
]

DONE = {"text": "Done."}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        yield made


def shell(command: str, **more: Any) -> dict[str, Any]:
    return {"uses": [["shell", {"command": command, **more}]]}


def started_at(pid: int) -> int:
    """Field 22 of /proc/<pid>/stat (proc_pid_stat(5)); 0 for a process that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = stat.rpartition(b")")[2].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def run(rig: Rig, *steps: dict[str, Any], **more: Any) -> int:
    return rig.muse("exec", "--yolo", "-m", rig.script([*steps, DONE]), "go", **more).returncode


def again(rig: Rig) -> int:
    return rig.muse("resume", "last", "go on", "-m", rig.script([DONE] * 20, "again.json")).returncode


def named(rig: Rig, *types: str) -> list[tuple[str, int]]:
    return [(event["type"], event["body"]["pid"]) for event in rig.of_type(*types)]


PROCESS = ("process.started", "process.adopted", "process.reaped")


def test_a_background_process_outlives_its_session_is_adopted_once_by_each_owner_and_reaped(rig: Rig) -> None:
    assert run(rig, shell("sleep 1000 & echo $! > pid")) == 0
    pid = int(rig.read("pid"))
    (started,) = rig.of_type(*PROCESS)
    body = started["body"]
    assert (body["pid"], body["started"], body["command"]) == (pid, started_at(pid), "sleep 1000")
    assert body["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert body["group"] == os.getpgid(pid)
    assert rig.events()[-1]["type"] == "session.closed"
    for owner in (2, 3):
        assert again(rig) == 0
        assert named(rig, *PROCESS) == [("process.started", pid)] + [("process.adopted", pid)] * (owner - 1)
        assert started_at(pid)
    listed = json.loads(rig.muse("processes", "--json").stdout)
    assert (listed["pid"], listed["seq"], listed["call"]) == (pid, started["seq"], body["call"])
    assert "1 process left running by sessions" in rig.muse("doctor").stdout
    os.kill(pid, signal.SIGKILL)
    rig.wait_for(lambda: not started_at(pid))
    assert again(rig) == 0
    (reaped,) = rig.of_type("process.reaped")
    assert (reaped["body"]["pid"], reaped["body"]["how"]) == (pid, "signal 9 (SIGKILL)")
    assert rig.muse("processes", "--json").stdout == ""
    assert again(rig) == 0
    assert len(rig.of_type("process.reaped")) == 1
    rig.verify()


def test_an_end_is_noticed_while_the_session_runs_with_how_it_ended(rig: Rig) -> None:
    os.mkfifo(rig.workspace / "gate")
    leave = shell("(read line < gate; exit 3) & echo started")
    rig.start(
        "exec", "--yolo", "-m", rig.script([leave, shell("while ! test -e seen; do sleep 0.05; done"), DONE]), "go"
    )
    (started,) = rig.wait_for(lambda: rig.logs() and rig.of_type("process.started"))
    (rig.workspace / "gate").write_text("\n")
    (reaped,) = rig.wait_for(lambda: rig.of_type("process.reaped"))
    assert (reaped["body"]["pid"], reaped["body"]["how"]) == (started["body"]["pid"], "exit code 3")
    (rig.workspace / "seen").touch()
    rig.wait_for(lambda: rig.events()[-1]["type"] == "session.closed")
    rig.verify()


def test_a_process_started_later_by_one_that_was_left_running_is_named_too(rig: Rig) -> None:
    """Also one that left its parents and its session, in which only its environment says where it came from."""
    os.mkfifo(rig.workspace / "gate")
    script = "(read line < gate; setsid sleep 1001 & exec sleep 1000) & echo started"
    assert run(rig, shell(script)) == 0
    (first,) = rig.of_type(*PROCESS)
    (rig.workspace / "gate").write_text("\n")
    keeper = Path(f"/proc/{first['body']['pid']}/cmdline")
    rig.wait_for(lambda: keeper.read_bytes() == b"sleep\x001000\0")
    assert again(rig) == 0
    commands = [event["body"]["command"] for event in rig.of_type("process.started")]
    assert commands[1:] == ["sleep 1001"]
    rig.verify()


@pytest.mark.parametrize("owned", [False, True])
def test_a_person_ends_what_a_session_left_running(rig: Rig, owned: bool) -> None:
    """By its owner while one runs, and otherwise at once, to be recorded by the next."""
    steps = [shell("(trap '' TERM; sleep 1000; :) & setsid sleep 1001 & echo started")]
    if owned:
        model = rig.script([*steps, shell("while ! test -e seen; do sleep 0.05; done"), DONE])
        rig.start("exec", "--yolo", "-m", model, "go")
        rig.wait_for(lambda: rig.logs() and rig.of_type("process.started") and len(rig.of_type("tool.started")) == 2)
    else:
        assert run(rig, *steps) == 0
    pids = {event["body"]["pid"] for event in rig.of_type("process.started")}
    assert len(pids) == 3
    assert all(started_at(pid) for pid in pids)
    done = rig.muse("cancel", rig.session(), "--processes", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert ({one["pid"] for one in said["ended"]}, said["left"]) == (pids, [])
    assert not any(started_at(pid) for pid in pids)
    (asked,) = rig.of_type("cancel.requested")
    if owned:
        assert {event["body"]["pid"] for event in rig.of_type("process.reaped")} == pids
        (rig.workspace / "seen").touch()
        rig.wait_for(lambda: rig.events()[-1]["type"] == "session.closed")
    else:
        assert again(rig) == 0
    reaped = {event["body"]["pid"]: event["body"]["how"] for event in rig.of_type("process.reaped")}
    assert set(reaped) == pids
    assert any("on request" in how for how in reaped.values())
    assert rig.muse("cancel", rig.session(), "--processes").returncode == 2
    assert asked["body"]["target"] == "call"
    rig.verify()


def test_a_session_that_nobody_could_record_names_what_it_left_when_it_is_resumed(rig: Rig) -> None:
    """B45, B47: host, supervisor and keeper killed together: what goes on is ended or adopted, the log says which."""
    os.mkfifo(rig.workspace / "gate")
    leave = shell("sleep 1000 & echo started")
    host = rig.start(
        "exec", "--yolo", "-m", rig.script([leave, shell("setsid sleep 1001 & read line < gate"), DONE]), "go"
    )
    rig.wait_for(lambda: rig.logs() and len(rig.of_type("tool.started")) == 2)
    (left,) = rig.of_type("process.started")
    mark = b"sleep\x001001\0"
    orphan = rig.wait_for(lambda: next((pid for pid, line in rig.command_lines().items() if line == mark), 0))
    runners = [pid for pid, line in rig.command_lines().items() if b"supervisor.py" in line]
    for pid in (host.pid, *runners):
        os.kill(pid, signal.SIGKILL)
    host.wait()
    rig.wait_for(lambda: not any(started_at(pid) for pid in runners))
    assert started_at(orphan)
    assert rig.muse("resume", "last").returncode == 0
    events = rig.of_type(*PROCESS)
    told = {(event["type"], event["body"]["pid"]) for event in events}
    assert ("process.adopted", left["body"]["pid"]) in told
    assert {("process.started", orphan), ("process.reaped", orphan)} <= told
    assert started_at(left["body"]["pid"])
    assert not started_at(orphan)
    (verdict,) = [
        event["body"] for event in rig.of_type("effect.reconciled") if "sleep 1001" in event["body"]["evidence"]
    ]
    assert verdict["verdict"] == "unknown"
    finished = rig.of_type("tool.finished")[-1]["body"]
    assert finished["status"] == "unknown"
    assert "Look at what it changed" in finished["text"]
    assert str(orphan) in finished["text"]
    rig.verify()
