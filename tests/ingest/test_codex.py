"""Each fact that is known of Codex's rollouts, by a small file written by hand."""

import json

import pytest

from tests.ingest.made import counted, item, message, rollout, rollout_bytes, shown, wrapped

META = wrapped("session_meta", id="own", originator="codex-tui", cli_version="0.9", cwd="/w", model_provider="openai",
               base_instructions={"text": "Be good."}, git={"branch": "main"})  # fmt: skip
TURN = wrapped("turn_context", turn_id="t", cwd="/w", model="g-1", approval_policy="on-request",
               sandbox_policy={"type": "read-only"})  # fmt: skip


def call(id_: str, name: str = "exec_command", at: int = 0, **args: object) -> dict[str, object]:
    return item("function_call", at, name=name, arguments=json.dumps(args), call_id=id_)


def output(id_: str, words: object, at: int = 0) -> dict[str, object]:
    return item("function_call_output", at, call_id=id_, output=words)


def test_the_head_has_the_system_prompt_the_model_and_the_policy_of_the_first_turn() -> None:
    world = rollout(META, TURN, message("user", "hi"))
    about, spawned = world.of("log.imported")[0], world.of("agent.spawned")[0]
    assert (about.program, about.source_session, about.workspace) == ("codex-tui 0.9", "own", "/w")
    assert "the system prompt" not in about.missing
    assert "approvals asked and given" in about.missing
    assert (spawned.system, spawned.model, spawned.mode) == ("Be good.", "g-1", "on-request, read-only")


def test_items_up_to_an_output_are_one_response_and_each_output_finds_its_call() -> None:
    world = rollout(
        META, TURN, message("user", "look"),
        item("reasoning", 1, summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="e"),
        message("assistant", "I look.", 1), call("c1", at=1, cmd="ls"), call("c2", at=2, cmd="pwd"),
        output("c2", "/w", 3), output("c1", "a.py", 4),
        message("assistant", "One file.", 5),
    )  # fmt: skip
    assert world.types() == [
        "user.prompted", "model.responded", "tool.started", "tool.started", "tool.finished", "tool.finished",
        "model.responded",
    ]  # fmt: skip
    first = world.of("model.responded")[0]
    assert [block.kind for block in first.blocks] == ["reasoning", "text", "tool_use", "tool_use"]
    assert (first.stop, first.model, first.blocks[2].args) == ("tool_use", "g-1", '{"cmd": "ls"}')
    assert [(body.call, body.text) for body in world.of("tool.finished")] == [("main/3", "/w"), ("main/2", "a.py")]
    assert world.state.agents["main"].outcome == "done"


def test_what_is_shown_is_not_counted_twice() -> None:
    world = rollout(
        META, message("user", "hi"), shown("user_message", message="hi"),
        item("reasoning", summary=[]), shown("agent_reasoning", text="thinking"),
        shown("agent_message", message="yes"), message("assistant", "yes"),
    )  # fmt: skip
    assert world.types() == ["user.prompted", "model.responded"]
    assert len(world.of("model.responded")[0].blocks) == 2


def test_what_is_only_shown_counts_once() -> None:
    world = rollout(
        META, shown("user_message", message="hi"), shown("agent_message", message="yes"),
        shown("user_message", message="hi"), shown("agent_message", message="yes"),
    )  # fmt: skip
    assert world.types() == ["user.prompted", "model.responded"] * 2
    assert world.of("model.responded")[0].blocks[0].text == "yes"


def test_in_a_paginated_history_completed_items_are_the_words_and_no_second_copy_of_them() -> None:
    def done(kind: str, **more: object) -> dict[str, object]:
        return shown("item_completed", item={"type": kind, **more})

    asked = done("UserMessage", id="u", content=[{"type": "text", "text": "hi"}])
    told = done("AgentMessage", id="m", content=[{"type": "Text", "text": "yes"}])
    once = rollout(META, asked, told)
    assert [body.text for body in once.of("user.prompted")] == ["hi"]
    assert once.of("model.responded")[0].blocks[0].text == "yes"
    twice = rollout(META, message("user", "hi"), asked, told, message("assistant", "yes"))
    assert twice.types() == ["user.prompted", "model.responded"]


def test_what_the_program_says_in_a_persons_place_is_kept() -> None:
    world = rollout(
        META, item("message", role="developer", content=[{"type": "input_text", "text": "rules"}]),
        message("user", "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"),
        message("user", "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>x"), message("user", "hi"),
    )  # fmt: skip
    assert [body.text for body in world.of("user.prompted")] == ["hi"]
    kept = [body.what for body in world.of("source.kept")]
    assert kept == ["session_meta", "message (developer)", "message (user)", "message (user)"]


def test_tokens_are_what_the_running_totals_grew_by() -> None:
    world = rollout(
        META, message("user", "hi"), shown("token_count", info=None),
        message("assistant", "a"), counted((100, 60, 5)), counted((100, 60, 5)),
        message("user", "more"), message("assistant", "b"), counted((250, 160, 12), (150, 100, 7)),
    )  # fmt: skip
    usage = [body.usage for body in world.of("model.responded")]
    assert [(one.input, one.cache_read, one.output) for one in usage] == [(40, 60, 5), (50, 100, 7)]


def test_tokens_counted_after_the_output_belong_to_the_response_before_it() -> None:
    world = rollout(META, call("c1", cmd="ls"), output("c1", "x"), counted((10, 0, 3)), message("assistant", "b"))
    assert [body.usage.output for body in world.of("model.responded")] == [3, 0]


@pytest.mark.parametrize(
    ("words", "told", "status", "code", "milliseconds"),
    [
        ("Chunk ID: x\nWall time: 0.2500 seconds\nProcess exited with code 2\nOutput:\nno", None, "error", 2, 250),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nExit code: 9", None, "ok", 0, 1000),
        ('{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.4}}', None, "error", 1, 400),
        ("fine", {"exit_code": 7, "duration": {"secs": 1, "nanos": 5_000_000}}, "error", 7, 1005),
        ("aborted by user after 3.1s", None, "cancelled", None, 0),
        ("anything", None, "ok", None, 0),
    ],
)
def test_how_a_command_ended_is_what_the_file_says(
    words: str, told: dict[str, object] | None, status: str, code: int | None, milliseconds: int
) -> None:
    end = [shown("exec_command_end", call_id="c1", **told)] if told else []
    world = rollout(META, call("c1", cmd="x"), *end, output("c1", words))
    (finished,) = world.of("tool.finished")
    assert (finished.status, finished.exit_code, finished.duration_ms) == (status, code, milliseconds)
    assert finished.text == words


def test_output_that_the_model_did_not_read_whole_is_kept_whole() -> None:
    end = shown("exec_command_end", call_id="c1", exit_code=0, aggregated_output="all of it\n")
    (finished,) = (world := rollout(META, call("c1", cmd="x"), end, output("c1", "cut"))).of("tool.finished")
    assert world.content(finished.output) == b"all of it\n"


def test_a_rejected_call_never_starts() -> None:
    world = rollout(META, call("c1", cmd="rm x"), output("c1", "exec command rejected by user"))
    assert world.types() == ["model.responded", "approval.decided", "tool.finished"]
    assert [(body.decision, body.by) for body in world.of("approval.decided")] == [("deny", "person")]
    assert world.of("tool.finished")[0].status == "cancelled"


def test_arguments_that_are_no_json_stay_as_they_were_sent() -> None:
    broken = item("function_call", name="shell", arguments='{"command": ["ls"', call_id="c1")
    world = rollout(META, broken, output("c1", "failed to parse"))
    assert world.of("tool.started")[0].args == '{"command": ["ls"'


def test_calls_of_every_kind_are_paired() -> None:
    world = rollout(
        META,
        item("local_shell_call", call_id="c1", action={"type": "exec", "command": ["bash", "-lc", "ls"]}),
        item("function_call_output", call_id="c1", output={"content": "a", "success": True}),
        item("custom_tool_call", call_id="c2", name="exec", input="const x = 1"),
        item("custom_tool_call_output", call_id="c2", output=[{"type": "input_text", "text": "Script failed"}]),
        item("web_search_call", action={"type": "search", "query": "cats"}),
    )
    started = world.of("tool.started")
    assert [(body.tool, body.args) for body in started] == [
        ("local_shell", '{"type":"exec","command":["bash","-lc","ls"]}'), ("exec", "const x = 1"),
    ]  # fmt: skip
    assert [(body.text, body.status) for body in world.of("tool.finished")] == [("a", "ok"), ("Script failed", "error")]
    assert world.of("model.responded")[-1].blocks[0].text == "web_search_call: cats"


def test_a_patch_says_what_it_changed_as_far_as_it_is_recorded() -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** Update File: old.txt\n@@\n-a\n+b\n*** End Patch"
    change = item("custom_tool_call", call_id="c1", name="apply_patch", input=patch)
    done = item("custom_tool_call_output", call_id="c1", output='{"output":"Success","metadata":{"exit_code":0}}')
    world = rollout(META, change, done)
    added, updated = world.of("files.changed")[0].changes
    assert (added.path, world.content(added.after), added.before) == ("new.txt", b"one\ntwo\n", None)
    assert (updated.path, updated.after) == ("old.txt", None)
    assert updated.note
    both = {"/w/new.txt": {"type": "add", "content": "one\n"}, "/w/gone": {"delete": {"content": "x"}}}
    told = shown("patch_apply_end", call_id="c1", success=True, changes=both)
    world = rollout(META, change, told, done)
    added, deleted = world.of("files.changed")[0].changes
    assert (added.path, world.content(added.after)) == ("new.txt", b"one\n")
    assert (deleted.path, world.content(deleted.before), deleted.after) == ("gone", b"x", None)


def test_a_turn_that_was_aborted_is_a_cancel() -> None:
    world = rollout(META, message("user", "write"), shown("turn_aborted", reason="interrupted"))
    assert [body.why for body in world.of("cancel.requested")] == ["interrupted"]
    assert world.state.agents["main"].outcome == "cancelled"


def test_going_back_by_turns_leaves_what_came_after() -> None:
    world = rollout(
        META, message("user", "one"), message("assistant", "1"), message("user", "two"), message("assistant", "2"),
        shown("thread_rolled_back", num_turns=1), message("user", "three"),
    )  # fmt: skip
    (back,) = world.of("session.rewound")
    prompts = [event.seq for event in world.events if event.type == "user.prompted"]
    assert back.to == prompts[1] - 1
    items = world.state.agents["main"].items
    assert [getattr(one, "text", None) or one.blocks[0].text for one in items] == ["one", "1", "three"]


def test_a_compaction_stands_for_all_before_it_also_where_its_summary_is_encrypted() -> None:
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
               {"type": "compaction", "encrypted_content": "gAAA"}]  # fmt: skip
    hidden = wrapped("compacted", message="", replacement_history=history)
    closed = rollout(META, message("user", "hi"), message("assistant", "a"), hidden, shown("context_compacted"))
    (body,) = closed.of("context.compacted")
    assert (body.first, body.last, body.text, body.method) == (3, 5, "hi", "codex, the summary is encrypted")
    assert [one.what for one in closed.of("source.kept")] == ["session_meta"]
    (told,) = rollout(META, message("user", "hi"), wrapped("compacted", message="In short.")).of("context.compacted")
    assert (told.text, told.method) == ("In short.", "codex")


PARENT_TURN, OWN_TURN = "019a0000-0000-7000-8000-000000000001", "019a0009-0000-7000-8000-000000000001"


def test_a_fork_labels_what_it_repeats_and_does_not_count_its_tokens() -> None:
    own = wrapped("session_meta", id="019a0005-0000-7000-8000-000000000000", cwd="/own", forked_from_id="parent")
    world = rollout(
        own,
        wrapped("session_meta", id="019a0000-0000-7000-8000-000000000000", cwd="/parent"),
        shown("task_started", turn_id=PARENT_TURN), message("user", "old"), message("assistant", "a"),
        counted((50, 0, 9)),
        shown("task_started", turn_id=OWN_TURN), message("user", "new"), message("assistant", "b"),
        counted((80, 0, 20)),
    )  # fmt: skip
    about = world.of("log.imported")[0]
    assert (about.workspace, about.source_parent) == ("/own", "parent")
    new = next(event.seq for event in world.events if event.type == "user.prompted" and event.body.text == "new")
    (aside,) = about.asides
    assert (aside.what, aside.last) == ("repeated", new - 2)
    assert [body.usage.output for body in world.of("model.responded")] == [0, 11]
    assert [body.why for body in world.of("source.kept")][:2] == ["no_counterpart", "repeated"]


def test_another_model_and_another_policy_are_told_when_they_come() -> None:
    later = wrapped("turn_context", model="g-2", approval_policy="never", sandbox_policy={"mode": "danger-full-access"})
    world = rollout(META, TURN, message("user", "hi"), TURN, later)
    assert [body.model for body in world.of("model.changed")] == ["g-2"]
    assert [body.mode for body in world.of("policy.changed")] == ["never, danger-full-access"]


def test_the_old_family_without_envelopes_is_read_and_says_that_it_has_no_times() -> None:
    head = {"id": "own", "timestamp": "2026-01-01T00:00:00Z", "instructions": "the user's", "git": {"branch": "b"}}
    items = [
        one["payload"]
        for one in (message("user", "hi"), message("assistant", "yes"), call("c1", "shell", command=["ls"]))
    ]
    world = rollout(
        head, {"record_type": "state"}, *items, {"type": "function_call_output", "call_id": "c1", "output": "x"}
    )
    about = world.of("log.imported")[0]
    assert (about.source_session, about.branch) == ("own", "b")
    assert {"the times of lines", "the system prompt", "token counts"} <= set(about.missing)
    assert world.types() == ["user.prompted", "model.responded", "tool.started", "tool.finished"]
    assert world.of("agent.spawned")[0].system == ""
    assert about.unknown == ()


def test_unknown_kinds_and_lines_that_are_none_are_kept_raw_and_counted() -> None:
    world = rollout(META, wrapped("hologram", x=1), shown("odd_event"), item("odd_item"), "{broken")
    about = world.of("log.imported")[0]
    assert about.unreadable == 1
    assert [one.what for one in about.unknown] == ["event_msg/odd_event", "hologram", "odd_item"]
    torn = json.dumps(META).encode() + b"\n" + json.dumps(message("user", "hi")).encode()[:-5]
    assert rollout_bytes(torn).of("log.imported")[0].unreadable == 1


def test_an_output_without_its_call_and_a_call_without_its_output_are_both_there() -> None:
    world = rollout(META, output("gone", "x"), call("c1", cmd="sleep 9"))
    assert world.of("tool.finished")[0].text == "x"
    (run,) = world.state.agents["main"].batch
    assert run.phase == "running"


def test_an_id_that_is_given_again_is_another_call() -> None:
    world = rollout(
        wrapped("session_meta", id="own"),
        item("function_call", name="shell", arguments='{"command":["one"]}', call_id="c1"),
        item("function_call_output", call_id="c1", output="first"),
        item("function_call", name="shell", arguments='{"command":["two"]}', call_id="c1"),
        item("function_call_output", call_id="c1", output="second"),
    )
    assert [json.loads(body.args)["command"] for body in world.of("tool.started")] == [["one"], ["two"]]
    assert [body.text for body in world.of("tool.finished")] == ["first", "second"]


def test_parts_of_an_unknown_kind_inside_lines_that_are_read_are_counted() -> None:
    odd = {"type": "hologram", "x": 1}
    world = rollout(
        wrapped("session_meta", id="own"),
        item("message", role="user", content=[{"type": "input_text", "text": "hi"}, odd]),
        item("message", role="assistant", content=[{"type": "output_text", "text": "yes"}, odd]),
        item("custom_tool_call_output", call_id="c1", output=[{"type": "input_text", "text": "out"}, odd]),
    )
    (about,) = world.of("log.imported")
    assert [(one.what, one.count) for one in about.unknown] == [("part hologram", 3)]
    assert [body.text for body in world.of("user.prompted")] == ["hi"]
