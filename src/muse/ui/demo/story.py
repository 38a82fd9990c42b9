"""The story in five beats: a task begins, its host is killed, another host goes on, the result and the log are checked.

Each beat does what its caption says with real processes and shows what came of it. What is claimed is counted by
`checks`; a claim that does not hold is said, and makes the exit code 1.
"""

import json
import shlex
import signal
import sys
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Final

import msgspec

from muse import app
from muse.ui.demo import processes, project
from muse.ui.demo.checks import Facts, broken, broken_recovery, counter_of, recovery_line, recovery_of
from muse.ui.demo.place import ending_with, fresh_folder, spelled
from muse.ui.demo.processes import POLL_SECONDS, PROJECT, WAIT_SECONDS_MAX, Host, Line, Stuck
from muse.ui.demo.project import COUNTER, PROMPT, SLOW, TESTS
from muse.ui.demo.stage import Stage
from muse.ui.demo.tamper import change_copy

TITLE: Final = "muse: kill it anywhere. Nothing runs twice, nothing is lost."
REAL: Final = "The model is scripted; all else is real: files, tests, processes, log, SIGKILL."
CAPTIONS: Final = (
    "A small project, three of its tests fail. An agent sets to work.",
    "It runs a slow command. In the middle of it, its host is killed.",
    "A new host goes on from the log.",
    "The tests are green. One changed byte in the log does not go unseen.",
    "Your turn.",
)
COPY: Final = "changed-copy.muse"
LINK: Final = "log.muse"
"""A short name for the session's file."""
SCRIPT: Final = "script.json"
TICKS_BEFORE_KILL: Final = 2
GROWN_MIN: Final = 3
"""Lines that must come to counter.txt before a new host starts."""
YOU_KILL_SECONDS: Final = 600
"""How long the slow command waits for a person who wants to kill its host."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the story is told. `look`: how much of the pauses for the eye is kept. `ticks`: after how many the slow
    command ends by itself; it is told to end once a new host has it, however slow this machine is."""

    look: float
    delay_ms: int
    ticks: int
    tick_seconds: float


CALM: Final = Pace(look=1.0, delay_ms=110, ticks=75, tick_seconds=0.8)
FAST: Final = Pace(look=0.0, delay_ms=0, ticks=240, tick_seconds=0.25)


class Story(msgspec.Struct, kw_only=True):
    """One telling. `folder` holds all of it: `project`, `home` (HOME and MUSE_HOME), `script.json`."""

    stage: Stage
    folder: Path
    pace: Pace
    you_kill_it: bool
    host: Host | None = None
    session: str = ""
    tools: dict[str, str] = {}

    @property
    def project(self) -> Path:
        """The small project, where the agent works."""
        return self.folder / PROJECT

    @property
    def home(self) -> Path:
        """Where the demo's sessions are."""
        return self.folder / "home"

    @property
    def enough(self) -> Path:
        """The file that tells the slow command to come to its end."""
        return self.folder / "enough"

    @property
    def log(self) -> Path:
        """The session's file."""
        return next((self.home / "sessions").rglob(f"{self.session}.muse"))

    def end(self) -> None:
        """End every process of the demo."""
        with suppress(OSError):
            self.enough.touch()
        processes.end_all(self.folder, self.host)

    def counter(self) -> str:
        """What stands in counter.txt."""
        with suppress(FileNotFoundError):
            return (self.project / COUNTER).read_text(encoding="utf-8", errors="replace")
        return ""


def tell(folder: str, *, fast: bool, you_kill_it: bool, colour: bool, as_json: bool = False) -> int:
    """Tell the story in a folder ("" for a new one); `as_json`: on standard error, and what was found out as one JSON
    line on standard output. Returns the exit code: 0 when every claim held."""
    pace = FAST if fast else CALM
    if you_kill_it:
        pace = msgspec.structs.replace(pace, ticks=round(YOU_KILL_SECONDS / pace.tick_seconds))
    stage = Stage(colour=colour, pace=pace.look)
    story = Story(stage=stage, folder=fresh_folder(folder), pace=pace, you_kill_it=you_kill_it)
    with ending_with(story.end):
        if not as_json:
            return _tell(story)[0]
        with redirect_stdout(sys.stderr):
            code, facts = _tell(story)
        found = {
            "folder": str(story.folder),
            "session": story.session,
            "facts": facts,
            "broken": broken(facts),
        }
        sys.stdout.write(msgspec.json.encode(found, order="sorted").decode() + "\n")
        return code


def _tell(story: Story) -> tuple[int, Facts]:
    stage = story.stage
    stage.line(TITLE, "1", indent=1)
    stage.line(REAL, indent=1)
    stage.line(f"Everything happens in {story.folder}", "2", indent=1)
    _set_up(story)
    facts = _kill(story, _begin(story))
    facts = _check(story, _resume(story, facts))
    if sentences := broken(facts):
        stage.line()
        for sentence in sentences:
            stage.mark(False, f"not as promised: {sentence}")
        stage.line(f"what happened: {spelled()} replay --plain {shlex.quote(str(_linked(story)))}")
        return 1, facts
    _try_next(story)
    return 0, facts


def _set_up(story: Story) -> None:
    """The first beat up to the agent: the project, and tests that really fail."""
    stage, pace = story.stage, story.pace
    stage.caption(1, CAPTIONS[0])
    story.project.mkdir()
    story.home.mkdir(mode=0o700)
    project.write_project(story.project)
    project.write_slow(story.project, ticks=pace.ticks, seconds=pace.tick_seconds, enough=story.enough)
    seconds = round(pace.ticks * pace.tick_seconds) * 2 + 60
    project.write_script(story.folder / SCRIPT, delay_ms=pace.delay_ms, slow_seconds_max=seconds)
    if not processes.begin_git(story.project, story.home):
        stage.note("git", "there is none that works here; the demo goes on without")
    ran, failed = processes.run_tests(story.project, story.home)
    if failed != project.FAILING:
        raise Stuck(f"{failed} of the project's {ran} tests fail, and {project.FAILING} should")
    stage.note(f"$ {TESTS}", f"{failed} of {ran} tests fail", "31")


def _begin(story: Story) -> Facts:
    """The first beat: an agent works, each of its steps ticks, until its slow command has started."""
    stage = story.stage
    model = f"scripted/{story.folder / SCRIPT}"
    story.host = Host(["exec", PROMPT, "--yolo", "--json", "-m", model], story.project, story.home)
    stage.note(f'$ muse exec "{PROMPT}"', f"host {story.host.pid}")
    stage.pause(0.5)
    ticked: set[str] = set()
    for line in story.host.lines():
        body = line["body"]
        story.session = story.session or body.get("session", "")
        if call := _tick(story, line):
            ticked.add(call)
        if line["type"] == "tool.started" and _is_slow(body):
            stage.note(f"{len(ticked)} steps are finished, each of them durable in the log")
            return Facts(slow=line["seq"], ticked=frozenset(ticked))
    raise Stuck(f"the agent ended before its slow command{story.host.said()}")


def _kill(story: Story, facts: Facts) -> Facts:
    """The second beat: the host is killed in the middle of the slow command, and the command goes on."""
    stage, host = story.stage, story.host
    assert host is not None
    stage.caption(2, CAPTIONS[1])
    stage.note(f"▸ #{facts.slow}  {SLOW}", f"a line to {COUNTER} at start and end")
    runs = f"host {host.pid} runs"
    shown = _show_counter(story, 0, 1 + TICKS_BEFORE_KILL, runs)
    if story.you_kill_it:
        _wait_for_a_person(story, host)
    else:
        stage.pause(0.4)
        host.kill()
    code = host.wait()
    dead_at = counter_of(story.counter()).lines
    if not story.you_kill_it:
        _show_counter(story, shown, dead_at, runs)
    how = "SIGKILL" if code == -signal.SIGKILL else f"it ended with {code}"
    stage.mark(False, f"kill -9 {host.pid}", f"{how}: the host is dead", "31")
    stage.pause(0.5)
    grown = _show_counter(story, dead_at, dead_at + GROWN_MIN, "no host runs", "33") - dead_at
    killed = code == -signal.SIGKILL and app.owner_pid(story.log) == 0
    stage.note("The command goes on: it belongs to a runner, not to the host.")
    return msgspec.structs.replace(facts, killed=killed, grown=grown)


def _show_counter(story: Story, after: int, upto: int, remark: str, look: str = "2") -> int:
    """Show lines of counter.txt as they come, until there are `upto` or it is at its end. Returns their number."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    shown = after
    while shown < upto:
        lines = story.counter().split("\n")[:-1]
        for text in lines[shown:upto]:
            story.stage.note(f"  {COUNTER}   {text}", remark, look)
        shown = max(shown, min(len(lines), upto))
        if "end" in lines:
            break
        if time.monotonic() > deadline:
            raise Stuck(f"nothing comes to {COUNTER}")
        time.sleep(POLL_SECONDS)
    return shown


def _wait_for_a_person(story: Story, host: Host) -> None:
    stage = story.stage
    stage.line()
    stage.line("Now kill it yourself, from another terminal:", "1")
    stage.line(f"kill -9 {host.pid}", "1;33", indent=9)
    deadline = time.monotonic() + YOU_KILL_SECONDS
    ticks = 0
    while host.alive:
        if time.monotonic() > deadline:
            raise Stuck(f"nobody killed process {host.pid} within {YOU_KILL_SECONDS} s")
        now = counter_of(story.counter()).lines
        if now > ticks:
            ticks = now
            stage.dot()
        time.sleep(POLL_SECONDS)


def _resume(story: Story, facts: Facts) -> Facts:
    """The third beat: another host opens the log and goes on to the end."""
    stage = story.stage
    stage.caption(3, CAPTIONS[2])
    story.host = Host(["resume", story.session, "--json"], story.project, story.home)
    stage.note("$ muse resume", f"host {story.host.pid}")
    for line in story.host.lines():
        if line["type"] == "effect.reconciled":
            stage.note(f"▸ #{facts.slow}  {SLOW}", line["body"]["evidence"])
            stage.pause(1.2)
            story.enough.touch()
        _tick(story, line)
    code = story.host.wait()
    with app.read_session(story.log) as reading:
        recovered = recovery_of(reading.events())
    facts = msgspec.structs.replace(facts, resume_exit=code, recovered=recovered, counter=counter_of(story.counter()))
    stage.pause(0.5)
    good = not broken_recovery(facts)
    stage.punch(good, recovery_line(facts))
    return facts


def _check(story: Story, facts: Facts) -> Facts:
    """The fourth beat: the tests, a changed copy of the log, the log."""
    stage = story.stage
    stage.caption(4, CAPTIONS[3])
    ran, failed = processes.run_tests(story.project, story.home)
    stage.mark(
        ran > 0 and not failed, f"$ {TESTS}", f"{ran - failed} of {ran} tests pass", "32" if not failed else "31"
    )
    stage.pause(0.6)
    copy = story.folder / COPY
    changed, how = change_copy(story.log, copy)
    stage.note(f"one byte of a copy, in event #{changed}", how)
    copy_exit, _, named = processes.verify(copy, story.home)
    for suffix in ("-wal", "-shm"):  # a reader of a log that nobody owns leaves them
        copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    stage.mark(copy_exit == 6, "$ muse verify (the copy)", f"exit {copy_exit}: the first bad event is #{named}", "33")
    original_exit, events, _ = processes.verify(story.log, story.home)
    good = original_exit == 0
    stage.mark(good, "$ muse verify (the log)", f"exit {original_exit}: {events} events, nothing is wrong", "32")
    return msgspec.structs.replace(
        facts, tests=ran, tests_failing=failed, changed=changed, named=named, copy_exit=copy_exit,
        original_exit=original_exit,
    )  # fmt: skip


def _try_next(story: Story) -> None:
    """The last beat: three lines to go on with."""
    stage, name = story.stage, spelled()
    stage.caption(5, CAPTIONS[4])
    path = shlex.quote(str(_linked(story)))
    stage.commands([
        (f"{name} replay {path}", "step through it"),
        (f"{name} export --format md {path}", "read it"),
        (f"{name} demo --you-kill-it", "kill it yourself"),
    ])  # fmt: skip


def _linked(story: Story) -> Path:
    """A short path to the log, where the folder can hold a link."""
    with suppress(OSError):
        (story.folder / LINK).symlink_to(story.log)
        return story.folder / LINK
    return story.log


def _tick(story: Story, line: Line) -> str:
    """Show a finished step. Returns its call, "" for an event that finishes none."""
    body = line["body"]
    call = str(body.get("call", ""))
    match line["type"]:
        case "tool.started":
            story.tools[call] = _label(body["tool"], json.loads(body["args"]))
        case "tool.finished":
            story.stage.tick(body["status"] == "ok", line["seq"], _ended(story.tools.get(call, ""), body["text"]))
            return call
        case "model.responded":
            story.stage.tick(True, line["seq"], "model")
            return call
    return ""


def _label(tool: str, args: dict[str, str]) -> str:
    """A step in a word or two."""
    if tool == "shell":
        return "slow.sh" if args["command"] == SLOW else "tests"
    about = Path(args.get("path", "")).stem or args.get("pattern", "")
    return f"{tool} {about.removeprefix('**/')}"


def _ended(label: str, text: object) -> str:
    """The label of a step with its result: how many tests pass or fail."""
    found = processes.counted(text) if label == "tests" and isinstance(text, str) else None
    if found is None:
        return label
    ran, failed = found
    return f"{failed} of {ran} fail" if failed else f"{ran} of {ran} pass"


def _is_slow(body: Line) -> bool:
    return bool(body["tool"] == "shell" and json.loads(body["args"])["command"] == SLOW)
