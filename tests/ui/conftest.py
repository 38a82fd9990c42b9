"""A world for each test of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.driving import World, shell

WRITES = ["write", {"path": "a.py", "content": "x = 1\ny = 2\n"}]
EDITS = ["edit", {"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 3"}]}]
FAILS = "printf 'one\\ntwo\\n'; printf '\\033[2J'; exit 3"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A user's machine."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A machine with one finished session; its tests only read."""
    world = World(tmp_path_factory.mktemp("past"))
    model = world.script(
        {"text": "I write.", "uses": [WRITES, shell(FAILS)]},
        {"text": "I mend.", "uses": [EDITS]},
        {"text": "All is well."},
    )
    done = world.run("exec", "--yolo", "--json", "-m", model, "Mend the\nfailing test")
    assert done.code == 0, done
    (world.root / "during.jsonl").write_text(done.out)
    yield world
    world.close()
