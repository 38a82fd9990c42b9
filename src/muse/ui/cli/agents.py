"""`muse agents`: what agents do, in all sessions that run or wait for somebody, or in one."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from muse import app
from muse.app.fleet import Fleet
from muse.errors import UsageError
from muse.event.text import clean
from muse.ui.cli import completing
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.finding import all_sessions, here, project_folders, sessions_of, short_id, tilde
from muse.ui.cli.output import Answers, answers, note
from muse.view.amounts import duration
from muse.view.fleet import AgentRow, SessionRows, news, subtree
from muse.view.fleet_text import (
    SEVERITIES,
    agents_words,
    label,
    news_json,
    news_words,
    session_json,
    session_words,
    used,
)
from muse.view.text import paint
from muse.view.visible import columns, fit

LOOK_SECONDS: Final = 0.25
"""How often a followed log is asked whether it has grown."""
INTERRUPTED: Final = 130
LABEL_COLUMNS: Final = 32
STATE_COLUMNS: Final = 28
STEP_COLUMNS: Final = 40
NARROWEST_COLUMNS: Final = 8
"""No column gets narrower for want of room."""
_COLOURS: Final = {"quiet": "2", "normal": "", "good": "32", "bad": "31", "attention": "33"}
DUMB = "this terminal (TERM={name}) cannot show a screen: here are the agents, as --plain prints them"


@click.command("agents")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("-a", "--all", "finished", is_flag=True, help="Sessions that are closed, too.")
@click.option("--everywhere", is_flag=True, help="Sessions of all folders.")
@click.option("-f", "--follow", is_flag=True, help="Go on, a line for each agent that does something else.")
@click.option("--plain", is_flag=True, help="A table, once (so in a pipe).")
@click.option("--json", "as_json", is_flag=True, help="One session a line, as JSON; with -f what changes.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    address: str, finished: bool, everywhere: bool, follow: bool, plain: bool, as_json: bool, no_color: bool
) -> int:
    """Show what agents do: those of ADDRESS (SESSION[:AGENT]), or of all sessions of this folder that run or wait for
    somebody.

    On a terminal it is a live tree, and ? lists the keys: say something to an agent, pause or cancel it, answer what
    it asks, look at what it did. Elsewhere it is a table. For example, all that goes on anywhere, as it changes:
    muse agents --everywhere -f
    """
    place = resolve(address, running=True) if address else None
    if place is not None and place.address.seq:
        raise UsageError("agents are shown as they are now", hint="as they were then: muse replay @SEQ --state")
    find = _one(place) if place is not None else _several(finished=finished, everywhere=everywhere)
    screen = not (plain or as_json or follow) and sys.stdin.isatty() and sys.stdout.isatty()
    if screen and (terminal := os.environ.get("TERM", "")) in ("", "dumb", "unknown"):
        note(f"muse: {DUMB.format(name=terminal or '(not set)')}")
        screen = False
    if screen:
        from muse.ui.tui.fleet import agents_on_screen

        return agents_on_screen(find, place.address.agent if place else "", colour=not no_color)
    fleet = Fleet(find, lambda text: note(f"muse: {text}"))
    try:
        with answers(colour=not no_color) as out:
            nothing = _nothing(finished=finished, everywhere=everywhere)
            return _print(fleet, place, out, as_json=as_json, follow=follow, nothing=nothing)
    finally:
        fleet.close()


Find = Callable[[], Iterable[Path]]


def _one(place: Place) -> Find:
    return lambda: [place.path]


def _nothing(*, finished: bool, everywhere: bool) -> str:
    """What is said where no session is meant, with the flag that shows more."""
    if finished:
        return "there is no session" if everywhere else "no session of this folder: --everywhere shows those of others"
    if everywhere:
        return "no session runs or waits for anybody: muse agents --all --everywhere shows the rest"
    return "no session of this folder runs or waits for anybody: muse agents --all shows the rest"


def _several(*, finished: bool, everywhere: bool) -> Find:
    """Those that are there now, newest first; later those that somebody began to run."""
    begun = False
    places = () if everywhere else tuple(project_folders(here()))

    def find() -> list[Path]:
        nonlocal begun
        if begun:
            return _running(places)
        begun = True
        entries = (all_sessions() if everywhere else sessions_of(here()))[0]
        return [Path(entry.file) for entry in entries if _is_meant(entry, finished=finished)]

    return find


def _is_meant(entry: app.Entry, *, finished: bool) -> bool:
    return entry.state in ("running", "waiting", "stopped") or (finished and entry.state == "closed")


def _running(places: tuple[str, ...]) -> list[Path]:
    paths = [path for path in app.session_files() if app.owner_pid(path)]
    return [Path(entry.file) for entry in app.catalog().entries(paths) if not places or entry.workspace in places]


# -- as text -----------------------------------------------------------------------------------------------------------


def _print(fleet: Fleet, place: Place | None, out: Answers, *, as_json: bool, follow: bool, nothing: str) -> int:
    fleet.look()
    lane = place.address.agent if place is not None else ""
    if lane and not any(row.agent == lane for session in fleet.sessions for row in session.agents):
        name = short_id(place.path.stem) if place else ""
        raise app.no_agent(lane, name, (row.agent for session in fleet.sessions for row in session.agents))
    for session in fleet.sessions:
        shown = _of(session, lane)
        if as_json:
            out.json(session_json(msgspec.structs.replace(shown, file=clean(shown.file).text)))
        else:
            _table(shown, out)
    if not fleet.sessions:
        note(nothing)
    out.flush()
    if follow:
        return _follow(fleet, lane, out, as_json=as_json, alone=place is not None)
    return 0


def _of(session: SessionRows, lane: str) -> SessionRows:
    return msgspec.structs.replace(session, agents=tuple(subtree(session.agents, lane))) if lane else session


def _table(session: SessionRows, out: Answers) -> None:
    """A line for the session, and one for each agent."""
    head = "  ".join(
        part
        for part in (
            short_id(session.session), session_words(session), tilde(session.workspace), session.name,
            agents_words(session),
        ) if part
    )  # fmt: skip
    out.line(paint(head if out.width is None else fit(head, out.width), "1", out.colour))
    widths = within(_widths(session.agents), out.width)
    for row in session.agents:
        out.line(_line(row, widths, out))


def _widths(rows: Iterable[AgentRow]) -> tuple[int, ...]:
    cells = [_cells(row) for row in rows]
    caps = (LABEL_COLUMNS, STATE_COLUMNS, STEP_COLUMNS, 24, 14, 10)
    return tuple(min(max((columns(row[at]) for row in cells), default=0), cap) for at, cap in enumerate(caps))


def within(widths: tuple[int, ...], room: int | None) -> tuple[int, ...]:
    """The same columns on one line of a terminal: the step gives way first, then the state, then the name."""
    found = list(widths)
    for at in (2, 1, 0):
        over = 0 if room is None else sum(width + 2 for width in found if width) - 2 - room
        found[at] = max(found[at] - max(over, 0), min(found[at], NARROWEST_COLUMNS))
    return tuple(found)


def _cells(row: AgentRow) -> tuple[str, ...]:
    time_taken = duration(row.seconds * 1000) if row.seconds else ""
    files = f"{row.files} changed" if row.files else ""
    return (f"  {label(row)}", row.brief_words, row.step, used(row.own), time_taken, files)


def _line(row: AgentRow, widths: tuple[int, ...], out: Answers) -> str:
    parts = []
    for at, (cell, width) in enumerate(zip(_cells(row), widths, strict=True)):
        if width:
            text = fit(cell, width)
            padded = text + " " * (width - columns(text))
            parts.append(paint(padded, _COLOURS[SEVERITIES[row.state]], out.colour) if at == 1 else padded)
    taken = sum(width + 2 for width in widths if width)
    said = row.said if out.width is None else fit(row.said, max(out.width - taken, 0))
    return "  ".join([*parts, said]).rstrip()


# -- as it changes -----------------------------------------------------------------------------------------------------


def _follow(fleet: Fleet, lane: str, out: Answers, *, as_json: bool, alone: bool) -> int:
    """A line for each agent that does something else, until nobody runs the session (or any) any more."""
    try:
        while fleet.alive or not alone:
            before = {session.session: session for session in fleet.sessions}
            time.sleep(LOOK_SECONDS)
            if not fleet.look():
                continue
            for session in fleet.sessions:
                _changes(before.get(session.session), session, lane, out, as_json=as_json)
            out.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _changes(before: SessionRows | None, now: SessionRows, lane: str, out: Answers, *, as_json: bool) -> None:
    shown, name = _of(now, lane), short_id(now.session)
    clock = datetime.now(UTC).strftime("%H:%M:%S")
    for row in news(before.agents if before else (), shown.agents):
        if as_json:
            out.json(news_json(now, row))
        else:
            line = f"{clock} {name} {row.agent:<8} {news_words(row)}"
            out.line(line if out.width is None else fit(line, out.width))
    if before is not None and (before.state, before.outcome) != (now.state, now.outcome) and not as_json:
        out.line(f"{clock} {name} {'session':<8} {session_words(now)}")
