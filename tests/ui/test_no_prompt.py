"""Sessions that were opened and in which nothing was asked yet: none is left by a kill, and what is left says so."""

import json
from pathlib import Path

from muse import app
from tests.ui.asking import ask
from tests.ui.driving import World
from tests.ui.told import told

NAME = "00aaaaaa"
HELLO = {"text": "All is well."}


def test_a_kill_right_after_the_opening_loses_no_prompt(world: World) -> None:
    killed = world.run("exec", "-m", world.script(HELLO), "do it", env={"MUSE_FAILPOINT": "after_claim:1"})
    assert killed.code == -9
    assert world.types() == ["session.opened", "user.prompted"]
    assert world.run("resume").out == "All is well.\n"
    killed = world.run("resume", "last", "and that", env={"MUSE_FAILPOINT": "after_claim:1"})
    assert killed.code == -9
    assert world.types()[-2:] == ["session.opened", "user.prompted"]
    assert world.run("resume").code == 0
    assert [e["body"]["text"] for e in world.events() if e["type"] == "user.prompted"] == ["do it", "and that"]


def test_a_session_without_a_prompt_says_so_wherever_it_is_met(tmp_path: Path) -> None:
    told(tmp_path)
    assert "stopped, no prompt yet" in ask(tmp_path, "ls", "--all").out
    done = ask(tmp_path, "resume", NAME)
    assert (done.code, done.out) == (0, "")
    assert f'nothing was asked of it yet. To begin: muse resume {NAME} "…"' in done.err
    (seen,) = [json.loads(line) for line in ask(tmp_path, "up", "--dry-run", "--json").out.splitlines()]
    assert (seen["fate"], seen["why"]) == ("skipped", "nothing was asked of it yet")
    assert "muse resume" in seen["hint"]


def test_words_to_a_session_without_a_prompt_are_its_first_prompt(tmp_path: Path) -> None:
    path = told(tmp_path)
    assert ask(tmp_path, "steer", NAME, "look around").code == 0
    assert "stopped (resume)  2 ev  /  look around" in ask(tmp_path, "ls", "--all").out
    with app.read_session(path) as reading:
        state = reading.state_after(2)
    assert state is not None
    assert [(said.text, said.source) for said in state.early] == [("look around", "prompt")]
