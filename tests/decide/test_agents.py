"""What agents do to each other, case by case: given what models and people say, which decisions follow."""

import json
from typing import Any

import pytest

from muse.decide.agents import stricter
from muse.event.content import Role
from muse.event.conversation import Said
from muse.event.envelope import decode
from muse.event.kinds import AgentSteered, ApprovalDecided, CancelRequested, QuestionAnswered, UserPrompted
from tests.property.world import Played


def spawn(*tasks: str, **more: Any) -> tuple[str, str]:
    """A use of `spawn`: `more` is said of each child, but for `background`."""
    background = {"background": more.pop("background")} if "background" in more else {}
    return "spawn", json.dumps({"agents": [{"task": task, **more} for task in tasks], **background})


def begun(*uses: tuple[str, str], mode: str = "yolo", **settings: Any) -> Played:
    """A session whose model has asked for these."""
    world = Played()
    world.open(mode, 8, 0, list(uses), **settings)
    return world


def decided(world: Played) -> None:
    """All that is due is decided, as an owner does."""
    at = 0
    while at < world.state.seq and not world.state.closed:
        at = world.state.seq
        world.go_on(1)


def answers(world: Played, agent: str, *uses: tuple[str, str]) -> None:
    """The model of this agent answers its open request."""
    lanes = [one.id for one, _ in world.open_models()]
    world.model_responds(list(uses), "end_turn", lanes.index(agent))
    decided(world)


def events(world: Played, kind: str) -> list[Any]:
    """Those of this type so far."""
    told = [decode(header, body) for header, body in world.stored]
    return [event for event in told if event.type == kind]


def asking(world: Played) -> list[str]:
    return [agent.id for agent, _ in world.open_models()]


def test_children_of_one_call_are_numbered_by_the_call_and_their_results_end_it_in_that_order() -> None:
    world = begun(spawn("a", "b"))
    decided(world)
    (intent,) = events(world, "tool.started")
    children = events(world, "agent.spawned")[1:]
    assert [(event.agent, event.cause, event.body.index, event.body.task) for event in children] == [
        ("main.1", intent.seq, 0, "a"), ("main.2", intent.seq, 1, "b"),
    ]  # fmt: skip
    answers(world, "main.2")
    assert events(world, "tool.finished") == []
    answers(world, "main.1")
    (end,) = events(world, "tool.finished")
    assert end.body.text == "Agent main.1: done\n…\n\nAgent main.2: done\n…"
    assert events(world, "result.delivered") == [], "who waits in the foreground is given the result once"


def test_an_idle_parent_is_woken_once_all_in_the_background_have_ended() -> None:
    world = begun(spawn("a", "b", background=True))
    decided(world)
    answers(world, "main.1")
    assert [event.body.child for event in events(world, "result.delivered")] == ["main.1"]
    world = begun(spawn("a", "b", background=True))
    decided(world)
    answers(world, "main")
    answers(world, "main.1")
    assert (events(world, "result.delivered"), asking(world)) == ([], ["main.2"])
    answers(world, "main.2")
    assert [event.body.child for event in events(world, "result.delivered")] == ["main.1", "main.2"]
    assert asking(world) == ["main"]


def test_who_waits_for_children_gives_its_slot_up_so_that_they_can_work() -> None:
    world = begun(spawn("a", "b"), agents_parallel_max=1)
    decided(world)
    assert (world.state.held, world.state.waiting, asking(world)) == ({"main.1"}, ["main.2"], ["main.1"])
    answers(world, "main.1", spawn("deeper"))
    assert (world.state.held, world.state.waiting) == ({"main.2"}, ["main.1.1"])
    answers(world, "main.2")
    assert asking(world) == ["main.1.1"]
    answers(world, "main.1.1")
    assert asking(world) == ["main.1"]


@pytest.mark.parametrize("ends", [0, -1])
def test_so_many_work_at_once_and_the_rest_begins_in_the_order_of_spawning(ends: int) -> None:
    """Whoever of those that work ends first; the twelfth is no earlier than the third for its name."""
    world = begun(spawn(*(f"part {n}" for n in range(12)), isolation="shared"), agents_parallel_max=3)
    decided(world)
    most = 0
    while working := asking(world):
        most = max(most, len(working))
        if working == ["main"]:
            break
        answers(world, working[ends])
    began = [event.agent for event in events(world, "model.requested") if event.agent != "main"]
    assert (most, began) == (3, [f"main.{n}" for n in range(1, 13)])


@pytest.mark.parametrize(
    ("mode", "uses"),
    [
        ("default", [("write", '{"path":"a","content":""}'), ("read", '{"path":"b"}')]),
        ("accept-edits", [("shell", '{"command":"make"}'), ("write", '{"path":"a","content":""}')]),
        ("accept-edits", [("shell", '{"command":"make"}'), ("write", '{"path":"a","content":""}'), ("wait", "{}")]),
    ],
)
def test_who_has_only_calls_behind_one_that_asks_a_person_gives_its_slot_up(
    mode: str, uses: list[tuple[str, str]]
) -> None:
    world = begun(spawn("a", "b", isolation="shared"), agents_parallel_max=1, mode=mode)
    decided(world)
    assert asking(world) == ["main.1"]
    answers(world, "main.1", *uses)
    assert (len(events(world, "approval.requested")), events(world, "tool.started")[1:]) == (1, [])
    assert (world.state.held, asking(world)) == ({"main.2"}, ["main.2"])
    answers(world, "main.2")
    request = events(world, "approval.requested")[0]
    allowed = ApprovalDecided(call=request.body.call, decision="allow", by="person", request=request.seq)
    world.append(allowed, "main.1")
    decided(world)
    assert world.state.held == {"main.1"}
    assert [event.body.tool for event in events(world, "tool.started")[1:]] == [uses[0][0]]


def test_a_call_that_is_cancelled_half_way_spawns_no_more() -> None:
    world = begun(spawn("a", "b", background=True))
    world.go_on(2)
    assert [event.agent for event in events(world, "agent.spawned")] == ["main", "main.1"]
    world.append(CancelRequested(target="call", call="main/2"))
    decided(world)
    assert [event.agent for event in events(world, "agent.spawned")] == ["main", "main.1"]


def test_a_cancelled_tree_ends_from_below_and_starts_nothing_again() -> None:
    world = begun(spawn("a", background=True))
    decided(world)
    answers(world, "main.1", spawn("deeper"))
    world.append(CancelRequested(target="tree", why="enough"), "main.1")
    lanes = asking(world)
    world.model_fails("cancelled", None, 0, lanes.index("main.1.1"))
    decided(world)
    ends = [(event.agent, event.body.outcome) for event in events(world, "agent.finished")]
    assert ends == [("main.1.1", "cancelled"), ("main.1", "cancelled")]
    world.append(UserPrompted(text="up!"), "main.1")
    world.crash()
    decided(world)
    assert "main.1" not in asking(world)
    assert world.state.unfinished == set()


@pytest.mark.parametrize("first_ends", [False, True])
def test_a_cancelled_tree_wakes_no_parent_that_was_idle(first_ends: bool) -> None:
    world = begun(spawn("a", "b", background=True))
    decided(world)
    answers(world, "main")
    if first_ends:
        answers(world, "main.1")
    world.append(CancelRequested(target="tree", why="enough"), "main")
    while lanes := [lane for lane in asking(world) if lane != "main"]:
        world.model_fails("cancelled", None, 0, asking(world).index(lanes[0]))
        decided(world)
    assert (asking(world), events(world, "result.delivered"), world.state.unfinished) == ([], [], set())
    assert world.state.agents["main"].outcome == "cancelled"
    world.append(UserPrompted(text="and now?"))
    decided(world)
    assert [event.body.child for event in events(world, "result.delivered")] == ["main.1", "main.2"], "it is told then"
    assert asking(world) == ["main"]


def test_who_was_cancelled_hears_nobody_however_often_the_session_is_opened_again() -> None:
    world = begun(spawn("a", background=True))
    decided(world)
    world.append(CancelRequested(target="agent"), "main.1")
    world.model_fails("cancelled", None, 0, asking(world).index("main.1"))
    decided(world)
    for _ in range(3):
        world.crash()
        for words in (UserPrompted(text="up!"), AgentSteered(text="up!")):
            world.append(words, "main.1")
        decided(world)
        assert "main.1" not in asking(world)
        assert world.state.unfinished == set()
    assert [event.body.outcome for event in events(world, "agent.finished")] == ["cancelled"]


@pytest.mark.parametrize("how", ["cancelled", "replaced"])
def test_what_another_agent_said_to_a_turn_that_is_ended_is_read_in_the_next_one(how: str) -> None:
    world = begun(spawn("a", background=True), ("wait", "{}"))
    decided(world)
    answers(world, "main.1", ("message", '{"to":"parent","text":"the key is under the mat"}'))
    world.append(AgentSteered(text="by noon"), "main")
    if how == "cancelled":
        world.append(CancelRequested(target="turn"), "main")
        decided(world)
    world.append(UserPrompted(text="then this", delivery="replace" if how == "replaced" else "queue"), "main")
    decided(world)
    assert "main" in asking(world)
    texts = [item.text for item in world.state.agents["main"].items if isinstance(item, Said)]
    assert [text for text in texts if "under the mat" in text] == ["[Message from main.1]\nthe key is under the mat"]
    assert "by noon" not in texts, "what a person said to that turn goes with it"


def test_a_result_that_was_not_read_yet_gives_way_to_that_of_the_next_turn() -> None:
    world = begun(spawn("a", background=True))
    decided(world)
    world.model_responds([], "end_turn", asking(world).index("main.1"))
    (end,) = world.own_due("main.1")
    world.take(end)
    assert [type(one.body).__name__ for one in world.own_due("main")] == ["ResultDelivered"]
    world.append(AgentSteered(text="and?"), "main.1")
    assert world.own_due("main") == []
    decided(world)
    answers(world, "main.1")
    assert len(events(world, "result.delivered")) == 1
    assert len(events(world, "agent.finished")) == 2


def test_agents_that_wake_each_other_come_to_the_limit_of_model_calls() -> None:
    """Nobody speaks to either of them: a result wakes the one, a message the other."""
    world = begun(spawn("a", background=True))
    decided(world)
    ping = ("message", json.dumps({"to": "main.1", "text": "ping"}))
    for _ in range(40):
        if "main" in asking(world):
            answers(world, "main", *([] if "main.1" in asking(world) else [ping]))
        elif "main.1" in asking(world):
            answers(world, "main.1")
    requests = [event.agent for event in events(world, "model.requested")]
    most = world.settings.model_calls_max
    assert (requests.count("main"), asking(world)) == (most, [])
    assert [(event.agent, event.body.limit) for event in events(world, "budget.reached")] == [("main", "model_calls")]
    world.append(UserPrompted(text="go on"))
    decided(world)
    assert asking(world) == ["main"], "a person's words begin the count anew"


def test_of_several_answers_to_a_question_the_first_counts() -> None:
    world = begun(("ask", '{"question": "Which?"}'))
    decided(world)
    (question,) = events(world, "question.asked")
    world.append(QuestionAnswered(question=question.seq, text="red"))
    world.append(QuestionAnswered(question=question.seq, text="blue"))
    decided(world)
    assert [event.body.text for event in events(world, "tool.finished")] == ["red"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"agents_total_max": 1}, "A session may have 1 agents"), ({"agents_depth_max": 0}, "0 levels deep")],
)
def test_more_agents_than_may_be_are_refused_as_a_whole(settings: dict[str, int], said: str) -> None:
    world = begun(spawn("a", "b"), **settings)
    decided(world)
    (end,) = events(world, "tool.finished")
    assert end.body.status == "error"
    assert said in str(end.body.text)
    assert len(events(world, "agent.spawned")) == 1


def test_a_role_whose_model_no_provider_has_is_refused_with_the_name_of_its_file() -> None:
    world = begun(spawn("a", role="far"))
    world.state.roles = (Role(name="far", model="nobody/m", path="/r/far.md"),)
    decided(world)
    (end,) = events(world, "tool.finished")
    said = "No provider for the model 'nobody/m', which the role far (/r/far.md) names: name another for this agent."
    assert (end.body.status, end.body.text) == ("error", said)


@pytest.mark.parametrize(
    ("asked", "found"), [("", "plan"), ("yolo", "plan"), ("accept-edits", "plan"), ("plan", "plan")]
)
def test_no_agent_frees_another_from_the_mode_of_its_role(asked: str, found: str) -> None:
    world = begun(("spawn", json.dumps({"agents": [{"task": "look", "role": "scout", "mode": asked}]})))
    world.state.roles = (Role(name="scout", mode="plan"),)
    decided(world)
    assert world.state.agents["main.1"].mode == found


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("yolo", "plan", "plan"),
        ("default", "yolo", "default"),
        ("", "yolo", "yolo"),
        ("accept-edits", "", "accept-edits"),
    ],
)
def test_the_stricter_of_two_modes_holds(one: str, other: str, found: str) -> None:
    assert stricter(one, other) == stricter(other, one) == found
