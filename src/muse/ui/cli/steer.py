"""`muse steer`: say something to a running agent."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentSteered, UserPrompted
from muse.ui.cli.speaking import CLIENT, acknowledge, listener, text_of, told


@click.command("steer")
@click.argument("address")
@click.argument("text")
@click.option("--queue", is_flag=True, help="A turn of its own, after the running one.")
@click.option("--replace", is_flag=True, help="Interrupt the running turn, and begin one with this.")
@told
def command(address: str, text: str, queue: bool, replace: bool, client_id: str, as_json: bool) -> int:
    """Say TEXT to the agent at ADDRESS (SESSION[:AGENT]); it joins the running turn at the next model request."""
    if queue and replace:
        raise UsageError("--queue and --replace say two things", hint="give one of them")
    words = text_of(text)
    origin = app.origin(CLIENT)
    with listener(address) as to:
        agent = to.address.agent or "main"
        if agent != "main" and agent not in to.state.agents:
            raise UsageError(f"there is no agent {agent} in {to.name}", hint=f"there is: {', '.join(to.state.agents)}")
        body: AgentSteered | UserPrompted
        if queue or replace:
            body = UserPrompted(text=words, delivery="queue" if queue else "replace", origin=origin)
        else:
            body = AgentSteered(text=words, origin=origin)
        seq = app.submit(to.log, body, agent, client_id=client_id)
        said = "a turn of its own, afterwards" if queue else "instead of the running turn" if replace else "said"
        acknowledge(to, seq, f"{said}: {agent} of {to.name}", as_json=as_json)
    return 0
