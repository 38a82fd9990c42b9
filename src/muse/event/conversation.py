"""The conversation as a model request is built from: plain items, no wire dialect.

The fold grows a tuple of items for each agent; a dialect's builder turns a `ModelRequest` into the exact bytes that
are sent. Items never change once they stand in a transcript, so a builder may keep what it made of each.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from muse.event.content import Block, ToolSpec


class Item(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="item", cache_hash=True):
    """Base of the transcript's items. `seq` is the event that the item comes from."""

    seq: int


class Said(Item, frozen=True, tag="said"):
    """Text that a person (or muse on its behalf) put to the model: a prompt, a steer, an instruction, a notice.

    `summary`: what stands for a part of the transcript that was compacted, and which `answers` that part held of the
    model's; or, as the last item of a request, the wish for such a text. No transcript ends with one."""

    text: str
    source: Literal["prompt", "steer", "notice", "summary"] = "prompt"
    answers: int = 0


class Answered(Item, frozen=True, tag="answered"):
    """A model response: its blocks in order, unchanged."""

    call: str
    blocks: tuple[Block, ...]


class Resulted(Item, frozen=True, tag="resulted"):
    """The one result of one tool use. `use` is the id that the model gave the tool use."""

    call: str
    use: str
    text: str
    error: bool = False


TranscriptItem = Said | Answered | Resulted


def bytes_of(item: TranscriptItem) -> int:
    """About how much of a request an item makes up: its text as UTF-8, without what a dialect writes around it."""
    if not isinstance(item, Answered):
        return len(item.text.encode())
    return sum(max(len(one.raw.encode()), len(one.text.encode()) + len(one.args.encode())) for one in item.blocks)


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a builder may look at. Two equal values give equal bytes, in any process, at any time.

    In `items` every tool use of an `Answered` is followed by its `Resulted`, before any other `Said` or `Answered`.
    """

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    items: Sequence[TranscriptItem]
    output_tokens_max: int
