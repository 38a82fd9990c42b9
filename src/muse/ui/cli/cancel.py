"""`muse cancel`: stop a call, a turn or an agent."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import CancelRequested
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, told


@click.command("cancel")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option("--why", default="", metavar="TEXT", help="What the agent should know.")
@click.option("--agent", "whole", is_flag=True, help="The agent as a whole: also what is queued for it.")
@told
def command(address: str, why: str, whole: bool, client_id: str, as_json: bool) -> int:
    """Stop what ADDRESS points at: SESSION@SEQ the call of that event, SESSION[:AGENT] the agent's running turn;
    without SESSION: of the session that runs in this folder."""
    with listener(address, f"cancel {words(address)}".rstrip()) as to:
        origin = app.origin(CLIENT)
        if to.address.seq:
            agent, call = _call(to, client_id)
            body = CancelRequested(target="call", call=call, why=words(why), origin=origin)
            what = f"the call {call}"
        else:
            agent = to.address.agent or "main"
            _require_turn(to, agent, client_id)
            body = CancelRequested(target="agent" if whole else "turn", why=words(why), origin=origin)
            what = f"{agent}" if whole else f"the turn of {agent}"
        seq = app.submit(to.log, body, agent, cause=to.address.seq, client_id=client_id)
        acknowledge(to, seq, f"cancel: {what} of {to.name}", as_json=as_json)
    return 0


def _call(to: Listener, client_id: str) -> tuple[str, str]:
    """The agent and key of the call that the addressed event belongs to, while it is open (a command said again with
    its id needs no open call)."""
    event = app.event_at(to.log, to.address.seq)
    if event is None:
        raise UsageError(f"there is no event {to.address.seq}", hint=f"muse log {to.name} lists them")
    call = getattr(event.body, "call", "")
    if not isinstance(call, str) or not call:
        raise UsageError(
            f"#{event.seq} ({event.type}) belongs to no call", hint=f"to stop the turn: muse cancel {to.name}"
        )
    run = to.state.run(call)
    agent = to.state.agents.get(event.agent)
    asking = agent is not None and agent.call is not None and agent.call.key == call
    if not client_id and not asking and (run is None or run.phase == "done"):
        raise UsageError(f"the call {call} has ended already", hint=f"muse log {to.name} says how")
    return event.agent, call


def _require_turn(to: Listener, agent: str, client_id: str) -> None:
    found = to.state.agents.get(agent)
    if found is None and (agent != "main" or not to.state.early):
        raise UsageError(f"there is no agent {agent} in {to.name}", hint=f"there is: {', '.join(to.state.agents)}")
    if found is not None and not found.turn and not client_id:
        raise UsageError(
            f"{agent} of {to.name} is in no turn: there is nothing to cancel", hint="muse ls shows what runs"
        )
