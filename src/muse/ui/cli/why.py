"""`muse why`: from an event back to a person's words."""

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import require_event, resolve
from muse.ui.cli.output import Answers, answers
from muse.view.amounts import plural
from muse.view.causes import Chain, Step, why
from muse.view.text import paint, row_text
from muse.view.timeline import Row
from muse.view.visible import paragraph

NEAR: Final = 12
"""So many steps next to the event are shown before those in between are only counted."""
FAR: Final = 3
"""So many at the other end."""
RESTS_SHOWN: Final = 8
COLUMN: Final = 19
"""Where rows begin, after the words that lead to them."""


@click.command("why")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("--all", "everything", is_flag=True, help="Every step, also of a long way back.")
@click.option("--json", "as_json", is_flag=True, help="All steps as one JSON line.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(address: str, everything: bool, as_json: bool, no_color: bool) -> int:
    """Say why the event at ADDRESS (SESSION[:AGENT][@SEQ]; default: the last one) happened.

    From it back to a person's words: what led to each step, and with a + what it rests on (approvals, rules, results).
    For example, who let the command at event 41 of the last session run: muse why @41
    """
    place = resolve(address)
    with app.read_session(place.path) as reading, answers(colour=not no_color) as out:
        require_event(reading, place.address.seq)
        seq = place.address.seq or app.last_of(reading, place.address.agent)
        event = reading.event(seq)
        if event is None:
            raise UsageError(f"{reading.session} has no events yet", hint="muse log -f waits for them")
        chain = why(event, reading, reading.state_after(seq), str(Path.home()))
        if as_json:
            out.json(msgspec.json.encode(_value(chain, reading.session), order="sorted").decode())
        else:
            _print(chain, out, everything)
    return 0


def _print(chain: Chain, out: Answers, everything: bool) -> None:
    steps = chain.steps
    hidden = 0 if everything else max(len(steps) - NEAR - FAR, 0)
    for at, step in enumerate(steps):
        if hidden and at == NEAR:
            between = paint(f"… {plural(hidden, 'step')} between: --all shows them", "2", out.colour)
            out.line(f"{'':<{COLUMN}}{between}")
        if not hidden or at < NEAR or at >= NEAR + hidden:
            _print_step(step, out, everything)
    out.line(f"{'ends here:':<{COLUMN}}{chain.words}")


def _print_step(step: Step, out: Answers, everything: bool) -> None:
    _line(out, step.relation, step.row)
    for note in step.notes:
        lines = paragraph(note, None if out.width is None else max(out.width - COLUMN, 1))
        out.lines([f"{'':<{COLUMN}}{paint(line, '2', out.colour)}" for line in lines])
    shown = len(step.rests) if everything else RESTS_SHOWN
    for one in step.rests[:shown]:
        _line(out, f"+ {one.relation}", one.row)
    if len(step.rests) > shown:
        out.line(f"{'+':<{COLUMN}}{len(step.rests) - shown:,} more: --all shows them")


def _line(out: Answers, words: str, row: Row) -> None:
    width = None if out.width is None else max(out.width - COLUMN, 1)
    out.line(f"{words:<{COLUMN - 1}} {row_text(row, width=width, colour=out.colour)}")


def _value(chain: Chain, session: str) -> dict[str, Any]:
    return {
        "session": session,
        "steps": [
            {
                **_event_value(step.row, session),
                "relation": step.relation,
                "notes": step.notes,
                "rests": [{**_event_value(one.row, session), "relation": one.relation} for one in step.rests],
            }
            for step in chain.steps
        ],
        "end": {"kind": chain.end, "words": chain.words},
    }


def _event_value(row: Row, session: str) -> dict[str, Any]:
    return {
        "seq": row.seq, "address": f"{session}@{row.seq}", "type": row.type, "agent": row.agent, "call": row.call,
        "time": row.time, "summary": " ".join(filter(None, [row.label, row.summary, row.ending])),
    }  # fmt: skip
