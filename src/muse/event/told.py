"""An agent's own events, told in plain texts: what the tool `recall` reads. Only values; `runtime/recalling.py` makes
them, the tool shows them."""

import msgspec


class Told(msgspec.Struct, frozen=True):
    """An event of an agent's lane as `head` and `text`, both valid Unicode. `call` names the call that it ends, whose
    whole result can be read."""

    seq: int
    head: str
    text: str
    call: str = ""


class Lane(msgspec.Struct, frozen=True):
    """Some events of an agent, in order, and `next`, the event to read on from (0: there is no more)."""

    events: tuple[Told, ...]
    next: int = 0
