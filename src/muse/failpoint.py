"""Where a test has a process of muse killed or stopped, exactly there. Without `MUSE_FAILPOINT` nothing is counted.

`NAME:COUNT` is a SIGKILL at the COUNTth `hit(NAME)` of this process. `NAME:COUNT:kill:FILE` counts the hits of all
processes that have this setting (host, supervisor, keepers) together, through FILE, so that it happens once;
`NAME:COUNT:stop:FILE` is a SIGSTOP there, so that a test can look and choose whom it kills. FILE gets one line of
`LINE_BYTES` bytes a hit, the pid. `*:0:trace:FILE` writes the name of every hit. The variable is read once.

Names, in the host: `before_claim` `after_claim` · `before_append` `after_append` · `before_commit` `after_commit` (of
any write transaction of the log) · `before_observe` `after_observe` · `before_effect` (the intent is durable, nothing
has been touched) `in_stream` (a piece of a model's answer came) `file_temporary` `file_synced` `file_renamed`
`after_effect` (it is done, its result not yet handed in) · `before_discard` `in_discard` `after_discard` (of a spool) ·
`before_recovery` `in_settle` `after_recovery` · `before_checkpoint` `after_checkpoint` · `in_tidy` · `before_close`
`in_close` `after_close` · `worktree_begun` `worktree_added` `worktree_filled`
`worktree_going` `worktree_gone` (an agent's own tree) · `in_removal` `in_archiving` (of a session, at each step).
In the supervisor: `supervisor_ready` `supervisor_start` `supervisor_forked`
`supervisor_accepted` `supervisor_ended`. In a keeper: `keeper_begun` `keeper_forked` (the command waits at the gate)
`keeper_accepted` (durably) `keeper_started` `keeper_ended` `keeper_exited`.

Standard library only: the runner's processes load it, too.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

VARIABLE: Final = "MUSE_FAILPOINT"
LINE_BYTES: Final = 12
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _nothing(name: str) -> None:
    """What `hit` is in a process that no test watches."""


def armed(setting: str) -> Callable[[str], None]:
    """The `hit` for a setting; "" gives one that does nothing. Raises ValueError for what is no setting."""
    if not setting:
        return _nothing
    wanted, _, rest = setting.partition(":")
    count, _, rest = rest.partition(":")
    action, _, file = rest.partition(":")
    at = int(count)
    if action == "trace" and file:
        return partial(_traced, file)
    if bool(action) != bool(file) or (action or "kill") not in _SIGNALS:
        raise ValueError(f"{VARIABLE}={setting}: NAME:COUNT, NAME:COUNT:kill:FILE or NAME:COUNT:stop:FILE")
    number = _SIGNALS[action or "kill"]
    seen = Counter[str]()

    def hit(name: str) -> None:
        if name != wanted:
            return
        if file:
            reached = _written(file, f"{os.getpid():>{LINE_BYTES - 1}}\n".encode("ascii")) // LINE_BYTES
        else:
            seen[name] += 1
            reached = seen[name]
        if reached == at:
            os.kill(os.getpid(), number)

    return hit


def _traced(file: str, name: str) -> None:
    _written(file, name.encode("ascii") + b"\n")


def _written(file: str, line: bytes) -> int:
    """Append a line; where it ends. Atomic among processes, as O_APPEND is."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


hit: Final = armed(os.environ.get(VARIABLE, ""))
"""Say that a place was reached."""
