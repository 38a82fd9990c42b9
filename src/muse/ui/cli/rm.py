"""`muse rm`: take sessions away for good."""

from pathlib import Path
from typing import Any

import click
import msgspec

from muse import app
from muse.errors import Busy, MuseError
from muse.ui.cli.choosing import CLIENT, Selection, chosen, confirmed, fields_of, row_of, say_skipped, selecting
from muse.ui.cli.finding import short_id
from muse.ui.cli.output import Answers, answers, note
from muse.view.amounts import plural, size


@click.command("rm")
@selecting
@click.option("--why", default="", metavar="TEXT", help="A reason to keep with the tombstone.")
def command(yes: bool, dry_run: bool, as_json: bool, why: str, **given: Any) -> int:
    """Remove SESSIONs: their logs and everything kept for them alone. It says what and how much, and asks first.

    A session that runs, that left processes running, or that another one goes on from stays. What can never be brought
    back is worth an export first (muse export -o FILE); muse archive makes a session small instead.

    \b
      muse rm 4f2k --why "only a test"
      muse rm --older-than 8w --all --dry-run
    """
    entries = chosen(msgspec.convert(given, Selection))
    by_flags = not given["sessions"]
    children, snapshots = app.children(), app.snapshots_by_session()
    ready: list[app.Holding] = []
    away = {record.file: record for record in app.archived()}
    for entry in entries:
        if entry.file in away:
            ready.append(app.holding_of(away[entry.file]))
            continue
        found = app.holding(entry, snapshots)
        try:
            app.refuse_agents_at(Path(entry.file), CLIENT, f"rm {entry.session}")
            app.require_removable(entry.session, Path(entry.file), children)
            ready.append(found)
        except Busy as error:  # of many that flags select, some may run: the others go
            if not by_flags:
                raise
            say_skipped(entry, str(error))
    with answers(acts=True) as out:
        return _remove(ready, children, out, yes=yes, dry_run=dry_run, as_json=as_json, why=why)


def _remove(
    ready: list[app.Holding], children: dict[str, list[str]], out: Answers, *, yes: bool, dry_run: bool, as_json: bool,
    why: str,
) -> int:  # fmt: skip
    total = f"{plural(len(ready), 'session')}, {size(sum(found.size for found in ready))}"
    if not as_json:
        out.lines([row_of(found) for found in ready])
        out.flush()
    if dry_run or not ready:
        _say_json(ready, out, removed=False) if as_json else note(f"{total}; nothing was removed")
        return 0
    if not confirmed(f"remove {total} for good?", yes=yes):
        note("nothing was removed")
        return 1
    away = {record.file: record for record in app.archived()}
    done: list[app.Holding] = []
    try:
        for found in ready:
            if found.entry.file in away:
                app.remove_archived(away[found.entry.file], children, why)
            else:
                app.remove(found, children, why)
            done.append(found)
    except MuseError as error:
        error.hint = error.hint or "muse gc finishes a removal that was cut short"
        raise
    finally:
        if as_json:
            _say_json(done, out, removed=True)
        else:
            freed = size(sum(found.size for found in done))
            note(f"removed {', '.join(short_id(found.entry.session) for found in done) or 'nothing'}: {freed} freed")
    return 0


def _say_json(found: list[app.Holding], out: Answers, *, removed: bool) -> None:
    for one in found:
        out.json(msgspec.json.encode(fields_of(one) | {"removed": removed}, order="sorted").decode())
