"""How much of a long output a model gets: the head, the tail, and a line between that says what is missing.

Reads only these two ends of a file, so memory stays bounded however large the output is. Everything that leaves here
is valid Unicode. This module must not know which tool made the output.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.tool.masking import NO_SECRETS, KnownSecrets
from muse.event.text import clean

HEAD_BYTES_MAX: Final = 12_000
"""What a model gets of the start of a long output."""

TAIL_BYTES_MAX: Final = 18_000
"""What a model gets of its end, where errors and summaries stand."""

TEXT_BYTES_MAX: Final = HEAD_BYTES_MAX + TAIL_BYTES_MAX
"""The longest output that a model gets whole."""


class Excerpt(msgspec.Struct, frozen=True):
    """Valid text of an output of `size` bytes, secrets masked. `whole`: the text as UTF-8 is exactly the output."""

    text: str
    size: int
    whole: bool


def excerpt_file(path: Path, hint: str, size: int | None = None, secrets: KnownSecrets = NO_SECRETS) -> Excerpt:
    """Head and tail of a file (its first `size` bytes, where given); `hint` tells the model how to get the rest.

    Known secrets are masked, also where the cut would leave a part of one. A file that does not exist is an output of
    no bytes. Raises OSError for any other failure.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Excerpt("", 0, True)
    try:
        length = os.fstat(descriptor).st_size if size is None else size
        if length <= TEXT_BYTES_MAX:
            data = _read_at(descriptor, 0, length)
            masked = secrets.mask_bytes(data)
            return _whole(masked, length, unmasked=masked == data)
        head = _read_at(descriptor, 0, HEAD_BYTES_MAX)
        tail = _read_at(descriptor, length - TAIL_BYTES_MAX, TAIL_BYTES_MAX)
    finally:
        os.close(descriptor)
    return _ends(head, tail, length, hint, secrets)


def trim_start(data: bytes) -> bytes:
    """`data` without the rest of a UTF-8 sequence that began before it."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def trim_end(data: bytes) -> bytes:
    """`data` without a UTF-8 sequence that goes on after it."""
    for back in range(1, min(4, len(data) + 1)):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        needed = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 1
        return data[:-back] if needed > back else data
    return data


def _whole(data: bytes, size: int, *, unmasked: bool) -> Excerpt:
    cleaned = clean(data)
    return Excerpt(cleaned.text, size, unmasked and cleaned.exact is None)


def _ends(head: bytes, tail: bytes, size: int, hint: str, secrets: KnownSecrets) -> Excerpt:
    head = trim_end(secrets.without_part_at_end(head))
    tail = trim_start(secrets.without_part_at_start(tail))
    left_out = size - len(head) - len(tail)
    before = "" if head.endswith(b"\n") else "\n"
    middle = f"{before}[... {left_out} bytes left out; {hint} ...]\n"
    head, tail = secrets.mask_bytes(head), secrets.mask_bytes(tail)
    return Excerpt(clean(head).text + middle + clean(tail).text, size, False)


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.pread(descriptor, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)
