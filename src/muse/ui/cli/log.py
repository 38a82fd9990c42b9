"""`muse log`: one row an event."""

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from muse import app
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS, KINDS
from muse.ui.cli import completing
from muse.ui.cli.address import require_event, resolve
from muse.ui.cli.output import Answers, answers, note
from muse.view.lines import json_line
from muse.view.text import row_text
from muse.view.timeline import Context, learn, row


@click.command("log")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come in, also of later runs; Ctrl-C ends it.")
@click.option("--until-closed", is_flag=True, help="With -f: end when the session closes.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    shell_complete=completing.event_types,
    help="Only this type; tool.* takes a group.",
)
@click.option("--agent", default="", help="Only this agent's events.")
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    address: str,
    follow: bool,
    until_closed: bool,
    last: int | None,
    types: tuple[str, ...],
    agent: str,
    as_json: bool,
    no_color: bool,
) -> int:
    """Print the events of ADDRESS (SESSION[:AGENT][@SEQ]; default: the last session), up to SEQ."""
    place = resolve(address)
    lane = agent or place.address.agent
    upto = place.address.seq

    def wanted(event: Event) -> bool:
        if lane and event.agent != lane:
            return False
        return not types or any(fnmatch.fnmatchcase(event.type, pattern) for pattern in types)

    for pattern in types:
        if not fnmatch.filter(KINDS, pattern):
            note(f"muse: no type {pattern!r} is known to this version")
    with answers(colour=not no_color) as out, app.read_session(place.path) as reading:
        require_event(reading, upto)
        printer = _Printer(out, as_json)
        past = filter(wanted, printer.learning(reading.events(before=upto + 1 if upto else None)))
        for event in past if last is None else deque(past, maxlen=last):
            printer.show(event)
        if (follow or until_closed) and not upto:
            _follow(reading, printer, wanted, until_closed)
    return 0


def _follow(reading: app.Reading, printer: "_Printer", wanted: Callable[[Event], bool], until_closed: bool) -> None:
    """What comes in, until Ctrl-C, or until the session is closed."""
    printer.out.flush()
    if printer.closed:
        if until_closed:
            return
        note("the session is closed; this waits until somebody goes on with it (Ctrl-C ends it)")
    for event in printer.learning(reading.follow(printer.seen, lambda: False)):
        if wanted(event):
            printer.show(event)
            printer.out.flush()
        if until_closed and printer.closed:
            return


class _Printer:
    """Events to lines, with what earlier events said; `seen` is the last seq that came by, `closed` whether the session
    was closed by then."""

    def __init__(self, out: Answers, as_json: bool) -> None:
        self.out = out
        self._as_json = as_json
        self._context = Context(home=str(Path.home()))
        self.seen = 0
        self.closed = False

    def learning(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, each taken in when it comes by."""
        for event in events:
            learn(self._context, event)
            self.seen = event.seq
            if event.type not in COMMANDS:  # those may come in after the close
                self.closed = event.type == "session.closed"
            yield event

    def show(self, event: Event) -> None:
        """One line."""
        if self._as_json:
            self.out.json(json_line(event))
        else:
            self.out.line(row_text(row(event, self._context), width=self.out.width, colour=self.out.colour))
