"""Words that a person takes back while they wait (`cancel.requested` of a prompt): they are gone, and nothing else is.

The measure is a state that never heard them: equal but for the numbers of the events that stand in between.
"""

import itertools
from typing import Any

import msgspec
import pytest

from muse.event.content import Block, Host, Settings, ToolSpec
from muse.event.conversation import Said
from muse.event.envelope import Event
from muse.event.kinds import (
    KINDS,
    AgentPaused,
    AgentSpawned,
    AgentSteered,
    CancelRequested,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    SessionOpened,
    UserPrompted,
)
from muse.fold.evolve import evolve
from muse.fold.state import Session

TYPES = {kind.body: name for name, kind in KINDS.items()}
OPENED = SessionOpened(
    format=1, rules=1, workspace="/w", host=Host(name="h", pid=1),
    settings=Settings(provider="p", dialect="scripted", model="m"),
    tools=(ToolSpec(name="shell", description="", schema="{}", recovery="opaque"),),
)  # fmt: skip
USE = Block(kind="tool_use", id="u1", name="shell", args="{}")
REQUESTED = ModelRequested(
    call="main/1", attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="", request_bytes=1
)
BUSY = [OPENED, AgentSpawned(tools=("shell",)), UserPrompted(text="go"), REQUESTED]
IN_A_BATCH = [*BUSY, ModelResponded(call="main/1", attempt=1, blocks=(USE,), stop="tool_use")]
SAID = ModelResponded(call="main/1", attempt=1, blocks=(Block(kind="text", text="Done."),), stop="end_turn")


def folded(*bodies: msgspec.Struct) -> Session:
    state = Session(session="s")
    for seq, body in enumerate(bodies, 1):
        evolve(state, Event(seq, f"{seq:032x}", "", TYPES[type(body)], 1, "main", 0, 1, body))
    return state


def plain(state: Session) -> Any:
    aside = ("seq", "cause", "prompts")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(part) for key, part in value.items() if key not in aside}
        return [without(part) for part in value] if isinstance(value, list) else value

    return without(msgspec.to_builtins(state))


@pytest.mark.parametrize(
    ("before", "words"),
    list(
        itertools.product(
            [BUSY, IN_A_BATCH],
            [
                UserPrompted(text="and this"),
                UserPrompted(text="and this", delivery="steer"),
                AgentSteered(text="and this"),
            ],
        )
    ),
)
def test_words_that_wait_are_taken_back_and_nothing_else_changes(
    before: list[msgspec.Struct], words: msgspec.Struct
) -> None:
    back = CancelRequested(target="prompt", prompt=len(before) + 1)
    never = folded(*before, NoteAdded(text="x"), NoteAdded(text="x"))
    heard = folded(*before, words)
    assert plain(heard) != plain(never)
    assert plain(folded(*before, words, back)) == plain(never)


def test_of_several_that_are_queued_one_is_taken_back() -> None:
    more = [UserPrompted(text=text) for text in ("one", "two", "three")]
    state = folded(*BUSY, *more, CancelRequested(target="prompt", prompt=len(BUSY) + 2))
    assert [said.text for said in state.agents["main"].queue] == ["one", "three"]


@pytest.mark.parametrize("prompt", [3, 4, 99])
def test_what_has_begun_or_is_no_prompt_cannot_be_taken_back(prompt: int) -> None:
    state = folded(*BUSY, CancelRequested(target="prompt", prompt=prompt))
    assert plain(state) == plain(folded(*BUSY, NoteAdded(text="x")))


def test_a_notice_that_joins_the_turn_is_nobodys_to_take_back() -> None:
    moved = msgspec.structs.replace(OPENED, workspace="/elsewhere", rules=2)
    state = folded(*IN_A_BATCH, moved, CancelRequested(target="prompt", prompt=len(IN_A_BATCH) + 1))
    assert [said.source for said in state.agents["main"].steers] == ["notice"]


def test_a_turn_that_went_on_for_these_words_only_is_over_when_they_are_taken_back() -> None:
    """The answer had come, but words waited to join: without them no request may follow upon an answer."""
    story = [*BUSY, AgentPaused(), AgentSteered(text="wait"), SAID]
    assert folded(*story).agents["main"].turn
    agent = folded(*story, CancelRequested(target="prompt", prompt=len(BUSY) + 2)).agents["main"]
    assert (agent.turn, agent.outcome) == (False, "done")


def test_a_prompt_taken_back_before_anybody_ran_the_session_begins_no_turn() -> None:
    first, second = UserPrompted(text="one"), UserPrompted(text="two")
    state = folded(OPENED, first, second, CancelRequested(target="prompt", prompt=3), AgentSpawned())
    agent = state.agents["main"]
    assert [agent.turn, len(agent.items), agent.queue] == [True, 1, []]


@pytest.mark.parametrize("words", [UserPrompted(text="wait", delivery="steer"), AgentSteered(text="wait")])
def test_words_to_a_turn_that_is_being_cancelled_begin_the_next_one(words: msgspec.Struct) -> None:
    """No request of that turn will follow, so they could join none, and they were acknowledged."""
    ending = [msgspec.structs.replace(OPENED, rules=3), *BUSY[1:], CancelRequested(), words]
    agent = folded(*ending, ModelFailed(call="main/1", attempt=1, failure="cancelled")).agents["main"]
    assert agent.turn
    assert [item.text for item in agent.items if isinstance(item, Said)][-1] == "wait"
