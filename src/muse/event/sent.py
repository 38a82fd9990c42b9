"""What a model was sent, found again from a log: the exact bytes, the request before, the answer, and what is missing.

Only values; `runtime/requests.py` makes them, `view/request.py` shows them.
"""

import msgspec

from muse.event.envelope import Event
from muse.event.kinds import ModelRequested


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an agent: the event at `seq` that announced it (`asked`, None where redaction took its text out),
    and its bytes as the log gives them.

    `data` None: they cannot be rebuilt, and `why` says why. `differs`: they can, and are not what was recorded; it says
    what differs. Otherwise `data` has the recorded digest.
    """

    seq: int
    agent: str
    asked: ModelRequested | None
    data: bytes | None = None
    why: str = ""
    differs: str = ""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Events `first` to `last` are told in short from event `seq` on: `events` of the agent with bodies of `before`
    bytes are replaced by a text of `after` bytes."""

    seq: int
    first: int
    last: int
    events: int
    before: int
    after: int
    method: str


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A result that the model got in part: that of `call`, recorded at `seq`, `sent` of its `whole` bytes."""

    seq: int
    call: str
    sent: int
    whole: int


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request with what belongs to it. `previous` is the agent's request before, `answer` the event that ended this
    one (None: none did), `compacted` and `cut` what the model was not shown whole."""

    request: Request
    previous: Request | None = None
    answer: Event | None = None
    compacted: tuple[Compacted, ...] = ()
    cut: tuple[Cut, ...] = ()
