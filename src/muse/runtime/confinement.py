"""What a log says of the sandbox that its commands ran in: part of a verdict, since a command without one can reach the
log itself.
"""

from muse.event.envelope import decode
from muse.event.kinds import SessionOpened
from muse.log.protocol import Log
from muse.log.verify import Row

WHAT = "sandbox"
_OPENED = b"session.opened"


def check_sandbox(log: Log) -> Row | None:
    """The row of a verdict about an intact log, None where every opening names a sandbox that was on."""
    openings, without = 0, list[int]()
    for stored in log.read():
        if _OPENED not in stored.header:
            continue
        body = decode(stored.header, stored.body, stored.hidden).body
        if isinstance(body, SessionOpened):
            openings += 1
            if not body.sandbox or body.sandbox.startswith("off"):
                without.append(stored.seq)
    if not without:
        return None
    often = "commands" if len(without) == openings else f"after {len(without)} of {openings} openings commands"
    detail = f"{often} ran with all rights of their user, and could reach this log and what it is checked with"
    return Row(WHAT, "not proven", detail, without[0])
