"""Which wire dialects and request builders there are.

A builder stays here as long as it can, under its name with its version, so that the requests of old logs can be built
again and their digests compared. This module must not know how bytes travel.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from muse.effect.model import anthropic, openai, scripted
from muse.effect.protocol import Decoder
from muse.event.conversation import ModelRequest

Builder = Callable[[ModelRequest], bytes]
"""Turns a request into the exact bytes that are sent; pure."""


class Dialect(Protocol):
    """A module that speaks one dialect over HTTP."""

    @property
    def BUILDER(self) -> str:
        """The name and version of `build`, as `model.requested` records it."""
        ...

    def url(self, base_url: str) -> str:
        """Where requests are posted to."""
        ...

    def headers(self, api_key: str) -> dict[str, str]:
        """The headers of the dialect; `api_key` may be ""."""
        ...

    def build(self, request: ModelRequest) -> bytes:
        """The exact bytes of the body."""
        ...

    def Decoder(self) -> Decoder:
        """A new decoder for one response."""
        ...


BUILDERS: Final[Mapping[str, Builder]] = {
    anthropic.BUILDER: anthropic.build,
    openai.BUILDER: openai.build,
    scripted.BUILDER: scripted.build,
}
"""Every builder that this version has, by the name that stands in `model.requested`."""

WIRE: Final[Mapping[str, Dialect]] = {"anthropic": anthropic, "openai": openai}
"""The dialects that are spoken over HTTP, by the name that settings use."""

BUILDER_OF: Final[Mapping[str, str]] = {
    "anthropic": anthropic.BUILDER,
    "openai": openai.BUILDER,
    "scripted": scripted.BUILDER,
}
"""The builder that new requests of a dialect are made with."""
