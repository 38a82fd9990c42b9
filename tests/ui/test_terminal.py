"""What a person sees and types, on a real pseudo-terminal: approvals, Ctrl-C, the chat."""

import re
import termios
from contextlib import closing

from muse import app
from tests.ui.driving import WAITS, OnTerminal, World, eventually, shell

ASKS = {"text": "I must touch it.", "uses": [shell("touch made")]}
HELLO = {"text": "All is well."}
KEYS = "q cancel the turn > "
READY = "\x1b[?2004h"
"""What a terminal is told when a prompt stands there: mark pastes as such (xterm, "bracketed paste")."""
CLOSED = "✓ closed"


def written(shown: str) -> str:
    """What stands on the terminal: notices of the desktop (OSC 9) do not."""
    return re.sub(r"\x1b\]9;[^\x07]*\x07", "", shown)


def prompts(world: World) -> list[str]:
    """What the person said, in order."""
    return [event["body"]["text"] for event in world.events() if event["type"] == "user.prompted"]


def decided(world: World) -> dict[str, object]:
    """The body of the one decision."""
    bodies = [event["body"] for event in world.events() if event["type"] == "approval.decided"]
    assert len(bodies) == 1, bodies
    body: dict[str, object] = bodies[0]
    return body


def asked(world: World, *steps: dict[str, object]) -> tuple[OnTerminal, str]:
    """A session that asks at its terminal, and what it showed."""
    terminal = world.terminal("exec", "-m", world.script(*(steps or (ASKS, HELLO))), "do it")
    return terminal, terminal.expect(KEYS)


def test_yes_allows_this_call_once(world: World) -> None:
    terminal, shown = asked(world, ASKS, {"uses": [shell("touch made")]}, HELLO)
    assert "$ touch made" in shown
    assert "main asks" in shown
    assert "not plainly harmless" in " ".join(re.sub(r"\x1b\[[0-9;]*m", "", shown).split())
    assert "a always: shell(touch *)" in shown
    assert not (world.work / "made").exists()
    terminal.send("y")
    assert terminal.expect("yes\r\n") == "yes\r\n"
    terminal.expect(KEYS)
    terminal.send("y")
    code, rest = terminal.end()
    assert (code, written(rest).count("All is well.")) == (0, 1)
    bodies = [event["body"] for event in world.events() if event["type"] == "approval.decided"]
    assert [(body["decision"], body["by"], body["origin"]["client"]) for body in bodies] == [
        ("allow", "person", "terminal")
    ] * 2
    assert bodies[0]["origin"]["terminal"].startswith("/dev/")


def test_always_allows_the_pattern_from_now_on(world: World) -> None:
    terminal, _ = asked(world, ASKS, {"uses": [shell("touch made again")]}, HELLO)
    terminal.send("a")
    assert terminal.end()[0] == 0
    assert decided(world)["remember"] == "shell(touch *)"
    assert (world.work / "again").exists()


def test_no_sends_the_note_back_and_the_run_goes_on(world: World) -> None:
    terminal, _ = asked(world)
    terminal.send("n")
    terminal.expect("Enter for nothing")
    terminal.send("use make\n")
    code, rest = terminal.end()
    assert (code, "All is well." in rest) == (0, True)
    assert decided(world)["note"] == "use make"
    assert not (world.work / "made").exists()


def test_q_cancels_the_turn(world: World) -> None:
    terminal, _ = asked(world)
    terminal.send("q")
    assert terminal.end()[0] == 130
    assert world.types()[-1] == "session.closed"
    assert not (world.work / "made").exists()


def test_other_keys_answer_nothing(world: World) -> None:
    terminal, _ = asked(world)
    for keys in ("\x1b[A", "x", "yes please", "\r"):
        terminal.send(keys)

    def quits() -> bool:
        terminal.send("q")  # until it comes alone: keys that are read together count as none
        return "cancel.requested" in world.types()

    eventually(quits)
    code, shown = terminal.end()
    assert code == 130
    assert "none of the keys: y, a, n, q" in shown
    assert "approval.decided" not in world.types()
    assert not (world.work / "made").exists()


def test_a_key_pressed_ahead_answers_nothing(world: World) -> None:
    slow = {"text": "Slowly I come to it.", "piece_delay_ms": 300, "uses": [shell("touch made")]}
    terminal = world.terminal("exec", "-m", world.script(slow, HELLO), "do it")
    terminal.expect("Slowly")
    terminal.send("y")
    terminal.expect(KEYS)
    terminal.send("q")
    assert terminal.end()[0] == 130
    assert not (world.work / "made").exists()


def test_a_question_goes_away_when_it_is_answered_from_elsewhere(world: World) -> None:
    terminal, _ = asked(world)
    assert world.run("approve").code == 0
    terminal.expect("answered from elsewhere")
    code, rest = terminal.end()
    assert (code, "All is well." in rest) == (0, True)
    assert (world.work / "made").exists()


def test_a_job_in_the_background_is_not_stopped_by_a_question(world: World) -> None:
    terminal = world.terminal("exec", "-m", world.script(ASKS, HELLO), "do it", background=True)
    terminal.expect("muse deny")
    assert world.run("approve").code == 0
    terminal.expect("All is well.")
    assert terminal.end()[0] == 0


def test_a_diff_is_shown_and_control_characters_are_visible(world: World) -> None:
    edit = {"path": "a.txt", "content": "one\n\x1b[2Jtwo\n"}
    terminal, shown = asked(world, {"text": "\x1b]0;title\x07Look.", "uses": [["write", edit]]}, HELLO)
    assert "+ one" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0;" not in shown
    assert "u001b[2Jtwo" in shown
    assert len(re.findall(r"\+ ?one", written(shown))) == 1, "a new file is shown once"
    terminal.send("y")
    assert terminal.end()[0] == 0
    assert (world.work / "a.txt").read_text() == "one\n\x1b[2Jtwo\n"


def test_at_a_terminal_an_approval_waits_without_limit_unless_asked(world: World) -> None:
    terminal, _ = asked(world)
    assert "timer.set" not in world.types()
    terminal.send("q")
    terminal.end()
    limited = world.terminal("exec", "--approval-timeout", "1", "-m", world.script(ASKS, HELLO), "do it")
    limited.expect(KEYS)
    assert limited.end()[0] == 3


def test_a_question_left_open_is_asked_again_on_resume(world: World) -> None:
    terminal, _ = asked(world)
    terminal.process.kill()
    terminal.process.wait()
    again = world.terminal("resume")
    assert "$ touch made" in again.expect(KEYS)
    again.send("y")
    assert again.end()[0] == 0
    assert (world.work / "made").exists()
    assert world.types().count("approval.requested") == 1


def test_a_limit_of_an_earlier_opening_does_not_hold_at_a_terminal(world: World) -> None:
    script = world.script(ASKS, HELLO)
    process = world.start("exec", "--approval-timeout", "60", "-m", script, "do it")
    eventually(lambda: world.files() and "timer.set" in world.types())
    process.kill()
    process.communicate()
    again = world.terminal("resume")
    again.expect(KEYS)
    assert world.types().count("timer.set") == 1
    with closing(app.open_log(world.files()[0])) as log:
        assert app.state_of(log).timers == {}
    again.send("y")
    assert again.end()[0] == 0
    assert "timer.fired" not in world.types()


def test_ctrl_c_cancels_the_turn_and_the_terminal_is_as_before(world: World) -> None:
    script = world.script({"uses": [shell(WAITS)]}, HELLO)
    terminal = world.terminal("exec", "--yolo", "-m", script, "do it")
    before = termios.tcgetattr(terminal.slave)
    world.begun()
    terminal.send("\x03")
    terminal.expect("cancelling the turn")
    assert terminal.end()[0] == 130
    assert termios.tcgetattr(terminal.slave) == before
    assert "cancel.requested" in world.types()
    assert (world.work / "count").read_text().split() == ["start"]


def test_ctrl_c_at_a_question_cancels_the_turn(world: World) -> None:
    terminal = world.terminal("exec", "-m", world.script(ASKS, HELLO), "do it")
    before = termios.tcgetattr(terminal.slave)
    terminal.expect(KEYS)
    terminal.send("\x03")
    assert terminal.end()[0] == 130
    assert termios.tcgetattr(terminal.slave) == before
    assert not (world.work / "made").exists()


def test_a_second_ctrl_c_leaves_at_once(world: World) -> None:
    stubborn = "trap '' INT TERM; touch begun; for i in $(seq 600); do [ -e go ] && break; sleep 0.05; done"
    terminal = world.terminal("exec", "--yolo", "-m", world.script({"uses": [shell(stubborn)]}, HELLO), "do it")
    world.begun()
    terminal.send("\x03")
    terminal.expect("cancelling the turn")
    terminal.send("\x03")
    code, rest = terminal.end()
    assert (code, "muse resume" in rest) == (130, True)
    resumed = world.run("resume")
    assert resumed.code == 130, resumed
    assert world.types()[-1] == "session.closed"


def test_a_terminal_that_hangs_up_ends_the_host_and_not_the_command(world: World) -> None:
    terminal = world.terminal("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO), "do it")
    world.begun()
    terminal.process.send_signal(1)
    assert terminal.end()[0] == 143
    (world.work / "go").touch()
    assert world.run("resume").out == "All is well.\n"
    assert (world.work / "count").read_text().split() == ["start", "end"]


def test_a_chat_goes_turn_by_turn(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO, {"text": "Once more."}, ASKS, {"text": "Touched."})
    chat = world.terminal()
    before = termios.tcgetattr(chat.slave)
    chat.expect(READY)
    chat.send("/help\n")
    chat.expect("Alt-Enter")
    chat.expect(READY)
    chat.send("do it\n")
    chat.expect("All is well.")
    chat.expect(CLOSED)
    chat.expect(READY)
    chat.send("\x03")
    chat.expect("nothing runs; Ctrl-C again or Ctrl-D leaves")
    chat.send("again\n")
    chat.expect("Once more.")
    chat.expect(CLOSED)
    chat.expect(READY)
    chat.send("touch it\n")
    chat.expect(KEYS)
    chat.send("y")
    chat.expect("Touched.")
    chat.expect(CLOSED)
    chat.expect(READY)
    chat.send("\x04")
    code, rest = chat.end()
    assert (code, "go on later: muse resume" in rest) == (0, True)
    assert termios.tcgetattr(chat.slave) == before
    assert prompts(world) == ["do it", "again", "touch it"]
    assert world.types()[-1] == "session.closed"
    assert (world.work / "made").exists()


def test_the_chat_hears_what_is_said_from_elsewhere(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO, ASKS, {"text": "Touched."})
    chat = world.terminal("do it")
    chat.expect("All is well.")
    chat.expect(CLOSED)
    assert world.run("steer", "last", "now touch it").code == 0
    chat.expect(KEYS)
    chat.send("y")
    chat.expect("Touched.")
    chat.expect(CLOSED)
    chat.expect(READY)
    chat.send("/quit\n")
    assert chat.end()[0] == 0


def test_after_a_resume_the_output_of_a_running_command_is_shown_as_it_comes(world: World) -> None:
    """The first host is killed; what the command writes before and after is seen under the second, before it ends."""
    waits = "for i in $(seq 1200); do [ -e {} ] && break; sleep 0.05; done"
    command = f"echo early; touch begun; {waits.format('more')}; echo later; {waits.format('go')}"
    first = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(command)]}, HELLO), "do it")
    world.begun()
    first.kill()
    first.communicate()
    second = world.terminal("resume")
    second.expect("│ early")
    (world.work / "more").touch()
    second.expect("│ later")
    assert "tool.finished" not in world.types()
    (world.work / "go").touch()
    assert second.end()[0] == 0


def test_a_passing_word_stays_on_its_line_however_long_it_is(world: World) -> None:
    world.env["MUSE_HOME"] = str(world.work.parent / ("deep" * 20))
    assert world.run("exec", "-m", world.script(HELLO), "say a word and another").code == 0
    terminal = world.terminal("redact", "last", "--text", "-", "--yes")
    terminal.expect("(not shown)")
    terminal.send("another\n")
    code, shown = terminal.end()
    assert code == 0, shown
    passing = re.findall(r"\r\x1b\[K(looking through [^\r\x1b]*)", shown)
    assert passing
    assert max(len(one) for one in passing) < 80
