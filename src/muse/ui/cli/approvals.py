"""`muse approvals`: the one inbox of what waits for a person's word, in all sessions."""

import anyio
import click
import msgspec

from muse.errors import UsageError
from muse.ui.cli.finding import short_id
from muse.ui.cli.inbox import Waiting, describe, fields, left_waiting, waiting
from muse.ui.cli.output import answers, note


@click.command("approvals")
@click.option("-i", "--interactive", is_flag=True, help="Go through them one by one, and answer.")
@click.option("--json", "as_json", is_flag=True, help="One request or question a line, as JSON.")
def command(interactive: bool, as_json: bool) -> int:
    """List the requests and questions that wait in all sessions, also in those that stopped while they waited. Answer
    with muse approve, deny or answer and the ADDRESS, or one after the other with -i.

    \b
      muse approvals -i
    """
    if interactive:
        return _go_through(as_json=as_json)
    running = waiting()
    found = running + left_waiting()
    with answers() as out:
        for one in found:
            if as_json:
                out.line(msgspec.json.encode(fields(one)).decode())
                continue
            for line in describe(one):
                out.paragraph(line, 4)
            out.paragraph(f"  {one.how}", 4)
            if not one.running:
                name = short_id(one.session)
                out.paragraph(f"  nobody runs this session: an answer holds from muse resume {name} on", 4)
    if not found and not as_json:
        note("nothing waits")
    elif len(found) > 1 and not as_json and out.terminal:
        note("one after the other: muse approvals -i")
    return 0


def _go_through(*, as_json: bool) -> int:
    from muse.ui.cli.going_through import GoingThrough
    from muse.ui.cli.person import person

    if as_json:
        raise UsageError("-i asks a person, --json is for programs", hint="give one of them")
    terminal = person()
    if terminal is None:
        raise UsageError("-i needs a terminal", hint="muse approvals lists what waits, muse approve ADDRESS answers")
    going = GoingThrough(terminal)
    seen: set[str] = set()
    while going.goes_on and (found := _new(seen)):
        seen |= {one.address for one in found}
        anyio.run(going.through, found)
    if not seen:
        note("nothing waits")
    elif going.later:
        note(f"still waiting: {', '.join(going.later)}")
    return 0


def _new(seen: set[str]) -> list[Waiting]:
    """What waits and was not gone through yet."""
    return [one for one in (*waiting(), *left_waiting()) if one.address not in seen]
