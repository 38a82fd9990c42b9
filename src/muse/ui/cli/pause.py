"""`muse pause`: start nothing new, until `muse continue`."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentPaused
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.speaking import CLIENT, acknowledge, listener, told


@click.command("pause")
@click.argument("address", default="", shell_complete=completing.lanes)
@click.option("--tree", is_flag=True, help="The agent and all below it.")
@click.option("--why", default="", metavar="TEXT", help="For the log.")
@told
def command(address: str, tree: bool, why: str, client_id: str, as_json: bool) -> int:
    """Pause the agent at ADDRESS (SESSION[:AGENT]; default: main of the session that runs in this folder, or of the
    last one): what runs goes to its end, nothing new starts until muse continue, also over restarts.

    \b
      muse pause 4f2k:main.2
      muse pause --tree
    """
    with listener(address, f"pause {words(address)}".rstrip()) as to:
        origin = app.origin(CLIENT)
        lane, found = to.lane, to.agent()
        before = found is not None and found.paused
        if not to.said_before(client_id):
            if found is None:
                raise UsageError(f"{lane} of {to.name} has not begun: there is nothing to pause")
            if found.finished and not (tree and any(not one.finished for one in to.below(lane))):
                raise UsageError(f"{lane} of {to.name} has ended", hint=f"muse log {to.of(lane)} says how")
        body = AgentPaused(why=words(why), target="tree" if tree else "agent", origin=origin)
        seq = app.submit(to.log, body, lane, client_id=client_id)
        whom = f"{lane} of {to.name}{' and all below it' if tree else ''}"
        again = f"muse continue {to.of(lane)}{' --tree' if tree else ''}"
        said = "was paused before" if before else "paused: what runs goes to its end, nothing new starts"
        acknowledge(to, seq, f"{whom} {said}; go on: {again}", as_json=as_json)
    return 0
