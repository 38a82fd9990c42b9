"""Rows: a line for every event type that a person understands, whatever the event holds."""

import unicodedata

import msgspec
import pytest

from muse.event.content import BlobRef, Block, FileChange, Host, Origin, Settings, Usage
from muse.event.envelope import Redacted, Unknown
from muse.event.kinds import (
    KINDS,
    ApprovalDecided,
    ApprovalRequested,
    EffectDoubted,
    EffectReconciled,
    FilesChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionClosed,
    SessionOpened,
    SourceKept,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
    WorktreeRemoved,
)  # fmt: skip
from muse.view.detail import detailed
from muse.view.markdown import Proof, document
from muse.view.summary import SUMMARIES
from muse.view.text import row_text
from muse.view.timeline import Context, learn, row, rows
from muse.view.titles import call_title
from tests.view.made import event, filled

PERSON = Origin(user="ada", terminal="/dev/pts/3")
SETTINGS = Settings(provider="anthropic", dialect="anthropic", model="claude", mode="default")
STORY = [
    SessionOpened(format=1, rules=1, workspace="/home/ada/project", host=Host(name="box", pid=7), settings=SETTINGS),
    UserPrompted(text="Mend the\nfailing test."),
    ModelRequested(call="main/1", attempt=1, provider="anthropic", model="claude", builder="anthropic/1", items=1,
                   request_sha256="0" * 64, request_bytes=5_234),
    ModelFailed(call="main/1", attempt=1, failure="overloaded", status=529, message="try later", duration_ms=1_250),
    TimerSet(key="retry:main/1", duration_ms=1_103),
    ModelResponded(call="main/1", attempt=2, stop="tool_use", duration_ms=4_200,
                   usage=Usage(input=1000, cache_read=200, output=30, cost_microusd=4_200),
                   blocks=(Block(kind="text", text="I run them."),
                           Block(kind="tool_use", id="a", name="shell", args='{"command":"pytest -q"}'),
                           Block(kind="tool_use", id="b", name="edit", args='{"path":"a.py"}'))),
    ApprovalRequested(call="main/2", tool="shell", shown="$ pytest -q", shown_sha256="0" * 64, rule="not harmless"),
    ApprovalDecided(call="main/2", decision="allow", by="person", request=7, origin=PERSON, note="go on"),
    ToolStarted(call="main/2", attempt=1, tool="shell", args='{"command":"pytest -q"}', recovery="attachable",
                approval=8),
    EffectDoubted(call="main/2", attempt=1, recovery="attachable"),
    EffectReconciled(call="main/2", attempt=1, verdict="attached", evidence="the command ended; its output is kept"),
    ToolFinished(call="main/2", attempt=1, status="error", exit_code=1, text="1 failed", duration_ms=1_200),
    ApprovalDecided(call="main/3", decision="deny", by="rule", rule="deny edit(a.py)"),
    FilesChanged(changes=(FileChange(path="new.py", after=BlobRef("ab" * 32, 12)),
                          FileChange(path="old.py", before=BlobRef("ab" * 32, 2048))), calls=("main/2",)),
    SessionClosed(outcome="failed", reason="the model declined to answer"),
]  # fmt: skip


def test_a_story_reads_as_it_should() -> None:
    events = [event(body, seq) for seq, body in enumerate(STORY, 1)]
    assert [row_text(shown) for _, shown in rows(events)] == [
        "#1    main   ▶ opened   /home/ada/project  anthropic/claude  mode default",
        "#2    main   › prompt   Mend the failing test.",
        "#3    main   … model    asks anthropic/claude  5.2 kB  (main/1)",
        "#4    main   ✗ model    overloaded (529): try later  1.2 s  (main/1)",
        "#5    main   … wait     asks again in 1.1 s  main/1",
        "#6    main   ✓ model    “I run them.” → shell, edit  1,200 in (200 cached), 30 out, $0.0042  4.2 s  (main/1)",
        "#7    main   ? approval asked: shell pytest -q  (not harmless)  (main/2)",
        "#8    main   ✓ approval allowed by ada on /dev/pts/3  “go on”  shell pytest -q  (main/2)",
        "#9    main   … shell    pytest -q  (main/2)",
        "#10   main   ! in doubt shell pytest -q; its host is gone  (main/2)",
        "#11   main   → re-attached the command ended; its output is kept: shell pytest -q  (main/2)",
        "#12   main   ✗ shell    pytest -q  exit 1  1.2 s  (main/2)",
        "#13   main   ✗ approval denied by rule: deny edit(a.py)  edit a.py  (main/3)",
        "#14   main   ± files    new new.py (12 B), deleted old.py  by main/2",
        "#15   main   ✗ closed   the task failed: the model declined to answer",
    ]


def test_a_narrow_row_keeps_how_it_ended() -> None:
    events = [event(body, seq) for seq, body in enumerate(STORY, 1)]
    long = ToolStarted(
        call="main/9", attempt=1, tool="shell", args='{"command":"' + "x" * 200 + '"}', recovery="opaque"
    )
    context = Context()
    for one in (*events, event(long, 16)):
        learn(context, one)
    done = event(ToolFinished(call="main/9", attempt=1, status="error", exit_code=2, duration_ms=90), 17)
    text = row_text(row(done, context), width=60)
    assert text == "#17   main   ✗ shell    " + "x" * 10 + "…  exit 2  90 ms  (main/9)"
    assert len(text) == 60


@pytest.mark.parametrize("seq", [9_999, 10_000, 1_000_000])
def test_a_number_of_any_length_does_not_touch_the_agent(seq: int) -> None:
    text = row_text(row(event(UserPrompted(text="go on"), seq), Context()))
    assert text.split()[:3] == [f"#{seq}", "main", "›"]


def test_colour_is_only_ever_around_a_row() -> None:
    shown = row(event(ToolFinished(call="main/2", attempt=1, status="ok", text="x"), 3), Context())
    assert row_text(shown, colour=True).replace("\x1b[2m", "").replace("\x1b[32m", "").replace("\x1b[0m", "") == (
        "#3    main   ✓ tool       (main/2)"
    )


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("allowed by shell(make *)", "allowed by shell(make *)"),
        ("allowed by the rule edit(src/**)", "allowed by the rule edit(src/**)"),
        ("mode default: reading is free", "allowed by mode default: reading is free"),
    ],
)
def test_who_allowed_a_call_is_said_once(recorded: str, told: str) -> None:
    body = ToolStarted(call="main/2", attempt=1, tool="x", args="{}", recovery="opaque", allowed_by=recorded)
    assert [line.text for line in detailed(event(body), Context(), lambda ref: None).detail] == [told]
    text = "\n".join(document("s-1", [event(body)], lambda ref: None, Proof(1, "ab" * 32)))
    assert f"({told})" in text.replace("`", "")


def test_every_event_type_has_its_words() -> None:
    assert set(SUMMARIES) == {kind.body for kind in KINDS.values()}


HOSTILE = "\x1b]0;title\x07\r\n\u202e<script>`|\ud7ff" + "x" * 5_000


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_row_is_one_safe_line_whatever_the_event_holds(name: str) -> None:
    body = filled(KINDS[name].body, HOSTILE)
    context = Context()
    learn(context, event(body))
    shown = detailed(event(body), context, lambda ref: b"\x1b\x00\xff\n" * 2)
    for text in (row_text(shown), shown.label, shown.summary, *(line.text for line in shown.detail)):
        assert all(unicodedata.category(character) != "Cc" for character in text), ascii(text)
        assert "\u202e" not in text
    assert len(shown.summary) < 4_000


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_event_with_nothing_optional_has_a_row(name: str) -> None:
    kind = KINDS[name]
    required = [field.name for field in _fields(kind.body) if field.required]
    made = filled(kind.body, "x")
    body = kind.body(**{field: getattr(made, field) for field in required})
    shown = detailed(event(body), Context(), lambda ref: None)
    assert shown.mark
    assert shown.label


def test_what_is_not_known_is_shown_with_its_text() -> None:
    strange = event(Unknown('{"a":"b\\u001b"}'), type_name="mystery.done")
    shown = detailed(strange, Context(), lambda ref: None)
    assert row_text(shown) == '#1    main   ? mystery.done v1 {"a":"b\\u001b"}'
    assert [line.text for line in shown.detail] == ['{"a":"b\\u001b"}']


def test_a_kept_line_without_a_word_is_shown_as_that() -> None:
    shown = detailed(event(SourceKept(what="mystery", line=3, raw="", why="unreadable")), Context(), lambda ref: None)
    assert [line.text.split() for line in shown.detail] == [["line", "3,", "mystery", "(unreadable)"]]


def test_what_was_taken_out_is_hidden() -> None:
    shown = detailed(event(Redacted("[]"), type_name="user.prompted"), Context(), lambda ref: None)
    assert row_text(shown) == "#1    main   ▒ user.prompted hidden"
    assert [line.text for line in shown.detail] == ["hidden by redaction"]


@pytest.mark.parametrize(
    ("tool", "args", "title"),
    [
        ("apply", '{"agent": "main.1"}', "main.1"),
        ("diff", '{"agent": "main.1", "paths": ["a.py", "b.py"]}', "main.1: a.py, b.py"),
        ("recall", '{"call": "main/4", "offset": 9}', "main/4"),
        ("recall", '{"from": 12, "to": 80, "query": "links"}', "#12 to #80: links"),
        ("recall", '{"from": 12}', "#12 on"),
        ("recall", '{"from": 12, "to": 12}', "#12"),
        ("stop", '{"call": "main/4"}', "main/4"),
        ("diff", '{"old": 1}', '{"old": 1}'),  # another agent's tool of this name
    ],
)
def test_a_call_that_looks_at_what_was_done_says_at_what(tool: str, args: str, title: str) -> None:
    assert call_title(tool, args) == title


def test_a_hidden_event_of_a_call_leaves_later_rows_readable() -> None:
    context = Context()
    learn(context, event(Redacted("[]"), type_name="tool.started"))
    shown = row(event(ToolFinished(call="main/2", attempt=1, status="unknown"), 2), context)
    assert row_text(shown) == "#2    main   ! tool       may or may not have happened  (main/2)"


def _fields(body: type) -> tuple[object, ...]:
    import msgspec

    return msgspec.structs.fields(body)


def test_the_opened_row_shows_the_mode_at_80_columns_however_long_the_path_is() -> None:
    body = msgspec.structs.replace(STORY[0], workspace="/home/ada/" + "deep/" * 30 + "project")
    context = Context(home="/home/ada")
    text = row_text(row(event(body, 1), context), width=80)
    assert text.endswith("  mode default")
    assert "~/deep/" in text
    assert "/project  anthropic/claude" in text
    assert len(text) <= 80


def test_what_became_of_a_working_tree_is_read_at_80_columns() -> None:
    body = WorktreeRemoved(
        path="/home/ada/.local/share/muse/worktrees/20261130-090000-00aaaaaa/main.1/work", left=("a.py",)
    )
    text = row_text(row(event(body, 7, agent="main.1"), Context(home="/home/ada")), width=80)
    assert "is kept for a.py  ~/.local/share/" in text
    assert len(text) <= 80
