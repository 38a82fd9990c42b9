"""Events as one JSON line each: what `exec --json`, `replay --json` and `log --json` print, byte for byte the same."""

import msgspec

from muse.event.envelope import Event, Redacted, Unknown

_ENCODER = msgspec.json.Encoder(order="sorted")


def json_line(event: Event) -> str:
    """The event's header fields and its body, keys sorted; an unknown body as it was stored, a redacted one as null."""
    body: object = event.body
    if isinstance(body, Unknown):
        body = msgspec.Raw(body.text.encode())
    elif isinstance(body, Redacted):
        body = None
    fields = {name: getattr(event, name) for name in ("seq", "id", "time", "type", "v", "agent", "cause", "epoch")}
    return _ENCODER.encode({**fields, "body": body}).decode()
