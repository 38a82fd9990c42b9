"""Two terminals beside one living host, with real keys: one talks with it, the other one looks on and speaks to its
agents."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.driving import MUSE, World, eventually, shell
from tests.ui.test_agents_spoken_to import bodies, fan
from tests.ui.tui.terminals import Terminal, needs_tmux

pytestmark = needs_tmux

SLOW = "touch begun-$1; for i in $(seq 1200); do [ -e go ] && break; sleep 0.05; done; echo $1 >> ended\n"
FLAGS = "--allow 'shell(sh slow.sh *)'"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A user's machine, with a command that waits for the file `go`."""
    made = World(tmp_path)
    (made.work / "slow.sh").write_text(SLOW)
    yield made
    made.close()


@pytest.fixture
def terminals(world: World) -> Iterator[tuple[Terminal, Terminal]]:
    """A chat whose model has three children, and what looks at it: first `agents`, then `attach`."""
    script = fan(
        world,
        [{"uses": [shell("sh slow.sh one")]}, {"text": "The first part is done."}],
        [{"uses": [shell("sh slow.sh two")]}, {"text": "The second part is done."}],
        [{"uses": [shell("touch made")]}, {"text": "The third part is done."}],
    )
    env = {key: value for key, value in world.env.items() if key != "PATH"}
    chat = Terminal(f"{MUSE} -m {script} {FLAGS}", 100, 40, world.work, env)
    try:
        chat.wait(lambda screen: "/help" in screen)
        other = Terminal(
            f"trap : INT; until [ -e look ]; do sleep 0.02; done; {MUSE} agents; {MUSE} attach :main.1", 80, 24,
            world.work, env,
        )  # fmt: skip
        try:
            yield chat, other
        finally:
            other.close()
    finally:
        chat.close()


def test_what_one_terminal_says_to_agents_is_seen_in_the_one_that_runs_them(
    world: World, terminals: tuple[Terminal, Terminal]
) -> None:
    chat, other = terminals
    chat.type("Do it in three parts.")
    chat.keys("Enter")
    chat.wait(lambda screen: "main.3 asks: may this run?" in screen, "the question of a child")
    eventually(lambda: all((world.work / f"begun-{part}").exists() for part in ("one", "two")))
    (world.work / "look").touch()
    other.wait(lambda screen: "> main " in screen and "4 agents: " in screen, "the tree")

    other.keys("j", "s")
    other.wait(lambda screen: "say:" in screen)
    other.type("mind the tests")
    other.keys("Enter")
    other.wait(lambda screen: "said to main.1" in screen, "the acknowledgement")
    chat.wait(lambda screen: "mind the tests" in screen, "what was said to the first")

    other.keys("j", "c")
    other.wait(lambda screen: "Cancel main.2?" in screen)
    other.keys("y")
    other.wait(lambda screen: "main.2" in screen and "cancelled" in screen, "the cancelled one in the tree")
    chat.wait(lambda screen: "main.2 ended: cancelled" in screen, "the end of the second")

    other.keys("w", "a")
    other.wait(lambda screen: "may this run? main.3" in screen and "touch made" in screen)
    other.keys("y")
    chat.wait(lambda screen: "(answered from elsewhere)" in screen, "the answer to the third")
    chat.wait(lambda screen: "The third part is done." in screen)
    assert (world.work / "made").exists()

    other.keys("q")
    name = world.files()[-1].stem[-8:]
    other.wait(lambda screen: f'muse steer {name}:main.1 "…"' in screen, "what can be said to the first")
    (world.work / "go").touch()
    other.wait(lambda screen: "The first part is done." in screen, "the words of the first")
    chat.wait(lambda screen: "All is well." in screen and "✓ closed" in screen, "the end of the turn")
    other.keys("C-c")
    other.wait(lambda screen: "detached; the session is left as it is" in screen)
    chat.type("/quit")
    chat.keys("Enter")
    chat.wait(lambda screen: "ended with 0" in screen)

    assert (world.work / "ended").read_text() == "one\n"
    assert [body["text"] for body in bodies(world, "agent.steered")] == ["mind the tests"]
    assert [body["outcome"] for body in bodies(world, "agent.finished", "main.2")] == ["cancelled"]
    (decided,) = bodies(world, "approval.decided")
    assert (decided["decision"], decided["origin"]["client"]) == ("allow", "agents")
