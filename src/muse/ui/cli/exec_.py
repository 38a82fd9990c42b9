"""`muse exec`: one task, from a prompt to its end."""

import re
from typing import Final

import click

from muse import app
from muse.errors import UsageError
from muse.ui.cli import hosting
from muse.ui.cli.drive import Job, drive, first_settings
from muse.ui.cli.live import Live
from muse.ui.cli.options import driving, flags_of, folder_of, in_background, prompt_of, words
from muse.ui.cli.person import person

NAME: Final = re.compile(r"[^\s:@/\x00-\x1f\x7f]{1,80}")


@click.command("exec")
@click.argument("prompt")
@click.option(
    "--name",
    default="",
    help="A name to use in place of the session's id (of several sessions with it the newest is meant).",
)
@in_background
@driving
def command(prompt: str, name: str, background: bool, **given: object) -> int:
    """Run PROMPT to its end in the current folder ("-" reads it from standard input).

    Progress goes to standard error, the answer to standard output. Exit code: 0 done, 1 the task failed, 3 nobody
    answered an approval, 4 provider or credentials, 5 a limit, 130 interrupted, 143 terminated.

    With --background it returns when the session has begun, and prints its id; muse attach watches it and returns its
    exit code, muse approvals says what waits. For example: muse exec --background "mend the failing test"
    """
    flags = flags_of(given)
    text = prompt_of(prompt)
    if background:
        return hosting.begin(["-"], text, as_json=flags.as_json, quiet=flags.quiet)
    workspace = folder_of(flags.folder)
    terminal = person()
    name = words(name)
    if name and (not NAME.fullmatch(name) or name == "last"):
        raise UsageError(f"{name!r} cannot be a session's name", hint="up to 80 characters without blanks, : @ or /")
    loaded = flags.settings(workspace, terminal is not None)
    settings = first_settings(loaded, flags)
    live = Live(as_json=flags.as_json, quiet=flags.quiet)
    log = app.create_log(app.new_session_id())
    job = Job(
        log=log, loaded=loaded, settings=settings, workspace=workspace, live=live, terminal=terminal, fresh=True,
        name=name,
    )  # fmt: skip
    return drive(job, text, as_json=flags.as_json)
