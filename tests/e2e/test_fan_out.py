"""One prompt fans out to eight children; people steer, cancel and answer; the host is killed again and again."""

import json
import random
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from muse.testing.wire import AnthropicServer
from tests.crash.matrix.case import LAUNCH
from tests.crash.task import seed
from tests.e2e.rig import Event, Rig
from tests.night import checks, work
from tests.night.fan_out import ANSWER, CANCELLED, CHILDREN, ISOLATED, QUESTION, STEER, WHY, Fire, script

KILLS = 10
CALLS = 4


@pytest.fixture(scope="module")
def fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fire]:
    """Such a session, killed ten times (`make night` kills it fifty times)."""
    with AnthropicServer(script(CALLS)) as server, Rig(tmp_path_factory.mktemp("fire"), work.files(CHILDREN)) as rig:
        rig.provider("anthropic", server.base_url)
        played = Fire(rig, server, CALLS, KILLS, random.Random(seed()))
        played.play()
        yield played


@pytest.mark.long
def test_killed_ten_times_each_child_runs_once_and_every_zero_is_a_zero(fire: Fire) -> None:
    assert fire.session.kills == KILLS
    assert fire.findings() == []


@pytest.mark.long
def test_what_people_said_counts_once_whoever_was_alive_to_hear_it(fire: Fire) -> None:
    assert sorted(fire.person.said) == ["answer", "cancel", "steer"]
    for kind in ("agent.steered", "question.answered"):
        assert fire.session.count(kind) == 1
    cancels = [e for e in fire.session.events if e["type"] == "cancel.requested"]
    assert [event["body"].get("why") for event in cancels] == [WHY]


@pytest.mark.long
def test_replay_shows_every_spawn_steer_cancel_question_answer_and_result_in_the_order_of_the_log(fire: Fire) -> None:
    name = fire.rig.session()
    as_json = fire.rig.muse("replay", name, "--json").stdout
    assert as_json == "".join(fire.session.lines)
    plain = fire.rig.muse("replay", name).stdout
    at = 0
    for event in map(json.loads, as_json.splitlines()):
        if words := shown_of(event):
            found = plain.find(f"#{event['seq']} ", at)
            assert found >= at, f"#{event['seq']} is not shown after {plain[at : at + 200]!r}"
            row = plain[found : plain.find("\n#", found)] if "\n#" in plain[found:] else plain[found:]
            assert all(word in row for word in words), (words, row)
            at = found
    verified = fire.rig.muse("replay", name, "--verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def shown_of(event: Event) -> tuple[str, ...]:
    """What its row must say."""
    body = event["body"]
    match event["type"]:
        case "agent.spawned" if event["agent"] != "main":
            return (event["agent"], body["task"][:20])
        case "agent.steered":
            return (STEER,)
        case "cancel.requested":
            return (WHY,)
        case "question.asked":
            return (QUESTION,)
        case "question.answered":
            return (ANSWER,)
        case "agent.finished" if body["outcome"] == "done":
            return (event["agent"], body["text"][:10])
        case "result.delivered":
            return (body["child"],)
    return ()


def planted(events: list[Event], fault: str) -> list[Event]:
    """A log in which something went wrong."""
    copy = [event | {"body": dict(event["body"])} for event in events]
    spawned = [event for event in copy if event["type"] == "agent.spawned"]
    match fault:
        case "spawned twice":
            copy.append(spawned[-1] | {"agent": "main.9"})
        case "ended twice":
            copy.append(next(event for event in copy if event["type"] == "agent.finished"))
        case "never ended":
            copy.remove(next(event for event in copy if event["type"] == "agent.finished"))
        case "begins before it is spawned":
            copy.remove(spawned[-1])
            copy.append(spawned[-1])
        case "begun after its result":
            copy.append(next(event for event in copy if event["type"] == "tool.started"))
        case "no doubt is told":
            copy = [event for event in copy if event["type"] != "effect.doubted"]
        case "no result is told":
            copy.remove(next(event for event in copy if event["type"] == "tool.finished"))
    return copy


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "zero"),
    [
        ("spawned twice", "run again"), ("ended twice", "run again"), ("never ended", "lost"),
        ("begins before it is spawned", "lost"), ("begun after its result", "run again"),
        ("no doubt is told", "silent"), ("no result is told", "lost"),
    ],
)  # fmt: skip
def test_a_fault_that_is_planted_in_the_log_is_counted_where_it_belongs(fire: Fire, fault: str, zero: str) -> None:
    events = planted(fire.session.events, fault)
    found = checks.born_and_ended_once(events, range(1, CHILDREN + 1)) + checks.calls_once(events)
    found += checks.silent(events)
    found += checks.effects(fire.rig, events, fire.scripts, set(), {CANCELLED}, ISOLATED)
    assert zero in {finding.zero for finding in found}, found


@pytest.mark.long
def test_an_effect_that_was_counted_twice_and_one_that_was_not_are_found(fire: Fire) -> None:
    path = fire.rig.home / work.COUNT / "c1.txt"
    counted = path.read_text()
    for changed, zero in ((counted + "c1s0 start\n", "run again"), (counted.replace("c1s0 end\n", ""), "lost")):
        path.write_text(changed)
        found = checks.effects(fire.rig, fire.session.events, fire.scripts, set(), {CANCELLED}, ISOLATED)
        path.write_text(counted)
        assert [finding.zero for finding in found] == [zero]


@pytest.mark.long
def test_a_runtime_that_tells_an_agent_what_its_sibling_said_is_found_out(tmp_path: Path) -> None:
    with AnthropicServer(script(2), long=True) as server, Rig(tmp_path, work.files(CHILDREN)) as rig:
        rig.provider("anthropic", server.base_url)
        rig.command = [sys.executable, str(LAUNCH), "leaks"]
        leaking = Fire(rig, server, 2, 0, random.Random(1))
        leaking.play()
        agents = checks.numbers_of(leaking.session.events)
        found = checks.requests(leaking.session.events, server.requests, leaking.words(agents))
    assert any(
        re.search(r"a request of main\.\d holds OPAL\dX, which is of main\.\d", finding.text) for finding in found
    ), found


@pytest.mark.long
def test_a_leak_that_is_planted_is_found(fire: Fire) -> None:
    """One request of child 3 says a word of child 2: the checker, which found nothing, finds that and nothing else."""
    agents = checks.numbers_of(fire.session.events)
    words, said = fire.words(agents), f'"{work.secret(3)}: step 0.'.encode()
    asked = {e["body"]["request_sha256"]: e for e in fire.session.events if e["type"] == "model.requested"}
    last = [one for one in fire.server.requests if said in one.body][-1]
    event = asked[sha256(last.body).hexdigest()]
    leak = msgspec.structs.replace(last, body=last.body.replace(b"number 3", work.secret(2).encode(), 1))
    changed = event | {"body": event["body"] | {"request_sha256": sha256(leak.body).hexdigest()}}
    events = [changed if one is event else one for one in fire.session.events]
    received = [leak if one is last else one for one in fire.server.requests]
    assert checks.requests(fire.session.events, fire.server.requests, words) == []
    found = [finding.text for finding in checks.requests(events, received, words)]
    assert any(f"a request of {agents[3]} holds {work.secret(2)}, which is of {agents[2]}" in text for text in found)
