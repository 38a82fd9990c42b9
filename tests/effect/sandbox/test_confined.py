"""What a command in a sandbox can and cannot do, under each enforcer that this machine has."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from muse.effect.runner import CommandSpec, Runner
from muse.effect.sandbox import NO_SANDBOX
from tests.effect.runner.conftest import MakeRunner, commands_with, lives, wait_until
from tests.effect.sandbox.conftest import SESSION, Do, Machine, box_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the same user that has nothing to do with the sandbox."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def line_of(pid: int) -> bytes:
    """The command line of a process, as far as it has one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""


def names_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_the_workspace_is_written_and_nothing_outside_it(do: Do, user: Machine, enforcer: str) -> None:
    script = f"""
        echo new > made.txt && mkdir -p a/b && mv made.txt a/b/ && ln -s b a/c && echo inside works
        echo x >> {user.outside}; truncate -s 0 {user.outside}; rm -f {user.outside}; mv {user.outside} {user.root}/m
        ln {user.outside} linked; mkdir {user.home}/d; touch {user.home}/f; echo x > {user.root}/g
        exit 5
    """
    exit, said = await do(script, box_of(user, enforcer))
    assert "inside works" in said
    assert exit.code == 5
    assert (user.workspace / "a" / "b" / "made.txt").read_text() == "new\n"
    assert user.outside.read_text() == "kept\n"
    assert names_of(user.home) == [".bashrc", "kept.txt", "muse"]
    assert names_of(user.root) == ["home", "work"]


async def test_modes_and_times_of_files_outside_stay(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself does not know of modes: docs/sandbox.md says so")
    before = user.outside.stat()
    await do(
        f"chmod 777 {user.outside}; touch -d 2001-01-01 {user.outside}; chown 1:1 {user.outside}",
        box_of(user, enforcer),
    )
    after = user.outside.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (before.st_mode, before.st_mtime_ns, before.st_uid)


async def test_read_only_leaves_a_temporary_folder_and_devices(do: Do, user: Machine, enforcer: str) -> None:
    script = """
        echo x > f; echo x >> .git/config; echo nothing > /dev/null && echo null works
        echo y > "$TMPDIR/t" && cat "$TMPDIR/t" && cat <<< "here too"
    """
    box = box_of(user, enforcer, "read-only")
    _, said = await do(script, box)
    assert said.endswith("null works\ny\nhere too\n")
    assert names_of(user.workspace) == [".git"]
    box.close()
    assert not os.path.exists(box.scratch)


@pytest.mark.parametrize("name", [".git/config", ".git/hooks/pre-commit", ".git/hooks/new", ".muse/config.toml"])
async def test_what_could_run_later_stays_as_it_is(do: Do, user: Machine, enforcer: str, name: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself opens a folder or does not: docs/sandbox.md says so")
    path = user.workspace / name
    before = path.read_bytes() if path.exists() else None
    _, said = await do(
        f"echo 'x=1' >> {name}; rm -rf {name}; echo y > other && mv other {name}; exit 0", box_of(user, enforcer)
    )
    assert "Read-only file system" in said
    assert (path.read_bytes() if path.exists() else None) == before


async def test_no_folder_above_what_is_kept_can_be_swapped(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself opens a folder or does not: docs/sandbox.md says so")
    script = "mv .git .g && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit; rmdir .muse; mv .muse .m"
    await do(script, box_of(user, enforcer))
    assert not (user.workspace / ".git" / "hooks" / "pre-commit").exists()
    assert not (user.workspace / ".g").exists()
    assert not (user.workspace / ".m").exists()


async def test_git_works_in_it(do: Do, user: Machine, enforcer: str) -> None:
    (user.workspace / "f").write_text("1\n")
    script = """
        git add f && git -c user.name=t -c user.email=t@example.org commit -q -m one && git checkout -q -b next &&
        git log --format=%s && git gc -q && git status --short
    """
    exit, said = await do(script, box_of(user, enforcer))
    assert (exit.code, said) == (0, "one\n")


async def test_the_record_is_out_of_reach(do: Do, user: Machine, enforcer: str) -> None:
    script = f"""
        echo x >> {user.log}; rm -f {user.log}; truncate -s 0 {user.log}; mv {user.log} {user.log}.old
        echo x > {user.muse_home}/run/x; find {user.muse_home} -name exit; cat {user.log}
        exit 0
    """
    _, said = await do(script, box_of(user, enforcer))
    assert user.log.read_bytes() == b"the record"
    assert ("the record" in said) == (enforcer == "landlock-alone")
    assert names_of(user.muse_home / "run") == [SESSION]


async def test_no_signal_and_no_trace_leads_out(
    do: Do, user: Machine, enforcer: str, bystander: "subprocess.Popen[bytes]"
) -> None:
    pid = bystander.pid
    script = f"""
        kill -9 {pid}; kill -STOP {pid}; (: > /proc/{pid}/mem) && echo opened; cat /proc/{pid}/environ && echo read
        ls /proc/{pid}/root/
    """
    _, said = await do(script, box_of(user, enforcer))
    assert bystander.poll() is None
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "S"
    assert "opened" not in said
    assert "read\n" not in said


async def test_a_command_inside_tmux_starts_and_does_not_see_its_socket(do: Do, user: Machine, enforcer: str) -> None:
    folder = user.root / f"tmux-{os.geteuid()}"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "default"))
        places = user.places(TMUX=f"{folder}/default,1234,0", TMUX_TMPDIR=str(user.root))
        exit, said = await do(f"echo it runs; ls {folder}", box_of(user, enforcer, places=places))
    assert said.startswith("it runs\n")
    if enforcer != "landlock-alone":
        assert "default" not in said.replace(str(folder), "")
    assert exit.code == 0


async def test_hidden_names_may_lie_inside_one_another(do: Do, user: Machine) -> None:
    inner = user.root / "outer" / "inner"
    inner.mkdir(parents=True)
    places = user.places()
    places = msgspec.structs.replace(places, hidden=(*places.hidden, str(inner.parent), str(inner)))
    exit, said = await do("echo it runs", box_of(user, "landlock", places=places))
    assert (exit.code, said) == (0, "it runs\n")


async def test_abstract_sockets_of_others_are_out_of_reach(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "bubblewrap":
        pytest.skip("bubblewrap keeps them only together with the network: docs/sandbox.md says so")
    name = f"muse-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        assert (await do(f'{sys.executable} -c "{code}"'))[0].code == 0
        exit, said = await do(f'{sys.executable} -c "{code}"', box_of(user, enforcer))
    assert (exit.code, "PermissionError" in said) == (1, True)


async def test_without_network_nothing_outside_is_reached(do: Do, user: Machine, enforcer: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        connect = f'{sys.executable} -c "import socket; socket.create_connection((\\"127.0.0.1\\", {port}), 5)"'
        assert (await do(connect, box_of(user, enforcer)))[0].code == 0
        exit, said = await do(connect, box_of(user, enforcer, network=False))
    assert exit.code == 1, said


async def test_without_network_a_program_can_still_talk_to_itself(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself refuses all of TCP: docs/sandbox.md says so")
    code = "import socket; a = socket.create_server((\\'127.0.0.1\\', 0)); socket.create_connection(a.getsockname())"
    exit, said = await do(f"{sys.executable} -c $'{code}'", box_of(user, enforcer, network=False))
    assert exit.code == 0, said


async def test_terminals_and_shared_memory_work(do: Do, user: Machine, enforcer: str) -> None:
    code = "import os, pty; a, b = pty.openpty(); os.write(b, b'x'); assert os.read(a, 1) == b'x'"
    script = f'{sys.executable} -c "{code}" && echo x > /dev/shm/muse-$$ && rm /dev/shm/muse-$$ && echo y > /dev/stderr'
    exit, said = await do(script, box_of(user, enforcer))
    assert (exit.code, said) == (0, "y\n")


async def test_namespaces_of_its_own_do_not_lead_out(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself opens a folder or does not: docs/sandbox.md says so")
    script = f"""
        cat > inner <<'END'
            umount .git/hooks; umount -l .git; mount -o remount,rw,bind .git/hooks; mount --bind .git/hooks /mnt
            umount {user.muse_home}; echo x > .git/hooks/x; echo x >> {user.outside}; cat {user.log}; exit 7
END
        unshare -Urm sh inner; unshare -Urmpf --mount-proc sh inner; nsenter -t 1 -m sh inner; exit 0
    """
    _, said = await do(script, box_of(user, enforcer))
    assert "the record" not in said
    assert not (user.workspace / ".git" / "hooks" / "x").exists()
    assert user.outside.read_text() == "kept\n"


async def test_nothing_is_written_to_the_terminal_of_the_person(do: Do, user: Machine, enforcer: str) -> None:
    if enforcer == "landlock-alone":
        pytest.skip("Landlock by itself has all terminals or none: docs/sandbox.md says so")
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        exit, _ = await do(f"[ -e {name} ] && echo 'all is well' > {name}", box_of(user, enforcer))
        os.set_blocking(master, False)
        with pytest.raises(BlockingIOError):
            os.read(master, 100)
    finally:
        os.close(master)
        os.close(slave)
    assert exit.code == 1


async def test_root_keeps_no_right_that_undoes_it(do: Do, user: Machine, enforcer: str) -> None:
    script = "grep -E 'CapEff|NoNewPrivs' /proc/self/status; umount .git/hooks; mount -o remount,rw / ; mknod d b 1 1"
    _, said = await do(script, box_of(user, enforcer))
    rights = int(said.split()[1], 16)
    assert not rights >> 21 & 1, "sys_admin"
    assert not rights >> 19 & 1, "sys_ptrace"
    assert "NoNewPrivs:\t1" in said
    assert not (user.workspace / "d").exists()


SCRIPTS = [
    "exit 0",
    "exit 3",
    "no-such-program",
    "kill -9 $$",
    "kill -TERM $$",
    "trap 'exit 9' USR1; kill -USR1 $$; sleep 5",
]


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_command_ends_as_without_it(do: Do, user: Machine, enforcer: str, script: str) -> None:
    plain, said_plainly = await do(script)
    confined, said = await do(script, box_of(user, enforcer))
    expected = plain.code if plain.code is not None or enforcer != "bubblewrap" else 128 + (plain.signal or 0)
    assert (confined.code, confined.group_gone, said) == (expected, True, said_plainly)
    if enforcer != "bubblewrap":
        assert confined.signal == plain.signal


async def test_a_time_out_ends_it_as_without(do: Do, user: Machine, enforcer: str) -> None:
    script = "trap 'echo asked; exit 4' TERM; sleep 1000 & wait"
    exit, said = await do(script, box_of(user, enforcer), timeout_ms=500, grace_ms=10_000)
    assert (exit.code, exit.signal, exit.timed_out, exit.group_gone, said) == (4, None, True, True, "asked\n")


async def test_what_does_not_listen_is_killed(do: Do, user: Machine, enforcer: str, mark: str) -> None:
    script = "trap '' TERM; (setsid sleep 1000 &) ; while :; do sleep 1; done"
    exit, _ = await do(script, box_of(user, enforcer), timeout_ms=300, grace_ms=200)
    assert (exit.timed_out, exit.group_gone) == (True, True)
    wait_until(lambda: not commands_with(mark))


async def test_what_is_left_running_is_named_and_ended_on_request(
    do: Do, user: Machine, enforcer: str, mark: str
) -> None:
    exit, _ = await do("(setsid sleep 1001 &) ; exit 2", box_of(user, enforcer))
    assert exit.code == 2
    assert [left.command for left in exit.left_running] == ["sleep 1001"]
    assert not exit.group_gone
    (left,) = exit.left_running
    assert lives(left.pid)
    runner = Runner(user.muse_home / "run" / SESSION, 1)
    await runner.cancel("main/1", 1)
    await runner.aclose()
    wait_until(lambda: not lives(left.pid) and not commands_with(mark))


async def test_what_a_killed_keeper_leaves_behind_is_ended(
    make_runner: MakeRunner, user: Machine, enforcer: str, mark: str
) -> None:
    runner = make_runner(folder=user.muse_home / "run" / SESSION)
    name, _, value = mark.partition("=")
    argv, confine = box_of(user, enforcer).command(
        ["bash", "-c", "(setsid sleep 1000 &); sleep 1000"], str(user.workspace)
    )
    accepted = await runner.start(
        CommandSpec(
            call="main/1", attempt=1, args_digest="", argv=argv, cwd=str(user.workspace), confine=confine,
            env={"PATH": os.environ["PATH"], name: value},
        )
    )  # fmt: skip
    wait_until(lambda: len([pid for pid in commands_with(mark) if b"sleep" in line_of(pid)]) == 2)
    os.kill(accepted.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not commands_with(mark))


async def test_a_sandbox_that_cannot_be_had_starts_nothing(do: Do, user: Machine) -> None:
    box = box_of(user, "landlock-alone")
    assert box.places is not None
    file = user.workspace / "file"
    file.write_text("x")
    wrong = msgspec.structs.replace(box.places, writable=(str(file),))  # a file where a folder belongs
    exit, said = await do("echo ran", msgspec.structs.replace(box, places=wrong))
    assert (exit.code, said) == (126, "")
    assert exit.start_error.startswith("cannot confine the command")


async def test_without_one_everything_is_as_ever(do: Do, user: Machine) -> None:
    exit, _ = await do(f"echo more >> {user.outside}", NO_SANDBOX)
    assert exit.code == 0
    assert user.outside.read_text() == "kept\nmore\n"


async def test_limits_are_set_for_oneself_and_not_for_others(
    do: Do, user: Machine, enforcer: str, bystander: "subprocess.Popen[bytes]"
) -> None:
    code = f"""
import os, resource
others, own = (7, 7), (resource.RLIMIT_NOFILE, (99, 99))
for pid in ({bystander.pid}, os.getppid()):
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, others)
        print("set")
    except OSError as error:
        print("refused")
resource.setrlimit(*own)
print(resource.prlimit(0, resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    before = resource.prlimit(bystander.pid, resource.RLIMIT_CPU)
    _, said = await do(f"ulimit -n 500; {sys.executable} -c '{code}'; ulimit -n", box_of(user, enforcer))
    assert resource.prlimit(bystander.pid, resource.RLIMIT_CPU) == before
    assert said.splitlines()[0] == "refused"
    assert said.splitlines()[-2:] == ["(99, 99) (99, 99)", "500"]


async def test_a_process_that_calls_itself_the_sandbox_is_named_all_the_same(
    do: Do, user: Machine, enforcer: str
) -> None:
    box = box_of(user, enforcer)
    name = " ".join(box.command(["true"], "/")[0][:4])
    exit, _ = await do(f'(exec -a "{name}" sleep 1002) > /dev/null 2>&1 & sleep 0.2', box)
    assert [left.command for left in exit.left_running] == [f"{name} 1002"]
    assert not exit.group_gone
