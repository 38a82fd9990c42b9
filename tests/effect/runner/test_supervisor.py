"""The one supervisor of a folder: who may start, whom it answers, how long it stays, what its files look like."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import muse
from muse.effect.runner import Exited, Runner, RunnerUnavailable, StartRefused, client
from muse.errors import Fenced

from .conftest import MakeRunner, Shell, lives, parent_of, supervisors_of, wait_until

pytestmark = pytest.mark.anyio

SOURCE = Path(muse.__file__).parents[1]
HOST = Path(__file__).with_name("host.py")


async def test_a_second_start_is_refused_whatever_became_of_the_first(
    runner: Runner, make_runner: MakeRunner, shell: Shell, tmp_path: Path
) -> None:
    spec = shell(1, "echo start >> effects; read line < gate; exit 3")
    os.mkfifo(tmp_path / "gate")
    first = await runner.start(spec)
    later = make_runner(epoch=2)
    for owner in (runner, later):
        with pytest.raises((StartRefused, Fenced)) as refused:
            await owner.start(spec)
        if isinstance(refused.value, StartRefused):
            assert refused.value.reason == "exists"
    (tmp_path / "gate").write_text("\n")
    exit = await later.wait("main/1", 1)
    with pytest.raises(StartRefused, match="started before") as refused:
        await later.start(spec)
    assert later.inspect("main/1", 1) == Exited(first, exit)
    assert (tmp_path / "effects").read_text() == "start\n"


async def test_many_tasks_that_start_one_attempt_start_it_once(runner: Runner, shell: Shell, tmp_path: Path) -> None:
    outcomes: list[str] = []

    async def start() -> None:
        try:
            await runner.start(shell(1, "echo start >> effects"))
            outcomes.append("accepted")
        except StartRefused as refused:
            outcomes.append(refused.reason)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(start)
    await runner.wait("main/1", 1)
    assert sorted(outcomes) == ["accepted"] + ["exists"] * 9
    assert (tmp_path / "effects").read_text() == "start\n"


async def test_another_attempt_of_the_same_call_is_another_start(runner: Runner, shell: Shell) -> None:
    for attempt in (1, 2):
        await runner.start(shell(1, f"echo {attempt}", attempt=attempt))
        exit = await runner.wait("main/1", attempt)
        assert runner.output_path("main/1", attempt).read_bytes() == b"%d\n" % attempt
        assert exit.output_bytes == 2


async def test_an_earlier_owner_is_fenced_as_soon_as_a_later_one_speaks(
    make_runner: MakeRunner, shell: Shell, tmp_path: Path
) -> None:
    earlier = make_runner(epoch=4)
    await earlier.start(shell(1, "true"))
    later = make_runner(epoch=5)
    await later.supervisor()
    with pytest.raises(Fenced):
        await earlier.start(shell(2, "touch effect"))
    with pytest.raises(Fenced):
        await earlier.cancel("main/1", 1)
    await later.stop()
    with pytest.raises(Fenced):  # also by a supervisor that never met the later owner
        await make_runner(epoch=4).start(shell(2, "touch effect"))
    assert not (tmp_path / "effect").exists()
    await later.start(shell(2, "touch effect"))
    await later.wait("main/2", 1)
    assert (tmp_path / "effect").exists()


async def test_hosts_that_race_to_start_the_supervisor_share_one(
    make_runner: MakeRunner, run_dir: Path, tmp_path: Path, mark: str
) -> None:
    name, _, value = mark.partition("=")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), name: value}
    script = "echo $$ >> effects; read line < gate"
    os.mkfifo(tmp_path / "gate")
    hosts = [
        subprocess.Popen(
            [sys.executable, str(HOST), str(run_dir), "1", "start", str(n), script],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE,
        )
        for n in range(4)
    ]  # fmt: skip
    keepers = []
    for host in hosts:
        assert host.stdout is not None
        keepers.append(json.loads(host.stdout.readline())["keeper"])
    assert len({parent_of(keeper) for keeper in keepers}) == 1
    effects = tmp_path / "effects"
    wait_until(lambda: effects.exists() and len(effects.read_text().split()) == 4)
    runner = make_runner()
    for n in range(4):
        await runner.cancel(f"main/{n}", 1)
    for host in hosts:
        with host:
            assert host.wait() == 0


async def test_tasks_of_one_host_that_race_share_one_supervisor(make_runner: MakeRunner, run_dir: Path) -> None:
    found = set()

    async def ask(owner: Runner) -> None:
        found.add((await owner.supervisor()).pid)

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(ask, make_runner())
    assert len(found) == 1
    wait_until(lambda: supervisors_of(run_dir) == list(found))


async def test_it_ends_when_idle_and_the_next_start_brings_a_new_one(
    make_runner: MakeRunner, shell: Shell, run_dir: Path
) -> None:
    runner = make_runner(idle_seconds=0.05)
    first = await runner.supervisor()
    await runner.aclose()
    wait_until(lambda: supervisors_of(run_dir) == [])
    assert not (run_dir / "runner.sock").exists()
    await runner.start(shell(1, "exit 2"))
    assert (await runner.wait("main/1", 1)).code == 2
    assert (await runner.supervisor()) != first


async def test_it_does_not_count_as_idle_while_a_command_runs(
    make_runner: MakeRunner, shell: Shell, tmp_path: Path, run_dir: Path
) -> None:
    runner = make_runner(idle_seconds=0.05)
    os.mkfifo(tmp_path / "gate")
    first = await runner.supervisor()
    await runner.start(shell(1, "read line < gate"))
    await runner.aclose()
    await anyio.sleep(0.3)
    assert lives(first.pid)
    (tmp_path / "gate").write_text("\n")
    wait_until(lambda: supervisors_of(run_dir) == [])
    assert (await runner.wait("main/1", 1)).code == 0


async def test_stop_without_kill_leaves_commands_to_the_next_supervisor(
    runner: Runner, shell: Shell, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    await runner.start(shell(1, "read line < gate; exit 6"))
    first = await runner.supervisor()
    await runner.stop()
    wait_until(lambda: not lives(first.pid))
    (tmp_path / "gate").write_text("\n")
    assert (await runner.wait("main/1", 1)).code == 6


async def test_a_supervisor_that_does_not_answer_is_reported_in_time(
    runner: Runner, make_runner: MakeRunner, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = await runner.supervisor()
    monkeypatch.setattr(client, "READY_SECONDS", 0.2)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.2)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RunnerUnavailable, match="did not answer within"):
            await runner.start(shell(1, "true"))
        with pytest.raises(RunnerUnavailable, match="not reachable within"):
            await make_runner().start(shell(1, "true"))
    finally:
        os.kill(stopped.pid, signal.SIGCONT)


async def test_a_result_is_had_though_the_supervisor_does_not_answer(
    runner: Runner, make_runner: MakeRunner, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "gate")
    await runner.start(shell(1, "read line < gate; exit 6"))
    stopped = await runner.supervisor()
    monkeypatch.setattr(client, "READY_SECONDS", 0.1)
    monkeypatch.setattr(client, "LOOK_AGAIN_SECONDS", 0.1)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        (tmp_path / "gate").write_text("\n")
        assert (await runner.wait("main/1", 1)).code == 6
        assert (await make_runner(epoch=2).wait("main/1", 1)).code == 6
    finally:
        os.kill(stopped.pid, signal.SIGCONT)


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/proc"), reason="needs root on Linux, to mount a small disk"
)
async def test_a_full_disk_ends_the_command_and_is_said(
    make_runner: MakeRunner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    disk = tmp_path / "run" / "disk"
    disk.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        runner = make_runner(folder=disk / "session")
        await runner.start(shell(1, "trap '' TERM; yes"))
        exit = await runner.wait("main/1", 1)
        assert (exit.spool_error, exit.signal) == ("No space left on device", signal.SIGKILL)
        assert exit.output_bytes > 50_000
        output = runner.output_path("main/1", 1).read_bytes()
        assert output == (b"y\n" * len(output))[: exit.output_bytes]
        runner.discard("main/1", 1)
        await runner.start(shell(2, "echo room again"))
        assert (await runner.wait("main/2", 1)).code == 0
        await runner.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/proc"), reason="needs root on Linux, to mount a small disk"
)
async def test_how_a_command_ended_is_written_on_the_disk_that_it_filled(
    make_runner: MakeRunner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    disk = tmp_path / "run" / "disk"
    disk.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        runner = make_runner(folder=disk / "session")
        await runner.start(shell(1, f"head -c 4000000 /dev/zero > {disk}/filler 2>/dev/null; exit 7"))
        with anyio.fail_after(30):
            assert (await runner.wait("main/1", 1)).code == 7
        (disk / "more").write_bytes(b"")
        subprocess.run(["sh", "-c", f"head -c 4000000 /dev/zero > {disk}/more"], stderr=subprocess.DEVNULL, check=False)
        with pytest.raises(StartRefused, match="No space left"):
            await runner.start(shell(2, f"touch {tmp_path}/ran"))
        assert not (tmp_path / "ran").exists()
        (disk / "more").unlink()
        (disk / "filler").unlink()
        await runner.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("obstacle", ["file", "folder in the way"])
async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, shell: Shell, obstacle: str) -> None:
    run_dir = tmp_path / "run"
    if obstacle == "file":
        run_dir.write_text("")
    else:
        (run_dir / "runner.lock").mkdir(parents=True)
    with pytest.raises(RunnerUnavailable) as error:
        await Runner(run_dir, 1).start(shell(1, "true"))
    assert str(run_dir) in str(error.value)
    if obstacle != "file":
        assert "IsADirectoryError" in error.value.hint


async def test_nonsense_on_the_socket_is_refused_and_harms_nobody(runner: Runner, shell: Shell, run_dir: Path) -> None:
    first = await runner.supervisor()
    nonsense = [b"\xff\xfe\n", b"[]\n", b"{}\n", b'{"do":"start"}\n', b'{"do":"ping","epoch":"x"}\n', b'{"do":[]}\n']
    nonsense += [b'{"do":"attach","call":"../../etc","attempt":1}\n', b'{"do":"start","epoch":1,"call":5}\n']
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(run_dir / "runner.sock"))
        answers = raw.makefile("rb")
        for line in nonsense:
            raw.sendall(line)
            assert json.loads(answers.readline())["is"] == "refused", line
        raw.sendall(b'{"do":"status"}')  # cut in the middle
        answers.close()
    await runner.start(shell(1, "exit 1"))
    assert (await runner.wait("main/1", 1)).code == 1
    assert await runner.supervisor() == first


async def test_status_lists_all_attempts_and_an_exit_reaches_all_who_attached(
    runner: Runner, shell: Shell, tmp_path: Path, run_dir: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    await runner.start(shell(1, "read line < gate; exit 8"))
    await runner.start(shell(2, "true"))
    await runner.wait("main/2", 1)
    raws = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for raw in raws:
        raw.connect(str(run_dir / "runner.sock"))
        raw.sendall(b'{"do":"status"}\n{"do":"attach","call":"main/1","attempt":1}\n')
    files = [raw.makefile("rb") for raw in raws]
    for file in files:
        status = json.loads(file.readline())
        assert [(one["call"], one["state"]) for one in status["attempts"]] == [
            ("main/1", "running"),
            ("main/2", "exited"),
        ]
    (tmp_path / "gate").write_text("\n")
    for raw, file in zip(raws, files, strict=True):
        exited = json.loads(file.readline())
        assert (exited["is"], exited["call"], exited["exit"]["code"]) == ("exited", "main/1", 8)
        file.close()
        raw.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
async def test_another_user_is_refused_even_when_the_files_let_him_in(runner: Runner, run_dir: Path) -> None:
    await runner.supervisor()
    os.chmod(run_dir, 0o711)
    os.chmod(run_dir / "runner.sock", 0o777)
    script = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setgroups([]); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('runner.sock')\n"
        'try:\n s.sendall(b\'{"do":"status"}\\n\'); print(s.recv(100))\n'
        "except (BrokenPipeError, ConnectionResetError): print(b'')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(run_dir)], capture_output=True, text=True, check=True)
    assert done.stdout == "b''\n"


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
async def test_files_are_private_whatever_the_umask(
    make_runner: MakeRunner, shell: Shell, tmp_path: Path, run_dir: Path, umask: int
) -> None:
    name = shell(1, "").env
    env = name | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, str(HOST), str(run_dir), "1", "start", "1", "umask; sleep 1000 & read line < gate"]
    os.mkfifo(tmp_path / "gate")
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, umask=umask) as host:
        assert host.stdout is not None
        host.stdout.readline()
        (tmp_path / "gate").write_text("\n")
        host.stdout.read()
    runner = make_runner(epoch=2)
    exit = await runner.wait("main/1", 1)
    assert exit.code == 0
    assert runner.output_path("main/1", 1).read_bytes() == b"%04o\n" % umask
    modes = {path: path.lstat().st_mode & 0o777 for path in [run_dir.parent, run_dir, *run_dir.rglob("*")]}
    assert len(modes) >= 10
    assert {path: oct(mode) for path, mode in modes.items()} == {
        path: oct(0o700 if path.is_dir() else 0o600) for path in modes
    }


async def test_a_discard_that_was_cut_short_is_finished_by_the_next_supervisor(
    runner: Runner, make_runner: MakeRunner, shell: Shell, run_dir: Path
) -> None:
    await runner.start(shell(1, "echo hi"))
    await runner.wait("main/1", 1)
    await runner.stop()
    wait_until(lambda: supervisors_of(run_dir) == [])
    (run_dir / "calls" / "main-1.1").rename(run_dir / "calls" / ".gone-main-1.1.123")
    await make_runner().supervisor()
    assert list((run_dir / "calls").iterdir()) == []


async def test_half_a_copy_that_a_killed_host_left_in_a_folder_is_in_nobodys_way(
    runner: Runner, make_runner: MakeRunner, shell: Shell, run_dir: Path
) -> None:
    for n in (1, 2):
        await runner.start(shell(n, "echo hi"))
        await runner.wait(f"main/{n}", 1)
        (run_dir / "calls" / f"main-{n}.1" / "kept-abc").mkdir()
        (run_dir / "calls" / f"main-{n}.1" / "kept-abc" / "output").write_text("h")
    runner.discard("main/1", 1)
    (run_dir / "calls" / "main-2.1").rename(run_dir / "calls" / ".gone-main-2.1.7")
    await runner.stop()
    await make_runner(epoch=2).supervisor()
    assert list((run_dir / "calls").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["with spaces and 'quotes'", "Ünïcødé 日本 😀", os.fsdecode(b"not utf-8 \xff"), "x" * 200]
)
async def test_the_folder_may_have_any_name(make_runner: MakeRunner, shell: Shell, tmp_path: Path, name: str) -> None:
    runner = make_runner(folder=tmp_path / "run" / name / "session")
    await runner.start(shell(1, "echo hi; exit 3"))
    exit = await runner.wait("main/1", 1)
    assert (exit.code, runner.output_path("main/1", 1).read_bytes()) == (3, b"hi\n")


def test_the_supervisor_loads_nothing_but_the_standard_library() -> None:
    program = SOURCE / "muse" / "effect" / "runner" / "supervisor.py"
    script = (
        "import os, runpy, sys\n"
        "sys.argv = [sys.argv[1], '/no/such/folder']\n"
        "os.fork = lambda: 0\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except FileNotFoundError: pass\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(*sorted(foreign), *sorted({'subprocess', 'asyncio', 'threading', 'tempfile'} & set(sys.modules)))\n"
        "print(sys.modules['muse'].__dict__.get('__file__'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script, str(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "__main__ muse\nNone\n"
