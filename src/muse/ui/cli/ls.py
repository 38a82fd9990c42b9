"""`muse ls`: the sessions, newest first."""

from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from muse import app
from muse.ui.cli.finding import all_sessions, here, sessions_of, short_id, tilde
from muse.ui.cli.output import Answers, answers
from muse.view.amounts import age, money, plural
from muse.view.summary import outcome_words
from muse.view.text import paint
from muse.view.visible import columns, fit, headline

SHOWN: Final = 20
_COLOURS: Final = {"running": "32", "waiting": "33", "stopped": "33", "damaged": "31"}


@click.command("ls")
@click.option("-n", "--last", type=click.IntRange(min=0), default=SHOWN, metavar="N", help="How many (20; 0 for all).")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Of all folders.")
@click.option("--json", "as_json", is_flag=True, help="One session a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(last: int, everywhere: bool, as_json: bool, no_color: bool) -> int:
    """List the sessions of this folder, newest first: id, age, state, events, tokens and cost, workspace, the first
    words of the prompt. A folder without sessions shows those of the nearest one above it, up to its repository."""
    found, elsewhere = all_sessions() if everywhere else sessions_of(here())
    entries = found[:last] if last else found
    with answers(colour=not no_color) as out:
        if as_json:
            for entry in entries:
                out.json(msgspec.json.encode(entry, order="sorted").decode())
        else:
            now = datetime.now(UTC)
            _table([_cells(entry, now) for entry in entries], [entry.state for entry in entries], out)
    if not found:
        click.echo(f'no session{"" if everywhere else " of this folder"} yet; start one: muse exec "…"', err=True)
    elif len(found) > len(entries):
        more = " --all" if everywhere else ""
        click.echo(f"and {plural(len(found) - len(entries), 'older session')}: muse ls{more} -n 0", err=True)
    if elsewhere:
        click.echo(f"{plural(len(elsewhere), 'session')} of other folders: muse ls --all", err=True)
    return 0


def _cells(entry: app.Entry, now: datetime) -> list[str]:
    used = f"{entry.input + entry.output:,} tok" if entry.input or entry.output else ""
    cost = f" {money(entry.cost_microusd)}" if entry.cost_microusd else ""
    said = headline(entry.problem or entry.name or entry.prompt)
    return [
        short_id(entry.session), _age(entry.last_time, now), state_words(entry), f"{entry.events:,} ev",
        used + cost, tilde(entry.workspace), said,
    ]  # fmt: skip


def state_words(entry: app.Entry) -> str:
    """What a session is doing, or how it ended."""
    if entry.state == "running":
        return f"running ({entry.pid})"
    if entry.state == "waiting":
        return f"waiting for approval @{entry.approvals[0]} ({entry.pid})"
    if entry.state == "closed":
        return outcome_words(entry.outcome)
    return {"stopped": "stopped (resume)", "empty": "empty", "damaged": "damaged"}[entry.state]


def _age(time: str, now: datetime) -> str:
    try:
        return age(int((now - datetime.fromisoformat(time)).total_seconds()))
    except ValueError:
        return ""


def _table(rows: list[list[str]], states: list[str], out: Answers) -> None:
    """Columns as wide as they need; the workspace and the last one take what is left."""
    if not rows:
        return
    caps = [24, 8, 40, 12, 24, 30]
    widths = [min(max(columns(row[at]) for row in rows), cap) for at, cap in enumerate(caps)]
    for cells, state in zip(rows, states, strict=True):
        parts = []
        for at, width in enumerate(widths):
            if width:
                text = fit(cells[at], width)
                padded = text + " " * (width - columns(text))
                parts.append(paint(padded, _COLOURS.get(state, ""), out.colour) if at == 2 else padded)
        taken = sum(width + 2 for width in widths if width)
        said = cells[-1] if out.width is None else fit(cells[-1], max(out.width - taken, 12))
        out.line("  ".join([*parts, said]).rstrip())
