"""Keys of calls, as a run makes them and as an odd log may have them."""

import pytest

from muse.event.calls import number_of, uses_of
from muse.event.content import Block
from muse.event.kinds import ModelResponded

USES = (Block(kind="tool_use", name="a"), Block(kind="text", text="then"), Block(kind="tool_use", name="b"))


@pytest.mark.parametrize(("call", "number"), [("main/7", 7), ("main.2.1/12", 12), ("main/0", 0)])
def test_the_number_of_a_key(call: str, number: int) -> None:
    assert number_of(call) == number


@pytest.mark.parametrize(
    "call", ["", "main", "main/", "main/x", "main/-1", "main/1/2", "main/\u0663", f"main/{'9' * 5000}"]
)
def test_what_is_no_key_has_no_number_and_asked_for_nothing(call: str) -> None:
    assert number_of(call) == 0
    assert list(uses_of(ModelResponded(call=call, attempt=1, blocks=USES, stop="tool_use"))) == []


def test_uses_count_on_from_their_response() -> None:
    body = ModelResponded(call="main.1/3", attempt=1, blocks=USES, stop="tool_use")
    assert [(key, use.name) for key, use in uses_of(body)] == [("main.1/4", "a"), ("main.1/5", "b")]
