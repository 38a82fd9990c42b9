"""A process that was forked from the loaded one is what a started one is, as its parent and /proc see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.e2e.rig import Rig

STATUS = ("PPid", "Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "Threads")
loaded = pytest.mark.skipif(not warm.loadable({}), reason="here every process is started as always")


def seen(rig: Rig, name: str) -> dict[str, object]:
    """What is seen of a `muse log -f` that follows: once it has listed what there is."""
    process = rig.start("log", "-f", out=name, extra={"MARK": name})
    rig.wait_for(lambda: b"closed" in (rig.folder / name).read_bytes())
    rig.wait_for(lambda: "waits until" in (rig.folder / f"{name}.err").read_text())
    at = Path(f"/proc/{process.pid}")
    lines = (line.partition(":") for line in (at / "status").read_text().splitlines())
    found: dict[str, object] = {key: value.split() for key, _, value in lines if key in STATUS}
    found["cwd"] = (at / "cwd").readlink()
    found["open"] = sorted(str(fd.readlink()).replace(name, "OUT") for fd in (at / "fd").iterdir())
    found["words"] = (at / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-3:]
    found["environment"] = sorted((at / "environ").read_bytes().replace(name.encode(), b"").rstrip(b"\0").split(b"\0"))
    found["session"] = os.getsid(process.pid) == process.pid
    process.terminate()
    found["code"] = process.wait()
    return found


@loaded
def test_a_forked_process_is_in_the_same_state_as_a_started_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Rig(tmp_path) as rig:
        assert rig.muse("exec", "-m", rig.script([{"text": "Well."}]), "go").returncode == 0
        forked = seen(rig, "warm")
        monkeypatch.setenv("MUSE_TEST_COLD", "1")
        started = seen(rig, "cold")
    assert forked == started


@loaded
@pytest.mark.parametrize("words", [("ls",), ("ls", "--json"), ("lgo",), ("exec",), ("show", "nothing"), ("--version",)])
def test_it_says_the_same_and_ends_alike(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Rig(tmp_path) as rig:
        command = [warm.MUSE, *words]
        started = subprocess.run(command, cwd=rig.workspace, env=rig.environment, capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, check=False)  # fmt: skip
        forked = rig.muse(*words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


@loaded
@pytest.mark.parametrize(
    "variable", ["LD_PRELOAD=/x", "PYTHONWARNINGS=error", "TZ=Asia/Tokyo", "LC_CTYPE=C", "PYTHONHASHSEED=0"]
)
def test_what_acts_on_an_interpreter_is_started_in_full(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert not warm.loadable({name: value})


def test_another_command_is_not_forked() -> None:
    with warm.Popen([sys.executable, "-c", "print('I')"], stdout=subprocess.PIPE) as process:
        assert process.communicate()[0] == b"I\n"
