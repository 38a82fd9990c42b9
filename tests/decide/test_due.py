"""Given events, when the rules are asked, then these decisions: the cases that a reader of the rules looks for."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from muse.decide import approval
from muse.decide.context import Builder, Rules
from muse.decide.due import due
from muse.decide.limits import BACKOFF_MAX_MS
from muse.effect.model import openai, scripted
from muse.event.content import Block, Host, PermissionRules, Settings, ToolSpec
from muse.event.conversation import Resulted
from muse.event.envelope import Event, Unknown
from muse.event.kinds import (
    KINDS,
    ApprovalDecided,
    ApprovalRequested,
    BudgetReached,
    EffectDoubted,
    EffectReconciled,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyChanged,
    SessionClosed,
    SessionOpened,
    TimerFired,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)  # fmt: skip
from muse.fold.evolve import evolve
from muse.fold.state import Session

RULES = Rules(
    version=1,
    builders={
        "scripted": Builder(scripted.BUILDER, scripted.build), "openai": Builder(openai.BUILDER, openai.build),
    },
)  # fmt: skip
TYPE_OF = {kind.body: name for name, kind in KINDS.items()}
TOOLS = (
    ToolSpec(name="read", description="", schema="{}", recovery="pure"),
    ToolSpec(name="edit", description="", schema="{}", recovery="reconcilable", writes=True),
    ToolSpec(name="shell", description="", schema="{}", recovery="attachable", writes=True),
)


class Story:
    """A session told event by event; decisions are taken from `due` only."""

    def __init__(self, **settings: Any) -> None:
        self.state = Session(session="s")
        self.epoch = 0
        self.settings = Settings(
            **({"provider": "scripted", "dialect": "scripted", "model": "m", "mode": "default"} | settings)
        )
        self.open()
        self.take(1)

    def event(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> None:
        seq = self.state.seq + 1
        evolve(self.state, Event(seq, f"{seq:032x}", "", TYPE_OF[type(body)], 1, agent, cause, self.epoch, body))

    def open(self) -> None:
        self.epoch += 1
        host = Host(name="h", pid=1)
        self.event(SessionOpened(format=1, rules=1, workspace="/w", host=host, settings=self.settings, tools=TOOLS))

    def due(self) -> list[msgspec.Struct]:
        return [one.body for one in due(self.state, self.state.agents, RULES)]

    def take(self, count: int = 20) -> list[msgspec.Struct]:
        taken: list[msgspec.Struct] = []
        while len(taken) < count and (found := due(self.state, self.state.agents, RULES)):
            self.event(found[0].body, found[0].agent, found[0].cause)
            taken.append(found[0].body)
        return taken

    def prompt(self, text: str = "do it") -> None:
        self.event(UserPrompted(text=text))

    def respond(self, uses: Sequence[tuple[str, str]] = (), stop: Any = "end_turn") -> None:
        call = self.state.agents["main"].call
        assert call is not None
        blocks = [
            Block(kind="tool_use", id=f"u{call.key}.{index}", name=name, args=args)
            for index, (name, args) in enumerate(uses)
        ]
        stop = "tool_use" if uses else stop
        self.event(ModelResponded(call=call.key, attempt=call.attempt, blocks=tuple(blocks), stop=stop))

    def fail(self, failure: Any, **more: Any) -> None:
        call = self.state.agents["main"].call
        assert call is not None
        self.event(ModelFailed(call=call.key, attempt=call.attempt, failure=failure, **more))

    def asked(self, *uses: tuple[str, str]) -> "Story":
        self.prompt()
        self.take()
        self.respond(uses)
        return self


def kinds(bodies: Sequence[msgspec.Struct]) -> list[type]:
    return [type(body) for body in bodies]


def test_a_prompt_makes_a_request_and_an_answer_closes_the_session() -> None:
    story = Story()
    story.prompt()
    assert kinds(story.take()) == [ModelRequested]
    story.respond()
    closed = story.take()
    assert kinds(closed) == [SessionClosed]
    assert closed[0] == SessionClosed(outcome="done")
    assert story.due() == []


def test_calls_are_numbered_in_the_order_of_the_uses_and_numbers_never_go_back() -> None:
    story = Story(mode="yolo").asked(("read", '{"path":"a"}'), ("shell", '{"command":"make"}'))
    started = [body for body in story.take() if isinstance(body, ToolStarted)]
    assert [(body.call, body.tool) for body in started] == [("main/2", "read"), ("main/3", "shell")]
    for body in started:
        story.event(ToolFinished(call=body.call, attempt=1, status="ok", text="x"))
    request = story.take()[0]
    assert isinstance(request, ModelRequested)
    assert request.call == "main/4"


def test_edits_of_a_batch_run_one_after_the_other_and_shells_together() -> None:
    edits = Story(mode="yolo").asked(("edit", '{"path":"a"}'), ("edit", '{"path":"b"}'), ("shell", '{"command":"x"}'))
    assert [body.call for body in edits.take() if isinstance(body, ToolStarted)] == ["main/2"]
    edits.event(ToolFinished(call="main/2", attempt=1, status="ok", text=""))
    assert [body.call for body in edits.take() if isinstance(body, ToolStarted)] == ["main/3"]
    shells = Story(mode="yolo").asked(("shell", '{"command":"x"}'), ("shell", '{"command":"y"}'))
    assert [body.call for body in shells.take() if isinstance(body, ToolStarted)] == ["main/2", "main/3"]


def test_a_command_asks_a_person_and_a_yes_starts_exactly_that_call() -> None:
    story = Story().asked(("shell", '{"command":"make"}'))
    request = story.take()[0]
    assert isinstance(request, ApprovalRequested)
    assert request.shown == "$ make"
    seq = story.state.seq
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person", request=seq + 5))
    assert story.due() == [], "an answer to another request decides nothing"
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person", request=seq))
    started = story.take()[0]
    assert isinstance(started, ToolStarted)
    assert started.approval == story.state.seq - 1
    story.event(ApprovalDecided(call="main/2", decision="deny", by="person", request=seq))
    assert story.state.agents["main"].batch[0].phase == "running", "of several answers the first counts"


def test_an_answer_before_anything_was_shown_and_one_about_other_words_decide_nothing() -> None:
    story = Story().asked(("shell", '{"command":"rm -rf /"}'))
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person"))
    request = story.take()[0]
    assert isinstance(request, ApprovalRequested), "it is asked all the same"
    seq, other = story.state.seq, hashlib.sha256(b"$ make").hexdigest()
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person", request=seq, shown_sha256=other))
    assert story.due() == []
    right = hashlib.sha256(b"$ rm -rf /").hexdigest()
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person", request=seq, shown_sha256=right))
    assert kinds(story.take()) == [ToolStarted]


def test_a_no_goes_back_to_the_model_with_the_note() -> None:
    story = Story().asked(("shell", '{"command":"make"}'))
    story.take()
    story.event(ApprovalDecided(call="main/2", decision="deny", by="person", request=story.state.seq, note="use ninja"))
    assert kinds(story.take()) == [ModelRequested]
    result = story.state.agents["main"].items[-1]
    assert "use ninja" in result.text  # type: ignore[union-attr]


def test_always_answers_the_other_waiting_call_too() -> None:
    story = Story().asked(("shell", '{"command":"make a"}'), ("shell", '{"command":"make b"}'))
    assert kinds(story.take()) == [ApprovalRequested, ApprovalRequested]
    first = min(story.state.approvals)
    story.event(ApprovalDecided(call="main/2", decision="allow", by="person", request=first, remember="shell(make *)"))
    assert kinds(story.take()) == [ToolStarted, ApprovalDecided, ToolStarted]


def test_nobody_answering_denies_the_call_and_ends_the_run() -> None:
    story = Story(approval_timeout_seconds=60).asked(("shell", '{"command":"make"}'), ("read", '{"path":"a"}'))
    taken = story.take()
    assert TimerSet(key="approval:main/2", duration_ms=60_000) in taken
    story.event(TimerFired(key="approval:main/2"))
    assert kinds(story.take()) == [ApprovalDecided]
    story.event(ToolFinished(call="main/3", attempt=1, status="ok", text="x"))
    closed = story.take()
    assert kinds(closed) == [SessionClosed]
    assert closed[0].outcome == "unanswered"  # type: ignore[attr-defined]


def test_a_rule_that_denies_is_a_decision_and_nothing_runs() -> None:
    story = Story(mode="yolo", permissions=PermissionRules(deny=("shell(rm *)",))).asked(
        ("shell", '{"command":"rm -rf x"}')
    )
    decided = story.take()[0]
    assert isinstance(decided, ApprovalDecided)
    assert (decided.decision, decided.by) == ("deny", "rule")


@pytest.mark.parametrize("change", [PolicyChanged(deny=("shell(",)), PolicyChanged(ask=("nonsense((",))])
def test_a_rule_that_cannot_be_read_makes_people_decide(change: PolicyChanged) -> None:
    story = Story(mode="yolo", permissions=PermissionRules(allow=("shell",)))
    story.event(change)
    story.asked(("shell", '{"command":"make"}'))
    assert kinds(story.take()) == [ApprovalRequested]


def test_an_unknown_mode_from_outside_is_the_default_mode() -> None:
    story = Story()
    story.event(PolicyChanged(mode="whatever"))
    story.asked(("shell", '{"command":"make"}'))
    assert kinds(story.take()) == [ApprovalRequested]


def test_waits_double_up_to_a_cap_and_honour_what_the_provider_asks() -> None:
    story = Story(model_attempts_max=12)
    story.prompt()
    story.take()
    waits = []
    for attempt in range(1, 9):
        story.fail("overloaded")
        timer = story.take()[0]
        assert isinstance(timer, TimerSet)
        waits.append(timer.duration_ms)
        story.event(TimerFired(key=timer.key))
        request = story.take()[0]
        assert isinstance(request, ModelRequested)
        assert (request.call, request.attempt) == ("main/1", attempt + 1)
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 60000, BACKOFF_MAX_MS]
    story.fail("rate_limited", retry_after_ms=90_000)
    timer = story.take()[0]
    assert isinstance(timer, TimerSet)
    assert timer.duration_ms == 90_000


def test_after_the_last_attempt_the_run_ends_and_the_next_owner_asks_again() -> None:
    story = Story(model_attempts_max=1)
    story.prompt()
    story.take()
    story.fail("network", message="no route")
    closed = story.take()
    assert closed == [SessionClosed(outcome="provider", reason="network: no route")]
    story.open()
    assert kinds(story.take()) == [ModelRequested]


def test_a_crash_puts_what_ran_in_doubt_and_only_the_verdict_starts_it_again() -> None:
    story = Story(mode="yolo").asked(("shell", '{"command":"make"}'))
    story.take()
    story.open()
    assert story.take() == [EffectDoubted(call="main/2", attempt=1, recovery="attachable")]
    story.event(EffectReconciled(call="main/2", attempt=1, verdict="attached"))
    assert story.due() == []
    story.open()
    story.take()
    story.event(EffectReconciled(call="main/2", attempt=1, verdict="not_done"))
    again = story.take()[0]
    assert isinstance(again, ToolStarted)
    assert (again.call, again.attempt) == ("main/2", 2)


def test_the_limit_of_model_calls_stops_the_turn_with_its_name() -> None:
    story = Story(mode="yolo", model_calls_max=2)
    story.prompt()
    for n in range(2):
        story.take()
        story.respond([("read", '{"path":"a"}')])
        call = next(body.call for body in story.take() if isinstance(body, ToolStarted))
        if n == 0:
            story.event(ToolFinished(call=call, attempt=1, status="ok", text=""))
    story.event(ToolFinished(call=call, attempt=1, status="ok", text=""))
    taken = story.take()
    assert taken[0] == BudgetReached(limit="model_calls", value=2)
    assert taken[1].outcome == "budget"  # type: ignore[attr-defined]
    story.open()
    assert kinds(story.take(1)) == [ModelRequested]


def test_an_event_of_an_unknown_type_blocks_going_on() -> None:
    story = Story()
    seq = story.state.seq + 1
    evolve(story.state, Event(seq, "0" * 32, "", "agent.dreamt", 1, "main", 0, 1, Unknown("{}")))
    story.prompt()
    assert story.due() == []
    assert story.state.unknown == [f"agent.dreamt v1 (#{seq})"]


@pytest.mark.parametrize(
    "args", ['{"command":"a","command":"b"}', '{"n":NaN}', "[1]", "{", '{"command":"x"} y', '"text"', "null"]
)
def test_arguments_that_a_strict_parser_refuses_never_reach_a_tool(args: str) -> None:
    story = Story().asked(("shell", args))
    started = story.take()[0]
    assert isinstance(started, ToolStarted)
    assert started.recovery == "pure"
    assert approval.parsed(args) is None


@pytest.mark.parametrize("path", ["/etc/hostname", "../x", "~/x", "a/../../x"])
@pytest.mark.parametrize("tool", ["read", "edit"])
@pytest.mark.parametrize("mode", ["default", "yolo", "plan"])
def test_nobody_is_asked_about_a_file_call_that_cannot_succeed(path: str, tool: str, mode: str) -> None:
    story = Story(mode=mode, permissions=PermissionRules(allow=("read", "edit"))).asked((tool, f'{{"path":"{path}"}}'))
    decided = story.take()[0]
    assert isinstance(decided, ApprovalDecided)
    assert (decided.decision, decided.by) == ("deny", "rule")
    assert "outside the workspace" in decided.rule


STRICTER = (
    PolicyChanged(mode="plan"),
    PolicyChanged(deny=("shell(make *)",)),
)


@pytest.mark.parametrize("stricter", STRICTER)
@pytest.mark.parametrize("when", ["asked", "allowed", "to be tried again"])
def test_what_is_denied_by_now_starts_no_more_whatever_was_allowed_before(stricter: PolicyChanged, when: str) -> None:
    story = Story().asked(("shell", '{"command":"make a"}'))
    assert kinds(story.take()) == [ApprovalRequested]
    request = story.state.seq
    yes = ApprovalDecided(call="main/2", decision="allow", by="person", request=request)
    if when != "asked":
        story.event(yes)
    if when == "to be tried again":
        assert kinds(story.take()) == [ToolStarted]
        story.open()
        assert kinds(story.take()) == [EffectDoubted]
        story.event(EffectReconciled(call="main/2", attempt=1, verdict="not_done"))
    story.event(stricter)
    denied = story.take()
    assert kinds(denied) == [ApprovalDecided, ModelRequested]
    assert (denied[0].decision, denied[0].by) == ("deny", "rule")  # type: ignore[attr-defined]
    story.event(yes)
    assert story.due() == [], "a yes that comes afterwards frees nothing"
    (result,) = [item for item in story.state.agents["main"].items if isinstance(item, Resulted)]
    assert result.text.startswith("Denied: ")
