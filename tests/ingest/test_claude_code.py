"""Each fact that is known of Claude Code's format, by a small file written by hand."""

import json
from time import process_time

import pytest

from muse.event.content import BlobRef
from muse.event.kinds import ContextCompacted
from muse.ingest import claude_code
from muse.ingest.lines import SourceFile
from tests.ingest.made import World, answer, claude, claude_bytes, jsonl, line, result, said, text, use

ASKED = said("a", None, "list it")


def left_at(world: World) -> list[int]:
    """The seqs that are labelled as a branch that was left."""
    asides = world.of("log.imported")[0].asides
    return [seq for one in asides for seq in range(one.first, one.last + 1) if one.what == "left"]


def test_what_was_said_answered_and_run_stands_in_the_order_of_the_lines() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", text("I look."), use("t1", "Bash", command="ls -la"), at=1),
        result("c", "b", "t1", "a.py", {"stdout": "a.py", "stderr": "", "interrupted": False}, at=2),
        answer("d", "c", "m2", text("One file."), at=3),
    )
    assert world.types() == ["user.prompted", "model.responded", "tool.started", "tool.finished", "model.responded"]
    responded, started, finished = world.events[3], world.events[4], world.events[5]
    assert (responded.cause, started.cause, finished.cause) == (3, 4, 5)
    assert [event.time[17:] for event in (responded, started, finished)] == ["01.500000Z", "01.500000Z", "02.500000Z"]
    assert (started.body.tool, json.loads(started.body.args)) == ("Bash", {"command": "ls -la"})
    assert (started.body.call, finished.body.call, finished.body.status) == ("main/2", "main/2", "ok")
    assert finished.body.exit_code is None
    assert world.state.agents["main"].outcome == "done"
    assert world.events[-1].body.outcome == "imported"


def test_the_first_event_says_what_the_file_is_and_what_is_not_in_it() -> None:
    lines = (
        ASKED,
        answer("b", "a", "m1", text("ok"), version="2.2.0"),
        line("custom-title", "x", None, customTitle="Mine"),
    )
    world = claude(*lines)
    about = world.of("log.imported")[0]
    assert (about.source, about.format_name, about.events) == ("s.jsonl", "claude-code", 3)
    assert about.program == "claude-code 2.1.0 to 2.2.0"
    assert (about.workspace, about.model, about.branch, about.name) == ("/w", "m-1", "main", "Mine")
    assert "the system prompt" in about.missing
    assert world.content(about.raw) == b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    assert world.of("agent.spawned")[0].system == ""


def test_one_response_over_several_lines_counts_the_usage_of_the_last() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", {"type": "thinking", "thinking": "hm", "signature": "s"}, output=3, stop=None),
        answer("c", "b", "m1", text("so"), output=8, stop=None),
        answer("d", "c", "m1", use("t1", "Read", file_path="x"), output=40, stop="tool_use"),
    )
    (one,) = world.of("model.responded")
    assert [block.kind for block in one.blocks] == ["reasoning", "text", "tool_use"]
    assert (one.usage.output, one.stop, one.response_id) == (40, "tool_use", "m1")
    assert json.loads(one.blocks[0].raw)["signature"] == "s"


def test_a_result_that_stands_between_the_lines_of_its_response_or_before_its_use_finds_its_call() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Read", file_path="x"), stop=None),
        result("c", "b", "t1", "one"),
        result("e", "d", "t2", "two"),
        answer("d", "b", "m1", use("t2", "Read", file_path="y"), output=9),
        answer("f", "e", "m2", text("done")),
    )
    assert world.types().count("model.responded") == 2
    assert [body.text for body in world.of("tool.finished")] == ["one", "two"]
    assert [body.call for body in world.of("tool.started")] == ["main/2", "main/3"]
    assert world.of("model.responded")[0].usage.output == 9
    assert left_at(world) == []


def test_parallel_calls_do_not_look_like_a_branch_that_was_left() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Glob", pattern="*")),
        answer("c", "b", "m1", use("t2", "Glob", pattern="**")),
        result("d", "b", "t1", "1"),
        result("e", "c", "t2", "2"),
        answer("f", "e", "m2", text("both")),
    )
    assert left_at(world) == []
    assert world.of("session.rewound") == []


def test_a_rewind_keeps_what_was_left_labels_it_and_says_from_where_it_goes_on() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", text("one")),
        said("c", "b", "wrong way"),
        answer("d", "c", "m2", text("two")),
        said("e", "b", "right way"),
        answer("f", "e", "m3", text("three")),
    )
    seqs = {event.body.text: event.seq for event in world.events if event.type == "user.prompted"}
    assert left_at(world) == [seqs["wrong way"], seqs["wrong way"] + 1]
    (back,) = [event for event in world.events if event.type == "session.rewound"]
    assert back.seq == seqs["right way"] - 1
    assert back.body.to == seqs["wrong way"] - 1
    items = world.state.agents["main"].items
    assert [getattr(item, "text", None) or item.blocks[0].text for item in items] == [
        "list it",
        "one",
        "right way",
        "three",
    ]


def test_a_second_root_begins_anew_and_a_parent_that_is_not_there_does_not() -> None:
    anew = claude(ASKED, answer("b", "a", "m1", text("x")), said("c", None, "new"), answer("d", "c", "m2", text("y")))
    assert left_at(anew) == [3, 4]
    torn = claude(ASKED, answer("b", "a", "m1", text("x")), said("c", "gone", "on"), answer("d", "c", "m2", text("y")))
    assert left_at(torn) == []


def test_a_repeated_line_is_kept_and_not_counted_again() -> None:
    world = claude(ASKED, ASKED, answer("b", "a", "m1", text("x")), answer("b", "a", "m1", text("x")))
    assert world.types() == ["user.prompted", "model.responded"]
    assert [body.why for body in world.of("source.kept")] == ["repeated", "repeated"]


def test_a_compaction_says_which_events_its_summary_stands_for() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", text("x")),
        line("queue-operation", "q", None, operation="enqueue", content="y"),
        line("system", "c", None, subtype="compact_boundary", logicalParentUuid="b",
             compactMetadata={"trigger": "auto", "preTokens": 1234}),
        said("d", "c", "In short: x", isCompactSummary=True),
        said("e", "d", "go on"),
    )  # fmt: skip
    (body,) = world.of("context.compacted")
    assert (body.first, body.last, body.text) == (3, 4, "In short: x")
    assert body.method == "claude-code auto of 1,234 tokens"
    assert left_at(world) == []


def test_a_refused_call_never_starts_and_says_who_refused_it_and_with_which_words() -> None:
    words = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. …). To tell you how to "
        "proceed, the user said:\nuse the other one"
    )
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Bash", command="rm x")),
        result("c", "b", "t1", words, "User rejected tool use", error=True),
        said("d", "c", [text("[Request interrupted by user for tool use]")]),
    )
    assert world.types() == [
        "user.prompted", "model.responded", "approval.decided", "tool.finished", "cancel.requested",
    ]  # fmt: skip
    (decided,) = world.of("approval.decided")
    assert (decided.decision, decided.by, decided.note, decided.request) == ("deny", "person", "use the other one", 0)
    (finished,) = world.of("tool.finished")
    assert (finished.status, finished.text) == ("cancelled", words)
    assert world.state.agents["main"].outcome == "cancelled"
    (item,) = [one for one in world.state.agents["main"].items if type(one).__name__ == "Resulted"]
    assert item.text == words


def test_a_rule_that_denies_is_a_rule() -> None:
    words = "Permission to use Bash with command rm x has been denied."
    world = claude(ASKED, answer("b", "a", "m1", use("t1", "Bash", command="rm x")),
                   result("c", "b", "t1", words, f"Error: {words}", error=True))  # fmt: skip
    (decided,) = world.of("approval.decided")
    assert (decided.by, decided.rule) == ("rule", words)


def test_an_approved_plan_is_a_persons_decision_before_the_call_starts() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "ExitPlanMode", plan="1. do it")),
        result("c", "b", "t1", "User has approved your plan.", {"plan": "1. do it", "isAgent": False}),
    )
    assert world.types()[2:] == ["approval.decided", "tool.started", "tool.finished"]
    decided = next(event for event in world.events if event.type == "approval.decided")
    assert (decided.body.decision, decided.body.by) == ("allow", "person")
    assert world.of("tool.started")[0].approval == decided.seq


@pytest.mark.parametrize(
    ("told", "content", "error", "status", "code"),
    [
        ("Error: Exit code 3\nno", "Exit code 3\nno", True, "error", 3),
        ({"stdout": "x", "stderr": "", "interrupted": True}, "x", False, "cancelled", None),
        (None, "plain", False, "ok", None),
    ],
)
def test_how_a_command_ended_is_what_the_file_says(
    told: object, content: str, error: bool, status: str, code: int | None
) -> None:
    world = claude(ASKED, answer("b", "a", "m1", use("t1", "Bash", command="x")),
                   result("c", "b", "t1", content, told, error=error))  # fmt: skip
    (finished,) = world.of("tool.finished")
    assert (finished.status, finished.exit_code, finished.text) == (status, code, content)


def test_output_that_the_model_did_not_read_whole_is_kept_whole() -> None:
    told = {"stdout": "line 1\nline 2", "stderr": "warned"}
    world = claude(
        ASKED, answer("b", "a", "m1", use("t1", "Bash", command="x")), result("c", "b", "t1", "line 1 …", told)
    )
    (finished,) = world.of("tool.finished")
    assert world.content(finished.output) == b"line 1\nline 2\nwarned"
    assert finished.output_bytes == len(b"line 1\nline 2\nwarned")


@pytest.mark.parametrize(
    ("told", "before", "after"),
    [
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": "x = 1\n", "replaceAll": False},
         b"x = 1\n", b"x = 2\n"),
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": "1 1\n", "replaceAll": True},
         b"1 1\n", b"2 2\n"),
        ({"type": "create", "filePath": "/w/a.py", "content": "new\n", "structuredPatch": [], "originalFile": None},
         None, b"new\n"),
        ({"type": "update", "filePath": "/w/a.py", "content": "new\n", "structuredPatch": [], "originalFile": "old\n"},
         b"old\n", b"new\n"),
        ({"filePath": "/w/a.py", "originalFile": "a b\n", "structuredPatch": [],
          "edits": [{"old_string": "a", "new_string": "c"}, {"old_string": "c b", "new_string": "d"}]},
         b"a b\n", b"d\n"),
    ],
)  # fmt: skip
def test_an_edit_says_what_the_file_was_and_became(told: object, before: bytes | None, after: bytes) -> None:
    world = claude(ASKED, answer("b", "a", "m1", use("t1", "Edit")), result("c", "b", "t1", "done", told))
    assert world.types()[2:] == ["tool.started", "files.changed", "tool.finished"]
    (changed,) = world.of("files.changed")
    (one,) = changed.changes
    assert (one.path, world.content(one.before), world.content(one.after), one.note) == ("a.py", before, after, "")
    assert changed.calls == ("main/2",)


@pytest.mark.parametrize(
    "told",
    [
        {"filePath": "/x/a.py", "oldString": "1", "newString": "2", "originalFile": None, "structuredPatch": []},
        {"filePath": "/x/a.py", "oldString": "1", "newString": "2", "originalFile": "1 1", "structuredPatch": []},
        {"filePath": "/x/a.py", "oldString": "1", "newString": "2", "originalFile": "1", "userModified": True},
    ],
)
def test_an_edit_whose_contents_do_not_follow_from_the_file_is_not_guessed(told: object) -> None:
    world = claude(ASKED, answer("b", "a", "m1", use("t1", "Edit")), result("c", "b", "t1", "done", told))
    (one,) = world.of("files.changed")[0].changes
    assert (one.path, one.before, one.after) == ("/x/a.py", None, None)
    assert one.note


def test_an_agent_has_a_lane_its_task_its_lines_and_its_end() -> None:
    child = [
        said("x", None, "count", isSidechain=True, agentId="A1", at=2),
        answer("y", "x", "c1", text("three"), isSidechain=True, agentId="A1", at=3),
    ]
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Task", prompt="count", description="d"), at=1),
        result("c", "b", "t1", "three", {"status": "completed", "agentId": "A1", "totalDurationMs": 70}, at=4),
        agents={"A1": child},
    )
    lanes = [(event.agent, event.type) for event in world.events if event.agent == "main.1"]
    assert lanes == [
        ("main.1", "log.imported"), ("main.1", "agent.spawned"), ("main.1", "model.responded"),
        ("main.1", "agent.finished"),
    ]  # fmt: skip
    spawned = world.of("agent.spawned")[1]
    assert (spawned.task, spawned.parent, spawned.call) == ("count", "main", "main/2")
    assert world.of("agent.finished")[0].outcome == "done"
    types = [event.type for event in world.events]
    assert types.index("agent.finished") < types.index("tool.finished")
    assert world.of("tool.finished")[0].duration_ms == 70
    assert world.state.agents["main.1"].usage.output == 1


def test_an_agent_without_a_file_is_there_and_a_file_without_a_call_too() -> None:
    stray = [said("x", None, "lost", isSidechain=True, agentId="Z", at=9)]
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Agent", prompt="count")),
        result("c", "b", "t1", "3", {"status": "completed", "agentId": "A1"}),
        agents={"Z": stray},
    )
    assert [(body.task, body.call) for body in world.of("agent.spawned")[1:]] == [("count", "main/2"), ("lost", "")]
    assert list(world.state.agents) == ["main", "main.1", "main.2"]


def test_a_background_agent_ends_when_its_notice_comes() -> None:
    notice = "<task-notification>\n<task-id>A1</task-id>\n<status>failed</status>\n</task-notification>"
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Agent", prompt="count")),
        result("c", "b", "t1", "launched", {"isAsync": True, "status": "async_launched", "agentId": "A1"}),
        said("d", "c", notice, origin={"kind": "task-notification"}),
    )
    assert [body.outcome for body in world.of("agent.finished")] == ["failed"]
    assert world.types().count("user.prompted") == 1


def test_an_agents_file_alone_is_a_session_whose_task_is_no_persons_prompt() -> None:
    world = claude(
        said("x", None, "count", isSidechain=True, agentId="A1"),
        answer("y", "x", "c1", text("three"), isSidechain=True, agentId="A1"),
    )
    assert {event.agent for event in world.events} == {"main"}
    assert world.of("agent.spawned")[0].task == "count"
    assert world.types() == ["model.responded"]


def test_side_chains_in_the_sessions_own_file_are_agents() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Task", prompt="count")),
        said("x", None, "count", isSidechain=True),
        answer("y", "x", "c1", text("three"), isSidechain=True),
        result("c", "b", "t1", "three"),
    )
    assert [event.type for event in world.events if event.agent == "main.1"] == ["agent.spawned", "model.responded"]
    assert world.of("agent.spawned")[1].call == "main/2"
    assert left_at(world) == []


def test_what_the_program_says_in_a_persons_place_is_no_prompt_and_what_joins_a_turn_is_a_steer() -> None:
    world = claude(
        ASKED,
        said("m", "a", [text("Base directory for this skill: /x")], isMeta=True),
        said("o", "m", "<local-command-stdout>ok</local-command-stdout>"),
        line(
            "attachment", "q", "o", attachment={"type": "queued_command", "prompt": "faster", "commandMode": "prompt"}
        ),
        said("p", "q", [{"type": "image", "source": {"media_type": "image/png", "data": "AA=="}}, text("see")]),
    )
    assert [body.text for body in world.of("user.prompted")] == ["list it", "[image: image/png]\nsee"]
    assert [body.text for body in world.of("agent.steered")] == ["faster"]
    assert [body.what for body in world.of("source.kept")] == ["user (by the program)"] * 2


def test_an_error_of_the_provider_is_a_failed_attempt() -> None:
    api = line("system", "s", "a", subtype="api_error", error={"status": 529, "message": "busy"}, retryAttempt=2)
    shown = answer("b", "s", "m1", text("API Error: 401 no key"), isApiErrorMessage=True, error="authentication_failed")
    world = claude(ASKED, api, shown)
    assert [(body.failure, body.status, body.attempt) for body in world.of("model.failed")] == [
        ("overloaded", 529, 2), ("auth", 401, 1),
    ]  # fmt: skip


def test_the_mode_is_told_when_it_changes() -> None:
    first, second = (
        {"type": "permission-mode", "permissionMode": mode, "sessionId": "S"} for mode in ("plan", "default")
    )
    world = claude(first, ASKED, second, second)
    assert world.of("agent.spawned")[0].mode == "plan"
    assert [body.mode for body in world.of("policy.changed")] == ["default"]
    assert world.state.mode == "default"


def test_each_file_is_kept_byte_for_byte_where_its_lane_begins() -> None:
    child = [said("x", None, "count", isSidechain=True, agentId="A1")]
    world = claude(ASKED, agents={"A1": child})
    abouts = [(event.agent, event.body) for event in world.events if event.type == "log.imported"]
    assert [(agent, world.content(about.raw)) for agent, about in abouts] == [
        ("main", jsonl([ASKED])), ("main.1", jsonl(child)),
    ]  # fmt: skip


def test_two_files_of_one_agent_are_both_there() -> None:
    first = said("x", None, "count", isSidechain=True, agentId="A1")
    second = said("y", None, "weigh", isSidechain=True, agentId="A1")
    world = claude(ASKED, agents={"A1": [first], "copy": [second]})
    assert [body.task for body in world.of("agent.spawned")[1:]] == ["count", "weigh"]
    assert [body.source for body in world.of("log.imported")[1:]] == [
        "s/subagents/agent-A1.jsonl", "s/subagents/agent-copy.jsonl",
    ]  # fmt: skip


def test_unknown_kinds_and_lines_that_are_none_are_kept_raw_and_counted() -> None:
    odd = {"type": "hologram", "uuid": "h", "parentUuid": "a", "x": [1, {"y": None}]}
    world = claude_bytes(
        json.dumps(ASKED).encode()
        + b"\n{broken\n"
        + json.dumps(odd).encode()
        + b"\n\n[1]\n\xff\xfe\n"
        + b'{"type":"user","mess'
    )
    about = world.of("log.imported")[0]
    assert about.unreadable == 4
    assert [(one.what, one.count) for one in about.unknown] == [("hologram", 1)]
    kept = world.of("source.kept")
    assert [(body.why, body.line) for body in kept] == [
        ("unreadable", 2), ("unknown", 3), ("unreadable", 5), ("unreadable", 6), ("unreadable", 7),
    ]  # fmt: skip
    assert kept[1].raw == json.dumps(odd)
    assert world.content(kept[3].raw) == b"\xff\xfe"
    assert world.types() == ["user.prompted"]


def test_blocks_of_an_unknown_kind_inside_lines_that_are_read_are_counted() -> None:
    odd = {"type": "hologram", "x": 1}
    world = claude(
        said("a", None, [text("hi"), odd]),
        answer("b", "a", "m1", text("yes"), odd, {"type": "redacted_thinking", "data": "x"}, use("t1", "Bash")),
        result("c", "b", "t1", [text("out"), odd, {"kind": "none"}]),
        said("a", None, [odd]),
    )
    (about,) = world.of("log.imported")
    assert [(one.what, one.count) for one in about.unknown] == [("block hologram", 3), ("block no type", 1)]
    assert [body.text for body in world.of("user.prompted")] == ["hi"]
    assert json.loads(world.of("model.responded")[0].blocks[1].raw) == odd


def test_eight_times_as_many_compactions_take_about_eight_times_as_long() -> None:
    def seconds(count: int) -> float:
        lines: list[object] = []
        for n in range(count):
            lines.append(line("system", f"b{n}", None, subtype="compact_boundary", logicalParentUuid=f"s{n - 1}"))
            lines.append(said(f"s{n}", f"b{n}", "short", isCompactSummary=True))
        data = SourceFile("s.jsonl", jsonl(lines))
        began = process_time()
        made = claude_code.read([data], lambda content: BlobRef("0" * 64, len(content)))
        assert sum(isinstance(one.body, ContextCompacted) for one in made.events) == count
        return process_time() - began

    assert seconds(3_200) < 25 * min(seconds(400) for _ in range(3))


def test_half_of_a_surrogate_pair_and_bytes_that_are_no_text_do_not_hide_a_line() -> None:
    half = b'{"type":"user","uuid":"a","parentUuid":null,"message":{"content":"x \\ud83d y"}}\n'
    bad = b'{"type":"user","uuid":"b","parentUuid":"a","message":{"content":"caf\xe9"}}\n'
    world = claude_bytes(half + bad)
    assert [body.text for body in world.of("user.prompted")] == ["x \ufffd y", "caf\ufffd"]


def test_a_result_without_its_call_and_a_second_result_are_told_apart() -> None:
    world = claude(
        ASKED,
        result("b", "a", "gone", "lost"),
        answer("c", "b", "m1", use("t1", "Bash", command="x")),
        result("d", "c", "t1", "first"),
        result("e", "d", "t1", "second"),
    )
    assert [body.text for body in world.of("tool.finished")] == ["lost", "first"]
    assert [body.why for body in world.of("source.kept")] == ["repeated"]


def test_an_id_that_is_given_again_is_another_call() -> None:
    world = claude(
        ASKED,
        answer("b", "a", "m1", use("t1", "Bash", command="one")),
        result("c", "b", "t1", "first"),
        answer("d", "c", "m2", use("t1", "Bash", command="two")),
        result("e", "d", "t1", "second"),
    )
    assert [json.loads(body.args)["command"] for body in world.of("tool.started")] == ["one", "two"]
    assert [body.text for body in world.of("tool.finished")] == ["first", "second"]
    assert world.of("source.kept") == []


def test_a_call_without_a_result_is_open_at_the_end() -> None:
    world = claude(ASKED, answer("b", "a", "m1", use("t1", "Bash", command="sleep 9")))
    (run,) = world.state.agents["main"].batch
    assert (run.key, run.phase) == ("main/2", "running")


def test_a_time_that_is_none_is_that_of_the_line_before() -> None:
    world = claude(
        ASKED | {"timestamp": "2026-03-01T10:00:00+02:00"}, answer("b", "a", "m1", text("x")) | {"timestamp": 7}
    )
    assert {event.time for event in world.events} == {"2026-03-01T08:00:00.000000Z"}
