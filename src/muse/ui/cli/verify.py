"""`muse verify`: what a log or an export proves, and what it does not."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.options import words
from muse.ui.cli.output import Answers, answers, progress
from muse.view.amounts import plural
from muse.view.text import paint
from muse.view.visible import one_line, paragraph

if TYPE_CHECKING:
    from muse.runtime.reading import Report

_head_form: Final = re.compile(r"(0|[1-9][0-9]{0,15}):([0-9a-f]{64})")
HANG: Final = 40
"""Where what is said of a row begins."""
_COLOURS: Final = {"proven": "32", "failed": "31", "not proven": "33", "not checkable": "33"}


@click.command("verify")
@click.argument("address", default="", shell_complete=completing.sessions)
@click.option(
    "--head", "head", default=None, metavar="SEQ:HASH",
    help="A head kept elsewhere to hold the log against; the last line that verify prints is the head to keep.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON.")
@click.option("--no-color", is_flag=True, help="Never colour.")
def command(address: str, head: str | None, as_json: bool, no_color: bool) -> int:
    """Check ADDRESS (a session, a log file or a jsonl export; default: the last session).

    It asks whether the bytes are those that were written; whether they tell a possible story, muse replay --verify.

    Exit codes: 0 nothing is wrong, 2 the file is of another kind, 6 damaged or tampered with (also a .muse file that is
    no log any more), 8 intact but the tail is missing.

    \b
      muse verify 4f2k
      muse verify session.jsonl --json
    """
    place = resolve(address)
    if place.address.seq or place.address.agent:
        raise UsageError(
            "verify takes a whole session", hint="muse verify SESSION --head SEQ:HASH holds it against a head"
        )
    report = app.verify_file(place.path, _known(head), lambda seq: progress(f"{seq:,} events checked"))
    progress("")
    with answers(colour=not no_color) as out:
        if as_json:
            out.json(_json(report, place.path))
        else:
            _print(report, place.path, out)
    return report.exit_code


def _known(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    found = _head_form.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no head", hint="write muse verify SESSION --head SEQ:HASH; muse verify prints a head last"
        )
    return int(found[1]), bytes.fromhex(found[2])


def first_bad(report: "Report") -> int | None:
    """The lowest seq at which something failed; None when nothing did."""
    return min((row.seq for row in report.rows if row.state == "failed"), default=None)


def _json(report: "Report", path: Path) -> str:
    fields = {
        "session": report.session, "file": words(str(path)), "events": report.events, "blobs": report.blobs,
        "head": {"seq": report.head.seq, "hash": report.head.hash.hex()}, "rows": report.rows,
        "first_bad": first_bad(report), "exit": report.exit_code,
    }  # fmt: skip
    return msgspec.json.encode(fields, order="sorted").decode()


def _print(report: "Report", path: Path, out: Answers) -> None:
    counts = f"{plural(report.events, 'event')}, {plural(report.blobs, 'blob')}"
    out.line(f"{one_line(report.session) or path.name}  {counts}")
    for row in report.rows:
        where = f"  (#{row.seq})" if row.seq else ""
        first, *rest = paragraph(f"  {row.state:<13} {row.what:<23} {one_line(row.detail)}{where}", out.width, HANG)
        out.line(f"  {paint(first[2:15], _COLOURS[row.state], out.colour)}{first[15:]}")
        out.lines(rest)
    bad = first_bad(report)
    if report.exit_code == 8:
        out.line(paint(f"incomplete after event {report.head.seq}", "31", out.colour))
    elif bad is not None:
        what = f"the first bad event is #{bad}" if bad else "no single event can be named"
        out.line(paint(f"damaged: {what}", "31", out.colour))
    out.line(f"head {report.head.seq}:{report.head.hash.hex()}")
