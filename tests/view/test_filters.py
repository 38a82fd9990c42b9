"""Filters: which events of a small hand-made story each of them means, alone and together."""

from datetime import UTC, datetime

import msgspec
import pytest

from muse.errors import UsageError
from muse.event import kinds
from muse.event.content import BlobRef, Block, FileChange, Host, Observed, Origin, Settings
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import KINDS
from muse.view.filters import TERMS, Filter, Past, absent, calls_of, is_failure, learn, made, parsed
from muse.view.moments import Moment
from tests.view.made import event, filled

NOW = datetime(2026, 1, 2, 6, 0, 0, tzinfo=UTC)
HOST = Host(name="h", pid=1)
ADA, BOB = Origin(user="ada"), Origin(user="bob")
SETTINGS = Settings(provider="p", dialect="scripted", model="m")


def use(name: str, args: str) -> Block:
    return Block(kind="tool_use", id=name, name=name, args=args)


def responded(call: str, *blocks: Block) -> kinds.ModelResponded:
    return kinds.ModelResponded(call=call, attempt=1, blocks=blocks, stop="tool_use" if blocks else "end_turn")


def requested(call: str) -> kinds.ModelRequested:
    return kinds.ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b/1", items=1, request_sha256="0", request_bytes=1
    )


def started(call: str, tool: str, args: str, **more: object) -> kinds.ToolStarted:
    body = kinds.ToolStarted(call=call, attempt=1, tool=tool, args=args, recovery="opaque")
    return msgspec.structs.replace(body, **more)


def ended(call: str, status: str = "ok", **more: object) -> kinds.ToolFinished:
    return msgspec.convert({"call": call, "attempt": 1, "status": status, **more}, kinds.ToolFinished)


READ, RUN, EDIT = '{"path":"/ws/src/tax.py"}', '{"command":"psql -c \'DROP TABLE t\'"}', '{"path":"docs/a.md"}'
BLOB = BlobRef("ab" * 32, 9)
STORY: list[tuple[str, msgspec.Struct]] = [
    ("main", kinds.SessionOpened(format=1, rules=1, workspace="/ws", host=HOST, settings=SETTINGS)),  # 1
    ("main", kinds.UserPrompted(text="Drop it", origin=ADA)),  # 2
    ("main", kinds.AgentSpawned()),  # 3
    ("main", requested("main/1")),  # 4
    ("main", responded("main/1", use("read", READ), use("shell", RUN), use("edit", EDIT))),  # 5
    ("main", started("main/2", "read", READ, allowed_by="mode default: reading is free")),  # 6
    ("main", ended("main/2", text="RATE = 19")),  # 7
    ("main", kinds.ApprovalRequested(call="main/3", tool="shell", shown="psql", shown_sha256="0")),  # 8
    ("main", kinds.ApprovalDecided(call="main/3", decision="allow", by="person", request=8, origin=ADA)),  # 9
    ("main", kinds.ApprovalDecided(call="main/3", decision="allow", by="person", request=8, origin=BOB)),  # 10: late
    ("main", started("main/3", "shell", RUN, approval=9)),  # 11
    ("main", kinds.UserPrompted(text="And then the docs", origin=BOB)),  # 12: waits for the turn to end
    ("main", kinds.FilesChanged(changes=(FileChange(path="db/t.sql", after=BLOB),), calls=("main/3",))),  # 13
    ("main", ended("main/3", "error", exit_code=1)),  # 14
    ("main", kinds.ApprovalRequested(call="main/4", tool="edit", shown="edit", shown_sha256="0")),  # 15
    ("main", kinds.ApprovalDecided(call="main/4", decision="deny", by="person", request=15, origin=BOB)),  # 16
    ("main", requested("main/5")),  # 17
    ("main", responded("main/5")),  # 18: the first turn is over, bob's begins
    ("main.1", kinds.AgentSpawned(parent="main", task="count")),  # 19
    ("main.1", requested("main.1/1")),  # 20
    ("main.1", kinds.ModelFailed(call="main.1/1", attempt=1, failure="server", status=500)),  # 21
    ("main.10", kinds.AgentSpawned(parent="main")),  # 22
    ("main.1.1", kinds.AgentSpawned(parent="main.1")),  # 23
    ("main", kinds.SessionClosed(outcome="done")),  # 24
]  # fmt: skip


@pytest.fixture(scope="module")
def story() -> list[Event]:
    return [
        msgspec.structs.replace(event(body, seq, agent=agent), time=f"2026-01-02T03:{seq:02}:00.000000Z")
        for seq, (agent, body) in enumerate(STORY, 1)
    ]


def contents(ref: BlobRef) -> bytes:
    return b"drop me\n\0"[:8]


def meant(story: list[Event], wanted: Filter) -> list[int]:
    past, found = Past(), []
    for one in story:
        learn(past, one)
        if wanted.matches(one, past, contents):
            found.append(one.seq)
    return found


@pytest.mark.parametrize(
    ("text", "seqs"),
    [
        ("type:tool.started", [6, 11]),
        ("type:tool.* type:user.prompted", [2, 6, 7, 11, 12, 14]),
        ("type:approval", [8, 9, 10, 15, 16]),
        ("kind:person", [2, 12]),
        ("agent:main.1", [19, 20, 21]),
        ("agent:main.1*", [19, 20, 21, 23]),
        ("agent:main.1 below", [19, 20, 21, 23]),
        ("agent:main.*", [19, 20, 21, 22, 23]),
        ("agent:main.1.1 agent:main.10", [22, 23]),
        ("call:main/3", [8, 9, 10, 11, 13, 14]),
        ("tool:shell", [8, 9, 10, 11, 13, 14]),
        ("tool:model", [4, 5, 17, 18, 20, 21]),
        ("path:src/tax.py", [6, 7]),
        ("path:src", [6, 7]),
        ("path:*.md", [15, 16]),
        ("path:db/*", [13]),
        ("turn:1 type:user.prompted", [2, 12]),
        ("turn:2", [18, 19, 20, 21, 22, 23, 24]),
        ("since:@22", [22, 23, 24]),
        ("until:@2", [1, 2]),
        ("since:2026-01-02T03:22Z until:2026-01-02T03:23Z", [22, 23]),
        ("since:150m until:147m", []),
        ("since:3h until:02:50", []),
        ("until:03:02", [1, 2]),
        ("failed", [14, 16, 21]),
        ("denied", [16]),
        ("approved-by:ada", [9, 11, 13, 14]),
        ("approved-by:bob", [10]),
        ("approved-by:bob denied", [16]),
        ("approved-by:person", [9, 10, 11, 13, 14]),
        ("approved-by:rule", [6, 7]),
        ('approved-by:"reading is free"', [6, 7]),
        ("approved-by:timeout", []),
        ("failed agent:main", [14, 16]),
        ('"drop table"', [5, 8, 9, 10, 11, 14]),  # the rows of an approval name the command too
        ("grep:DROP", [5, 8, 9, 10, 11, 14]),
        ("regex:drop.me", [13]),
        ("regex:RATE.=.\\d+", [7]),
        ("Rate", []),
        ("failed tool:shell", [14]),
    ],
)
def test_a_line_of_filters_means_these_events(story: list[Event], text: str, seqs: list[int]) -> None:
    assert meant(story, parsed(text, NOW)) == seqs


def test_the_part_of_an_output_that_the_model_did_not_get_is_searched_too() -> None:
    body = ended("main/2", text="first\n[... 9 bytes left out ...]\nlast", output=BLOB)
    past, one = Past(), event(body)
    learn(past, one)
    wanted = parsed("regex:^in.the.middle$", NOW)
    assert wanted.matches(one, past, lambda ref: b"first\nin the middle\nlast")
    assert not wanted.matches(one, past, lambda ref: None)


@pytest.mark.parametrize("call", ["main/" + "9" * 5000, "main/\u0663", "main/", "", "main/-1"])
def test_a_key_that_is_none_breaks_nothing(call: str) -> None:
    past = Past()
    for body in (responded(call, use("read", READ)), started(call, "read", READ), ended(call)):
        learn(past, event(body))


def test_no_filter_means_all(story: list[Event]) -> None:
    assert not parsed("  ", NOW)
    assert meant(story, Filter()) == list(range(1, len(story) + 1))


def test_flags_and_a_line_of_text_make_the_same_filter() -> None:
    line = 'type:tool.* type:model agent:main.1 below failed since:@3 until:2h turn:2 grep:"a b" regex:x whole-calls'
    given: dict[str, list[str] | str | bool] = {
        "type": ["tool.*", "model"], "agent": ["main.1"], "below": True, "failed": True, "since": "@3", "until": "2h",
        "turn": ["2"], "grep": ["a b"], "regex": ["x"], "whole-calls": True,
    }  # fmt: skip
    assert parsed(line, NOW) == made(given, NOW)
    assert parsed(line, NOW).until == Moment(time="2026-01-02T04:00:00.000000Z")


def test_every_filter_is_in_the_table_and_the_other_way_round() -> None:
    assert sorted(term.field for term in TERMS) == sorted(Filter.__struct_fields__)
    assert len({term.name for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("typ:tool", "there is no filter typ:"), ('grep:"x', "quote"), ("kind:tools", "there is no kind"),
        ("turn:0x", "is no turn"), ("regex:(", "no regular expression"), ("since:soon", "no moment"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_can(text: str, says: str) -> None:
    with pytest.raises(UsageError, match="(?s)" + says) as caught:
        parsed(text, NOW)
    assert caught.value.hint


def test_a_word_that_is_also_a_filter_is_searched_for_with_grep(story: list[Event]) -> None:
    assert parsed("grep:failed", NOW).texts == ("failed",)
    assert parsed("type", NOW).texts == ("type",)


def test_whole_calls_are_those_of_the_events_that_were_found(story: list[Event]) -> None:
    wanted = parsed("failed tool:shell whole-calls", NOW)
    calls = {call for one in story if one.seq in meant(story, wanted) for call in calls_of(one)}
    belongs = wanted.completed(calls)
    assert [one.seq for one in story if belongs(one)] == [8, 9, 10, 11, 13, 14]


def test_what_the_log_does_not_have_is_said_with_what_it_has(story: list[Event]) -> None:
    past = Past()
    for one in story:
        learn(past, one)
    words = "agent:main.7 type:tool.startd type:question.asked tool:grep call:main/99 turn:9"
    said = absent(parsed(words, NOW), past)
    assert said[0] == "there is no agent 'main.7'; there is main, main.1, main.1.1, main.10"
    assert said[1].startswith("no type 'tool.startd' is known to this version; there is agent.spawned")
    assert said[2].startswith("there is no event of type 'question.asked'; there is agent.spawned")
    assert said[3:] == [
        "there is no call of 'grep'; there are calls of edit, model, read, shell", "there is no call 'main/99'",
        "there is no turn 9; there are 2",
    ]  # fmt: skip
    assert absent(parsed("agent:main.1* type:tool tool:read call:main/3 turn:2", NOW), past) == []


def test_an_approval_that_was_refused_afterwards_let_nothing_pass(story: list[Event]) -> None:
    refused = event(kinds.CommandRefused(command=9, why="below_runner"), 11)
    told = [*story[:10], refused, msgspec.structs.replace(story[10], seq=12)]
    assert meant(told, parsed("approved-by:ada", NOW)) == [9]


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        (ended("main/1"), False),
        (ended("main/1", exit_code=0), False),
        (ended("main/1", exit_code=2), True),
        (ended("main/1", "unknown"), True),
        (ended("main/1", "ok", timed_out=True), True),
        (ended("main/1", "cancelled", exit_code=143), False),
        (kinds.ModelFailed(call="main/1", attempt=1, failure="cancelled"), False),
        (kinds.BudgetReached(limit="model_calls", value=3), True),
        (kinds.EffectReconciled(call="main/1", attempt=1, verdict="unknown"), True),
        (kinds.EffectReconciled(call="main/1", attempt=1, verdict="attached"), False),
        (kinds.AgentFinished(outcome="failed"), True),
        (kinds.SessionClosed(outcome="provider"), True),
        (kinds.SessionClosed(outcome="cancelled"), False),
        (kinds.SessionClosed(outcome="imported"), False),
        (kinds.CommandRefused(command=1, why="no_origin"), True),
        (kinds.UserPrompted(text="it failed"), False),
        (started("main/1", "shell", "{}", observed=Observed(error="no such file")), False),
    ],
)
def test_what_went_wrong_and_what_was_only_stopped(body: msgspec.Struct, failed: bool) -> None:
    assert is_failure(event(body)) is failed


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_filter_can_be_asked_of_every_event(name: str) -> None:
    line = "below failed denied since:@1 until:@9 turn:7 type:* kind:tool agent:* call:x tool:x path:x grep:x"
    line += " approved-by:x"
    for body in (filled(KINDS[name].body, "a/b\x1b[2J"), Unknown("{}"), Redacted("[]")):
        past, one = Past(), event(body, type_name=name)
        learn(past, one)
        for term in line.split():
            parsed(term, NOW).matches(one, past, contents)
