"""Who is compared: muse, and frameworks in virtual environments of their own, made here with pip when missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

from muse.effect.model.scripted import Step
from muse.testing.wire import KEY, AnthropicServer, WireServer
from tools.compare.counted import kill_below

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


class Framework:
    """A framework whose one life is a script beside this file, in an environment of its own."""

    def __init__(self, name: str, uses: str, script: str, packages: tuple[str, ...], environments: Path) -> None:
        self.name, self.uses, self._script, self._packages = name, uses, HERE / script, packages
        self._place = environments / self._script.stem
        self._python = self._place / "bin" / "python"

    def prepare(self) -> None:
        """Make the environment, once for each list of packages."""
        wanted, made = "\n".join(self._packages), self._place / "packages.txt"
        if made.exists() and made.read_text() == wanted:
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self._place)], check=True)
        pip = [str(self._python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *self._packages], check=True, stderr=subprocess.DEVNULL)
        made.write_text(wanted)

    def versions(self) -> str:
        """See `Contestant`."""
        names = [package.partition("==")[0].partition("[")[0] for package in self._packages]
        look = "from importlib.metadata import version; import sys; print(*map(version, sys.argv[1:]))"
        done = subprocess.run([self._python, "-c", look, *names], check=True, capture_output=True, text=True)
        return ", ".join(" ".join(pair) for pair in zip(names, done.stdout.split(), strict=True))

    def life(self, folder: Path) -> subprocess.Popen[str]:
        """See `Contestant`."""
        return subprocess.Popen(
            [self._python, self._script, folder], cwd=folder / "work", env=environment(folder), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def told(self, folder: Path) -> list[str]:
        """See `Contestant`."""
        path = folder / "told.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return ["\n".join(json.loads(line)) for line in lines]

    def record(self, folder: Path) -> Path:
        """See `Contestant`."""
        return folder / "record.sqlite"

    def end(self, folder: Path) -> None:
        """See `Contestant`."""
        kill_below(folder)


class Muse:
    """This project: the installed command against the wire server of its own tests, which refuses invalid requests."""

    name = "muse"
    uses = "`muse exec`, `muse resume`"

    def __init__(self) -> None:
        self._servers: dict[Path, WireServer] = {}

    def versions(self) -> str:
        """See `Contestant`."""
        said = subprocess.run([BIN / "muse", "--version"], check=True, capture_output=True, text=True).stdout
        return said.strip().replace(", version", "")

    def life(self, folder: Path) -> subprocess.Popen[str]:
        """See `Contestant`."""
        place = environment(folder) | {"MUSE_HOME": str(folder / "home"), "COMPARE_KEY": KEY}
        server = self._servers.get(folder) or self._serve(folder)
        settings = folder / ".config" / "muse" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            'model = "compare/scripted"\nretry_base_ms = 1\n[providers.compare]\ndialect = "anthropic"\n'
            f'base_url = "{server.base_url}"\napi_key_env = "COMPARE_KEY"\n'
        )
        prompt = json.loads((folder / "task.json").read_text())["prompt"]
        begun = list((folder / "home").glob("sessions/*/*/*/*.muse"))
        arguments = ["resume", "last"] if begun else ["exec", "--yolo", prompt]
        return subprocess.Popen(
            [BIN / "muse", *arguments], cwd=folder / "work", env=place, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def verify(self, folder: Path) -> tuple[int, str]:
        """What `muse verify` says of the record, which a person would ask after a crash of the machine."""
        place = environment(folder) | {"MUSE_HOME": str(folder / "home")}
        done = subprocess.run(
            [BIN / "muse", "verify", self.record(folder)], cwd=folder, env=place, text=True, capture_output=True
        )
        return done.returncode, done.stdout + done.stderr

    def _serve(self, folder: Path) -> WireServer:
        commands = json.loads((folder / "task.json").read_text())["commands"]
        steps = [Step(uses=(("shell", {"command": command}),)) for command in commands]
        server = AnthropicServer([*steps, Step(text="Done.")])
        self._servers[folder] = server.__enter__()
        return server

    def told(self, folder: Path) -> list[str]:
        """See `Contestant`."""
        server = self._servers[folder]
        assert server.violations == [], server.violations
        return [json.dumps(json.loads(request.body)["messages"]) for request in server.requests]

    def record(self, folder: Path) -> Path:
        """See `Contestant`."""
        (found,) = (folder / "home").glob("sessions/*/*/*/*.muse")
        return found

    def end(self, folder: Path) -> None:
        """See `Contestant`."""
        kill_below(folder)
        if folder in self._servers:
            self._servers.pop(folder).__exit__(None, None, None)


def environment(folder: Path) -> dict[str, str]:
    """What every contestant is started with."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def frameworks(environments: Path) -> list[Framework]:
    """The frameworks, in the versions that the tables name."""
    return [
        Framework(
            "LangGraph", 'SQLite checkpointer, `durability="sync"`, effect in a `@task`, resumed with `invoke(None)`',
            "with_langgraph.py", ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"), environments,
        ),
        Framework(
            "Pydantic AI with DBOS", "`DBOSDurability`, tool as `@DBOS.step`, recovered by `DBOS.launch()`",
            "with_pydantic_ai.py", ("pydantic-ai-slim[dbos]==2.68.0", "dbos==3.4.0"), environments,
        ),
    ]  # fmt: skip
