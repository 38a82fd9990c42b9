"""A transcript grows and its requests are built one after the other: what is settled is neither built nor cut again."""

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from muse.effect.model import anthropic, openai, scripted, turns
from muse.event.content import Block
from muse.event.conversation import Answered, ModelRequest, Resulted, Said, TranscriptItem

DIALECTS = [anthropic, openai, scripted]
REMEMBERED: dict[ModuleType, list[Callable[..., object]]] = {
    anthropic: [anthropic._assistant_message, anthropic._settled_message],
    openai: [openai._assistant, openai._results],
    scripted: [scripted._item],
}


def forget() -> None:
    """Drop everything that is kept between requests."""
    turns._kept.clear()
    for functions in REMEMBERED.values():
        for function in functions:
            function.cache_clear()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


def use(name: str) -> Block:
    return Block(kind="tool_use", id=name, name="read", args='{"path":"a"}')


def conversation() -> list[TranscriptItem]:
    """Ids used twice, two responses in a row, a response that holds nothing, words between results and request."""
    return [
        Said(seq=1, text="go"),
        Answered(seq=2, call="main/1", blocks=(Block(kind="text", text="I look."), use("call_0"), use("call_1"))),
        Resulted(seq=5, call="main/2", use="call_0", text="one"),
        Resulted(seq=6, call="main/3", use="call_1", text="two", error=True),
        Said(seq=7, text="and the docs", source="steer"),
        Answered(seq=9, call="main/4", blocks=(use("call_0"),)),
        Resulted(seq=11, call="main/5", use="call_0", text=""),
        Answered(seq=13, call="main/6", blocks=(Block(kind="text", text="  "),)),
        Said(seq=14, text="go on"),
        Answered(seq=16, call="main/7", blocks=(Block(kind="text", text="So far."),)),
        Answered(seq=18, call="main/8", blocks=(Block(kind="text", text="Done."), use("call_9"))),
        Resulted(seq=20, call="main/9", use="call_9", text="three"),
    ]


def request(items: list[TranscriptItem]) -> ModelRequest:
    return ModelRequest(model="m", system="s", tools=(), items=items, output_tokens_max=100)


def whole(items: list[TranscriptItem]) -> bool:
    """Whether every tool use has its result."""
    uses = sum(block.kind == "tool_use" for item in items if isinstance(item, Answered) for block in item.blocks)
    return uses == sum(isinstance(item, Resulted) for item in items)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.BUILDER)
def test_requests_of_a_growing_transcript_are_those_of_one_seen_for_the_first_time(dialect: ModuleType) -> None:
    prefixes = [conversation()[:end] for end in range(len(conversation()) + 1)]
    prefixes = [items for items in prefixes if whole(items)]
    fresh = []
    for items in prefixes:
        forget()
        fresh.append(dialect.build(request(items)))
    forget()
    assert [dialect.build(request(items)) for items in prefixes] == fresh
    assert [dialect.build(request(items)) for items in reversed(prefixes)] == fresh[::-1], "cut back, as by an undo"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.BUILDER)
def test_transcripts_that_begin_alike_and_go_on_differently_are_not_mixed_up(dialect: ModuleType) -> None:
    other = [*conversation()[:5], Answered(seq=9, call="main/4", blocks=(Block(kind="text", text="No."),))]
    other += [Said(seq=10, text="why?"), Answered(seq=12, call="main/5", blocks=(Block(kind="text", text="So."),))]
    expected = dialect.build(request(other))
    forget()
    dialect.build(request(conversation()))
    assert dialect.build(request(other)) == expected


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.BUILDER)
def test_a_request_makes_text_of_what_is_new_and_not_of_what_was_there(dialect: ModuleType) -> None:
    def made() -> int:
        return sum(function.cache_info().misses for function in REMEMBERED[dialect])  # type: ignore[attr-defined]

    items: list[TranscriptItem] = [Said(seq=1, text="go")]
    new = []
    for step in range(50):
        items.append(Answered(seq=4 * step + 2, call=f"main/{2 * step}", blocks=(use(f"call_{step}"),)))
        items.append(Resulted(seq=4 * step + 4, call=f"main/{2 * step + 1}", use=f"call_{step}", text=f"line {step}"))
        before = made()
        dialect.build(request(items))
        new.append(made() - before)
    assert max(new[5:]) <= 4
