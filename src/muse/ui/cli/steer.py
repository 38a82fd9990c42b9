"""`muse steer`: say something to a running agent."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentSteered, UserPrompted
from muse.ui.cli import completing
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, apart, listener, text_of, told


@click.command("steer")
@click.argument("address_and_text", nargs=-1, required=True, metavar="[ADDRESS] TEXT", shell_complete=completing.lanes)
@click.option("--queue", is_flag=True, help="A turn of its own, after the running one.")
@click.option("--replace", is_flag=True, help="Interrupt the running turn, and begin one with this.")
@told
def command(address_and_text: tuple[str, ...], queue: bool, replace: bool, client_id: str, as_json: bool) -> int:
    """Say TEXT to the agent at ADDRESS (SESSION[:AGENT]; default: main of the session that runs in this folder, or of
    the last one); it joins the running turn at the next model request, or waits for muse resume. A child that has
    finished goes on with it. "-" reads TEXT from standard input. What is still queued can be taken back: muse cancel
    SESSION@SEQ.

    \b
      muse steer "use the fixtures that are there"
      muse steer 4f2k:main.2 "leave the docs alone" --replace
    """
    address, text = apart(address_and_text, "steer")
    if queue and replace:
        raise UsageError("--queue and --replace say two things", hint="give one of them")
    words = text_of(text)
    with listener(address, f"steer {words}") as to:
        origin = app.origin(CLIENT)
        found = to.agent()
        if found is not None and found.cancelled and not to.said_before(client_id):
            raise UsageError(
                f"{to.lane} of {to.name} was cancelled, and stays so",
                hint=f'speak to its parent: muse steer {to.of(found.parent)} "…"',
            )
        body: AgentSteered | UserPrompted
        if queue or replace:
            body = UserPrompted(text=words, delivery="queue" if queue else "replace", origin=origin)
        else:
            body = AgentSteered(text=words, origin=origin)
        seq = app.submit(to.log, body, to.lane, client_id=client_id)
        acknowledge(to, seq, _meaning(to, seq, queue=queue, replace=replace), as_json=as_json)
    return 0


def _meaning(to: Listener, seq: int, *, queue: bool, replace: bool) -> str:
    """What becomes of the words, as far as the session's state tells."""
    found = to.state.agents.get(to.lane)
    whom = f"{to.lane} of {to.name}"
    paused = f", after muse continue {to.of(to.lane)}" if found is not None and found.paused else ""
    if found is not None and found.finished:
        return f"said: {whom}, which had finished, goes on with this{paused}"
    turn = found is not None and found.turn
    if queue and turn:
        return f"queued: a turn of its own, afterwards{paused}: {whom}; take it back: muse cancel {to.name}@{seq}"
    if replace and turn:
        return f"instead of the running turn{paused}: {whom}"
    return f"said: {whom}{' hears it at its next model request' if turn else ''}{paused}"
