"""The chat on a real pseudo-terminal: pastes, lines typed ahead, history, leaving, and the way back into a session."""

import signal
import stat
import subprocess
import sys
import termios

import pytest

from tests.ui.driving import WAITS, OnTerminal, World, eventually, shell
from tests.ui.test_imports import LOADED

HELLO = {"text": "All is well."}
MORE = {"text": "Once more."}
ASKS = {"text": "I must touch it.", "uses": [shell("touch made")]}
KEYS = "q cancel the turn > "
READY = "\x1b[?2004h"
"""What a terminal is told when a prompt stands there: mark pastes (xterm, "bracketed paste")."""
PASTES_OFF = "\x1b[?2004l"
PASTE, END = "\x1b[200~", "\x1b[201~"
"""How a terminal marks a paste."""
CLOSED = "✓ closed"


def prompts(world: World) -> list[str]:
    """What the person said, in order."""
    return [event["body"]["text"] for event in world.events() if event["type"] == "user.prompted"]


def chatting(world: World, *steps: dict[str, object], args: tuple[str, ...] = ()) -> OnTerminal:
    """A chat that is ready for a prompt."""
    world.env["MUSE_MODEL"] = world.script(*steps)
    chat = world.terminal(*args)
    chat.expect(READY)
    return chat


def between_turns(chat: OnTerminal, said: str) -> None:
    """Wait until `said` was answered and the prompt stands there again."""
    chat.expect(said)
    chat.expect(CLOSED)
    chat.expect(READY)


def leave(chat: OnTerminal) -> str:
    """Ctrl-D at an empty prompt; what was shown."""
    chat.send("\x04")
    code, rest = chat.end()
    assert code == 0
    return rest


# -- pastes ----------------------------------------------------------------------------------------------------------


def test_a_paste_of_several_lines_is_one_prompt_and_waits_for_enter(world: World) -> None:
    chat = chatting(world, HELLO)
    chat.send(f"{PASTE}first\nsecond\n\n  third{END}")
    chat.expect("third")
    assert world.files() == []
    chat.send(" end\r")
    between_turns(chat, "All is well.")
    leave(chat)
    assert prompts(world) == ["first\nsecond\n\n  third end"]


def test_lines_that_arrive_together_are_one_prompt_without_marks_too(world: World) -> None:
    chat = chatting(world, HELLO)
    chat.send("first\rsecond\rthird\r")
    between_turns(chat, "All is well.")
    leave(chat)
    assert prompts(world) == ["first\nsecond\nthird"]


@pytest.mark.parametrize("marked", [False, True])
def test_a_long_paste_is_one_prompt(world: World, marked: bool) -> None:
    lines = [f"line {number} {'x' * 40}" for number in range(60)]
    chat = chatting(world, HELLO)
    chat.send(PASTE + "\n".join(lines) + END + "\r" if marked else "\r".join([*lines, ""]))
    between_turns(chat, "All is well.")
    leave(chat)
    assert prompts(world) == ["\n".join(lines)]


@pytest.mark.parametrize("plain", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_plain_terminal_gets_plain_lines_and_joins_those_that_arrive_together(
    world: World, plain: dict[str, str]
) -> None:
    world.env |= plain
    world.env["MUSE_MODEL"] = world.script(HELLO, MORE)
    chat = world.terminal()
    shown = chat.expect("> ")
    chat.send("first\nsecond\n")
    shown += chat.expect("All is well.")
    shown += chat.expect("> ")
    chat.send("third\n")
    shown += chat.expect("Once more.")
    shown += chat.expect(CLOSED)
    shown += leave(chat)
    assert READY not in shown
    assert prompts(world) == ["first\nsecond", "third"]


def test_a_note_of_several_lines_is_one_note(world: World) -> None:
    terminal = world.terminal("exec", "-m", world.script(ASKS, HELLO), "do it")
    terminal.expect(KEYS)
    terminal.send("n")
    terminal.expect("Enter for nothing")
    terminal.send("use make\nnot touch\n")
    assert terminal.end()[0] == 0
    notes = [event["body"]["note"] for event in world.events() if event["type"] == "approval.decided"]
    assert notes == ["use make\nnot touch"]


# -- the terminal afterwards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("begun", [False, True])
def test_a_signal_leaves_the_terminal_as_it_was(world: World, number: signal.Signals, begun: bool) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO)
    chat = world.terminal()
    before = termios.tcgetattr(chat.slave)
    shown = chat.expect(READY)
    if begun:
        chat.send("do it\r")
        shown += chat.expect(CLOSED)
        shown += chat.expect(READY)
    chat.process.send_signal(number)
    code, rest = chat.end()
    assert code in (143, 128 + number)
    assert PASTES_OFF in rest
    assert READY not in rest[rest.rindex(PASTES_OFF) :]
    assert termios.tcgetattr(chat.slave) == before


def test_an_error_leaves_the_terminal_as_it_was(world: World) -> None:
    """Another process has taken the session between looking in and the first prompt."""
    assert world.run("exec", "-m", world.script(HELLO, {"uses": [shell(WAITS)]}), "do it").code == 0
    chat = world.terminal("resume")
    before = termios.tcgetattr(chat.slave)
    chat.expect(READY)
    world.start("resume", "last", "more", "--yolo")
    world.begun()
    chat.send("again\r")
    code, rest = chat.end()
    assert (code, "runs this session" in rest) == (7, True)
    assert READY not in rest[rest.rindex(PASTES_OFF) :]
    assert termios.tcgetattr(chat.slave) == before


# -- typing ahead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
def test_a_line_sent_during_a_turn_is_queued_and_becomes_the_next_prompt(world: World, plain: bool) -> None:
    world.env["MUSE_MODEL"] = world.script({"uses": [shell(WAITS)]}, HELLO, MORE)
    world.env["TERM"] = "dumb" if plain else "xterm"
    chat = world.terminal("--yolo", "do it")
    world.begun()
    chat.send("and then this\n")
    chat.expect("queued: and then this")
    eventually(lambda: prompts(world) == ["do it", "and then this"])
    bodies = [event["body"] for event in world.events() if event["type"] == "user.prompted"]
    assert {body.get("delivery", "queue") for body in bodies} == {"queue"}
    (world.work / "go").touch()
    chat.expect("All is well.")
    chat.expect("Once more.")
    chat.expect(CLOSED)
    leave(chat)


@pytest.mark.parametrize("plain", [False, True])
def test_a_line_sent_before_a_question_is_kept_and_a_y_typed_ahead_approves_nothing(world: World, plain: bool) -> None:
    slow = {"text": "Slowly I come to it.", "piece_delay_ms": 300, "uses": [shell("touch made")]}
    world.env["MUSE_MODEL"] = world.script(slow, HELLO, MORE)
    world.env["TERM"] = "dumb" if plain else "xterm"
    chat = world.terminal("do it")
    chat.expect("Slowly")
    chat.send("and then this\n")
    chat.expect("queued: and then this")
    chat.send("y")
    chat.expect(KEYS)
    assert not (world.work / "made").exists()
    assert "approval.decided" not in world.types()
    chat.send("n")
    chat.expect("Enter for nothing")
    chat.send("\n")
    chat.expect("All is well.")
    chat.expect("Once more.")
    chat.expect(CLOSED)
    chat.send("\x15\x04")  # the y that was typed ahead is taken back
    assert chat.end()[0] == 0
    assert not (world.work / "made").exists()
    assert prompts(world) == ["do it", "and then this"]


def test_what_was_being_typed_when_a_question_came_stands_there_again(world: World) -> None:
    slow = {"text": "Slowly I come to it.", "piece_delay_ms": 300, "uses": [shell("touch made")]}
    chat = chatting(world, slow, HELLO, MORE, args=("do it",))
    chat.expect("Slowly")
    chat.send("and th")
    chat.expect(KEYS)
    chat.send("y")
    chat.expect("and th")
    between_turns(chat, "All is well.")
    chat.send("en this\r")
    between_turns(chat, "Once more.")
    leave(chat)
    assert prompts(world) == ["do it", "and then this"]


@pytest.mark.parametrize("plain", [False, True])
def test_two_questions_of_one_response_are_answered_one_after_the_other(world: World, plain: bool) -> None:
    world.env["MUSE_MODEL"] = world.script({"uses": [shell("touch first"), shell("touch second")]}, HELLO)
    world.env["TERM"] = "dumb" if plain else "xterm"
    chat = world.terminal("do both")
    for _ in range(2):
        chat.expect(KEYS)
        chat.send("y")
    chat.expect("All is well.")
    chat.expect(CLOSED)
    assert prompts(world) == ["do both"]
    assert (world.work / "first").exists()
    assert (world.work / "second").exists()
    leave(chat)


def test_a_question_waits_while_somebody_is_typing(world: World) -> None:
    """What is typed when a question is due belongs to the line that was begun, and to nothing else."""
    slow = {"text": "Slowly I come to it.", "piece_delay_ms": 300, "uses": [shell("touch made")]}
    chat = chatting(world, slow, HELLO, MORE, args=("do it",))
    chat.expect("Slowly")
    chat.send("and")
    eventually(lambda: "approval.requested" in world.types())
    chat.send(" yay\r")
    chat.expect("queued: and yay")
    chat.expect(KEYS)
    assert "approval.decided" not in world.types()
    chat.send("y")
    chat.expect("All is well.")
    between_turns(chat, "Once more.")
    leave(chat)
    assert prompts(world) == ["do it", "and yay"]


def test_what_is_queued_is_listed_and_the_last_of_it_taken_back(world: World) -> None:
    chat = chatting(world, {"uses": [shell(WAITS)]}, HELLO, MORE, args=("--yolo",))
    chat.send("/queue\r")
    chat.expect("nothing is queued")
    chat.send("do it\r")
    world.begun()
    for text in ("and then this", "and that"):
        chat.send(f"{text}\r")
        chat.expect(f"queued: {text}")
        eventually(lambda text=text: text in prompts(world))
    chat.send("/back\r")
    chat.expect("taken back: and that")
    eventually(lambda: "cancel.requested" in world.types())
    chat.send("/queue\r")
    assert "and that" not in chat.expect("and then this")
    (world.work / "go").touch()
    between_turns(chat, "Once more.")
    leave(chat)
    assert world.types().count("model.requested") == 3


def test_a_chat_is_paused_and_goes_on(world: World) -> None:
    chat = chatting(world, {"uses": [shell(WAITS)]}, HELLO, args=("--yolo",))
    chat.send("do it\r")
    world.begun()
    chat.send("/pause\r")
    assert "muse continue" not in chat.expect("nothing new starts; go on: /continue, or from another terminal:")
    chat.expect(f"\n\x1b[33m  muse continue {world.files()[0].stem[-8:]}\x1b")
    (world.work / "go").touch()
    eventually(lambda: "tool.finished" in world.types())
    assert world.types().count("model.requested") == 1
    chat.send("/continue\r")
    between_turns(chat, "All is well.")
    leave(chat)


def question(text: str) -> dict[str, object]:
    """A model that asks this."""
    return {"uses": [["ask", {"question": text}]]}


WORDS = "your words (Ctrl-C cancels the turn) > "


def answers(world: World) -> list[str]:
    """What was answered, in order."""
    return [event["body"]["text"] for event in world.events() if event["type"] == "question.answered"]


def test_a_word_of_the_chat_at_a_question_is_no_answer_and_does_what_it_says(world: World) -> None:
    chat = chatting(world, *(question(f"Which {what}?") for what in ("folder", "word", "path")), HELLO)
    chat.send("do it\r")
    chat.expect(WORDS)
    chat.send("/help\n")
    chat.expect("your words and Enter answer it")
    chat.expect(WORDS)
    chat.send("/queue\n")
    chat.expect("nothing is queued")
    chat.send("/pause --tree\n")
    eventually(lambda: "agent.paused" in world.types())
    chat.send("/continue --tree\n")
    eventually(lambda: "agent.continued" in world.types())
    assert answers(world) == []
    chat.send("/tmp\n")
    for asked, said in (("Which word?", "//help"), ("Which path?", "//tmp/x")):
        chat.expect(asked)
        chat.expect(WORDS)
        chat.send(f"{said}\n")
    between_turns(chat, "All is well.")
    leave(chat)
    assert answers(world) == ["/tmp", "/help", "//tmp/x"]


def test_a_word_of_the_chat_at_a_request_presses_no_key_of_it(world: World) -> None:
    """Of `/pause` the `a` would allow the command from now on, of `/queue` the `q` would cancel the turn."""
    chat = chatting(world, ASKS, HELLO)
    chat.send("do it\r")
    chat.expect(KEYS)
    chat.send("/queue\n")  # all at once, as a paste
    chat.expect("nothing is queued")
    chat.expect(KEYS)
    chat.send("/")  # and as it is typed
    chat.expect("/")
    chat.send("help\n")
    chat.expect("y: yes, this once; a: yes, and from now on")
    chat.expect(KEYS)
    chat.send("/yes\n")
    chat.expect("that answers nothing")
    chat.expect(KEYS)
    assert "approval.decided" not in world.types()
    chat.send("n")
    chat.expect("Enter for nothing) ")
    chat.send("/help\n")
    chat.expect("Enter for nothing) ")
    chat.send("use make\n")
    between_turns(chat, "All is well.")
    leave(chat)
    decided = [event["body"] for event in world.events() if event["type"] == "approval.decided"]
    assert [(one["decision"], one["note"]) for one in decided] == [("deny", "use make")]
    assert "cancel.requested" not in world.types()


def test_quit_at_a_question_leaves_when_the_turn_is_over(world: World) -> None:
    chat = chatting(world, question("Which folder?"), HELLO)
    chat.send("do it\r")
    chat.expect(WORDS)
    chat.send("/quit\n")
    chat.expect("leaving when the turn is over")
    chat.expect(WORDS)
    chat.send("src\n")
    assert chat.end()[0] == 0
    assert answers(world) == ["src"]


def test_a_slash_before_a_word_of_the_chat_says_it_to_the_model(world: World) -> None:
    chat = chatting(world, HELLO)
    chat.send("//help\r")
    between_turns(chat, "All is well.")
    leave(chat)
    assert prompts(world) == ["/help"]


def test_answers_of_queued_turns_all_reach_standard_output(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script({"uses": [shell(WAITS)]}, HELLO, MORE)
    chat = world.terminal("--yolo", "do it", out=world.root / "answers")
    world.begun()
    chat.send("and then this\r")
    chat.expect("queued: and then this")
    (world.work / "go").touch()
    chat.expect(CLOSED)
    leave(chat)
    assert (world.root / "answers").read_text() == "All is well.\nOnce more.\n"


# -- history ---------------------------------------------------------------------------------------------------------


def test_the_arrow_key_brings_back_prompts_of_earlier_chats(world: World) -> None:
    chat = chatting(world, HELLO, args=())
    chat.send("do it\r")
    between_turns(chat, "All is well.")
    leave(chat)
    kept = world.home / "chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    later = chatting(world, MORE)
    later.send("\x1b[A")
    later.expect("do it")
    later.send(" again\x1b[D\x1b[D!\r")
    between_turns(later, "Once more.")
    leave(later)
    assert prompts(world) == ["do it aga!in"]


def test_a_prompt_with_a_secret_of_the_environment_is_not_in_the_history(world: World) -> None:
    world.env["SOME_TOKEN"] = "s3cr3t-value"
    chat = chatting(world, HELLO, MORE)
    chat.send("use s3cr3t-value here\r")
    between_turns(chat, "All is well.")
    chat.send("plain words\r")
    between_turns(chat, "Once more.")
    leave(chat)
    kept = (world.home / "chat_history").read_text()
    assert ("s3cr3t" in kept, "plain words" in kept) == (False, True)


# -- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_at_an_empty_prompt_says_how_to_leave_and_twice_leaves(world: World, plain: bool, begun: bool) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO)
    world.env["TERM"] = "dumb" if plain else "xterm"
    chat = world.terminal(*(["do it"] if begun else []))
    if begun:
        chat.expect(CLOSED)
    chat.expect("> " if plain else READY)
    chat.send("\x03")
    chat.expect("Ctrl-C again or Ctrl-D leaves")
    chat.send("\x03")
    assert chat.end()[0] == 0
    assert len(world.files()) == begun


def test_ctrl_c_takes_back_what_was_typed_and_does_not_leave(world: World) -> None:
    chat = chatting(world, HELLO)
    chat.send("not this")
    chat.expect("not this")
    chat.send("\x03this\r")
    between_turns(chat, "All is well.")
    leave(chat)
    assert prompts(world) == ["this"]


def test_ctrl_c_stops_the_turn_and_the_chat_goes_on(world: World) -> None:
    chat = chatting(world, {"uses": [shell(WAITS)]}, HELLO, args=("--yolo", "do it"))
    world.begun()
    chat.send("\x03")
    chat.expect("cancelling the turn")
    chat.expect("closed")
    chat.expect(READY)
    chat.send("again\r")
    between_turns(chat, "All is well.")
    leave(chat)
    assert (world.work / "count").read_text().split() == ["start"]


def test_ctrl_d_during_a_turn_leaves_when_it_is_over(world: World) -> None:
    chat = chatting(world, {"uses": [shell(WAITS)]}, HELLO, args=("--yolo", "do it"))
    world.begun()
    chat.send("\x04")
    chat.expect("leaving when the turn is over")
    (world.work / "go").touch()
    code, rest = chat.end()
    assert (code, "All is well." in rest) == (0, True)
    assert (world.work / "count").read_text().split() == ["start", "end"]


# -- the way back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("resume",), ("--continue",), ("--resume", "last")])
def test_a_session_with_nothing_left_to_do_is_gone_back_to_as_a_chat(world: World, args: tuple[str, ...]) -> None:
    assert world.run("exec", "-m", world.script(HELLO, MORE), "do it").code == 0
    before = world.events()
    chat = world.terminal(*args)
    assert 'after "do it"' in " ".join(chat.expect(READY).split())
    assert world.events() == before
    chat.send("again\r")
    between_turns(chat, "Once more.")
    leave(chat)
    assert len(world.files()) == 1
    assert prompts(world) == ["do it", "again"]


def test_looking_into_a_session_and_leaving_changes_nothing(world: World) -> None:
    assert world.run("exec", "-m", world.script(HELLO), "do it").code == 0
    before = world.events()
    chat = world.terminal("resume")
    chat.expect(READY)
    leave(chat)
    assert world.events() == before


def test_continue_goes_on_with_what_is_left_and_stays(world: World) -> None:
    process = world.start("exec", "--yolo", "-m", world.script({"uses": [shell(WAITS)]}, HELLO, MORE), "do it")
    world.begun()
    process.kill()
    process.communicate()
    chat = world.terminal("--continue")
    chat.expect("goes on where it stopped")
    (world.work / "go").touch()
    between_turns(chat, "All is well.")
    chat.send("again\r")
    between_turns(chat, "Once more.")
    leave(chat)
    assert (world.work / "count").read_text().split() == ["start", "end"]


def test_without_a_terminal_resume_says_that_nothing_is_left(world: World) -> None:
    assert world.run("exec", "-m", world.script(HELLO), "do it").code == 0
    done = world.run("resume")
    assert (done.code, "nothing is left to do" in done.err) == (0, True)


def test_prompts_through_a_pipe_are_one_turn_each(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO, MORE)
    done = world.run(stdin="do it\nagain\n")
    assert (done.code, done.out) == (0, "All is well.\nOnce more.\n")


def test_only_a_chat_on_a_terminal_loads_the_editor(world: World) -> None:
    world.env["MUSE_MODEL"] = world.script(HELLO)
    for arguments in (["exec", "do it"], ["do it"], ["resume"]):
        ran = subprocess.run(
            [sys.executable, "-c", LOADED, *arguments], env=world.env, cwd=world.work, text=True, check=True,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        modules = set(ran.stderr.split())
        assert "muse.ui.cli.resume" in modules or "muse.ui.cli.exec_" in modules
        assert "prompt_toolkit" not in modules
