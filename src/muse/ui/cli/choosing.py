"""Which sessions a command that takes things away is about: those named one by one, or those that flags select.

`last` is never meant by silence here. What is selected is said before anything happens, and a person is asked; where
nobody can be asked, `--yes` has to be there. This module must not know what is done to the sessions.
"""

import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.finding import all_sessions, here, sessions_of, short_id, tilde
from muse.ui.cli.output import note
from muse.view.amounts import age, plural, size
from muse.view.summary import outcome_words
from muse.view.visible import headline

CLIENT: Final = "cli"
PROMPT_COLUMNS: Final = 60
_age_form: Final = re.compile(r"([1-9][0-9]{0,5})(h|d|w)")
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Selection(msgspec.Struct, frozen=True):
    """What the words and flags of a command select."""

    sessions: tuple[str, ...]
    older_than: str
    ended: bool
    everywhere: bool


def selecting(command: Any) -> Any:
    """Add what chooses sessions, and what every command that takes things away has."""
    for option in reversed(
        (
            click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=completing.sessions),
            click.option(
                "--older-than", default="", metavar="AGE", help="All whose last event is older: 12h, 30d, 8w."
            ),
            click.option("--ended", is_flag=True, help="Only those that came to their end; alone: all of them."),
            click.option("-a", "--all", "everywhere", is_flag=True, help="With these flags: of all folders."),
            *ASKING,
        )
    ):
        command = option(command)
    return command


ASKING: Final = (
    click.option("-y", "--yes", is_flag=True, help="Do not ask."),
    click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done."),
    click.option("--json", "as_json", is_flag=True, help="What is done, as JSON, one object a line."),
)


def asking(command: Any) -> Any:
    """Add the flags of a command that asks before it does anything."""
    for option in reversed(ASKING):
        command = option(command)
    return command


def chosen(selection: Selection, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> list[app.Entry]:
    """The entries that are meant. Raises UsageError when nothing is named, or something that is not there."""
    by_flags = bool(selection.older_than or selection.ended)
    if selection.sessions and by_flags:
        raise UsageError("sessions are named, or selected by flags, not both", hint="leave one of them out")
    if selection.sessions:
        return named(selection.sessions)
    if not by_flags:
        raise UsageError("which session?", hint="muse ls lists them; --older-than 30d or --ended selects several")
    found, _ = all_sessions() if selection.everywhere else sessions_of(here())
    if selection.older_than:
        limit = now() - _age(selection.older_than)
        found = [entry for entry in found if (time := _last_time(entry)) is not None and time < limit]
    if selection.ended:
        found = [entry for entry in found if entry.state == "closed"]
    return found


def named(sessions: Iterable[str]) -> list[app.Entry]:
    """The entries of sessions that are named one by one, each once."""
    paths: dict[Path, None] = {}
    for text in sessions:
        place = resolve(text) if text else None
        if place is None or place.address.agent or place.address.seq:
            raise UsageError(f"{text!r} is no whole session", hint="give an id, a unique part of one, a name or a file")
        paths[place.path.absolute()] = None
    away = {Path(record.file): record for record in app.archived()}
    return [app.holding_of(away[path]).entry if path in away else app.catalog().entries([path])[0] for path in paths]


def row_of(found: app.Holding) -> str:
    """One line about a session that is to go: what it is, and how much."""
    entry = found.entry
    time = _last_time(entry)
    when = age(int((datetime.now(UTC) - time).total_seconds())) if time is not None else "?"
    state = outcome_words(entry.outcome) if entry.state == "closed" else entry.state
    said = headline(entry.name or entry.prompt or entry.problem, PROMPT_COLUMNS)
    amount = f"{plural(entry.events, 'event')}, {plural(found.files, 'file')}, {size(found.size)}"
    return f"{short_id(entry.session)}  {when}  {state}  {tilde(entry.workspace)}  {amount}  {said}".rstrip()


def fields_of(found: app.Holding) -> dict[str, object]:
    """The same as JSON has it."""
    entry = found.entry
    return {
        "session": entry.session, "name": entry.name, "prompt": entry.prompt, "state": entry.state,
        "workspace": entry.workspace, "events": entry.events, "last_time": entry.last_time,
        "files": found.files, "size": found.size, "parts": found.parts,
    }  # fmt: skip


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether a person says yes, or said so beforehand. Raises UsageError where nobody can be asked."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody is here to be asked", hint="--dry-run says what would happen, --yes lets it happen")
    return click.confirm(question, default=False, err=True)


def say_skipped(found: app.Entry, why: str) -> None:
    """One session stays, and why."""
    note(f"{short_id(found.session)} stays: {why}")


def _age(text: str) -> timedelta:
    found = _age_form.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no age", hint="write --older-than 12h, 30d or 8w")
    return int(found[1]) * _UNITS[found[2]]


def _last_time(entry: app.Entry) -> datetime | None:
    """When its last event was made; of a log that cannot be read, when its file was last written."""
    try:
        if entry.last_time:
            return datetime.fromisoformat(entry.last_time)
        return datetime.fromtimestamp(Path(entry.file).stat().st_mtime, UTC)
    except (ValueError, OSError, OverflowError):
        return None
