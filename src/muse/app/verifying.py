"""A session derived again from its log, without network and without any other process."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from muse.app.models import rules
from muse.app.places import open_log

if TYPE_CHECKING:
    from muse.runtime.check.report import Report


def verify_story(path: Path, progress: Callable[[int], None] | None = None) -> "Report":
    """The report on the session in a file, or on an export. Raises `Damaged` when its chain is broken."""
    from muse.runtime.check.offline import offline
    from muse.runtime.check.walk import verify_story as walk

    with offline():
        log = open_log(path)
        try:
            return walk(log, rules(), progress)
        finally:
            log.close()
