"""Whichever command is given the address of an agent that is not there says so, and which are."""

from pathlib import Path

import pytest

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentSpawned, UserPrompted
from muse.ui.cli.address import resolve
from muse.view.filters import Filter
from tests.ui.asking import ask
from tests.ui.told import Telling

NAME = "00aaaaaa"
CHILDREN = 11
READING = [
    ("log",), ("log", "--json"), ("log", "-n", "0"), ("log", "-f", "--until-closed"), ("log", "--failed"), ("replay",),
    ("replay", "--json"), ("replay", "--detail"), ("show",), ("show", "--failed"), ("show", "--request"), ("why",),
    ("attach",), ("agents",), ("agents", "--json"), ("approvals",), ("processes",), ("wait",), ("result",),
]  # fmt: skip
SPEAKING = [
    ("steer", "x"), ("cancel",), ("pause",), ("continue",), ("answer", "x"), ("spawn", "x"), ("deny",), ("approve",),
]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with eleven children of main."""
    home = tmp_path_factory.mktemp("home")
    with Telling(home) as telling:
        telling.say(AgentSpawned(), UserPrompted(text="go"))
        for number in range(1, CHILDREN + 1):
            telling.say(AgentSpawned(task="t", parent="main", call="main/2", index=number), agent=f"main.{number}")
    return home


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_what_only_reads_names_the_agents_that_are_there(home: Path, command: tuple[str, ...]) -> None:
    done = ask(home, command[0], f"{NAME}:main.12", *command[1:])
    assert (done.code, done.out) == (2, "")
    assert "there is no agent main.12 in " in done.err
    assert "there is: main, main.1, main.2, main.3, main.4, main.5, main.6, main.7 and 4 more" in done.err


@pytest.mark.parametrize("command", SPEAKING, ids=" ".join)
def test_what_speaks_to_agents_does_so_too(home: Path, command: tuple[str, ...]) -> None:
    done = ask(home, command[0], f"{NAME}:main.12", *command[1:])
    assert done.code == 2
    assert "there is: main, main.1, main.2" in done.err


def test_a_search_in_an_agent_that_is_not_there_is_refused(home: Path) -> None:
    done = ask(home, "search", "go", f"{NAME}:main.12")
    assert (done.code, done.out) == (2, "")
    assert "there is: main, main.1, main.2" in done.err


def test_the_screen_of_replay_does_not_open_on_one(home: Path) -> None:
    from muse.ui.tui.opening import opened

    path = next(home.glob("sessions/*/*/*/*.muse"))
    with app.read_session(path, check=False) as reading:
        place = resolve(f"{path}:main.12")
        with pytest.raises(UsageError, match=r"there is no agent main\.12"):
            opened(place, reading, wanted=Filter(agents=("main.12",)))
        assert opened(resolve(f"{path}:main.11"), reading, wanted=Filter()).seq == 1


@pytest.mark.parametrize("command", ["log", "replay"])
def test_an_agent_that_is_there_and_of_which_nothing_is_meant_is_no_mistake(home: Path, command: str) -> None:
    done = ask(home, command, f"{NAME}:main.11", "--failed")
    assert (done.code, done.out) == (0, "")
    assert "nothing in" in done.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("sql", "SELECT 1", f"{NAME}:main.1"), "say WHERE agent = 'main.1'"),
        (("resume", f"{NAME}:main.1"), f"muse steer {NAME}:main.1"), (("resume", f"{NAME}@3"), f"muse resume {NAME}"),
        (("export", f"{NAME}:main.1"), "leave :AGENT out"),
    ],
)  # fmt: skip
def test_what_is_about_whole_sessions_does_not_pass_over_the_agent(
    home: Path, command: tuple[str, ...], says: str
) -> None:
    done = ask(home, *command)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
