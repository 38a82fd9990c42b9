"""What a rule says may be decided now."""

import msgspec


class Due(msgspec.Struct, frozen=True):
    """A decision that may be taken now: its agent, the seq that led to it, and its body (without `observed`).
    `request` carries the bytes of a model request, so that they are built once."""

    agent: str
    cause: int
    body: msgspec.Struct
    request: bytes = b""
