"""The places where a test has the process killed: exact when armed, nothing otherwise."""

import signal
import subprocess
import sys

import pytest

from muse.runtime import failpoint


def run(code: str, setting: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from muse.runtime.failpoint import hit\n{code}"],
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
