"""The log of background processes, against real ones: what stands in it, and that a closed session is closed again."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from muse.effect.model.scripted import Step
from muse.effect.protocol import LeftProcess, ToolCall, ToolResult, Workspace
from muse.event.content import Observed
from muse.event.kinds import CancelRequested, ProcessAdopted, ProcessReaped, ProcessStarted, UserPrompted
from muse.runtime.session import Running
from tests.runtime.rig import Rig, Tally


class Children:
    """`Leftovers` of this test's own child processes."""

    def __init__(self) -> None:
        self.all: dict[int, subprocess.Popen[bytes]] = {}
        self.unnamed: list[tuple[str, LeftProcess]] = []
        self.forgotten: list[str] = []

    def start(self) -> LeftProcess:
        child = subprocess.Popen(["sleep", "1000"])
        self.all[child.pid] = child
        return LeftProcess(pid=child.pid, started=child.pid, command="sleep 1000", boot_id="b", group=7)

    def lives(self, process: LeftProcess) -> bool:
        return self.all[process.pid].poll() is None

    def found(self) -> list[tuple[str, LeftProcess]]:
        return self.unnamed

    def how(self, call: str, process: LeftProcess) -> str:
        return f"status {self.all[process.pid].returncode}"

    async def end(self, call: str, processes: Sequence[LeftProcess]) -> None:
        for process in processes:
            self.all[process.pid].terminate()
            await anyio.to_thread.run_sync(self.all[process.pid].wait)

    def tidy(self, is_over: Callable[[str], bool]) -> None:
        return None

    def forget(self, call: str) -> None:
        self.forgotten.append(call)


class Leaving(Tally):
    """A tool that leaves a process running."""

    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder)
        self.children = children

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Any, keep_file: Any, show: Any,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        return ToolResult(status="ok", text="left", processes=(self.children.start(),))


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    for child in made.all.values():
        child.kill()
        child.wait()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, [Step(uses=(("tally", {}),)), *[Step(text="done")] * 9])


def open_with(rig: Rig, children: Children, *, stay: bool = False) -> Running:
    running = rig.open(tools={"tally": Leaving(rig.folder, children)})
    running._loop.dispatch._has = msgspec.structs.replace(running._loop.dispatch._has, leftovers=children)
    running._loop.stay = stay
    return running


def run(rig: Rig, children: Children) -> None:
    running = open_with(rig, children)
    try:
        anyio.run(running.run)
    finally:
        running.release()


def told(rig: Rig) -> list[tuple[str, int]]:
    kinds = (ProcessStarted, ProcessAdopted, ProcessReaped)
    return [(event.type, event.body.pid) for event in rig.events() if isinstance(event.body, kinds)]


def live(rig: Rig, children: Children, then: Callable[[], Any]) -> None:
    """Own the session as a chat does, which stays when it is closed; do something then, and leave when the log says
    that all processes are gone and the session is closed."""

    async def lives() -> None:
        running = open_with(rig, children, stay=True)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.run)
                while not running.state.closed:
                    await anyio.sleep(0.01)
                then()
                while running.state.processes or not running.state.closed:
                    await anyio.sleep(0.01)
                running.stop()
        running.release()

    anyio.run(lives)


def test_an_end_after_the_session_was_closed_is_recorded_and_the_session_closed_again(
    rig: Rig, children: Children
) -> None:
    rig.submit(UserPrompted(text="go"))
    live(rig, children, lambda: [child.kill() for child in children.all.values()])
    (pid,) = children.all
    assert told(rig) == [("process.started", pid), ("process.reaped", pid)]
    types = [event.type for event in rig.events()]
    assert types[-2:] == ["process.reaped", "session.closed"]
    assert types.count("session.closed") == 2
    assert rig.events()[-2].body.how == "status -9"  # type: ignore[union-attr]
    assert children.forgotten == ["main/2"]


def test_a_cancel_of_a_call_that_has_ended_ends_what_it_left_running(rig: Rig, children: Children) -> None:
    rig.submit(UserPrompted(text="go"))
    live(rig, children, lambda: rig.submit(CancelRequested(target="call", call="main/2")))
    (child,) = children.all.values()
    assert child.returncode == -15
    assert told(rig)[-1] == ("process.reaped", child.pid)


def test_a_cancel_that_nobody_carried_out_is_carried_out_by_the_next_owner(rig: Rig, children: Children) -> None:
    rig.submit(UserPrompted(text="go"))
    run(rig, children)
    rig.submit(CancelRequested(target="call", call="main/2"))
    (child,) = children.all.values()
    assert child.poll() is None
    live(rig, children, lambda: None)
    assert child.returncode == -15
    assert told(rig) == [(kind, child.pid) for kind in ("process.started", "process.adopted", "process.reaped")]


def test_each_owner_adopts_once_and_names_what_nobody_had_named(rig: Rig, children: Children) -> None:
    rig.submit(UserPrompted(text="go"))
    run(rig, children)
    (first,) = children.all
    later = children.start()
    children.unnamed = [("main/2", later), ("main/99", children.start())]
    for _ in range(2):
        rig.submit(UserPrompted(text="on"))
        run(rig, children)
    assert told(rig)[:3] == [("process.started", first), ("process.adopted", first), ("process.started", later.pid)]
    assert told(rig).count(("process.adopted", first)) == 2
    assert told(rig).count(("process.adopted", later.pid)) == 1
