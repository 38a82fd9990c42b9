"""From any bytes or string to text that every log, model and terminal can take.

One function makes valid Unicode of whatever came in, and says when the exact bytes must be kept beside it; another
shortens a text for a reader. This module must not know where text comes from or where it goes.
"""

import msgspec


class Cleaned(msgspec.Struct, frozen=True):
    """`text` is valid Unicode; `exact` holds the original bytes when `text` as UTF-8 is not just them, else None."""

    text: str
    exact: bytes | None


class Cut(msgspec.Struct, frozen=True):
    """A shortened text and the number of bytes that it leaves out (0: it is whole)."""

    text: str
    left_out_bytes: int


def clean(data: bytes | str) -> Cleaned:
    """Valid text for any bytes (read as UTF-8) or string. NUL and other control characters stay.

    Bytes that are no UTF-8 become U+FFFD. In a string, surrogates that form a pair become their character, lone ones
    U+FFFD; its exact bytes are its UTF-8 with surrogates encoded as they stand (Python's "surrogatepass").
    """
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError:
            units = data.encode("utf-16-le", "surrogatepass")
            return Cleaned(units.decode("utf-16-le", "replace"), data.encode("utf-8", "surrogatepass"))
        return Cleaned(data, None)
    try:
        return Cleaned(data.decode(), None)
    except UnicodeDecodeError:
        return Cleaned(data.decode(errors="replace"), bytes(data))


def cut(text: str, head_bytes: int, tail_bytes: int) -> Cut:
    """At most `head_bytes` from the start and `tail_bytes` from the end, cut between code points.

    Between them stands a line of its own that says how many bytes are left out. A text that fits is returned whole.
    """
    data = text.encode()
    if len(data) <= head_bytes + tail_bytes:
        return Cut(text, 0)
    head_end, tail_start = head_bytes, len(data) - tail_bytes
    while head_end > 0 and data[head_end] & 0xC0 == 0x80:
        head_end -= 1
    while tail_start < len(data) and data[tail_start] & 0xC0 == 0x80:
        tail_start += 1
    left_out = tail_start - head_end
    head, tail = data[:head_end].decode(), data[tail_start:].decode()
    before = "" if not head or head.endswith("\n") else "\n"
    return Cut(f"{head}{before}[... {left_out} bytes left out ...]\n{tail}", left_out)
