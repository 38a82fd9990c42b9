"""Which dialects are spoken over HTTP, and what each of them brings. This module must not know how bytes travel."""

from collections.abc import Mapping
from typing import Final, Protocol

from muse.effect.model import anthropic, openai
from muse.effect.protocol import Decoder


class Dialect(Protocol):
    """A module that speaks one dialect over HTTP. Its `build` makes the bodies, under the name in its `BUILDER`."""

    def url(self, base_url: str) -> str:
        """Where requests are posted to."""
        ...

    def headers(self, api_key: str) -> dict[str, str]:
        """The headers of the dialect; `api_key` may be ""."""
        ...

    def Decoder(self) -> Decoder:
        """A new decoder for one response."""
        ...


WIRE: Final[Mapping[str, Dialect]] = {"anthropic": anthropic, "openai": openai}
"""The dialects that are spoken over HTTP, by the name that settings use."""
