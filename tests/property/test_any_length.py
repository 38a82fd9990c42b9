"""Whatever happens in a session whose model has a small window: pairs stay whole (checked after every event, with what
an undo gives), requests are what the log gives, every person's words can be found again, and states without
transcripts fold on like whole ones."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muse.event.content import ModelFacts, Usage
from muse.event.conversation import Said, bytes_of
from muse.event.kinds import (
    AgentContinued,
    AgentPaused,
    AgentSteered,
    CancelRequested,
    EffectDoubted,
    EffectReconciled,
    ModelChanged,
    UserPrompted,
)  # fmt: skip
from muse.fold.evolve import evolve
from muse.fold.state import Session
from muse.runtime.checkpoint import read_state, write_state
from muse.runtime.light import Lights
from tests.decide.long import Long
from tests.decide.long import settings as given_settings

SIZES = st.sampled_from([1, 50, 700, 2_500, 9_000, 40_000])
ACTIONS = st.one_of(
    st.tuples(st.just("answer"), SIZES, st.integers(0, 3)),
    st.tuples(st.just("work"), SIZES, st.integers(1, 3)),
    st.tuples(st.just("work"), SIZES, st.integers(1, 3)),
    st.tuples(st.just("work"), SIZES, st.integers(1, 3)),
    st.tuples(st.just("results"), SIZES, st.just(0)),
    st.tuples(st.just("fail"), st.sampled_from(["too_large", "server", "invalid", "auth"]), st.just(0)),
    st.tuples(st.sampled_from(["prompt", "steer"]), SIZES, st.just(0)),
    st.tuples(st.sampled_from(["cancel", "crash", "pause", "counted"]), st.just(0), st.just(0)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    window=st.sampled_from([0, 700, 4_000, 20_000]),
    dialect=st.sampled_from(["scripted", "anthropic", "openai"]),
    actions=st.lists(ACTIONS, min_size=15, max_size=60),
)
def test_any_course_of_a_long_session(window: int, dialect: str, actions: list[tuple[str, Any, int]]) -> None:
    story = Long(given_settings(window=window, dialect=dialect, model_attempts_max=2))
    story.prompt("the first wish " + "f" * 200)
    for number, (what, size, count) in enumerate(actions):
        _act(story, what, size, count, number)
    story.rebuilt()
    for one in story.compactions:
        assert one.bytes_after < one.bytes_before
    _words_are_reachable(story)
    _light_is_like_whole(story)


def _act(story: Long, what: str, size: Any, count: int, number: int) -> None:
    call = story.main.call
    running = [run for run in story.main.batch if run.phase == "running"]
    match what:
        case "answer" if call is not None and call.phase == "running":
            story.answer(f"{number} " + "a" * size, uses=0 if call.purpose == "summary" and number % 2 else count)
        case "work" if call is not None and call.phase == "running" and call.purpose == "turn":
            story.answer("so " * 100, uses=count)
            runs = [run for run in story.main.batch if run.phase == "running"]
            story.results(*(f"{number} " + "r" * size for _ in runs))
        case "counted" if call is not None and call.phase == "running":
            story.answer("counted", uses=1, usage=Usage(input=story.main.items_bytes // 3, output=5))
        case "fail" if call is not None and call.phase == "running":
            story.fail("cancelled" if call.cancelling else size)
        case "results" if running:
            story.results(f"{number} " + "r" * size)
        case "prompt":
            story.put(UserPrompted(text=f"wish {number} " + "w" * size))
        case "steer":
            story.put(AgentSteered(text=f"rather {number} " + "s" * size))
            story.said.append((story.state.seq, story.events[-1].body.text))  # type: ignore[attr-defined]
        case "cancel":
            story.put(CancelRequested(target="turn"))
        case "pause":
            story.put(AgentPaused())
            story.decide()
            story.put(AgentContinued())
        case "crash":
            _crash(story)
    story.decide()


def _crash(story: Long) -> None:
    story.open()
    for one in story.decide():
        if isinstance(one, EffectDoubted):
            body = EffectReconciled(call=one.call, attempt=one.attempt, verdict="retried", evidence="")
            story.put(body)
            story.decide()


def _words_are_reachable(story: Long) -> None:
    """In the transcript or on the way into it, word for word, or in the events that its summary says can be read."""
    agent = story.main
    if story.state.settings is None:
        return
    said = {item.text for item in (*agent.items, *agent.steers, *agent.queue) if isinstance(item, Said)}
    ranges = [(one.first, one.last) for one in story.compactions if one.method == "summary"]
    covered = ranges[-1] if ranges else (0, -1)
    if ranges:
        assert any(f"recall(from={covered[0]}, to={covered[1]})" in text for text in said)
    cancelled = any(isinstance(event.body, CancelRequested) for event in story.events)
    for seq, text in story.said:
        taken_along = isinstance(story.events[seq - 1].body, AgentSteered) and cancelled
        assert text in said or covered[0] <= seq <= covered[1] or taken_along


def _light_is_like_whole(story: Long) -> None:
    lights = Lights("s", every=3)
    whole = Session(session="s")
    for event in story.events:
        lights.take(event)
        evolve(whole, event)
    assert lights.broken == ""
    light = lights.at(whole.seq, lambda after, before: story.events[after : before - 1])
    assert light is not None
    for agent in whole.agents.values():
        assert agent.items_bytes == sum(map(bytes_of, agent.items))
        agent.items.clear()
    assert read_state(write_state(light)) == read_state(write_state(whole))


def test_another_model_with_a_larger_window_is_taken_at_its_word() -> None:
    facts = (ModelFacts(name="p/m", context_tokens=4_000), ModelFacts(name="p/large", context_tokens=400_000))
    story = Long(given_settings(window=4_000))
    story.open(msgspec.structs.replace(given_settings(window=4_000), facts=facts))
    story.prompt()
    story.work(6, 9_000)
    before = len(story.compactions)
    assert before
    story.put(ModelChanged(provider="p", dialect="scripted", model="large"))
    story.work(6, 9_000)
    assert len(story.compactions) == before
