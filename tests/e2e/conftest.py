from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A user's machine with a small repository."""
    with Rig(tmp_path) as made:
        yield made
