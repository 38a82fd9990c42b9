"""`muse replay`: what happened, step by step."""

import click

from muse import app
from muse.view.lines import json_line


@click.command("replay")
@click.argument("session", default="last")
@click.option("--plain", is_flag=True, help="All at once, one row an event.")
@click.option("--json", "as_json", is_flag=True, help="One event a line.")
def command(session: str, plain: bool, as_json: bool) -> int:
    """Step through SESSION."""
    log = app.open_log(app.find_session(session))
    for event in app.events(log):
        click.echo(json_line(event) if as_json else f"#{event.seq:<4} {event.agent:<8} {event.type}")
    return 0
