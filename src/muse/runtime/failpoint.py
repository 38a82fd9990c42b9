"""Where a test has the process killed: `MUSE_FAILPOINT=NAME:COUNT` is a SIGKILL at the COUNTth `hit(NAME)`.

The variable is read once, when this module is imported; without it `hit` is an empty function and nothing is counted.
Names: `before_claim`, `after_claim`, `before_append`, `after_append`, `before_effect` (the intent is durable, nothing
has been touched), `after_effect` (it is done, and its result not yet handed in), `before_recovery`, `after_recovery`.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "MUSE_FAILPOINT"


def _nothing(name: str) -> None:
    """What `hit` is in a process that no test watches."""


def armed(setting: str) -> Callable[[str], None]:
    """The `hit` for a setting: `NAME:COUNT`, or "" for one that does nothing. Raises ValueError for anything else."""
    if not setting:
        return _nothing
    wanted, _, count = setting.partition(":")
    at, seen = int(count), Counter[str]()

    def hit(name: str) -> None:
        seen[name] += 1
        if name == wanted and seen[name] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit


hit: Final = armed(os.environ.get(VARIABLE, ""))
"""Say that a place was reached."""
