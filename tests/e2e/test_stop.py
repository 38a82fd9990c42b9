"""The agent ends a server of an earlier call with its tool `stop`, out of the sandbox that holds by default.

The oracles are the kernel: who lives, in /proc, and a connection to the server's port.
"""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muse.app import default_sandbox
from tests.e2e.rig import Rig

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are looked at in /proc"),
]

SERVER = """\
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with open("port.new", "w") as file:
        file.write(str(server.getsockname()[1]))
    import os
    os.rename("port.new", "port")
    while True:
        server.accept()[0].close()
"""
SERVE = "python3 server.py & echo $! > pid; for n in $(seq 1000); do test -e port && break; sleep 0.02; done"
DONE = {"text": "Done."}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        made.environment["MUSE_SANDBOX"] = ""  # the default, which is on where the machine has something for it
        (made.workspace / "server.py").write_text(SERVER)
        yield made


def uses(*names: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"uses": [[name, arguments] for name, arguments in names]}


def shell(command: str) -> dict[str, Any]:
    return uses(("shell", {"command": command}))


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def results(rig: Rig) -> dict[str, dict[str, Any]]:
    return {event["body"]["call"]: event["body"] for event in rig.of_type("tool.finished")}


def test_a_server_of_one_call_is_stopped_by_the_next(rig: Rig) -> None:
    """In the mode that asks; commands are allowed by a rule, `stop` needs none."""
    if not default_sandbox(rig.workspace).hint_of_rest:
        pytest.skip("this machine has no sandbox that keeps signals in")
    rig.settings('[permissions]\nallow = ["shell"]\n')
    connect = shell('python3 -c \'import socket; socket.create_connection(("127.0.0.1", int(open("port").read())))\'')
    kill = shell("kill -9 $(cat pid); true")
    stop = uses(("stop", {"call": "main/2"}))
    assert rig.muse("exec", "-m", rig.script([shell(SERVE), kill, connect, stop, stop, DONE]), "go").returncode == 0
    told = results(rig)
    assert 'server.py); end it with stop(call="main/2")' in told["main/2"]["text"]
    assert "kill in a later one does not reach these" in told["main/2"]["text"]
    assert told["main/6"]["status"] == "ok", "it survived the kill"
    assert not listens(int(rig.read("port")))
    assert (told["main/8"]["status"], told["main/10"]["status"]) == ("ok", "error")
    started = {event["body"]["pid"] for event in rig.of_type("process.started")}
    reaped = rig.of_type("process.reaped")
    assert {event["body"]["pid"] for event in reaped} == started
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)
    assert all(str(pid) in told["main/8"]["text"] for pid in started)
    assert all(event["body"]["call"] == "main/2" for event in reaped)
    assert any(event["body"]["how"].startswith("ended on request") for event in reaped)
    (finished,) = [event for event in rig.of_type("tool.finished") if event["body"]["call"] == "main/8"]
    assert all(event["seq"] < finished["seq"] for event in reaped)
    assert not rig.of_type("approval.requested")
    rig.verify()


@pytest.mark.parametrize("failpoint", ["before_effect:4", "after_effect:4"])
def test_a_host_that_is_killed_while_it_stops_a_server_leaves_no_doubt(rig: Rig, failpoint: str) -> None:
    model = rig.script([shell(SERVE), uses(("stop", {"call": "main/2"})), DONE, DONE])
    killed = rig.muse("exec", "--yolo", "-m", model, "go", extra={"MUSE_FAILPOINT": failpoint})
    assert killed.returncode == -signal.SIGKILL
    port = int(rig.read("port"))
    assert listens(port) == (failpoint == "before_effect:4")
    assert [event["body"]["call"] for event in rig.of_type("tool.started")] == ["main/2", "main/4"]
    assert rig.muse("resume", "last", "-m", model).returncode == 0
    assert not listens(port)
    told = results(rig)["main/4"]
    assert (told["status"], told["attempt"]) == ("ok", 2 if failpoint == "before_effect:4" else 1)
    assert "nothing that main/2 left running runs any more" in told["text"]
    (verdict,) = [event["body"]["verdict"] for event in rig.of_type("effect.reconciled")]
    assert verdict == ("not_done" if failpoint == "before_effect:4" else "done")
    how = [event["body"]["how"] for event in rig.of_type("process.reaped")]
    assert any(one.startswith("ended on request") for one in how)
    rig.verify()


def test_a_server_that_outlived_a_killed_host_is_stopped_by_the_resumed_agent(rig: Rig) -> None:
    wait = shell("touch runs; while ! test -e ended; do sleep 0.05; done")
    model = rig.script([shell(SERVE), wait, uses(("stop", {"call": "main/2"})), DONE, DONE])
    host = rig.start("exec", "--yolo", "-m", model, "go")
    rig.wait_for((rig.workspace / "runs").exists)
    host.kill()
    host.wait()
    port = int(rig.read("port"))
    assert listens(port)
    (rig.workspace / "ended").touch()
    assert rig.muse("resume", "last", "-m", model).returncode == 0, rig.said()
    assert results(rig)["main/6"]["status"] == "ok"
    assert not listens(port)
    told = rig.of_type("process.started", "process.adopted", "process.reaped")
    told = [event for event in told if event["body"]["call"] == "main/2"]
    assert [event["type"] for event in told if event["epoch"] == 1] == ["process.started"]
    for pid in {event["body"]["pid"] for event in told if event["epoch"] == 1}:
        types = [event["type"] for event in told if event["body"]["pid"] == pid]
        assert types == ["process.started", "process.adopted", "process.reaped"]
    rig.verify()
