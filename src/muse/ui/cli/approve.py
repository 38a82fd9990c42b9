"""`muse approve`: allow what a session asks."""

import click

from muse.ui.cli import completing
from muse.ui.cli.answering import allow_or_deny
from muse.ui.cli.speaking import told


@click.command("approve")
@click.argument("address", default="", shell_complete=completing.requests)
@click.option("--always", is_flag=True, help="Also from now on, for the rule that the request offers.")
@told
def command(address: str, always: bool, client_id: str, as_json: bool) -> int:
    """Allow the request at ADDRESS (SESSION@SEQ); without one, the only request that waits.

    \b
      muse approve 4f2k@61
      muse approve --always
    """
    return allow_or_deny(address, allow=True, always=always, note="", client_id=client_id, as_json=as_json)
