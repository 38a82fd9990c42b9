"""Whether the end of a log is missing, as far as the session's runner can tell.

The runner keeps a record of its own of each command whose result is not durable yet, and an intent is durable in the
log before its command is accepted. So a command that the runner knows and the log does not was started after the last
event that is left.

This module must not know how it is shown.
"""

import os

from muse.app.places import run_folder
from muse.errors import Incomplete
from muse.log.protocol import Log
from muse.runtime.session import Session

SHOWN = 5


def require_whole(log: Log, state: Session) -> None:
    """Raises Incomplete when the runner knows of commands that the log should hold, and does not."""
    unknown = commands_after(log.session, state)
    if not unknown:
        return
    more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
    raise Incomplete(
        f"the end of this log is missing: it stops at event {state.seq}, and {', '.join(unknown[:SHOWN])}{more} "
        "was started after that",
        hint="put the log back whole, with the -wal file beside it; or look what has been done, then: "
        "muse resume SESSION --recovered",
    )


def commands_after(session: str, state: Session) -> list[str]:
    """The calls of commands that the session's runner has accepted and its log does not know."""
    from muse.effect.runner import files

    folder = str(run_folder(session))
    return [
        call
        for call, attempt in files.attempts(folder)
        if _is_later(state, call, attempt)
        and os.path.exists(os.path.join(files.call_folder(folder, call, attempt), files.ACCEPTED))
    ]


def _is_later(state: Session, call: str, attempt: int) -> bool:
    lane, _, number = call.partition("/")
    agent = state.agents.get(lane)
    if agent is None or int(number) >= agent.next_n:
        return True
    run = state.run(call)
    return run is not None and attempt > run.attempt
