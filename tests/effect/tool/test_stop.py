"""The stop tool on a background that a test sets up: whose processes it ends, and what it says of them."""

import msgspec
import pytest

from muse.effect.protocol import LeftProcess, Stopped, Workspace
from muse.effect.tool.stop import StopTool
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio

SERVER = LeftProcess(pid=70, started=700, command="python -m http.server")
ONE_MORE = LeftProcess(pid=71, started=701, command="sleep 1000")


class Machine:
    """What runs, by call; a process named `stubborn` does not end."""

    def __init__(self, **by_call: tuple[LeftProcess, ...]) -> None:
        self.by_call = {key.replace("_", "/"): ones for key, ones in by_call.items()}
        self.gone: tuple[LeftProcess, ...] = ()
        self.asked: list[str] = []

    async def running(self) -> dict[str, tuple[LeftProcess, ...]]:
        return self.by_call

    async def stop(self, call: str) -> Stopped:
        self.asked.append(call)
        ones = self.by_call.pop(call, ())
        left = tuple(one for one in ones if one.command == "stubborn")
        if left:
            self.by_call[call] = left
        ended = tuple(msgspec.structs.replace(one, how="signal 15 (SIGTERM)") for one in ones if one not in left)
        return Stopped(ended=ended, gone=self.gone, left=left)


async def test_it_says_of_each_process_how_it_ended(workspace: Workspace) -> None:
    machine = Machine(main_3=(SERVER, ONE_MORE))
    result = await Harness(StopTool(lambda: machine), workspace).do(call="main/3")
    assert result.status == "ok"
    assert result.text == (
        "ended: 70 (python -m http.server: signal 15 (SIGTERM)), 71 (sleep 1000: signal 15 (SIGTERM))\n"
        "nothing that main/3 left running runs any more"
    )
    assert (machine.asked, machine.by_call) == (["main/3"], {})


async def test_what_had_ended_before_is_told_apart(workspace: Workspace) -> None:
    machine = Machine()
    machine.gone = (msgspec.structs.replace(SERVER, how="exit code 1"),)
    result = await Harness(StopTool(lambda: machine), workspace).do(call="main/3")
    assert result.status == "ok"
    assert result.text.startswith("had ended before: 70 (python -m http.server: exit code 1)\n")


async def test_what_does_not_end_is_an_error(workspace: Workspace) -> None:
    machine = Machine(main_3=(LeftProcess(pid=72, started=1, command="stubborn"), SERVER))
    result = await Harness(StopTool(lambda: machine), workspace).do(call="main/3")
    assert result.status == "error"
    assert result.text.endswith("this could not be ended and still runs: 72 (stubborn)")
    assert "ended: 70" in result.text


@pytest.mark.parametrize("call", ["main/9", "main/3"])
async def test_a_call_that_left_nothing_is_an_error_that_names_those_which_did(workspace: Workspace, call: str) -> None:
    machine = Machine(main_7=(SERVER,))
    result = await Harness(StopTool(lambda: machine), workspace).do(call=call)
    assert result.status == "error"
    assert result.text == (
        f"nothing that {call} left running runs. These calls have something running:\n"
        "main/7: 70 (python -m http.server)"
    )
    assert machine.by_call == {"main/7": (SERVER,)}


@pytest.mark.parametrize("call", ["main/x", "maintenance/3", "main", "3", "main/3/4", "../main/3", "main/²", ""])
async def test_only_calls_of_the_agent_and_of_those_below_it_are_reached(workspace: Workspace, call: str) -> None:
    machine = Machine()
    result = await Harness(StopTool(lambda: machine), workspace).do(call=call)
    assert (result.status, machine.asked) == ("error", [])


async def test_an_agent_does_not_reach_what_its_parent_or_its_sibling_left_running(workspace: Workspace) -> None:
    machine = Machine(main_3=(SERVER,))
    machine.by_call["main.2/1"] = (ONE_MORE,)
    tool = StopTool(lambda: machine)
    harness = Harness(tool, workspace)
    for of, expected in [("main/3", []), ("main.2/1", []), ("main.1/4", ["main.1/4"]), ("main.1.1/4", ["main.1.1/4"])]:
        machine.asked.clear()
        result = await harness.run(msgspec.structs.replace(harness.call(call=of), call="main.1/9"))
        assert (result.status, machine.asked) == ("error", expected), of
        assert "sleep 1000" not in result.text


async def test_after_a_crash_it_is_done_where_nothing_runs_and_done_again_where_something_does(
    workspace: Workspace,
) -> None:
    machine = Machine(main_3=(SERVER,))
    harness = Harness(StopTool(lambda: machine), workspace)
    call = harness.call(call="main/3")
    observed = await harness.observe(call)
    assert (await harness.tool.reconcile(call, observed, workspace)).verdict == "not_done"
    again = await harness.run(msgspec.structs.replace(call, attempt=2), observed)
    assert again.status == "ok"
    verdict = await harness.tool.reconcile(call, observed, workspace)
    assert verdict.verdict == "done"
    assert verdict.result is not None
    assert (verdict.result.status, verdict.result.text) == ("ok", "nothing that main/3 left running runs any more")
    late = await harness.run(msgspec.structs.replace(call, attempt=3), observed)
    assert late.status == "ok"
