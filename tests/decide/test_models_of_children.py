"""Given a child whose model another agent chose for it, when that model cannot be had, then its parent is told; what
concerns the whole session waits for a person."""

from typing import Any

import pytest

from muse.event.content import Host, Role
from muse.event.kinds import AgentFinished, AgentSpawned, ModelChanged, ResultDelivered, SessionOpened
from tests.decide.test_due import kinds
from tests.decide.test_limits import Fleet, begun, model

OWN = {"provider": "shop", "dialect": "openai", "model": "big"}
PLACES = (model("shop", "openai", ""), model("far", "openai", ""))


def asking(chosen: str, **settings: Any) -> Fleet:
    """Main has asked and waits; its child has just asked the model that was chosen for it."""
    story = begun(**(OWN | {"models": PLACES, "model_attempts_max": 1} | settings))
    story.ask()
    story.event(AgentSpawned(task="look", parent="main", call="main/2", system="s", model=chosen), "main.1")
    story.ask("main.1")
    return story


@pytest.mark.parametrize(
    ("chosen", "failure", "status"),
    [
        ("far/small", "auth", 401), ("far/small", "auth", 402), ("far/small", "invalid", 404),
        ("far/small", "network", 0), ("far/small", "server", 500), ("far/small", "too_large", 413),
        ("shop/none", "invalid", 404), ("none", "invalid", 400), ("shop/dear", "auth", 403), ("", "too_large", 413),
    ],
)  # fmt: skip
def test_a_child_whose_model_cannot_be_had_finishes_as_failed(chosen: str, failure: str, status: int) -> None:
    story = asking(chosen)
    story.fails(failure, "main.1", status=status, message="it says no")
    finished, delivered = story.take()
    assert isinstance(finished, AgentFinished)
    assert isinstance(delivered, ResultDelivered)
    assert finished.outcome == "failed"
    assert finished.text.endswith(f" gave no answer: {failure}: it says no")
    assert (chosen.rpartition("/")[2] or "shop/big") in finished.text


@pytest.mark.parametrize(
    ("chosen", "failure", "status"),
    [
        ("", "auth", 401), ("shop/other", "auth", 401), ("shop/big", "auth", 403), ("shop/other", "network", 0),
        ("", "network", 0),
    ],
)  # fmt: skip
def test_what_concerns_the_sessions_own_provider_waits_for_a_person(chosen: str, failure: str, status: int) -> None:
    story = asking(chosen)
    story.fails(failure, "main.1", status=status)
    assert not any(isinstance(one, AgentFinished) for one in story.take())
    story.open()
    assert story.ask("main.1").attempt == 2, "when the session is opened again, it is tried again"


def test_who_was_answered_before_is_not_given_up_for_a_network_that_fails() -> None:
    story = asking("far/small")
    story.answers(story.state.usage, "main.1")
    story.ask("main.1")
    story.fails("network", "main.1")
    assert story.next("main.1") == []
    story.open()
    story.ask("main.1")
    story.fails("auth", "main.1", status=401)
    assert kinds(story.next("main.1")) == [AgentFinished], "a key that is gone is another matter"


@pytest.mark.parametrize("failure", ["auth", "invalid", "network"])
def test_before_a_child_is_given_up_it_goes_through_the_fallbacks(failure: str) -> None:
    spare = model("third", "openai", "m")
    story = asking("far/small", fallbacks=(model("far", "openai", "tiny"), spare))
    story.fails(failure, "main.1")
    (changed,) = story.take(1)
    assert isinstance(changed, ModelChanged)
    of_far = failure != "auth"
    assert changed.model == ("tiny" if of_far else "m"), "another model of the provider does not mend its key"
    story.ask("main.1")
    story.answers(story.state.usage, "main.1", uses=False)
    assert kinds(story.next("main.1")) == [AgentFinished]


def test_a_fallback_that_lacks_its_key_is_a_persons_matter() -> None:
    story = asking("far/small", fallbacks=(model("third", "openai", "m"),))
    story.fails("invalid", "main.1", status=404)
    story.take(1)
    story.ask("main.1")
    story.fails("auth", "main.1", status=401)
    assert story.next("main.1") == []


def test_a_child_and_its_own_child_at_the_same_foreign_provider_both_end() -> None:
    story = asking("far/small")
    story.event(AgentSpawned(task="look", parent="main.1", call="main.1/9", system="s", model="far/small"), "main.1.1")
    story.ask("main.1.1")
    story.fails("auth", "main.1.1", status=401)
    story.fails("auth", "main.1", status=401)
    assert kinds(story.take()).count(AgentFinished) == 2
    assert "main.1 has ended: failed" in story.state.agents["main"].steers[-1].text


def test_the_role_file_that_names_the_model_is_named() -> None:
    path = "/repo/.muse/agents/scout.md"
    story = asking("")
    role, host = Role(name="scout", model="none", path=path), Host(name="h", pid=1)
    story.event(SessionOpened(format=1, rules=1, workspace="/w", host=host, settings=story.settings, roles=(role,)))
    spawn = AgentSpawned(task="look", parent="main", call="main/3", system="s", model="none", role="scout")
    story.event(spawn, "main.2")
    story.ask("main.2")
    story.fails("invalid", "main.2", status=404, message="model: none")
    (told,) = [one.text for one in story.next("main.2") if isinstance(one, AgentFinished)]
    assert told == f"its model shop/none, which the role scout ({path}) names, gave no answer: invalid: model: none"
