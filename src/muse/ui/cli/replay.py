"""`muse replay`: what happened, step by step."""

import sys
from pathlib import Path

import click

from muse import app
from muse.ui.cli import completing
from muse.ui.cli.address import Place, require_event, resolve
from muse.ui.cli.output import answers
from muse.view.lines import json_line
from muse.view.text import row_text
from muse.view.timeline import Context, rows


@click.command("replay")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option("--plain", is_flag=True, help="All at once, one row an event (so in a pipe).")
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(address: str, plain: bool, as_json: bool, no_color: bool) -> int:
    """Step through ADDRESS (SESSION[:AGENT][@SEQ]; default: the last session).

    On a terminal it begins at SEQ: Enter goes on, b back, a number to that event, q ends.
    """
    place = resolve(address)
    if not plain and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        from muse.ui.cli.stepping import step_through

        return step_through(place, colour=not no_color)
    return _all(place, as_json, no_color)


def _all(place: Place, as_json: bool, no_color: bool) -> int:
    lane, upto = place.address.agent, place.address.seq
    with answers(colour=not no_color) as out, app.read_session(place.path) as reading:
        require_event(reading, upto)
        for event, row in rows(reading.events(before=upto + 1 if upto else None), Context(home=str(Path.home()))):
            if lane and event.agent != lane:
                continue
            if as_json:
                out.json(json_line(event))
            else:
                out.line(row_text(row, width=out.width, colour=out.colour))
    return 0
