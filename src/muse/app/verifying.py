"""A session derived again from its log, without network and without any other process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from muse.app.models import rules
from muse.app.places import open_log
from muse.errors import Damaged

if TYPE_CHECKING:
    from muse.log.protocol import Log, Stored
    from muse.runtime.check.report import Report


def verify_story(path: Path, progress: Callable[[int], None] | None = None) -> "Report":
    """The report on the session in a file, or on an export. Raises `Damaged` when its chain is broken, or an event is
    not what the chain commits to."""
    from muse.runtime.check.offline import offline
    from muse.runtime.check.walk import verify_story as walk

    with offline():
        log = open_log(path)
        try:
            return walk(_Proven(log), rules(), progress)
        finally:
            log.close()


class _Proven:
    """A log that gives out no event whose header and body are not those that its chain commits to: opening one checks
    the links only."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self.session = log.session
        self.get_blob, self.stream_blob = log.get_blob, log.stream_blob

    def read(self, after: int = 0, before: int | None = None) -> "Iterator[Stored]":
        from muse.log.verify import check_event

        for event in self._log.read(after, before):
            for fault in check_event(event).faults:
                raise Damaged(f"event {event.seq}: {fault.detail}", seq=event.seq)
            yield event
