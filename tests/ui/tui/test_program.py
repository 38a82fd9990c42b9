"""The installed `muse replay` on a pseudo-terminal: how it ends, what bytes it writes, and a session that runs."""

import base64
import os
import re
import signal
import subprocess
import termios
from pathlib import Path

import pytest

from tests.ui.driving import MUSE, PATIENCE_SECONDS, World, eventually, shell
from tests.ui.tui.made import write_session

OURS = re.compile(
    r"\x1b\[[0-9;:?<>=$]*[a-zA-Z~]|\x1b\[[?>][0-9;$]*[a-zA-Z]+|\x1b[=>78]|\x1bP[^\x1b]*\x1b\\|\x1b\]22;[a-z]*(?:\x1b\\|\x07)"
)
"""Sequences that a full-screen program writes: CSI, keypad, cursor, DCS, and the shape of the pointer (OSC 22)."""


def placed(world: World, seq: int = 32) -> str:
    """The address of an event in a session of the world's."""
    path = world.work / "story.muse"
    write_session(path)
    return f"{path}@{seq}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_the_terminal_is_as_it_was_when_replay_is_ended(world: World, number: signal.Signals, code: int) -> None:
    on = world.terminal("replay", placed(world))
    before = termios.tcgetattr(on.slave)
    on.expect("#32/71")
    assert termios.tcgetattr(on.slave) != before
    on.process.send_signal(number)
    ended, rest = on.end()
    assert ended == code
    assert termios.tcgetattr(on.slave) == before
    assert "\x1b[?1049l" in rest, "the screen that was there before comes back"
    assert "\x1b[?25h" in rest, "and the cursor"


def test_only_sequences_of_the_screen_itself_are_written(world: World) -> None:
    on = world.terminal("replay", placed(world))
    shown = on.expect("#32/71")
    on.send("m")
    shown += on.expect("\\x1b[31mred")
    on.send("q")
    code, rest = on.end()
    assert code == 0
    shown += rest
    for evil in ("\x1b]0;", "\x07 ", "\x9b", "\u202e", "\x1b[31mred"):
        assert evil not in shown, repr(evil)
    unknown = OURS.sub("", shown)
    assert not any(sign in unknown for sign in "\x1b\x07"), unknown[:200]


def test_a_running_session_is_followed_to_its_end(world: World) -> None:
    waits = "until [ -e go ]; do sleep 0.05; done; echo gone on"
    model = world.script({"text": "First.", "uses": [shell(waits)]}, {"text": "It went on."})
    running = world.start("exec", "--yolo", "-m", model, "go")
    eventually(lambda: world.files() and "tool.started" in world.types())
    on = world.terminal("replay")
    on.expect("live")
    on.send("F")
    on.expect("follows")
    (world.work / "go").touch()
    on.expect("gone on")
    on.expect("It went on.")
    on.expect("closed")
    assert running.wait() == 0
    on.send("q")
    assert on.end()[0] == 0


@pytest.mark.parametrize("keys", ["zjj", "\tkkjjkk\tjj"])
def test_keys_that_are_typed_before_the_screen_stands_are_done_when_it_does(world: World, keys: str) -> None:
    on = world.terminal("replay", placed(world))
    on.send(keys)
    on.expect("#34/71")
    on.send("q")
    assert on.end()[0] == 0


def test_who_leaves_before_the_screen_stands_has_left(world: World) -> None:
    on = world.terminal("replay", placed(world))
    on.send("q")
    assert on.end()[0] == 0


def test_the_address_is_copied_by_the_terminal(world: World) -> None:
    address = placed(world)
    on = world.terminal("replay", address)
    on.expect("#32/71")
    on.send("y")
    shown = on.expect("\x07")
    assert f"\x1b]52;c;{base64.b64encode(address.encode()).decode()}\x07" in shown
    on.send("q")
    assert on.end()[0] == 0


def test_ctrl_c_ends_it_as_an_interrupt(world: World) -> None:
    on = world.terminal("replay", placed(world))
    on.expect("#32/71")
    on.send("\x03")
    assert on.end()[0] == 130


def test_a_terminal_that_goes_away_ends_it_also_where_no_signal_tells_of_it(world: World) -> None:
    ours, theirs = os.openpty()  # not the controlling terminal of what runs on it
    command = [MUSE, "replay", placed(world)]
    replay = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=world.env, cwd=world.work, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    while b"closed" not in shown:
        shown += os.read(ours, 65536)
    os.close(ours)
    try:
        assert replay.wait(PATIENCE_SECONDS) == 129
    finally:
        replay.kill()


def test_an_event_that_is_not_there_is_refused_before_the_screen(world: World) -> None:
    on = world.terminal("replay", placed(world, 999))
    code, shown = on.end()
    assert (code, "there is no event 999" in shown) == (2, True), shown
    assert "\x1b[?1049h" not in shown
    assert Path(world.work).exists()
