"""`muse ls`: the sessions, newest first."""

from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from muse import app
from muse.event.text import clean
from muse.ui.cli.finding import all_sessions, here, sessions_of, short_id, tilde
from muse.ui.cli.output import Answers, answers, note
from muse.view.amounts import age, money, plural, size
from muse.view.summary import outcome_words
from muse.view.text import paint
from muse.view.visible import columns, fit, headline, middle

SHOWN: Final = 20
CAPS: Final = (24, 8, 40, 12, 24, 30)
"""The widest that each column but the last becomes."""
STATE, EVENTS, USED, WORKSPACE = 2, 3, 4, 5
GAP: Final = 2
SAID_MIN: Final = 20
"""Columns that are kept for the first words of the prompt."""
_COLOURS: Final = {"running": "32", "waiting": "33", "stopped": "33", "damaged": "31"}


@click.command("ls")
@click.option("-n", "--last", type=click.IntRange(min=0), default=SHOWN, metavar="N", help="How many (20; 0 for all).")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Of all folders.")
@click.option("--archived", is_flag=True, help="Those that were put away, of all folders.")
@click.option("--removed", is_flag=True, help="Those that were removed, of all folders.")
@click.option("--json", "as_json", is_flag=True, help="One session a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(last: int, everywhere: bool, archived: bool, removed: bool, as_json: bool, no_color: bool) -> int:
    """List the sessions of this folder, newest first: id, age, state, events, tokens and cost, workspace, the first
    words of the prompt. A folder without sessions shows those of the nearest one above it, up to its repository.

    \b
      muse ls --all --last 5
    """
    if archived:
        return _list_archived(last, as_json=as_json)
    if removed:
        return _list_removed(last, as_json=as_json)
    found, elsewhere = all_sessions() if everywhere else sessions_of(here())
    entries = found[:last] if last else found
    with answers(colour=not no_color) as out:
        if as_json:
            for entry in entries:
                shown = msgspec.structs.replace(entry, file=clean(entry.file).text)
                out.json(msgspec.json.encode(shown, order="sorted").decode())
        else:
            now = datetime.now(UTC)
            _table([_cells(entry, now) for entry in entries], [entry.state for entry in entries], out)
    if not found:
        note(f'no session{"" if everywhere else " of this folder"} yet; start one: muse exec "…"')
    elif len(found) > len(entries):
        more = " --all" if everywhere else ""
        note(f"and {plural(len(found) - len(entries), 'older session')}: muse ls{more} -n 0")
    if elsewhere:
        note(f"{plural(len(elsewhere), 'session')} of other folders: muse ls --all")
    if everywhere and (away := app.archived()):
        note(f"{plural(len(away), 'archived session')}: muse ls --archived")
    if everywhere and (gone := app.removed_sessions()):
        note(f"{plural(len(gone), 'removed session')}: muse ls --removed")
    return 0


def _list_archived(last: int, *, as_json: bool) -> int:
    records = app.archived()
    with answers() as out:
        for record in records[:last] if last else records:
            if as_json:
                out.json(msgspec.json.encode(record, order="sorted").decode())
                continue
            entry = record.entry
            amount = f"{entry.events:,} ev  {size(record.original_size)} → {size(record.size)}"
            said = headline(entry.name or entry.prompt)
            where = f"{tilde(entry.workspace)}  {tilde(record.file)}"
            out.line(f"{short_id(record.session)}  archived {record.archived[:10]}  {amount}  {where}  {said}".rstrip())
    if not records:
        note("no session is archived")
    return 0


def _list_removed(last: int, *, as_json: bool) -> int:
    stones = app.removed_sessions()
    with answers() as out:
        for stone in stones[:last] if last else stones:
            if as_json:
                out.json(msgspec.json.encode(msgspec.structs.asdict(stone), order="sorted").decode())
                continue
            said = headline(": ".join(words for words in (stone.name, stone.why) if words))
            amount = f"{stone.events:,} ev  {size(stone.size)}"
            out.line(f"{short_id(stone.session)}  removed {stone.removed[:10]}  {amount}  {said}".rstrip())
    if not stones:
        note("no session was removed")
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
    if entry.removed:
        return f"removed {entry.removed[:10]}, came back"
    if entry.state == "running":
        return f"paused ({entry.pid})" if "main" in entry.paused else f"running ({entry.pid})"
    if entry.state == "waiting":
        return f"waiting for {_waits_for(entry)} ({entry.pid})"
    if entry.state == "closed":
        return outcome_words(entry.outcome)
    if entry.state == "stopped" and (entry.approvals or entry.questions):
        return f"stopped, waits for {_waits_for(entry)} (resume)"
    if entry.state == "stopped" and "main" in entry.paused:
        return "stopped, paused (continue)"
    if entry.state == "stopped" and not entry.prompted:
        return "stopped, no prompt yet"
    return {"stopped": "stopped (resume)", "empty": "empty", "damaged": "damaged"}[entry.state]


def _waits_for(entry: app.Entry) -> str:
    """The first of what waits for a person's word."""
    seq = min((*entry.approvals, *entry.questions))
    return f"approval @{seq}" if seq in entry.approvals else f"answer @{seq}"


def _age(time: str, now: datetime) -> str:
    try:
        return age(int((now - datetime.fromisoformat(time)).total_seconds()))
    except ValueError:
        return ""


def _table(rows: list[list[str]], states: list[str], out: Answers) -> None:
    """One line a session: columns as wide as they need, and where there is no room for all, see `_widths`."""
    if not rows:
        return
    widths = _widths([max(columns(row[at]) for row in rows) for at in range(len(CAPS))], out.width)
    for cells, state in zip(rows, states, strict=True):
        parts, taken = [], 0
        for at, width in enumerate(widths):
            if width:
                text = middle(cells[at], width) if at == WORKSPACE else fit(cells[at], width)
                padded = text + " " * (width - columns(text))
                taken += width + GAP
                parts.append(paint(padded, _COLOURS.get(state, ""), out.colour) if at == STATE else padded)
        said = cells[-1] if out.width is None else fit(cells[-1], max(out.width - taken, 1))
        out.line((" " * GAP).join([*parts, said]).rstrip())


def _widths(needed: list[int], room: int | None) -> list[int]:
    """A width for each column but the last, for which `SAID_MIN` is left. What gives way first: tokens and cost, the
    number of events, then a part of the workspace, of the state, all of the workspace."""
    widths = [min(need, cap) for need, cap in zip(needed, CAPS, strict=True)]
    if room is None:
        return widths

    def over() -> int:
        return sum(width + GAP for width in widths if width) + SAID_MIN - room

    for at, least in ((USED, 0), (EVENTS, 0), (WORKSPACE, 12), (STATE, 24), (WORKSPACE, 0), (STATE, 12)):
        if over() > 0:
            widths[at] = min(widths[at], max(widths[at] - over(), least)) if least else 0
    return widths
