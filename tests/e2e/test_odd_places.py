"""Homes, workspaces, streams and locales as users have them: each story is a session whose host is killed while a
command runs, gone on with, verified and listed, through the installed command (B33, B61).

Where muse cannot work in such a place, it says so before anything is started, and what to do instead.
"""

import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer
from tests.e2e.rig import MUSE, PATIENCE_SECONDS, Rig

NOT_UTF8 = os.fsdecode(b"h\xf6me \xff")
WAITS = "echo began >> ran.txt; echo began; until [ -e go ]; do sleep 0.02; done; echo ended"
STEPS: list[dict[str, object]] = [
    {"uses": [["write", {"path": "made.txt", "content": "one\n"}], ["shell", {"command": WAITS}]]},
    {"uses": [["edit", {"path": "made.txt", "old": "one", "new": "two"}], ["read", {"path": "README.md"}]]},
    {"text": "Done."},
]
READERS = (["ls"], ["log", "last"], ["show", "last"], ["replay", "last", "--json"], ["doctor"])


def crash(rig: Rig, extra: Mapping[str, str] | None = None) -> None:
    """A session whose host was killed while its second call, a command, runs."""
    process = rig.start("exec", "--yolo", "-m", rig.script(STEPS), "go on", extra=extra)
    rig.wait_for(lambda: (rig.workspace / "ran.txt").exists() or process.poll() is not None)
    assert process.poll() is None, rig.said()
    process.kill()
    process.wait()


def story(rig: Rig, extra: Mapping[str, str] | None = None, *, look: bool = False) -> None:
    """Crash, resume, look: one start of each step, a log that verifies, and a listing that names the session."""
    crash(rig, extra)
    (rig.workspace / "go").touch()
    again = rig.muse("resume", "last", extra=extra)
    assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert rig.read("ran.txt") == "began\n"
    assert rig.read("made.txt") == "two\n"
    for arguments in (["verify", "last"], *(READERS if look else ())):
        done = rig.muse(*arguments, extra=extra)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    (listed,) = rig.muse("ls", "--json", extra=extra).stdout.splitlines()
    assert json.loads(listed)["session"] == rig.session()
    (finished,) = [e for e in rig.of_type("tool.finished") if e["body"].get("text", "").endswith("exit code 0")]
    assert finished["body"]["text"].endswith("began\nended\nexit code 0")


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """It said no in its own words, and what to do."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "fault" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "a b'c\"d",
        "new\nline\tand tab",
        "Größe 日本 🦊 العربية",
        "$HOME [*]?\\ %s {} #1 :main@7 -x;&|",
        "l" * 200,
    ],
    ids=["quotes", "newline", "other scripts", "signs", "longer than a socket's address"],
)
def test_a_session_lives_where_home_logs_and_workspace_have_any_name(tmp_path: Path, name: str) -> None:
    with Rig(tmp_path / name) as rig:
        story(rig, look="\n" in name)


def test_a_home_with_too_long_a_path_is_refused_before_there_is_a_session(rig: Rig) -> None:
    rig.environment["MUSE_HOME"] = str(rig.folder / ("l" * 200) / ("m" * 200))
    done = rig.muse("exec", "--yolo", "-m", rig.script(STEPS), "go on")
    refused(done, "bytes long", "set MUSE_HOME")
    assert not (rig.folder / ("l" * 200)).exists()


def test_a_workspace_may_have_a_longer_path_than_a_log(rig: Rig) -> None:
    place = rig.folder / ("l" * 200) / ("m" * 200) / ("n" * 200)
    place.parent.mkdir(parents=True)
    rig.workspace = rig.workspace.rename(place)
    story(rig)


@pytest.mark.parametrize("given", ["MUSE_HOME", "HOME"])
def test_logs_may_stand_in_a_folder_whose_name_is_not_utf8(rig: Rig, given: str) -> None:
    place = rig.folder / NOT_UTF8
    place.mkdir()
    rig.environment[given] = str(place)
    if given == "HOME":
        del rig.environment["MUSE_HOME"]
    rig.muse_home = place if given == "MUSE_HOME" else place / ".local" / "share" / "muse"
    story(rig, look=given == "HOME")
    assert [path.stem for path in rig.logs()] == [rig.session()]


def test_a_workspace_whose_name_is_not_utf8_is_refused_before_there_is_a_session(rig: Rig) -> None:
    """The log names the folder as text, and each of its paths: better none than a wrong one."""
    rig.workspace = rig.workspace.rename(rig.workspace.with_name(NOT_UTF8))
    refused(rig.muse("exec", "--yolo", "-m", rig.script(STEPS), "go on"), "not UTF-8", "rename it")
    assert rig.logs() == []


def test_names_that_are_not_utf8_inside_the_workspace_harm_nothing(rig: Rig) -> None:
    (rig.workspace / NOT_UTF8).mkdir()
    (rig.workspace / NOT_UTF8 / "x.txt").write_text("in there\n")
    steps: list[dict[str, object]] = [
        {
            "uses": [
                ["glob", {"pattern": "**/*.txt"}],
                ["grep", {"pattern": "in there"}],
                ["shell", {"command": "ls -b; echo two > */x.txt"}],
            ]
        },
        {"text": "Done."},
    ]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "go on")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert [e["body"]["status"] for e in rig.of_type("tool.finished")] == ["ok"] * 3
    assert (rig.workspace / NOT_UTF8 / "x.txt").read_text() == "two\n"
    rig.verify()


# -- homes -------------------------------------------------------------------------------------------------------------


def test_without_home_the_accounts_folder_counts(rig: Rig) -> None:
    del rig.environment["HOME"]
    story(rig)


NOBODY = ("setpriv", "--reuid=54321", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")


def test_a_user_number_without_account_and_home_can_work() -> None:
    """As in a container that runs under a number of its own. (The capability is for the test's own interpreter, which
    may stand where others cannot look.)"""
    if shutil.which("setpriv") is None or subprocess.run([*NOBODY, "true"], capture_output=True).returncode != 0:
        pytest.skip("becoming another user needs setpriv and the right to do so")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, Rig(Path(folder) / "x") as rig:
        Path(folder).chmod(0o777)
        rig.folder.chmod(0o777)
        del rig.environment["HOME"]
        for arguments in (["exec", "--yolo", "-m", rig.script([{"text": "Done."}]), "go on"], ["ls"], ["show", "last"]):
            done = subprocess.run(
                [*NOBODY, MUSE, *arguments], cwd=rig.workspace, env=rig.environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "fault" not in done.stderr
        rig.verify()


def test_the_home_of_logs_may_be_a_link(rig: Rig) -> None:
    (rig.folder / "real").mkdir()
    rig.muse_home.symlink_to(rig.folder / "real")
    story(rig)
    assert list((rig.folder / "real" / "sessions").rglob(f"{rig.session()}.muse"))


def test_the_home_of_logs_may_be_relative(rig: Rig) -> None:
    rig.environment["MUSE_HOME"] = "../muse"
    story(rig)


@pytest.mark.parametrize("what", ["file", "dangling link"])
def test_a_home_of_logs_that_is_no_folder_is_named(rig: Rig, what: str) -> None:
    if what == "file":
        rig.muse_home.write_text("mine")
    else:
        rig.muse_home.symlink_to(rig.folder / "nowhere" / "at all")
    done = rig.muse("exec", "--yolo", "-m", rig.script(STEPS), "go on")
    refused(done, f"cannot be kept in {rig.muse_home}", "set MUSE_HOME")
    assert rig.muse("ls").returncode == 0


@pytest.mark.parametrize("deep", [False, True])
def test_a_missing_folder_for_temporary_files_does_not_matter(rig: Rig, deep: bool) -> None:
    """Also where the runner's socket has too long a path, and is reached through a short link."""
    if deep:
        rig.muse_home = rig.folder / ("d" * 120) / "muse"
        rig.environment["MUSE_HOME"] = str(rig.muse_home)
    story(rig, {"TMPDIR": str(rig.folder / "missing")})


# -- the umask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_b33_everything_under_the_home_is_private_while_a_command_runs_and_after(rig: Rig, mask: int) -> None:
    """Log, lock, write-ahead log, run folder, spools, socket and cache: files 0600, folders 0700."""

    def masked(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sh", "-c", f'umask {mask:04o}; exec "$@"', "sh", MUSE, *arguments], cwd=rig.workspace,
            env=rig.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    running = masked("exec", "--yolo", "-m", rig.script(STEPS), "go on")
    rig.wait_for(lambda: (rig.workspace / "ran.txt").exists())
    assert masked("ls").wait() == masked("export", "last", "-o", str(rig.folder / "out.jsonl")).wait() == 0
    during = assert_private(rig.muse_home)
    running.kill()
    running.wait()
    (rig.workspace / "go").touch()
    assert masked("resume", "last").wait() == 0
    assert_private(rig.muse_home)
    assert {"sessions", "run", "calls", "cache", "output", "accepted", f"{rig.session()}.muse"} <= during
    assert (rig.folder / "out.jsonl").stat().st_mode & 0o777 == 0o600


def assert_private(home: Path) -> set[str]:
    """The names of all files below; a spool may go while one looks."""
    names = set()
    for path in [home, *home.rglob("*")]:
        try:
            mode = path.lstat().st_mode & 0o777
        except FileNotFoundError:
            continue
        assert mode == 0o700 if path.is_dir() else mode & 0o077 == 0, f"{path}: {mode:o}"
        names.add(path.name)
    return names


# -- the workspace goes ------------------------------------------------------------------------------------------------


def test_b61_a_workspace_renamed_after_a_crash_is_known_there_and_the_command_taken_up(rig: Rig) -> None:
    with AnthropicServer([Step(uses=(("shell", {"command": WAITS}),)), Step(text="Done.")]) as server:
        rig.provider("anthropic", server.base_url)
        process = rig.start("exec", "--yolo", "go on")
        rig.wait_for(lambda: (rig.workspace / "ran.txt").exists())
        process.kill()
        process.wait()
        old = rig.workspace
        rig.workspace = old.rename(old.with_name("moved"))
        (rig.workspace / "go").touch()
        again = rig.muse("resume", "last")
        assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert rig.read("ran.txt") == "began\n"
    assert [e["body"]["verdict"] for e in rig.of_type("effect.reconciled")] == ["attached"]
    assert [e["body"]["workspace"] for e in rig.of_type("session.opened")] == [str(old), str(rig.workspace)]
    assert not old.exists()
    assert server.violations == []
    said = json.loads(server.requests[-1].body)["messages"][-1]["content"]
    assert f"another place now: {rig.workspace}. Before it was {old}" in json.dumps(said)
    rig.verify()  # the request, notice included, is rebuilt from the log


def test_b61_a_workspace_renamed_between_turns_is_found_by_id_and_gone_on_with(rig: Rig) -> None:
    steps = [
        Step(text="Hello."),
        Step(uses=(("shell", {"command": "pwd"}), ("write", {"path": "made.txt", "content": "one\n"}))),
        Step(text="Done."),
    ]
    with AnthropicServer(steps) as server:
        rig.provider("anthropic", server.base_url)
        assert rig.muse("exec", "--yolo", "greet me").returncode == 0
        old = rig.workspace
        rig.workspace = old.rename(old.with_name("moved"))
        elsewhere = subprocess.run(
            [MUSE, "resume", rig.session(), "and on"], cwd=rig.home, env=rig.environment, capture_output=True,
            text=True, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        refused(elsewhere, f"the folder of this session is gone: {old}", "-C DIR")
        again = rig.muse("resume", rig.session(), "-C", ".", "and on")
        assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert server.violations == []
    assert server.requests[-1].body.count(b"in another place now") == 1  # said once, and kept
    assert str(rig.workspace) in rig.of_type("tool.finished")[0]["body"]["text"]
    assert rig.read("made.txt") == "one\n"
    for arguments in (["log"], ["show"]):
        assert rig.muse(*arguments, rig.session()).returncode == 0
    rig.verify()


def test_a_workspace_that_is_gone_is_named_and_the_log_stays_readable(rig: Rig) -> None:
    crash(rig)
    shutil.rmtree(rig.workspace)
    rig.workspace = rig.home
    refused(rig.muse("resume", rig.session()), "the folder of this session is gone", "-C DIR")
    for arguments in (["log"], ["show"], ["verify"], ["replay"]):
        assert rig.muse(*arguments, rig.session()).returncode == 0
    (rig.home / "go").touch()


def test_an_agent_that_deletes_its_own_workspace_gets_errors_and_no_crash(rig: Rig) -> None:
    uses = [
        ["shell", {"command": "echo again"}],
        ["write", {"path": "a/b", "content": "x"}],
        ["read", {"path": "README.md"}],
        ["glob", {"pattern": "*"}],
        ["grep", {"pattern": "a"}],
    ]
    steps: list[dict[str, object]] = [
        {"uses": [["shell", {"command": 'rm -rf "$PWD"'}]]},
        {"uses": uses},
        {"text": "Done."},
    ]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "go on")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    statuses = [e["body"]["status"] for e in rig.of_type("tool.finished")]
    assert statuses == ["ok"] + ["error"] * 5
    rig.workspace = rig.home
    assert rig.muse("verify", rig.session()).returncode == 0


def test_in_a_folder_that_is_gone_each_command_says_so(rig: Rig) -> None:
    gone = rig.folder / "gone"
    gone.mkdir()
    for arguments in ("ls", "exec hi", "doctor"):
        done = subprocess.run(
            ["sh", "-c", f'cd "$1" && rmdir "$1" && {MUSE} {arguments}; code=$?; mkdir "$1"; exit $code', "sh", gone],
            env=rig.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode in (1, 2), said
        assert "the current folder is gone" in said
        assert "cd to one that exists" in said
        assert "fault" not in said


def test_a_read_only_workspace_is_an_error_of_the_call_and_not_of_the_run(rig: Rig) -> None:
    place = str(rig.workspace)
    mounted = subprocess.run(["mount", "--bind", place, place], check=False, capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("mounting a folder read-only needs the right to mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        steps: list[dict[str, object]] = [
            {
                "uses": [
                    ["write", {"path": "a", "content": "x"}],
                    ["edit", {"path": "README.md", "old": "Shop", "new": "Ship"}],
                    ["shell", {"command": "echo x > b"}],
                    ["read", {"path": "README.md"}],
                ]
            },
            {"text": "Done."},
        ]
        done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "go on")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        results = {e["body"]["call"]: e["body"]["status"] for e in rig.of_type("tool.finished")}
        assert results == {"main/2": "error", "main/3": "error", "main/4": "error", "main/5": "ok"}
        rig.verify()
    finally:
        subprocess.run(["umount", "-l", place], check=True)


# -- locales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "POSIX", "LANG": "C"}, {"LC_ALL": "xx_YY.nonsense"}],
    ids=["POSIX", "one that is not installed"],
)
def test_other_scripts_are_written_and_shown_in_any_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    with Rig(tmp_path / "Größe 日本") as rig:
        story(rig, locale)
        assert "日本" in rig.muse("log", "last", extra=locale).stdout


def test_a_locale_that_python_takes_at_its_word_still_gives_valid_logs(rig: Rig) -> None:
    """ASCII with no way out, as old systems had it."""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    steps: list[dict[str, object]] = [{"uses": [["shell", {"command": "echo Größe"}]]}, {"text": "Größe 日本."}]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "wie groß?", extra=ascii_only)
    assert done.returncode == 0, done.stderr
    assert rig.of_type("user.prompted")[0]["body"]["text"] == "wie groß?"
    assert rig.of_type("tool.finished")[0]["body"]["text"] == "Größe\nexit code 0"
    rig.verify()


# -- streams -----------------------------------------------------------------------------------------------------------

CLOSED = ["0<&-", "1>&-", "0<&- 1>&- 2>&-"]


def shell(rig: Rig, arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{MUSE} {arguments} {redirected}"], cwd=rig.workspace, env=rig.environment, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize("redirected", CLOSED)
def test_closed_streams_stop_nobody_and_no_log_takes_their_number(rig: Rig, redirected: str) -> None:
    (rig.workspace / "go").touch()
    done = shell(rig, f"exec --yolo -m '{rig.script(STEPS)}' 'go on'", redirected)
    assert done.returncode == 0, done.stderr
    assert shell(rig, "ls", redirected).returncode == 0
    assert rig.read("made.txt") == "two\n"
    rig.verify()


def test_an_answer_that_cannot_be_written_is_said_and_is_no_success(rig: Rig) -> None:
    (rig.workspace / "go").touch()
    said = "standard output could not be written: No space left on device"
    for arguments in (f"exec --yolo -m '{rig.script(STEPS)}' 'go on'", "ls", "export last", "replay last --json",
                      "--help"):  # fmt: skip
        done = shell(rig, arguments, "1>/dev/full")
        assert (done.returncode, said in done.stderr) == (1, True), (arguments, done.stderr)
        assert "fault" not in done.stderr
        assert "Exception" not in done.stderr
    assert shell(rig, "ls", "1>/dev/full 2>/dev/full").returncode == 1
    for path in rig.logs():
        rig.verify(path.stem)
        assert [e["body"]["outcome"] for e in rig.of_type("session.closed", session=path.stem)] == ["done"]


def test_words_that_cannot_be_written_do_not_matter(rig: Rig) -> None:
    (rig.workspace / "go").touch()
    for arguments in (f"exec --yolo -m '{rig.script(STEPS)}' 'go on'", "ls"):
        assert shell(rig, arguments, "2>/dev/full").returncode == 0
    assert shell(rig, "log nosuch", "2>/dev/full").returncode == 2


def test_without_a_terminal_of_its_own_a_run_asks_nobody_and_ends(rig: Rig) -> None:
    steps: list[dict[str, object]] = [{"uses": [["shell", {"command": "echo hi > hi.txt"}]]}, {"text": "Done."}]
    process = rig.start("exec", "--approval-timeout", "0", "-m", rig.script(steps), "go on")
    rig.wait_for(lambda: rig.logs() and rig.of_type("approval.requested"))
    assert rig.muse("approve", "last").returncode == 0
    assert process.wait(PATIENCE_SECONDS) == 0, rig.said()
    assert rig.read("hi.txt") == "hi\n"


@contextmanager
def small_terminal(rig: Rig, *arguments: str) -> Iterator[list[str]]:
    """What a command shows on a terminal of 20 columns and 5 lines, as lines without colours."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
        os.chdir(rig.workspace)
        os.execve(MUSE, [MUSE, *arguments], rig.environment | {"TERM": "xterm", "NO_COLOR": "1"})
    shown, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    yield shown.decode().replace("\r", "").splitlines()


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_a_terminal_of_20_columns_shows_everything(rig: Rig) -> None:
    (rig.workspace / "go").touch()
    with small_terminal(rig, "exec", "--yolo", "-m", rig.script(STEPS), "go on with it") as lines:
        assert "Done." in [line.strip() for line in lines]
    for arguments in (["ls"], ["show", "last"], ["replay", "--plain", "last"]):
        with small_terminal(rig, *arguments) as lines:
            assert lines
            assert "fault" not in " ".join(lines)
