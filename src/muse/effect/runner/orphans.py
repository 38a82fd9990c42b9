"""The end of what a killed keeper left behind: its command runs on unwatched, with nobody to read its output.

Nothing is adopted here: without its keeper a command has no exit status, and writes into a pipe without a reader. It is
asked to end, then killed, and `lost` says which processes that were and which could not be ended. Standard library
only.
"""

import os
import signal
import time
from typing import Any

from muse.effect.runner import files, processes

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""
GIVE_UP_SECONDS = 5.0
"""After SIGKILL: how long until a process that does not go is reported instead."""
LOOK_SECONDS = 0.05
NAMED_MAX = 64


class Orphans:
    """The rest of one command. `strays` are processes that are known to be of it by other means than its mark."""

    def __init__(self, folder: str, accepted: dict[str, Any], mark: str, strays: list[int]) -> None:
        self.folder = folder
        self.accepted = accepted
        self.mark = mark
        self.strays = {pid: processes.start_time(pid) for pid in strays}
        self.seen: dict[int, dict[str, Any]] = {}
        self.kill_at = time.monotonic() + GRACE_SECONDS
        self.give_up_at = self.kill_at + GIVE_UP_SECONDS
        self.asked: set[tuple[int, str]] = set()
        self.look_at = 0.0

    def tend(self) -> bool:
        """One look: ask what is new to end, kill what does not. True when `lost` is written and nothing is left to do.

        Raises OSError when `lost` cannot be written; then it is to be tried again.
        """
        now = time.monotonic()
        if now < self.look_at:
            return False
        self.look_at = now + LOOK_SECONDS
        living = self._living()
        for pid in living:
            one = self.seen.setdefault(pid, processes.describe(pid))
            started = one["start_time"]
            if (pid, started) not in self.asked:
                self.asked.add((pid, started))
                processes.send(pid, started, signal.SIGTERM)
                processes.send(pid, started, signal.SIGCONT)  # a stopped process cannot see the one without the other
            elif now >= self.kill_at:
                processes.send(pid, started, signal.SIGKILL)
        if living and now < self.give_up_at:
            return False
        ended = [one for pid, one in self.seen.items() if pid not in living]
        left = [self.seen[pid] for pid in living]
        content = {"time_ms": time.time_ns() // 1_000_000, "ended": ended[:NAMED_MAX], "left": left[:NAMED_MAX]}
        files.write_durable(os.path.join(self.folder, files.LOST), content)
        return True

    def _living(self) -> list[int]:
        boot = processes.boot_id()
        strays = [pid for pid, started in self.strays.items() if processes.is_alive(pid, started, boot)]
        found = processes.of_command(self.accepted["command"], self.mark) + strays + processes.below(strays)
        return list(dict.fromkeys(found))
