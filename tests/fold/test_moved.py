"""A session that goes on in another folder: the agent is told at its next request, under rules that say so."""

import msgspec
import pytest

from muse.event.content import Block, Host, Settings, ToolSpec
from muse.event.conversation import Said
from muse.event.envelope import Event
from muse.event.kinds import (
    KINDS,
    AgentSpawned,
    CancelRequested,
    ModelRequested,
    ModelResponded,
    SessionOpened,
    UserPrompted,
)
from muse.fold.evolve import evolve
from muse.fold.state import Session

TYPES = {kind.body: name for name, kind in KINDS.items()}
SHELL = ToolSpec(name="shell", description="", schema="{}", recovery="opaque")
USE = Block(kind="tool_use", id="u1", name="shell", args="{}")


def opened(folder: str, rules: int = 2) -> SessionOpened:
    settings = Settings(provider="p", dialect="scripted", model="m")
    return SessionOpened(
        format=1, rules=rules, workspace=folder, host=Host(name="h", pid=1), settings=settings, tools=(SHELL,)
    )


def requested(call: str, items: int) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b/1", items=items, request_sha256="", request_bytes=1
    )


def responded(call: str, *blocks: Block) -> ModelResponded:
    return ModelResponded(call=call, attempt=1, blocks=blocks, stop="tool_use" if blocks else "end_turn")


def folded(*bodies: msgspec.Struct) -> Session:
    state = Session(session="s")
    for seq, body in enumerate(bodies, 1):
        evolve(state, Event(seq, f"{seq:032x}", "", TYPES[type(body)], 1, "main", 0, 1, body))
    return state


BEGUN = [AgentSpawned(tools=("shell",)), UserPrompted(text="go"), requested("main/1", 1)]
IDLE = [*BEGUN, responded("main/1")]
IN_A_BATCH = [*BEGUN, responded("main/1", USE)]


def told(state: Session) -> list[str]:
    agent = state.agents["main"]
    return [item.text for item in (*agent.items, *agent.steers) if isinstance(item, Said) and item.source == "notice"]


@pytest.mark.parametrize("before", [IDLE, IN_A_BATCH])
def test_an_agent_is_told_where_its_workspace_is_now_and_was(before: list[msgspec.Struct]) -> None:
    (notice,) = told(folded(opened("/old"), *before, opened("/new/place")))
    assert "/new/place" in notice
    assert "/old" in notice


def test_it_is_told_of_each_move_and_of_nothing_else() -> None:
    assert told(folded(opened("/a"), *IDLE, opened("/a"))) == []
    assert len(told(folded(opened("/a"), *IDLE, opened("/b"), opened("/b"), opened("/a")))) == 2
    assert told(folded(opened("/a"), opened("/b"), *IDLE)) == []  # it was spawned there


def test_the_notice_never_stands_between_a_call_and_its_result() -> None:
    state = folded(opened("/a"), *IN_A_BATCH, opened("/b"))
    assert [type(item) for item in state.agents["main"].items] != []
    assert not any(isinstance(item, Said) and item.source == "notice" for item in state.agents["main"].items)
    assert len(state.agents["main"].steers) == 1


def test_a_cancelled_turn_does_not_take_the_notice_away() -> None:
    state = folded(opened("/a"), *IN_A_BATCH, opened("/b"), CancelRequested(why="no"))
    state = folded(
        opened("/a"), *IN_A_BATCH, opened("/b"), CancelRequested(why="no"), UserPrompted(text="on"),
        requested("main/3", len(state.agents["main"].items) + 2),
    )  # fmt: skip
    assert any("/b" in text for text in told(state))


def test_under_the_rules_of_before_requests_stay_as_they_were() -> None:
    """So that the requests of older logs are rebuilt byte for byte."""
    assert told(folded(opened("/a", rules=1), *IDLE, opened("/b", rules=1))) == []
    assert len(told(folded(opened("/a", rules=1), *IDLE, opened("/b", rules=2)))) == 1
