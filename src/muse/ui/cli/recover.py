"""`muse recover`: save what a damaged session still holds."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from muse import app
from muse.errors import Damaged, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.options import words
from muse.ui.cli.output import Answers, answers, note, progress
from muse.view.amounts import plural

if TYPE_CHECKING:
    from muse.app.recovering import Recovery

RANGES_SHOWN = 20


@click.command("recover")
@click.argument("session", default="", shell_complete=completing.sessions)
@click.option("-o", "--output", default="", metavar="FILE", help="Write the new log to FILE instead of MUSE_HOME.")
@click.option(
    "--before-damage", is_flag=True,
    help="Only what is before the first lost event: a session that can be continued (muse resume --recovered).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="What was saved and what is lost, as JSON.")
def command(session: str, output: str, before_damage: bool, as_json: bool) -> int:
    """Save every event of a damaged SESSION (an id, part of one, a file; default: the last session), before and after
    the damage, into a new session that verifies, and say which events are lost. The damaged file is only read.

    Exit codes: 0 saved (or there was no damage), 2 no such session or FILE is taken, 6 nothing can be saved, 7 a
    process owns the session.

    \b
      muse recover 4f2k
      muse recover last --before-damage -o saved.muse
    """
    place = resolve(session)
    if place.address.seq or place.address.agent:
        raise UsageError("recover takes a whole session", hint="leave :AGENT and @SEQ out")
    if not before_damage and app.is_whole(place.path, progress):
        progress("")
        return _whole(place.path, as_json)
    target = Path(output).expanduser() if output else None
    done, report = app.recover_session(place.path, target, before_damage=before_damage, progress=progress)
    progress("")
    if report.exit_code:
        raise Damaged(f"what was saved to {done.file} does not verify", hint="keep both files, and check the disk")
    with answers(acts=True) as out:
        if as_json:
            out.json(_json(done))
        else:
            _print(done, out)
    return 0


def _whole(path: Path, as_json: bool) -> int:
    if as_json:
        click.echo(msgspec.json.encode({"file": words(str(path)), "damaged": False}).decode())
    else:
        note(f"{path} is not damaged: there is nothing to recover, and nothing was written")
    return 0


def _json(done: "Recovery") -> str:
    fields = msgspec.structs.asdict(done)
    fields |= {
        "damaged": True,
        "source": words(done.source),
        "file": words(done.file),
        "lost": [{"first": first, "last": last} for first, last in done.lost],
        "head": {"seq": done.head, "hash": done.head_hash},
    }
    return msgspec.json.encode(fields, order="sorted").decode()


def _print(done: "Recovery", out: Answers) -> None:
    out.line(f"saved {plural(done.saved, 'event')} of {done.source or 'an unknown session'} to {done.file}")
    for first, last in done.lost[:RANGES_SHOWN]:
        what = f"event {first} is" if first == last else f"events {first} to {last} are"
        left_out = " (left out, with all that came after)" if done.is_cut and (first, last) == done.lost[-1] else ""
        out.line(f"  {what} lost{left_out}")
    if len(done.lost) > RANGES_SHOWN:
        out.line(f"  and {len(done.lost) - RANGES_SHOWN} more gaps; muse log {short_id(done.session)} shows them all")
    if not done.lost:
        out.line("  no event is lost")
    for root in done.lost_blobs[:RANGES_SHOWN]:
        out.line(f"  blob {root} is lost, or only part of it is left")
    if done.unproven:
        some = ", ".join(f"#{seq}" for seq in done.unproven[:RANGES_SHOWN])
        out.line(f"  after a gap: the header of {some} is as it was found; only its body is proven")
    out.line(f"the new session is {done.session}; it verifies. The damaged file was not touched.")
    _next(done)


def _next(done: "Recovery") -> None:
    name = short_id(done.session)
    if done.is_cut:
        note(f"to go on from before the damage: muse resume {name} --recovered")
    elif done.lost:
        note(f"read it: muse replay {name}. It cannot be continued, for what is lost is not known;")
        note(f"a session from before the damage can: muse recover {short_id(done.source)} --before-damage")
