"""`muse continue`: go on after a pause."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentContinued
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, told


@click.command("continue")
@click.argument("address", default="", shell_complete=completing.lanes)
@click.option("--tree", is_flag=True, help="The agent and all below it.")
@told
def command(address: str, tree: bool, client_id: str, as_json: bool) -> int:
    """Let the agent at ADDRESS (SESSION[:AGENT]; default: main of the session that runs in this folder, or of the last
    one) go on after muse pause.

    \b
      muse continue 4f2k:main.2
      muse continue --tree
    """
    with listener(address, f"continue {words(address)}".rstrip()) as to:
        origin = app.origin(CLIENT)
        lane = to.lane
        to.agent()
        if not to.said_before(client_id):
            _require_paused(to, lane, tree=tree)
        body = AgentContinued(target="tree" if tree else "agent", origin=origin)
        seq = app.submit(to.log, body, lane, client_id=client_id)
        acknowledge(to, seq, f"goes on: {lane} of {to.name}{' and all below it' if tree else ''}", as_json=as_json)
    return 0


def _require_paused(to: Listener, lane: str, *, tree: bool) -> None:
    below = [one.id for one in to.below(lane) if one.paused]
    found = to.state.agents.get(lane)
    if (found is not None and found.paused) or (tree and below):
        return
    hint = f"below it: {', '.join(below[:5])}: muse continue {to.of(lane)} --tree" if below else "muse ls shows what is"
    raise UsageError(f"{lane} of {to.name} is not paused", hint=hint)
