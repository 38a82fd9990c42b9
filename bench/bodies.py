"""Event bodies of a known size, and logs made of them.

The standard body is a `tool.finished` of 400 bytes and 6 leaves; beside it stand one with 4 KiB of text in one line
and one with 60 lines, because every line of a text is a leaf of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from muse.event import codec
from muse.event.commitment import commit
from muse.event.kinds import ToolFinished
from muse.log.chain import place
from muse.log.protocol import Draft, Head

BODY_BYTES = 400
BODY_LEAVES = 6

Kind = Literal["400 B", "4 KiB", "60 lines"]
KINDS: tuple[Kind, ...] = ("400 B", "4 KiB", "60 lines")


def text_of(kind: Kind) -> str:
    """The text that makes a `tool.finished` of this kind."""
    match kind:
        case "400 B":
            return "x" * (BODY_BYTES - len(codec.encode(finished("main/1", 1, ""))) - len(',"text":""'))
        case "4 KiB":
            return "x" * 4096
        case "60 lines":
            return "a line of a test run's output, as they are\n" * 60


def finished(call: str, attempt: int, text: str) -> ToolFinished:
    """The result of a tool run, with the fields that one of a shell command has."""
    return ToolFinished(call=call, attempt=attempt, status="ok", text=text, exit_code=0, duration_ms=17)


def leaves_of(body: msgspec.Struct) -> int:
    """How many leaves a body has."""
    return commit(codec.encode(body), bytes(32)).count


def content_bytes(drafts: Sequence[Draft]) -> int:
    """The bytes that these drafts are in a log's table, indexes and page headers left out."""
    rows, _ = place(drafts, Head(0, bytes(32)), 1)
    return sum(len(value) for row in rows for value in row if isinstance(value, bytes))


def standard(count: int) -> Iterator[ToolFinished]:
    """So many different bodies of the standard size."""
    text = text_of("400 B")
    for number in range(count):
        mark = f"{number:08d}"
        yield finished("main/1", 1, mark + text[len(mark) :])
