"""`muse steer`: say something to a running agent."""

import click

from muse import app
from muse.errors import UsageError
from muse.event.kinds import AgentSteered, UserPrompted
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.speaking import CLIENT, acknowledge, listener, text_of, told


@click.command("steer")
@click.argument(
    "address_and_text", nargs=-1, required=True, metavar="[ADDRESS] TEXT", shell_complete=completing.sessions
)
@click.option("--queue", is_flag=True, help="A turn of its own, after the running one.")
@click.option("--replace", is_flag=True, help="Interrupt the running turn, and begin one with this.")
@told
def command(address_and_text: tuple[str, ...], queue: bool, replace: bool, client_id: str, as_json: bool) -> int:
    """Say TEXT to the agent at ADDRESS (SESSION[:AGENT]; default: main of the session that runs in this folder, or of
    the last one); it joins the running turn at the next model request, or waits for muse resume."""
    address, text = _apart(address_and_text)
    if queue and replace:
        raise UsageError("--queue and --replace say two things", hint="give one of them")
    words = text_of(text)
    with listener(address, f"steer {words}") as to:
        origin = app.origin(CLIENT)
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


def _apart(given: tuple[str, ...]) -> tuple[str, str]:
    """The address, "" for none, and the text. Raises UsageError for too many words, and for a lone address."""
    if len(given) > 2:
        raise UsageError("the text is one argument", hint=f'quote it: muse steer "{" ".join(given)}"')
    if len(given) == 2:
        return given[0], given[1]
    if not any(character.isspace() for character in given[0]) and _is_address(given[0]):
        raise UsageError(f"what is to be said to {given[0]}?", hint=f'muse steer {given[0]} "…"')
    return "", given[0]


def _is_address(word: str) -> bool:
    if word in ("", "last") or word[0] in ":@":
        return True
    try:
        resolve(word)
    except UsageError:
        return False
    return True
