"""The document for a reader, held against a CommonMark parser that is not ours."""

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from muse.event.content import BlobRef, Block, FileChange
from muse.event.envelope import Event
from muse.event.kinds import KINDS, FilesChanged, ModelResponded, SessionClosed, ToolFinished, ToolStarted, UserPrompted
from muse.view.markdown import OUTPUT_HEAD_LINES, OUTPUT_TAIL_LINES, Proof, block, document, span
from tests.view.made import event, filled
from tests.view.test_timeline import STORY

PROOF = Proof(9, "ab" * 32)
HOSTILE = (
    "```\n````\n<script>alert(1)</script>\n# not a heading\n![x](http://x/) [a]: http://b\n~~~\n<!-- \x1b[2J\n"
    + "y" * 3_000
)


def told(events: list[Event], contents: bytes = b"x\n") -> str:
    return "\n".join(document("s-1", events, lambda ref: contents, PROOF))


def tokens(text: str) -> list[Token]:
    found = []
    for token in MarkdownIt("commonmark").parse(text):
        found += [token, *(token.children or [])]
    return found


@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_content_becomes_markup(name: str) -> None:
    body = filled(KINDS[name].body, HOSTILE)
    found = tokens(told([event(body)], HOSTILE.encode()))
    assert not {token.type for token in found} & {"html_block", "html_inline", "image", "link_open", "code_block"}
    headings = [found[at + 1].content for at, token in enumerate(found) if token.type == "heading_open"]
    assert headings[0] == "Session `s-1`"
    assert headings[-2:] == ["How it ended", "Proof"]
    assert len(headings) <= 4


def test_a_fenced_block_gives_its_lines_back() -> None:
    lines = ["```", "`````` x", "", "  indented", "~~~"]
    fences = [token for token in tokens("\n".join(block(lines))) if token.type == "fence"]
    assert [token.content for token in fences] == ["".join(f"{line}\n" for line in lines)]


@pytest.mark.parametrize("text", ["a", "`", "a ``b`` c", "`a`", "[x](y) <b> *z* \\"])
def test_a_code_span_gives_its_text_back(text: str) -> None:
    codes = [token.content for token in tokens(span(text)) if token.type == "code_inline"]
    assert codes == [text]


def test_the_story_is_told_in_order() -> None:
    events = [event(body, seq) for seq, body in enumerate(STORY, 1)]
    text = told(events)
    parts = [
        "- workspace `/home/ada/project`", "- model `anthropic/claude`", "## Task #2", "Mend the\nfailing test.",
        "**#4 the model failed**: overloaded (529), attempt 1: `try later`", "asks again in 1.1 s", "### #6 The model",
        "I run them.", "It asked for `shell`, `edit`.", "**#7 approval asked**, because `not harmless`:", "$ pytest -q",
        "**#8 approval** `allowed by ada on /dev/pts/3 “go on”` (answers #7)", "**#9 `shell`** (allowed by #8)",
        "```sh\npytest -q\n```", "**#10 in doubt**: `shell pytest -q; its host is gone` (`main/2`)",
        "**#11 re-attached**: `the command ended; its output is kept: shell pytest -q`.",
        "**#12 `shell` exit code 1, 1.2 s**",
        "1 failed", "**#13 approval** `denied by rule: deny edit(a.py)`", "**#14 file** `new new.py (12 B)`",
        "+x", "## How it ended", "- the task failed: `the model declined to answer`",
        "- 1 model response, 1 failed attempt", "- 1 tool call, of which 1 command; 2 file changes",
        "- 1 host, 1 effect in doubt after a crash", "- tokens: 1,200 in (200 cached), 30 out, $0.0042; cost: $0.0042",
        "## Proof", f"9:{'ab' * 32}", "muse verify s-1 --head 9:",
    ]  # fmt: skip
    at = -1
    for part in parts:
        after = text.find(part, at + 1)
        assert after > at, f"{part!r} is missing or out of place in\n{text}"
        at = after


def test_a_long_output_keeps_its_beginning_and_its_end() -> None:
    lines = [f"line {number}" for number in range(1, 501)]
    text = told([
        event(ToolStarted(call="main/2", attempt=1, tool="shell", args='{"command":"x"}', recovery="attachable"), 1),
        event(ToolFinished(call="main/2", attempt=1, status="ok", exit_code=0, text="\n".join(lines)), 2),
    ])  # fmt: skip
    left_out = 500 - OUTPUT_HEAD_LINES - OUTPUT_TAIL_LINES
    assert f"line 40\n… {left_out} lines left out: muse show @2\nline 481\n" in text
    assert "line 41\n" not in text


def test_what_only_reads_is_told_without_its_text() -> None:
    text = told([
        event(ToolStarted(call="main/2", attempt=1, tool="read", args='{"path":"a"}', recovery="pure"), 1),
        event(ToolFinished(call="main/2", attempt=1, status="ok", text="the whole file"), 2),
    ])  # fmt: skip
    assert "the whole file" not in text
    assert "**#2 `read` done**" in text


def test_an_open_session_says_that_it_has_not_ended() -> None:
    assert "it has not ended" in told([event(UserPrompted(text="x"))])
    assert "it has not ended" in told([event(SessionClosed(outcome="done"), 1), event(UserPrompted(text="x"), 2)])
    assert "it has not ended" not in told([event(SessionClosed(outcome="done"), 1)])


def test_a_hostile_session_name_cannot_run_in_the_suggested_command() -> None:
    text = "\n".join(document("x; rm -rf ~", [], lambda ref: None, PROOF))
    assert "muse verify 'x; rm -rf ~' --head" in text


def test_reasoning_and_cut_answers_are_told() -> None:
    blocks = (Block(kind="reasoning", text="hm"), Block(kind="text", text="half"))
    text = told([event(ModelResponded(call="main/1", attempt=1, blocks=blocks, stop="max_tokens", stop_raw="length"))])
    assert "It considered:\n\n```text\nhm\n```" in text
    assert "It stopped: `length`." in text


def test_a_binary_change_is_named() -> None:
    change = FileChange(path="x.bin", before=BlobRef("ab" * 32, 4), after=BlobRef("cd" * 32, 6))
    assert "binary: 4 B → 6 B" in told([event(FilesChanged(changes=(change,)))], b"\0\1")
