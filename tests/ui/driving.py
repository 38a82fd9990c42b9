"""The installed command in a world of its own: a home, a workspace, a script for the model, a pseudo-terminal."""

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from muse import app
from muse.view.lines import json_line
from tests import warm

MUSE = warm.MUSE
PATIENCE_SECONDS = 60.0
"""Only how long a test waits before it gives up; nothing is measured."""

Event = dict[str, Any]


def eventually(what: Callable[[], Any]) -> Any:
    """The first true value of `what`."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come")


class OnTerminal:
    """A `muse` on a pseudo-terminal that is its controlling one."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.master, slave = os.openpty()
        name = os.ttyname(slave)
        # A session leader that opens a terminal gets it as its controlling one, so that Ctrl-C becomes a signal.
        line = ["sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', name, *command]
        self.process = subprocess.Popen(line, env=env, cwd=cwd, start_new_session=True, stdin=subprocess.DEVNULL)
        self.slave = slave
        self.seen = ""

    def expect(self, text: str) -> str:
        """Read until `text` has come since the last `expect`; returns what was read up to it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come; there is {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self.master, keys.encode())

    def end(self) -> tuple[int, str]:
        """Wait for the end: the exit code, and what was shown since the last `expect`."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None or select.select([self.master], [], [], 0.1)[0]:
            assert time.monotonic() < end, f"it does not end; there is {self.seen!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.process.returncode, self.seen

    def close(self) -> None:
        """Let go of everything."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.slave, self.master):
            if descriptor >= 0:
                os.close(descriptor)
        self.slave = self.master = -1


class World:
    """One user's machine."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.home = root, root / "work", root / "home"
        self.config = root / "config" / "muse" / "config.toml"
        self.work.mkdir()
        self.config.parent.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(root), "USER": "ada", "LANG": "C.UTF-8", "TERM": "xterm",
            "XDG_CONFIG_HOME": str(root / "config"), "MUSE_HOME": str(self.home), "MUSE_SANDBOX": "off",
        }  # fmt: skip
        self._scripts = 0
        self._started: list[subprocess.Popen[str]] = []
        self._terminals: list[OnTerminal] = []

    def script(self, *steps: Mapping[str, object]) -> str:
        """The name of a model that says these steps."""
        self._scripts += 1
        path = self.root / f"script{self._scripts}.json"
        path.write_text(json.dumps({"steps": steps}))
        return f"scripted/{path}"

    def run(self, *args: str, stdin: str = "", env: Mapping[str, str] = {}, cwd: Path | None = None) -> "Done":
        """Run to the end."""
        done = warm.run(
            [MUSE, *args], input=stdin, env={**self.env, **env}, cwd=cwd or self.work, timeout=PATIENCE_SECONDS
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str) -> "subprocess.Popen[str]":
        """Start, without a terminal."""
        process = warm.Popen(
            [MUSE, *args], env=self.env, cwd=self.work, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        return process

    def terminal(self, *args: str, background: bool = False, out: Path | None = None) -> OnTerminal:
        """Start on a terminal; in the `background`, as a shell's job there; with standard output to the file `out`."""
        command = ["bash", "-mc", '"$0" "$@" & wait', MUSE, *args] if background else [MUSE, *args]
        if out is not None:
            command = ["sh", "-c", 'exec "$@" >"$0"', str(out), *command]
        made = OnTerminal(command, self.env, self.work)
        self._terminals.append(made)
        return made

    def files(self) -> list[Path]:
        """The logs, oldest first."""
        return sorted(self.home.glob("sessions/*/*/*/*.muse"))

    def events(self, session: str = "last") -> list[Event]:
        """The events of the newest session, or what `replay --json` prints of another."""
        if session == "last":
            with closing(app.open_log(self.files()[-1])) as log:
                return [json.loads(json_line(event)) for event in app.events(log)]
        done = self.run("replay", session, "--json")
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def types(self, session: str = "last") -> list[str]:
        """The types of all events."""
        return [event["type"] for event in self.events(session)]

    def begun(self) -> None:
        """Wait until the command `WAITS` runs. A `muse` that ends before is an error at once, with what it said."""
        mark = self.work / "begun"
        processes = [*self._started, *(one.process for one in self._terminals)]
        eventually(lambda: mark.exists() or all(process.poll() is not None for process in processes))
        if not mark.exists():
            said = [process.communicate() for process in self._started] + [one.end() for one in self._terminals]
            raise AssertionError(f"it ended before its command began: {said}")

    def close(self) -> None:
        """Stop what was started; commands that wait for the file `go` end."""
        (self.work / "go").touch()
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for one in self._terminals:
            one.close()


class Done:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


def shell(command: str) -> list[Any]:
    """A use of the shell tool."""
    return ["shell", {"command": command}]


WAITS = (
    "echo start >> count; touch begun; for i in $(seq 600); do [ -e go ] && break; sleep 0.05; done; echo end >> count"
)
"""A command that says when it begins, goes on when the file `go` is there, and counts both."""


def line_with(process: "subprocess.Popen[str]", text: str) -> str:
    """The next line of standard error that holds `text`."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"{text!r} did not come")


def stop(process: "subprocess.Popen[str]", number: signal.Signals) -> int:
    """Send a signal and wait; the exit code."""
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode


def seq_of(text: str) -> int:
    """The number after the first `#`."""
    found = re.search(r"#(\d+)", text)
    assert found is not None, text
    return int(found[1])
