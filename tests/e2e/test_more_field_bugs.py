"""More of what broke in the field elsewhere (see test_field_bugs.py beside this): old and foreign state, sleep,
restarts without end."""

import json
import os
import secrets
import shutil
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from muse import app
from muse.effect.model.scripted import Step
from muse.event import commitment
from muse.event.kinds import COMMANDS, SessionOpened
from muse.fold.state import STATE_VERSION
from muse.log.protocol import Claim, Draft
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import new_id, now, seal
from muse.testing.wire import AnthropicServer, Trouble
from tests.crash.matrix.life import state_of
from tests.e2e.rig import Rig
from tests.e2e.test_field_bugs import WAITS, last_body, result_text, shell
from tests.e2e.test_same_lines import watched


def test_b8_no_file_beside_the_log_outranks_it(rig: Rig) -> None:
    """Every cache, old or nonsense, and the checkpoints inside the log: what a resume goes on from is the log alone."""
    steps: list[dict[str, object]] = [{"uses": [["shell", {"command": f"echo {n} >> ran.txt"}]]} for n in range(3)] + [
        {"text": "Done."},
        {"text": "And on."},
        {"text": "And again."},
    ]
    assert rig.muse("exec", "--yolo", "-m", rig.script(steps), "go on").returncode == 0
    rig.muse("ls")
    cache = rig.muse_home / "cache"
    old = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    assert old
    assert rig.muse("resume", "last", "and on").stdout == "And on.\n"
    for path, data in old.items():  # as a copy from before brings it back
        path.write_bytes(data)
    newest = json.loads(rig.muse("ls", "--json").stdout)
    assert (newest["events"], newest["outcome"]) == (len(rig.events()), "done")
    log = sqlite3.connect(rig.path())
    for seq in range(1, len(rig.events()) + 1):
        log.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, x'c0de')", (STATE_VERSION, seq))
    log.commit()
    log.close()
    for path in old:
        path.write_bytes(b"\x00 nonsense")
    again = rig.muse("resume", "last", "again")
    assert (again.returncode, again.stdout) == (0, "And again.\n"), again.stderr
    assert rig.read("ran.txt").split() == ["0", "1", "2"]
    rig.verify()


def test_b12_an_event_of_a_kind_from_the_future_is_kept_and_shown_and_only_going_on_needs_a_newer_muse(
    rig: Rig,
) -> None:
    assert rig.muse("exec", "--yolo", "-m", rig.script([{"text": "Hello."}]), "greet me").returncode == 0
    body = b'{"mood":"elated \xf0\x9f\xa6\x8a","steps":[1,2,{"of":"three"}]}'
    plain, key = json.loads(body), secrets.token_bytes(32)
    root = commitment.commit(plain, key)
    strange = Draft(new_id(), now(), "robot.danced", 7, "main", 0, body, key, root.count, root.root)
    log = SqliteLog.open(rig.path(), commands=COMMANDS, read_only=False)
    opened = next(event for event in app.events(log) if isinstance(event.body, SessionOpened))

    def reopened(_: Claim) -> Draft:
        return seal(opened.body, "main", 0)

    ownership = log.claim(reopened)
    log.append([strange], [], log.head(), ownership.epoch)
    ownership.release()
    log.close()
    (kept,) = rig.of_type("robot.danced")
    assert kept["body"] == plain
    for arguments in (["log", "last"], ["show", f"@{kept['seq']}"], ["replay", "last", "--plain"], ["ls"]):
        shown = rig.muse(*arguments)
        assert shown.returncode == 0, shown.stderr
        assert arguments == ["ls"] or "robot.danced" in shown.stdout
    exported = rig.muse("export", "last", "-o", "out.jsonl")
    assert exported.returncode == 0, exported.stderr
    assert rig.muse("verify", "last").returncode == rig.muse("verify", "out.jsonl").returncode == 0
    assert "🦊" in rig.read("out.jsonl")
    refused = rig.muse("resume", "last", "and on")
    assert refused.returncode == 6
    assert "robot.danced" in refused.stderr
    assert len(rig.of_type("user.prompted")) == 1


def test_b24_a_machine_that_sleeps_in_the_middle_of_a_batch_wakes_to_a_valid_conversation(rig: Rig) -> None:
    """Host, runner and command stand still for a while; the connection to the provider is gone when they wake."""
    steps = [Step(uses=(shell(f"echo a >> ran.txt; {WAITS}"), shell("echo b >> ran.txt"))), Step(text="Done.")]
    with AnthropicServer(steps, {1: [Trouble("silent")]}) as server:
        rig.provider("anthropic", server.base_url)
        with watched(rig, "exec", "--yolo", "--json", "go on") as run:
            run.until("tool.finished")
            rig.wait_for(lambda: len(rig.read("ran.txt").split()) == 2)
            asleep = put_to_sleep(rig)
            assert run.process.pid in asleep
            assert len(asleep) >= 4  # with the supervisor, the keeper and its command
            (rig.workspace / "go").touch()
            before = len(rig.events())
            time.sleep(1)
            assert len(rig.events()) == before
            assert {state_of(pid) for pid in asleep} == {"T"}
            for pid in asleep:
                os.kill(pid, signal.SIGCONT)
            assert run.end() == 0, run.errors
    assert server.violations == []
    assert [request.step for request in server.requests] == [0, 1, 1]
    assert result_text(rig, "main/2") == "began\nended\nexit code 0"
    assert sorted(rig.read("ran.txt").split()) == ["a", "b"]
    rig.verify()


def put_to_sleep(rig: Rig) -> set[int]:
    """Stop all that lives of a rig, as a lid that is closed does; what is left when nothing of it moves any more."""

    def moving() -> list[int]:
        return [pid for pid in rig.processes() if state_of(pid) not in ("", "T", "Z", "X")]

    while found := moving():
        for pid in found:
            with suppress(ProcessLookupError):  # a short sleep of the command that has just ended
                os.kill(pid, signal.SIGSTOP)
    return {pid for pid in rig.processes() if state_of(pid) == "T"}


def test_b43_b45_what_was_cancelled_stays_so_and_what_was_open_is_settled_over_three_restarts(rig: Rig) -> None:
    """Each restart is itself killed. The first gives every open call a verdict before it starts the one that waits."""
    steps = [
        Step(
            uses=(
                shell(f"echo a >> ran.txt; {WAITS}"),
                shell(f"echo b >> ran.txt; {WAITS}"),
                shell("echo c >> ran.txt"),
            )
        ),
        Step(text="Ok."),
    ]
    with AnthropicServer(steps) as server:
        rig.provider("anthropic", server.base_url, "max_parallel_tools = 2")
        with watched(rig, "exec", "--yolo", "--json", "go on") as run:
            rig.wait_for(lambda: (rig.workspace / "ran.txt").exists() and len(rig.read("ran.txt").split()) == 2)
            calls = {json.loads(e["body"]["args"])["command"].split()[1]: e for e in rig.of_type("tool.started")}
            call, intent = calls["a"]["body"]["call"], calls["a"]["seq"]
            os.kill(run.process.pid, signal.SIGSTOP)  # it hears of the cancel no more
            assert rig.muse("cancel", f"last@{intent}", "--why", "not that").returncode == 0
            run.process.kill()
            run.end()
        for _ in range(3):
            with watched(rig, "resume", "last", "--json") as run:
                run.until("session.opened")
                rig.wait_for(lambda: call_of(rig, call, "tool.finished"))
                run.process.kill()
                run.end()
        (rig.workspace / "go").touch()
        again = rig.muse("resume", "last")
        assert (again.returncode, again.stdout) == (0, "Ok.\n"), again.stderr
    assert server.violations == []
    assert sorted(rig.read("ran.txt").split()) == ["a", "b", "c"]
    assert len(call_of(rig, call, "tool.started")) == len(call_of(rig, call, "tool.finished")) == 1
    assert call_of(rig, call, "tool.finished")[0]["body"]["status"] == "cancelled"
    assert "cancelled" in result_text(rig, call)
    assert result_text(rig, call).splitlines()[-1] in last_body(server)
    (new,) = [e["seq"] for e in rig.of_type("tool.started") if "echo c" in e["body"]["args"]][:1]
    for one in calls.values():
        assert call_of(rig, one["body"]["call"], "effect.reconciled")[0]["seq"] < new
    rig.verify()


def call_of(rig: Rig, call: str, kind: str) -> list[dict[str, object]]:
    return [event for event in rig.of_type(kind) if event["body"]["call"] == call]


def test_b11_a_damaged_or_foreign_session_never_stops_another(rig: Rig) -> None:
    script = rig.script([{"text": "Hello."}])
    for _ in range(3):
        assert rig.muse("exec", "--yolo", "-m", script, "greet me").returncode == 0
    first, second, third = rig.logs()
    first.write_bytes(first.read_bytes()[:5000])
    second.write_bytes(b"SQLite format 3\0" + bytes(4080))
    shutil.copy(Path(__file__), third.with_name("20200101-000000-zzzzzzzz.muse"))
    listed = [json.loads(line) for line in rig.muse("ls", "--json", "-n", "0").stdout.splitlines()]
    assert {one["session"]: one["state"] for one in listed if one["state"] != "closed"} == {
        first.stem: "damaged", second.stem: "damaged", "20200101-000000-zzzzzzzz": "damaged",
    }  # fmt: skip
    again = rig.muse("resume", third.stem, "and on")
    assert again.returncode == 0, again.stderr
    assert rig.muse("exec", "--yolo", "-m", script, "greet me").returncode == 0
    assert rig.muse("verify", first.stem).returncode == 6
    assert rig.muse("resume", first.stem, "and on").returncode == 6


def test_b46_the_word_of_a_call_is_durable_with_its_name_before_its_command_begins(rig: Rig) -> None:
    """For commands; a child's id before its prompt comes with children."""
    steps: list[dict[str, object]] = [{"uses": [["shell", {"command": f"touch began; {WAITS}"}]]}]
    with watched(rig, "exec", "--yolo", "--json", "-m", rig.script([*steps, {"text": "Done."}]), "go on") as run:
        rig.wait_for(lambda: (rig.workspace / "began").exists())
        (started,) = rig.of_type("tool.started")  # read by another process, from the files, while the command runs
        assert started["body"]["call"] == "main/2"
        (rig.workspace / "go").touch()
        assert run.end() == 0
