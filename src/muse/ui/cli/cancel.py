"""`muse cancel`: stop a call, a turn, an agent, or what a session left running."""

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.event.kinds import CancelRequested
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, told
from muse.view.visible import one_line


@click.command("cancel")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option("--why", default="", metavar="TEXT", help="What the agent should know.")
@click.option("--agent", "whole", is_flag=True, help="The agent as a whole: also what is queued for it.")
@click.option("--processes", is_flag=True, help="Background processes: of the session, or of the call at SEQ.")
@told
def command(address: str, why: str, whole: bool, processes: bool, client_id: str, as_json: bool) -> int:
    """Stop what ADDRESS points at: SESSION@SEQ the call of that event, SESSION[:AGENT] the agent's running turn;
    without SESSION: of the session that runs in this folder, or of the last one. With --processes, end what its
    commands left running."""
    with listener(address, f"cancel {words(address)}".rstrip()) as to:
        origin = app.origin(CLIENT)
        if processes:
            return _end_processes(to, why, client_id, as_json=as_json)
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


def _end_processes(to: Listener, why: str, client_id: str, *, as_json: bool) -> int:
    """Say in the log that they are to end, and then see to it: by the owner, or here when there is none. Exit code 1
    when one of them could not be ended."""
    found = app.left_running(to.log.session, to.state)
    if to.address.seq:
        event = app.event_at(to.log, to.address.seq)
        call = getattr(event.body, "call", "") if event is not None else ""
        found = [one for one in found if one.call == call]
    if not found and not client_id:
        raise UsageError(f"{to.name} left nothing running", hint="muse processes lists what all sessions left")
    calls = {one.call for one in found}
    for call in sorted(calls):
        body = CancelRequested(target="call", call=call, why=words(why), origin=app.origin(CLIENT))
        own_id = f"{client_id} {call}" if client_id else ""
        seq = app.submit(to.log, body, call.partition("/")[0], client_id=own_id)
        if not as_json:
            click.echo(f"#{seq}")
    left = app.ended_by_owner(to.log, calls) if to.pid else app.end_here(to.log, to.state, calls)
    alive = {(one.pid, one.started) for one in left}
    ended = [one for one in found if (one.pid, one.started) not in alive]
    if as_json:
        said = {"session": to.log.session, "ended": ended, "left": left}
        click.echo(msgspec.json.encode(said).decode())
    else:
        for one in ended:
            say(f"ended {one.pid} ({one_line(one.command)})")
        for one in left:
            say(f"not ended: {one.pid} ({one_line(one.command)})")
    return 1 if left else 0


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
