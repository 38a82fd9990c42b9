"""Whatever people say at whatever moment: see `storm`. `make storm` plays many of them."""

import os
from pathlib import Path

import pytest

from tests.crash.storm import Storm
from tests.crash.task import seed
from tests.e2e.rig import Rig

STORMS = int(os.environ.get("MUSE_STORMS", "1"))


@pytest.mark.long
@pytest.mark.parametrize("number", range(STORMS))
def test_whatever_people_say_while_the_host_is_killed_all_ends_and_nothing_happens_twice(
    tmp_path: Path, number: int
) -> None:
    with Rig(tmp_path) as rig:
        storm = Storm(rig, seed() + number, yolo=number % 2 == 0)
        storm.play()
        assert storm.findings() == []
        assert sum(storm.said.values()) > storm.words / 2, storm.said
