"""Taking a session from the process that runs it."""

from pathlib import Path
from typing import Final

from muse.app.commands import refuse_agents
from muse.errors import Busy
from muse.runtime.session import Taken as Taken

TWICE: Final = "it may still run, so that one effect may start twice"


def take_over(path: Path, client: str, *, force: bool) -> Taken | None:
    """End the process that runs this session, so that it can be claimed; None when nobody runs it.

    Where that process cannot be seen or ended: raises Busy, saying what to do, or with `force` returns a claim that
    does without its lock. Raises UsageError below a runner: an agent may not take a session.
    """
    from muse.app.places import open_log
    from muse.log.holder import end_holder
    from muse.log.lock import read_owner

    log = open_log(path, read_only=False, check=False)
    try:
        refuse_agents(log, client, "resume --take-over")
    finally:
        log.close()
    place = path.with_suffix(".lock")
    named = read_owner(place)
    pid = named.pid if named is not None else 0
    try:
        ended = end_holder(place)
    except Busy as error:
        if not force:
            raise
        return Taken(previous_pid=pid, forced=True, evidence=f"{error}; {TWICE}")
    if ended.pid == 0:
        return None
    return Taken(previous_pid=ended.pid, forced=False, evidence=ended.how)
