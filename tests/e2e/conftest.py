import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.recorded import Noted, record
from tests.e2e.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A user's machine with a small repository."""
    with Rig(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def release() -> Iterator[Noted]:
    """A session to ask questions of; its tests only read. In a folder with a short name, which is shown whole."""
    with tempfile.TemporaryDirectory() as folder, record(Path(folder)) as noted:
        yield noted
