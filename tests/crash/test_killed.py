"""`kill -9` of the host at random: no finished step twice, none missing, every log verifies, every request valid."""

import json
import random
import time
from pathlib import Path

import pytest

from muse.testing.wire import AnthropicServer, OpenAIServer
from tests.crash.task import FILES, SERVERS, Crashing, last_request, seed, task
from tests.e2e.rig import Rig

KILLS = 30
TREES = 10
CALLS = 30


def next_kill(run: Crashing, rng: random.Random, kills: int, lines: tuple[int, int], pause: float) -> tuple[int, float]:
    """After how many lines, and how long after them, the next kill comes. A session that is ahead of its share of the
    kills is killed as soon as it shows itself: else a fast machine would be done before the last of them."""
    done = sum(json.loads(line)["type"] == "tool.finished" for line in run.lines)
    drawn = rng.randint(*lines), rng.uniform(0, pause)
    return (1, 0.0) if done * kills > CALLS * run.kills else drawn


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_a_session_of_30_steps_killed_30_times_does_each_step_once(tmp_path: Path, dialect: str) -> None:
    rng = random.Random(seed())
    steps = task(CALLS)
    with SERVERS[dialect](steps) as server, Rig(tmp_path / "a", FILES) as rig, Rig(tmp_path / "b", FILES) as calm:
        rig.provider(dialect, server.base_url)
        run = Crashing(rig, steps)
        while run.kills < KILLS:
            code = run.life(*next_kill(run, rng, KILLS, (2, 5), 0.03))
            assert code == -9, f"it ended by itself after {run.kills} kills: {code} {run.errors}"
        run.to_the_end()
        run.assert_each_step_once()
        events = run.assert_log()
        rig.verify()
        assert "".join(run.lines) == rig.muse("replay", rig.session(), "--json").stdout
        assert sum(event["type"] == "session.opened" for event in events) > KILLS
        calm.provider(dialect, server.base_url)
        undisturbed = Crashing(calm, steps)
        undisturbed.to_the_end()
        undisturbed.assert_each_step_once()
        undisturbed.assert_log()
        assert last_request(server, rig) == last_request(server, calm)
    assert server.violations == []


@pytest.mark.long
def test_thirty_sessions_killed_once_each_do_each_step_once(tmp_path: Path) -> None:
    """At any time from the start of the process on: by lines shown, or by the clock while the process starts.

    A session that ended before its kill came is checked like the others and does not count among the thirty."""
    rng = random.Random(seed())
    steps = task(6)
    killed = 0
    with AnthropicServer(steps) as anthropic, OpenAIServer(steps) as openai:
        told: dict[str, set[str]] = {"anthropic": set(), "openai": set()}
        for number in range(120):
            server, dialect = ((anthropic, "anthropic"), (openai, "openai"))[number % 2]
            with Rig(tmp_path / str(number), FILES) as rig:
                rig.provider(dialect, server.base_url)
                run = Crashing(rig, steps)
                if number >= 2:  # the first of each dialect runs undisturbed
                    run.life(rng.randint(2, 30), rng.uniform(0, 0.05))
                if number % 5 == 4:  # once more, while the second process starts
                    run.life(0, rng.uniform(0, 0.6))
                if not run.ended:
                    run.to_the_end()
                run.assert_each_step_once()
                run.assert_log()
                told[dialect].add(last_request(server, rig))
                killed += run.kills > 0
            if killed == 30:
                break
        assert len(told["anthropic"]) == len(told["openai"]) == 1
    assert killed == 30
    assert anthropic.violations == openai.violations == []


@pytest.mark.long
def test_a_kill_while_the_first_process_starts_leaves_nothing_broken(tmp_path: Path) -> None:
    """Either the task was taken, and resume does all of it, or it was not, and nothing of it happens."""
    rng = random.Random(seed())
    steps = task(2)
    with AnthropicServer(steps) as server:
        for number in range(12):
            with Rig(tmp_path / str(number), FILES) as rig:
                rig.provider("anthropic", server.base_url)
                process = rig.start("exec", "--yolo", "do all of it")
                time.sleep(rng.uniform(0.1, 0.6))
                process.kill()
                process.wait()
                assert rig.muse("ls").returncode == 0
                for path in rig.logs():
                    rig.verify(path.stem)
                    again = rig.muse("resume", path.stem)
                    assert again.returncode == 0, again.stderr
                    rig.verify(path.stem)
                run = Crashing(rig, steps)
                if any(event["type"] == "user.prompted" for path in rig.logs() for event in rig.events(path.stem)):
                    run.assert_each_step_once()
                else:
                    assert not run.started()
    assert server.violations == []


@pytest.mark.long
def test_the_whole_tree_killed_starts_nothing_twice_and_says_what_is_unknown(tmp_path: Path) -> None:
    """Host, runner and commands die together, as in a power cut: only the command that ran may be in doubt."""
    rng = random.Random(seed())
    steps = task(CALLS)
    with AnthropicServer(steps) as server, Rig(tmp_path, FILES) as rig:
        rig.provider("anthropic", server.base_url)
        run = Crashing(rig, steps)
        for kills in range(TREES):
            code = run.life(*next_kill(run, rng, TREES, (3, 9), 0.05), lambda process: rig.kill_all())
            assert code == -9, f"it ended by itself after {kills} kills: {code} {run.errors}"
        run.to_the_end()
        events = run.assert_log()
        run.assert_files()
        statuses = {e["body"]["call"]: e["body"]["status"] for e in events if e["type"] == "tool.finished"}
        counted = run.started()
        assert max(counted.values()) == 1
        for name, call in run.shell_calls(events).items():
            if statuses[call] == "ok":
                assert (counted[f"{name} start"], counted[f"{name} end"]) == (1, 1)
            else:
                assert statuses[call] == "unknown"
        unknown = [call for call, status in statuses.items() if status == "unknown"]
        told = server.requests[-1].body.decode()
        assert told.count("outcome unknown") == len(unknown)
        assert len(unknown) <= run.kills
    assert server.violations == []
