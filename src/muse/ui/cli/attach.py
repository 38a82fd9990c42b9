"""`muse attach`: watch a session that another process runs, read-only and live.

It shows what is recorded and, on a terminal, what models and commands stream meanwhile (`app.LiveFeed`); where that
cannot be had, what a model says appears when its response is whole. Nothing here writes to the log: detaching, or being
killed, is nothing to the session.
"""

import time
from pathlib import Path
from typing import Final

import click

from muse import app, config
from muse.errors import ConfigError, UsageError
from muse.event.envelope import Event
from muse.event.kinds import (
    COMMANDS,
    AgentPaused,
    OwnershipTaken,
    SessionClosed,
    SessionOpened,
)  # fmt: skip
from muse.ui.cli import completing
from muse.ui.cli.address import Place, require_event, resolve
from muse.ui.cli.drive import EXIT_CODES, INTERRUPTED
from muse.ui.cli.finding import short_id
from muse.ui.cli.pending import Pending
from muse.ui.cli.watched import Watched
from muse.view.summary import outcome_words

LOOK_SECONDS: Final = 0.25
"""How often to look whether somebody still runs the session."""
OWNER_GONE: Final = 1


@click.command("attach")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("-f", "--follow", is_flag=True, help="Stay when it ends, for later runs of it; Ctrl-C detaches.")
@click.option("--after", type=click.IntRange(min=0), default=None, metavar="SEQ",
              help="Show from the event after SEQ on.")  # fmt: skip
@click.option("-n", "--last", type=click.IntRange(min=0), default=None, metavar="N",
              help="Of what was before, show the last N events only.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Only the answers.")
def command(address: str, follow: bool, after: int | None, last: int | None, as_json: bool, quiet: bool) -> int:
    """Watch the session ADDRESS (SESSION[:AGENT]; default: the one that runs in this folder, or the last one): what
    it did so far, and what it does, until nobody runs it any more.

    Ctrl-C detaches, and leaves the session alone. Exit code: that of the session, as `muse exec` gives it; 1 when the
    process that ran it is gone and did not close it, 130 when you detached before its end.

    \b
      muse attach
      muse attach 4f2k:main.2 --last 20
    """
    place = resolve(address, running=True)
    if place.address.seq:
        raise UsageError("attach follows the end", hint="to see one event: muse show; to begin later: --after SEQ")
    live = Watched(as_json=as_json, quiet=quiet)
    with app.read_session(place.path) as reading:
        require_event(reading, after or 0)
        app.last_of(reading, place.address.agent)  # there is such an agent
        head = reading.head().seq
        start = max(after or 0, head - last if last is not None else 0)
        watching = _Watching(place, live, head, follow)
        try:
            for event in reading.events(before=start + 1):
                watching.learn(event)
            watching.begin()
            for event in reading.follow(start, watching.is_over):
                watching.show(event)
        except KeyboardInterrupt:
            live.say("\ndetached; the session is left as it is")
            return INTERRUPTED
    return watching.end()


def _bell() -> tuple[str, ...]:
    """The kinds of notices that the terminal rings for, by the settings of this folder; all where they are broken."""
    try:
        found = config.load(Path.cwd())
    except (ConfigError, OSError):
        found = config.Config()
    return found.notify_on if found.bell else ()


class _Watching:
    """One session, watched. `head` is the last event when it began: what comes up to there is the past."""

    def __init__(self, place: Place, live: Watched, head: int, follow: bool) -> None:
        self._path, self._lane = place.path, place.address.agent
        self._live, self._head, self._follow = live, head, follow
        self._name = short_id(place.path.stem)
        self._seen = 0
        self._pending = Pending(self._name, live)
        self._workspace = ""
        self._bell = _bell()
        self._closed: SessionClosed | None = None
        self._owner = app.owner_of(place.path)
        self._looked_at = 0.0
        self._is_alone = False
        self._feed = app.LiveFeed(app.run_folder(place.path.stem)) if live.streams else None

    def begin(self) -> None:
        """Say what is watched, and what can be done meanwhile."""
        name, pid = self._name, self._owner.pid
        if self._owner.is_gone:
            self._live.tell(f"session {self._name}: nobody runs it", "2")
            return
        runs = f"process {pid} runs it" if pid else "another process runs it"
        self._live.tell(f"attached to session {name}; {runs}. Ctrl-C detaches", "2")
        if self._live.quiet:
            return
        to = f"{name}:{self._lane}" if self._lane else name
        ways = (f'muse steer {to} "…"', f"muse pause {to}", f"muse cancel {to}", f"muse approvals {to}")
        self._live.commands("  from another terminal:", *ways, look="2")

    def learn(self, event: Event) -> None:
        """Take in an event that is not shown."""
        self._live.learn(event)
        self._take(event)

    def show(self, event: Event) -> None:
        """Take in the next event and show it, if it is of the agent that is watched."""
        self._take(event)
        if self._lane and event.agent != self._lane:
            self._live.learn(event)
        else:
            self._live.event(event)
            body = event.body
            if isinstance(body, SessionClosed) and body.outcome in ("done", "failed"):
                self._live.final()
        pending = self._pending
        if event.seq == self._head:
            for waiting in pending.waiting.values():
                pending.announce(waiting)
            pending.announce_paused()
        elif event.seq > self._head:
            if event.seq in pending.waiting:
                pending.announce(event)
            elif isinstance(event.body, AgentPaused):
                pending.announce_paused()
            self._ring(event)

    def _ring(self, event: Event) -> None:
        """Ring for what a person should look at, as the terminal of the session does."""
        notice = app.notice_of(event, self._path.stem, self._name, self._workspace, self._live.answer)
        if notice is not None and notice.event in self._bell:
            self._live.ring(notice.text)

    def _take(self, event: Event) -> None:
        self._seen = event.seq
        body = event.body
        self._pending.take(event)
        if isinstance(body, SessionOpened):
            self._workspace = body.workspace
        if isinstance(body, SessionOpened | OwnershipTaken):
            self._owner, self._is_alone = app.owner_of(self._path), False
        if isinstance(body, SessionClosed):
            self._closed = body
        elif event.type not in COMMANDS:  # those may come in after the close
            self._closed = None

    def is_over(self) -> bool:
        """Asked whenever everything is shown: whether nobody runs the session any more. It is read once more after
        that was seen, so that the last words of its owner are shown too."""
        if self._live.out.gone or self._is_alone:
            return True
        self._hear()
        now = time.monotonic()
        if self._follow or now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        self._owner = app.owner_of(self._path)
        self._is_alone = self._owner.is_gone or (self._closed is not None and not self._owner.pid)
        return False

    def _hear(self) -> None:
        """Show what is streamed. Everything that the log held a moment ago is shown."""
        if self._feed is None:
            return
        self._live.settle()
        for piece in self._feed.take():
            if self._lane in ("", piece.agent):
                self._live.piece(piece)

    def end(self) -> int:
        """Say how it ended. Returns the exit code."""
        name, closed = self._name, self._closed
        if self._live.out.gone:
            return 0
        if closed is None:
            what = "the process that ran it is gone, and did not close it" if self._seen else "it has not begun"
            self._live.say(f"session {name}: {what}. To go on: muse resume {name}", "33")
            return OWNER_GONE
        self._live.tell(f"session {name}: {outcome_words(closed.outcome, closed.reason)}", "2")
        return EXIT_CODES[closed.outcome]
