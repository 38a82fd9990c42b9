"""Given events, when limits are asked, then these decisions: budgets of every kind and scope, long waits, fallbacks."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from muse.decide.context import Builder, Rules, facts_of, next_request, ref_of
from muse.decide.due import due
from muse.effect.model import anthropic, openai
from muse.event.content import Block, Limit, ModelFacts, ModelRef, Usage
from muse.event.conversation import Answered
from muse.event.envelope import Event
from muse.event.kinds import (
    AgentSpawned,
    BudgetReached,
    EffectReconciled,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionClosed,
    TimerFired,
    TimerSet,
    ToolFinished,
    UserPrompted,
)  # fmt: skip
from muse.fold.evolve import evolve
from muse.fold.limits import IN_WORDS_SINCE
from muse.fold.models import priced
from tests.decide.test_due import RULES, TYPE_OF, Story, kinds

DATE = "2026-12-01T06:00:00.000000Z"
OTHER = ModelRef(provider="other", dialect="scripted", model="b")
THIRD = ModelRef(provider="third", dialect="scripted", model="c")


def model(provider: str, dialect: str, name: str) -> ModelRef:
    return ModelRef(provider=provider, dialect=dialect, model=name)


def limit(scope: Any, what: Any, value: int) -> Limit:
    return Limit(scope=scope, what=what, value=value)


class Fleet(Story):
    """A session with children, whose attempts use something."""

    def spawn(self, child: str, parent: str = "main") -> None:
        self.event(AgentSpawned(task="look", parent=parent, call=f"{parent}/2", system="s"), child)

    def ask(self, agent: str = "main") -> ModelRequested:
        """The agent's next request, which must be due."""
        (one,) = [one for one in due(self.state, {agent}, RULES) if isinstance(one.body, ModelRequested)]
        assert isinstance(one.body, ModelRequested)
        self.event(one.body, one.agent, one.cause)
        return one.body

    def answers(self, usage: Usage, agent: str = "main", uses: bool = True) -> None:
        call = self.state.agents[agent].call
        assert call is not None
        blocks = (Block(kind="tool_use", id=f"u{call.key}", name="nothing", args="{}"),) if uses else ()
        stop: Any = "tool_use" if uses else "end_turn"
        self.event(ModelResponded(call=call.key, attempt=call.attempt, blocks=blocks, stop=stop, usage=usage), agent)
        for run in self.state.agents[agent].batch:
            one = next(one for one in due(self.state, {agent}, RULES) if hasattr(one.body, "tool"))
            self.event(one.body, one.agent, one.cause)
            self.event(ToolFinished(call=run.key, attempt=1, status="ok"), agent)

    def fails(self, failure: Any, agent: str = "main", **more: Any) -> None:
        call = self.state.agents[agent].call
        assert call is not None
        self.event(ModelFailed(call=call.key, attempt=call.attempt, failure=failure, **more), agent)

    def next(self, agent: str = "main") -> list[msgspec.Struct]:
        return [one.body for one in due(self.state, {agent}, RULES)]


def begun(*limits: Limit, **settings: Any) -> Fleet:
    story = Fleet(mode="yolo", limits=limits, **settings)
    story.prompt()
    return story


@pytest.mark.parametrize(
    ("what", "value", "usage", "reached", "words"),
    [
        ("tokens", 1000, Usage(input=10, output=920, cache_read=30, cache_write=40, reasoning=15), 1000,
         "tokens reached 1,000"),
        ("cost_microusd", 5, Usage(input=1, cost_microusd=12_345), 12_345, "cost reached $0.012345"),
        ("calls", 1, Usage(), 1, "calls reached 1"),
    ],
)  # fmt: skip
def test_a_budget_that_is_used_up_stops_the_next_request_and_the_session(
    what: str, value: int, usage: Usage, reached: int, words: str
) -> None:
    story = begun(limit("session", what, value))
    story.state.rules = IN_WORDS_SINCE
    story.ask()
    story.answers(usage)
    assert story.next() == [BudgetReached(limit=what, value=reached, scope="session")]
    story.take(1)
    (closed,) = story.take()
    assert closed == SessionClosed(outcome="budget", reason=f"{words} (budget of the session)")


def test_the_reason_of_a_session_of_older_rules_stays_as_it_was_recorded() -> None:
    story = begun(model_calls_max=1)
    story.ask()
    story.answers(Usage())
    story.take(1)
    assert story.take() == [SessionClosed(outcome="budget", reason="model_calls reached 1")]


def test_one_below_the_budget_goes_on_and_the_turn_that_ends_within_it_is_done() -> None:
    story = begun(limit("session", "tokens", 100))
    story.ask()
    story.answers(Usage(output=99))
    story.ask()
    story.answers(Usage(output=5000), uses=False)
    assert story.take() == [SessionClosed(outcome="done")]


def test_a_budget_that_is_raised_lets_the_session_go_on_with_the_call_that_was_due() -> None:
    story = begun(limit("session", "tokens", 100))
    story.ask()
    story.answers(Usage(output=100))
    assert kinds(story.take()) == [BudgetReached, SessionClosed]
    story.open()
    assert kinds(story.take()) == [BudgetReached, SessionClosed]
    story.settings = msgspec.structs.replace(story.settings, limits=(limit("session", "tokens", 101),))
    story.open()
    assert story.ask().call == "main/3"


def test_the_budget_of_each_agent_stops_the_one_and_not_its_siblings() -> None:
    story = begun(limit("agent", "tokens", 100))
    story.ask()
    story.answers(Usage(output=99))
    for child in ("main.1", "main.2"):
        story.spawn(child)
        story.ask(child)
    story.answers(Usage(output=100), "main.1")
    assert story.next("main.1") == [BudgetReached(limit="tokens", value=100, scope="agent")]
    story.answers(Usage(output=99), "main.2")
    assert kinds(story.next("main.2")) == kinds(story.next("main")) == [ModelRequested]


def test_the_budget_of_a_tree_counts_all_below_and_stops_all_of_it_and_nobody_beside_it() -> None:
    story = begun(limit("tree", "tokens", 100), agents_depth_max=3)
    story.spawn("main.1")
    story.spawn("main.2")
    story.spawn("main.1.1", "main.1")
    for agent in ("main.1", "main.2", "main.1.1"):
        story.ask(agent)
    story.answers(Usage(output=60), "main.1.1")
    story.answers(Usage(output=30), "main.1")
    assert kinds(story.next("main.1.1")) == kinds(story.next("main")) == [ModelRequested]
    story.answers(Usage(output=10), "main.2")
    stop = BudgetReached(limit="tokens", value=100, scope="tree", of="main")
    assert [story.next(agent) for agent in ("main", "main.1", "main.2", "main.1.1")] == [[stop]] * 4
    assert story.state.agents["main.1"].usage_below.output == 90


def test_who_is_stopped_by_what_another_used_is_woken() -> None:
    story = begun(limit("session", "tokens", 100))
    story.spawn("main.1")
    story.ask("main.1")
    before = story.next("main")
    call = story.state.agents["main.1"].call
    assert call is not None
    assert kinds(before) == [ModelRequested]
    body = ModelResponded(call=call.key, attempt=1, blocks=(), stop="end_turn", usage=Usage(output=100))
    seq = story.state.seq + 1
    woken = evolve(story.state, Event(seq, f"{seq:032x}", "", "model.responded", 1, "main.1", 0, story.epoch, body))
    assert "main" in woken
    assert kinds(story.next("main")) == [BudgetReached]


def test_a_budget_of_turns_ends_none_that_has_begun() -> None:
    story = begun(limit("session", "turns", 1))
    story.ask()
    story.answers(Usage())
    story.ask()
    story.answers(Usage(), uses=False)
    story.event(UserPrompted(text="and now?"))
    assert story.next() == [BudgetReached(limit="turns", value=1, scope="session")]


def test_an_agent_that_a_budget_stopped_is_stopped_again_when_it_is_spoken_to() -> None:
    story = begun(limit("session", "calls", 1))
    story.ask()
    story.answers(Usage())
    story.take(1)
    story.event(UserPrompted(text="go on"))
    assert kinds(story.next()) == [BudgetReached]


USAGES = st.builds(Usage, input=st.integers(0, 9), output=st.integers(0, 9), cost_microusd=st.integers(0, 9))
ATTEMPTS = st.lists(st.tuples(st.sampled_from(["answer", "fail", "crash"]), USAGES), min_size=1, max_size=12)


@given(ATTEMPTS)
def test_what_was_used_is_the_sum_over_all_attempts_and_owners(attempts: list[tuple[str, Usage]]) -> None:
    story = begun(model_attempts_max=100, retry_base_ms=1)
    expected = [0, 0, 0, 0]
    for what, usage in attempts:
        story.ask()
        if what == "crash":  # nothing came back that could be counted
            story.open()
            story.take(1)
            call = story.state.agents["main"].call
            assert call is not None
            story.event(EffectReconciled(call=call.key, attempt=call.attempt, verdict="retried", evidence=""))
            continue
        expected = [
            expected[0] + usage.input, expected[1] + usage.output, expected[2] + usage.cost_microusd,
            expected[3] + (what == "answer"),
        ]  # fmt: skip
        if what == "answer":
            story.answers(usage)
        else:
            story.fails("overloaded", usage=usage)
            story.take(1)
            call = story.state.agents["main"].call
            assert call is not None
            story.event(TimerFired(key=f"retry:{call.key}"))
    state, main = story.state, story.state.agents["main"]
    for used, answered in (
        (state.usage, state.answered), (main.usage, main.answered), (main.usage_below, main.answered_below),
    ):  # fmt: skip
        assert [used.input, used.output, used.cost_microusd, answered] == expected
    assert state.turns == main.turns == 1


class Watched(Fleet):
    """A session of which it is checked, after each event, that who was not woken has nothing new to decide."""

    def event(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> None:
        before = {one: self.next(one) for one in self.state.agents}
        seq = self.state.seq + 1
        event = Event(seq, f"{seq:032x}", "", TYPE_OF[type(body)], 1, agent, cause, self.epoch, body)
        woken = evolve(self.state, event)
        for one in before.keys() - woken:
            assert self.next(one) == before[one], f"{one} was not woken by {body}"


LIMITS = st.builds(
    limit, st.sampled_from(["session", "agent", "tree"]), st.sampled_from(["tokens", "calls", "turns"]),
    st.integers(1, 30),
)  # fmt: skip
LANES = ("main", "main.1", "main.2", "main.1.1")
STEPS = st.lists(st.tuples(st.sampled_from(LANES), st.booleans(), st.integers(0, 9)), max_size=20)


@given(st.lists(LIMITS, min_size=1, max_size=3), STEPS)
def test_no_request_is_sent_beyond_a_budget_and_whoever_it_stops_is_woken(
    limits: list[Limit], steps: list[tuple[str, bool, int]]
) -> None:
    story = Watched(mode="yolo", limits=tuple(limits))
    story.prompt()
    for child, parent in (("main.1", "main"), ("main.2", "main"), ("main.1.1", "main.1")):
        story.spawn(child, parent)
    used: Counter[tuple[str, str]] = Counter()
    for lane, succeeds, tokens in steps:
        call = story.state.agents[lane].call
        if call is None or call.phase == "retry":
            found = [one for one in due(story.state, {lane}, RULES) if isinstance(one.body, ModelRequested)]
            if not found:
                continue
            begins = not used[lane, "turns"]
            for one in limits:
                lanes = LANES if one.scope == "session" else [lane]
                if one.what != "turns" or begins:
                    assert sum(used[other, one.what] for other in lanes) < one.value, one
            story.event(found[0].body, lane, found[0].cause)
            used[lane, "turns"] = 1
        elif call.phase == "running":
            used[lane, "tokens"] += tokens
            if succeeds:
                used[lane, "calls"] += 1
                story.answers(Usage(output=tokens), lane)
            else:
                story.fails("overloaded", lane, usage=Usage(output=tokens))
    for one in limits:
        if one.scope == "session":
            assert story.state.usage.output == sum(used[lane, "tokens"] for lane in LANES)


# -- seconds -----------------------------------------------------------------------------------------------------------


def clock(story: Fleet) -> list[TimerSet]:
    return [body for body in story.next() if isinstance(body, TimerSet) and body.key == "budget:seconds"]


def test_seconds_are_counted_by_a_timer_of_a_minute_or_of_what_is_left() -> None:
    story = begun(limit("session", "seconds", 100))
    assert [one.duration_ms for one in clock(story)] == [60_000]
    story.event(clock(story)[0])
    assert clock(story) == []
    story.ask()
    story.event(TimerFired(key="budget:seconds"))
    assert story.state.elapsed_seconds == story.state.agents["main"].elapsed_seconds == 60
    assert [one.duration_ms for one in clock(story)] == [40_000]
    story.event(clock(story)[0])
    story.event(TimerFired(key="budget:seconds"))
    story.answers(Usage())
    assert BudgetReached(limit="seconds", value=100, scope="session") in story.next()


def test_seconds_of_earlier_owners_count() -> None:
    story = begun(limit("session", "seconds", 100), limit("agent", "seconds", 100), limit("tree", "seconds", 100))
    story.event(clock(story)[0])
    story.event(TimerFired(key="budget:seconds"))
    story.open()
    main = story.state.agents["main"]
    assert (story.state.elapsed_seconds, main.elapsed_seconds, main.elapsed_below) == (60, 60, 60)
    assert [one.duration_ms for one in clock(story)] == [40_000]


def test_time_in_which_nobody_is_in_a_turn_does_not_count() -> None:
    story = begun(limit("session", "seconds", 100))
    story.event(clock(story)[0])
    story.ask()
    story.answers(Usage(), uses=False)
    story.event(TimerFired(key="budget:seconds"))
    assert story.state.elapsed_seconds == 0
    assert clock(story) == []


def test_without_a_budget_of_seconds_there_is_no_clock() -> None:
    assert clock(begun(limit("session", "tokens", 100))) == []


def test_the_time_of_a_tree_is_that_in_which_any_of_it_is_in_a_turn() -> None:
    story = begun(limit("tree", "seconds", 600))
    story.ask()
    story.spawn("main.1")
    story.answers(Usage(), uses=False)
    story.event(clock(story)[0])
    story.event(TimerFired(key="budget:seconds"))
    main, child = story.state.agents["main"], story.state.agents["main.1"]
    assert (main.elapsed_seconds, main.elapsed_below, child.elapsed_seconds) == (0, 60, 60)


# -- long waits --------------------------------------------------------------------------------------------------------


def parked(**settings: Any) -> Fleet:
    story = begun(**settings)
    story.ask()
    story.fails("rate_limited", status=429, retry_after_ms=7_200_000, retry_until=DATE)
    return story


def test_a_long_wait_is_a_timer_until_the_providers_date() -> None:
    story = parked()
    (timer,) = story.take()
    assert isinstance(timer, TimerSet)
    assert (timer.key, timer.until) == ("retry:main/1", DATE)
    assert story.due() == [], "a session with a parked agent stays open"


def test_long_waits_use_no_attempts_up() -> None:
    story = parked(model_attempts_max=1)
    for attempt in (2, 3, 4):
        story.take()
        story.event(TimerFired(key="retry:main/1"))
        assert story.ask().attempt == attempt
        story.fails("rate_limited", retry_after_ms=60_000, retry_until=DATE)
    story.take()
    story.event(TimerFired(key="retry:main/1"))
    story.ask()
    story.fails("overloaded")
    assert [body.outcome for body in story.take() if isinstance(body, SessionClosed)] == ["provider"]


@pytest.mark.parametrize("timer_is_set", [True, False])
def test_who_is_parked_goes_on_waiting_when_the_session_is_opened_again(timer_is_set: bool) -> None:
    story = parked()
    if timer_is_set:
        story.take()
    story.open()
    taken = story.take()
    assert kinds(taken) == ([] if timer_is_set else [TimerSet])
    assert story.state.timers["retry:main/1"].until == DATE


def test_who_is_parked_does_not_wait_for_a_provider_that_it_does_not_ask_any_more() -> None:
    story = parked()
    story.take()
    story.settings = msgspec.structs.replace(story.settings, model="another")
    story.open()
    assert story.ask().attempt == 2


# -- fallbacks ---------------------------------------------------------------------------------------------------------


def switched(ref: ModelRef) -> ModelChanged:
    return ModelChanged(provider=ref.provider, dialect=ref.dialect, model=ref.model, reason="fallback")


def test_when_its_attempts_are_used_up_a_call_goes_on_with_the_fallbacks_in_their_order() -> None:
    story = begun(fallbacks=(OTHER, THIRD), model_attempts_max=2)
    asked = [story.ask()]
    for ref in (OTHER, THIRD):
        story.fails("overloaded")
        assert kinds(story.take()) == [TimerSet]
        story.event(TimerFired(key="retry:main/1"))
        asked.append(story.ask())
        story.fails("overloaded")
        assert story.take(1) == [switched(ref)]
        asked.append(story.ask())
    assert [(one.call, one.attempt, one.provider) for one in asked] == [
        ("main/1", 1, "scripted"), ("main/1", 2, "scripted"), ("main/1", 3, "other"), ("main/1", 4, "other"),
        ("main/1", 5, "third"),
    ]  # fmt: skip
    story.fails("overloaded")
    story.take()
    story.event(TimerFired(key="retry:main/1"))
    story.ask()
    story.fails("overloaded", message="busy")
    assert story.take() == [SessionClosed(outcome="provider", reason="overloaded: busy")]


def test_a_long_wait_is_not_waited_for_while_there_is_a_fallback() -> None:
    story = parked(fallbacks=(OTHER,))
    assert story.take(1) == [switched(OTHER)]
    assert story.ask().provider == "other"
    story.fails("rate_limited", retry_after_ms=60_000, retry_until=DATE)
    assert kinds(story.take()) == [TimerSet]


def test_a_fallback_given_later_wakes_who_is_parked() -> None:
    story = parked()
    story.take()
    story.settings = msgspec.structs.replace(story.settings, fallbacks=(OTHER,))
    story.open()
    assert story.take(1) == [switched(OTHER)]


@pytest.mark.parametrize("failure", ["auth", "invalid", "too_large"])
def test_what_another_model_would_not_mend_is_no_reason_to_switch(failure: str) -> None:
    story = begun(fallbacks=(OTHER,))
    story.ask()
    story.fails(failure)
    assert not any(isinstance(body, ModelChanged) for body in story.take())


def test_only_the_agent_that_failed_switches_and_it_stays_with_the_fallback() -> None:
    story = begun(fallbacks=(OTHER,), model_attempts_max=1)
    story.spawn("main.1")
    story.ask()
    story.fails("server")
    story.take(1)
    assert story.ask().provider == "other"
    story.answers(Usage())
    assert (story.ask().provider, story.ask("main.1").provider) == ("other", "scripted")


def test_another_model_is_sent_texts_and_tool_uses_and_nothing_that_only_the_first_can_read() -> None:
    claude = ModelRef(provider="a", dialect="anthropic", model="m")
    story = begun(provider="o", dialect="openai", model="gpt", fallbacks=(claude,), model_attempts_max=1)
    agent = story.state.agents["main"]
    rules = Rules(
        3, {"anthropic": Builder("anthropic/1", anthropic.build), "openai": Builder("openai/1", openai.build)}
    )
    thought = '{"type":"thinking","thinking":"hm","signature":"c2ln"}'
    agent.items.append(
        Answered(
            seq=1,
            call="main/0",
            blocks=(
                Block(kind="reasoning", text="hm", raw=thought),
                Block(kind="text", text="I look.", raw='{"type":"text","text":"I look.","citations":[]}'),
            ),
        )
    )
    agent.ref = claude
    assert b"c2ln" in next_request(story.state, agent, rules).body
    agent.foreign = 1
    body = next_request(story.state, agent, rules).body
    assert b"c2ln" not in body
    assert b"citations" not in body
    assert b"I look." in body


# -- models ------------------------------------------------------------------------------------------------------------


def test_a_name_means_a_model_of_a_provider_that_the_session_reaches() -> None:
    story = begun(provider="o", dialect="openai", model="gpt", models=(model("a", "anthropic", ""),))
    state = story.state
    assert ref_of(state, "") == ref_of(state, "o/gpt") == ref_of(state, "gpt") == model("o", "openai", "gpt")
    assert ref_of(state, "mini") == model("o", "openai", "mini")
    assert ref_of(state, "a/claude/x") == model("a", "anthropic", "claude/x")
    assert ref_of(state, "nobody/m") is None
    assert ref_of(state, "a/") is None


def test_a_script_of_another_agent_lies_beside_the_sessions_own() -> None:
    story = begun(model="/scripts/main.json")
    assert ref_of(story.state, "child.json") == model("scripted", "scripted", "/scripts/child.json")
    assert ref_of(story.state, "scripted//else/where.json") == model("scripted", "scripted", "/else/where.json")


def test_a_child_with_a_model_of_its_own_asks_that_one() -> None:
    story = begun(models=(model("a", "scripted", ""),))
    story.event(AgentSpawned(task="look", parent="main", call="main/2", system="s", model="a/small"), "main.1")
    asked = story.ask("main.1")
    assert (asked.provider, asked.model) == ("a", "small")


def test_a_family_is_known_by_the_start_of_its_names_and_a_name_by_itself_first() -> None:
    known = (
        ModelFacts(name="a/claude*", context_tokens=1), ModelFacts(name="a/claude-big*", context_tokens=2),
        ModelFacts(name="a/claude-big-1", context_tokens=3),
    )  # fmt: skip
    settings = msgspec.structs.replace(begun().settings, facts=known)
    names = ("claude", "claude-big-2", "claude-big-1", "other")
    found = [facts_of(settings, model("a", "anthropic", name)).context_tokens for name in names]
    assert found == [1, 2, 3, 0]


def test_a_cost_is_rounded_up_and_the_providers_own_word_counts_first() -> None:
    """Worked by hand: 1,000 in at 3 dollars and 333 out at 15 dollars a million are 3,000 and 4,995 millionths; 7
    tokens read from a cache at 30 cents are 2.1."""
    ref = model("a", "anthropic", "m")
    facts = ModelFacts(name="a/m", input_microusd=3_000_000, output_microusd=15_000_000, cache_read_microusd=300_000)
    settings = msgspec.structs.replace(begun().settings, facts=(facts,))
    assert priced(settings, ref, Usage(input=1000, output=333)).cost_microusd == 7995
    assert priced(settings, ref, Usage(input=1000, output=333, cache_read=7)).cost_microusd == 7998
    assert priced(settings, ref, Usage(input=1000, cost_microusd=5)).cost_microusd == 5
    assert priced(settings, OTHER, Usage(input=1000)).cost_microusd == 0
