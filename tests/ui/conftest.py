"""A world for each test of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.driving import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A user's machine."""
    made = World(tmp_path)
    yield made
    made.close()
