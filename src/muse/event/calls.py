"""Keys of calls: `<agent>/<n>`, in which the tool uses of a response count on from the response's own.

What a log says may be anything: a key that is none has number 0, and a response with such a key asked for no call.
"""

from collections.abc import Iterator
from typing import Final

from muse.event.content import Block
from muse.event.kinds import ModelResponded

NUMBER_DIGITS_MAX: Final = 15
"""More than any agent counts to, and few enough to be added to within what JSON holds exactly."""


def number_of(call: str) -> int:
    """The number in a call's key, 0 where there is none."""
    number = call.partition("/")[2]
    plain = number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS_MAX
    return int(number) if plain else 0


def uses_of(body: ModelResponded) -> Iterator[tuple[str, Block]]:
    """The tool uses of a response, each with the key of its call."""
    if first := number_of(body.call):
        lane = body.call.partition("/")[0]
        uses = (block for block in body.blocks if block.kind == "tool_use")
        for number, use in enumerate(uses, first + 1):
            yield f"{lane}/{number}", use
