"""Sessions in the background: they outlive who started them, wait for answers, and come back after anything."""

import json
import os
import plistlib
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from muse import app
from muse.config import Config
from muse.ui.cli import cli, hosting
from tests.e2e.rig import MUSE, Rig
from tests.ui.driving import OnTerminal

WAITS = {
    "text": "I will wait.",
    "uses": [
        ["shell", {"command": "echo started >> count; until [ -e go ]; do sleep 0.02; done; echo ended >> count"}]
    ],
}
ASKS = {"uses": [["shell", {"command": "touch allowed.txt"}]]}
DONE = {"text": "All is done."}


def told(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def begun(rig: Rig, *arguments: str) -> dict[str, Any]:
    (found,) = told(rig.muse(*arguments, "--background", "--json"))
    return found


def process_session(pid: int) -> tuple[int, int]:
    """Session and controlling terminal of a process (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[3]), int(fields[4])


def test_it_outlives_its_terminal_and_a_hang_up_and_its_request_waits_for_an_answer(rig: Rig) -> None:
    """The terminal is closed while its shell still runs; SIGHUP to the host itself changes nothing either."""
    model = rig.script([ASKS, DONE])
    line = f'"{MUSE}" exec --background -m "{model}" "do it"; echo started; exec sleep 600'
    terminal = OnTerminal(["sh", "-c", line], rig.environment, rig.workspace)
    shown = terminal.expect("started")
    session = rig.session()
    assert session in shown.split()
    (pid,) = (int(word) for word in shown.split() if word.isdecimal())
    assert process_session(pid) == (pid, 0)
    terminal.close()
    os.kill(pid, signal.SIGHUP)
    (asked,) = rig.wait_for(lambda: rig.of_type("approval.requested"))
    (opened,) = rig.of_type("session.opened")
    assert opened["body"]["settings"].get("approval_timeout_seconds", 0) == 0, "which is: without limit"
    (shown_by_ls,) = told(rig.muse("ls", "--json"))
    assert (shown_by_ls["state"], shown_by_ls["pid"]) == ("waiting", pid)
    assert rig.muse("approve", f"{session}@{asked['seq']}").returncode == 0
    watched = rig.muse("attach", "-q", session)
    assert (watched.returncode, watched.stdout) == (0, "All is done.\n")
    assert (rig.workspace / "allowed.txt").exists()
    log = rig.muse_home / "run" / session / "host.log"
    assert f"muse approve {session[-8:]}@{asked['seq']}" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    rig.verify()


def test_what_cannot_begin_is_said_where_it_was_started_with_the_exit_code_of_the_reason(rig: Rig) -> None:
    def refused(code: int, words: str, *arguments: str) -> None:
        done = rig.muse(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        assert words in done.stderr
        assert done.stdout == ""

    refused(2, "no provider for the model 'nobody/m'", "exec", "--background", "-m", "nobody/m", "greet")
    refused(4, "no key for anthropic", "exec", "--background", "-m", "anthropic/m", "greet")
    refused(2, "the prompt is empty", "exec", "--background", " ")
    refused(2, "there is no session", "resume", "--background", "nowhere")
    assert rig.logs() == []
    session = begun(rig, "exec", "--yolo", "-m", rig.script([WAITS, DONE]), "go on")["session"]
    refused(7, "runs this session", "resume", "--background", session)
    (rig.workspace / "go").touch()
    assert rig.muse("attach", "-q", session).returncode == 0
    nothing = rig.muse("resume", "--background", session)
    assert (nothing.returncode, "nothing is left to do" in nothing.stderr) == (0, True)
    again = begun(rig, "resume", session, "and again")
    assert again["session"] == session
    assert rig.muse("attach", "-q", session).returncode == 0
    assert [event["body"]["text"] for event in rig.of_type("user.prompted")] == ["go on", "and again"]


def test_what_it_came_to_is_the_exit_code_of_attach(rig: Rig) -> None:
    failing = rig.script([{"failure": {"failure": "auth", "times": 9, "message": "wrong key"}}])
    session = begun(rig, "exec", "-m", failing, "greet")["session"]
    assert rig.muse("attach", "-q", session).returncode == 4


def test_a_long_prompt_with_odd_characters_arrives_whole(rig: Rig) -> None:
    prompt = "-- ünï «x»\n" + "x" * 300_000
    done = rig.muse("exec", "--background", "-m", rig.script([DONE]), "-", input=prompt)
    assert done.returncode == 0, done.stderr
    assert rig.muse("attach", "-q", "last").returncode == 0
    (prompted,) = rig.of_type("user.prompted")
    assert prompted["body"]["text"] == prompt


def test_words_are_seen_before_they_are_recorded_and_again_of_the_next_owner(rig: Rig) -> None:
    """The model says a piece (twelve characters) a minute; nothing of it is an event when it is read."""
    slow = {"text": "one two four" + "never seen here", "piece_delay_ms": 60_000}
    session = begun(rig, "exec", "-m", rig.script([slow]), "count")["session"]
    terminal = OnTerminal([MUSE, "attach", "--follow", session], rig.environment | {"TERM": "xterm"}, rig.workspace)
    try:
        terminal.expect("one two four")
        assert not rig.of_type("model.responded")
        (before,) = told(rig.muse("ls", "--json"))
        os.kill(before["pid"], signal.SIGKILL)
        rig.wait_for(lambda: told(rig.muse("ls", "--json"))[0]["state"] == "stopped")
        assert begun(rig, "resume", session)["session"] == session
        terminal.expect("reopened")
        terminal.expect("asks scripted/")
        terminal.expect("one two four")
        assert rig.muse("cancel", session).returncode == 0
        terminal.expect("closed")
        terminal.send("\x03")
        assert terminal.end()[0] == 130
    finally:
        terminal.close()
    assert [event["body"].get("partial") for event in rig.of_type("model.failed")] == ["one two four"]


# -- muse up -----------------------------------------------------------------------------------------------------------


def test_after_kill_9_of_all_each_open_session_is_gone_on_with_once_however_many_ask(rig: Rig) -> None:
    model = rig.script([WAITS, DONE])
    hosts = [begun(rig, "exec", "--yolo", "-m", model, f"go on {number}") for number in range(2)]
    paused = begun(rig, "exec", "-m", rig.script([ASKS, DONE], "asks.json"), "stay")
    count = rig.workspace / "count"
    rig.wait_for(lambda: count.exists() and count.read_text() == "started\n" * 2)
    rig.wait_for(lambda: rig.of_type("approval.requested", session=paused["session"]))
    assert rig.muse("pause", paused["session"]).returncode == 0
    rig.wait_for(lambda: rig.of_type("agent.paused", session=paused["session"]))
    damaged = rig.muse_home / "sessions" / "2020" / "01" / "01" / "20200101-000000-00000000.muse"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no log at all")
    rig.kill_all()
    expected = {one["session"]: "open" for one in (*hosts, paused)} | {damaged.stem: "skipped"}
    dry = told(rig.muse("up", "--dry-run", "--json"))
    assert {one["session"]: one["fate"] for one in dry} == expected

    both = [rig.start("up", "--json", out=f"up{number}") for number in range(2)]
    assert [one.wait(60) for one in both] == [0, 0], rig.said()
    found = [json.loads(line) for number in range(2) for line in (rig.folder / f"up{number}").read_text().splitlines()]
    for session in expected:
        fates = sorted(one["fate"] for one in found if one["session"] == session)
        assert fates == (["skipped", "skipped"] if session == damaged.stem else ["resumed", "runs"])
    assert [one["paused"] for one in found if one["session"] == paused["session"]] == [["main"], ["main"]]
    third = {one["session"]: one["fate"] for one in told(rig.muse("up", "--json"))}
    assert third.pop(damaged.stem) == "skipped"
    assert third.pop(paused["session"]) == "runs"
    assert set(third.values()) <= {"runs"}, "one may have come to its end meanwhile; none is begun again"

    (rig.workspace / "go").touch()
    for host in hosts:
        assert rig.muse("attach", "-q", host["session"]).returncode == 0
        assert len(rig.of_type("session.opened", session=host["session"])) == 2
        rig.verify(host["session"])
    assert count.read_text() == "started\n" * 2, "nothing is started twice"
    assert not rig.of_type("session.closed", session=paused["session"])
    table = rig.muse("up", "--dry-run")
    assert table.returncode == 0
    assert [line.split()[0] for line in table.stdout.splitlines()] == [paused["session"][-8:], damaged.stem[-8:]]
    assert "waits for approval @" in table.stdout
    assert "nothing can go on" in table.stderr


def test_what_a_provider_refused_is_tried_again_only_when_asked_for(rig: Rig) -> None:
    failing = rig.script([{"failure": {"failure": "auth", "times": 1, "message": "wrong key"}, "text": "Hello."}])
    assert rig.muse("exec", "-m", failing, "greet").returncode == 4
    nothing = rig.muse("up")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no session is open" in nothing.stderr
    assert rig.muse("up", "--all", "--dry-run").stderr == "1 session can go on: muse up --all\n"
    (one,) = told(rig.muse("up", "--all", "--json"))
    assert one["fate"] == "resumed"
    assert rig.muse("attach", "-q", one["session"]).returncode == 0


def test_no_more_than_so_many_run_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from muse.app import up

    waits = rig.script([ASKS, DONE])
    sessions = [begun(rig, "exec", "-m", waits, f"ask {number}")["session"] for number in range(3)]
    for session in sessions:
        rig.wait_for(lambda session=session: rig.of_type("approval.requested", session=session))
    rig.kill_all()
    monkeypatch.setenv("MUSE_HOME", str(rig.muse_home))
    monkeypatch.setattr(up, "HOSTS_MAX", 2)
    found = {seen.session: seen for seen in app.open_sessions()}
    assert [found[session].fate for session in sessions] == ["skipped", "open", "open"], "the newest come first"
    assert "2 sessions run at once" in found[sessions[0]].why


def test_who_cannot_be_gone_on_with_is_named_with_the_reason_and_its_exit_code(rig: Rig) -> None:
    rig.provider("openai", "http://127.0.0.1:9/v1")
    run = rig.start("exec", "greet", "-c", "retry_base_ms=60000")
    rig.wait_for(lambda: rig.logs() and rig.of_type("model.failed"))
    run.kill()
    run.wait()
    del rig.environment["SHOP_KEY"]
    done = rig.muse("up")
    assert done.returncode == 4
    assert "SHOP_KEY" in done.stdout
    rig.environment["SHOP_KEY"] = "sk-again"
    rig.workspace = rig.workspace.rename(rig.folder / "moved")
    (skipped,) = told(rig.muse("up", "--json"))
    assert skipped["fate"] == "skipped"
    assert "its folder is gone" in skipped["why"]


# -- the system --------------------------------------------------------------------------------------------------------


def test_the_unit_is_one_that_systemd_takes_with_the_oddest_paths_and_holds_no_key(rig: Rig) -> None:
    odd = rig.folder / 'a %n "b" $HOME'
    odd.mkdir()
    program = odd / "muse"
    program.write_bytes(Path(MUSE).read_bytes())
    program.chmod(0o755)
    rig.command = [str(program)]
    extra = {"MUSE_HOME": str(odd / "home"), "ANTHROPIC_API_KEY": "sk-ant-0123456789", "HTTPS_PROXY": "http://u:pw@h"}
    done = rig.muse("up", "--install", extra=extra)
    assert done.returncode == 0, done.stderr
    unit = Path(done.stdout.strip())
    assert unit == rig.home / ".config" / "systemd" / "user" / "muse.service"
    text = unit.read_text()
    assert "sk-ant" not in text + done.stdout + done.stderr
    assert "pw@h" not in text
    for words in ("systemctl --user enable --now muse.service", "loginctl enable-linger", "ANTHROPIC_API_KEY=…"):
        assert words in done.stderr
    assert rig.muse("up", "--install", extra=extra).returncode == 0
    assert unit.read_text() == text
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--user", str(unit)], env={**rig.environment, "XDG_RUNTIME_DIR": str(odd)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stderr
        assert "muse.service" not in checked.stderr, "others of the machine may have their faults"
    assert rig.muse("up", "--uninstall").returncode == 0
    assert not unit.exists()
    unit.write_text("[Unit]\nDescription=mine\n")
    assert rig.muse("up", "--install").returncode == 2
    assert rig.muse("up", "--uninstall").returncode == 2
    assert unit.read_text() == "[Unit]\nDescription=mine\n"


def test_the_words_of_a_unit_are_quoted_as_its_syntax_wants() -> None:
    """systemd.syntax(7) and systemd.service(5): C escapes in double quotes, %% for %, : against variables."""
    from muse.app.units import quoted

    assert quoted("/opt/muse") == '"/opt/muse"'
    assert quoted('a "b" \\ 100%\n') == '"a \\"b\\" \\\\ 100%%\\x0a"'


def test_the_agent_of_launchd_is_a_property_list_with_what_it_needs() -> None:
    environment = {
        "PATH": "/usr/bin",
        "HOME": "/Users/ada",
        "MUSE_HOME": "/Volumes/a & b",
        "OPENAI_API_KEY": "sk-0123456",
    }
    unit = app.unit_for(Config(), environment, "darwin")
    assert unit.path == Path("/Users/ada/Library/LaunchAgents/muse.up.plist")
    found = plistlib.loads(unit.text)
    assert found["ProgramArguments"] == [MUSE, "up"]
    assert found["RunAtLoad"] is True
    assert found["AbandonProcessGroup"] is True
    assert found["EnvironmentVariables"].items() >= {"PATH": "/usr/bin", "MUSE_HOME": "/Volumes/a & b"}.items()
    assert b"sk-0123" not in unit.text
    assert unit.keys == ("OPENAI_API_KEY",)


# -- small parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exec", "resume"])
def test_every_option_reaches_the_host_as_it_was_given(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in {*hosting.LEFT_OUT, "help"}:
            continue
        for flag in (*option.opts, *option.secondary_opts):
            given = [flag] if option.is_flag else [flag, "7"]
            context = command.make_context(name, [*given, "--", "words"])
            again = command.make_context(name, [*hosting.arguments_again(context), "--", "words"])
            assert again.params == context.params, flag
            assert hosting.arguments_again(context), flag


def test_what_a_host_says_to_nobody_has_an_end(tmp_path: Path) -> None:
    with (tmp_path / "host.log").open("w") as file:
        bounded = hosting.Bounded(file)
        for _ in range(1000):
            bounded.write("x" * 1000 + "\n")
    assert (tmp_path / "host.log").stat().st_size <= hosting.SAID_BYTES_MAX + 200
    assert (tmp_path / "host.log").read_text().endswith("more is not kept here; the log has it\n")


def test_no_module_of_the_folder_that_it_works_in_is_taken(rig: Rig) -> None:
    (rig.workspace / "muse").mkdir()
    (rig.workspace / "muse" / "__init__.py").write_text("raise SystemExit('taken from the workspace')")
    session = begun(rig, "exec", "-m", rig.script([DONE]), "greet")["session"]
    assert rig.muse("attach", "-q", session).stdout == "All is done.\n"
