"""Real processes killed at real moments: the host, the terminal, the supervisor, the keeper.

What a command did is counted in a file outside. Commands wait at a named pipe, so that each kill hits a known moment.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import muse
from muse.effect.runner import (
    CommandLost,
    Exited,
    Lost,
    NeverAccepted,
    Runner,
    RunnerDamaged,
    Running,
)

from .conftest import MakeRunner, Shell, commands_with, lives, parent_of, supervisors_of, wait_until

pytestmark = pytest.mark.anyio

HOST = Path(__file__).with_name("host.py")
GATED = 'echo start >> effects; echo before; read line < gate; echo "after $line" >&2; echo end >> effects; exit 7'
UNDISTURBED = b"before\nafter go\n"

StartHost = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_host(run_dir: Path, tmp_path: Path, mark: str) -> StartHost:
    """Start `host.py` in a session of its own, in the test's folder."""

    def start(epoch: int, *what: str, before: tuple[str, ...] = (), **given: object) -> "subprocess.Popen[bytes]":
        name, _, value = mark.partition("=")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(muse.__file__).parents[1]), name: value}
        arguments = [*before, sys.executable, str(HOST), str(run_dir), str(epoch), *what]
        fields = {"start_new_session": True, "stdout": subprocess.PIPE} | given
        return subprocess.Popen(arguments, cwd=tmp_path, env=env, **fields)  # type: ignore[call-overload,no-any-return]

    return start


def kill(host: "subprocess.Popen[bytes]") -> None:
    with host:
        host.kill()


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().split() if (folder / "effects").exists() else []


@pytest.mark.parametrize("whole_group", [False, True])
async def test_the_next_owner_gets_the_result_of_a_run_without_a_crash(
    make_runner: MakeRunner, start_host: StartHost, tmp_path: Path, whole_group: bool
) -> None:
    os.mkfifo(tmp_path / "gate")
    host = start_host(1, "start", "1", GATED)
    wait_until(lambda: effects(tmp_path) == ["start"])
    if whole_group:
        os.killpg(host.pid, signal.SIGKILL)
    kill(host)
    runner = make_runner(epoch=2)
    assert isinstance(runner.inspect("main/1", 1), Running)
    async with anyio.create_task_group() as group:
        group.start_soon(runner.wait, "main/1", 1)
        await anyio.sleep(0)
        (tmp_path / "gate").write_text("go\n")
    exit = await runner.wait("main/1", 1)
    assert (exit.code, exit.signal, exit.cancelled, exit.timed_out, exit.group_gone) == (7, None, False, False, True)
    assert runner.output_path("main/1", 1).read_bytes() == UNDISTURBED
    assert effects(tmp_path) == ["start", "end"]


async def test_a_command_that_ended_while_no_host_lived_is_known(
    make_runner: MakeRunner, start_host: StartHost, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    host = start_host(1, "start", "1", GATED)
    wait_until(lambda: effects(tmp_path) == ["start"])
    kill(host)
    (tmp_path / "gate").write_text("go\n")
    runner = make_runner(epoch=2)
    wait_until(lambda: isinstance(runner.inspect("main/1", 1), Exited))
    assert (await runner.wait("main/1", 1)).code == 7
    assert runner.output_path("main/1", 1).read_bytes() == UNDISTURBED


async def test_closing_the_terminal_leaves_the_command_running(
    make_runner: MakeRunner, start_host: StartHost, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    ours, theirs = os.openpty()
    take = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    host = start_host(
        1, "start", "1", GATED, before=(sys.executable, "-c", take), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    wait_until(lambda: effects(tmp_path) == ["start"])
    os.close(ours)
    assert host.wait() == -signal.SIGHUP
    (tmp_path / "gate").write_text("go\n")
    runner = make_runner(epoch=2)
    assert (await runner.wait("main/1", 1)).code == 7
    assert runner.output_path("main/1", 1).read_bytes() == UNDISTURBED


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL])
async def test_a_command_and_its_result_survive_the_supervisor(
    runner: Runner, make_runner: MakeRunner, shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    os.mkfifo(tmp_path / "gate")
    await runner.start(shell(1, GATED))
    wait_until(lambda: effects(tmp_path) == ["start"])
    first = await runner.supervisor()
    os.killpg(os.getpgid(first.pid), number)
    if number in (signal.SIGTERM, signal.SIGKILL):
        wait_until(lambda: not lives(first.pid))
    (tmp_path / "gate").write_text("go\n")
    for owner in (runner, make_runner(epoch=2)):
        exit = await owner.wait("main/1", 1)
        assert (exit.code, exit.cancelled) == (7, False)
    assert runner.output_path("main/1", 1).read_bytes() == UNDISTURBED
    assert effects(tmp_path) == ["start", "end"]


async def test_a_new_supervisor_adopts_cancels_and_refuses_a_second_start(
    runner: Runner, make_runner: MakeRunner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    await runner.start(shell(1, "echo start >> effects; echo so far; sleep 1000"))
    wait_until(lambda: effects(tmp_path) == ["start"])
    first = await runner.supervisor()
    os.kill(first.pid, signal.SIGKILL)
    second = make_runner(epoch=2)
    async with anyio.create_task_group() as group:
        group.start_soon(second.wait, "main/1", 1)
        assert (await second.supervisor()).pid != first.pid
        await second.cancel("main/1", 1)
    assert (await second.wait("main/1", 1)).cancelled
    assert second.output_path("main/1", 1).read_bytes() == b"so far\n"
    assert commands_with(mark) == []
    assert effects(tmp_path) == ["start"]


async def test_a_command_whose_keeper_was_killed_is_lost_with_its_output_so_far(
    runner: Runner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    accepted = await runner.start(shell(1, "echo so far; touch ready; sleep 1000"))
    wait_until(lambda: (tmp_path / "ready").exists() and runner.output_path("main/1", 1).stat().st_size)
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            with pytest.raises(CommandLost):
                await runner.wait("main/1", 1)

        group.start_soon(wait)
        await anyio.sleep(0.05)
        os.kill(accepted.keeper.pid, signal.SIGKILL)
    assert runner.inspect("main/1", 1) == Lost(accepted, len("so far\n"), True)
    await runner.cancel("main/1", 1)
    wait_until(lambda: commands_with(mark) == [])
    assert runner.inspect("main/1", 1) == Lost(accepted, len("so far\n"), False)


async def test_the_files_alone_tell_the_result_when_no_process_is_left(
    runner: Runner, make_runner: MakeRunner, shell: Shell, run_dir: Path
) -> None:
    await runner.start(shell(1, "echo hi; exit 9"))
    exit = await runner.wait("main/1", 1)
    await runner.stop()
    wait_until(lambda: supervisors_of(run_dir) == [])
    second = make_runner(epoch=2)
    assert await second.wait("main/1", 1) == exit
    assert supervisors_of(run_dir) == []


@pytest.mark.parametrize("field", ["start_time", "boot_id"])
async def test_a_reused_pid_is_not_taken_for_the_keeper(
    runner: Runner, shell: Shell, run_dir: Path, field: str
) -> None:
    accepted = await runner.start(shell(1, "sleep 1000"))
    path = run_dir / "calls" / "main-1.1" / "accepted"
    honest = path.read_text()
    forged = json.loads(honest)
    forged["keeper"][field] = forged["command"][field] = "1"  # the pids live, as those of somebody else
    path.write_text(json.dumps(forged))
    found = runner.inspect("main/1", 1)
    assert isinstance(found, Lost)
    assert not found.command_alive
    path.write_text(honest)
    assert runner.inspect("main/1", 1) == Running(accepted, 0)


async def test_a_damaged_file_is_an_error_and_never_an_answer(runner: Runner, shell: Shell, run_dir: Path) -> None:
    await runner.start(shell(1, "true"))
    await runner.wait("main/1", 1)
    for name, content in (("exit", "{"), ("exit", "[]"), ("exit", '{"code": 0}'), ("accepted", ""), ("accepted", "{}")):
        path = run_dir / "calls" / "main-1.1" / name
        honest = path.read_bytes()
        path.write_text(content)
        with pytest.raises(RunnerDamaged):
            runner.inspect("main/1", 1)
        path.write_bytes(honest)


async def test_starts_survive_a_supervisor_killed_at_any_moment(runner: Runner, shell: Shell, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for n in range(20):
        victim = await runner.supervisor()
        async with anyio.create_task_group() as group:
            group.start_soon(runner.start, shell(n, f"echo {n} >> effects"))
            await anyio.sleep(chance.random() * 0.008)
            os.kill(victim.pid, signal.SIGKILL)
        await runner.wait(f"main/{n}", 1)
    assert Counter(effects(tmp_path)) == {str(n): 1 for n in range(20)}


async def test_commands_run_once_though_their_host_is_killed_at_any_moment(
    make_runner: MakeRunner, start_host: StartHost, shell: Shell, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for kills in range(8):
        host = start_host(2 * kills + 1, "many", str(100 * kills), "100")
        assert host.stdout is not None
        begun = host.stdout.readline()
        time.sleep(chance.random() * 0.05)
        host.kill()
        begun += host.stdout.read()
        kill(host)
        last = int(begun.split()[-1])
        runner = make_runner(epoch=2 * kills + 2)
        await runner.supervisor()  # from here on the dead host's requests are fenced
        if isinstance(runner.inspect(f"main/{last}", 1), NeverAccepted):
            await runner.start(shell(last, f"echo {last} >> effects"))
        for n in range(100 * kills, last + 1):
            assert (await runner.wait(f"main/{n}", 1)).code == 0
        counted = Counter(int(line) for line in effects(tmp_path) if int(line) >= 100 * kills)
        assert counted == {n: 1 for n in range(100 * kills, last + 1)}


async def test_supervisor_and_keeper_do_not_hold_on_to_their_host(
    runner: Runner, start_host: StartHost, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    host = start_host(1, "start", "1", GATED)
    assert host.stdout is not None
    keeper = json.loads(host.stdout.readline())["keeper"]
    for pid in (keeper, parent_of(keeper)):
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert os.getsid(pid) != os.getsid(host.pid)
        for fd in ("0", "1"):
            assert os.readlink(f"/proc/{pid}/fd/{fd}") == os.devnull
        assert os.readlink(f"/proc/{pid}/fd/2") == str(runner.run_dir / "runner.log")
        assert b"MUSE_RUNNER_TEST" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert parent_of(parent_of(keeper)) != host.pid
    (tmp_path / "gate").write_text("go\n")
    assert host.stdout.read() == b""  # nobody else holds the other end
    with host:
        assert host.wait() == 0
