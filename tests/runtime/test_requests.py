"""What was sent: found again at any event, or a word about why it cannot be; never bytes that were not sent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.decide.context import Builder, Rules
from muse.event import codec
from muse.event.envelope import decode
from muse.event.kinds import COMMANDS, ContextCompacted, ModelRequested, ModelResponded, NoteAdded, UserPrompted
from muse.log.sqlite import SqliteLog
from muse.runtime.backwards import backwards, last_of
from muse.runtime.requests import request_at
from tests.runtime.retold import changed
from tests.runtime.rig import RULES, Rig, steps
from tests.ui.told import Telling


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLog]:
    rig = Rig(tmp_path_factory.mktemp("requests"), steps(3))
    rig.submit(UserPrompted(text="go there"))
    rig.run()
    opened = SqliteLog.open(rig.path, commands=COMMANDS, read_only=True)
    yield opened
    opened.close()


def requests(log: SqliteLog) -> list[int]:
    return [one.seq for one in log.read() if codec.parse_header(one.header).type == "model.requested"]


def test_at_every_event_it_is_the_last_request_before_it(log: SqliteLog) -> None:
    known = requests(log)
    assert len(known) == 4
    for seq in range(1, log.head().seq + 1):
        sent = request_at(log, seq, "main", RULES)
        before = [one for one in known if one <= seq]
        if not before:
            assert sent is None
            continue
        assert sent is not None
        assert sent.request.seq == before[-1]
        assert (sent.previous.seq if sent.previous else 0) == (before[-2] if len(before) > 1 else 0)
        assert sent.request.data is not None
        assert (sent.request.why, sent.request.differs) == ("", "")
        assert sent.answer is not None
        assert sent.answer.cause == sent.request.seq


def test_an_agent_that_asked_nothing_was_sent_nothing(log: SqliteLog) -> None:
    assert request_at(log, log.head().seq, "main.1", RULES) is None


def test_a_changed_story_gives_other_bytes_and_says_what_differs(log: SqliteLog) -> None:
    sent = request_at(changed(log, "user.prompted", b"go there", b"go everywhere"), 99, "main", RULES)
    assert sent is not None
    recorded = sent.request.asked
    assert recorded is not None
    assert f"{recorded.request_bytes + 5:,} bytes, recorded are {recorded.request_bytes:,}" in sent.request.differs
    assert f"recorded is {recorded.request_sha256}" in sent.request.differs
    assert sent.previous is not None
    assert sent.previous.differs


def test_what_was_redacted_is_the_reason_and_what_came_before_it_is_there(log: SqliteLog) -> None:
    first, second, *_ = requests(log)
    told = changed(log, "tool.finished", hidden=True)
    before = request_at(told, first, "main", RULES)
    assert before is not None
    assert before.request.data is not None
    after = request_at(told, second, "main", RULES)
    assert after is not None
    assert (after.request.data, after.request.differs) == (None, "")
    assert "is redacted" in after.request.why
    assert "tool.finished (#" in after.request.why
    assert after.previous is not None
    assert after.previous.data == before.request.data


def test_a_request_that_is_redacted_itself_is_told_apart(log: SqliteLog) -> None:
    first = requests(log)[0]
    sent = request_at(changed(log, "model.requested", hidden=True), first, "main", RULES)
    assert sent is not None
    assert (sent.request.asked, sent.request.data) == (None, None)
    assert f"#{first} itself is redacted" in sent.request.why


def test_a_builder_that_is_not_at_hand_is_named(log: SqliteLog) -> None:
    other = Rules(version=1, builders={"scripted": Builder("scripted/9", RULES.builders["scripted"].build)})
    sent = request_at(log, 99, "main", other)
    assert sent is not None
    assert sent.request.data is None
    assert sent.request.why == "it was built by scripted/1, and this build has scripted/9"


def test_an_impossible_story_is_a_reason_and_no_traceback(log: SqliteLog) -> None:
    told = changed(log, "tool.started", b'"call":"main/2"', b'"call":"main/9"')
    sent = request_at(told, 99, "main", RULES)
    assert sent is not None
    assert "impossible" in sent.request.why


def asks(call: str) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=1, provider="scripted", model="-", builder="scripted/1", items=1, request_sha256="0",
        request_bytes=1,
    )  # fmt: skip


def test_what_compaction_hid_from_this_agent_before_is_told_and_nothing_else(tmp_path: Path) -> None:
    words = [UserPrompted(text="one"), UserPrompted(text="two")]
    with Telling(tmp_path) as story:  # 1 is the opening
        story.say(*words)  # 2, 3
        story.say(NoteAdded(text="not hers"), agent="main.1")  # 4
        story.say(ContextCompacted(first=2, last=4, text="in short", method="by hand"))  # 5
        story.say(ContextCompacted(first=4, last=4, text="of another", method="-"), agent="main.1")  # 6
        story.say(asks("main/1"))  # 7
        story.say(ContextCompacted(first=2, last=3, text="later", method="-"))  # 8
        sent = request_at(story.log, 8, "main", RULES)
    assert sent is not None
    (hidden,) = sent.compacted
    assert (hidden.seq, hidden.first, hidden.last, hidden.method) == (5, 2, 4, "by hand")
    assert (hidden.events, hidden.after) == (2, len("in short"))
    assert hidden.before == sum(len(codec.encode(one)) for one in words)


@pytest.mark.parametrize("agent", ["main", "main.1"])
def test_a_request_that_nothing_answered_does_not_take_the_answer_of_the_next(tmp_path: Path, agent: str) -> None:
    answer = ModelResponded(call=f"{agent}/1", attempt=1, blocks=(), stop="end_turn")
    with Telling(tmp_path) as story:
        first = story.say(asks(f"{agent}/1"), agent=agent)
        second = story.say(asks(f"{agent}/1"), agent=agent)
        story.say(answer, agent=agent)
        sent = [request_at(story.log, seq, agent, RULES) for seq in (first, second)]
    assert [one and one.answer and one.answer.seq for one in sent] == [None, second + 1]


def test_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps(3))
    rig.submit(UserPrompted(text="go there"))
    rig.run()
    with rig.handle() as log:
        from muse.fold.state import STATE_VERSION
        from muse.runtime.checkpoint import fold, write_state

        plain = [request_at(log, seq, "main", RULES) for seq in requests(log)]
        ownership = log.hold()
        for seq in range(3, log.head().seq, 4):
            log.save_checkpoint(seq, STATE_VERSION, write_state(fold(log, before=seq + 1)))
        ownership.release()
        assert [request_at(log, seq, "main", RULES) for seq in requests(log)] == plain


def test_reading_backwards_finds_the_same_as_reading_forwards(log: SqliteLog) -> None:
    events = [decode(one.header, one.body, one.hidden) for one in log.read()]
    for before in (1, 2, 7, len(events) + 1):
        expected = [one.seq for one in events if one.seq < before and isinstance(one.body, ModelRequested)]
        assert [one.seq for one in backwards(log, before, ("model.requested",), "main")] == expected[::-1]
    assert [one.seq for one in backwards(log, 9, ("model.requested", "tool.started"), after=4)] == [
        one.seq for one in reversed(events) if 4 < one.seq < 9 and one.type in ("model.requested", "tool.started")
    ]
    assert last_of(log, "main") == len(events)
    assert last_of(log, "main.3") == 0
