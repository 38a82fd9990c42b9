"""`muse deny`: refuse what a session asks."""

import click

from muse.ui.cli import completing
from muse.ui.cli.answering import allow_or_deny
from muse.ui.cli.speaking import told


@click.command("deny")
@click.argument("address", default="", shell_complete=completing.requests)
@click.option("--note", default="", metavar="TEXT", help="What the agent should know; it reads it and goes on.")
@told
def command(address: str, note: str, client_id: str, as_json: bool) -> int:
    """Refuse the request at ADDRESS (SESSION@SEQ); without one, the only request that waits.

    \b
      muse deny 4f2k@61 --note "use make"
    """
    return allow_or_deny(address, allow=False, always=False, note=note, client_id=client_id, as_json=as_json)
