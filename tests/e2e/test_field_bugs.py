"""What broke in the field elsewhere, tried on the installed command: each test names the row of the list of such bugs
that it stands for (which test stands for which row, all of them: tests/test_field_bugs.py)."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer, Trouble, WireServer
from tests.e2e.rig import MUSE, Rig
from tests.e2e.test_same_lines import watched
from tests.e2e.test_wire import SERVERS


@pytest.fixture(params=["anthropic", "openai"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def shell(command: str, **more: object) -> tuple[str, dict[str, object]]:
    return ("shell", {"command": command, **more})


WAITS = "echo began; until [ -e go ]; do sleep 0.02; done; echo ended"


def last_body(server: WireServer) -> str:
    """The last request as text, with its escapes undone."""
    return json.dumps(json.loads(server.requests[-1].body), ensure_ascii=False)


def result_text(rig: Rig, call: str) -> str:
    (found,) = [event["body"] for event in rig.of_type("tool.finished") if event["body"]["call"] == call]
    return str(found["text"])


def test_b21_b22_b39_a_batch_killed_while_it_runs_is_answered_whole_and_once(rig: Rig, dialect: str) -> None:
    steps = [
        Step(uses=(shell("echo a >> ran.txt"), shell(f"echo b >> ran.txt; {WAITS}"), ("read", {"path": "no.txt"})))
    ]
    with SERVERS[dialect]([*steps, Step(text="Done.")]) as server:
        rig.provider(dialect, server.base_url)
        with watched(rig, "exec", "--yolo", "--json", "go on") as run:
            run.until("tool.finished")
            rig.wait_for(lambda: (rig.workspace / "ran.txt").exists() and len(rig.read("ran.txt").split()) == 2)
            run.process.kill()
            run.end()
        (rig.workspace / "go").touch()
        again = rig.muse("resume", "last")
        assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert sorted(rig.read("ran.txt").split()) == ["a", "b"]
    events = rig.events()
    for call in ("main/2", "main/3", "main/4"):
        order = [e["type"] for e in events if e["body"].get("call") == call and e["type"].startswith("tool.")]
        assert order[0] == "tool.started"
        assert order.count("tool.finished") == 1
    assert result_text(rig, "main/3") == "began\nended\nexit code 0"
    rig.verify()


def test_b23_failing_attempts_after_a_crash_add_no_unpaired_call(rig: Rig, dialect: str) -> None:
    steps = [Step(text="Look.", uses=(shell("echo a"), shell("echo b"))), Step(text="Done.", delay_ms=200)]
    faults = {1: [Trouble("torn"), Trouble("status", status=529), Trouble("cut")]}
    with SERVERS[dialect](steps, faults) as server:
        rig.provider(dialect, server.base_url)
        with watched(rig, "exec", "--yolo", "--json", "go on") as run:
            run.until("model.failed")
            run.process.kill()
            run.end()
        again = rig.muse("resume", "last")
        assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert server.violations == []
    assert len({request.body for request in server.requests if request.step == 1}) == 1


HOSTILE = {
    "half an emoji": r"printf '\360\237\246'",
    "no UTF-8": r"printf 'a\377\376b\200'",
    "NUL and escapes": r"printf 'a\0b\033[31mred\033[0m\r\n'",
    "surrogates as UTF-8": r"printf '\355\240\275\355\270\200'",
    "a cut in every character": "python3 -c \"print('🦊' * 20000)\"",
    "separators": r"printf '\342\200\250\302\205\f\v'",
}


def test_b26_no_output_of_a_command_poisons_the_conversation(rig: Rig, dialect: str) -> None:
    uses = tuple(shell(command) for command in HOSTILE.values())
    lone = ("shell", '{"command": "printf \'\\ud83d\'"}')
    steps = [Step(uses=uses), Step(uses=(lone, ("write", '{"path": "x", "content": "\\udc00"}'))), Step(text="Done.")]
    with SERVERS[dialect](steps) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "go on \U0001f98a")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        again = rig.muse("resume", "last", "and on")
        assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert len(server.requests) == 4
    assert "🦊" in last_body(server)
    rig.verify()


def test_b31_a_full_disk_stops_the_run_at_once_and_it_goes_on_when_there_is_space(tmp_path: Path) -> None:
    """No tool and no model call starts after an append that failed; what was started is settled afterwards."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "none", str(disk)], check=False).returncode != 0:
        pytest.skip("mounting a small file system needs the right to do so")
    try:
        with Rig(tmp_path / "rig") as rig:
            rig.environment["MUSE_HOME"] = str(disk / "muse")
            rig.muse_home = disk / "muse"
            big = 'python3 -c "import os; print(os.urandom(120000).hex())"'
            steps = [Step(uses=(shell(f"echo {n} >> ran.txt; {big}"),)) for n in range(40)]
            with AnthropicServer([*steps, Step(text="Done.")]) as server:
                rig.provider("anthropic", server.base_url)
                done = rig.muse("exec", "--yolo", "go on")
                assert done.returncode == 1, done.stderr
                assert "muse: this is a fault" not in done.stderr
                before = rig.read("ran.txt").split()
                assert 0 < len(before) < 40
                assert len(server.requests) <= len(before) + 1
                subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
                again = rig.muse("resume", "last")
                assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
            assert server.violations == []
            assert rig.read("ran.txt").split() == [str(n) for n in range(40)]
            rig.verify()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_b33_logs_are_private_under_a_umask_that_takes_everything(rig: Rig) -> None:
    mask = 0o777
    script = rig.script([{"uses": [["shell", {"command": "umask > mask.txt"}]]}, {"text": "Done."}])
    done = subprocess.run(
        ["sh", "-c", f'umask {mask:04o}; exec "$@"', "sh", MUSE, "exec", "--yolo", "-m", script, "go on"],
        cwd=rig.workspace, env=rig.environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [rig.muse_home, *rig.muse_home.rglob("*")]
    assert len(found) > 6
    for path in found:
        mode = path.lstat().st_mode & 0o777
        assert mode & 0o077 == 0, f"{path}: {mode:o}"
        if path.is_dir():
            assert mode == 0o700, f"{path}: {mode:o}"
    assert int(rig.read("mask.txt"), 8) == mask  # the command has the user's umask


def test_b41_a_cancelled_call_is_told_to_the_model_and_not_done_again(rig: Rig, dialect: str) -> None:
    steps = [
        Step(text="I open it.", uses=(shell(f"echo opened >> ran.txt; {WAITS}"), shell("echo b"))),
        Step(text="Ok."),
    ]
    with SERVERS[dialect](steps) as server:
        rig.provider(dialect, server.base_url)
        with watched(rig, "exec", "--yolo", "--json", "open a pull request") as run:
            run.until("tool.finished")
            rig.wait_for(lambda: (rig.workspace / "ran.txt").exists())
            assert rig.muse("cancel", "last", "--why", "not that one").returncode == 0
            assert run.end() == 130, run.errors
        assert rig.wait_for(lambda: not commands(rig))
        again = rig.muse("resume", "last", "what did you do?")
        assert (again.returncode, again.stdout) == (0, "Ok.\n"), again.stderr
    assert server.violations == []
    assert rig.read("ran.txt") == "opened\n"
    body = last_body(server)
    assert "began" in body  # the output up to the cancel is kept (B51)
    assert "not that one" in body
    assert "what did you do?" in body
    rig.verify()


def commands(rig: Rig) -> list[int]:
    """Shells of the rig that still wait."""
    return [pid for pid, line in rig.command_lines().items() if b"until [ -e go ]" in line]


def test_b41_a_cancel_that_a_crash_follows_still_holds(rig: Rig) -> None:
    steps = [Step(uses=(shell(f"echo began >> ran.txt; {WAITS}"), shell("echo never >> ran.txt"))), Step(text="Ok.")]
    with AnthropicServer(steps) as server:
        rig.provider("anthropic", server.base_url, "max_parallel_tools = 1")
        with watched(rig, "exec", "--yolo", "--json", "go on") as run:
            run.until("tool.started")
            rig.wait_for(lambda: (rig.workspace / "ran.txt").exists())
            run.process.kill()
            run.end()
        assert rig.muse("cancel", "last").returncode == 0
        ended = rig.muse("resume", "last")
        assert ended.returncode == 130, ended.stderr
        assert not commands(rig)
        again = rig.muse("resume", "last", "and now?")
        assert (again.returncode, again.stdout) == (0, "Ok.\n"), again.stderr
    assert server.violations == []
    assert rig.read("ran.txt") == "began\n"
    rig.verify()


def test_b42_the_words_before_an_interruption_are_kept_and_told(rig: Rig, dialect: str) -> None:
    text = "First I would look at the tests, then at the rest of it. " * 20
    with SERVERS[dialect]([Step(text=text)], {0: [Trouble("stall", at=0.6)]}) as server:
        rig.provider(dialect, server.base_url)
        process = rig.start("exec", "go on", out="first")
        rig.wait_for(lambda: "look at the tests" in (rig.folder / "first.err").read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    with SERVERS[dialect]([Step(text="Shorter.")]) as server:
        rig.provider(dialect, server.base_url)
        again = rig.muse("resume", "last", "say it shorter")
        assert again.returncode == 0, again.stderr
    assert server.violations == []
    (failed,) = rig.of_type("model.failed")
    assert failed["body"]["failure"] == "cancelled"
    assert failed["body"]["partial"].startswith("First I would look at the tests")
    body = last_body(server)
    assert "You had begun to answer: First I would look at the tests" in body
    rig.verify()


def test_b42_the_words_of_a_cut_attempt_are_kept_as_evidence_and_asked_for_again(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect]([Step(text="All of this. " * 30)], {0: [Trouble("torn", at=0.7)]}) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "go on")
    assert done.stdout == "All of this. " * 30 + "\n"
    (failed,) = rig.of_type("model.failed")
    assert failed["body"]["partial"].startswith("All of this. All of")
    assert server.requests[0].body == server.requests[1].body


def test_b51_a_command_that_is_ended_by_its_time_limit_keeps_what_it_wrote(rig: Rig, dialect: str) -> None:
    steps = [Step(uses=(shell("echo before; echo too >&2; sleep 60", timeout_seconds=1),)), Step(text="Done.")]
    with SERVERS[dialect](steps) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "go on")
        assert done.returncode == 0, done.stderr
    text = result_text(rig, "main/2")
    assert text.startswith("before\ntoo\n")
    assert "timed out" in text
    assert "before" in last_body(server)


def test_b59_a_secret_is_masked_in_what_comes_back_never_in_what_a_tool_gets(rig: Rig) -> None:
    secret = "tok-5f2b1c9e8d7a6043"
    rig.environment["DEPLOY_TOKEN"] = secret
    use = shell(f"printf %s {secret} | wc -c; printf '{secret}' > kept.txt; cat kept.txt")
    with AnthropicServer(
        [Step(uses=(use, ("write", {"path": "w.txt", "content": secret}))), Step(text="Done.")]
    ) as server:
        rig.provider("anthropic", server.base_url)
        done = rig.muse("exec", "--yolo", "go on")
        assert done.returncode == 0, done.stderr
    assert rig.read("kept.txt") == rig.read("w.txt") == secret
    text = result_text(rig, "main/2")
    assert text.startswith(f"{len(secret)}\n[secret DEPLOY_TOKEN]"), text
    assert server.violations == []
    rig.verify()


def test_a_terminated_run_leaves_its_command_running_and_resume_takes_it_up(rig: Rig) -> None:
    """SIGTERM, SIGHUP: exit 143, nothing is cancelled, nothing runs twice."""
    steps = [{"uses": [["shell", {"command": f"echo began >> ran.txt; {WAITS}"}]]}, {"text": "Done."}]
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script(steps), "go on") as run:
        run.until("tool.started")
        rig.wait_for(lambda: (rig.workspace / "ran.txt").exists())
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 143, run.errors
    assert commands(rig)
    (rig.workspace / "go").touch()
    again = rig.muse("resume", "last")
    assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert rig.read("ran.txt") == "began\n"
    assert result_text(rig, "main/2") == "began\nended\nexit code 0"
    rig.verify()
