"""Real agents of real sessions, spoken to from another terminal, told about, and killed on the way."""

import json
import re
import signal
from pathlib import Path
from typing import Any

from tests.ui.driving import MUSE, World, eventually, shell

DONE = {"text": "All is well."}
KEYS = "q cancel the turn > "
WORDS = "your words (Ctrl-C cancels the turn) > "


def waits(mark: str) -> list[Any]:
    """A command that says when it begins and goes on when the file `go` is there."""
    return shell(f"touch {mark}; for i in $(seq 1200); do [ -e go ] && break; sleep 0.05; done; echo {mark} >> ended")


def fan(world: World, *children: list[dict[str, Any]], first: dict[str, Any] | None = None) -> str:
    """A model whose `main` spawns these children and waits for them; each says its steps."""
    world._scripts += 1
    path = world.root / f"script{world._scripts}.json"
    agents = [{"task": f"TASK-{n}", "isolation": "shared"} for n in range(1, len(children) + 1)]
    lanes = [{"when": f"TASK-{n}", "steps": steps} for n, steps in enumerate(children, 1)]
    steps = [*([first] if first else []), {"uses": [["spawn", {"agents": agents}]]}, DONE]
    path.write_text(json.dumps({"steps": steps, "lanes": lanes}))
    return f"scripted/{path}"


def bodies(world: World, kind: str, agent: str = "") -> list[dict[str, Any]]:
    return [e["body"] for e in world.events() if e["type"] == kind and agent in ("", e["agent"])]


def there(world: World, *marks: str) -> None:
    eventually(lambda: all((world.work / mark).exists() for mark in marks))


def test_children_are_steered_cancelled_and_answered_one_by_one(world: World) -> None:
    script = fan(
        world,
        [{"uses": [waits("one")]}, {"text": "one ended"}],
        [{"uses": [waits("two")]}, {"text": "two ended"}],
        [{"uses": [["ask", {"question": "Which?", "options": ["red", "blue"]}]]}, {"text": "three ended"}],
    )
    process = world.start("exec", "--yolo", "-m", script, "do it")
    there(world, "one", "two")
    eventually(lambda: "question.asked" in world.types())
    assert world.run("steer", "last:main.1", "mind the tests").code == 0
    assert world.run("cancel", "last:main.2", "--agent", "--why", "not needed").code == 0
    eventually(lambda: bodies(world, "agent.finished", "main.2"))
    refused = world.run("steer", "last:main.2", "go on")
    assert (refused.code, "was cancelled, and stays so" in refused.err) == (2, True)
    assert world.run("answer", "2").code == 0
    eventually(lambda: bodies(world, "agent.finished", "main.3"))
    assert bodies(world, "agent.finished", "main.1") == []
    (world.work / "go").touch()
    assert process.communicate()[0] == "All is well.\n"
    assert (process.returncode, (world.work / "ended").read_text()) == (0, "one\n")
    ends = [bodies(world, "agent.finished", f"main.{n}")[0]["outcome"] for n in (1, 2, 3)]
    assert ends == ["done", "cancelled", "done"]
    assert [body["status"] for body in bodies(world, "tool.finished", "main.2")] == ["cancelled"]
    assert bodies(world, "tool.finished", "main.3")[0]["text"] == "blue"
    assert [body["items"] for body in bodies(world, "model.requested", "main.1")] == [1, 4]  # task, use, result, words
    assert world.run("verify").code == 0
    assert world.run("replay", "--verify").code == 0


def test_a_paused_tree_stays_paused_over_a_kill_and_goes_on_when_it_is_told_to(world: World) -> None:
    script = fan(world, [{"uses": [waits("one")]}, {"uses": [shell("touch more")]}, {"text": "one ended"}])
    process = world.start("exec", "--yolo", "-m", script, "do it")
    there(world, "one")
    name = world.files()[0].stem[-8:]
    assert f"muse continue {name} --tree" in world.run("pause", "last", "--tree").err
    (world.work / "go").touch()  # what runs goes to its end
    eventually(lambda: bodies(world, "tool.finished", "main.1"))
    assert "paused (" in world.run("ls").out
    process.send_signal(signal.SIGKILL)
    assert f"muse continue {name}" in process.communicate()[1]
    assert "stopped, paused (continue)" in world.run("ls").out
    again = world.start("resume")
    eventually(lambda: world.types().count("session.opened") == 2)
    assert len(bodies(world, "model.requested", "main.1")) == 1
    assert not (world.work / "more").exists()
    assert world.run("continue", "last", "--tree").code == 0
    out, err = again.communicate()
    assert (again.returncode, out) == (0, "All is well.\n"), err
    assert f"paused: nothing new starts; go on: muse continue {name}" in err
    assert (world.work / "ended").read_text() == "one\n"
    assert (world.work / "more").exists()
    assert world.run("replay", "--verify").code == 0


def test_a_question_is_asked_at_the_terminal_which_rings(world: World) -> None:
    asks = {"uses": [["ask", {"question": "Which \x1b]0;x\x07?", "options": ["red", "blue"]}]]}
    terminal = world.terminal("exec", "-m", world.script(asks, asks, DONE), "do it")
    shown = terminal.expect(WORDS)
    name = world.files()[0].stem[-8:]
    assert f"\x1b]9;muse {name}: main asks: Which \\x1b]0;x\\x07?\x07\x07" in shown  # OSC 9 (iTerm2), then BEL
    assert "\x1b]0;" not in shown
    assert "    2  blue" in shown
    terminal.send("3\n")
    terminal.expect("there is no option 3")
    terminal.expect(WORDS)
    terminal.send("2\n")
    terminal.expect(WORDS)
    assert world.run("answer", "neither").code == 0
    terminal.expect("answered from elsewhere")
    code, rest = terminal.end()
    assert (code, f"\x1b]9;muse {name}: done: All is well.\x07\x07" in rest) == (0, True)
    assert [body["text"] for body in bodies(world, "tool.finished")] == ["blue", "neither"]
    assert [body["origin"]["client"] for body in bodies(world, "question.answered")] == ["terminal", "cli"]


def test_a_terminal_does_not_ring_where_that_is_not_wanted(world: World) -> None:
    terminal = world.terminal("exec", "-c", "bell=false", "-m", world.script(DONE), "do it")
    assert "\x07" not in terminal.end()[1]
    world.env["TERM"] = "dumb"
    plain = world.terminal("exec", "-c", 'notify_on=["finished"]', "-m", world.script(DONE), "do it")
    assert re.sub("[^\x07\x1b]", "", plain.end()[1]) == "\x07"


def test_a_chat_rings_when_it_asks_and_not_for_an_answer_that_comes_at_once(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script(DONE, {"uses": [shell("touch made")]}, DONE)
    chat = world.terminal("do it")
    shown = chat.expect("✓ closed")
    chat.expect("\x1b[?2004h")
    chat.send("touch it\r")
    assert "\x07" not in shown
    assert "main asks: may this run? $ touch made\x07\x07" in chat.expect(KEYS)
    chat.send("y")
    assert "\x07" not in chat.expect("✓ closed")
    chat.send("\x04")
    assert chat.end()[0] == 0


def test_what_waits_is_gone_through_on_one_terminal(world: World) -> None:
    asks = world.script({"uses": [["ask", {"question": "Which?", "options": ["red", "blue"]}]]}, DONE)
    first = world.start("exec", "-m", world.script({"uses": [shell("touch made")]}, DONE), "do it")
    eventually(lambda: len(world.files()) == 1 and "approval.requested" in world.types())
    second = world.start("exec", "-m", asks, "ask me")
    eventually(lambda: len(world.files()) == 2 and "question.asked" in world.types())
    third = world.start("exec", "-m", world.script({"uses": [shell("touch later")]}, DONE), "do that")
    eventually(lambda: len(world.files()) == 3 and "approval.requested" in world.types())
    terminal = world.terminal("approvals", "-i")
    assert "$ touch made" in terminal.expect("q leave > ")
    terminal.send("y")
    assert "    2  blue" in terminal.expect("leave) > ")
    terminal.send("2\n")
    assert "$ touch later" in terminal.expect("q leave > ")
    assert world.run("deny", "--note", "no").code == 0  # from another terminal, meanwhile
    terminal.expect("needs no answer any more")
    assert terminal.end()[0] == 0
    for process in (first, second, third):
        assert process.communicate()[0] == "All is well.\n"
    assert (world.work / "made").exists()
    assert not (world.work / "later").exists()


def test_what_is_left_for_later_still_waits(world: World) -> None:
    process = world.start("exec", "-m", world.script({"uses": [shell("touch made")]}, DONE), "do it")
    eventually(lambda: world.files() and "approval.requested" in world.types())
    terminal = world.terminal("approvals", "-i")
    terminal.expect("q leave > ")
    terminal.send("s")
    code, rest = terminal.end()
    assert (code, "still waiting" in rest) == (0, True)
    assert world.run("deny").code == 0
    assert process.communicate()[0] == "All is well.\n"


LONG = "npm run build:production -- --with-a-long-flag=and-its-value --another-flag"


def test_each_way_to_go_through_what_waits(world: World) -> None:
    """On a terminal of 80 columns: words that are no answer, a rule that has no room beside the keys, a no with words,
    leaving with Ctrl-C."""
    asks = world.script({"uses": [["ask", {"question": "Which?"}]]}, DONE)
    steps = [{"uses": [shell(LONG), shell("touch made"), shell("touch last")]}, DONE]
    first = world.start("exec", "-m", world.script(*steps), "do it")
    eventually(lambda: world.files() and world.types().count("approval.requested") == 3)
    terminal = world.terminal("approvals", "-i")
    shown = terminal.expect("q leave > ")
    assert "  always would mean: shell(npm run build:production *)\r\n  y once  a always  n no" in shown
    terminal.send("/ay\n")
    terminal.expect("that answers nothing")
    terminal.expect("q leave > ")
    terminal.send("a")
    terminal.expect("allowed, and from now on shell(npm run build:production *)")
    terminal.expect("q leave > ")
    terminal.send("n")
    terminal.expect("Enter for nothing) ")
    terminal.send("use make\n")
    terminal.expect("denied")
    terminal.expect("q leave > ")
    terminal.send("\x03")
    code, rest = terminal.end()
    name = world.files()[0].stem[-8:]
    assert (code, f"still waiting: {name}@" in rest) == (130, True)
    decided = bodies(world, "approval.decided")
    assert [(one["decision"], one.get("note", ""), one.get("remember", "")) for one in decided] == [
        ("allow", "", "shell(npm run build:production *)"), ("deny", "use make", ""),
    ]  # fmt: skip
    assert world.run("cancel").code == 0
    assert first.wait() == 130
    second = world.start("exec", "-m", asks, "ask me")
    eventually(lambda: len(world.files()) == 2 and "question.asked" in world.types())
    terminal = world.terminal("approvals", "last", "-i")
    terminal.expect("leave) > ")
    terminal.send("/help\n")
    terminal.expect("your words and Enter answer it")
    terminal.expect("leave) > ")
    terminal.send("the second\n")
    terminal.expect("answered main: the second")
    assert terminal.end()[0] == 0
    assert second.communicate()[0] == "All is well.\n"
    assert [one["text"] for one in bodies(world, "question.answered")] == ["the second"]


def test_the_command_of_the_settings_is_run_once_for_each_event_also_over_a_kill(world: World) -> None:
    told = world.root / "told"
    command = world.root / "tell.sh"
    command.write_text(f"#!/bin/sh\ncat >> {told}\n")
    command.chmod(0o755)
    world.config.write_text(f'notify = ["{command}"]\n')
    asks = {"uses": [shell("touch made")]}
    process = world.start("exec", "-m", world.script(asks, DONE), "do it")
    eventually(lambda: told.exists() and told.read_text().endswith("\n"))
    process.kill()
    process.communicate()
    again = world.start("resume")
    eventually(lambda: world.types().count("session.opened") == 2)
    assert world.run("approve").code == 0
    assert again.communicate()[0] == "All is well.\n"
    found = [json.loads(line) for line in told.read_text().splitlines()]
    types = world.types()
    assert [(one["event"], types[one["seq"] - 1]) for one in found] == [
        ("approval", "approval.requested"), ("finished", "session.closed"),
    ]  # fmt: skip
    assert found[1]["workspace"] == str(Path(world.work).resolve())


def test_a_notifier_that_hangs_is_left_to_itself_and_what_waits_behind_it_is_given(world: World) -> None:
    """The session ends while the command still runs, for the first notice and the second; both go on to their end."""
    begun, ended = world.root / "begun-notices", world.root / "ended-notices"
    command = world.root / "tell.sh"
    command.write_text(f"#!/bin/sh\necho $$ >> {begun}\nuntil [ -e {world.root}/go-on ]; do sleep 0.02; done\n"
                       f"echo $$ >> {ended}\n")  # fmt: skip
    command.chmod(0o755)
    world.config.write_text(f'notify = ["{command}"]\n')
    process = world.start("exec", "-m", world.script({"uses": [shell("touch made")]}, DONE), "do it")
    eventually(lambda: begun.exists() and begun.read_text())
    assert world.run("approve").code == 0
    assert process.communicate()[0] == "All is well.\n"
    eventually(lambda: len(begun.read_text().split()) == 2)
    assert not ended.exists()
    pids = begun.read_text().split()
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    (world.root / "go-on").touch()
    eventually(lambda: ended.exists() and sorted(ended.read_text().split()) == sorted(pids))


def test_a_notifier_that_fails_is_said_and_harms_nothing(world: World) -> None:
    done = world.run("exec", "-c", 'notify=["/nowhere/at-all"]', "-m", world.script(DONE), "do it")
    assert (done.code, done.out) == (0, "All is well.\n")
    assert done.err.count("notify: /nowhere/at-all cannot be run") == 1


def test_no_agent_speaks_for_a_person(world: World) -> None:
    words = ["pause last", "continue last", "answer last@4 yes", "cancel last --tree"]
    tries = "; ".join(f"{MUSE} {word} >> said 2>&1; echo $? >> codes" for word in words)
    script = world.script({"uses": [shell(tries)]}, DONE)
    assert world.run("exec", "--yolo", "-c", 'shell_environment=["MUSE_HOME"]', "-m", script, "do it").code == 0
    assert (world.work / "codes").read_text().split() == ["2"] * 4
    assert (world.work / "said").read_text().count("started by an agent") == 4
    tried = [body["text"] for body in bodies(world, "note.added")]
    said = ["pause last", "continue last", "answer yes", "cancel last"]
    assert tried == [f"refused: a command run by the agent tried: {word}" for word in said]
    assert not {"agent.paused", "agent.continued", "question.answered", "cancel.requested"} & set(world.types())
