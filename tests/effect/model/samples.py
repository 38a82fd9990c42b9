"""Conversations and streams that the model tests share, made by hand and by hypothesis."""

from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from muse.effect.model.scripted import Step
from muse.effect.protocol import Decoder, Model, ModelAnswer, ModelFailure
from muse.event.content import Block, ToolSpec
from muse.event.conversation import Answered, ModelRequest, Resulted, Said, TranscriptItem

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Property tests must not fail because the machine is busy."""

SHELL = ToolSpec(
    name="shell",
    description="Runs a command.",
    schema='{"type": "object", "properties": {"command": {"type": "string"}}}',
    recovery="attachable",
)
READ = ToolSpec(name="read", description="Reads a file.", schema='{"type":"object"}', recovery="pure")

any_text = st.text(st.characters(exclude_categories=()), max_size=40)
"""Any Python string: NULs, control characters and lone surrogates included."""

valid_text = st.text(max_size=40)
"""Any valid Unicode, NUL included."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | valid_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(valid_text, inner, max_size=3),
    max_leaves=6,
)

steps = st.builds(
    Step,
    text=valid_text,
    reasoning=valid_text,
    uses=st.lists(
        st.tuples(st.sampled_from(["shell", "read"]), st.dictionaries(valid_text, json_values, max_size=3)), max_size=3
    ).map(tuple),
)


def request(*items: TranscriptItem, model: str = "test-1", system: str = "Be brief.") -> ModelRequest:
    """A request with two tools."""
    return ModelRequest(model=model, system=system, tools=(SHELL, READ), items=items, output_tokens_max=1000)


def use(id: str, args: str = '{"command":"ls"}', name: str = "shell", raw: str = "") -> Block:
    """A tool use."""
    return Block(kind="tool_use", id=id, name=name, args=args, raw=raw)


def said(text: str, seq: int = 1) -> Said:
    """A prompt."""
    return Said(seq=seq, text=text)


def answered(*blocks: Block, seq: int = 2) -> Answered:
    """A response."""
    return Answered(seq=seq, call=f"main/{seq}", blocks=blocks)


def resulted(use_id: str, text: str = "out", seq: int = 3, error: bool = False) -> Resulted:
    """A result."""
    return Resulted(seq=seq, call=f"main/{seq}", use=use_id, text=text, error=error)


def decoded(decoder: Decoder, data: bytes, cuts: Sequence[int] = ()) -> tuple[str, ModelAnswer | ModelFailure]:
    """The text shown and the outcome of a stream that arrives in pieces cut at the given offsets."""
    shown: list[str] = []
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    start = 0
    for end in ends:
        shown.extend(decoder.feed(data[start:end]))
        start = end
    return "".join(shown), decoder.finish()


def ask(model: Model, body: bytes, attempt: int = 1) -> tuple[str, ModelAnswer | ModelFailure]:
    """One attempt: the text shown and the outcome."""
    shown: list[str] = []

    async def run() -> ModelAnswer | ModelFailure:
        return await model.ask(body, "main/1", attempt, shown.append)

    outcome = anyio.run(run)
    return "".join(shown), outcome


def conversations(texts: st.SearchStrategy[str]) -> st.SearchStrategy[ModelRequest]:
    """Requests whose every text is drawn from `texts`: prompts, arguments, results, names, ids, raw blocks."""

    @st.composite
    def made(draw: Any) -> ModelRequest:
        items: list[TranscriptItem] = [said(draw(texts))]
        for turn in range(draw(st.integers(0, 3))):
            count = draw(st.integers(0, 3))
            uses = [use(f"{draw(texts)}{turn}.{n}", draw(texts), draw(texts), draw(texts)) for n in range(count)]
            blocks = [Block(kind="reasoning", text=draw(texts), raw=draw(texts))] if draw(st.booleans()) else []
            blocks += [Block(kind="text", text=draw(texts))] if draw(st.booleans()) else []
            blocks += [Block(kind="other", raw=draw(texts))] if draw(st.booleans()) else []
            items.append(answered(*blocks, *uses, seq=10 * turn + 2))
            results = [resulted(block.id, draw(texts), error=draw(st.booleans())) for block in uses]
            items.extend(draw(st.permutations(results)))
            if not uses or draw(st.booleans()):
                items.append(said(draw(texts)))
        return request(*items, system=draw(texts))

    return made()
