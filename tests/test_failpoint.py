"""The places where a test has the process killed: exact when armed, nothing otherwise."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muse import failpoint


def run(code: str, setting: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from muse.failpoint import hit\n{code}"],
        env={"MUSE_FAILPOINT": setting} if setting else {}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_process_is_killed_at_the_wanted_hit_of_the_wanted_name() -> None:
    done = run("for n in range(9):\n    print(n, flush=True)\n    hit('a')\n    hit('b')", "b:3")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n1\n2\n")


def test_without_the_variable_nothing_is_counted_and_nothing_happens() -> None:
    assert run("hit('a')\nprint(hit.__closure__)", "").stdout == "None\n"


def test_a_setting_that_cannot_be_read_is_no_silent_nothing() -> None:
    with pytest.raises(ValueError):
        failpoint.armed("before_append")


def test_with_a_file_the_hits_of_all_processes_count_together_and_only_one_dies(tmp_path: Path) -> None:
    setting = f"b:3:kill:{tmp_path}/hits"
    codes = [run("hit('a')\nhit('b')", setting).returncode for _ in range(5)]
    assert codes == [0, 0, -signal.SIGKILL, 0, 0]
    pids = (tmp_path / "hits").read_bytes().splitlines(keepends=True)
    assert len(pids) == 5
    assert {len(line) for line in pids} == {failpoint.LINE_BYTES}


def test_a_process_can_be_stopped_where_it_is_and_goes_on_when_told(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from muse.failpoint import hit\nhit('a')"],
        env={"MUSE_FAILPOINT": f"a:1:stop:{tmp_path}/hits"},
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert int((tmp_path / "hits").read_text()) == process.pid
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0


def test_a_trace_names_every_place_in_order(tmp_path: Path) -> None:
    assert run("hit('a')\nhit('b')\nhit('a')", f"*:0:trace:{tmp_path}/hits").returncode == 0
    assert (tmp_path / "hits").read_text().split() == ["a", "b", "a"]


@pytest.mark.parametrize("setting", ["a:1:stop", "a:1:burn:/tmp/x", "a"])
def test_a_setting_without_file_count_or_known_action_is_refused(setting: str) -> None:
    with pytest.raises(ValueError):
        failpoint.armed(setting)
