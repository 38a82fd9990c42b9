"""The shell tool with a real runner and real commands."""

import hashlib
import os
import signal
import sys
import tracemalloc
from pathlib import Path

import anyio
import msgspec
import pytest

from muse.effect.protocol import ToolResult, Workspace
from muse.effect.runner import CommandSpec, Runner
from muse.effect.tool.output import TEXT_BYTES_MAX
from muse.effect.tool.shell import COMMAND_BYTES_MAX, ShellTool
from tests.effect.tool.conftest import Harness, blob_of

pytestmark = pytest.mark.anyio

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nowhere",
    "LC_ALL": "C.UTF-8",
    "ANTHROPIC_API_KEY": "sk-canary",
    "GITHUB_TOKEN": "ghp-canary",
    "EDITOR": "vi",
    "CI_BUILD": "7",
}


@pytest.fixture
def shell(runner: Runner, workspace: Workspace) -> Harness:
    return Harness(ShellTool(runner, ENVIRONMENT), workspace)


async def test_a_command_runs_in_the_workspace_and_says_its_exit_code(shell: Harness, root: Path) -> None:
    result = await shell.do(command="pwd; echo problem >&2; exit 3")
    assert result == ToolResult(
        duration_ms=result.duration_ms,
        status="error",
        text=f"{root}\nproblem\nexit code 3",
        output_bytes=len(f"{root}\nproblem\n"),
        exit_code=3,
    )


async def test_a_command_without_output_says_so(shell: Harness) -> None:
    result = await shell.do(command="true")
    assert (result.status, result.text, result.exit_code) == ("ok", "(no output)\nexit code 0", 0)


async def test_a_command_sees_only_the_allowed_environment(shell: Harness) -> None:
    result = await shell.do(command="env | cut -d= -f1 | sort")
    seen = set(result.text.splitlines()[:-1]) - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert seen == {"PATH", "HOME", "LC_ALL", "PAGER", "GIT_PAGER", "MUSE_CALL"}


async def test_configured_names_are_passed_on_but_never_keys_and_tokens(runner: Runner, workspace: Workspace) -> None:
    shell = Harness(ShellTool(runner, ENVIRONMENT, ("CI_BUILD", "GITHUB_TOKEN", "ANTHROPIC_API_KEY")), workspace)
    result = await shell.do(command='echo "$CI_BUILD[$GITHUB_TOKEN][$ANTHROPIC_API_KEY]"')
    assert result.text == "7[][]\nexit code 0"


async def test_standard_input_is_empty(shell: Harness) -> None:
    result = await shell.do(command="cat; echo done")
    assert result.text == "done\nexit code 0"


async def test_of_long_output_the_model_gets_head_and_tail_and_the_log_gets_all(shell: Harness) -> None:
    call = shell.call(command="seq 100000")
    result = await shell.run(call)
    whole = b"".join(b"%d\n" % number for number in range(1, 100001))
    assert result.output is not None
    assert shell.blobs[result.output.blob] == whole
    assert result.output_bytes == len(whole)
    assert result.text.startswith("1\n2\n3\n")
    assert result.text.endswith("99999\n100000\nexit code 0")
    assert f'output(call="{call.call}")' in result.text
    head, _, rest = result.text.partition("[... ")
    left_out, _, tail = rest.partition(" bytes left out; ")
    tail = tail.partition(" ...]\n")[2].removesuffix("exit code 0")
    assert whole.startswith(head.encode()[:-1])
    assert whole.endswith(tail.encode())
    assert TEXT_BYTES_MAX - 8 <= len(whole) - int(left_out) <= TEXT_BYTES_MAX


async def test_memory_stays_bounded_whatever_the_output(shell: Harness) -> None:
    async def keep_nothing(path: Path) -> object:
        assert path.stat().st_size == 64 << 20
        return await shell.keep(b"")

    shell.keep_file = keep_nothing  # type: ignore[method-assign, assignment]
    call = shell.call(command="head -c 67108864 /dev/zero")
    observed = await shell.observe(call)
    tracemalloc.start()
    try:
        result = await shell.run(call, observed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.output_bytes == 64 << 20
    assert peak < 4 << 20


async def test_output_that_is_no_utf8_becomes_valid_text_and_is_kept_exactly(shell: Harness) -> None:
    result = await shell.do(command=r"printf 'a\xff\0b\xe2\x82'")
    assert result.text == "a\ufffd\0b\ufffd\nexit code 0"
    assert result.output is not None
    assert shell.blobs[result.output.blob] == b"a\xff\0b\xe2\x82"


async def test_a_long_output_of_wide_characters_is_cut_between_them(shell: Harness) -> None:
    script = "import sys; sys.stdout.write('x' + '\U0001f600' * 20000)"
    result = await shell.do(command=f'{sys.executable} -X utf8 -c "{script}"')
    assert "\ufffd" not in result.text
    assert result.output_bytes == 80001


async def test_a_time_out_keeps_the_output_so_far_and_ends_the_whole_group(shell: Harness, root: Path) -> None:
    result = await shell.do(command="echo $$ > pid; echo started; sleep 1000 & sleep 1000", timeout_seconds=1)
    assert result.status == "error"
    assert result.timed_out
    assert result.text.startswith("started\ntimed out after 1.")
    with pytest.raises(ProcessLookupError):
        os.killpg(int((root / "pid").read_text()), 0)


async def test_the_time_out_of_the_session_holds_when_the_call_names_none(shell: Harness) -> None:
    call = shell.call(command="sleep 1000")
    call = type(call)(call=call.call, attempt=1, name="shell", args=call.args, args_text="", timeout_seconds=1)
    assert (await shell.run(call)).timed_out


async def test_cancelling_ends_the_command_and_keeps_the_output_so_far(shell: Harness, root: Path) -> None:
    results: list[ToolResult] = []
    async with anyio.create_task_group() as tasks:
        shell.on_show = tasks.cancel_scope.cancel

        async def run() -> None:
            results.append(await shell.do(command="echo $$ > pid; echo started; sleep 1000"))

        tasks.start_soon(run)
    assert results[0].status == "cancelled"
    assert results[0].text.startswith("started\ncancelled")
    with pytest.raises(ProcessLookupError):
        os.killpg(int((root / "pid").read_text()), 0)


async def test_a_call_that_is_cancelled_already_starts_nothing(shell: Harness, root: Path) -> None:
    call = shell.call(command="touch started")
    observed = await shell.observe(call)
    with anyio.CancelScope() as scope:
        scope.cancel()
        result = await shell.run(call, observed)
    assert result == ToolResult(status="cancelled", text="cancelled before the command was started")
    assert (await shell.reconcile(call, observed)).verdict == "not_done"
    assert os.listdir(root) == []


async def test_live_output_is_shown_while_the_command_runs(shell: Harness, root: Path) -> None:
    def let_go() -> None:
        if "one" in "".join(shell.shown):
            (root / "go").touch()

    shell.on_show = let_go
    result = await shell.do(command="echo one; until [ -e go ]; do sleep 0.05; done; echo two", timeout_seconds=30)
    assert result.text == "one\ntwo\nexit code 0"
    assert "".join(shell.shown) == "one\ntwo\n"


async def test_a_second_host_goes_on_with_a_running_command(
    shell: Harness, runner: Runner, root: Path, workspace: Workspace, tmp_path: Path
) -> None:
    call = shell.call(command="echo run >> count; echo one; until [ -e go ]; do sleep 0.05; done; echo two")
    await start_and_leave(runner, root, call.call, str(call.args["command"]), call.args_text)
    later = Runner(tmp_path / "run", 2, idle_seconds=0.2)
    second = Harness(ShellTool(later, ENVIRONMENT), workspace)
    verdict = await second.reconcile(call, await second.observe(call))
    assert verdict.verdict == "attached"
    second.on_show = (root / "go").touch
    result = await second.run(call, attach=True)
    assert result.text == "one\ntwo\nexit code 0"
    assert (root / "count").read_text() == "run\n"
    again = await second.run(call)
    assert again == result
    assert (root / "count").read_text() == "run\n"
    await later.aclose()


async def start_and_leave(runner: Runner, root: Path, call: str, command: str, args_text: str) -> int:
    """What a host does that dies right after the start; the process id of the keeper."""
    environment = {"PATH": os.environ["PATH"]}
    digest = hashlib.sha256(args_text.encode()).hexdigest()
    argv = ["bash", "-c", command]
    accepted = await runner.start(
        CommandSpec(call=call, attempt=1, args_digest=digest, argv=argv, cwd=str(root), env=environment)
    )
    await runner.aclose()
    return accepted.keeper.pid


async def test_a_command_that_never_started_may_be_started(shell: Harness) -> None:
    call = shell.call(command="true")
    verdict = await shell.reconcile(call, await shell.observe(call))
    assert verdict.verdict == "not_done"


async def test_a_command_whose_start_was_removed_from_the_runners_folder_is_not_run_again(
    shell: Harness, runner: Runner, root: Path
) -> None:
    """As a command without a sandbox can do, or a person who clears up."""
    call = shell.call(command=f"rm -rf {runner.run_dir}/calls; echo run >> count")
    observed = await shell.observe(call)
    await shell.run(call, observed)
    while not (root / "count").exists():
        await anyio.sleep(0.02)
    verdict = await shell.reconcile(call, observed)
    assert (verdict.verdict, (root / "count").read_text()) == ("unknown", "run\n"), verdict.evidence


async def test_a_folder_that_commands_were_not_given_to_proves_nothing_of_them(
    shell: Harness, runner: Runner, root: Path, workspace: Workspace, tmp_path: Path
) -> None:
    """A log that was copied to another home, or whose runner's folder was removed: the command may have run."""
    call = shell.call(command="echo run >> count")
    observed = await shell.observe(call)
    await shell.run(call, observed)
    elsewhere = Runner(tmp_path / "elsewhere", 2, idle_seconds=0.2)
    verdict = await Harness(ShellTool(elsewhere, ENVIRONMENT), workspace).reconcile(call, observed)
    assert verdict.verdict == "unknown"
    assert "copied" in verdict.evidence
    await elsewhere.aclose()


async def test_the_end_of_another_command_under_the_same_number_is_not_taken_for_ours(
    shell: Harness, runner: Runner, root: Path
) -> None:
    """A log that lost its end counts again from there, and the runner remembers what the log does not."""
    call = shell.call(command="echo ours")
    await start_and_leave(runner, root, call.call, "echo theirs", '{"command": "echo theirs"}')
    await runner.wait(call.call, 1)
    verdict = await shell.reconcile(call, await shell.observe(call))
    assert verdict.verdict == "not_done"
    assert "another command" in verdict.evidence
    again = msgspec.structs.replace(call, attempt=2)
    assert (await shell.run(again)).text == "ours\nexit code 0"


async def test_a_command_that_ended_unseen_gives_the_same_result_as_one_that_was_seen(
    shell: Harness, runner: Runner, root: Path
) -> None:
    call = shell.call(command="echo done; exit 4")
    await start_and_leave(runner, root, call.call, str(call.args["command"]), call.args_text)
    ended = await runner.wait(call.call, 1)
    assert (await shell.reconcile(call, await shell.observe(call))).verdict == "attached"
    assert await shell.run(call, attach=True) == ToolResult(
        status="error", text="done\nexit code 4", output_bytes=5, exit_code=4, duration_ms=ended.duration_ms
    )


async def test_a_command_taken_up_by_a_second_host_has_its_own_whole_duration(
    shell: Harness, root: Path, runner: Runner
) -> None:
    call = shell.call(command="sleep 0.7")
    await start_and_leave(runner, root, call.call, str(call.args["command"]), call.args_text)
    await runner.wait(call.call, 1)
    result = await shell.run(call, attach=True)
    assert result.duration_ms is not None
    assert result.duration_ms >= 700


async def test_a_command_whose_supervisor_died_is_unknown_with_its_output_so_far(
    shell: Harness, runner: Runner, root: Path
) -> None:
    call = shell.call(command="echo halfway; touch there; sleep 1000")
    keeper = await start_and_leave(runner, root, call.call, str(call.args["command"]), call.args_text)
    with anyio.fail_after(20):
        while not runner.output_path(call.call, 1).stat().st_size:
            await anyio.sleep(0.01)
    os.kill(keeper, signal.SIGKILL)
    with anyio.fail_after(20):
        while (await shell.reconcile(call, await shell.observe(call))).verdict == "attached":
            await anyio.sleep(0.01)
    verdict = await shell.reconcile(call, await shell.observe(call))
    assert (verdict.verdict, verdict.result, verdict.take_up) == ("unknown", None, True)
    assert "what was left of it has been ended: " in verdict.evidence
    taken = await shell.run(call, attach=True)
    assert taken.status == "unknown"
    assert taken.text.startswith("halfway\noutcome unknown (the command was started, and its keeper was killed")
    assert taken.text.endswith(
        "The command may or may not have finished. Look at what it changed before you run it again"
    )
    assert {process.how for process in taken.processes} == {"ended: its keeper was killed"}
    assert "sleep 1000" in {process.command for process in taken.processes}


async def test_processes_left_running_are_named(shell: Harness, root: Path, runner: Runner) -> None:
    call = shell.call(command="sleep 1000 >/dev/null 2>&1 & echo $! > pid")
    result = await shell.run(call)
    pid = int((root / "pid").read_text())
    assert [(process.pid, process.command) for process in result.processes] == [(pid, "sleep 1000")]
    assert f"still running in the background: {pid} (sleep 1000)" in result.text
    await runner.cancel(call.call, 1)


async def test_what_is_written_after_the_end_is_not_part_of_the_result(
    shell: Harness, root: Path, runner: Runner
) -> None:
    call = shell.call(command="seq 20000; (until [ -e go ]; do sleep 0.05; done; echo late; touch done; sleep 1000) &")

    expected = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    first = await shell.run(call)
    assert first.output == blob_of(expected)
    (root / "go").touch()
    with anyio.fail_after(30):
        while not (root / "done").exists():
            await anyio.sleep(0.01)
    again = await shell.run(call, attach=True)
    assert again == first
    await runner.cancel(call.call, 1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "missing argument command"),
        ({"command": 7}, "argument command must be a string, not a number"),
        ({"command": " "}, "argument command is empty"),
        ({"command": "echo \0"}, "NUL"),
        ({"command": "echo \ud83d"}, "half a surrogate pair at character 5"),
        ({"command": "x" * 10_000_000}, f"at most {COMMAND_BYTES_MAX}"),
        ({"command": "true", "timeout_seconds": "5"}, "argument timeout_seconds must be an integer, not a string"),
        ({"command": "true", "timeout_seconds": 0}, "argument timeout_seconds must be at least 1"),
        ({"command": "true", "colour": 1}, 'unknown argument "colour": shell takes command, timeout_seconds'),
    ],
)
async def test_arguments_that_cannot_be_meant_are_named(shell: Harness, args: dict[str, object], says: str) -> None:
    call = shell.call(**args)
    observed = await shell.observe(call)
    result = await shell.run(call, observed)
    assert says in observed.error
    assert result.status == "error"
    assert result.text == observed.error
    assert len(result.text) < 1000


async def test_a_workspace_that_vanished_is_an_error(shell: Harness, root: Path) -> None:
    root.rmdir()
    result = await shell.do(command="true")
    assert result.status == "error"
    assert "could not be started" in result.text
