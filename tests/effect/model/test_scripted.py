from pathlib import Path

import pytest
from hypothesis import given

from muse.effect.model.scripted import SCRIPT_ENDS, Failing, Lane, Script, ScriptedModel, Step, build, load_script
from muse.effect.protocol import ModelAnswer, ModelFailure
from muse.errors import ConfigError
from muse.event.conversation import ModelRequest
from tests.effect.model.samples import (
    answered,
    any_text,
    ask,
    conversations,
    request,
    resulted,
    said,
    steps,
    unhurried,
    use,
)

STEPS = (
    Step(text="I look first.", uses=(("shell", {"command": "ls"}), ("read", '{"path": '))),
    Step(text="Done."),
)


def test_the_step_follows_from_the_request_alone() -> None:
    first = request(said("go"))
    second = request(
        said("go"), answered(use("use_0_0"), use("use_0_1")), resulted("use_0_1"), resulted("use_0_0"), said("steer")
    )
    for _ in range(2):
        shown, outcome = ask(ScriptedModel(STEPS), build(second))
        assert (shown, isinstance(outcome, ModelAnswer)) == ("Done.", True)
        shown, outcome = ask(ScriptedModel(STEPS), build(first))
        assert isinstance(outcome, ModelAnswer)
        assert [(block.kind, block.id, block.args) for block in outcome.blocks] == [
            ("text", "", ""), ("tool_use", "use_0_0", '{"command":"ls"}'), ("tool_use", "use_0_1", '{"path": '),
        ]  # fmt: skip
        assert (shown, outcome.stop) == ("I look first.", "tool_use")


def test_beyond_the_last_step_the_script_says_so() -> None:
    outcome = ask(ScriptedModel([]), build(request(said("go"))))[1]
    assert isinstance(outcome, ModelAnswer)
    assert (outcome.blocks[0].text, outcome.stop) == (SCRIPT_ENDS, "end_turn")


def test_an_agent_follows_the_lane_that_its_first_prompt_names() -> None:
    script = Script(steps=(Step(text="main"),), lanes=(Lane(when="count", steps=(Step(text="lane"),)),))
    assert ask(ScriptedModel(script), build(request(said("please count"))))[0] == "lane"
    assert ask(ScriptedModel(script), build(request(said("please"))))[0] == "main"


def test_a_failing_step_fails_as_often_as_it_says_then_answers() -> None:
    model = ScriptedModel([Step(text="Yes.", failure=Failing(failure="rate_limited", times=2, retry_after_ms=5))])
    body = build(request(said("go")))
    outcomes = [ask(model, body, attempt) for attempt in (1, 2, 3)]
    assert [outcome.failure for _, outcome in outcomes if isinstance(outcome, ModelFailure)] == ["rate_limited"] * 2
    assert outcomes[2][0] == "Yes."


def test_a_cut_step_shows_and_keeps_half_of_its_text() -> None:
    model = ScriptedModel([Step(text="12345678", failure=Failing(failure="cut"))])
    shown, outcome = ask(model, build(request(said("go"))))
    assert isinstance(outcome, ModelFailure)
    assert (shown, outcome.partial) == ("1234", "1234")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (request(said("go"), answered(use("a"))), "has no result"),
        (request(said("go"), answered(use("a")), said("on"), resulted("a")), "before the next message"),
        (request(said("go"), answered(use("a")), resulted("a"), resulted("a")), "no tool use without a result"),
        (request(said("go"), resulted("a")), "no tool use without a result"),
        (request(said("go"), answered(use("a"), use("a")), resulted("a")), "same id"),
    ],
)
def test_a_request_with_unpaired_tool_uses_is_invalid(made: ModelRequest, words: str) -> None:
    outcome = ask(ScriptedModel(STEPS), build(made))[1]
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "invalid"
    assert words in outcome.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"builder":"other/1","items":[]}'])
def test_what_is_no_request_is_invalid(body: bytes) -> None:
    outcome = ask(ScriptedModel(STEPS), body)[1]
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "invalid"


@unhurried
@given(conversations(any_text))
def test_any_text_gives_a_request_that_can_be_read(made: ModelRequest) -> None:
    outcome = ask(ScriptedModel([]), build(made))[1]
    assert isinstance(outcome, ModelAnswer) or "same id" in outcome.message


@unhurried
@given(steps)
def test_a_script_says_what_stands_in_it(step: Step) -> None:
    shown, outcome = ask(ScriptedModel([step]), build(request(said("go"))))
    assert isinstance(outcome, ModelAnswer)
    assert shown == step.text
    assert [block.name for block in outcome.blocks if block.kind == "tool_use"] == [name for name, _ in step.uses]


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        '{"steps": [{"text": "I look first.", "uses": [["shell", {"command": "ls"}], ["read", "{\\"path\\": "]]},'
        '{"text": "Done.", "delay_ms": 5, "failure": {"failure": "overloaded", "times": 2}}]}'
    )
    assert load_script(path) == Script(
        steps=(STEPS[0], Step(text="Done.", delay_ms=5, failure=Failing(failure="overloaded", times=2)))
    )


DEEP = '{"steps": [{"uses": [["read", {"path": ' + "[" * 10**5


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"step": []}', '{"steps": [{"txt": ""}]}', '{"steps": [{"delay_ms": "1"}]}', DEEP],
)
def test_a_file_that_is_no_script_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"script\.json"):
        load_script(path)


def test_a_script_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        load_script(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", ["a\0.json", "a\ud800.json"])
def test_a_script_whose_name_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """A model may name another one for a child, and writes what it likes."""
    with pytest.raises(ConfigError, match="no file can have this name"):
        load_script(tmp_path / name)
