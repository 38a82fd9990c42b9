"""One line of detail and what it is: the smallest piece that text, terminal, web and exports share."""

from typing import Literal

import msgspec

Look = Literal["plain", "dim", "head", "add", "remove", "bad"]


class Line(msgspec.Struct, frozen=True):
    """A line of text that is safe to show, and what it is."""

    text: str
    look: Look = "plain"
