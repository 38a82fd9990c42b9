"""Live signals: streamed text and output as they travel from a session's owner to whoever watches. Never stored.

One JSON object a line, UTF-8, told apart by `type`; docs/background.md describes them. A reader passes over types and
members that it does not know, so that a newer owner may say more. Everything that a signal says is said again by the
event that ends its call, so that losing signals loses nothing.
"""

from typing import Final, Literal

import msgspec

__all__ = ["LINE_BYTES_MAX", "PROTOCOL", "Dropped", "Hello", "Piece", "Signal", "encode", "read"]

PROTOCOL: Final = 1
LINE_BYTES_MAX: Final = 1 << 20
"""The longest line that a reader takes."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first line: whose signals these are. `v` is the protocol's version."""

    v: int = PROTOCOL
    session: str
    epoch: int
    pid: int


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece"):
    """A piece of what call `call` streams in its attempt: what a model says (`text`), or what a command prints
    (`output`). `at` counts the characters of the stream before this piece, so that gaps and repetitions show."""

    kind: Literal["text", "output"]
    call: str
    attempt: int
    at: int
    text: str

    @property
    def agent(self) -> str:
        """Whose call it is."""
        return self.call.partition("/")[0]


class Dropped(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """So many pieces were not sent to this reader, who was too slow for them."""

    pieces: int


Signal = Hello | Piece | Dropped

_decoder: Final = msgspec.json.Decoder(Signal)


def encode(signal: Signal) -> bytes:
    """The signal's line. What is no valid text (half a surrogate pair) becomes a question mark."""
    try:
        return msgspec.json.encode(signal) + b"\n"
    except UnicodeEncodeError:
        assert isinstance(signal, Piece), "only a piece holds text from outside"
        whole = signal.text.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(signal, text=whole)) + b"\n"


def read(line: bytes) -> Signal | None:
    """The signal in a line, None for one that this version does not know or that is no signal at all."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
