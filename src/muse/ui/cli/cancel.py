"""`muse cancel`: stop a call, a turn, an agent, or what a session left running; take back words that wait."""

from typing import Final, Literal

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import AgentSteered, AgentWanted, CancelRequested, UserPrompted
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, told
from muse.view.amounts import plural
from muse.view.visible import one_line

Target = Literal["call", "turn", "agent", "tree"]
WORDS: Final = (UserPrompted, AgentSteered, AgentWanted)


@click.command("cancel")
@click.argument("address", default="", shell_complete=completing.lanes)
@click.option("--why", default="", metavar="TEXT", help="What the agent should know.")
@click.option("--agent", "whole", is_flag=True, help="The agent as a whole: also what is queued for it.")
@click.option("--tree", is_flag=True, help="The agent as a whole, and all below it.")
@click.option("--processes", is_flag=True, help="Background processes: of the session, or of the call at SEQ.")
@told
def command(address: str, why: str, whole: bool, tree: bool, processes: bool, client_id: str, as_json: bool) -> int:
    """Stop what ADDRESS points at: SESSION@SEQ the call of that event, or the words that were queued there;
    SESSION[:AGENT] the agent's running turn; without SESSION: of the session that runs in this folder, or of the last
    one. A child that was ended with --agent or --tree stays so. With --processes, end what its commands left running.

    \b
      muse cancel 4f2k:main.2 --why "the other one has it"
      muse cancel --tree
      muse cancel 4f2k@57
    """
    with listener(address, f"cancel {words(address)}".rstrip()) as to:
        app.origin(CLIENT)
        if processes:
            return _end_processes(to, why, client_id, as_json=as_json)
        if to.address.seq and (event := _event(to)) is not None and isinstance(event.body, WORDS):
            return _take_back(to, event, why, client_id, as_json=as_json)
        if to.address.seq:
            agent, call = _call(to, client_id)
            _submit(to, agent, why, client_id, f"the call {call}", as_json=as_json, target="call", call=call)
            return 0
        target: Target = "tree" if tree else "agent" if whole else "turn"
        agent = to.lane
        found = to.agent()
        if not to.said_before(client_id):
            _require_something(to, found, target)
        what = {"turn": f"the turn of {agent}", "agent": agent, "tree": f"{agent} and all below it"}[target]
        _submit(to, agent, why, client_id, what, as_json=as_json, target=target, left=_left(to, found, target))
    return 0


def _submit(
    to: Listener, agent: str, why: str, client_id: str, what: str, *, as_json: bool, target: Target, call: str = "",
    left: str = "",
) -> None:  # fmt: skip
    body = CancelRequested(target=target, call=call, why=words(why), origin=app.origin(CLIENT))
    seq = app.submit(to.log, body, agent, cause=to.address.seq, client_id=client_id)
    acknowledge(to, seq, f"cancel: {what} of {to.name}{left}", as_json=as_json)


def _require_something(to: Listener, found: app.Agent | None, target: Target) -> None:
    """Raises UsageError when there is nothing of the kind to cancel."""
    lane, whom = to.lane, f"{to.lane} of {to.name}"
    below = [one for one in to.below(lane) if one.turn]
    wants = [f"{to.name}@{want.seq}" for want in to.state.wants.get(lane, ())]
    if wants and target != "turn" and found is not None:
        return
    if found is None:
        early = [f"{to.name}@{said.seq}" for said in to.state.early]
        hint = f"take back what was said to it: muse cancel {early[0]}" if early else "muse agents shows what runs"
        raise UsageError(f"{whom} has not begun: there is nothing to cancel", hint=hint)
    if found.turn or (target == "tree" and below) or (target == "agent" and found.parent and not found.finished):
        return
    if found.cancelled:
        raise UsageError(f"{whom} was cancelled before", hint=f"muse log {to.of(lane)} says when and why")
    if below:
        hint = f"below it {plural(len(below), 'agent')}: muse cancel {to.of(lane)} --tree"
    elif wants:
        hint = f"to take back the agent that is wanted: muse cancel {wants[0]}"
    else:
        hint = "muse agents shows what runs"
    raise UsageError(f"{whom} is in no turn: there is nothing to cancel", hint=hint)


def _left(to: Listener, found: app.Agent | None, target: Target) -> str:
    """What a cancel leaves as it is."""
    queued = len(found.queue) if found is not None and target == "turn" else 0
    behind = [one for one in to.below(to.lane) if one.background and one.turn] if target != "tree" else []
    parts = []
    if queued:
        parts.append(f"what is queued begins then ({plural(queued, 'prompt')}; --agent drops it too)")
    if behind:
        parts.append(f"{plural(len(behind), 'background agent')} below it: --tree stops all")
    return "".join(f"; {part}" for part in parts)


# -- words -------------------------------------------------------------------------------------------------------------


def _event(to: Listener) -> Event | None:
    return app.event_at(to.log, to.address.seq)


def _take_back(to: Listener, event: Event, why: str, client_id: str, *, as_json: bool) -> int:
    """Take back words that wait. Exit code 1 when an agent began with them just before this came in."""
    wanted = isinstance(event.body, AgentWanted)
    if not to.said_before(client_id) and not _waits(to.state, event):
        child = next((one.id for one in to.state.agents.values() if wanted and one.wanted == event.seq), "")
        stop = f"to stop {child}: muse cancel {to.of(child)} --tree" if child else f"muse log {to.name} says why"
        raise UsageError(
            f"too late: #{event.seq} does not wait any more",
            hint=stop if wanted else f"to stop the turn: muse cancel {to.of(event.agent)}",
        )
    body = CancelRequested(target="prompt", prompt=event.seq, why=words(why), origin=app.origin(CLIENT))
    seq = app.submit(to.log, body, event.agent, cause=event.seq, client_id=client_id)
    waited = _waits(app.state_of(to.log, before=seq), event)
    began = f"what was wanted at #{event.seq} is there" if wanted else f"{event.agent} of {to.name} had begun with it"
    late = f"too late: {began}; nothing is changed"
    said = f"taken back: #{event.seq}, which waited" if waited else late
    acknowledge(to, seq, said, as_json=as_json, taken_back=waited)
    return 0 if waited else 1


def _waits(state: app.Session, event: Event) -> bool:
    """Whether these words still wait: queued, to join the running turn, or for an agent to begin with them."""
    if isinstance(event.body, AgentWanted):
        return any(want.seq == event.seq for want in state.wants.get(event.agent, ()))
    agent = state.agents.get(event.agent)
    waiting = state.early if agent is None else (*agent.queue, *agent.steers)
    return any(said.seq == event.seq for said in waiting)


# -- processes ---------------------------------------------------------------------------------------------------------


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
    assert event is not None, "an address of an event that is not there leads to no listener"
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
