"""`muse processes`: what sessions left running on this machine."""

import click
import msgspec

from muse import app
from muse.ui.cli import completing
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.output import answers, note
from muse.view.visible import one_line


@click.command("processes")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("--json", "as_json", is_flag=True, help="One process a line, as JSON.")
def command(address: str, as_json: bool) -> int:
    """List the background processes that commands of sessions left running: of ADDRESS (SESSION[:AGENT]), or of all
    sessions. They go on when a session closes; end them with muse cancel SESSION --processes.

    \b
      muse processes 4f2k
    """
    found = _of(resolve(address)) if address else list(app.all_left_running())
    with answers() as out:
        for one in found:
            name = f"{short_id(one.session)}@{one.seq}" if one.seq else short_id(one.session)
            if as_json:
                fields = {"address": name, **msgspec.structs.asdict(one)}
                out.json(msgspec.json.encode(fields, order="sorted").decode())
            else:
                out.paragraph(f"{name}  {one.pid}  {one.call}  {one_line(one.command)}", 4)
    if not found and not as_json:
        note("nothing was left running")
    elif not as_json:
        note(f"end them: muse cancel {short_id(found[0].session)} --processes")
    return 0


def _of(place: Place) -> list[app.LeftRunning]:
    """Those of a session, or of one of its agents. Raises UsageError for an agent that is not there."""
    found, lane = app.left_running_in(place.path), place.address.agent
    if not lane:
        return found
    with app.read_session(place.path, check=False) as reading:
        app.last_of(reading, lane)
    return [one for one in found if one.call.startswith(f"{lane}/")]
