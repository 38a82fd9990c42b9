"""Agents that a person wants, case by case: what becomes of a wish, of the child, and of what its parent is told."""

import json
from typing import Any

import pytest

from muse.event.content import Git
from muse.event.conversation import Said
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentWanted,
    CancelRequested,
    CommandRefused,
    UserPrompted,
)  # fmt: skip
from tests.decide.test_agents import answers, asking, begun, decided, events, spawn
from tests.property.world import Played


def want(world: Played, agent: str = "main", **more: Any) -> int:
    """A person wants an agent; its seq."""
    world.append(AgentWanted(**({"task": "look at it"} | more)), agent)
    world.wanted.add(world.state.seq)
    return world.state.seq


def idle(**settings: Any) -> Played:
    """A session whose `main` has answered, and which has closed."""
    world = begun(**settings)
    decided(world)
    assert world.state.closed
    return world


def children(world: Played) -> list[Any]:
    return [event for event in events(world, "agent.spawned") if event.agent != "main"]


def refused(world: Played) -> list[str]:
    return [event.body.text for event in events(world, "command.refused")]


def notices(world: Played, agent: str = "main") -> list[str]:
    """What the agent was told by nobody in particular."""
    found = world.state.agents[agent]
    return [item.text for item in (*found.items, *found.steers) if isinstance(item, Said) and item.source != "prompt"]


def test_it_is_a_child_in_the_background_whose_result_wakes_main_once() -> None:
    world = idle()
    seq = want(world, name="scout", task="look for the cause")
    decided(world)
    (child,) = children(world)
    assert (child.agent, child.cause) == ("main.1", seq)
    body = child.body
    assert (body.parent, body.call, body.index, body.background, body.wanted) == ("main", "", 0, True, seq)
    assert asking(world) == ["main.1"], "its parent goes on doing nothing"
    answers(world, "main.1")
    assert asking(world) == ["main"]
    assert notices(world) == [
        "[Agent main.1 (scout, started by the user) has ended: done]\nIts task: look for the cause\n\n…"
    ]
    answers(world, "main")
    assert world.state.closed
    assert len(events(world, "result.delivered")) == 1


def test_it_comes_beside_what_the_parent_does_and_reaches_it_at_its_next_request() -> None:
    world = begun(("shell", '{"command": "make"}'))
    decided(world)
    want(world)
    decided(world)
    answers(world, "main.1")
    assert [event.body.child for event in events(world, "result.delivered")] == ["main.1"]
    assert asking(world) == [], "main is in its command"
    world.tool_ends(0, "ok")
    decided(world)
    assert asking(world) == ["main"]
    assert len(notices(world)) == 1


def test_children_of_calls_and_of_people_are_numbered_together() -> None:
    world = begun(spawn("a", background=True))
    decided(world)
    want(world)
    want(world)
    decided(world)
    answers(world, "main", spawn("b", background=True))
    assert [(event.agent, event.body.call) for event in children(world)] == [
        ("main.1", "main/2"), ("main.2", ""), ("main.3", ""), ("main.4", "main/4"),
    ]  # fmt: skip


def test_one_that_is_wanted_before_main_has_begun_comes_as_soon_as_it_has() -> None:
    world = Played()
    world.open_silent("yolo", 8, 0)
    want(world)
    decided(world)
    assert [event.agent for event in events(world, "agent.spawned")] == ["main", "main.1"]
    answers(world, "main.1")
    assert (world.state.closed, asking(world)) == (True, []), "a person has spoken, though not to main"
    world.append(UserPrompted(text="and?"))
    decided(world)
    assert len(notices(world)) == 1


def test_a_crash_in_between_changes_nothing() -> None:
    world = idle()
    want(world)
    for _ in range(3):
        world.crash()
    world.go_on(1)
    world.crash()
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1"]


def test_its_tools_are_its_parents_or_any_of_the_session_that_are_named() -> None:
    world = begun(spawn("scouting", role="scout", background=True))
    decided(world)
    assert children(world)[0].body.tools == ("read", "spawn", "ask")
    want(world, "main.1")
    want(world, "main.1", tools=("write", "shell"))
    want(world, "main", role="scout")
    want(world, "main", role="scout", tools=("shell",))
    decided(world)
    given = {event.agent: event.body.tools for event in children(world)}
    assert given["main.1.1"] == ("read", "spawn", "ask")
    assert given["main.1.2"] == ("write", "shell"), "a person may give what the parent has not"
    assert given["main.2"] == ("read", "spawn", "ask")
    assert given["main.3"] == ("shell",), "what is named counts more than the role"


def test_its_mode_is_never_freer_than_its_parents() -> None:
    world = begun(spawn("planning", mode="plan", background=True))
    decided(world)
    want(world, "main.1", mode="yolo")
    want(world, mode="default")
    want(world, role="scout")
    decided(world)
    modes = {event.agent: event.body.mode for event in children(world)}
    assert modes == {"main.1": "plan", "main.1.1": "plan", "main.2": "default", "main.3": "plan"}


def test_one_that_may_write_has_a_working_tree_of_its_own_where_there_can_be_one() -> None:
    world = begun()
    world.git = Git(root="/w", head="c0ffee", branch="main")
    world.crash()
    decided(world)
    for more in ({}, {"isolation": "shared"}, {"tools": ("read",)}, {"mode": "plan"}):
        want(world, **more)
    decided(world)
    assert [event.body.isolation for event in children(world)] == ["worktree", "shared", "shared", "shared"]


def test_below_a_paused_agent_it_waits_and_the_pause_holds() -> None:
    world = begun(("shell", '{"command": "make"}'))
    decided(world)
    world.append(AgentPaused())
    want(world)
    world.crash()
    decided(world)
    assert children(world) == []
    world.append(AgentContinued())
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1"]


def test_below_an_agent_whose_tree_is_being_made_it_waits_for_that() -> None:
    world = begun(spawn("a", isolation="worktree", background=True))
    decided(world)
    want(world, "main.1")
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1"]
    world.tree_is_there(0)
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1", "main.1.1"]


def test_an_agent_does_not_finish_while_one_is_wanted_below_it() -> None:
    world = begun(spawn("a", background=True))
    decided(world)
    world.append(AgentPaused(), "main.1")
    want(world, "main.1")
    world.model_responds([], "end_turn", asking(world).index("main.1"))
    decided(world)
    assert events(world, "agent.finished") == []
    world.append(AgentContinued(), "main.1")
    decided(world)
    assert asking(world) == ["main", "main.1.1"]
    answers(world, "main.1.1")
    answers(world, "main.1")
    assert [event.agent for event in events(world, "agent.finished")] == ["main.1.1", "main.1"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"role": "nobody"}, "There is no role 'nobody'. There are: scout, smith."),
        ({"model": "other/x"}, "No provider for the model 'other/x': leave it out for that of main."),
        ({"mode": "free"}, "unknown permission mode 'free'"),
        ({"tools": ("hammer",)}, "The session has no tool 'hammer'. It has: apply, ask, cancel, "),
        ({"task": ""}, "It cannot be read: "),
        ({"task": "x" * 100_001}, "It cannot be read: "),
    ],
)
def test_what_cannot_be_is_refused_in_words_and_nothing_stays_open(more: dict[str, Any], why: str) -> None:
    world = idle()
    seq = want(world, **more)
    decided(world)
    (event,) = events(world, "command.refused")
    assert (event.agent, event.cause, event.body.command, event.body.why) == ("main", seq, seq, "impossible")
    assert event.body.text.startswith(why)
    assert (world.state.wants, children(world), world.state.closed) == ({}, [], True)


def test_the_last_place_is_given_once_and_who_came_too_late_is_told() -> None:
    world = begun(spawn("a", background=True), agents_total_max=2)
    decided(world)
    want(world)
    want(world, "main.1")
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1", "main.2"]
    assert refused(world) == ["A session may have 2 agents, and 2 are there already."]


def test_the_deepest_agents_have_none_below_them() -> None:
    world = begun(spawn("a", background=True), agents_depth_max=1)
    decided(world)
    want(world, "main.1")
    decided(world)
    assert refused(world) == ["Agents can be spawned 1 levels deep, and main.1 is on the last."]


def test_below_who_has_ended_there_is_none() -> None:
    world = begun(spawn("a", "b", background=True))
    decided(world)
    answers(world, "main.1")
    want(world, "main.1")
    decided(world)
    world.append(CancelRequested(target="agent"), "main.2")
    want(world, "main.2")
    decided(world)
    assert refused(world) == [
        "main.1 has finished: nobody there would read the result.", "main.2 was cancelled, and stays so.",
    ]  # fmt: skip


@pytest.mark.parametrize(("target", "there"), [("turn", 1), ("agent", 0), ("tree", 0)])
def test_a_cancelled_agent_has_none_that_waited_but_a_cancelled_turn_lets_them_come(target: Any, there: int) -> None:
    world = begun(("shell", '{"command": "make"}'))
    decided(world)
    world.append(AgentPaused())
    want(world)
    world.append(CancelRequested(target=target))
    world.tool_ends(0, "ok")
    world.append(AgentContinued())
    decided(world)
    assert (len(children(world)), refused(world)) == (there, [])


def test_it_can_be_taken_back_while_it_waits() -> None:
    world = idle()
    first, second = want(world), want(world, task="the other")
    world.append(CancelRequested(target="prompt", prompt=first))
    decided(world)
    assert [(event.agent, event.cause) for event in children(world)] == [("main.1", second)]
    world.append(CancelRequested(target="prompt", prompt=second))
    decided(world)
    assert asking(world) == ["main.1"], "that was too late"


def test_what_an_owner_does_not_follow_never_was() -> None:
    world = idle()
    seq = want(world)
    world.append(CommandRefused(command=seq, why="below_runner"), "main", seq)
    decided(world)
    assert (world.state.wants, children(world)) == ({}, [])


def test_its_parent_waits_for_it_speaks_to_it_and_stops_it_as_its_own() -> None:
    world = begun(("wait", "{}"), spawn("own", background=True))
    want(world, name="scout")
    decided(world)
    assert [event.agent for event in children(world)] == ["main.1", "main.2"]
    answers(world, "main.1", ("message", '{"to": "parent", "text": "half of it"}'))
    said = [steer.text for steer in world.state.agents["main"].steers]
    assert said == ["[Message from main.1, which the user started]\nhalf of it"]
    answers(world, "main.2")
    assert events(world, "tool.finished")[-1].agent != "main", "it waits for both"
    answers(world, "main.1")
    (waited,) = [event.body.text for event in events(world, "tool.finished") if event.body.call == "main/2"]
    assert waited.startswith("- Agent main.1 (scout, started by the user): done\n- Agent main.2: done")
    answers(world, "main", ("result", json.dumps({"agent": "main.1"})), ("cancel", json.dumps({"agent": "main.1"})))
    texts = [event.body.text for event in events(world, "tool.finished") if event.agent == "main"][-2:]
    assert texts == ["Agent main.1 (scout, started by the user): done\n…", "main.1 had ended already: done."]
