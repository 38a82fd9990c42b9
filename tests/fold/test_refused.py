"""`command.refused` takes back what a command did to the state, and nothing else.

The measure is a state that never saw the command: equal but for the numbers of the events that stand in between.
"""

import itertools
from typing import Any

import msgspec
import pytest

from muse.event.content import Block, Host, PermissionRules, Settings, ToolSpec
from muse.event.envelope import Event
from muse.event.kinds import (
    KINDS,
    AgentFinished,
    AgentSpawned,
    AgentSteered,
    ApprovalDecided,
    ApprovalRequested,
    CommandRefused,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    PolicyChanged,
    QuestionAnswered,
    QuestionAsked,
    SessionOpened,
    TimerSet,
    ToolStarted,
    UserPrompted,
)
from muse.fold.evolve import evolve
from muse.fold.state import Session, remember, undone

TYPES = {kind.body: name for name, kind in KINDS.items()}
SETTINGS = Settings(provider="p", dialect="scripted", model="m", permissions=PermissionRules(allow=("read",)))
OPENED = SessionOpened(
    format=1, rules=1, workspace="/w", host=Host(name="h", pid=1), settings=SETTINGS,
    tools=(ToolSpec(name="shell", description="", schema="{}", recovery="opaque"),),
)  # fmt: skip
USE = Block(kind="tool_use", id="u1", name="shell", args="{}")
ASKED = [
    OPENED,
    AgentSpawned(tools=("shell",)),
    UserPrompted(text="go"),
    ModelRequested(
        call="main/1", attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="", request_bytes=1,
    ),
    ModelResponded(call="main/1", attempt=1, blocks=(USE,), stop="tool_use"),
    ApprovalRequested(call="main/2", tool="shell", shown="rm", shown_sha256=""),
]  # fmt: skip


def folded(*bodies: msgspec.Struct) -> Session:
    state = Session(session="s")
    for seq, body in enumerate(bodies, 1):
        evolve(state, Event(seq, f"{seq:032x}", "", TYPES[type(body)], 1, "main", 0, 1, body))
    return state


def plain(state: Session) -> Any:
    """The state without the numbers that a pair of events more moves on, how often something was said, and the list
    of changes that led to it."""
    aside = ("seq", "cause", "policy", "remember", "prompts")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(one) for key, one in value.items() if key not in aside}
        return [without(one) for one in value] if isinstance(value, list) else value

    return without(msgspec.to_builtins(state, str_keys=True))


def refused(before: list[msgspec.Struct], command: msgspec.Struct) -> tuple[Any, Any]:
    """With a command and its refusal, and with two notes in their places."""
    number = len(before) + 1
    with_both = folded(*before, command, CommandRefused(command=number, why="no_origin"))
    return plain(with_both), plain(folded(*before, NoteAdded(text=""), NoteAdded(text="")))


@pytest.mark.parametrize(
    "command",
    [
        ApprovalDecided(call="main/2", decision="allow", by="person", request=6),
        ApprovalDecided(call="main/2", decision="allow", by="person", request=6, remember="shell(rm *)"),
        AgentSteered(text="do evil"),
        UserPrompted(text="do evil"),
        UserPrompted(text="do evil", delivery="steer"),
        PolicyChanged(mode="yolo", allow=("shell(*)",), deny=("x",)),
        PolicyChanged(ask=("read",)),
    ],
)
def test_a_refused_command_leaves_no_trace_in_the_state(command: msgspec.Struct) -> None:
    seen, expected = refused(ASKED, command)
    assert seen == expected


def test_an_open_request_can_be_answered_after_a_refused_answer() -> None:
    answer = ApprovalDecided(call="main/2", decision="allow", by="person", request=6)
    state = folded(*ASKED, answer, CommandRefused(command=7, why="below_runner"))
    assert state.approvals == {6: "main/2"}
    state = folded(*ASKED, answer, CommandRefused(command=7, why="below_runner"), answer)
    run = state.run("main/2")
    assert run is not None
    assert (run.phase, run.approval) == ("approved", 9)


ASKS = [
    *ASKED[:-1],
    ToolStarted(call="main/2", attempt=1, tool="ask", args="{}", recovery="derived"),
    QuestionAsked(call="main/2", text="which?"),
]


def test_a_refused_answer_to_a_question_leaves_it_open() -> None:
    answer = QuestionAnswered(question=7, text="mine")
    seen, expected = refused(ASKS, answer)
    assert seen == expected
    state = folded(*ASKS, answer, CommandRefused(command=8, why="below_runner"))
    assert state.questions == {7: "main/2"}
    state = folded(
        *ASKS, answer, CommandRefused(command=8, why="below_runner"), QuestionAnswered(question=7, text="yours")
    )
    run = state.run("main/2")
    assert run is not None
    assert (run.answer, run.answer_text, state.questions) == (10, "yours", {})


def test_of_several_changes_of_policy_only_the_refused_one_is_taken_back() -> None:
    steps = [
        PolicyChanged(mode="accept-edits", allow=("one",)),
        PolicyChanged(mode="yolo", allow=("two",)),
        PolicyChanged(deny=("three",)),
    ]
    for kept in range(3):
        number = len(ASKED) + 1 + kept
        state = folded(*ASKED, *steps, CommandRefused(command=number, why="no_origin"))
        wanted = folded(*ASKED, *(step for at, step in enumerate(steps) if at != kept))
        assert (state.mode, state.allow, state.deny) == (wanted.mode, wanted.allow, wanted.deny)


def test_a_change_of_policy_before_an_opening_is_taken_back_after_it() -> None:
    """It came in while nobody ran the session."""
    state = folded(
        *ASKED, PolicyChanged(mode="yolo", allow=("two",)), OPENED, CommandRefused(command=7, why="no_origin")
    )
    assert (state.mode, state.allow) == ("default", ("read",))


def test_words_that_began_a_turn_end_it_before_the_model_is_asked() -> None:
    state = folded(
        OPENED, AgentSpawned(tools=("shell",)), UserPrompted(text="x"), CommandRefused(command=3, why="no_origin")
    )
    agent = state.agents["main"]
    assert (agent.turn, agent.outcome) == (False, "cancelled")


def test_a_refusal_can_be_undone_like_any_event() -> None:
    for command in (AgentSteered(text="x"), ApprovalDecided(call="main/2", decision="allow", by="person", request=6)):
        state = folded(*ASKED, command)
        before = msgspec.to_builtins(state, str_keys=True)
        undo = remember(state)
        event = Event(8, "8" * 32, "", "command.refused", 1, "main", 0, 1, CommandRefused(command=7, why="no_origin"))
        evolve(state, event, undo)
        assert msgspec.to_builtins(undone(undo, state), str_keys=True) == before


def test_refusing_what_is_not_there_changes_nothing() -> None:
    for number in itertools.chain(range(7), (99,)):
        seen, expected = refused([*ASKED], NoteAdded(text=""))
        assert seen == expected
        state = folded(*ASKED, CommandRefused(command=number, why="no_origin"))
        assert state.run("main/2") is not None
        assert state.approvals == {6: "main/2"}


@pytest.mark.parametrize("command", [AgentSteered(text="do evil"), UserPrompted(text="do evil")])
def test_a_child_that_had_ended_stays_so_when_the_words_that_woke_it_are_refused(command: msgspec.Struct) -> None:
    answer = ModelResponded(
        call="main.1/1", attempt=1, blocks=(Block(kind="text", text="Done."),), stop="end_turn"
    )  # fmt: skip
    state = Session(session="s")
    story: list[tuple[str, msgspec.Struct]] = [
        *(("main", body) for body in ASKED[:3]),
        ("main.1", AgentSpawned(parent="main", call="main/2", task="t", background=True)),
        ("main.1", msgspec.structs.replace(ASKED[3], call="main.1/1")),
        ("main.1", answer),
        ("main.1", AgentFinished(outcome="done", text="Done.")),
        ("main.1", command),
        ("main.1", CommandRefused(command=8, why="below_runner")),
    ]
    for seq, (agent, body) in enumerate(story, 1):
        evolve(state, Event(seq, f"{seq:032x}", "", TYPES[type(body)], 1, agent, 0, 1, body))
    child = state.agents["main.1"]
    assert (child.finished, child.outcome, child.turn, child.result) == (7, "done", False, "Done.")
    assert [item.seq for item in child.items] == [4, 6]
    assert state.agents["main"].undelivered == ["main.1"]
    assert not state.unfinished


def test_how_long_an_answer_is_waited_for_is_set_anew_at_an_opening() -> None:
    waits = TimerSet(key="question:main/2", duration_ms=300_000)
    assert "question:main/2" in folded(*ASKS, waits).timers
    assert not folded(*ASKS, waits, OPENED).timers
