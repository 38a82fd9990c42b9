"""`muse resume`: go on where a session stopped."""

from pathlib import Path

import click

from muse import app, config
from muse.ui.cli.drive import drive


@click.command("resume")
@click.argument("session", default="last")
@click.argument("prompt", default="")
@click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")
def command(session: str, prompt: str, as_json: bool) -> int:
    """Go on with SESSION (an id, part of one, a file; default: the last one), with a new PROMPT if there is one."""
    log = app.open_log(app.find_session(session), read_only=False)
    state = app.state_of(log)
    workspace = Path(state.workspace)
    settings_file = config.load(workspace)
    assert state.settings is not None
    return drive(log, settings_file, state.settings, workspace, prompt=prompt, fresh=False, as_json=as_json)
