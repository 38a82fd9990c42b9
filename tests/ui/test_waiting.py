"""`muse wait` and `muse result`: from scripts, of sessions that run, wait for somebody, ended or were killed."""

import json
import os
import signal
import subprocess

import pytest

from tests.ui.driving import MUSE, WAITS, World, eventually, shell
from tests.ui.tui.fanout import write_fanout

AUTH = {"failure": {"failure": "auth", "times": 9, "message": "wrong key"}}


def begun(world: World, model: str, *more: str) -> str:
    """A session in the background."""
    done = world.run("exec", "--background", "-q", "-m", model, *more, "do it")
    assert done.code == 0, done
    return done.out.strip()


def fan_out(world: World) -> str:
    """A model that spawns two in the background: one ends at once, one wants something removed."""
    tasks = [{"task": f"{what} it", "isolation": "shared"} for what in ("Look", "Clean")]
    script = {
        "steps": [{"uses": [["spawn", {"agents": tasks, "background": True}]]}, {"text": "Both work."}]
        + [{"text": "Both have ended."}] * 2,
        "lanes": [
            {"when": "Look it", "steps": [{"text": "It looks\x1b[2J well."}]},
            {"when": "Clean it", "steps": [{"text": "I clean.", "uses": [shell("rm -r build")]}, {"text": "Clean."}]},
        ],
    }
    path = world.root / "fan-out.json"
    path.write_text(json.dumps(script))
    return f"scripted/{path}"


def test_a_script_waits_for_a_session_and_gets_its_answer_and_can_go_on_with_it_at_once(world: World) -> None:
    model = world.script({"uses": [shell("sleep 0.2; echo x > made")]}, {"text": "All is\ndone."}, {"text": "More."})
    line = (
        'id=$("$0" exec --yolo --background -q -m "$1" "do it") && "$0" wait $id && "$0" result $id'
        ' && "$0" resume -q $id "more"'
    )
    done = subprocess.run(
        ["sh", "-c", line, MUSE, model], cwd=world.work, env=world.env, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    name = world.files()[0].stem[-8:]
    assert (done.returncode, done.stdout) == (0, f"{name}  done\nAll is\ndone.\nMore.\n"), done.stderr
    told = json.loads(world.run("result", "--json").out)
    (answered,) = [event["seq"] for event in world.events() if event["type"] == "model.responded"][-1:]
    assert (told["text"], told["outcome"], told["seq"], told["agent"]) == ("More.", "done", answered, "main")


def test_agents_are_waited_for_until_only_a_person_can_go_on_and_then_to_their_end(world: World) -> None:
    session = begun(world, fan_out(world))
    name = session[-8:]
    held = world.run("wait", session)
    (asked,) = [event["seq"] for event in world.events() if event["type"] == "approval.requested"]
    approve = f"muse approve {name}@{asked}"
    assert (held.code, held.out) == (3, f"{name}  waits for approval @{asked} of main.2: {approve}\n")
    first = world.run("wait", "--any", "-q", f"{session}:main.1", f"{session}:main.2")
    assert (first.code, first.out) == (0, "")
    told = [
        json.loads(line) for line in world.run("wait", "--json", f"{name}:main.1", f"{name}:main.2").out.split("\n")[:2]
    ]
    assert [(one["agent"], one["state"], one["code"], one["next"]) for one in told] == [
        ("main.1", "done", 0, ""), ("main.2", "approval", 3, approve),
    ]  # fmt: skip
    assert world.run("result", f"{name}:main.1").out == "It looks\x1b[2J well.\n", "bytes as they were, in a pipe"
    early = world.run("result", session)
    assert (early.code, early.out) == (7, "")
    assert f"muse wait {name} waits for it" in early.err
    not_ended = json.loads(world.run("result", "--json", f"{name}:main.2").out)
    assert (not_ended["ended"], not_ended["outcome"], not_ended["text"]) == (False, "approval", "")
    assert world.run("approve", f"{name}@{asked}").code == 0
    assert world.run("wait", session).out == f"{name}  done\n"
    assert world.run("result", session).out == "Both have ended.\n"
    assert world.run("result", f"{name}:main.2").out == "Clean.\n"
    for command in ("wait", "result"):
        tab = {"_MUSE_COMPLETE": "bash_complete", "COMP_WORDS": f"muse {command} {name}:main.", "COMP_CWORD": "2"}
        assert [line.partition(",")[2] for line in world.run(env=tab).out.split()] == [
            f"{name}:main.1", f"{name}:main.2",
        ]  # fmt: skip


def test_what_it_came_to_is_the_exit_code(world: World) -> None:
    session = begun(world, world.script(AUTH))
    assert (world.run("wait", "-q", session).code, world.run("result", session).code) == (4, 4)
    session = begun(world, world.script({"uses": [shell("true")]}, {"text": "-"}), "--yolo", "--budget", "calls=1")
    done = world.run("wait", session)
    assert (done.code, world.run("result", session).code) == (5, 5)
    assert f"muse resume {session[-8:]} --budget" in done.out
    session = begun(world, world.script({"uses": [shell(WAITS)]}), "--yolo")
    eventually((world.work / "begun").exists)
    pid = json.loads(world.run("ls", "--json").out.splitlines()[0])["pid"]
    late = world.run("wait", "--timeout", "0", session)
    assert (late.code, late.out, f"muse wait {session[-8:]}" in late.err) == (7, f"{session[-8:]}  works\n", True)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: world.run("wait", "--timeout", "0", "--json", session).out.count('"stopped"'))
    left = world.run("wait", session)
    assert (left.code, f"muse resume {session[-8:]}" in left.out) == (7, True)
    assert world.run("cancel", session).code == 0
    (world.work / "go").touch()
    assert world.run("resume", "-q", session).code == 130
    assert (world.run("wait", session).code, world.run("result", session).code) == (1, 1)


def test_a_session_that_nobody_runs_is_told_as_it_was_left_and_no_agent_is_waited_for_that_is_not_there(
    world: World,
) -> None:
    folder = world.home / "sessions" / "2026" / "03" / "09"
    folder.mkdir(parents=True)
    write_fanout(world.root / "made.muse", "work")
    file = str(world.root / "made.muse")
    words = [world.run("wait", f"{file}:main.{n}").out.partition("  ")[2] for n in range(1, 7)]
    assert [one.partition(":")[0] for one in words] == [
        "done\n", "stopped", "stopped", words[3].partition(":")[0], words[4].partition(":")[0], "paused",
    ]  # fmt: skip
    assert words[3].startswith("waits for approval @")
    assert "nobody runs it: then muse resume" in words[3]
    assert words[4].startswith("waits for an answer to @")
    for refused in (
        ("wait", f"{file}:main.9"),
        ("result", f"{file}:main.9"),
        ("wait", f"{file}@3"),
        ("result", f"{file}@3"),
    ):
        assert world.run(*refused).code == 2, refused


@pytest.mark.parametrize("given", ["x", "-1", "5 parsecs"])
def test_a_time_that_is_none_is_refused(world: World, given: str) -> None:
    done = world.run("wait", f"--timeout={given}", "nowhere")
    assert (done.code, "for example 90s, 5m, 1h30m" in done.err) == (2, True)


def test_what_can_never_go_on_is_not_sent_to_resume_and_an_archived_session_keeps_its_name(world: World) -> None:
    world.run("exec", "--yolo", "-m", world.script({"text": "Done."}), "do it")
    name = world.files()[0].stem[-8:]
    world.run("spawn", name, "look for hunter2")
    taken = world.run("redact", name, "--text", "-", "--yes", stdin="hunter2")
    assert taken.code == 0, taken
    left = world.run("wait", name)
    assert (left.code, left.out) == (
        7, f"{name}  stopped: it cannot go on: what its agents went by was redacted\n",
    )  # fmt: skip
    refused = world.run("spawn", name, "look again")
    assert (refused.code, "cannot go on: what its agents" in refused.err) == (2, True), refused
    kept = world.run("steer", name, "go on")
    assert (kept.code, "cannot go on" in kept.err, "muse resume" in kept.err) == (0, True, False), kept
    assert world.run("archive", name, "--yes").code == 0
    told = json.loads(world.run("wait", name, "--json").out)
    assert (told["address"], told["session"][-8:], told["next"]) == (name, name, "")
    assert f"muse wait {name} waits" in world.run("result", name).err
