"""Whatever stands in a file: it is read, every line of it is accounted for, and what it becomes is valid."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muse.ingest.formats import recognise
from tests.ingest.made import (
    World,
    answer,
    claude_bytes,
    counted,
    item,
    jsonl,
    line,
    message,
    result,
    rollout_bytes,
    said,
    shown,
    text,
    use,
    wrapped,
)  # fmt: skip

CLAUDE = [
    line("permission-mode", "", None, permissionMode="plan"),
    said("a", None, "list it"),
    answer("b", "a", "m1", text("I look."), use("t1", "Bash", command="ls"), use("t2", "Task", prompt="count")),
    said("x", None, "count", isSidechain=True, agentId="A1"),
    answer("y", "x", "c1", text("three"), isSidechain=True, agentId="A1"),
    result("c", "b", "t1", "a.py", {"stdout": "a.py", "filePath": "/w/a", "originalFile": "x", "content": "y"}),
    result("d", "b", "t2", "three", {"status": "completed", "agentId": "A1"}),
    line("system", "e", None, subtype="compact_boundary", logicalParentUuid="c", compactMetadata={"preTokens": 3}),
    said("f", "e", "short", isCompactSummary=True),
    line("attachment", "g", "f", attachment={"type": "queued_command", "prompt": "more"}),
    said("h", "b", "back"),
]
CODEX = [
    wrapped("session_meta", id="own", base_instructions={"text": "s"}),
    wrapped("turn_context", model="m", approval_policy="never", sandbox_policy={"type": "x"}),
    message("user", "hi"),
    item("reasoning", summary=[{"text": "r"}]),
    item("function_call", name="shell", arguments="{}", call_id="c1"),
    shown("exec_command_end", call_id="c1", exit_code=1, duration={"secs": 1, "nanos": 2}),
    item("function_call_output", call_id="c1", output="x"),
    counted((9, 1, 2)),
    item("custom_tool_call", name="apply_patch", input="*** Add File: a\n+b", call_id="c2"),
    item("custom_tool_call_output", call_id="c2", output=[{"text": "ok"}]),
    wrapped("compacted", message="", replacement_history=[{"type": "message", "content": "z"}]),
    shown("thread_rolled_back", num_turns=1),
    shown("turn_aborted", reason="interrupted"),
]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=6),
    st.sampled_from(["a", "b", "t1", "c1", "A1", "user", "assistant", "message", "\ud800", "2026-01-01T00:00:00Z"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a value."""
    found = [here] if here else []
    if isinstance(value, dict):
        return found + [one for key in value for one in paths(value[key], (*here, key))]
    if isinstance(value, list):
        return found + [one for at in range(len(value)) for one in paths(value[at], (*here, at))]
    return found


@st.composite
def mutated(draw: st.DrawFn, lines: list[Any]) -> bytes:
    """The lines with some of them changed in one place, repeated, left out, moved or torn."""
    changed = json.loads(json.dumps(lines))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed) - 1))
        places = paths(changed[at])
        if places:
            *way, last = draw(st.sampled_from(places))
            inside = changed[at]
            for step in way:
                inside = inside[step]
            if draw(st.booleans()):
                inside[last] = draw(values)
            elif isinstance(inside, dict):
                del inside[last]
    order = draw(st.lists(st.sampled_from(changed), max_size=16)) if draw(st.booleans()) else changed
    data = jsonl([json.dumps(one) for one in order])
    if data and draw(st.booleans()):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 9)) :]
    return data


def check(world: World, data: bytes) -> None:
    assert world.events[0].type == "log.imported"
    assert world.events[-1].type == "session.closed"
    about = world.events[0].body
    assert world.content(about.raw) == data
    kept = world.of("source.kept")
    assert about.unreadable == sum(one.why == "unreadable" for one in kept)
    assert len({(one.line, one.why) for one in kept}) <= about.events + 1


@settings(max_examples=150, deadline=None)
@given(mutated(CLAUDE))
def test_a_mutated_file_of_claude_code_is_read_without_an_error(data: bytes) -> None:
    check(claude_bytes(data), data)
    recognise(data)


@settings(max_examples=150, deadline=None)
@given(mutated(CODEX))
def test_a_mutated_rollout_is_read_without_an_error(data: bytes) -> None:
    check(rollout_bytes(data), data)
    recognise(data)


def test_deep_huge_and_empty_lines_are_read() -> None:
    deep = b'{"type":"user","message":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    huge = b'{"type":"user","uuid":"a","message":{"content":"' + b"x" * 3_000_000 + b'"}}'
    data = b"\n\n".join([deep, huge, b"{}", b"null", b'{"type":{}}', b'{"payload":[]}', b"\xef\xbb\xbf{}"])
    for read in (claude_bytes, rollout_bytes):
        check(read(data), data)


def test_every_cut_of_the_last_line_leaves_what_is_before_it() -> None:
    whole = jsonl(CLAUDE)
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start, len(whole)):
        assert [body.text for body in claude_bytes(whole[:end]).of("user.prompted")][:1] == ["list it"]
