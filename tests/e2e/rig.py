"""A user's machine in a temporary folder: an empty home, a real git repository, and the installed command `muse`.

Whatever a test started (hosts, runners, commands) has ended when the rig is closed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from muse import app
from muse.view.lines import json_line
from tests import warm

BIN = Path(sys.executable).parent
MUSE = warm.MUSE
PATIENCE_SECONDS = 60.0
KEY = "sk-test-0123456789abcdef"
FILES = {
    "README.md": "# Shop\n\nAdds prices.\n",
    "src/shop.py": "def total(prices):\n    return sum(prices) - 1\n",
    "src/tax.py": "RATE = 19\n",
    "tests/check.py": "from src.shop import total\n\nassert total([1, 2]) == 3, total([1, 2])\nprint('all good')\n",
}

Event = dict[str, Any]


class Rig:
    """One such machine. `workspace` is the repository, `muse_home` where the logs are."""

    def __init__(self, folder: Path, files: Mapping[str, str] = FILES) -> None:
        self.folder = folder
        self.home, self.muse_home, self.workspace = folder / "home", folder / "muse", folder / "shop"
        self.home.mkdir(parents=True)
        self.workspace.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "MUSE_HOME": str(self.muse_home), "LC_ALL": "C.UTF-8",
            "SHOP_KEY": KEY, "PYTHONDONTWRITEBYTECODE": "1", "MUSE_SANDBOX": "off",
        }  # fmt: skip
        self.command = [MUSE]
        self._started: list[subprocess.Popen[bytes]] = []
        for name, text in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- running ---------------------------------------------------------------------------------------------------

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.workspace, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def muse(
        self, *arguments: str, extra: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        done: subprocess.CompletedProcess[str] = warm.run(
            [*self.command, *arguments], cwd=self.workspace, env=self.environment | dict(extra or {}),
            timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL, **more,
        )  # fmt: skip
        return done

    def start(
        self, *arguments: str, out: str = "out", extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the command; its standard output goes to the file `out` of the folder, its errors to `out`.err."""
        with (self.folder / out).open("ab") as stdout, (self.folder / f"{out}.err").open("ab") as stderr:
            process = warm.Popen(
                [*self.command, *arguments], cwd=self.workspace, env=self.environment | dict(extra or {}),
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def settings(self, text: str) -> None:
        """Write the user's settings file."""
        path = self.home / ".config" / "muse" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def provider(self, dialect: str, base_url: str, more: str = "") -> None:
        """Settings with one provider `shop` behind `base_url`."""
        self.settings(
            f'model = "shop/some-model"\nretry_base_ms = 1\n{more}\n[providers.shop]\n'
            f'dialect = "{dialect}"\nbase_url = "{base_url}"\napi_key_env = "SHOP_KEY"\n'
        )

    def script(self, steps: list[dict[str, Any]], name: str = "script.json") -> str:
        """The model that says these steps."""
        path = self.folder / name
        path.write_text(json.dumps({"steps": steps}))
        return f"scripted/{path}"

    # -- looking ---------------------------------------------------------------------------------------------------

    def logs(self) -> list[Path]:
        return sorted(self.muse_home.glob("sessions/*/*/*/*.muse"))

    def session(self) -> str:
        """The id of the only session."""
        (path,) = self.logs()
        return path.stem

    def path(self, session: str = "last") -> Path:
        """The log file of a session."""
        found = [path for path in self.logs() if session in ("last", path.stem)]
        return found[-1]

    def events(self, session: str = "last") -> list[Event]:
        """All events, as `--json` shows them."""
        with app.read_session(self.path(session)) as reading:
            return [json.loads(json_line(event)) for event in reading.events()]

    def of_type(self, *types: str, session: str = "last") -> list[Event]:
        return [event for event in self.events(session) if event["type"] in types]

    def verify(self, session: str = "last") -> None:
        done = self.muse("verify", session)
        assert done.returncode == 0, done.stdout + done.stderr
        divergence = app.verify_story(self.path(session)).divergence
        assert divergence is None, divergence

    def read(self, name: str) -> str:
        return (self.workspace / name).read_text()

    def wait_for(self, what: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Until `what()` is true; its value."""
        deadline = time.monotonic() + seconds
        while not (value := what()):
            assert time.monotonic() < deadline, f"waited {seconds} s in vain; {self.said()}"
            time.sleep(0.01)
        return value

    def said(self) -> str:
        """What the started commands wrote to standard error, for messages of failing tests."""
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.err")))

    def processes(self) -> list[int]:
        """Living processes that belong to this rig: known by its home, which all of them inherit, or by the folder in
        a runner's command line."""
        mark, place = b"HOME=" + os.fsencode(self.home), os.fsencode(self.muse_home)
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                inherited = mark in (entry / "environ").read_bytes().split(b"\0")
                if (inherited or place in (entry / "cmdline").read_bytes()) and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
        return found

    def command_lines(self) -> dict[int, bytes]:
        """What the living processes of this rig are, by pid (proc_pid_cmdline(5)); one may end at any moment."""
        found = {}
        for pid in self.processes():
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        return {pid: line for pid, line in found.items() if line}

    def kill_all(self) -> None:
        """SIGKILL to everything of this rig, until nothing is left."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while found := self.processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started:
                process.poll()
            assert time.monotonic() < deadline, f"{found} cannot be killed"

    def close(self) -> None:
        self.kill_all()
        for process in self._started:
            process.wait(PATIENCE_SECONDS)
