"""`muse search`: which events say something, in all sessions."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import CompletionItem

from muse import app
from muse.app import searching
from muse.app.searching import Hit, Query, Scope
from muse.errors import Damaged, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import require_event, resolve
from muse.ui.cli.filtering import filtering
from muse.ui.cli.finding import short_id
from muse.ui.cli.options import words
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural
from muse.view.filters import Filter
from muse.view.text import paint
from muse.view.visible import columns, fit, visible

SHOWN: Final = 20
COUNTED_MAX: Final = 1_000
COUNTING_SECONDS: Final = 2.0
"""When there are more hits than are shown, so many are counted, for so long."""
QUIET_SECONDS: Final = 0.5
"""An index that is made faster is not talked about."""
ROW_COLUMNS: Final = 120
"""So much of an event's row is shown where lines have no end; the snippet is what was asked for."""
HANG: Final = 4
_BOLD: Final = "1"
_DIM: Final = "2"


def _offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sessions, once the text (or an expression) is there."""
    if not ctx.params.get("args") and not ctx.params.get("filter_patterns"):
        return []
    return completing.sessions(ctx, param, incomplete)


@click.command("search")
@click.argument("args", nargs=-1, metavar="TEXT [SESSION|PATH]...", shell_complete=_offered)
@click.option("-F", "--phrase", is_flag=True, help="TEXT is one phrase, quotes and blanks included.")
@click.option("-s", "--case-sensitive", "exact", is_flag=True, help="Capital letters as written.")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=SHOWN, metavar="N", help="How many (20; 0: all).")
@click.option("-o", "--open", "opened", type=click.IntRange(min=1), default=None, metavar="N",
              help="Open the Nth hit in muse replay.")  # fmt: skip
@filtering
@click.option("--json", "as_json", is_flag=True, help="One hit a line, as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(
    args: tuple[str, ...],
    phrase: bool,
    exact: bool,
    limit: int,
    opened: int | None,
    as_json: bool,
    no_color: bool,
    wanted: Filter,
) -> int:
    """Find the events that say TEXT, in all sessions or in those named, the newest first.

    Every word has to stand in the event, anywhere, in any case; "words in quotes" are one phrase; nothing else is
    syntax. With -E PATTERN there is no TEXT: the regular expression has to match within a line. Exit code 1: nothing
    was found; 6: nothing, and not everything could be read.

    \b
    muse search 'no such file' --failed --since 2d
    muse search '"git push" origin' --agent main
    muse search -E 'drop\\s+table' last
    """
    query, named, wanted = _meant(list(args), wanted, phrase=phrase, exact=exact)
    listener = _Listener()
    scopes = _scopes(named)
    hits = searching.search(scopes, query, wanted, listener)
    with answers(colour=not no_color) as out:
        if opened is not None:
            return _open(next(islice(hits, opened - 1, None), None), opened, listener)
        shown = 0
        for hit in islice(hits, limit or None):
            shown += 1
            listener.clear()
            _say(hit, shown, out, as_json=as_json)
        out.flush()
        more, is_all = _counted(hits)
        listener.end()
        _sum_up(shown, more, query, is_all=is_all)
        if not scopes:
            note("there is no session yet; a file of another agent is searched when it is named")
    if shown:
        return 0
    return Damaged.exit_code if listener.has_unread else 1


def _meant(args: list[str], wanted: Filter, *, phrase: bool, exact: bool) -> tuple[Query, list[str], Filter]:
    """The query, the sessions named, and what is left of the filters. Raises UsageError."""
    if wanted.whole_calls:
        raise UsageError("--whole-calls belongs to listings", hint="muse log --grep TEXT --whole-calls")
    if wanted.patterns:
        query = searching.asked("", wanted.patterns, exact=exact)
        return query, args, msgspec.structs.replace(wanted, patterns=())
    if not args:
        raise UsageError("what is to be searched for?", hint='muse search "no such file"')
    return searching.asked(words(args[0]), whole=phrase, exact=exact), args[1:], wanted


def _scopes(named: list[str]) -> list[Scope]:
    if not named:
        searching.sweep()
        return [Scope(path) for path in app.session_files()]
    found = []
    for text in named:
        place = resolve(text)
        if place.address.seq or place.address.agent:
            with app.read_session(place.path) as reading:
                require_event(reading, place.address.seq)
                app.last_of(reading, place.address.agent)  # there is such an agent
        found.append(Scope(place.path, place.address.agent, place.address.seq))
    return found


def address_of(hit: Hit) -> str:
    """How to point at a hit: by its session, or by its file where that is not among the sessions."""
    path = Path(hit.file)
    if path.stem == hit.session and searching.index_of(path) is not None:
        return f"{short_id(hit.session)}@{hit.seq}"
    return f"{words(hit.file)}@{hit.seq}"


def _say(hit: Hit, number: int, out: Answers, *, as_json: bool) -> None:
    if as_json:
        fields = {
            "address": address_of(hit), "session": hit.session, "seq": hit.seq, "time": hit.time, "agent": hit.agent,
            "type": hit.type, "kind": hit.kind, "snippet": hit.snippet, "matches": hit.matches,
        }  # fmt: skip
        out.json(msgspec.json.encode(fields, order="sorted").decode())
        return
    address = address_of(hit)
    where = f"{hit.time[:16].replace('T', ' ')}  {hit.agent}  "
    what = f"{hit.row.mark} {hit.row.label} {hit.row.summary}".rstrip()
    room = ROW_COLUMNS if out.width is None else max(out.width - columns(address) - columns(where) - 2, HANG)
    what = fit(what, room)
    out.line(f"{address}  {paint(where, _DIM, out.colour)}{what}".rstrip())
    out.line(f"{' ' * HANG}{paint(f'{hit.kind}: ', _DIM, out.colour)}{_marked(hit, out)}")


def _marked(hit: Hit, out: Answers) -> str:
    """The snippet, safe to show, with its matches marked; no wider than there is room for."""
    room = None if out.width is None else out.width - HANG - len(hit.kind) - 2
    parts: list[str] = []
    at = 0
    for begin, end in (*hit.matches, (len(hit.snippet), len(hit.snippet))):
        for piece, is_match in ((hit.snippet[at:begin], False), (hit.snippet[begin:end], True)):
            text = visible(piece).replace("\n", "⏎").replace("\t", " ")
            marks = 2 if is_match and not out.colour else 0
            if room is not None:
                text = fit(text, max(room - marks, 0))
                room -= columns(text) + marks
            if text:
                parts.append(_mark(text, out) if is_match else text)
        at = end
    return "".join(parts).rstrip()


def _mark(text: str, out: Answers) -> str:
    return paint(text, _BOLD, True) if out.colour else f"«{text}»"


def _open(hit: Hit | None, number: int, listener: "_Listener") -> int:
    listener.end()
    if hit is None:
        note(f"there is no hit {number}")
        return 1
    from muse.ui.cli import cli

    code = cli.main(["replay", address_of(hit)], standalone_mode=False)
    return code if isinstance(code, int) else 0


def _counted(hits: Iterator[Hit]) -> tuple[int, bool]:
    """How many more there are, as far as that is counted soon; and whether that is all."""
    until = time.monotonic() + COUNTING_SECONDS
    count = 0
    for _ in hits:
        count += 1
        if count == COUNTED_MAX or time.monotonic() > until:
            return count, False
    return count, True


def _sum_up(shown: int, more: int, query: Query, *, is_all: bool) -> None:
    if not shown:
        said = " ".join(query.words) or " ".join(pattern.pattern for pattern in query.patterns)
        note(f"nothing says {visible(said)!r}")
        if away := app.archived():
            note(f"{plural(len(away), 'archived session')} not searched: name one to search it")
    elif more:
        least = "" if is_all else "at least "
        note(f"and {least}{plural(more, 'more hit')}: -n N shows more, filters and more words fewer")


class _Listener(searching.Listener):
    """Tells a person on standard error."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._unindexed: list[str] = []
        self._is_telling = False
        self.has_unread = False

    def note(self, text: str) -> None:
        """See `searching.Listener`."""
        self.clear()
        note(f"note: {visible(text)}")

    def unread(self, text: str) -> None:
        """See `searching.Listener`."""
        self.has_unread = True
        self.note(text)

    def unindexed(self, why: str) -> None:
        """See `searching.Listener`."""
        self._unindexed.append(why)

    def progress(self, session: str, done: int, whole: int) -> None:
        """See `searching.Listener`."""
        if done % 100 == 0 and time.monotonic() - self._begun > QUIET_SECONDS:
            self._is_telling = True
            progress(f"indexing {short_id(session)}: {done:,} of {whole:,} events")

    def clear(self) -> None:
        """Take the passing word away."""
        if self._is_telling:
            progress("")
            self._is_telling = False

    def end(self) -> None:
        """Say once why sessions were searched without an index."""
        self.clear()
        if self._unindexed:
            some = plural(len(self._unindexed), "session")
            self.note(f"{some} searched without an index, which is slow: {self._unindexed[0]}")
