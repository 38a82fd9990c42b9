"""The screen of `muse agents` as people see it: the installed program in a real terminal, on a fan-out that was written
down to a moment, and on one that goes on.

`MUSE_WRITE_SCREENS=1` writes the golden screens anew; look at them before they are kept.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse import app
from muse.event import kinds
from muse.event.content import Origin
from muse.ui.tui.fleet_keys import KEYS
from tests.ui.tui.fanout import write_fanout
from tests.ui.tui.terminals import Terminal, needs_tmux, same

MUSE = str(Path(sys.executable).with_name("muse"))
pytestmark = needs_tmux

Opens = Callable[..., Terminal]


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Opens]:
    """Opens `muse agents` on a fan-out up to a moment, in a terminal, and ends it."""
    terminals: list[Terminal] = []

    def opened(upto: str, width: int = 80, height: int = 24) -> Terminal:
        write_fanout(tmp_path / f"{upto}.muse", upto)
        env = {"HOME": str(tmp_path), "MUSE_HOME": str(tmp_path / "home")}
        terminals.append(Terminal(f"{MUSE} agents {upto}.muse", width, height, tmp_path, env))
        return terminals[-1]

    yield opened
    for terminal in terminals:
        terminal.close()


SAYS = ("target", "decision", "text", "remember")


def said(path: Path) -> list[tuple[str, str, object]]:
    """The commands that came in after the fan-out, with their agents and what they say."""
    with app.read_session(path) as reading:
        commands = [event for event in reading.events() if event.type in kinds.COMMANDS]
    return [
        (event.type, event.agent, {name: getattr(event.body, name) for name in SAYS if hasattr(event.body, name)})
        for event in commands
        if getattr(event.body, "origin", Origin()).client == "agents"
    ]


def test_screens_are_the_golden_ones(opens: Opens) -> None:
    terminal = opens("work")
    terminal.wait(lambda screen: "> main " in screen and "── main ─" in screen)
    terminal.wait(same("agents-80x24-running"), "the golden screen")
    terminal.keys("w", "a")
    terminal.wait(lambda screen: "may this run?" in screen)
    terminal.wait(same("agents-80x24-approval"), "the golden screen of an approval")
    terminal.keys("Escape")
    terminal.wait(lambda screen: "may this run?" not in screen)
    terminal.keys("/")
    terminal.wait(lambda screen: "only:" in screen)
    terminal.type("waiting:")
    terminal.keys("Enter")
    terminal.wait(lambda screen: "only waiting: (3)" in screen)
    terminal.wait(same("agents-80x24-filter"), "the golden screen of a filter")
    terminal.keys("Escape")
    terminal.wait(lambda screen: "only waiting" not in screen)
    terminal.keys("?")
    terminal.wait(lambda screen: "━━ help" in screen)
    terminal.wait(same("agents-80x24-help"), "the golden screen of the help")
    finished = opens("end")
    finished.wait(lambda screen: "── main ─" in screen)
    finished.wait(same("agents-80x24-finished"), "the golden screen of the end")


TRIED: list[tuple[str, str, str]] = [
    ("move(1)", "j", r"^> +main\.1 "),
    ("move(-1)", "k", r"^> main "),
    ("last", "G", r"^> +main\.6 "),
    ("first", "g", r"^> main "),
    ("page(1)", "Space", r"^> +main\.6 "),
    ("page(-1)", "b", r"^> main "),
    ("fold", "h", r"^>› ?main \+6 +waiting(?s:(?!main\.1).)*\Z"),
    ("unfold", "l", r"^> main (?s:.)*main\.6 "),
    ("unfold", "l", r"^> +main\.1 "),
    ("fold", "h", r"^> main "),
    ("next_waiting(1)", "w", r"^> +main\.4 "),
    ("asked", "a", r"may this run\? main\.4 (?s:.)*git push origin v2\.4(?s:.)*shell\(git push \*\)"),
    ("leave", "Escape", r"── main\.4 release"),
    ("cancel('agent')", "c", r"Cancel main\.4\?"),
    ("answer('no')", "n", r"nothing was done"),
    ("cancel('tree')", "C", r"Cancel main\.4 and all below it\?"),
    ("move(1)", "j", r"^> +main\.5 (?s:.)*── main\.5 prices"),
    ("answer('yes')", "y", r"nothing is asked here"),
    ("asked", "a", r"Gross or net\?\n 1  gross\n 2  net(?s:.)*answer:"),
    ("asked", "2 Enter", r"answered #\d+ of main\.5; nobody runs it"),
    ("steer", "s m i n d Space t h e Space t a x Enter", r"said to main\.5"),
    ("pause('agent')", "p", r"^> +main\.5 prices +paused(?s:.)*main\.5: paused"),
    ("pause('agent')", "p", r"^> +main\.5 prices +(?! |paused)(?s:.)*main\.5 may go on"),
    ("pause('tree')", "g P", r"main\.6 stock +(?! |paused)(?s:.)*main and all below it may go on"),
    ("pause('tree')", "P", r"main\.6 stock +paused(?s:.)*main and all below it: paused"),
    ("ask_only", "/ p r i c e s Enter", r"only prices \(2\)"),
    ("leave", "Escape", r"^ +main\.1 "),
    ("follow", "f", r"stands where something happens"),
    ("follow", "f", r"stays here"),
    ("other_pane", "Tab", r"━━ main ━"),
    ("zoom", "z", r"\A━━ main ━"),
    ("zoom", "z", r"(?s:.)main\.1 (?s:.)*━━ main ━"),
    ("other_pane", "Tab", r"\A━━ checkout"),
    ("redraw", "C-l", r"^> main "),
    ("help", "?", r"━━ help"),
    ("quit", "q", r"── main ─"),
    ("answer('always')", "w a A", r"allowed from now on: shell of main\.4"),
    ("cancel('tree')", "g C y", r"cancel: main and all below it"),
    ("replay", "j Enter", r"#\d+/\d+ +\S*work\.muse(?s:.)*only agent:main\.1|only agent:main\.1"),
    ("replay", "q", r"^> +main\.1 (?s:.)*── main\.1 cart"),
]
"""Action, keys as tmux names them, and what the screen says then, as a pattern. One after another, from main on."""


def test_every_key_of_the_help_does_what_it_says(opens: Opens, tmp_path: Path) -> None:
    assert {action for action, _, _ in TRIED} | {"suspend", "quit"} == {key.action for key in KEYS}
    terminal = opens("work", 100, 30)
    terminal.wait(lambda screen: "> main " in screen and "── main ─" in screen)
    for action, keys, shown in TRIED:
        for key in keys.split(" "):
            terminal.keys(key)
        expected = re.compile(shown, re.M)
        terminal.wait(lambda screen, expected=expected: expected.search(screen), f"{action} ({keys}): {shown}")
    terminal.keys("q")
    assert terminal.wait(lambda screen: "ended with" in screen).strip() == "ended with 0"
    tree, agent = {"target": "tree"}, {"target": "agent"}
    assert said(tmp_path / "work.muse") == [
        ("question.answered", "main.5", {"text": "net"}),
        ("agent.steered", "main.5", {"text": "mind the tax"}),
        ("agent.paused", "main.5", agent),
        ("agent.continued", "main.5", agent),
        ("agent.continued", "main", tree),
        ("agent.paused", "main", tree),
        ("approval.decided", "main.4", {"decision": "allow", "remember": "shell(git push *)"}),
        ("cancel.requested", "main", tree),
    ]


@pytest.mark.parametrize(("width", "height"), [(20, 5), (2, 2)])
def test_a_tiny_terminal_is_no_fault_and_may_grow(opens: Opens, width: int, height: int) -> None:
    terminal = opens("work", width, height)
    terminal.wait(lambda screen: ">" in screen or "━" in screen)
    for key in ("j", "z", "z", "Tab", "Tab", "a", "Escape", "k"):
        terminal.keys(key)
    terminal.resize(80, 24)
    terminal.wait(lambda screen: re.search(r"^> +main(?s:.)*^[─━]{2} main", screen, re.M), "list and pane")
    terminal.keys("q")
    terminal.wait(lambda screen: "endedwith0" in "".join(screen.split()))
