"""`muse log`: one row an event."""

from collections import deque
from pathlib import Path

import click

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import COMMANDS
from muse.ui.cli import completing
from muse.ui.cli.address import require_event, resolve
from muse.ui.cli.filtering import chosen, filtering, of_lane, require_agent, say_nothing_found
from muse.ui.cli.output import Answers, answers, note
from muse.view.filters import Filter, Past, learn
from muse.view.lines import json_line
from muse.view.text import row_text
from muse.view.timeline import row


@click.command("log")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come in, also of later runs; Ctrl-C ends it.")
@click.option("--until-closed", is_flag=True, help="With -f: end when the session closes.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N.")
@filtering
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    address: str,
    follow: bool,
    until_closed: bool,
    last: int | None,
    as_json: bool,
    no_color: bool,
    wanted: Filter,
) -> int:
    """Print the events of ADDRESS (SESSION[:AGENT][@SEQ]; default: the last session), up to SEQ.

    Filters compose: different ones must all hold, repeated ones are alternatives. For example, what went wrong in the
    last two hours: muse log --failed --since 2h
    """
    place = resolve(address)
    wanted, upto = of_lane(wanted, place.address.agent), place.address.seq
    follow = (follow or until_closed) and not upto
    if follow and wanted.whole_calls:
        raise UsageError(
            "--whole-calls needs the end of each call, and -f does not wait for it", hint="give one of them"
        )
    with answers(colour=not no_color) as out, app.read_session(place.path) as reading:
        require_event(reading, upto)
        printer = _Printer(out, as_json)
        past = chosen(reading, wanted, printer.past, before=upto + 1 if upto else None, seen=printer.saw)
        for event in past if last is None else deque(past, maxlen=last):
            printer.show(event)
        require_agent(place.address.agent, printer.past, reading.session)
        if not printer.shown and last != 0 and printer.seen:
            out.flush()
            say_nothing_found(wanted, printer.past, reading.session)
        if follow:
            _follow(reading, printer, wanted, until_closed)
    return 0


def _follow(reading: app.Reading, printer: "_Printer", wanted: Filter, until_closed: bool) -> None:
    """What comes in, until Ctrl-C, or until the session is closed."""
    printer.out.flush()
    if printer.closed:
        if until_closed:
            return
        note("the session is closed; this waits until somebody goes on with it (Ctrl-C ends it)")
    for event in reading.follow(printer.seen, lambda: False):
        printer.saw(event)
        learn(printer.past, event)
        if wanted.matches(event, printer.past, reading.content):
            printer.show(event)
            printer.out.flush()
        if until_closed and printer.closed:
            return


class _Printer:
    """Events to lines, with what earlier events said (`past`); `seen` is the last seq that came by, `closed` whether
    the session was closed by then, `shown` the number of lines."""

    def __init__(self, out: Answers, as_json: bool) -> None:
        self.out = out
        self._as_json = as_json
        self.past = Past(home=str(Path.home()))
        self.seen = self.shown = 0
        self.closed = False

    def saw(self, event: Event) -> None:
        """An event came by."""
        self.seen = event.seq
        if event.type not in COMMANDS:  # those may come in after the close
            self.closed = event.type == "session.closed"

    def show(self, event: Event) -> None:
        """One line."""
        self.shown += 1
        if self._as_json:
            self.out.json(json_line(event))
        else:
            self.out.line(row_text(row(event, self.past), width=self.out.width, colour=self.out.colour))
