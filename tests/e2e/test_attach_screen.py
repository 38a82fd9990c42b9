"""The screen of `muse attach` as people see it: a fan-out that speaks while it is watched, in a real terminal.

The test owns the session, writes its events and tells what is streamed; so that each screen is the same every time.
`MUSE_WRITE_SCREENS=1` writes the golden screens anew; look at them before they are kept.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muse.event.content import Block, Usage
from muse.event.kinds import (
    AgentFinished,
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    ModelRequested,
    ModelResponded,
    SessionClosed,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)  # fmt: skip
from tests.runtime.test_signals import Owner, owning
from tests.ui.told import Telling
from tests.ui.tui.terminals import Terminal, needs_tmux
from tests.ui.tui.terminals import same as golden

MUSE = str(Path(sys.executable).with_name("muse"))
SESSION = "20261130-090000-00aaaaaa"
TASKS = ("Count the files of the project.", "Read the notes and sum them up.", "Run the tests.")
COMMAND = "make test"
pytestmark = needs_tmux

Opens = Callable[..., Terminal]


class FanOut:
    """A session of three children, as far as it was told."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.told = Telling(self.home, SESSION)
        self.owner: Owner

    def begin(self) -> None:
        """Up to where each child has asked its model."""
        say = self.told.say
        say(UserPrompted(text="Look at the project from three sides."))
        say(AgentSpawned(task="Look at the project from three sides."))
        self.asks("main/1")
        self.answers("main/1", "Three of you, please.", use="spawn")
        say(ToolStarted(call="main/2", attempt=1, tool="spawn", args="{}", recovery="derived"))
        for number, task in enumerate(TASKS):
            child = AgentSpawned(parent="main", call="main/2", index=number, task=task)
            say(child, agent=f"main.{number + 1}")
        for number in (1, 2, 3):
            self.asks(f"main.{number}/1")

    def asks(self, call: str) -> None:
        """A model request, in the log and in the stream."""
        body = ModelRequested(
            call=call, attempt=1, provider="scripted", model="story", builder="scripted/1", items=1,
            request_sha256="0" * 64, request_bytes=4000,
        )  # fmt: skip
        self.told.say(body, agent=call.partition("/")[0])

    def answers(self, call: str, text: str, use: str = "") -> None:
        """Its response."""
        uses = (Block(kind="tool_use", id="u1", name=use, args=f'{{"command":"{COMMAND}"}}'),) if use else ()
        body = ModelResponded(
            call=call, attempt=1, blocks=(Block(kind="text", text=text), *uses), stop="tool_use" if use else "end_turn",
            usage=Usage(input=1200, output=40), duration_ms=2100,
        )  # fmt: skip
        self.told.say(body, agent=call.partition("/")[0])

    def runs(self, call: str) -> None:
        """A command."""
        args = f'{{"command":"{COMMAND}"}}'
        body = ToolStarted(call=call, attempt=1, tool="shell", args=args, recovery="attachable")
        self.told.say(body, agent=call.partition("/")[0])

    def streams(self, call: str, *texts: str) -> None:
        """What is said just now."""
        self.owner.says(call, *texts)

    def begins(self, *calls: str) -> None:
        """From here on these stream."""
        for call in calls:
            self.owner.begins(call)


@pytest.fixture
def fan_out(tmp_path: Path) -> Iterator[FanOut]:
    """The session, told up to its fan-out, and owned by this process."""
    made = FanOut(tmp_path)
    with owning(made.home / "run" / SESSION) as made.owner, made.told:
        made.begin()
        yield made


@pytest.fixture
def opens(fan_out: FanOut) -> Iterator[Opens]:
    """Opens `muse attach` in a terminal of 80×24, and ends it."""
    terminals: list[Terminal] = []

    def opened(address: str, *options: str) -> Terminal:
        folder = fan_out.home.parent
        env = {"HOME": str(folder), "MUSE_HOME": str(fan_out.home)}
        line = f"trap : INT; {MUSE} attach {address} {' '.join(options)}"
        terminals.append(Terminal(line, 80, 24, folder, env))
        return terminals[-1]

    yield opened
    for terminal in terminals:
        terminal.close()


def same(name: str) -> Callable[[str], bool]:
    """Whether a screen is the golden one of this name, whichever process runs the session."""
    is_same = golden(f"attach-80x24-{name}")
    return lambda screen: is_same(re.sub(r"process \d+", "process 4242", screen))


def test_a_fan_out_is_watched_while_it_speaks_asks_and_ends(fan_out: FanOut, opens: Opens) -> None:
    terminal = opens(SESSION)
    terminal.wait(lambda screen: "main.3 … model" in screen)
    fan_out.begins("main.1/1", "main.2/1", "main.3/1")
    fan_out.streams("main.1/1", "I am going to count the files one folder after another, ")
    terminal.wait(lambda screen: "main.1 > I am going" in screen)
    fan_out.streams("main.2/1", "The notes say that ")
    terminal.wait(lambda screen: "main.2 > The notes say that\n" in screen)
    terminal.wait(lambda screen: "main.1 > " not in screen, "the line of who speaks now instead")
    fan_out.streams("main.1/1", "as there are many of them.\nSo far: 12")
    terminal.wait(same("streaming"), "the golden screen of several who speak")

    fan_out.answers("main.3/1", "I run them.", use="shell")
    asked = fan_out.told.say(
        ApprovalRequested(
            call="main.3/2", tool="shell", shown=f"$ {COMMAND}", shown_sha256="0" * 64, rule="mode default",
        ),
        agent="main.3",
    )  # fmt: skip
    terminal.wait(same("asking"), "the golden screen of a request")
    fan_out.told.say(
        ApprovalDecided(call="main.3/2", decision="allow", by="person", request=asked, shown_sha256="0" * 64),
        agent="main.3",
    )
    fan_out.runs("main.3/2")
    fan_out.owner.runs("main.3/2")
    fan_out.streams("main.3/2", "\x1b[2J\x1b[31m4 passed\x1b[0m\nand more")
    terminal.wait(lambda screen: "main.3 │ and more" in screen)
    finished = ToolFinished(call="main.3/2", attempt=1, status="ok", text="4 passed", exit_code=0, duration_ms=900)
    fan_out.told.say(finished, agent="main.3")
    fan_out.answers("main.1/1", "I am going to count the files one folder after another, as there are many of them.\n"
                    "So far: 12. In all: 40.")  # fmt: skip
    fan_out.answers("main.2/1", "The notes say that all is well.")
    for number in (1, 2, 3):
        fan_out.told.say(AgentFinished(outcome="done", text="Done."), agent=f"main.{number}")
    fan_out.told.say(ToolFinished(call="main/2", attempt=1, status="ok", text="Done."))
    fan_out.asks("main/3")
    fan_out.answers("main/3", "All three are done.")
    fan_out.told.say(SessionClosed(outcome="done"))
    fan_out.told.close()
    terminal.wait(lambda screen: "ended with 0" in screen)
    terminal.wait(same("ended"), "the golden screen of the end")


def test_one_agent_alone_is_watched_and_left_with_a_key(fan_out: FanOut, opens: Opens) -> None:
    fan_out.begins("main.1/1", "main.2/1")
    fan_out.streams("main.2/1", "What was said before anybody ")
    terminal = opens(f"{SESSION}:main.2")
    fan_out.streams("main.1/1", "Not for who watches another.\n")
    fan_out.streams("main.2/1", "listened is shown.\nAnd")
    terminal.wait(same("alone"), "the golden screen of one agent")
    terminal.keys("C-c")
    left = terminal.wait(lambda screen: "ended with 130" in screen)
    assert "detached; the session is left as it is" in left
