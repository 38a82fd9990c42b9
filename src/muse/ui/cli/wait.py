"""`muse wait`: until sessions or agents have nothing left to do by themselves. It reads, and never writes."""

import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from muse import app, budget
from muse.app.fleet import Watched
from muse.errors import ConfigError, Damaged, UsageError
from muse.event.text import clean
from muse.ui.cli import completing
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.output import answers, note, progress
from muse.ui.cli.resting import rest_words, then_what
from muse.view.fleet import subtree
from muse.view.fleet_text import news_words
from muse.view.rest import CODES, Rest

LOOK_SECONDS: Final = 0.1
"""How often it is asked whether a log has grown: one read of a counter for each session."""
LETTING_GO_SECONDS: Final = 2.0
"""So long is waited for the process of a session that has closed, so that it can be gone on with. A chat stays."""
TAKING_OVER_SECONDS: Final = 1.0
"""So long may nobody run a session that has not ended, before that is said: it may just be taken over."""
ADDRESSES_MAX: Final = 256
INTERRUPTED: Final = 130
TIMED_OUT: Final = 7


@click.command("wait")
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1, shell_complete=completing.agents)
@click.option("--any", "any_of_them", is_flag=True, help="Until the first of them, not all.")
@click.option("--timeout", default="", metavar="TIME", help="Wait no longer: seconds, or 90s, 5m, 1h30m; 0 only looks.")
@click.option("--json", "as_json", is_flag=True, help="One address a line, as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing: the exit code says it.")
def command(addresses: tuple[str, ...], any_of_them: bool, timeout: str, as_json: bool, quiet: bool) -> int:
    """Wait until each ADDRESS (SESSION[:AGENT]; default: the session that runs in this folder, or the last one) has
    nothing left to do by itself: it has ended, with all that it left to agents below it, or waits for a person. What
    became of each is printed, a line for each.

    Exit code: 0 done, 1 failed or cancelled, 3 waits for an approval, an answer or a continue, 4 provider or
    credentials, 5 a limit, 7 has not ended: the time was over, or nobody runs it; 130 interrupted. Of several it is
    that of the first, as given, that is not done; with --any that of the one that was waited for.

    \b
      id=$(muse exec --background "mend the failing test")
      muse wait -q $id && muse result $id
      muse wait 4f2k:main.1 4f2k:main.2 --any --timeout 5m
    """
    seconds = _seconds(timeout)
    places = [_place(address) for address in addresses or ("",)]
    if len(places) > ADDRESSES_MAX:
        raise UsageError(f"at most {ADDRESSES_MAX} addresses", hint="wait for the session: that waits for its agents")
    waiting = _Waiting(places)
    try:
        over = waiting.until(any_of_them=any_of_them, seconds=seconds)
        if not quiet:
            waiting.tell(as_json=as_json, timed_out=not over)
        return waiting.code(any_of_them=any_of_them) if over else TIMED_OUT
    except KeyboardInterrupt:
        progress("")
        note("not waited for any longer; all is left as it is")
        return INTERRUPTED
    finally:
        waiting.close()


def _seconds(text: str) -> int | None:
    try:
        return budget.amount("time", text) if text else None
    except ConfigError:
        raise UsageError(f"{text!r} is no time to wait", hint="seconds, or for example 90s, 5m, 1h30m") from None


def _place(text: str) -> Place:
    place = resolve(text, running=True)
    if place.address.seq:
        raise UsageError("what is waited for is an end", hint="without @SEQ: the session, or one of its agents")
    return place


class _One:
    """One address that is waited for."""

    def __init__(self, place: Place, watched: Watched) -> None:
        self.session, self.lane = watched.rows().session, place.address.agent or "main"
        self.name = short_id(self.session)
        self.watched = watched
        self.rest = watched.rest(self.lane)
        self._since = 0.0
        if not watched.has(self.lane):
            raise app.no_agent(self.lane, self.name, [row.agent for row in watched.rows().agents])

    @property
    def address(self) -> str:
        """What names it to a person."""
        return self.name if self.lane == "main" else f"{self.name}:{self.lane}"

    def look(self) -> bool:
        """Whether it has nothing left to do by itself. A session that closes is let go of by its process first, and
        one that nobody runs may just be taken over."""
        self.rest = self.watched.rest(self.lane)
        if self.watched.problem:
            raise Damaged(f"{self.name}: {self.watched.problem}", hint=f"muse verify {self.name} says what is left")
        closes = self.watched.closed or self.rest.word in ("provider", "budget")
        leaves = self.lane == "main" and closes and self.rest.alive
        if self.rest.word != "stopped" and not leaves:
            self._since = 0.0
            return self.rest.word != "works"
        self._since = self._since or time.monotonic()
        if leaves and not app.owner_pid(self.watched.path):
            self.rest = msgspec.structs.replace(self.rest, alive=False)
            return True
        return time.monotonic() - self._since > (LETTING_GO_SECONDS if leaves else TAKING_OVER_SECONDS)

    def doing(self) -> str:
        """What it, or the last of those below it that does something, does just now."""
        rows = [row for row in subtree(self.watched.rows().agents, self.lane) if row.state in ("running", "parked")]
        said = f"{rows[-1].agent} {news_words(rows[-1])}" if rows else ""
        more = f"; {len(rows) - 1} more work" if len(rows) > 1 else ""
        asks = "; it asks: muse approvals" if self.watched.asks else ""
        return f"{self.address}  {said}{more}{asks}".rstrip()


class _Waiting:
    """All that are waited for; a session with several of them is followed once."""

    def __init__(self, places: list[Place]) -> None:
        self._sessions: dict[Path, Watched] = {}
        self._ones: list[_One] = []
        self._over: list[_One] = []
        self._shows = sys.stderr.isatty()
        try:
            for place in places:
                if place.path not in self._sessions:
                    self._sessions[place.path] = Watched(place.path)
                    self._sessions[place.path].look()
                self._ones.append(_One(place, self._sessions[place.path]))
        except BaseException:
            self.close()
            raise

    def until(self, *, any_of_them: bool, seconds: int | None) -> bool:
        """Wait; whether it came before the time was over."""
        begun = time.monotonic()
        while True:
            self._over = [one for one in self._ones if one.look()]
            if len(self._over) == len(self._ones) or (any_of_them and self._over):
                break
            if seconds is not None and time.monotonic() - begun >= seconds:
                break
            time.sleep(LOOK_SECONDS)
            news = [watched.look() for watched in self._sessions.values()]
            if self._shows and any(news):
                progress("  ".join(one.doing() for one in self._ones if one not in self._over))
        progress("")
        return len(self._over) == len(self._ones) or (any_of_them and bool(self._over))

    def tell(self, *, as_json: bool, timed_out: bool) -> None:
        """What became of each, on standard output; what is to be done about a time that was over, on the other."""
        with answers() as out:
            for one in self._ones:
                if as_json:
                    out.json(_json(one))
                else:
                    out.line(f"{one.address}  {rest_words(one.rest, one.name)}")
        late = [one.address for one in self._ones if one.rest.word == "works"]
        if timed_out and late and not as_json:
            note(f"the time is over; it goes on, and so does: muse wait {' '.join(late)}")

    def code(self, *, any_of_them: bool) -> int:
        """The exit code of what was waited for."""
        codes = [CODES[one.rest.word] for one in (self._over[:1] if any_of_them else self._ones)]
        return next((code for code in codes if code), 0)

    def close(self) -> None:
        """Close all logs."""
        for watched in self._sessions.values():
            watched.close()


def _json(one: _One) -> str:
    rest: Rest = one.rest
    said = {
        "address": one.address, "session": one.session, "agent": rest.agent, "state": rest.word, "about": rest.about,
        "whom": rest.whom, "seq": rest.seq, "running": rest.alive, "code": CODES[rest.word],
        "next": then_what(rest, one.name),
    }  # fmt: skip
    told = {key: clean(value).text if isinstance(value, str) else value for key, value in said.items()}
    return msgspec.json.encode(told, order="sorted").decode()
