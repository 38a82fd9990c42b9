"""Who may speak to a runner is told by the kernel and by /proc, not by the peer."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.effect.runner.peers import is_below

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected', flush=1)"

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux tells who has connected")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "sock"))
        made.listen()
        yield made


def peer(listener: socket.socket, *before: str, stays: bool = True) -> "tuple[subprocess.Popen[str], socket.socket]":
    """A process that has connected, started by the command line `before`; unless it `stays`, it has ended again."""
    code = f"{CONNECT}; sys.stdin.read()" if stays else CONNECT
    process = subprocess.Popen(
        [*before, sys.executable, "-c", code, listener.getsockname()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"
    if not stays:
        process.communicate()
    return process, listener.accept()[0]


def test_a_process_that_is_none_of_ours_is_let_in(listener: socket.socket) -> None:
    process, sock = peer(listener)
    with sock:
        assert not is_below(sock, ["/some/supervisor.py", "/some/run"])
    process.communicate()


def test_what_descends_from_a_process_with_our_command_line_is_not(listener: socket.socket) -> None:
    # The shell stays above the peer, whose input is ours, and has both words in its own command line.
    process, sock = peer(listener, "sh", "-c", '"$@"; true', "/some/supervisor.py", "env", "A=1")
    with sock:
        assert not is_below(sock, ["/some/supervisor.py", "/another/run"])
        assert is_below(sock, ["/some/supervisor.py", "env"])
    process.communicate()


def test_of_one_that_has_ended_nothing_can_be_told(listener: socket.socket) -> None:
    _, sock = peer(listener, stays=False)
    with sock:
        assert is_below(sock, ["/some/supervisor.py", "/some/run"])


def test_our_own_process_counts_by_its_command_line_too(listener: socket.socket) -> None:
    own = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.getsockname())
        sock = listener.accept()[0]
        with sock:
            assert is_below(sock, [os.fsdecode(own)])
