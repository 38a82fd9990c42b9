"""Sandboxes of every kind that this machine has, and commands in them under a real runner."""

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from muse.effect.runner import CommandSpec, Exit
from muse.effect.sandbox import NO_SANDBOX, Places, Sandbox, choose, places_of, this_machine
from muse.errors import UsageError
from tests.effect.runner.conftest import MakeRunner, anyio_backend, make_runner, mark, run_dir, runner

__all__ = ["anyio_backend", "make_runner", "mark", "run_dir", "runner"]

Do = Callable[..., Awaitable[tuple[Exit, str]]]
SESSION = "20260101-000000-sandboxed"


class Machine:
    """A user's folders: a repository to work in, a home, and a home of muse's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace, self.home, self.muse_home = root / "work", root / "home", root / "home" / "muse"
        self.outside = root / "home" / "kept.txt"
        for folder in (self.workspace, self.muse_home):
            folder.mkdir(parents=True)
        self.outside.write_text("kept\n")
        (self.home / ".bashrc").write_text("# mine\n")
        self.log = self.muse_home / f"{SESSION}.muse"
        self.log.write_bytes(b"the record")
        subprocess.run(["git", "init", "-q", str(self.workspace)], check=True, env={"PATH": os.environ["PATH"]})

    def places(self, *more: str, **variables: str) -> Places:
        """The places of a session here. The test's folder lies among the temporary files, which are not to count."""
        environment = {"HOME": str(self.home), **variables}
        found = places_of(self.workspace, self.muse_home, self.log, self.home / "settings", environment, more)
        return without_temporary(found)


def without_temporary(places: Places) -> Places:
    """As on a machine where a person's files are elsewhere than the temporary ones."""
    from msgspec.structs import replace

    writable = (places.workspace, *(path for path in places.writable if path not in (*places.temporary, "/dev/shm")))
    kept = tuple(path for path in places.readonly if path not in places.personal)
    writable = tuple(dict.fromkeys((*writable, "/dev/shm")))
    return replace(places, writable=writable, temporary=(), readonly=kept, personal=())


@pytest.fixture
def user(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=["landlock", "landlock-alone", "bubblewrap"])
def enforcer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def box_of(
    user: Machine, enforcer: str, mode: str = "workspace-write", *, network: bool = True, places: Places | None = None
) -> Sandbox:
    """That sandbox, or a skip that says why this machine has none."""
    try:
        made = choose(mode, network, this_machine(), places or user.places(), SESSION, enforcer)
    except UsageError as error:
        pytest.skip(str(error))
    made.prepare()
    return made


@pytest.fixture
def boxes() -> Iterator[list[Sandbox]]:
    made: list[Sandbox] = []
    yield made
    for box in made:
        box.close()


@pytest.fixture
def do(make_runner: MakeRunner, user: Machine, mark: str, boxes: list[Sandbox]) -> Do:
    """Run a script in a sandbox to its end: how it ended, and what it wrote."""
    runner = make_runner(folder=user.muse_home / "run" / SESSION)
    calls = iter(range(1, 100))

    async def run(script: str, box: Sandbox = NO_SANDBOX, **more: object) -> tuple[Exit, str]:
        boxes.append(box)
        name, _, value = mark.partition("=")
        argv, confine = box.command(["bash", "-c", script], str(user.workspace))
        env = box.environment({"PATH": os.environ["PATH"], "HOME": str(user.home), name: value})
        fields: dict[str, object] = {
            "call": f"main/{next(calls)}", "attempt": 1, "args_digest": "", "argv": argv, "confine": confine,
            "cwd": str(user.workspace), "env": env,
        }  # fmt: skip
        spec = CommandSpec(**(fields | more))  # type: ignore[arg-type]
        await runner.start(spec)
        exit = await runner.wait(spec.call, 1)
        return exit, runner.output_path(spec.call, 1).read_text(errors="replace")

    return run
