"""`muse spawn`: a person gives a task to an agent of its own, in a session that runs and in one that nobody runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from muse.ui.cli import completing
from tests.ui.asking import Answer, ask
from tests.ui.driving import WAITS, World, eventually, shell
from tests.ui.test_speaking_to_agents import Fan

TASK = "look for the cause"


@pytest.fixture
def fan(tmp_path: Path) -> Fan:
    """Nobody runs it."""
    made = Fan(tmp_path)
    made.telling.close()
    return made


def model(world: World, *steps: dict[str, Any], lane: list[dict[str, Any]]) -> str:
    """A model that says these steps, and the others to an agent whose task is TASK."""
    path = world.root / "script.json"
    path.write_text(json.dumps({"steps": steps, "lanes": [{"when": TASK, "steps": lane}]}))
    return f"scripted/{path}"


def of_type(world: World, kind: str) -> list[dict[str, Any]]:
    return [event for event in world.events() if event["type"] == kind]


def verified(world: World) -> None:
    done = world.run("replay", "last", "--verify")
    assert (done.code, "nothing diverges" in done.out) == (0, True), done


# -- sessions that run, and that go on ---------------------------------------------------------------------------------


def test_in_a_running_session_it_begins_at_once_and_main_is_told_what_it_found(world: World) -> None:
    lane = [{"uses": [shell("echo child >> count")]}, {"text": "The cause is the moon."}]
    script = model(world, {"uses": [shell(WAITS)]}, {"text": "Done."}, {"text": "The moon, then."}, lane=lane)
    host = world.start("exec", "--yolo", "-m", script, "do it")
    world.begun()
    said = [world.run("spawn", TASK, "--name", "scout", "--id", "mine", "--json") for _ in range(2)]
    assert [one.code for one in said] == [0, 0], said
    first, again = (json.loads(one.out) for one in said)
    assert first == again
    assert (first["agent"], first["running"], first["refused"]) == ("main.1", True, "")
    eventually(lambda: of_type(world, "agent.finished"))
    late = world.run("cancel", f"last@{first['seq']}")
    assert (late.code, "too late" in late.err, "main.1" in late.err) == (2, True, True)
    (world.work / "go").touch()
    assert host.communicate()[0] == "Done.\n"
    assert sorted((world.work / "count").read_text().split()) == ["child", "end", "start"]
    (wish,) = of_type(world, "agent.wanted")
    assert (wish["seq"], wish["agent"], wish["body"]["origin"]["user"]) == (first["seq"], "main", "ada")
    (_, child) = of_type(world, "agent.spawned")
    assert (child["agent"], child["cause"], child["body"]["wanted"]) == ("main.1", wish["seq"], wish["seq"])
    (delivery,) = of_type(world, "result.delivered")
    assert delivery["body"]["text"].startswith(
        f"[Agent main.1 (scout, started by the user) has ended: done]\nIts task: {TASK}\n\nThe cause is the moon."
    )
    asked = [event for event in of_type(world, "model.requested") if event["agent"] == "main"]
    assert delivery["seq"] < asked[1]["seq"], "it joined the running turn"
    verified(world)
    why = world.run("why", f"last@{child['seq']}")
    assert f"#{wish['seq']}" in why.out


def test_where_nobody_runs_it_is_kept_and_wakes_main_when_it_is_resumed(world: World) -> None:
    script = model(world, {"text": "Done."}, {"text": "Ah."}, lane=[{"text": "The moon."}])
    assert world.run("exec", "--yolo", "-m", script, "do it").out == "Done.\n"
    first = world.run("spawn", TASK)
    assert (first.code, first.out.partition(":")[2]) == (0, "main.1\n"), first
    assert "muse resume" in first.err
    other = json.loads(world.run("spawn", "something else", "--json").out)
    assert (other["agent"], other["running"]) == ("main.2", False)
    back = world.run("cancel", f"last@{other['seq']}", "--json")
    assert (back.code, json.loads(back.out)["taken_back"]) == (0, True)
    assert world.run("up", "--dry-run", "--json").out.count('"open"') == 1
    assert world.run("resume").out == "Ah.\n"
    assert [event["agent"] for event in of_type(world, "agent.spawned")] == ["main", "main.1"]
    assert len(of_type(world, "result.delivered")) == 1
    verified(world)
    shown = world.run("agents", "last")
    assert "main.1" in shown.out


def test_what_becomes_impossible_meanwhile_is_told_and_the_session_ends_as_ever(world: World) -> None:
    script = model(world, {"text": "Done."}, lane=[])
    folder = world.work / ".muse" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\ndescription: looks\n---\nYou look.\n")
    assert world.run("exec", "--yolo", "-m", script, "do it").code == 0
    name = ("spawn", TASK, "--role", "scout", "--id", "mine")
    assert world.run(*name).code == 0
    (folder / "scout.md").write_text("---\nname: seer\ndescription: looks\n---\nYou look.\n")
    assert world.run("resume").code == 0
    (refusal,) = of_type(world, "command.refused")
    assert (refusal["body"]["why"], refusal["body"]["text"]) == (
        "impossible", "There is no role 'scout'. There are: seer.",
    )  # fmt: skip
    again = world.run(*name, "--json")
    assert (again.code, json.loads(again.out)["refused"]) == (1, refusal["body"]["text"])
    assert "no role 'scout'" in world.run("log", "last").out
    verified(world)


def test_a_role_that_was_written_since_is_known_where_nobody_runs_the_session(world: World) -> None:
    script = model(world, {"text": "Done."}, {"text": "Ah."}, lane=[{"text": "Seen."}])
    assert world.run("exec", "--yolo", "-m", script, "do it").code == 0
    unknown = world.run("spawn", TASK, "--role", "scout")
    assert (unknown.code, "There is no role 'scout'" in unknown.err) == (2, True)
    folder = world.work / ".muse" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\ndescription: looks\nmode: plan\n---\nYou look.\n")
    assert world.run("spawn", TASK, "--role", "scout").code == 0
    assert world.run("resume").out == "Ah.\n"
    child = of_type(world, "agent.spawned")[1]["body"]
    assert (child["role"], child["mode"], "You look." in child["system"]) == ("scout", "plan", True)


# -- what is written, and what is refused ------------------------------------------------------------------------------


def wanted(fan: Fan, *args: str) -> tuple[dict[str, Any], Answer]:
    """The one event that it wrote."""
    before = fan.events()[-1]["seq"]
    done = fan.ask("spawn", *args)
    assert done.code == 0, done
    (event,) = fan.events(before)
    assert event["type"] == "agent.wanted"
    return event, done


def test_all_that_was_given_stands_in_the_event(fan: Fan) -> None:
    event, _ = wanted(
        fan, "00aaaaaa:main.2", TASK, "--name", "n", "--model", "m", "--tools", "shell, ask,shell", "--mode", "plan",
        "--isolation", "shared",
    )  # fmt: skip
    body = event["body"]
    assert body.pop("origin")["client"] == "cli"
    assert (event["agent"], body) == (
        "main.2",
        {"task": TASK, "name": "n", "model": "m", "tools": ["shell", "ask"], "mode": "plan", "isolation": "shared"},
    )  # fmt: skip
    assert wanted(fan, "00aaaaaa", "and that", "--tools", "")[0]["body"]["tools"] == []


def test_long_words_come_from_standard_input(fan: Fan) -> None:
    before = fan.events()[-1]["seq"]
    for args in (("spawn", "00aaaaaa", "-"), ("steer", "00aaaaaa:main.2", "-")):
        assert ask(fan.home, *args, stdin="a long\nstory").code == 0
    task, words = (event["body"] for event in fan.events(before))
    assert (task["task"], words["text"]) == ("a long\nstory", "a long\nstory")


def test_the_id_that_it_will_have_counts_what_is_wanted_before_it(fan: Fan) -> None:
    for number in (5, 6):
        _, done = wanted(fan, "00aaaaaa", TASK)
        assert done.out == f"00aaaaaa:main.{number}\n"
    fan.ask("pause", "00aaaaaa:main.2")
    event, done = wanted(fan, "00aaaaaa:main.2", TASK)
    assert done.out == f"00aaaaaa@{event['seq']}\n"
    assert f"muse cancel 00aaaaaa@{event['seq']}" in done.err
    row = next(
        row for row in json.loads(fan.ask("agents", "00aaaaaa", "--json").out)["agents"] if row["agent"] == "main.2"
    )
    assert row["queued"] == 1
    state = fan.ask("replay", "00aaaaaa", "--state").out
    assert f"an agent below it is wanted since #{event['seq']}" in state


def test_a_tree_with_nothing_but_wishes_can_be_cancelled(fan: Fan) -> None:
    wanted(fan, "00aaaaaa:main.4", TASK)
    assert fan.ask("cancel", "00aaaaaa:main.4", "--tree").code == 0
    assert fan.state.wants == {}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("00aaaaaa:main.3", TASK), "main.3 has finished"),
        (("00aaaaaa:main.9", TASK), "there is no agent main.9"),
        (("00aaaaaa", TASK, "--role", "nobody"), "There is no role 'nobody'"),
        (("00aaaaaa", TASK, "--tools", "ask,hammer"), "The session has no tool 'hammer'. It has: ask, shell"),
        (("00aaaaaa", TASK, "--model", "elsewhere/x"), "No provider for the model 'elsewhere/x'"),
        (("00aaaaaa", TASK, "--mode", "free"), "unknown permission mode 'free'"),
        (("00aaaaaa", TASK, "--isolation", "worktree"), "is in no git repository"),
        (("00aaaaaa", "  "), "there is nothing to say"),
        (("",), 'muse spawn "…"'),
        (("00aaaaaa", "x" * 100_001), "at most 100,000 characters"),
        (("00aaaaaa",), "what is to be said to 00aaaaaa?"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do_and_nothing_is_written(
    fan: Fan, args: tuple[str, ...], said: str
) -> None:
    before = fan.events()[-1]["seq"]
    done = fan.ask("spawn", *args)
    assert (done.code, done.out) == (2, ""), done
    assert said in done.err
    assert done.err.rstrip().count("\n") >= 1, "a hint"
    assert fan.events(before) == []


def test_below_an_agent_that_was_cancelled_nothing_is_spawned(fan: Fan) -> None:
    fan.ask("cancel", "00aaaaaa:main.2", "--agent")
    done = fan.ask("spawn", "00aaaaaa:main.2", TASK)
    assert (done.code, "main.2 was cancelled" in done.err, "muse spawn 00aaaaaa" in done.err) == (2, True, True)


def test_roles_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".muse" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\ndescription: looks\n---\nYou look.\n")
    monkeypatch.chdir(tmp_path)
    offered: Any = completing.roles(None, None, "s")  # type: ignore[arg-type]  # neither is looked at
    assert [(one.value, one.help) for one in offered] == [("scout", "looks")]
