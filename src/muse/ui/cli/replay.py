"""`muse replay`: what happened, step by step."""

import os
import sys
from pathlib import Path

import click

from muse import app
from muse.app.step_search import refuse_endless
from muse.app.steps import Steps
from muse.errors import Damaged, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import Place, require_event, resolve
from muse.ui.cli.filtering import chosen, filtering, of_lane, require_agent, say_nothing_found
from muse.ui.cli.output import answers, note
from muse.ui.cli.verifying import verifying
from muse.view.detail import detailed
from muse.view.filters import Filter, Past
from muse.view.lines import json_line
from muse.view.panel import panel_json, panel_lines
from muse.view.text import detail_text, line_text, row_text
from muse.view.timeline import row

VERIFY = "muse replay --verify says where it does not"
DUMB = "this terminal (TERM={name}) cannot show a screen: here are the rows, as --plain prints them"


@click.command("replay")
@click.argument("address", default="", shell_complete=completing.agents)
@filtering
@verifying
@click.option("--plain", is_flag=True, help="All at once, one row an event (so in a pipe).")
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("--detail", is_flag=True, help="What each event holds, under its row.")
@click.option("--state", is_flag=True, help="The state after the last event, or after SEQ, and no rows.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(address: str, plain: bool, as_json: bool, detail: bool, state: bool, no_color: bool, wanted: Filter) -> int:
    """Step through ADDRESS (SESSION[:AGENT][@SEQ]; default: the last session).

    On a terminal it begins at SEQ, and ? lists the keys. Elsewhere, and with --plain, --json, --detail or --state, the
    same is printed up to SEQ. For example, all that was open when event 41 had happened: muse replay @41 --state

    --verify derives the session again from its log: every decision, request and decoded answer must be the recorded
    one (docs/verify-replay.md). muse verify asks something else: whether the bytes are those that were written.
    """
    place = resolve(address)
    if state:
        return _state(place, as_json, no_color, wanted)
    wanted = of_lane(wanted, place.address.agent)
    if plain or as_json or detail or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _all(place, as_json, detail, no_color, wanted)
    if (terminal := os.environ.get("TERM", "")) in ("", "dumb", "unknown"):
        note(f"muse: {DUMB.format(name=terminal or '(not set)')}")
        return _all(place, as_json, detail, no_color, wanted)
    for expression in wanted.patterns:
        refuse_endless(expression)
    from muse.ui.tui.opening import replay_on_screen

    return replay_on_screen(place, colour=not no_color, wanted=wanted)


def _all(place: Place, as_json: bool, detail: bool, no_color: bool, wanted: Filter) -> int:
    upto = place.address.seq
    past, seen, shown = Past(home=str(Path.home())), 0, False
    with answers(colour=not no_color) as out, app.read_session(place.path) as reading:
        require_event(reading, upto)
        for event in chosen(reading, wanted, past, before=upto + 1 if upto else None):
            shown = True
            if as_json:
                out.json(json_line(event))
                continue
            out.line(row_text(row(event, past), width=out.width, colour=out.colour))
            if detail:
                held = detailed(event, past, reading.content)
                out.lines(detail_text(held, width=out.width, colour=out.colour))
        require_agent(place.address.agent, past, reading.session)
        seen = reading.head().seq
        if wanted and seen and not shown:
            out.flush()
            say_nothing_found(wanted, past, reading.session)
    return 0


def _state(place: Place, as_json: bool, no_color: bool, wanted: Filter) -> int:
    """The state pane after one event."""
    if wanted or place.address.agent:
        raise UsageError("--state is of all agents after one event: it takes no filters", hint="SESSION@SEQ --state")
    with answers(colour=not no_color) as out, app.read_session(place.path) as reading:
        require_event(reading, place.address.seq)
        steps = Steps(reading, home=str(Path.home()))
        seq = place.address.seq or steps.head
        while steps.indexed < seq <= steps.head:
            steps.index()
        if seq > steps.head and steps.damage is not None:
            raise steps.damage
        now = steps.panel(seq)
        if now is None:
            raise Damaged(f"the state after #{seq} is not known: the log does not fit together", hint=VERIFY)
        if as_json:
            out.json(panel_json(now))
        else:
            out.lines(
                [text for line in panel_lines(now) for text in line_text(line, width=out.width, colour=out.colour)]
            )
    return 0
