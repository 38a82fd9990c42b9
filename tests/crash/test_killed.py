"""`kill -9` of the host at random: no finished step twice, none missing, every log verifies, every request valid."""

import random
from pathlib import Path

import pytest
from tests.crash.task import FILES, SERVERS, Crashing, last_request, seed, task
from tests.e2e.rig import Rig

KILLS = 30


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_a_session_of_30_steps_killed_30_times_does_each_step_once(tmp_path: Path, dialect: str) -> None:
    rng = random.Random(seed())
    steps = task(30)
    with SERVERS[dialect](steps) as server, Rig(tmp_path / "a", FILES) as rig, Rig(tmp_path / "b", FILES) as calm:
        rig.provider(dialect, server.base_url)
        run = Crashing(rig, steps, rng)
        while run.kills < KILLS:
            code = run.life(rng.randint(2, 5), rng.uniform(0, 0.03))
            assert code == -9, f"it ended by itself after {run.kills} kills: {code} {run.errors}"
        run.to_the_end()
        run.assert_each_step_once()
        events = run.assert_log()
        assert sum(event["type"] == "session.opened" for event in events) > KILLS
        calm.provider(dialect, server.base_url)
        undisturbed = Crashing(calm, steps, rng)
        undisturbed.to_the_end()
        undisturbed.assert_each_step_once()
        undisturbed.assert_log()
        assert last_request(server, rig) == last_request(server, calm)
    assert server.violations == []
