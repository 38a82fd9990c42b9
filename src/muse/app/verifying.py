"""A session derived again from its log, without network and without any other process."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from muse.app.models import rules
from muse.app.places import open_log

if TYPE_CHECKING:
    from muse.runtime.check.report import Report

EXPORT_BEGINS = b'{"muse_export"'


def is_export(path: Path) -> bool:
    """Whether a file is an export of ours, by its beginning."""
    with path.open("rb") as file:
        return file.read(len(EXPORT_BEGINS)) == EXPORT_BEGINS


def verify_story(path: Path, progress: Callable[[int], None] | None = None) -> "Report":
    """The report on the session in a file, or on an export. Raises `Damaged` when its chain is broken."""
    from muse.runtime.check.exported import ExportedLog
    from muse.runtime.check.offline import offline
    from muse.runtime.check.walk import verify_story as walk

    with offline():
        if path.is_file() and is_export(path):
            return walk(ExportedLog.open(path), rules(), progress)
        log = open_log(path)
        try:
            return walk(log, rules(), progress)
        finally:
            log.close()
