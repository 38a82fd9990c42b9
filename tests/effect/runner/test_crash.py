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
from muse.effect.runner.processes import descendants, start_time

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
    take = (  # SIGHUP, because whoever ran us may ignore it
        "import fcntl,os,signal,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
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


TREE = "echo so far; (setsid env -i sleep 1001 &) ; setsid sleep 1002 & (trap '' TERM; touch ready; sleep 1003; :)"
"""A daemon that forgot its environment, one in a session of its own, and children that do not heed SIGTERM."""


async def test_what_a_killed_keeper_left_is_ended_and_named_and_its_output_so_far_is_kept(
    runner: Runner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    accepted = await runner.start(shell(1, TREE))
    wait_until(lambda: (tmp_path / "ready").exists() and runner.output_path("main/1", 1).stat().st_size)
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            with pytest.raises(CommandLost):
                await runner.wait("main/1", 1)

        group.start_soon(wait)
        await anyio.sleep(0.05)
        below = descendants(accepted.keeper.pid)
        os.kill(accepted.keeper.pid, signal.SIGKILL)
    found = runner.inspect("main/1", 1)
    assert isinstance(found, Lost)
    assert (found.output_bytes, found.command_alive, found.settled, found.left) == (len("so far\n"), False, True, ())
    assert {one.pid for one in found.ended} == set(below)
    assert {"sleep 1001", "sleep 1002", "sleep 1003"} < {one.command for one in found.ended}
    assert not any(lives(pid) for pid in below)
    assert commands_with(mark) == []
    await runner.cancel("main/1", 1)  # harmless
    assert runner.inspect("main/1", 1) == found


async def test_what_is_left_when_keeper_and_supervisor_were_killed_is_ended_by_the_next(
    runner: Runner, make_runner: MakeRunner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    """Nobody was there to inherit its processes: the mark in their environment finds them."""
    accepted = await runner.start(shell(1, "setsid sleep 1002 & (setsid sleep 1003 &); touch ready; sleep 1004; :"))
    wait_until((tmp_path / "ready").exists)
    wait_until(lambda: len(commands_with(mark)) == 4)
    below = commands_with(mark)
    supervisor = await runner.supervisor()
    for pid in (supervisor.pid, accepted.keeper.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lives(accepted.keeper.pid) and not lives(supervisor.pid))
    assert commands_with(mark) == below
    second = make_runner(epoch=2)
    await second.supervisor()
    found = await second.settle("main/1", 1)
    assert isinstance(found, Lost)
    assert {one.pid for one in found.ended} == set(below)
    assert commands_with(mark) == []


async def test_two_keepers_killed_at_once_and_others_are_not_touched(
    runner: Runner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    keepers = []
    for n in (1, 2):
        keepers.append((await runner.start(shell(n, f"setsid sleep 100{n} & touch ready{n}; sleep 1000; :"))).keeper)
    await runner.start(shell(3, "setsid sleep 1003 & touch ready3; sleep 1004; :"))
    await runner.start(shell(4, "sleep 1005 & true"))
    left = (await runner.wait("main/4", 1)).left_running
    wait_until(lambda: all((tmp_path / f"ready{n}").exists() for n in (1, 2, 3)))
    for keeper in keepers:
        os.kill(keeper.pid, signal.SIGKILL)
    wait_until(lambda: not any(lives(keeper.pid) for keeper in keepers))
    ended = [await runner.settle(f"main/{n}", 1) for n in (1, 2)]
    for n, found in enumerate(ended, 1):
        assert isinstance(found, Lost)
        assert f"sleep 100{n}" in {one.command for one in found.ended}
    assert isinstance(runner.inspect("main/3", 1), Running)
    assert all(lives(one.pid) for one in left)


async def test_what_was_left_running_outlives_its_keeper(runner: Runner, shell: Shell, tmp_path: Path) -> None:
    """A background process of a command that has ended is meant to stay, whatever else a keeper is killed for."""
    accepted = await runner.start(shell(1, "setsid env -i sleep 1001 & true"))
    (left,) = (await runner.wait("main/1", 1)).left_running
    second = await runner.start(shell(2, "touch ready; sleep 1002; :"))
    wait_until((tmp_path / "ready").exists)
    os.kill(accepted.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not lives(accepted.keeper.pid))
    supervisor = await runner.supervisor()
    wait_until(lambda: parent_of(left.pid) == supervisor.pid)
    os.kill(second.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not lives(second.keeper.pid))
    found = await runner.settle("main/2", 1)
    assert isinstance(found, Lost)
    assert found.settled
    assert lives(left.pid)
    assert isinstance(runner.inspect("main/1", 1), Exited)
    os.kill(left.pid, signal.SIGKILL)


async def test_a_command_of_another_boot_is_lost_and_nobody_is_ended_for_it(
    runner: Runner, make_runner: MakeRunner, shell: Shell, run_dir: Path, mark: str
) -> None:
    """As after a restart of the machine: the pids that `accepted` names are somebody else's now."""
    accepted = await runner.start(shell(1, "sleep 1000"))
    stranger = subprocess.Popen(["sleep", "1001"], start_new_session=True)
    folder = run_dir / "calls" / "main-2.1"
    folder.mkdir()
    content = json.loads((run_dir / "calls" / "main-1.1" / "accepted").read_text())
    for who in ("keeper", "command"):
        content[who] = {"pid": stranger.pid, "start_time": start_time(stranger.pid), "boot_id": "another boot"}
    (folder / "accepted").write_text(json.dumps(content | {"call": "main/2"}))
    (folder / "output").write_bytes(b"so far\n")
    await runner.stop()
    wait_until(lambda: supervisors_of(run_dir) == [accepted.keeper.pid])
    second = make_runner(epoch=2)
    await second.supervisor()
    found = await second.settle("main/2", 1)
    assert isinstance(found, Lost)
    assert (found.command_alive, found.settled, found.ended, found.output_bytes) == (False, True, (), 7)
    with stranger:
        assert stranger.poll() is None
        stranger.kill()
    assert isinstance(second.inspect("main/1", 1), Running)


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
