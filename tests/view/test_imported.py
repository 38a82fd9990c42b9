"""What is shown of a log that was made from another agent's file."""

from muse.event.kinds import Aside, Counted, LogImported, ModelResponded, SourceKept, ToolFinished, UserPrompted
from muse.view.detail import detailed
from muse.view.timeline import Context, learn, row
from muse.view.titles import kept_words
from tests.view.made import event

ABOUT = LogImported(
    source="s.jsonl", format_name="claude-code", events=9, missing=("the system prompt", "who allowed a call"),
    program="claude-code 2.1", unknown=(Counted(what="hologram", count=2),), unreadable=1,
    asides=(Aside(first=3, last=4, what="left"),),
)  # fmt: skip


def test_the_first_row_says_what_was_not_recorded_and_what_is_odd() -> None:
    shown = row(event(ABOUT, epoch=0), Context())
    assert shown.summary == (
        "9 lines of s.jsonl (claude-code 2.1); 2 parts of an unknown kind; 1 unreadable line; "
        "it did not record the system prompt, who allowed a call"
    )
    lines = [line.text for line in detailed(event(ABOUT, epoch=0), Context(), lambda _ref: None).detail]
    assert "unknown    2 × hologram" in lines
    assert "beside     #3 to #4: a branch that was left" in lines


def test_what_was_not_timed_has_no_duration_and_what_was_left_is_labelled() -> None:
    context = Context()
    learn(context, event(ABOUT, epoch=0))
    answered = ModelResponded(call="main/1", attempt=1, blocks=(), stop="end_turn")
    assert row(event(answered, 2, epoch=0), context).duration_ms is None
    assert row(event(answered, 2), Context()).duration_ms == 0
    timed = ToolFinished(call="main/2", attempt=1, status="ok", duration_ms=70)
    assert row(event(timed, 5, epoch=0), context).duration_ms == 70
    endings = [row(event(UserPrompted(text="x"), seq, epoch=0), context).ending for seq in (2, 3, 4, 5)]
    assert endings == ["", "(a branch that was left)", "(a branch that was left)", ""]


def test_a_kept_line_shows_what_there_is_to_read_in_it() -> None:
    raw = '{"type": "attachment", "attachment": {"type": "skill_listing", "content": "- a\\n- b"}}'
    quiet = row(event(SourceKept(what="attachment/skill_listing", line=4, raw=raw), epoch=0), Context())
    assert (quiet.summary, quiet.severity, quiet.ending) == ("attachment/skill_listing  - a - b", "quiet", "line 4")
    odd = row(event(SourceKept(what="hologram", line=5, raw="{}", why="unknown"), epoch=0), Context())
    assert (odd.summary, odd.severity) == ("of an unknown kind: hologram", "attention")
    assert kept_words("\x1b[2Jno json") == "\\x1b[2Jno json"
    assert kept_words('{"message": {"content": [{"text": "\\u001b[1m"}]}}') == "\\x1b[1m"
