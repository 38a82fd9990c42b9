"""`muse archive`: put sessions away, and take them back."""

from pathlib import Path
from typing import Any

import click
import msgspec

from muse import app
from muse.errors import Busy, UsageError
from muse.ui.cli.choosing import CLIENT, Selection, chosen, confirmed, fields_of, row_of, say_skipped, selecting
from muse.ui.cli.finding import short_id, tilde
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural, size


@click.command("archive")
@selecting
@click.option("--to", "folder", default="", metavar="DIR", help="Keep the packed files there ($MUSE_HOME/archive).")
@click.option("--restore", is_flag=True, help="Put archived SESSIONs back into the list.")
def command(yes: bool, dry_run: bool, as_json: bool, folder: str, restore: bool, **given: Any) -> int:
    """Put SESSIONs away: each is packed, unpacked again and verified, and only then taken out of the list. It says what
    and how much, and asks first.

    Every command that reads takes an archived session as before (muse ls --archived); --restore brings it back, byte
    for byte.

    \b
      muse archive 4f2k
      muse archive --older-than 30d --ended --dry-run
    """
    if restore:
        app.origin(CLIENT)
        if given["older_than"] or given["ended"] or folder:
            raise UsageError("--restore takes sessions by name", hint="muse ls --archived lists them")
        return _restore(given["sessions"], dry_run=dry_run, as_json=as_json)
    target = Path(folder).expanduser().absolute() if folder else None
    children = app.children()
    ready: list[app.Holding] = []
    for entry in chosen(msgspec.convert(given, Selection)):
        if entry.file.endswith(app.ARCHIVE_SUFFIX):
            raise UsageError(f"{entry.session} is archived already", hint=f"muse archive --restore {entry.session}")
        try:
            app.refuse_agents_at(Path(entry.file), CLIENT, f"archive {entry.session}")
            app.require_removable(entry.session, Path(entry.file), children)
            ready.append(app.holding(entry))
        except Busy as error:  # of many that flags select, some may run: the others go
            if given["sessions"]:
                raise
            say_skipped(entry, str(error))
    with answers(acts=True) as out:
        return _put_away(ready, children, target, out, yes=yes, dry_run=dry_run, as_json=as_json)


def _put_away(
    ready: list[app.Holding], children: dict[str, list[str]], target: Path | None, out: Answers, *, yes: bool,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    total = f"{plural(len(ready), 'session')}, {size(sum(found.size for found in ready))}"
    if not as_json:
        out.lines([row_of(found) for found in ready])
        out.flush()
    if dry_run or not ready:
        if as_json:
            for found in ready:
                out.json(msgspec.json.encode(fields_of(found) | {"archived": False}, order="sorted").decode())
        else:
            note(f"{total}; nothing was archived")
        return 0
    if not confirmed(f"archive {total}?", yes=yes):
        note("nothing was archived")
        return 1
    for found in ready:
        progress(f"packing and verifying {short_id(found.entry.session)}")
        record = app.put_away(found, children, target)
        progress("")
        if as_json:
            out.json(msgspec.json.encode(record, order="sorted").decode())
        else:
            smaller = f"{size(found.size)} → {size(record.size)}"
            note(f"archived {short_id(record.session)}: {smaller}, {tilde(record.file)}")
    return 0


def _restore(names: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    if not names:
        raise UsageError("which session?", hint="muse ls --archived lists them")
    records = [_record(name) for name in names]
    with answers(acts=True) as out:
        for record in records:
            file = "" if dry_run else str(app.take_back(record))
            if as_json:
                out.json(msgspec.json.encode({"session": record.session, "file": file}, order="sorted").decode())
            else:
                done = (
                    f"{'would be back' if dry_run else 'is back'}: {size(record.size)} → {size(record.original_size)}"
                )
                note(f"{short_id(record.session)} {done}")
    return 0


def _record(name: str) -> app.Archived:
    """The one archived session of this name. Raises UsageError."""
    records = app.archived()
    found = [one for one in records if name in (one.session, short_id(one.session), one.entry.name, one.file)]
    found = found or [one for one in records if name and name in one.session]
    if len(found) != 1:
        what = f"{name!r} names {len(found)} archived sessions" if found else f"no archived session is named {name!r}"
        raise UsageError(what, hint="muse ls --archived lists them")
    return found[0]
