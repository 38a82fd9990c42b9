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
    """Text that a person (or muse on its behalf) put to the model: a prompt, a steer, an instruction, a notice."""

    text: str
    source: Literal["prompt", "steer", "notice"] = "prompt"


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


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a builder may look at. Two equal values give equal bytes, in any process, at any time.

    In `items` every tool use of an `Answered` is followed by its `Resulted`, before any other `Said` or `Answered`.
    """

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    items: Sequence[TranscriptItem]
    output_tokens_max: int
