"""`muse approvals`: the one inbox of what waits for a person's word, in all sessions."""

import anyio
import click
import msgspec

from muse.errors import UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.drive import INTERRUPTED
from muse.ui.cli.finding import short_id
from muse.ui.cli.inbox import Waiting, describe, fields, left_waiting, waiting, waiting_at
from muse.ui.cli.output import answers, note


@click.command("approvals")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("-i", "--interactive", is_flag=True, help="Go through them one by one, and answer.")
@click.option("--json", "as_json", is_flag=True, help="One request or question a line, as JSON.")
def command(address: str, interactive: bool, as_json: bool) -> int:
    """List the requests and questions that wait in all sessions, also in those that stopped while they waited; or only
    those of ADDRESS (SESSION[:AGENT]). Answer with muse approve, deny or answer and the ADDRESS that each has, or one
    after the other with -i.

    \b
      muse approvals -i
      muse approvals 4f2k:main.2
    """
    place = resolve(address, running=True) if address else None
    if interactive:
        return _go_through(place, as_json=as_json)
    found = _found(place)
    with answers() as out:
        for one in found:
            if as_json:
                out.line(msgspec.json.encode(fields(one)).decode())
                continue
            for line in describe(one):
                out.paragraph(line, 4)
            out.commands("  ", *one.ways)
            if not one.running:
                name = short_id(one.session)
                out.commands("  nobody runs this session; an answer holds from this on:", f"muse resume {name}")
    if not found and not as_json:
        note(_nothing(place))
    elif len(found) > 1 and not as_json and out.terminal:
        note(f"one after the other: muse approvals {f'{address} ' if address else ''}-i")
    return 0


def _found(place: Place | None) -> list[Waiting]:
    """What waits at an address; None: everywhere."""
    return waiting_at(place) if place is not None else [*waiting(), *left_waiting()]


def _nothing(place: Place | None) -> str:
    if place is None:
        return "nothing waits"
    agent = f":{place.address.agent}" if place.address.agent else ""
    return f"nothing waits in {short_id(place.path.stem)}{agent}; in all sessions: muse approvals"


def _go_through(place: Place | None, *, as_json: bool) -> int:
    from muse.ui.cli.going_through import GoingThrough
    from muse.ui.cli.person import person

    if as_json:
        raise UsageError("-i asks a person, --json is for programs", hint="give one of them")
    terminal = person()
    if terminal is None:
        raise UsageError("-i needs a terminal", hint="muse approvals lists what waits, muse approve ADDRESS answers")
    going = GoingThrough(terminal)
    seen: set[str] = set()
    code = 0
    try:
        while going.goes_on and (found := [one for one in _found(place) if one.address not in seen]):
            seen |= {one.address for one in found}
            anyio.run(going.through, found)
    except KeyboardInterrupt:
        note("")  # the line of the question
        going.later = [one.address for one in _found(place)]
        code = INTERRUPTED
    if not seen:
        note(_nothing(place))
    elif going.later:
        note(f"still waiting: {', '.join(going.later)}")
    return code
