"""The screen of `muse replay` as people see it: the installed program in a real terminal, at several sizes.

`MUSE_WRITE_SCREENS=1` writes the golden screens anew; look at them before they are kept.
"""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse.ui.tui.keys import KEYS
from tests.ui.tui.made import write_session
from tests.ui.tui.terminals import GOLDEN, Terminal, needs_tmux, same

MUSE = str(Path(sys.executable).with_name("muse"))
pytestmark = needs_tmux

Opens = Callable[..., Terminal]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session lies."""
    made = tmp_path_factory.mktemp("screens")
    write_session(made / "story.muse")
    return made


@pytest.fixture
def opens(folder: Path) -> Iterator[Opens]:
    """Opens `muse replay` in a terminal, and ends it."""
    terminals: list[Terminal] = []

    def opened(address: str, width: int, height: int, before: str = "", *options: str) -> Terminal:
        env = {"HOME": str(folder), "MUSE_HOME": str(folder / "home")}
        line = f"{before} {MUSE} replay {address} {' '.join(options)}"
        terminals.append(Terminal(line, width, height, folder, env))
        return terminals[-1]

    yield opened
    for terminal in terminals:
        terminal.close()


# -- golden screens ----------------------------------------------------------------------------------------------------

VIEWS = {"detail": (), "state": ("s",), "request": ("r",), "difference": ("d",), "why": ("w",), "help": ("?",)}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_screens_are_the_golden_ones(opens: Opens, width: int, height: int) -> None:
    terminal = opens("story.muse@43", width, height)
    name = f"{width}x{height}"
    terminal.wait(lambda screen: "#43/71" in screen and "── #43" in screen)
    terminal.wait(same(f"{name}-detail"), "the golden screen")
    for view, keys in VIEWS.items():
        if keys and (view != "state" or width < 120):
            terminal.keys(*keys)
            terminal.wait(lambda screen: re.search("^[─━]{2} (state|request|why|help)", screen, re.M))
            terminal.wait(same(f"{name}-{view}"), f"the golden screen of {view}")
            terminal.keys(*keys)
            terminal.wait(lambda screen: "── #43" in screen)
    terminal.keys("f")
    terminal.wait(lambda screen: "filter:" in screen)
    terminal.type("agent:main.2 failed")
    terminal.keys("Enter")
    terminal.wait(lambda screen: "only agent:main.2 failed (3)" in screen)
    terminal.wait(same(f"{name}-filter"), "the golden screen of a filter")


def test_without_colour_the_chosen_row_and_every_sign_are_still_told(opens: Opens) -> None:
    plain = opens("story.muse@43", 80, 24, "", "--no-color")
    shown = plain.wait(same("80x24-detail"), "the same screen as with colour")
    assert re.search("^>#43 ", shown, re.M)
    by_variable = opens("story.muse@43", 80, 24, "NO_COLOR=1")
    by_variable.wait(same("80x24-detail"), "the same screen as with colour")
    coloured = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|38|48)[;m]")
    assert not coloured.search(plain.screen(styles=True))
    assert not coloured.search(by_variable.screen(styles=True))
    with_colour = opens("story.muse@43", 80, 24)
    with_colour.wait(same("80x24-detail"))
    assert coloured.search(with_colour.screen(styles=True))


def test_errors_may_go_elsewhere_and_a_small_character_set_keeps_its_columns(opens: Opens) -> None:
    terminal = opens("story.muse@43", 80, 24, "PYTHONIOENCODING=ascii", "2>errors")
    golden = (GOLDEN / "80x24-detail.txt").read_text()
    expected = "".join(sign if sign.isascii() else "." for sign in map(re.escape, golden))
    shown = terminal.wait(lambda screen: re.fullmatch(expected, screen), "the golden screen in ASCII")
    assert shown.isascii()
    terminal.keys("q")
    terminal.wait(lambda screen: "ended with 0" in screen)


def test_a_dumb_terminal_gets_the_rows_and_one_line_that_says_why(opens: Opens) -> None:
    terminal = opens("story.muse@4", 100, 24, "TERM=dumb")
    shown = terminal.wait(lambda screen: "ended with" in screen)
    first, *rows, end = shown.splitlines()
    assert first.startswith("muse: this terminal (TERM=dumb) cannot show a screen")
    assert [row[:3] for row in rows if row.startswith("#")] == ["#1 ", "#2 ", "#3 ", "#4 "]
    assert end == "ended with 0"
    assert "\x1b" not in terminal.screen(styles=True)


@pytest.mark.parametrize(("width", "height"), [(20, 5), (2, 2)])
def test_a_tiny_terminal_is_no_fault_and_may_grow(opens: Opens, width: int, height: int) -> None:
    terminal = opens("story.muse@43", width, height)
    terminal.wait(lambda screen: ">" in screen or "─" in screen)
    for key in ("s", "s", "j", "k", "m", "m", "z", "z", "Tab", "Tab"):
        terminal.keys(key)
    terminal.resize(80, 24)
    terminal.wait(lambda screen: re.search(r"^>#43 (?s:.)*^── #43 (?s:.)*^ #43/71 ", screen, re.M), "list and detail")
    terminal.resize(20, 5)
    terminal.wait(lambda screen: max(map(len, screen.splitlines())) <= 20 and ">#43" in screen)
    terminal.keys("q")
    terminal.wait(lambda screen: "endedwith0" in "".join(screen.split()))  # over several lines, so narrow it is


# -- every key of the help ---------------------------------------------------------------------------------------------

TRIED: list[tuple[str, str, str]] = [
    ("next", "j", r"^>#41 "),
    ("previous", "k", r"^>#40 "),
    ("page(1)", "Space", r"^>#54 "),
    ("page(-1)", "b", r"^>#40 "),
    ("half_page(1)", "C-d", r"^>#47 "),
    ("half_page(-1)", "C-u", r"^>#40 "),
    ("first", "g", r"^>#1 "),
    ("back", "BSpace", r"^>#40 "),
    ("last", "G", r"^>#71 "),
    ("ask_seq", ": 4 1 Enter", r"^>#41 "),
    ("next_like('type', 1)", "]", r"^>#50 "),
    ("next_like('type', -1)", "[", r"^>#41 "),
    ("next_like('turn', 1)", "}", r"^>#54 "),
    ("next_like('turn', -1)", "{", r"^>#2 "),
    ("next_like('agent', 1)", "J", r"^>#3 "),
    ("next_like('agent', -1)", "K", r"^>#2 "),
    ("next_like('error', 1)", "e", r"^>#21 "),
    ("next_like('agent', 1)", "J", r"^>#22 "),
    ("next_like('agent', 1)", "J", r"^>#25 "),
    ("next_like('error', -1)", "E", r"^>#21 "),
    ("next_like('approval', 1)", "a", r"^>#40 "),
    ("next_like('approval', 1)", "a", r"^>#41 "),
    ("next_like('approval', -1)", "A", r"^>#40 "),
    ("next_like('edit', 1)", "x", r"^>#43 "),
    ("next_like('edit', -1)", "X", "no change of files before this"),
    ("cause", "c", r"^>#42 "),
    ("step(1)", "C-n", r"^>#43 "),
    ("step(-1)", "C-p", r"^>#42 "),
    ("ask_text", "/ r o u n d Enter", r"^>#43 "),
    ("search_again(1)", "n", r"^>#53 "),
    ("search_again(-1)", "N", r"^>#43 "),
    ("ask_filter", "f f a i l e d Enter", r"only failed \(\d+\)"),
    ("leave", "Escape", r"^>#50 (?s:.)*only failed"),
    ("leave", "Escape", r"^>#43 (?s:.)*closed  +/ search"),
    ("only_agent", "o", r"only agent:main \(\d+\)"),
    ("only_agent", "o", r"closed  +/ search"),
    ("only_type", "O", r"only type:files.changed \(1\)"),
    ("only_type", "O", r"closed  +/ search"),
    ("show('request')", "r", r"request #46 of main|request #38 of main"),
    ("show('difference')", "d", r"request #38 of main, against #10"),
    ("show('why')", "w", r"─ why #43(?s:.)*(result of|the change|by)"),
    ("state", "s", r"─ state(?s:.)*after #43: open"),
    ("show('help')", "?", r"━ help"),
    ("show('help')", "?", r"─ #43 "),
    ("whole", "m", r"\A━━ #43 "),
    ("whole", "m", r"^>#43 "),
    ("focus_pane(1)", "Tab", r"━━ #43 "),
    ("focus_pane(-1)", "BTab", r"── #43 "),
    ("zoom", "z", r"^>#43 (?!(?s:.)*─ #43 )"),
    ("zoom", "z", r"─ #43 "),
    ("times", "t", r"^>#43 +09:00:41 "),
    ("times", "t", r"^>#43 +00:41.7 "),
    ("copy", "y", r"copied story.muse@43"),
    ("redraw", "C-l", r"^>#43 "),
    ("follow", "F", r"^>#71 (?s:.)*follows"),
    ("follow", "F", r"stays here"),
    ("faster(1)", "+", r"plays at ×2"),
    ("faster(-1)", "-", r"plays at ×1"),
    ("first", "g", r"^>#1 "),
    ("play", "p", r"^>#[2-9] (?s:.)*▶ ×1"),
    ("play", "p", r"stopped"),
    ("suspend", "C-z", r"\A\s*\Z"),
]
"""Action, keys as tmux names them, and what the screen says then, as a pattern. One after another, from #40 on."""


def test_every_key_of_the_help_does_what_it_says(opens: Opens) -> None:
    assert {action for action, _, _ in TRIED} | {"quit"} == {key.action for key in KEYS}
    terminal = opens("story.muse@40", 100, 30)
    terminal.wait(lambda screen: ">#40 " in screen and "── #40" in screen)
    for action, keys, shown in TRIED:
        terminal.keys(*keys.split(" "))
        expected = re.compile(shown, re.M)
        terminal.wait(lambda screen, expected=expected: expected.search(screen), f"{action} ({keys}): {shown}")
    terminal.signal(signal.SIGCONT)
    terminal.wait(lambda screen: re.search("^>#[2-9] ", screen, re.M), "the screen after fg")
    terminal.keys("q")
    assert terminal.wait(lambda screen: "ended with" in screen).strip() == "ended with 0"
