"""Speaking to a running session from elsewhere: approve, deny, steer, cancel."""

import json
import signal
import subprocess

from tests.ui.driving import MUSE, WAITS, World, line_with, seq_of, shell, stop

HELLO = {"text": "All is well."}


def counted(world: World) -> list[str]:
    return (world.work / "count").read_text().split()


def asking(world: World, *more: dict[str, object]) -> "tuple[subprocess.Popen[str], str]":
    """A session without a terminal that waits for an approval, and the address that it prints."""
    script = world.script({"uses": [shell("touch made")]}, *more, HELLO)
    process = world.start("exec", "-m", script, "do it")
    return process, line_with(process, "muse approve").split()[-1]


def test_an_approval_comes_from_elsewhere(world: World) -> None:
    process, address = asking(world)
    listed = world.run("approvals")
    assert address in listed.out
    assert "$ touch made" in listed.out
    done = world.run("approve", address)
    assert (done.code, done.out.startswith("#")) == (0, True)
    assert "$ touch made" in done.err
    assert process.communicate()[0] == "All is well.\n"
    assert (world.work / "made").exists()
    decided = next(event for event in world.events() if event["type"] == "approval.decided")
    assert decided["seq"] == seq_of(done.out)
    request = world.events()[decided["body"]["request"] - 1]
    assert decided["body"]["shown_sha256"] == request["body"]["shown_sha256"]
    assert decided["body"]["origin"]["client"] == "cli"
    late = world.run("deny", address)
    assert late.code == 2
    assert "too late" in late.err


def test_an_answer_for_a_session_that_nobody_runs_is_kept(world: World) -> None:
    process, address = asking(world)
    process.kill()
    process.communicate()
    assert address in world.run("approvals").out
    done = world.run("approve", address)
    assert world.run("approvals").out == ""
    assert (done.code, "muse resume" in done.err) == (0, True)
    assert not (world.work / "made").exists()
    assert world.run("resume").out == "All is well.\n"
    assert (world.work / "made").exists()
    assert world.types().count("approval.requested") == 1


def test_an_answer_given_twice_with_one_id_is_one_event(world: World) -> None:
    process, address = asking(world)
    first, second = (world.run("approve", address, "--id", "mine") for _ in range(2))
    assert (first.code, second.code, first.out) == (0, 0, second.out)
    assert world.run("deny", address, "--id", "mine").code == 2
    assert process.communicate()[0] == "All is well.\n"


def test_without_an_address_the_only_one_that_waits_is_meant(world: World) -> None:
    none = world.run("approve")
    assert (none.code, "nothing waits" in none.err) == (2, True)
    first, _ = asking(world)
    assert world.run("deny", "--note", "use make").code == 0
    assert first.communicate()[0] == "All is well.\n"
    assert not (world.work / "made").exists()
    assert next(e for e in world.events() if e["type"] == "approval.decided")["body"]["note"] == "use make"


def test_of_several_that_wait_one_must_be_named(world: World) -> None:
    (_, one), (_, two) = asking(world), asking(world)
    done = world.run("approve")
    assert done.code == 2
    assert one in done.err
    assert two in done.err
    waiting = [json.loads(line) for line in world.run("approvals", "--json").out.splitlines()]
    assert sorted(each["address"] for each in waiting) == sorted([one, two])


def test_always_frees_the_next_call_of_that_kind(world: World) -> None:
    process, address = asking(world, {"uses": [shell("touch made again")]})
    offered = json.loads(world.run("approvals", "--json").out)["remember"]
    assert offered == "shell(touch *)"
    assert world.run("approve", "--always", address).code == 0
    assert process.communicate()[0] == "All is well.\n"
    assert world.types().count("approval.requested") == 1
    assert (world.work / "again").exists()


def test_what_is_no_request_cannot_be_approved(world: World) -> None:
    process, address = asking(world)
    name = address.partition("@")[0]
    done = world.run("approve", f"{name}@2")
    assert done.code == 2
    assert address in done.err
    assert world.run("approve", f"{name}@9999").code == 2
    assert process.poll() is None


def test_a_command_said_twice_with_one_id_is_one_event(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    first, second = (world.run("steer", "last", "mind the tests", "--id", "mine") for _ in range(2))
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out
    other = world.run("steer", "last", "something else", "--id", "mine")
    assert (other.code, "another command" in other.err) == (2, True)
    (world.work / "go").touch()
    assert process.communicate()[0] == "All is well.\n"
    assert world.types().count("agent.steered") == 1


def test_words_for_a_session_that_nobody_runs_are_kept(world: World) -> None:
    world.run("exec", "-m", world.script(HELLO, {"text": "Heard."}), "do it")
    done = world.run("steer", "last", "and now?", "--json")
    assert json.loads(done.out) == {
        "session": world.files()[0].stem,
        "seq": seq_of(f"#{len(world.events())}"),
        "running": False,
    }
    assert world.run("resume").out == "Heard.\n"


def test_a_queued_prompt_is_a_turn_of_its_own_afterwards(world: World) -> None:
    script = world.script({"uses": [shell(WAITS)]}, {"text": "The first."}, {"text": "The second."})
    process = world.start("exec", "--yolo", "-m", script, "do it")
    world.begun()
    assert world.run("steer", "last", "and then this", "--queue").code == 0
    (world.work / "go").touch()
    assert process.communicate()[0] == "The second.\n"
    assert counted(world) == ["start", "end"]


def test_replace_interrupts_the_running_turn(world: World) -> None:
    script = world.script({"uses": [shell(WAITS)]}, {"text": "The new one."})
    process = world.start("exec", "--yolo", "-m", script, "do it")
    world.begun()
    assert world.run("steer", "last", "do this instead", "--replace").code == 0
    assert process.communicate()[0] == "The new one.\n"
    assert counted(world) == ["start"]


def test_a_call_is_cancelled_by_its_address_and_the_run_goes_on(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    seq = next(event["seq"] for event in world.events() if event["type"] == "tool.started")
    assert world.run("cancel", f"last@{seq}", "--why", "too slow").code == 0
    assert process.communicate()[0] == "All is well.\n"
    finished = next(event["body"] for event in world.events() if event["type"] == "tool.finished")
    assert finished["status"] == "cancelled"
    assert counted(world) == ["start"]
    again = world.run("cancel", f"last@{seq}")
    assert (again.code, "ended already" in again.err) == (2, True)


def test_a_cancelled_turn_ends_the_run_as_interrupted(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    assert world.run("cancel", "last").code == 0
    process.communicate()
    assert process.returncode == 130
    assert world.run("cancel", "last").code == 2


def test_the_first_interrupt_cancels_the_turn(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    assert stop(process, signal.SIGINT) == 130
    types = world.types()
    assert "cancel.requested" in types
    assert types[-1] == "session.closed"
    assert counted(world) == ["start"]


def test_an_agent_may_not_speak_for_a_person(world: World) -> None:
    tries = f"{MUSE} steer last 'well done' > said 2>&1; echo $? >> said"
    script = world.script({"uses": [shell(tries)]}, HELLO)
    assert world.run("exec", "--yolo", "-c", 'shell_environment=["MUSE_HOME"]', "-m", script, "do it").code == 0
    assert "started by an agent" in (world.work / "said").read_text()
    assert (world.work / "said").read_text().split()[-1] == "2"
    assert "agent.steered" not in world.types()
    note = next(event["body"] for event in world.events() if event["type"] == "note.added")
    assert note["text"] == "refused: a command run by the agent tried: steer well done"
    assert len(note["origin"]["ancestry"]) > 1
    assert world.run("verify").code == 0


def test_of_what_an_agent_tried_a_bounded_part_is_noted(world: World) -> None:
    tries = f"{MUSE} steer last \"$(printf 'x%.0s' $(seq 9999))\" > said 2>&1; {MUSE} cancel last >> said 2>&1"
    script = world.script({"uses": [shell(tries)]}, HELLO)
    assert world.run("exec", "--yolo", "-c", 'shell_environment=["MUSE_HOME"]', "-m", script, "do it").code == 0
    texts = [event["body"]["text"] for event in world.events() if event["type"] == "note.added"]
    said = "refused: a command run by the agent tried: "
    assert texts == [f"{said}steer {'x' * 194} …", f"{said}cancel last"]


def test_who_is_asked_about_an_edit_sees_its_place_in_the_file(world: World) -> None:
    (world.work / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 21)))
    edit = {"path": "a.py", "edits": [{"old": "line 12\n", "new": "line twelve\n"}]}
    process = world.start("exec", "-m", world.script({"uses": [["edit", edit]]}, HELLO), "do it")
    address = line_with(process, "muse approve").split()[-1]
    shown = world.run("approvals").out
    request = next(event for event in world.events() if event["type"] == "approval.requested")
    assert request["body"]["shown"] in "\n".join(line.removeprefix("  ") for line in shown.splitlines())
    for line in ("  @@ -9,7 +9,7 @@", "   line 11", "  -line 12", "  +line twelve", "   line 13"):
        assert line in shown.splitlines()
    (world.work / "a.py").write_text("something else\n")
    assert "as the file is now, this cannot be done" in world.run("approvals").out
    assert world.run("deny", address).code == 0
    assert process.communicate()[0] == "All is well.\n"


def test_a_read_that_is_asked_about_reads_like_words(world: World) -> None:
    (world.work / ".env").write_text("x\n")
    use = ["read", {"path": ".env", "offset": 3}]
    process = world.start("exec", "-m", world.script({"uses": [use]}, HELLO), "do it")
    line_with(process, "muse approve")
    shown = world.run("approvals").out
    assert "  read .env\n  offset: 3\n" in shown
