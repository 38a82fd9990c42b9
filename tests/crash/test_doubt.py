"""Doubt is bounded: what a crash of the host leaves in doubt for a command, and how it is told (DESIGN §6).

The oracle for a command is the same command without muse: its bytes, its exit code. Effects are counted outside.
"""

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.test_sandboxed import with_sandbox
from tests.e2e.rig import Event, Rig

pytestmark = pytest.mark.long

DONE = {"text": "Done."}
GATE = "echo x >> ~/starts; while ! test -e gate; do sleep 0.02; done; "
ENDINGS = {
    "short": "echo out; echo err >&2; exit 7",
    "nothing": "exit 1",
    "longer than the model reads": "seq 100000; exit 3",
    "binary": "head -c 300000 /bin/sh | tr a-z '\\0-\\32'; exit 0",
    "by a signal": "echo before; kill -SEGV $$",
    "no such program": "no-such-program-anywhere",
    "with a child that stays": "echo left; sleep 1000 & exit 4",
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        yield made


def shell(command: str, **more: Any) -> dict[str, Any]:
    return {"uses": [["shell", {"command": command, **more}]]}


def killed_host(rig: Rig, model: str) -> None:
    """Kill the host while its first command waits at the gate."""
    host = rig.start("exec", "--yolo", "-m", model, "go")
    rig.wait_for(lambda: (rig.home / "starts").exists())
    host.kill()
    host.wait()


def finished(rig: Rig) -> Event:
    found: Event = rig.of_type("tool.finished")[-1]
    return found


def plainly(rig: Rig, command: str) -> tuple[int, bytes]:
    """The same command without muse; like a shell tool it has one pipe for both outputs, and no input."""
    done = subprocess.run(
        [shutil.which("bash") or "/bin/sh", "-c", command],
        cwd=rig.workspace,
        env=rig.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout


def exact(rig: Rig, seq: int) -> bytes:
    path = rig.folder / f"exact.{seq}"
    shown = rig.muse("show", f"last@{seq}", "-o", str(path))
    assert shown.returncode == 0, shown.stderr
    return path.read_bytes()


@pytest.mark.parametrize(("name", "still_running"), [(name, at % 2 == 0) for at, name in enumerate(ENDINGS)])
def test_a_command_whose_host_is_killed_ends_as_it_would_have(rig: Rig, name: str, still_running: bool) -> None:
    """Same bytes, same exit code, run once, no doubt: whether it ended meanwhile, or still runs at the resume."""
    command = GATE + ENDINGS[name]
    killed_host(rig, rig.script([shell(command), DONE]))
    if still_running:
        host = rig.start("resume", "last")
        rig.wait_for(lambda: rig.of_type("effect.reconciled"))
        (rig.workspace / "gate").touch()
        assert host.wait(60) == 0
    else:
        (rig.workspace / "gate").touch()
        rig.wait_for(lambda: list(rig.muse_home.glob("run/*/calls/*/exit")))
        assert rig.muse("resume", "last").returncode == 0
    (verdict,) = rig.of_type("effect.reconciled")
    assert verdict["body"]["verdict"] == "attached"
    event = finished(rig)
    body = event["body"]
    got = exact(rig, event["seq"])
    assert (rig.home / "starts").read_text() == "x\n"
    if name == "longer than the model reads":
        expected = b"".join(b"%d\n" % n for n in range(1, 100_001)), 3
    elif name == "with a child that stays":
        expected = b"left\n", 4
    else:
        code, output = plainly(rig, ENDINGS[name])
        expected = output, code
    assert (got, body.get("output_bytes", 0)) == (expected[0], len(expected[0]))
    assert body.get("exit_code") == (expected[1] if expected[1] >= 0 else None)
    if expected[1] < 0:
        assert f"ended by signal {-expected[1]}" in body["text"]
    assert [started["body"]["command"] for started in rig.of_type("process.started")] == (
        ["sleep 1000"] if name == "with a child that stays" else []
    )
    rig.verify()


def test_a_time_out_holds_while_no_host_lives(rig: Rig) -> None:
    killed_host(rig, rig.script([shell(GATE + "true", timeout_seconds=1), DONE]))
    rig.wait_for(lambda: list(rig.muse_home.glob("run/*/calls/*/exit")))
    assert rig.muse("resume", "last").returncode == 0
    body = finished(rig)["body"]
    assert (body["status"], body["timed_out"]) == ("error", True)
    assert rig.of_type("effect.reconciled")[0]["body"]["verdict"] == "attached"


def test_only_where_the_runner_is_killed_too_the_model_is_told_to_look(rig: Rig) -> None:
    """B25: the command, its output so far and what became of its processes are told; nothing is run again."""
    command = "echo halfway; " + GATE + "true"
    killed_host(rig, rig.script([shell(command), DONE]))
    rig.wait_for(lambda: any(path.stat().st_size for path in rig.muse_home.glob("run/*/calls/*/output")))
    rig.kill_all()
    assert rig.muse("resume", "last").returncode == 0
    (verdict,) = rig.of_type("effect.reconciled")
    assert verdict["body"]["verdict"] == "unknown"
    assert "its keeper was killed" in verdict["body"]["evidence"]
    event = finished(rig)
    body = event["body"]
    assert body["status"] == "unknown"
    assert body["text"].startswith("halfway\noutcome unknown (")
    assert "nothing was found that it left running" in body["text"]
    assert "Look at what it changed before you run it again" in body["text"]
    assert exact(rig, event["seq"]) == b"halfway\n"
    assert (rig.home / "starts").read_text() == "x\n"
    rig.verify()


def test_a_long_output_so_far_is_kept_whole_when_its_end_is_unknown(rig: Rig) -> None:
    killed_host(rig, rig.script([shell("seq 100000; " + GATE + "true"), DONE]))
    rig.kill_all()
    assert rig.muse("resume", "last").returncode == 0
    whole = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    event = finished(rig)
    assert hashlib.sha256(exact(rig, event["seq"])).digest() == hashlib.sha256(whole).digest()
    assert event["body"]["status"] == "unknown"


@pytest.mark.parametrize("place", ["before_append:4", "after_append:4", "before_discard:1", "in_discard:1"])
def test_a_spool_outlives_its_host_until_the_result_is_durable(rig: Rig, place: str) -> None:
    """Killed just before, between, and while the spool is taken away: the bytes are in the log, once."""
    model = rig.script([shell("echo x >> ~/starts; seq 100000"), DONE])
    first = rig.muse("exec", "--yolo", "-m", model, "go", extra={"MUSE_FAILPOINT": place})
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert rig.muse("resume", "last").returncode == 0
    (event,) = rig.of_type("tool.finished")
    assert exact(rig, event["seq"]) == "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert event["body"]["exit_code"] == 0
    assert (rig.home / "starts").read_text() == "x\n"
    assert not any(rig.muse_home.glob("run/*/calls/main*"))
    rig.verify()


def test_a_file_that_somebody_else_changed_meanwhile_is_a_conflict_and_stays(rig: Rig) -> None:
    uses = {"uses": [["write", {"path": "README.md", "content": "ours\n"}]]}
    model = rig.script([{"uses": [["read", {"path": "README.md"}]]}, uses, DONE])
    killed = rig.muse("exec", "--yolo", "-m", model, "go", extra={"MUSE_FAILPOINT": "before_effect:4"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (rig.workspace / "README.md").write_text("theirs\n")
    assert rig.muse("resume", "last").returncode == 0
    assert rig.read("README.md") == "theirs\n"
    (verdict,) = rig.of_type("effect.reconciled")
    assert verdict["body"]["verdict"] == "unknown"
    body = finished(rig)["body"]
    assert body["status"] in ("unknown", "error")
    assert "README.md" in body["text"]
    rig.verify()


def test_an_approval_that_waits_is_shown_again_and_one_given_meanwhile_holds_for_its_call(rig: Rig) -> None:
    """Same request, same digest of what was shown. An answer given while nobody ran it lets that call through."""
    model = rig.script([shell("echo x >> first"), shell("echo x >> second"), DONE])
    host = rig.start("exec", "-m", model, "go")
    (asked,) = rig.wait_for(lambda: rig.logs() and rig.of_type("approval.requested"))
    host.kill()
    host.wait()
    again = rig.start("resume", "last", out="again")
    rig.wait_for(lambda: len(rig.of_type("session.opened")) == 2)
    waiting = rig.wait_for(lambda: rig.muse("approvals", "--json").stdout)
    assert f'"seq":{asked["seq"]}' in waiting
    again.kill()
    again.wait()
    assert rig.muse("approve", f"last@{asked['seq']}").returncode == 0
    assert not (rig.workspace / "first").exists()
    last = rig.start("resume", "last", out="last")
    (_, second) = rig.wait_for(lambda: len(found := rig.of_type("approval.requested")) == 2 and found)
    assert rig.read("first") == "x\n"
    assert not (rig.workspace / "second").exists()
    assert second["body"]["call"] != asked["body"]["call"]
    (decided,) = rig.of_type("approval.decided")
    assert decided["body"]["shown_sha256"] == asked["body"]["shown_sha256"]
    assert rig.muse("approve", f"last@{asked['seq']}").returncode == 2  # it holds for nothing else
    assert rig.muse("deny", f"last@{second['seq']}").returncode == 0
    assert last.wait(60) == 0
    assert not (rig.workspace / "second").exists()
    rig.verify()


def living(pid: int) -> bool:
    """Whether it runs: the state in proc_pid_stat(5) is none of a process that ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_a_process_that_left_parents_session_and_environment_is_found_by_its_sandbox_when_all_above_it_was_killed(
    rig: Rig,
) -> None:
    """B45: nothing is left running that the log does not name; /proc is the oracle."""
    with_sandbox(rig, "landlock")
    hides = "(env -i setsid sh -c 'echo $$ > pid; exec sleep 1000' < /dev/null > /dev/null 2>&1 &); "
    killed_host(rig, rig.script([shell(hides + GATE + "true"), DONE]))
    rig.wait_for(lambda: (rig.workspace / "pid").exists() and rig.read("pid").endswith("\n"))
    pid = int(rig.read("pid"))
    assert b"MUSE" not in Path(f"/proc/{pid}/environ").read_bytes()
    try:
        rig.kill_all()
        assert living(pid), "it was to outlive all others"
        assert rig.muse("resume", "last").returncode == 0
        named = {event["body"]["pid"]: event["body"] for event in rig.of_type("process.reaped")}
        assert "keeper was killed" in named[pid]["how"]
        assert not living(pid)
    finally:
        if living(pid):
            os.kill(pid, signal.SIGKILL)
