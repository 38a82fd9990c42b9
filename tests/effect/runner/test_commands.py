"""What a command sees, and what is said of how it ended. The oracle is the standard library's `subprocess`."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from muse.effect.runner import CommandSpec, Exit, Exited, NeverAccepted, Runner, RunnerError, StartRefused, files
from muse.effect.runner.processes import mark_of
from muse.effect.tool.shell import how_it_ended

from .conftest import MakeRunner, Shell, commands_with, lives, state_of, wait_until

pytestmark = pytest.mark.anyio


async def run(runner: Runner, spec: CommandSpec) -> tuple[Exit, bytes]:
    await runner.start(spec)
    exit = await runner.wait(spec.call, spec.attempt)
    return exit, runner.output_path(spec.call, spec.attempt).read_bytes()[: exit.output_bytes]


def _as_a_terminal_would() -> None:
    """Signals at their defaults: whoever runs the tests may ignore some, and a child would inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def plainly(spec: CommandSpec) -> tuple[int, bytes]:
    """The same command without a runner: exit code (negative: signal) and output through one pipe."""
    done = subprocess.run(
        spec.argv, cwd=spec.cwd, env=spec.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, start_new_session=True, preexec_fn=_as_a_terminal_would,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "echo out; echo err >&2; echo out again; exit 3",
        "kill -SEGV $$",
        "cat; echo 'standard input was empty'",
        "echo one; echo two > /dev/stderr; echo three | tee /dev/stderr; echo four > /dev/stdout",
        "printf '\\0\\377\\200 no end of line'",
        "yes | head -1; echo ${PIPESTATUS[0]}",
        "grep -E 'Sig(Ign|Blk)' /proc/self/status",
        "ls /proc/self/fd",
        "(sleep 0.05; echo late) & wait; echo done",
    ],
)
async def test_a_command_ends_as_it_does_without_a_runner(runner: Runner, shell: Shell, script: str) -> None:
    spec = shell(1, script)
    exit, output = await run(runner, spec)
    assert (exit.code if exit.signal is None else -exit.signal, output) == plainly(spec)
    assert exit.group_gone
    assert not exit.left_running
    assert not exit.timed_out
    assert not exit.cancelled


async def test_binary_output_is_exact(runner: Runner, shell: Shell, tmp_path: Path) -> None:
    exit, output = await run(runner, shell(1, "head -c 3000001 /dev/urandom | tee copy"))
    copy = (tmp_path / "copy").read_bytes()
    assert exit.output_bytes == len(copy) == 3_000_001
    assert hashlib.sha256(output).digest() == hashlib.sha256(copy).digest()


async def test_the_environment_is_the_given_one_to_the_byte_and_the_mark_of_the_call(
    runner: Runner, shell: Shell, tmp_path: Path
) -> None:
    folder = os.fsencode(tmp_path) + b"/not utf-8 \xff\xfe \xe4"
    os.mkdir(folder)
    env = {"PATH": os.environ["PATH"], "RAW": os.fsdecode(b"\x80\xffx"), "TEXT": "día 😀", os.fsdecode(b"N\xf6"): "1"}
    exit, output = await run(runner, shell(1, "", argv=["env", "-0"], env=env, cwd=os.fsdecode(folder)))
    assert exit.code == 0
    assert sorted(output.rstrip(b"\0").split(b"\0")) == sorted(
        [
            b"PATH=" + os.fsencode(os.environ["PATH"]),
            b"RAW=\x80\xffx",
            "TEXT=día 😀".encode(),
            b"N\xf6=1",
            b"MUSE_CALL=" + mark_of(str(runner.run_dir), "main/1", 1).encode(),
        ]
    )
    _, output = await run(runner, shell(2, "pwd -P; printf %s $'\\xff'", cwd=os.fsdecode(folder)))
    assert output == os.path.realpath(folder) + b"\n\xff"


async def test_a_command_leads_a_session_of_its_own_without_a_terminal(runner: Runner, shell: Shell) -> None:
    _, output = await run(runner, shell(1, "echo $$; cut -d' ' -f5-7 /proc/$$/stat"))
    pid, fields = output.decode().splitlines()
    assert fields.split() == [pid, pid, "0"]


async def test_the_umask_is_the_hosts_or_the_given_one(runner: Runner, shell: Shell) -> None:
    before = os.umask(0o022)
    os.umask(before)
    assert (await run(runner, shell(1, "umask")))[1] == b"%04o\n" % before
    assert (await run(runner, shell(2, "umask", umask=0o027)))[1] == b"0027\n"


@pytest.mark.parametrize(
    ("given", "code", "error"),
    [
        ({"argv": ["no-such-program"]}, 127, "cannot execute no-such-program: No such file or directory"),
        ({"argv": ["/etc/passwd"]}, 126, "cannot execute /etc/passwd: Permission denied"),
        ({"cwd": "/no/such/folder"}, 126, "cannot enter /no/such/folder: No such file or directory"),
    ],
)
async def test_a_command_that_cannot_be_executed_says_why(
    runner: Runner, shell: Shell, given: dict[str, object], code: int, error: str
) -> None:
    exit, output = await run(runner, shell(1, "true", **given))
    assert (exit.code, exit.start_error, output) == (code, error, b"")


@pytest.mark.parametrize("given", [{"argv": []}, {"argv": ["a\0b"]}, {"env": {"A": "\0"}}, {"call": "main/../../x"}])
async def test_a_spec_that_cannot_be_meant_is_refused(runner: Runner, shell: Shell, given: dict[str, object]) -> None:
    with pytest.raises(StartRefused) as refused:
        await runner.start(shell(1, "true", **given))
    assert refused.value.reason == "invalid"


async def test_a_timeout_keeps_the_output_so_far(runner: Runner, shell: Shell) -> None:
    exit, output = await run(runner, shell(1, "echo so far; sleep 1000; echo never", timeout_ms=300))
    assert (exit.timed_out, exit.cancelled, exit.signal, exit.group_gone) == (True, False, signal.SIGTERM, True)
    assert output == b"so far\n"


async def test_a_timeout_ends_a_command_that_ignores_sigterm(runner: Runner, shell: Shell) -> None:
    spec = shell(1, "trap 'echo no' TERM; while :; do sleep 1000; done", timeout_ms=200, grace_ms=200)
    exit, output = await run(runner, spec)
    assert (exit.timed_out, exit.signal, exit.group_gone) == (True, signal.SIGKILL, True)
    assert set(output.split(b"\n")) <= {b"no", b"Terminated", b""}


async def test_a_command_may_use_the_grace_to_clean_up(runner: Runner, shell: Shell) -> None:
    exit, output = await run(runner, shell(1, "trap 'echo clean; exit 5' TERM; sleep 1000 & wait", timeout_ms=200))
    assert (exit.timed_out, exit.code, output) == (True, 5, b"clean\n")


async def test_cancel_ends_grandchildren_and_those_that_left_the_group(
    runner: Runner, shell: Shell, tmp_path: Path, mark: str
) -> None:
    tree = "(bash -c 'trap \"\" TERM; sleep 1000; :' &) ; setsid sleep 1001 & sleep 1002 & "
    await runner.start(shell(1, f"{tree} touch ready; sleep 1003; :", grace_ms=100))
    wait_until((tmp_path / "ready").exists)
    wait_until(lambda: len(commands_with(mark)) >= 6)
    await runner.cancel("main/1", 1)
    assert commands_with(mark) == []
    exit = await runner.wait("main/1", 1)
    assert (exit.cancelled, exit.group_gone, exit.left_running) == (True, True, ())


async def test_a_stopped_command_sees_that_it_is_to_end(runner: Runner, shell: Shell) -> None:
    """SIGTERM alone would wait for SIGCONT until the grace is over."""
    await runner.start(shell(1, "trap 'echo bye; exit 3' TERM; echo hi; kill -STOP $$", grace_ms=60_000))
    wait_until(lambda: state_of(runner.inspect("main/1", 1).accepted.command.pid) == "T")  # type: ignore[union-attr]
    await runner.cancel("main/1", 1)
    exit = await runner.wait("main/1", 1)
    assert (exit.cancelled, exit.code, exit.group_gone) == (True, 3, True)
    assert runner.output_path("main/1", 1).read_bytes() == b"hi\nbye\n"


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace, to make signals fail")
async def test_cancel_says_so_when_a_process_does_not_go(runner: Runner, shell: Shell, tmp_path: Path) -> None:
    """As one that is stuck in the kernel: here the keeper's signals fail, injected at the system call."""
    accepted = await runner.start(shell(1, "echo hi; touch ready; sleep 1000; :", grace_ms=10))
    wait_until((tmp_path / "ready").exists)
    tracer = subprocess.Popen(
        ["strace", "-p", str(accepted.keeper.pid), "-e", "trace=kill", "-e", "inject=kill:error=EPERM"],
        stderr=subprocess.PIPE,
    )
    assert tracer.stderr is not None
    with tracer:
        if b"attached" not in tracer.stderr.readline():
            tracer.wait()
            pytest.skip("strace may not attach to a process here")
        await runner.cancel("main/1", 1)
        exit = await runner.wait("main/1", 1)
        tracer.terminate()
    assert (exit.cancelled, exit.code, exit.signal, exit.group_gone) == (True, None, None, False)
    assert {left.command for left in exit.left_running} >= {"sleep 1000"}
    assert all(lives(left.pid) for left in exit.left_running)
    text = how_it_ended(exit)
    assert "this could not be ended and still runs: " in text
    assert "no exit status" in text
    await runner.cancel("main/1", 1)
    wait_until(lambda: not any(lives(left.pid) for left in exit.left_running))  # cancel itself waits for some seconds


async def test_cancel_of_what_ended_or_never_was_is_harmless(runner: Runner, shell: Shell) -> None:
    exit, _ = await run(runner, shell(1, "exit 4"))
    await runner.cancel("main/1", 1)
    await runner.cancel("main/2", 1)
    assert runner.inspect("main/1", 1) == Exited(runner.inspect("main/1", 1).accepted, exit)  # type: ignore[union-attr]
    assert runner.inspect("main/2", 1) == NeverAccepted()


async def test_a_background_child_is_named_and_left_running_until_cancelled(
    runner: Runner, shell: Shell, tmp_path: Path
) -> None:
    script = "mkfifo go; (read line < go; echo late; sleep 1000) & setsid sleep 1001 & echo $! > daemon; echo started"
    exit, output = await run(runner, shell(1, script))
    daemon = int((tmp_path / "daemon").read_text())
    assert (exit.code, output, exit.group_gone) == (0, b"started\n", False)
    assert {left.pid: left.command for left in exit.left_running}[daemon] == "sleep 1001"
    assert all(lives(left.pid) for left in exit.left_running)
    (tmp_path / "go").write_text("go\n")
    spool = runner.output_path("main/1", 1)
    wait_until(lambda: spool.read_bytes() == b"started\nlate\n")  # kept, and not part of the result
    assert await runner.wait("main/1", 1) == exit
    await runner.cancel("main/1", 1)
    assert not any(lives(left.pid) for left in exit.left_running)


async def test_discard_of_a_result_keeps_the_names_of_what_is_left_running(runner: Runner, shell: Shell) -> None:
    exit, _ = await run(runner, shell(1, "sleep 1000 & echo started"))
    runner.discard("main/1", 1)
    assert not runner.output_path("main/1", 1).exists()
    await runner.cancel("main/1", 1)
    assert not lives(exit.left_running[0].pid)
    (end,) = files.read_lines(str(runner.output_path("main/1", 1).parent / "ends"))
    assert (end["pid"], end["signal"], end["asked"]) == (exit.left_running[0].pid, signal.SIGTERM, True)
    runner.discard("main/1", 1)
    assert not runner.output_path("main/1", 1).parent.exists()


async def test_discard_takes_the_folder_away_but_not_of_a_running_command(runner: Runner, shell: Shell) -> None:
    await run(runner, shell(1, "echo hi"))
    runner.discard("main/1", 1)
    assert runner.inspect("main/1", 1) == NeverAccepted()
    assert not runner.output_path("main/1", 1).parent.exists()
    await runner.start(shell(2, "sleep 1000"))
    with pytest.raises(RunnerError, match="still runs"):
        runner.discard("main/2", 1)


async def test_the_last_children_of_a_shell_belong_to_its_result(runner: Runner, shell: Shell) -> None:
    exit, output = await run(runner, shell(1, "echo through > >(cat; echo end)"))
    assert (output, exit.left_running) == (b"through\nend\n", ())


async def test_too_much_output_ends_the_command_and_is_said(runner: Runner, shell: Shell, mark: str) -> None:
    exit, output = await run(runner, shell(1, "trap '' TERM; yes", output_bytes_max=100_000))
    assert (exit.output_limit_reached, exit.signal, exit.group_gone) == (True, signal.SIGKILL, True)
    assert 100_000 < len(output) < 400_000
    assert output == (b"y\n" * len(output))[: len(output)]
    assert commands_with(mark) == []


async def test_two_hundred_short_commands_run_once_each(make_runner: MakeRunner, shell: Shell, tmp_path: Path) -> None:
    runner = make_runner()
    limit = anyio.CapacityLimiter(16)
    exits: dict[int, tuple[Exit, bytes]] = {}

    async def one(n: int) -> None:
        async with limit:
            exits[n] = await run(runner, shell(n, f"echo {n} >> effects; echo {n}; exit $(({n} % 7))"))
            runner.discard(f"main/{n}", 1)

    async with anyio.create_task_group() as group:
        for n in range(200):
            group.start_soon(one, n)
    assert sorted(int(line) for line in (tmp_path / "effects").read_text().split()) == list(range(200))
    assert {n: (exit.code, output) for n, (exit, output) in exits.items()} == {
        n: (n % 7, b"%d\n" % n) for n in range(200)
    }
    assert list((runner.run_dir / "calls").iterdir()) == []


KEEPER = """
import signal, sys
from muse.effect.runner.keeper import Keeper
spec = {"call": "main/1", "attempt": 1, "output_bytes_max": 1, "confine": {}, "grace_ms": 0}
keeper = Keeper(sys.argv[1], spec, -1, -1)
keeper.pid, keeper.wait_status, keeper.subreaper = int(sys.argv[2]), 0, True
keeper._signal_all(signal.SIGKILL)
"""


def test_a_group_whose_number_others_use_by_now_is_not_signalled(tmp_path: Path) -> None:
    """The shell was waited for hours ago and a daemon of it lives on: its old number belongs to somebody else."""
    program = (
        "import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        somebody = int(parent.stdout.readline())
        parent.wait()
        try:
            # In a process of its own: a keeper signals all that descends from it.
            subprocess.run(
                [sys.executable, "-c", KEEPER, str(tmp_path / "calls" / "main-1.1"), str(somebody)], check=True
            )
            anyio.run(anyio.sleep, 0.2)
            os.kill(somebody, 0)
            assert Path(f"/proc/{somebody}/stat").read_text().split()[2] == "S"
        finally:
            os.kill(somebody, signal.SIGKILL)
