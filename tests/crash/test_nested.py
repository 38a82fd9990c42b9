"""The host killed at an append of a session of agents within agents, and again soon after: a sample of `nested`, which
kills at every one."""

import random
from pathlib import Path

import pytest

from tests.crash.nested import played
from tests.crash.task import seed

FIRST = range(12, 80)
"""Commits of the first life that are drawn from: after the first words, and before all are said."""
SECOND = range(1, 20)


@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_killed_at_any_append_and_again_after_it_what_agents_do_to_each_other_happens_once(
    tmp_path: Path, number: int
) -> None:
    rng = random.Random(f"{seed()}/nested/{number}")
    places = ("before_commit", "after_commit")
    failpoints = [f"{rng.choice(places)}:{rng.choice(FIRST)}", f"{rng.choice(places)}:{rng.choice(SECOND)}"]
    kills, findings = played(tmp_path, failpoints)
    assert findings == [], failpoints
    assert kills, failpoints
