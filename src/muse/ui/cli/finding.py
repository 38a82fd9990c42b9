"""Which session is meant: by an id, a part of one, a name or a file; and by saying nothing, which means this folder.

Sessions of other folders are never meant by accident: where this folder has none, that is said, with the newest one
elsewhere. This module finds files; it opens them only to read what they are of.
"""

import re
from pathlib import Path
from typing import Final

from muse import app
from muse.errors import MuseError, UsageError
from muse.event.text import clean
from muse.ui.cli.output import note
from muse.view.visible import one_line

LOOKED_AT_ONCE: Final = 20
"""So many sessions are looked into before asking whether the one that is looked for is among them."""

_id: Final = re.compile(r"[0-9]{8}-[0-9]{6}-([0-9a-z]{8})")


def find_session(text: str, folder: Path | None = None, *, running: bool = False) -> Path:
    """The file that SESSION names: a path, an id, a name (of several with it the newest), a unique part of an id; or
    `last`: the newest session of `folder` (the current one), with `running` the one that runs there, if any. Raises
    `UsageError`."""
    if text.endswith((app.SUFFIX, ".jsonl")) or "/" in text:
        path = Path(text).expanduser()
        if not path.exists():
            raise UsageError(f"there is no file {text}", hint="muse ls lists the sessions")
        if path.is_dir():
            hint = "give a session's file; muse import keeps all session files of other agents in a folder"
            raise UsageError(f"{text} is a folder", hint=hint)
        return path
    files = app.session_files()
    if text in ("", "last"):
        return _last_in(files, here() if folder is None else folder, running)
    found = [path for path in files if text in (path.stem, short_id(path.stem))]
    found = found or [path for path in files if _name_of(path) == text][:1]
    found = found or [path for path in files if text in path.stem]
    found = found or _archived(text)
    if len(found) == 1:
        return found[0]
    if not found:
        raise _no_session(text)
    some = ", ".join(path.name.partition(".")[0] for path in found[:5])
    raise UsageError(f"{text!r} names {len(found)} sessions: {some}", hint="give more of the id")


def _archived(text: str) -> list[Path]:
    """The archived sessions that SESSION names; commands that read take them like others."""
    records = app.archived()
    found = [one for one in records if text in (one.session, short_id(one.session))]
    found = found or [one for one in records if one.entry.name == text][:1]
    found = found or [one for one in records if text in one.session]
    return [Path(one.file) for one in found]


def _no_session(text: str) -> UsageError:
    """What to say of a session that is not there: that it was removed and when, or that there never was one."""
    gone = app.removed_sessions()
    found = [stone for stone in gone if text in (stone.session, short_id(stone.session), stone.name)]
    found = found or [stone for stone in gone if text in stone.session]
    if len(found) != 1:
        return UsageError(f"there is no session {text!r}", hint="muse ls --all lists the sessions")
    stone = found[0]
    why = f" ({one_line(stone.why)})" if stone.why else ""
    return UsageError(
        f"session {stone.session} was removed on {stone.removed[:10]}{why}",
        hint=f"it had {stone.events:,} events, head {stone.events}:{stone.hash}" if stone.hash else "",
    )


def short_id(session: str) -> str:
    """What names a session to a person: the last eight characters of an id of ours, else the whole."""
    found = _id.fullmatch(session)
    return found[1] if found else one_line(session)


def is_here(folder: str) -> bool:
    """Whether a path is the current folder's."""
    try:
        return folder == clean(str(Path.cwd().resolve())).text
    except OSError:
        return False


def here() -> Path:
    """The current folder. Raises UsageError when it is gone."""
    try:
        return Path.cwd().resolve()
    except OSError as error:
        raise UsageError(f"the current folder is gone: {error.strerror}", hint="cd to one that exists") from error


def project_folders(folder: Path) -> list[str]:
    """The folders whose sessions `last` may mean, nearest first: this one and those above it, inside a repository only
    up to its root."""
    above = [folder, *folder.parents]
    root = next((at for at, place in enumerate(above) if (place / ".git").exists()), len(above) - 1)
    return [clean(str(place)).text for place in above[: root + 1]]


def sessions_of(folder: Path) -> tuple[list[app.Entry], list[app.Entry]]:
    """The sessions of a folder (where it has none, of the nearest one above: see `project_folders`) and all others,
    newest first. A session whose folder cannot be read counts as one of this folder, so that it is not overlooked."""
    entries = app.catalog().entries(app.session_files())
    places = project_folders(folder)
    now = app.renamed(entries, places)
    known = {now.get(entry.workspace, entry.workspace) for entry in entries}
    place = next((name for name in places if name in known), "")
    found: tuple[list[app.Entry], list[app.Entry]] = ([], [])
    for entry in entries:
        found[now.get(entry.workspace, entry.workspace) not in (place, "")].append(entry)
    return found


def all_sessions() -> tuple[list[app.Entry], list[app.Entry]]:
    """As `sessions_of`, for no folder in particular: all of them, and no others."""
    return app.catalog().entries(app.session_files()), []


def running_in(folder: Path) -> list[app.Entry]:
    """The sessions of the nearest of the `project_folders` in which one runs, newest first."""
    entries = app.catalog().entries([path for path in app.session_files() if app.owner_pid(path)])
    for name in project_folders(folder):
        if found := [entry for entry in entries if entry.workspace == name]:
            return found
    return []


def _last_in(files: list[Path], folder: Path, running: bool) -> Path:
    found = running_in(folder) if running else []
    if len(found) > 1:
        some = ", ".join(short_id(entry.session) for entry in found[:5])
        raise UsageError(f"{len(found)} sessions run here: {some}", hint="say which one")
    if found:
        return Path(found[0].file)
    places = project_folders(folder)
    newest, unreadable = _newest(files, places)
    path = next((newest[place] for place in places if place in newest), None)
    _mention([entry for entry in unreadable if path is None or Path(entry.file).name > path.name])
    if path is None:
        raise _nothing_here(folder, newest)
    return path


def _newest(files: list[Path], places: list[str]) -> tuple[dict[str, Path], list[app.Entry]]:
    """The newest session of each folder, at least until the first of the `places` has one; and those whose folder
    cannot be read. One of the places may have had another name. An imported session is meant only where there is no
    other: nothing goes on from it."""
    newest: dict[str, Path] = {}
    imported: dict[str, Path] = {}
    unreadable: list[app.Entry] = []
    listing = app.catalog()
    for start in range(0, len(files), LOOKED_AT_ONCE):
        entries = listing.entries(files[start : start + LOOKED_AT_ONCE])
        now = app.renamed((entry for entry in entries if entry.workspace not in newest), places)
        for entry in entries:
            if entry.workspace:
                known = imported if entry.imported else newest
                known.setdefault(now.get(entry.workspace, entry.workspace), Path(entry.file))
            elif entry.state == "damaged":
                unreadable.append(entry)
        if places[0] in newest:  # nothing is nearer, and nothing newer
            break
    return imported | newest, unreadable


def _nothing_here(folder: Path, newest: dict[str, Path]) -> UsageError:
    what = f"there is no session of {tilde(str(folder))}"
    if not newest:
        return UsageError(f"{what} yet", hint='start one: muse exec "…"')
    place, path = max(newest.items(), key=lambda one: one[1].name)  # names sort by time
    name = short_id(path.stem)
    return UsageError(
        what, hint=f"the newest elsewhere is {name}, of {tilde(place)}: muse resume {name} (muse ls --all lists more)"
    )


def _mention(unreadable: list[app.Entry]) -> None:
    """Say which newer sessions were passed over because nobody can tell whose folder's they are."""
    for entry in unreadable[:3]:
        what = f"{short_id(entry.session)} cannot be read, so its folder is not known"
        note(f"note: {what}: {one_line(entry.problem)}")


def _name_of(path: Path) -> str:
    """The name that a session was given, "" for none and for a file that cannot be read."""
    try:
        with app.Reading(app.open_log(path, check=False)) as reading:
            opened = reading.event(1)
    except MuseError:
        return ""
    return str(getattr(opened.body, "name", "")) if opened else ""


def tilde(path: str) -> str:
    """A path for a person: safe to show, the home folder as `~`."""
    home, text = str(Path.home()), one_line(path)
    return f"~{text.removeprefix(home)}" if text == home or text.startswith(f"{home}/") else text
