"""`muse gc`: take away what no session needs."""

import click
import msgspec

from muse import app
from muse.ui.cli.choosing import CLIENT
from muse.ui.cli.finding import tilde
from muse.ui.cli.output import Answers, answers, note
from muse.view.amounts import plural, size


@click.command("gc")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="What goes, and what stays and why, as JSON, one object a line.")
def command(dry_run: bool, as_json: bool) -> int:
    """Take away leftovers: runners' folders of ended sessions, logs that never began, rests of what was interrupted.

    Sessions are never touched (that is muse rm), nor anything that a running one may use. What goes is said first.

    \b
      muse gc --dry-run
    """
    app.origin(CLIENT)
    found = app.look_around()
    with answers(acts=True) as out:
        if not as_json:
            out.lines([_row(one) for one in found.leftovers])
            for still in found.stays:
                note(f"stays: {tilde(still.path)}: {still.why}")
            out.flush()
        taken: list[app.Leftover] = []
        for one in found.leftovers:
            why = "" if dry_run else app.take_away(one)
            if not why:
                taken.append(one)
            elif not as_json:
                note(f"stays: {tilde(one.path)}: {why}")
            else:
                found.stays.append(app.Stays(one.path, why))
        if as_json:
            _say_json(found, taken, out, removed=not dry_run)
        else:
            total = f"{plural(sum(one.files for one in taken), 'file')}, {size(sum(one.size for one in taken))}"
            note(f"{total}; nothing was removed" if dry_run else f"removed {total}")
    return 0


def _row(one: app.Leftover) -> str:
    return f"{one.what:<12}  {size(one.size):>9}  {tilde(one.path)}  {one.why}"


def _say_json(found: app.Found, taken: list[app.Leftover], out: Answers, *, removed: bool) -> None:
    for one in taken:
        fields = {**msgspec.structs.asdict(one), "removed": removed}
        out.json(msgspec.json.encode(fields, order="sorted").decode())
    for stays in found.stays:
        out.json(msgspec.json.encode({"path": stays.path, "stays": stays.why}, order="sorted").decode())
