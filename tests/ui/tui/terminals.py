"""Programs in a real terminal, tmux: keys go in, screens come out as people see them."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "screens"
PATIENCE_SECONDS = 60.0
"""Only how long a test waits before it gives up; nothing is measured."""

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here, whose terminal this looks at")


class Terminal:
    """One terminal of `width` by `height`, and a program in it."""

    def __init__(self, command: str, width: int, height: int, cwd: Path, env: Mapping[str, str]) -> None:
        """`command` is a line for sh; when it ended, its exit code stands on the screen (`ended with 0`)."""
        self._folder = tempfile.mkdtemp(prefix="tm")
        self._env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SHELL": "/bin/sh", **env}
        line = f"{command}; echo ended with $?; exec sleep 600"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(cwd), line,
            ";", "set", "-s", "escape-time", "0", ";", "set", "-g", "status", "off",
        )  # fmt: skip

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", f"{self._folder}/s", *args], env=self._env, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def keys(self, *names: str) -> None:
        """Press keys, by tmux' names."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Type a text as it stands."""
        self._tmux("send-keys", "-l", text)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        shell = self._tmux("display", "-p", "#{pane_pid}").strip()
        (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(child), number)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self, *, styles: bool = False) -> str:
        """What stands on the screen, without blanks at the ends of lines."""
        shown = self._tmux("capture-pane", "-p", *(["-e"] if styles else []))
        return "\n".join(line.rstrip() for line in shown.rstrip("\n").split("\n")) + "\n"

    def wait(self, shows: Callable[[str], object], what: str = "") -> str:
        """The first screen of which `shows` is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not shows(screen := self.screen()):
            assert time.monotonic() < end, f"{what or 'it'} does not come; there is\n{screen}"
            time.sleep(0.02)
        return screen

    def close(self) -> None:
        """End all of it."""
        self._tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)


def same(name: str) -> Callable[[str], bool]:
    """Whether a screen is the golden one of this name; with `MUSE_WRITE_SCREENS` it becomes that when it settled."""
    file = GOLDEN / f"{name}.txt"

    before: list[str] = []

    def is_same(screen: str) -> bool:
        if not os.environ.get("MUSE_WRITE_SCREENS"):
            return screen == file.read_text()
        before.append(screen)
        settled = len(before) > 20 and len(set(before[-20:])) == 1
        if settled:
            file.parent.mkdir(exist_ok=True)
            file.write_text(screen)
        return settled

    return is_same
