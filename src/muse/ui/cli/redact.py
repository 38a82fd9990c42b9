"""`muse redact`: take a text, or what events say, out of a session for good."""

import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from muse import app
from muse.errors import StoreUnavailable, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.choosing import CLIENT, asking, confirmed
from muse.ui.cli.finding import short_id, tilde
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural, size
from muse.view.visible import one_line

SECRET_BYTES_MAX: Final = 1 << 20
FIELDS_SHOWN: Final = 6
OUT_OF_REACH: Final = (
    "out of reach: copies, backups and exports of the log, archived copies, what models were sent, and your own files"
)


@click.command("redact")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS...", shell_complete=completing.sessions)
@click.option("--text", default="", metavar="-", help="Read a text from standard input (asked for on a terminal), and "
              "take it out wherever it stands in the session.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="A reason to keep in the log.")
@asking
def command(addresses: tuple[str, ...], text: str, reason: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Take out what the events at SESSION@SEQ... say, or with --text - a text wherever it stands in SESSION: in every
    form (escaped, base64, hex, URL), with all contents and digests that hold it.

    The log still verifies; what was hidden can be seen to be hidden. It cannot be brought back. A session whose
    agents went by what was hidden can be read, and not be continued.

    \b
      muse redact 4f2k@41 --reason "a key was printed" --dry-run
      muse redact 4f2k --text -
    """
    places = [resolve(address) for address in addresses]
    path = places[0].path
    app.refuse_agents_at(path, CLIENT, "redact")
    seqs, texts = _meant(places, text)
    stale = not dry_run and app.stands_in(path, texts)
    with app.Redaction.opened(path, texts, seqs, dry_run=dry_run) as redaction, answers(acts=True) as out:
        name = short_id(path.stem)
        if not as_json:
            _print(redaction.plan, out)
            out.flush()
        if dry_run:
            if as_json:
                _say_json(path.stem, redaction.plan, [], [], out, redacted=False)
            return 0 if redaction.plan else _nothing(name)
        if redaction.plan and not confirmed(f"take this out of {name} for good?", yes=yes):
            note("nothing was taken out")
            return 1
        also = redaction.carry_out(reason, CLIENT)
        again = redaction.look_again()
    left = app.still_there(texts, lambda file: progress(f"looking through {tilde(file)}")) if texts else []
    progress("")
    if as_json:
        with answers(acts=True) as out:
            _say_json(path.stem, redaction.plan, also, left, out, redacted=True)
    else:
        _report(redaction.plan, also, left)
        for child in app.children().get(path.stem, ()):
            note(f"{short_id(child)} goes on from this session: run it there, too")
    if again:
        raise UsageError("it was said again meanwhile", hint="run the same command once more")
    if any(Path(file).name.startswith(path.name) for file in left):
        raise StoreUnavailable(
            f"old pages of {path.name} still hold it: a reader keeps them",
            hint="end it (muse log -f, say), then run the same command once more",
        )
    return 0 if redaction.plan or also or stale else _nothing(name)


def _meant(places: list[Place], text: str) -> tuple[list[int], list[bytes]]:
    """The seqs, or the text. Raises UsageError for what cannot be meant."""
    if len({place.path.absolute() for place in places}) > 1:
        raise UsageError("one session at a time", hint="run it once for each")
    if any(place.address.agent for place in places):
        raise UsageError("a redaction is of events, whoever's they are", hint="leave :AGENT out")
    seqs = [place.address.seq for place in places if place.address.seq]
    if not text:
        if len(seqs) < len(places):
            raise UsageError(
                "which events?", hint="muse redact SESSION@SEQ..., or --text - for a text wherever it stands"
            )
        return seqs, []
    if seqs:
        raise UsageError("--text is looked for in the whole session", hint="leave @SEQ out")
    if text != "-":
        raise UsageError(
            "a secret on the command line stays in the shell's history", hint="write --text - and give it when asked"
        )
    return [], [_secret()]


def _secret() -> bytes:
    if sys.stdin.isatty():
        given: str = click.prompt("the text to take out (not shown)", hide_input=True, err=True)
        return given.encode("utf-8", "surrogateescape")
    data = sys.stdin.buffer.read(SECRET_BYTES_MAX + 1)
    if len(data) > SECRET_BYTES_MAX:
        raise UsageError("that is over 1 MiB", hint="redact whole events instead: muse redact SESSION@SEQ")
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    if not data:
        raise UsageError("there is no text on standard input", hint="printf %s SECRET | muse redact SESSION --text -")
    return data


def _nothing(name: str) -> int:
    raise UsageError(f"nothing in {name} holds it", hint="is it the right session? muse ls lists them")


def _print(plan: app.Plan, out: Answers) -> None:
    for seq in sorted(plan.events):
        hiding = plan.events[seq]
        shown = ", ".join(hiding.fields[:FIELDS_SHOWN])
        more = f" and {len(hiding.fields) - FIELDS_SHOWN} more" if len(hiding.fields) > FIELDS_SHOWN else ""
        if hiding.fields:
            out.line(f"#{seq:<5} {hiding.type:<18} {one_line(shown)}{more}")
        for key in hiding.clear:
            note(f"#{seq} {hiding.type}: {key} holds it and cannot be hidden")
    if plan.blobs:
        total = size(sum(plan.blobs.values()))
        out.line(f"{plural(len(plan.blobs), 'content')}, {total}")


def _report(plan: app.Plan, also: list[str], left: list[str]) -> None:
    events = sum(bool(hiding.places) for hiding in plan.events.values())
    if plan:
        note(f"taken out: parts of {plural(events, 'event')}, {plural(len(plan.blobs), 'content')}")
    for path in also:
        note(f"taken away or cleaned: {tilde(path)}")
    for path in left:
        note(f"it still stands in {tilde(path)}")
    note(OUT_OF_REACH)


def _say_json(
    session: str, plan: app.Plan, also: list[str], left: list[str], out: Answers, *, redacted: bool
) -> None:  # fmt: skip
    fields = {
        "session": session, "redacted": redacted, "also": also, "left": left, "contents": len(plan.blobs),
        "events": [
            {"seq": seq, "type": hiding.type, "fields": hiding.fields, "stuck": hiding.clear}
            for seq, hiding in sorted(plan.events.items())
        ],
    }  # fmt: skip
    out.json(msgspec.json.encode(fields, order="sorted").decode())
