"""Saving what a damaged session still holds into a new one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from muse.app.places import new_session_id, session_path, verify_file
from muse.errors import Busy, LogError, UsageError
from muse.log.lock import is_held

if TYPE_CHECKING:
    from muse.log.recover import Recovery as Recovery
    from muse.runtime.reading import Report

Progress = Callable[[str], None]


def is_whole(path: Path, progress: Progress) -> bool:
    """Whether a session's file verifies as it is: then there is nothing to recover."""
    try:
        report = verify_file(path, progress=lambda seq: progress(f"{seq:,} events checked"))
    except (LogError, UsageError):
        return False
    return report.exit_code == 0


def recover_session(
    path: Path, output: Path | None, *, before_damage: bool, progress: Progress
) -> "tuple[Recovery, Report]":
    """Save the log in `path` into a new session (or the file `output`), and the verdict on that one. The old file is
    only read. Raises `Busy` while a process owns the session, `NotALog` where nothing is there to save."""
    from muse.log.recover import recover

    if is_held(path.with_suffix(".lock")):
        raise Busy(f"a process owns {path.stem}", hint="stop it first: muse ls shows its pid")
    session = new_session_id()
    target = output.absolute() if output is not None else session_path(session)
    done = recover(path.absolute(), target, session, before_damage=before_damage, progress=progress)
    report = verify_file(target, progress=lambda seq: progress(f"{seq:,} saved events verified"))
    return done, report
