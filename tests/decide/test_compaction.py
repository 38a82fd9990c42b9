"""Given a transcript that nears the model's window, when the rules are asked, then it gets shorter, and how."""

from typing import Any

import pytest

from muse.decide.compaction import INSTRUCTION, PLAIN_HEAD
from muse.event.content import Usage
from muse.event.conversation import Resulted, Said
from muse.event.kinds import AgentSteered, CancelRequested, ContextCompacted, ModelRequested, ModelResponded
from muse.fold import compaction
from tests.decide.long import TOOLS, Long, settings


def test_old_bulky_results_leave_first_and_say_how_to_read_them_again() -> None:
    story = Long(settings(window=20_000))
    story.prompt()
    story.work(8, 8_000)  # 8 × 8,006 bytes are 16,012 tokens of 16,000 that fit
    (body,) = story.compactions
    assert body.method == "results"
    assert body.calls == ("main/2", "main/4", "main/6", "main/8", "main/10", "main/12", "main/14")
    results = [item for item in story.main.items if isinstance(item, Resulted)]
    assert results[0].text == (
        "[To make room, this result of 8,006 bytes has left the conversation."
        ' Read it again with recall(call="main/2").]'
    )
    assert results[-1].text.startswith("00007 xxx")
    assert body.first == results[0].seq
    assert body.last == results[6].seq
    assert body.bytes_before - body.bytes_after == 7 * 8_006 - sum(len(one.text) for one in results[:7])


def test_where_results_are_not_enough_older_turns_are_summarised_by_a_recorded_call() -> None:
    story = Long(settings(window=4_000))
    story.prompt("make it green")
    while not story.main.call or story.main.call.purpose == "turn":
        story.answer("a" * 1_500, uses=1)
        story.results("small")
    asked = story.events[-1].body
    assert isinstance(asked, ModelRequested)
    assert asked.purpose == "summary"
    assert asked.items == len(story.main.items)
    request = story.requests[-1][1].decode()
    assert "The conversation is about to become too long" in request
    key = story.main.call.key
    before, items = story.main.items_bytes, list(story.main.items)
    compacted, again = story.answer("tests are green but for one", usage=Usage(input=3_000, output=20))
    assert isinstance(compacted, ContextCompacted)
    assert (compacted.method, compacted.call, compacted.bytes_before) == ("summary", key, before)
    assert compacted.bytes_after == story.main.items_bytes < before
    assert isinstance(again, ModelRequested)
    assert again.purpose == "turn"
    first, said, *tail = story.main.items
    assert (first.text, said.source) == ("make it green", "summary")
    assert said.text.endswith("]\n\ntests are green but for one")
    gone = [item.seq for item in items[: len(items) - compacted.kept]]
    assert (compacted.first, compacted.last) == (min(gone), max(gone))
    assert f"events #{compacted.first} to #{compacted.last}" in said.text
    assert len(tail) == compacted.kept
    assert INSTRUCTION not in story.requests[-1][1].decode()
    assert story.main.usage.input == 3_000  # it is paid for


def test_a_summary_keeps_the_answers_that_it_stands_for_in_count() -> None:
    story = Long(settings(window=4_000))
    story.prompt()
    for number in range(24):
        story.sum_up()
        story.answer(f"{number} " + "a" * 1_500, uses=1)
        story.results("small")
    story.sum_up()
    assert len(story.compactions) > 1
    answered = sum(isinstance(event.body, ModelResponded) for event in story.events) - len(story.compactions)
    told = [item for item in story.main.items if isinstance(item, Said) and item.source == "summary"]
    assert len(told) == 1
    assert told[0].answers + sum(not isinstance(item, Said | Resulted) for item in story.main.items) == answered


def test_nothing_is_compacted_while_there_is_room_or_the_window_is_not_known() -> None:
    for given in (settings(window=0), settings(window=1_000_000), settings(window=10_000, compact_permille=0)):
        story = Long(given)
        story.prompt()
        story.work(12, 8_000)
        assert story.compactions == []


def test_sessions_of_earlier_rules_are_not_compacted() -> None:
    story = Long(rules=2)
    story.prompt()
    story.work(12, 8_000)
    story.fail("too_large")
    assert story.compactions == []
    assert story.state.outcome == "provider"


def test_the_size_is_what_the_provider_counted_and_what_came_since() -> None:
    story = Long(settings(window=100_000))
    story.prompt()
    story.answer("hm", uses=1, usage=Usage(input=1_000, cache_read=20_000, cache_write=300, output=50))
    story.results("y" * 4_000)
    assert compaction.tokens(story.main) == 21_350 + 1_000


def test_what_people_said_stays_in_their_words_as_long_as_there_is_room() -> None:
    story = Long(settings(window=6_000))
    words = [f"wish {number} " + "w" * 400 for number in range(9)]
    for text in words:
        story.prompt(text)
        story.sum_up()
        story.answer("a" * 2_000)
    story.prompt("and now")
    story.sum_up()
    assert story.compactions
    said = [item for item in story.main.items if isinstance(item, Said)]
    assert said[0].text == words[0]
    summary = next(item for item in said if item.source == "summary")
    verbatim = {item.text for item in said}
    last = story.compactions[-1]
    assert f"recall(from={last.first}, to={last.last})" in summary.text
    for seq, text in story.said:
        assert text in verbatim or last.first <= seq <= last.last


def test_a_steer_is_not_swallowed_by_the_request_for_a_summary() -> None:
    story = _at_summary()
    story.put(AgentSteered(text="use tabs"))
    assert story.decide() == []
    story.answer("so far so good")
    assert any(isinstance(item, Said) and item.text == "use tabs" for item in story.main.items[-1:])
    assert b"use tabs" not in story.requests[-2][1]
    assert b"use tabs" in story.requests[-1][1]


def test_a_turn_that_is_cancelled_during_a_summary_ends_without_its_words() -> None:
    story = _at_summary()
    story.put(CancelRequested(target="turn"))
    call = story.main.call
    assert call.cancelling
    story.fail("cancelled")
    assert story.main.call is None
    assert story.state.closed
    notice = story.main.items[-1]
    assert notice.text == "[The turn was interrupted: the user cancelled it.]"
    story.prompt("go on")
    assert story.main.call.purpose == "summary"


def test_a_summary_that_was_written_before_the_cancel_came_is_used_in_the_next_turn() -> None:
    story = _at_summary()
    story.put(CancelRequested(target="turn"))
    story.answer("written in time")
    assert story.state.closed
    taken = story.prompt("go on")
    assert [type(one) for one in taken] == [ContextCompacted, ModelRequested]
    assert "written in time" in story.requests[-1][1].decode()


def test_after_a_crash_the_same_summary_is_asked_for_again() -> None:
    from muse.event.kinds import EffectDoubted, EffectReconciled

    story = _at_summary()
    asked, before = story.main.call, story.requests[-1][1]
    story.open()
    (doubted,) = story.decide()
    assert isinstance(doubted, EffectDoubted)
    story.put(EffectReconciled(call=asked.key, attempt=1, verdict="retried", evidence=""))
    (again,) = story.decide()
    assert isinstance(again, ModelRequested)
    assert (again.call, again.attempt, again.purpose) == (asked.key, 2, "summary")
    assert story.requests[-1][1] == before


@pytest.mark.parametrize("how", ["empty", "too_large", "invalid"])
def test_a_summary_that_cannot_be_had_is_done_without(how: Any) -> None:
    story = _at_summary()
    compacted, asked = story.answer("") if how == "empty" else story.fail(how)
    assert isinstance(compacted, ContextCompacted)
    assert compacted.call == ""
    assert compacted.text.startswith(PLAIN_HEAD)
    assert '- main/2 read "{}"' in compacted.text
    assert '"make it green"' in compacted.text
    assert isinstance(asked, ModelRequested)
    assert asked.purpose == "turn"


@pytest.mark.parametrize("window", [2, 10, 40, 100, 150, 200, 400])
def test_a_window_that_holds_not_even_what_requests_begin_with_ends_nothing(window: int) -> None:
    story = Long(settings(window=window))
    story.prompt("make it green")
    for _ in range(8):
        story.sum_up("sum")
        story.answer("a" * 50, uses=1)
        story.results("x" * 3_000)
    story.sum_up("sum")
    assert {one.method for one in story.compactions} == {"results", "summary"}
    story.answer("done")
    assert story.state.outcome == "done"


def test_a_provider_that_cannot_be_asked_costs_no_words() -> None:
    story = _at_summary()
    story.fail("auth")
    assert story.compactions == []
    assert story.state.outcome == "provider"
    story.open()
    (asked,) = story.decide()
    assert isinstance(asked, ModelRequested)
    assert asked.purpose == "summary"


def test_a_request_that_is_too_large_is_asked_again_under_its_key_when_it_has_got_shorter() -> None:
    story = Long(settings(window=0))
    story.prompt()
    story.work(10, 8_000)
    key = story.main.call.key
    compacted, asked = story.fail("too_large")
    assert isinstance(compacted, ContextCompacted)
    assert compacted.method == "results"
    assert isinstance(asked, ModelRequested)
    assert (asked.call, asked.attempt) == (key, 2)
    assert story.requests[-1][0] == story.state.seq
    assert len(story.requests[-1][1]) < len(story.requests[-2][1])
    story.answer("that fits")
    assert story.state.outcome == "done"


def test_where_results_are_not_what_is_too_large_a_summary_is_asked_for_meanwhile() -> None:
    story = Long(settings(window=0))
    story.prompt()
    for _ in range(10):
        story.answer("a" * 4_000, uses=1)
        story.results("small")
    key = story.main.call.key
    (summary,) = story.fail("too_large")
    assert isinstance(summary, ModelRequested)
    assert (summary.purpose, summary.call) == ("summary", "main/22")
    assert summary.items < len(story.main.items)  # what was too large is not sent whole
    _, again = story.answer("short")
    assert isinstance(again, ModelRequested)
    assert (again.call, again.attempt, again.purpose) == (key, 2, "turn")
    assert not story.main.aside


def test_what_is_too_large_and_cannot_get_shorter_is_tried_once_more_at_most() -> None:
    story = Long(settings(window=0))
    story.prompt("p" * 50_000)
    story.fail("too_large")
    assert story.state.outcome == "provider"
    story = Long(settings(window=0))
    story.prompt()
    story.answer("h" * 50_000, uses=1)
    story.results("small")
    (again,) = story.fail("too_large")
    assert isinstance(again, ModelRequested)
    assert again.attempt == 2
    story.fail("too_large")
    assert story.state.outcome == "provider"


def test_results_that_the_model_has_not_seen_leave_only_where_nothing_else_helps() -> None:
    story = Long(settings(window=4_000))
    story.prompt()
    story.answer("look", uses=1)
    story.results("z" * 30_000)
    (body,) = story.compactions
    assert body.calls == ("main/2",)
    assert 'recall(call="main/2", limit=3200)' in story.main.items[-1].text, "a quarter of the 12,800 bytes that fit"
    story.answer("again, less of it", uses=1)
    story.results("z" * 3_200)
    assert story.compactions == [body], "the model sees what it asked for"


def test_an_agent_without_the_tool_is_not_told_of_it() -> None:
    story = Long(settings(window=20_000), tools=TOOLS[:1])
    story.prompt()
    story.work(8, 8_000)
    assert "recall" not in story.requests[-1][1].decode()


def test_a_fixed_part_that_fills_the_window_makes_no_endless_loop() -> None:
    story = Long(settings(window=600))
    story.prompt("p" * 3_000)
    story.work(6, 3_000)
    assert all(one.bytes_after < one.bytes_before for one in story.compactions)


def _at_summary() -> Long:
    story = Long(settings(window=4_000))
    story.prompt("make it green")
    while story.main.call.purpose == "turn":
        story.answer("a" * 1_500, uses=1)
        story.results("small")
    return story
