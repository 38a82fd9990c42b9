"""The error tree of muse. Every room raises from here; the front door turns each class into a line and an exit code.

    MuseError                    exit_code, hint
    ├── UsageError               2   the request cannot be meant (unknown session, bad flag, a file of another kind)
    │   └── ConfigError          2   a settings file or the environment is wrong
    ├── LogError                 6
    │   ├── NotALog              6   the file is no muse log
    │   ├── NewerLog             6   written by a version this one does not know
    │   ├── Damaged              6   the store or the chain is broken; names the first bad event
    │   ├── InvalidEvent         6   bytes that no writer may append
    │   ├── Conflict             6   the same event or command id with other content
    │   └── StoreUnavailable     1   I/O error, disk full, read-only folder; the append is in doubt
    ├── Busy                     7   another process owns the session
    ├── Fenced                   7   this process no longer owns it: stop
    ├── ProviderError            4   the model provider refused or could not be reached
    │   └── MissingKey           4   no credentials
    ├── LimitReached             5   a budget or a named limit
    └── Incomplete               8   intact as far as it goes, but the tail is known to be missing

Whether to try again is a property of the class (`retry`), never of the text.
"""

from typing import ClassVar, Literal

Retry = Literal["no", "yes", "ask"]


class MuseError(Exception):
    """Anything muse reports on purpose: one line that says what happened, one that says what to do (`hint`)."""

    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = "no"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(MuseError):
    """The request cannot be meant."""

    exit_code = 2


class ConfigError(UsageError):
    """A settings file, a flag or the environment holds something that cannot be used."""


class LogError(MuseError):
    """Something about a log file."""

    exit_code = 6


class NotALog(LogError):
    """The file is not a muse log."""


class NewerLog(LogError):
    """The log was written by a newer muse than this one."""


class Damaged(LogError):
    """The store or the chain is broken. `seq` is the first event that cannot be trusted, 0 when none can be named."""

    def __init__(self, message: str, *, seq: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.seq = seq


class InvalidEvent(LogError):
    """Bytes that no writer may append and no verifier accepts."""


class Conflict(LogError):
    """An id that the log already holds, with other content."""


class StoreUnavailable(LogError):
    """The store could not be read or written (I/O error, full disk, read-only folder). Nothing is damaged: the run has
    failed, and can go on when the disk is well.

    After a failed append it is unknown whether the transaction is on disk: reopen and look the ids up.
    """

    exit_code = 1
    retry = "ask"


class Busy(MuseError):
    """Another process owns the session."""

    exit_code = 7
    retry = "ask"


class Fenced(MuseError):
    """A newer epoch exists: this process must stop at once."""

    exit_code = 7


class ProviderError(MuseError):
    """The model provider refused, failed for good, or could not be reached."""

    exit_code = 4
    retry = "ask"


class MissingKey(ProviderError):
    """No credentials for the chosen provider."""


class LimitReached(MuseError):
    """A budget or another named limit."""

    exit_code = 5
    retry = "ask"


class Incomplete(MuseError):
    """What is there is intact, and it is known that more was there."""

    exit_code = 8
