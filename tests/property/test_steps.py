"""Whatever the log, and in whatever order its steps are looked at, each is what the log says read from the front."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import precondition, rule

from bench import sessions
from muse.app.places import read_session
from muse.app.step_search import Pattern, pattern
from muse.app.steps import Selection, Steps
from muse.errors import UsageError
from muse.event.codec import encode, encode_header
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.event.kinds import (
    CommandRefused,
    ModelRequested,
    ModelResponded,
    QuestionAnswered,
    QuestionAsked,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.fold.state import STATE_VERSION, Session
from muse.log.sqlite import SqliteLog
from muse.runtime.checkpoint import fold, write_state
from muse.runtime.light import Lights
from muse.view.detail import detailed
from muse.view.filters import Filter, Past, learn
from muse.view.marks import Mark, bits, mark
from muse.view.panel import Question, Size
from muse.view.text import row_text
from muse.view.timeline import Context, Row, rows
from tests.property.played import Bytes, events_of, mutilated, place_of, reading_of, rows_of, states_of
from tests.property.test_due_machine import TYPE_OF, World

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "0.1.0.muse"


def indexed(steps: Steps) -> Steps:
    while steps.index():
        pass
    return steps


def check_states(events: Sequence[Event], every: int) -> None:
    """From states kept so often, in any order, each state is the full fold's."""
    lights, wanted = Lights("s", every), states_of(events)
    for event in events:
        lights.take(event)
    order = list(range(len(events) + 1))
    Random(len(events)).shuffle(order)
    for seq in order:
        found = lights.at(seq, lambda after, before: events[after : before - 1])
        assert found == (wanted[seq] if seq < len(wanted) else None), f"event {seq}"


def check_steps(steps: Steps, events: Sequence[Event]) -> None:
    """All that `Steps` says, against all that is said by reading everything from the front."""
    wanted_rows, wanted_states = rows_of(events), states_of(events, steps.session)
    order = list(range(1, len(events) + 1))
    Random(len(events)).shuffle(order)
    for seq in order:
        assert steps.row(seq) == wanted_rows[seq - 1]
        assert steps.rows(seq, 7) == wanted_rows[seq - 1 : seq + 6]
        assert steps.state(seq) == (wanted_states[seq] if seq < len(wanted_states) else None)
        assert steps.mark(seq) == mark(events[seq - 1])
    _check_beside(steps, events)
    _check_going(steps, events)


def _check_beside(steps: Steps, events: Sequence[Event]) -> None:
    sizes: dict[str, Size] = {}
    asked: list[Question] = []
    for event in events:
        match event.body:
            case ModelRequested() as body:
                sizes[event.agent] = Size(seq=event.seq, items=body.items, request_bytes=body.request_bytes)
            case ModelResponded() as body if event.agent in sizes and not sizes[event.agent].tokens:
                last, used = sizes[event.agent], body.usage
                counted = used.input + used.cache_read + used.cache_write
                sizes[event.agent] = Size(
                    seq=last.seq, items=last.items, request_bytes=last.request_bytes, tokens=counted
                )  # fmt: skip
            case QuestionAsked() as body:
                asked.append(Question(seq=event.seq, agent=event.agent, text=body.text))
            case QuestionAnswered() as body:
                asked = [one for one in asked if one.seq != body.question]
        now = steps.panel(event.seq)
        if now is not None:
            sent = {agent.agent: (agent.items, agent.request_bytes, agent.request_tokens) for agent in now.agents}
            for agent, size in sizes.items():
                if agent in sent:
                    assert sent[agent] == (size.items, size.request_bytes, size.tokens)
            assert list(now.questions) == asked


def _check_going(steps: Steps, events: Sequence[Event]) -> None:
    marks = [mark(event) for event in events]
    for wanted in ({Mark.ERROR, Mark.DOUBT}, {Mark.PERSON}, {Mark.SPAWN}, {Mark.TOOL}):
        hits = [event.seq for event in events if mark(event) in wanted]
        types = [event.seq for event in events if event.type == "tool.finished"]
        for seq in range(len(events) + 2):
            assert steps.next(seq, wanted) == next((hit for hit in hits if hit > seq), None)
            assert steps.next(seq, wanted, forward=False) == next((hit for hit in hits[::-1] if hit < seq), None)
            assert steps.next_of_type(seq, "tool.finished") == next((hit for hit in types if hit > seq), None)
    assert steps.minimap(1, len(events), len(events)) == [1 << one for one in marks]
    assert steps.minimap(1, len(events), 1) == [bits(set(marks))]
    halves = steps.minimap(1, len(events), 2)
    assert halves == [bits(set(marks[: len(events) // 2])), bits(set(marks[len(events) // 2 :]))]


class Stepped(World):
    """The world of commands, outcomes, crashes and decisions; at its end its log is stepped through."""

    @precondition(lambda self: "main" in self.state.agents)
    @rule(delivery=st.sampled_from(["queue", "steer", "replace"]))
    def a_prompt_is_refused(self, delivery: Any) -> None:
        self.person_prompts(delivery)
        self.append(CommandRefused(command=self.state.seq, why="no_origin"))

    @rule()
    def agent_asks(self) -> None:
        self.append(QuestionAsked(call="main/2", text="Which one?"))

    @rule(back=st.integers(1, 9))
    def person_tells(self, back: int) -> None:
        self.append(QuestionAnswered(question=max(self.state.seq - back, 1), text="That one."))

    def teardown(self) -> None:
        if getattr(self, "state", None) is None:
            return
        stored: list[Bytes] = list(self.stored)
        for every in (1, 5):
            check_states(events_of(stored), every)
        check_steps(indexed(Steps(reading_of(place_of(stored)))), events_of(stored))
        parts = mutilated(stored, Random(len(stored)))
        check_states(events_of(parts), 3)
        check_steps(indexed(Steps(reading_of(place_of(parts)))), events_of(parts))


Stepped.TestCase.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStepped = Stepped.TestCase


# -- logs in files ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five agents, 1,500 events: more than two kept states."""
    path = tmp_path_factory.mktemp("long") / "long.muse"
    sessions.make(path, 1_500)
    return path


def events_in(path: Path) -> list[Event]:
    with read_session(path) as reading:
        return list(reading.events())


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN, tmp_path / "golden.muse"))


def test_each_step_of_the_golden_log_is_what_the_whole_says(golden: Path) -> None:
    events = events_in(golden)
    check_states(events, 4)
    steps = indexed(Steps(read_session(golden, check=False)))
    check_steps(steps, events)
    steps.close()


def test_each_step_of_a_log_of_many_agents_is_what_the_whole_says(long_log: Path) -> None:
    events = events_in(long_log)
    check_states(events[:200], 2)
    steps = indexed(Steps(read_session(long_log, check=False)))
    assert steps.agents == sessions.LANES
    wanted_rows, wanted_states = rows_of(events), states_of(events)
    order = list(range(1, len(events) + 1))
    Random(7).shuffle(order)
    for seq in order[:300]:
        assert steps.rows(seq, 20) == wanted_rows[seq - 1 : seq + 19]
        assert steps.state(seq) == wanted_states[seq]
    steps.close()


def test_rows_are_there_before_the_index_and_the_state_says_that_it_is_not(long_log: Path) -> None:
    events = events_in(long_log)
    steps = Steps(read_session(long_log, check=False))
    assert (steps.indexed, steps.head, steps.closed) == (0, 1_500, True)
    seqs = [row.seq for row in steps.rows(1_400, 50)]
    assert seqs == list(range(1_400, 1_450))
    assert steps.rows(1, 40) == rows_of(events)[:40]
    assert steps.panel(1_400) is None
    assert steps.state(1_400) is None
    assert steps.state(400) == states_of(events)[400], "a short way is not worth waiting for"
    assert steps.indexed == 400
    assert steps.panel_when_known(1_400).seq == 1_400
    steps.close()


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_fold_with_checkpoints_equals_the_full_fold_whatever_became_of_them(golden: Path, seed: int) -> None:
    """Checkpoints are written, deleted in between and damaged, in any order; no state is ever another."""
    chance, events = Random(seed), events_in(golden)
    whole = [Session(session="")] * (len(events) + 1)
    with SqliteLog.open(golden, commands={}) as log:
        for seq in range(1, len(events) + 1):
            whole[seq] = fold(log, before=seq + 1, checkpoints=False)
        for _ in range(40):
            seq = chance.randint(1, len(events))
            what = chance.randrange(4)
            data = write_state(whole[seq])
            if what == 1:
                at = chance.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            elif what == 2:
                data = data[: chance.randrange(len(data))]
            if what == 3:
                log._db.execute("DELETE FROM checkpoints WHERE seq % 2 = ?", (seq % 2,))
            else:
                log.save_checkpoint(seq, STATE_VERSION, data)
            for upto in {seq, len(events), chance.randint(1, len(events))}:
                assert fold(log, before=upto + 1) == whole[upto]


def reading_with(*bodies: msgspec.Struct) -> Steps:
    stored = []
    for seq, body in enumerate(bodies, 1):
        header = encode_header(
            seq=seq, id=f"{seq:032x}", time="2026-01-01T00:00:00.000000Z", type=TYPE_OF[type(body)], v=1, agent="main",
            cause=0, epoch=1,
        )  # fmt: skip
        stored.append((header, encode(body)))
    return indexed(Steps(reading_of(place_of(stored))))


# -- searching and filters -------------------------------------------------------------------------------------------


def shown_lines(steps: Steps, events: Sequence[Event]) -> list[list[str]]:
    """What can be shown of each event, with the whole output that was kept of a command, made without `Steps`."""
    context, found = Context(), []
    for event, row in rows(events, context):
        shown = detailed(event, context, steps.content, 1_000_000)
        output = getattr(event.body, "output", None)
        whole = (steps.content(output) or b"").decode(errors="replace") if isinstance(output, BlobRef) else ""
        found.append([row_text(row), *(line.text for line in shown.detail), *whole.split("\n")])
    return found


def hits_of(
    steps: Steps, wanted: Pattern, *, forward: bool = True, budget: float = 1.0, upto: int = 0,
    selected: Selection | None = None,
) -> list[int]:  # fmt: skip
    """What a search comes to, one hit after the other, up to an event."""
    found: list[int] = []
    at = 0 if forward else steps.head + 1
    while True:
        now = steps.find(wanted, at, forward=forward, budget_seconds=budget, selected=selected)
        at = now.looked
        if now.end or (upto and (at > upto if forward else at < upto)):
            return found
        if now.seq:
            found.append(now.seq)


NEEDLES = (
    "exit 1", "main.3", "token 4", "pytest", "STEP 30", "fifteen", "allowed by", "ada", sessions.NEEDLE, "overloaded",
    "in: parse", "absent from all", "part_9", "→ edit", "no such", "deadbeef", "file_7", "line fifteen of file 1",
)  # fmt: skip


@pytest.fixture(scope="module")
def searched(long_log: Path) -> Iterator[tuple[Steps, list[list[str]]]]:
    steps = indexed(Steps(read_session(long_log)))
    yield steps, shown_lines(steps, events_in(long_log))
    steps.close()


@pytest.mark.parametrize("text", NEEDLES)
def test_a_search_finds_what_is_shown_and_nothing_else(searched: tuple[Steps, list[list[str]]], text: str) -> None:
    steps, shown = searched
    wanted = [seq for seq, lines in enumerate(shown, 1) if any(text.lower() in line.lower() for line in lines)]
    assert hits_of(steps, pattern(text), upto=600) == [seq for seq in wanted if seq <= 600]


def test_any_part_of_what_is_shown_is_found_wherever_it_is_shown(golden: Path) -> None:
    """The look at stored bytes that comes first never passes over an event that shows the text."""
    events = events_in(golden)
    steps = indexed(Steps(read_session(golden)))
    shown = shown_lines(steps, events)
    chance, lines = Random(11), [line for part in shown for line in part if len(line) > 4]
    sieved = 0
    for _ in range(120):
        line = chance.choice(lines)
        begin = chance.randrange(len(line) - 3)
        text = line[begin : begin + chance.randint(3, 24)]
        wanted = pattern(text)
        sieved += wanted.word != ""
        found = [seq for seq, part in enumerate(shown, 1) if any(wanted.regex.search(one) for one in part)]
        assert hits_of(steps, wanted) == found, text
    assert sieved > 20, "and it is not that all are looked at"
    steps.close()


def test_a_search_backwards_and_in_the_smallest_slices_finds_the_same(searched: tuple[Steps, list[list[str]]]) -> None:
    steps, shown = searched
    for text in ("exit 1", "part_9", sessions.NEEDLE):
        wanted = [seq for seq, lines in enumerate(shown, 1) if any(text in line for line in lines)]
        assert hits_of(steps, pattern(text), forward=False, upto=1_000) == [seq for seq in wanted[::-1] if seq >= 1_000]
        assert hits_of(steps, pattern(text), budget=0.0, upto=300) == [seq for seq in wanted if seq <= 300]


def test_an_expression_finds_what_it_matches(searched: tuple[Steps, list[list[str]]]) -> None:
    steps, shown = searched
    wanted = [seq for seq, lines in enumerate(shown, 1) if any(re.search(r"exit [1-9]\b", line) for line in lines)]
    assert hits_of(steps, pattern(r"exit [1-9]\b", regex=True), upto=600) == [seq for seq in wanted if seq <= 600]
    assert hits_of(steps, pattern("PYTEST", regex=True), upto=600) == [], "a capital letter says that case counts"


def test_a_search_among_selected_events_finds_only_those(searched: tuple[Steps, list[list[str]]]) -> None:
    steps, shown = searched
    chosen = steps.select(lambda event, row: event.seq % 3 == 0)
    while steps.grow(chosen):
        pass
    wanted = [seq for seq, lines in enumerate(shown, 1) if any("pytest" in line for line in lines) and seq % 3 == 0]
    assert hits_of(steps, pattern("pytest"), upto=600, selected=chosen) == [seq for seq in wanted if seq <= 600]


def test_characters_that_are_shown_as_others_do_not_hide_a_text() -> None:
    """A control's escape ends in letters; a long s is an s where case does not count; what a provider sent may spell
    letters as escapes."""
    texts = ("\x9bfoobar", "\u200bcafeteria", "cla\u017fsroom", "plain words")
    args = '{"command": "echo w\\u006fnderful"}'
    run = ToolStarted(call="main/9", attempt=1, tool="shell", args=args, recovery="opaque")
    ends = ToolFinished(call="main/9", attempt=1, status="ok")
    steps = reading_with(*(UserPrompted(text=text) for text in texts), run, ends)
    assert hits_of(steps, pattern("bfoobar")) == [1]
    assert hits_of(steps, pattern("bcafeteria")) == [2]
    assert hits_of(steps, pattern("classroom")) == [3]
    assert hits_of(steps, pattern("Words")) == [4]
    assert hits_of(steps, pattern("wonderful")) == [5, 6], "the row of a result says what was run"


@pytest.mark.parametrize(
    "text", ["", "x" * 1_001, "(a+)+$", "(", "a*", "(x*)*y", "(a|a)*b", "(a|aa)+$", "(\\w+\\s?)*!", "[z-a]"]
)
def test_what_cannot_be_searched_for_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        pattern(text, regex=True)


@pytest.mark.parametrize(
    "text", ["(\\d+,)+x", "exit [1-9]", "error.*line \\d+", "a{2,}b{2,}", "(foo|bar)+", "\\bTODO\\b"]
)
def test_what_people_search_for_is_not_refused(text: str) -> None:
    pattern(text, regex=True)


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(types=("tool.*",), agents=("main.2",)), Filter(failed=True), Filter(kinds=("approval",), failed=True),
        Filter(agents=("main",), below=True), Filter(types=("agent",)), Filter(types=("none",)),
        Filter(tools=("shell",), failed=True), Filter(texts=("fifteen",)),
    ],
)  # fmt: skip
def test_a_filter_selects_the_same_with_and_without_the_index(long_log: Path, wanted: Filter) -> None:
    past, found = Past(), []
    steps = indexed(Steps(read_session(long_log)))
    for event in events_in(long_log):
        learn(past, event)
        if wanted.matches(event, past, steps.content):
            found.append(event.seq)
    again = Past()

    def matches(event: Event, row: Row) -> bool:
        learn(again, event)
        return wanted.matches(event, again, steps.content, row)

    chosen = steps.select(matches, wanted)
    while steps.grow(chosen, 0.0):
        pass
    assert list(chosen.seqs) == found
    assert list(chosen.marks) == [steps.mark(seq) for seq in found]
    marks = [steps.mark(seq) for seq in found]
    half = len(found) // 2
    assert steps.minimap(1, steps.head, 2, chosen) == [bits(set(part)) for part in (marks[:half], marks[half:])]
    errors = [seq for seq in found if steps.mark(seq) is Mark.ERROR]
    for seq in (0, 700, 1_500, *errors[:3], *errors[-2:]):
        assert steps.next(seq, {Mark.ERROR}, selected=chosen) == next(
            (one for one in found if one > seq and steps.mark(one) is Mark.ERROR), None
        )
        assert steps.next_of_agent(seq, "main.2", forward=False, selected=chosen) == next(
            (one for one in found[::-1] if one < seq and steps.event(one).agent == "main.2"), None
        )
    steps.close()


def test_turns_begin_at_their_words_or_where_words_that_waited_come_to_be_followed() -> None:
    world = World()
    world.open(mode="yolo", parallel=2, timeout=0, uses=[("read", '{"path": "a"}')])  # 2: the first prompt
    world.person_prompts("queue")
    world.go_on(5)
    world.tool_ends(0, "ok")
    world.go_on(5)
    world.model_responds([], "end_turn")  # 10: the first turn ends, what waited begins
    world.go_on(2)
    world.person_prompts("steer")
    world.model_responds([], "end_turn")
    world.go_on(3)
    world.model_responds([], "end_turn")
    world.go_on(3)
    world.person_prompts("queue")  # 17: nothing runs, so it begins a turn
    world.go_on(3)
    world.person_prompts("replace")
    world.model_fails("cancelled", None, 0)  # 20: the turn ends, that prompt begins one
    world.go_on(3)
    events = events_of(world.stored)
    assert [event.seq for event in events if event.type == "user.prompted"] == [2, 6, 12, 17, 19]
    assert [event.seq for event in events if event.type in ("model.responded", "model.failed")] == [5, 10, 13, 15, 20]
    steps = indexed(Steps(reading_of(place_of(world.stored))))
    assert [steps.next_turn(seq) for seq in (0, 2, 10, 11, 16, 17, 21)] == [2, 11, 11, 17, 17, 21, None]
    assert [steps.next_turn(seq, forward=False) for seq in (2, 3, 11, 12, 17, 21)] == [None, 2, 2, 11, 11, 17]
    past = Past()
    for event in events:
        learn(past, event)
    assert past.turn == 4, "as the filter counts them"
