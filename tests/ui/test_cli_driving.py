"""The commands that drive sessions, as a user runs them: real processes, the scripted model, effects in files."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.testing.store import draft
from tests.ui.driving import MUSE, WAITS, Done, World, eventually, line_with, shell, stop

HELLO = {"text": "All is well."}


def counted(world: World) -> list[str]:
    return (world.work / "count").read_text().split()


# -- exec ------------------------------------------------------------------------------------------------------------


def test_exec_names_session_and_pid_first_and_answers_on_standard_output(world: World) -> None:
    done = world.run("exec", "-m", world.script(HELLO), "do it")
    assert (done.code, done.out) == (0, "All is well.\n")
    assert sorted(path.suffix for path in world.files()[0].parent.iterdir()) == [".lock", ".muse"]
    first, *rest = done.err.splitlines()
    assert first == f"session {world.files()[0].stem}  pid {first.rpartition(' ')[2]}"
    opened = world.events()[0]["body"]
    assert (opened["session"], str(opened["host"]["pid"])) == (world.files()[0].stem, first.rpartition(" ")[2])
    name = world.files()[0].stem[-8:]
    assert [line.split(None, 1)[1] for line in rest[-3:]] == [
        f'muse resume {name} "…"', f"muse replay {name}", f"muse export {name} --format md",
    ]  # fmt: skip


def test_the_lines_of_exec_are_those_of_replay(world: World) -> None:
    done = world.run("exec", "--json", "--yolo", "-m", world.script({"uses": [shell("echo hi")]}, HELLO), "do it")
    assert done.code == 0
    assert done.out == world.run("replay", "last", "--json").out
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == list(range(1, len(done.out.splitlines()) + 1))


def test_quiet_leaves_only_the_answer(world: World) -> None:
    done = world.run("exec", "-q", "--yolo", "-m", world.script({"uses": [shell("echo hi")]}, HELLO), "do it")
    assert done.out == "All is well.\n"
    assert len(done.err.splitlines()) == 1


def test_a_prompt_comes_from_standard_input(world: World) -> None:
    assert world.run("exec", "-m", world.script(HELLO), "-", stdin="mend it\nplease\n").code == 0
    assert world.events()[1]["body"]["text"] == "mend it\nplease\n"


@pytest.mark.parametrize(("text", "says"), [(" \n", "the prompt is empty"), ("x" * (1024 * 1024 + 1), "over 1 MiB")])
def test_a_prompt_that_cannot_be_is_refused_before_a_session_is_made(world: World, text: str, says: str) -> None:
    done = world.run("exec", "-m", world.script(HELLO), "-", stdin=text)
    assert (done.code, len(done.err.splitlines()), world.files()) == (2, 2, [])
    assert says in done.err


@pytest.mark.parametrize(
    ("step", "args", "code", "outcome"),
    [
        ({"failure": {"failure": "auth", "times": 99}}, [], 4, "provider"),
        ({"uses": [shell("echo hi")]}, ["--yolo", "-c", "max_model_calls=1"], 5, "budget"),
        ({"uses": [shell("touch made")]}, ["--approval-timeout", "1"], 3, "unanswered"),
    ],
)
def test_the_exit_code_tells_the_outcome(
    world: World, step: dict[str, object], args: list[str], code: int, outcome: str
) -> None:
    done = world.run("exec", *args, "-m", world.script(step), "do it")
    assert done.code == code
    assert world.events()[-1]["body"]["outcome"] == outcome
    assert not (world.work / "made").exists()


def test_spellings_of_modes_that_people_know(world: World) -> None:
    write = {"uses": [["write", {"path": "a.txt", "content": "x\n"}]]}
    for args in (["--permission-mode", "acceptEdits"], ["--permission-mode", "bypassPermissions"],
                 ["--dangerously-skip-permissions"], ["--yolo"], ["--allow", "write(a.txt)"]):  # fmt: skip
        (world.work / "a.txt").unlink(missing_ok=True)
        done = world.run("exec", *args, "-m", world.script(write, HELLO), "do it")
        assert done.code == 0, done
        assert (world.work / "a.txt").read_text() == "x\n"


def test_a_denied_call_goes_back_to_the_model_even_with_yolo(world: World) -> None:
    script = world.script({"uses": [shell("touch made")]}, HELLO)
    assert world.run("exec", "--yolo", "--deny", "shell(touch *)", "-m", script, "do it").code == 0
    assert not (world.work / "made").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--permission-mode", "yollo"], "yollo"),
        (["--yolo", "--permission-mode", "plan"], "two things"),
        (["-C", "nowhere"], "is no folder"),
        (["--allow", "shell(("], "rule"),
        (["--name", "a:b"], "cannot be a session's name"),
        (["-c", "max_model_calls=many"], "max_model_calls"),
        (["-c", "max_model_cals=3"], "max_model_cals"),
        (["-m", "nobody/x"], "no provider"),
        (["-m", "scripted/nowhere.json"], "nowhere.json"),
    ],
)
def test_a_flag_that_cannot_be_is_one_line_and_makes_no_session(world: World, args: list[str], says: str) -> None:
    args = args if "-m" in args else ["-m", world.script(HELLO), *args]
    done = world.run("exec", *args, "do it")
    assert (done.code, world.files()) == (2, [])
    assert says in done.err.splitlines()[0]
    assert "Traceback" not in done.err


def test_a_missing_key_is_said_before_a_session_is_made(world: World) -> None:
    done = world.run("exec", "-m", "anthropic/some", "do it")
    assert (done.code, world.files()) == (4, [])
    assert "ANTHROPIC_API_KEY" in done.err


def test_a_reader_that_goes_away_does_not_harm_the_run(world: World) -> None:
    steps = [{"uses": [shell("echo hi >> count")]} for _ in range(3)]
    script = world.script(*steps, HELLO)
    line = f"{MUSE} exec --json --yolo -m {script} go | head -n 1"
    done = subprocess.run(
        ["sh", "-c", line], env=world.env, cwd=world.work, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)["type"] == "session.opened"
    assert eventually(lambda: world.types()[-1] == "session.closed")
    assert counted(world) == ["hi"] * 3


def test_an_answer_that_cannot_be_written_is_not_lost_in_silence(world: World) -> None:
    line = f"{MUSE} exec -m {world.script(HELLO)} go > /dev/full"
    done = subprocess.run(
        ["sh", "-c", line], env=world.env, cwd=world.work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "could not be written: No space left" in done.stderr
    assert world.events()[-1]["body"]["outcome"] == "done"


def test_closed_standard_streams_harm_nothing(world: World) -> None:
    line = f"{MUSE} exec -m {world.script(HELLO)} go <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", line], env=world.env, cwd=world.work, check=False)
    assert done.returncode == 0
    assert world.events()[-1]["body"]["outcome"] == "done"


def test_a_prompt_is_utf8_whatever_the_locale(world: World) -> None:
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = world.run("exec", "-m", world.script(HELLO), "héllo ✓", env=plain)
    assert done.code == 0
    assert world.events()[1]["body"]["text"] == "héllo ✓"


def test_a_name_stands_for_the_session(world: World) -> None:
    assert world.run("exec", "--name", "first-try", "-m", world.script(HELLO), "do it").code == 0
    assert world.run("exec", "-m", world.script(HELLO), "another").code == 0
    assert world.events("first-try")[1]["body"]["text"] == "do it"


@pytest.mark.parametrize("flags", [["-q"], ["--json"], ["-q", "--json"]])
def test_a_failure_says_why_in_one_line_even_when_quiet(world: World, flags: list[str]) -> None:
    model = world.script({"failure": {"failure": "auth", "times": 9, "message": "wrong key"}})
    done = world.run("exec", *flags, "-m", model, "do it")
    assert done.code == 4
    (said,) = [line for line in done.err.splitlines() if not line.startswith("session ")]
    assert said.startswith("the provider refused the key")


def refused_by(world: World, answer: bytes) -> "Done":
    """A run against a server that gives every request this answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1 << 20)
                        connection.sendall(answer)

        Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        done = world.run("exec", "-c", f"providers.ollama.base_url={url}", "-m", "ollama/nosuch", "do it")
        server.shutdown(socket.SHUT_RDWR)
    return done


def test_a_request_that_the_provider_refuses_is_said_so_and_told_twice_at_most(world: World) -> None:
    body = b'{"error":{"message":"model nosuch was not found"}}'
    head = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    done = refused_by(world, head + body)
    assert done.code == 4
    assert "the provider refused the request (404: model nosuch was not found)" in done.err
    assert "could not be reached" not in done.err
    assert "check -m" in done.err
    assert done.err.count("model nosuch was not found") == 2  # in the row of the attempt, and at the end


def test_a_local_server_that_does_not_run_is_said_in_words(world: World) -> None:
    with socket.socket() as free:  # bound and not listening
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        flags = ["-c", f"providers.ollama.base_url={url}", "-c", "max_model_attempts=1"]
        done = world.run("exec", *flags, "-m", "ollama/some", "do it")
    assert done.code == 4
    assert f"nothing listens on {url[7:-3]}; is the server running?" in done.err
    assert "ConnectError" not in done.err
    assert done.err.count("nothing listens") == 2


def test_who_left_an_approval_unanswered_is_told_the_very_rule(world: World) -> None:
    done = world.run("exec", "--approval-timeout", "1", "-m", world.script({"uses": [shell("touch made")]}, HELLO), "x")
    assert done.code == 3
    name = world.files()[0].stem[-8:]
    assert f"""muse resume {name} --allow 'shell(touch *)' "go on\"""" in done.err
    lines = [line for line in done.err.splitlines() if "nobody answered" in line]
    assert all(line.count("nobody answered") == 1 for line in lines)


# -- resume ----------------------------------------------------------------------------------------------------------


def killed_in_its_middle(world: World, number: signal.Signals = signal.SIGKILL) -> int:
    """A session whose host got a signal while its command ran; the exit code."""
    script = world.script({"text": "First.", "uses": [shell("echo before >> count")]}, {"uses": [shell(WAITS)]}, HELLO)
    process = world.start("exec", "--yolo", "-m", script, "do it")
    world.begun()
    return stop(process, number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGHUP, 143)], ids=["KILL", "TERM", "HUP"]
)
def test_what_ran_goes_on_and_resume_re_attaches(world: World, number: signal.Signals, code: int) -> None:
    assert killed_in_its_middle(world, number) == code
    assert counted(world) == ["before", "start"]
    intent = [event["seq"] for event in world.events() if event["type"] == "tool.started"][-1]
    (world.work / "go").touch()
    done = world.run("resume")
    assert (done.code, done.out) == (0, "All is well.\n")
    assert f"re-attached to #{intent}; 3 finished steps, 0 run again" in done.err
    assert "it had been left without closing" in done.err
    assert "died" not in done.err
    assert "✓ shell    echo start >> count" in done.err
    assert counted(world) == ["before", "start", "end"]
    assert "cancel.requested" not in world.types()


def test_what_cannot_be_known_after_a_crash_is_said(world: World) -> None:
    killed_in_its_middle(world)
    ours = str(world.home / "run").encode()
    for process in Path("/proc").glob("[0-9]*"):  # the runner and its keepers
        with suppress(OSError):
            if ours in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    intent = [event["seq"] for event in world.events() if event["type"] == "tool.started"][-1]
    done = world.run("resume")
    assert (done.code, done.out) == (0, "All is well.\n")
    assert f"may or may not have happened: #{intent}; 3 finished steps, 0 run again" in done.err
    assert [event["body"]["status"] for event in world.events() if event["type"] == "tool.finished"] == [
        "ok",
        "unknown",
    ]


def test_after_a_crash_a_reader_of_the_lines_goes_on_without_gap_or_overlap(world: World) -> None:
    script = world.script({"uses": [shell(WAITS)]}, HELLO)
    process = world.start("exec", "--json", "--yolo", "-m", script, "do it")
    world.begun()
    process.kill()
    out, _ = process.communicate()
    (world.work / "go").touch()
    seen = [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
    done = world.run("resume", "last", "--json", "--after", str(json.loads(seen[-1])["seq"]))
    assert "".join(seen) + done.out == world.run("replay", "last", "--json").out


def test_when_nothing_is_left_to_do_no_epoch_is_opened(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    before = world.run("replay", "last", "--json").out
    done = world.run("resume")
    assert done.code == 0
    assert "nothing is left to do" in done.err
    assert world.run("replay", "last", "--json").out == before
    assert world.run("resume", "last", "--json", "--after", "2").out == "".join(before.splitlines(keepends=True)[2:])


def test_a_new_prompt_goes_on_with_model_mode_and_rules_of_the_log(world: World) -> None:
    script = world.script(HELLO, {"uses": [shell("touch made")]}, {"uses": [shell("touch never")]}, {"text": "Done."})
    world.run("exec", "--yolo", "--deny", "shell(touch never)", "-m", script, "do it")
    assert world.run("resume", "last", "now more").out == "Done.\n"
    assert (world.work / "made").exists()
    assert not (world.work / "never").exists()


def test_one_argument_that_is_no_session_is_no_prompt(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    done = world.run("resume", "fix the tests")
    assert done.code == 2
    assert 'to give a prompt: muse resume last "fix the tests"' in done.err
    assert world.types().count("user.prompted") == 1


def test_a_session_that_runs_is_busy(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    done = world.run("resume", "last", "more")
    assert done.code == 7
    assert f"process {process.pid}" in done.err
    assert "muse attach" in done.err
    assert "muse steer" in done.err
    assert "--take-over" in done.err
    assert world.types().count("user.prompted") == 1


def test_a_vanished_workspace_is_said_and_another_can_be_given(world: World) -> None:
    script = world.script(HELLO, {"uses": [shell("touch made")]}, {"text": "Done."})
    world.run("exec", "--yolo", "-m", script, "do it")
    moved = world.work.rename(world.root / "moved")
    before = world.files()[0].read_bytes()
    done = world.run("resume", world.files()[0].stem, "more", cwd=world.root)
    assert (done.code, len(done.err.splitlines())) == (2, 2)
    assert f"is gone: {world.root / 'work'}" in done.err
    assert world.files()[0].read_bytes() == before
    assert world.run("resume", world.files()[0].stem, "more", "-C", str(moved), cwd=world.root).code == 0
    assert (moved / "made").exists()
    world.work.mkdir()


def test_a_missing_key_is_said_before_anything_is_claimed(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    before = world.run("replay", "last", "--json").out
    done = world.run("resume", "last", "more", "-m", "openai/some")
    assert done.code == 4
    assert "OPENAI_API_KEY" in done.err
    assert world.run("replay", "last", "--json").out == before


def test_an_event_of_another_version_blocks_going_on_but_not_reading(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    with SqliteLog.open(world.files()[0], commands={}) as log:
        ownership = log.claim(lambda _: _reopened(world))
        log.append([draft("future.thing", {"n": 1})], [], log.head().seq, ownership.epoch)
    done = world.run("resume", "last", "more")
    assert done.code == 6
    assert "future.thing" in done.err
    assert "written by muse 9.9" in done.err
    assert world.types()[-1] == "future.thing"


def _reopened(world: World) -> Draft:
    body = world.events()[0]["body"]
    return draft("session.opened", {**body, "host": {**body["host"], "muse": "9.9"}})


def test_a_limit_can_be_raised_when_going_on(world: World) -> None:
    script = world.script({"uses": [shell("echo one >> count")]}, {"uses": [shell("echo two >> count")]}, HELLO)
    assert world.run("exec", "--yolo", "-c", "max_model_calls=1", "-m", script, "do it").code == 5
    assert world.run("resume", "last", "-c", "max_model_calls=9").code == 0
    assert counted(world) == ["one", "two"]


# -- bad ground ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["resume"], ["approve"], ["steer"], ["cancel"]])
def test_an_unknown_session_is_one_line(world: World, command: list[str]) -> None:
    more = {"resume": ["more"], "steer": ["more"]}.get(command[0], [])
    done = world.run(*command, "nosuch", *more)
    assert (done.code, len(done.err.splitlines()), done.out) == (2, 2, "")


def test_a_file_that_is_no_log_is_said(world: World) -> None:
    (world.work / "x.muse").write_text("no log at all, but long enough to be one " * 20)
    done = world.run("resume", "./x.muse", "more")
    assert (done.code, "Traceback" in done.err) == (6, False)


def test_a_damaged_log_is_not_continued(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    path = world.files()[0]
    data = bytearray(path.read_bytes())
    at = data.index(b'"type":"user.prompted"')
    data[at + 9] ^= 1
    path.write_bytes(data)
    done = world.run("resume", "last", "more")
    assert (done.code, "Traceback" in done.err) == (6, False)
    assert path.read_bytes() == bytes(data)


def test_a_log_of_a_newer_format_is_not_continued(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO), "do it")
    path = world.files()[0]
    data = bytearray(path.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")  # user_version in SQLite's file header
    path.write_bytes(data)
    done = world.run("resume", path.stem, "more")
    assert done.code == 6
    assert "newer" in done.err
    unnamed = world.run("resume", "last", "more")  # whose folder's it is cannot be told
    assert unnamed.code == 2
    assert "format 99" in unnamed.err


def test_a_home_that_cannot_be_written_is_said(world: World) -> None:
    done = world.run("exec", "-m", world.script(HELLO), "do it", env={"MUSE_HOME": "/proc/nowhere"})
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert "sessions cannot be kept in /proc/nowhere" in done.err
    assert "set MUSE_HOME" in done.err
    (world.root / "file").write_text("")
    done = world.run("exec", "-m", world.script(HELLO), "do it", env={"MUSE_HOME": str(world.root / "file" / "home")})
    assert (done.code, "set MUSE_HOME" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [("model = ", "not valid TOML"), ("mdel = 'x'", "unknown key mdel"), ("max_model_calls = 'x'", "max_model_calls")],
)
def test_broken_settings_name_file_and_key(world: World, text: str, says: str) -> None:
    world.config.write_text(text)
    done = world.run("exec", "-m", world.script(HELLO), "do it")
    assert (done.code, world.files()) == (2, [])
    assert str(world.config) in done.err
    assert says in done.err
    assert world.run("doctor").code == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, or a skip where this user may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_loses_nothing(world: World, small_disk: Path) -> None:
    world.env["MUSE_HOME"] = str(small_disk / "home")
    world.home = small_disk / "home"
    long = {"text": os.urandom(100_000).hex(), "uses": [shell("echo after >> count")], "delay_ms": 2000}
    script = world.script({"uses": [shell("echo before >> count")]}, long, HELLO)
    process = world.start("exec", "--yolo", "-m", script, "do it")
    line_with(process, "(main/3)")
    filler = small_disk / "filler"
    subprocess.run(["sh", "-c", f"head -c 4000000 /dev/zero > {filler}"], stderr=subprocess.DEVNULL, check=False)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "the disk with the log is nearly full" in err
    assert "free some space" in err
    assert "Traceback" not in err
    filler.unlink()
    resumed = world.run("resume")
    assert resumed.code == 0, resumed
    assert counted(world) == ["before", "after"]


def test_a_log_that_was_removed_while_it_ran_is_not_called_safe(world: World) -> None:
    script = world.script({"uses": [shell("true")]}, {"uses": [shell("true")], "delay_ms": 2000}, HELLO)
    process = world.start("exec", "--yolo", "-m", script, "do it")
    line_with(process, "(main/3)")
    (log,) = world.home.glob("sessions/*/*/*/*.muse")
    log.unlink()
    _, err = process.communicate()
    assert process.returncode == 6
    assert "was removed while it was in use" in err
    assert "nothing more is started" in err
    assert "safe" not in err


def test_a_folder_that_became_read_only_is_said_and_can_still_be_read(world: World, small_disk: Path) -> None:
    world.env["MUSE_HOME"] = str(small_disk / "home")
    assert world.run("exec", "-m", world.script(HELLO), "do it").code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for args in (["resume", "last", "more"], ["exec", "-m", world.script(HELLO), "do it"], ["steer", "last", "more"]):
        done = world.run(*args)
        assert (done.code, "Traceback" in done.err) == (2 if args[0] == "exec" else 1, False), done
        assert len(done.err.splitlines()) == 2
    assert world.run("resume").code == 1
    assert world.run("replay", "last", "--json").code == 0


def test_a_command_that_fills_the_disk_goes_on_without_its_host_and_is_met_again(
    world: World, small_disk: Path
) -> None:
    world.env["MUSE_HOME"] = str(small_disk / "home")
    world.home = small_disk / "home"
    filler = small_disk / "filler"
    fills = f"head -c 4000000 /dev/zero > {filler} 2>/dev/null; {WAITS}"
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(fills)]}, HELLO), "do it")
    _, err = process.communicate(timeout=30)  # the command waits for much longer
    assert process.returncode == 1
    assert "the disk with the log is nearly full" in err
    assert "muse resume" in err
    assert "this is a fault" not in err
    filler.unlink()
    (world.work / "go").touch()
    resumed = world.run("resume")
    assert (resumed.code, resumed.out) == (0, "All is well.\n"), resumed
    assert counted(world) == ["start", "end"]
    assert [event["body"]["status"] for event in world.events() if event["type"] == "tool.finished"] == ["ok"]
    assert world.run("verify", "last").code == 0


def test_a_full_disk_ends_no_command_that_runs(world: World, small_disk: Path) -> None:
    world.env["MUSE_HOME"] = str(small_disk / "home")
    world.home = small_disk / "home"
    world.home.mkdir(mode=0o700)
    (world.root / "run").mkdir(mode=0o700)
    (world.home / "run").symlink_to(world.root / "run")  # the runner's own files have room
    waits = "for i in $(seq 600); do [ -e full ] && break; sleep 0.05; done; head -c 300000 /dev/urandom | base64"
    script = world.script({"uses": [shell(WAITS), shell(waits)]}, HELLO)
    process = world.start("exec", "--yolo", "-m", script, "do it")
    world.begun()
    filler = small_disk / "filler"
    subprocess.run(["sh", "-c", f"head -c 4000000 /dev/zero > {filler}"], stderr=subprocess.DEVNULL, check=False)
    (world.work / "full").touch()
    _, err = process.communicate()
    assert process.returncode == 1
    assert "full" in err
    filler.unlink()
    (world.work / "go").touch()
    resumed = world.run("resume")
    assert resumed.code == 0, resumed
    assert counted(world) == ["start", "end"]
    assert {event["body"]["status"] for event in world.events() if event["type"] == "tool.finished"} == {"ok"}
