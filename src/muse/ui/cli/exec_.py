"""`muse exec`: one task, from a prompt to its end."""

import sys
from pathlib import Path

import click

from muse import app, config
from muse.errors import UsageError
from muse.ui.cli.drive import drive


@click.command("exec")
@click.argument("prompt")
@click.option("-m", "--model", default="", help="PROVIDER/MODEL.")
@click.option("--permission-mode", default="", help="default, accept-edits, plan or yolo.")
@click.option("--yolo", is_flag=True, help="Ask for nothing (denies still hold).")
@click.option("-c", "--config", "pairs", multiple=True, metavar="KEY=VALUE", help="Override a setting.")
@click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")
def command(prompt: str, model: str, permission_mode: str, yolo: bool, pairs: tuple[str, ...], as_json: bool) -> int:
    """Run PROMPT to its end in the current folder ("-" reads it from standard input)."""
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("the prompt is empty", hint='say what is to be done: muse exec "mend the failing test"')
    workspace = Path.cwd().resolve()
    settings_file = config.load(workspace, pairs)
    settings = app.settings_of(settings_file, model, "yolo" if yolo else permission_mode)
    log = app.create_log(app.new_session_id())
    return drive(log, settings_file, settings, workspace, prompt=text, fresh=True, as_json=as_json)
