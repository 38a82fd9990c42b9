"""`muse replay --verify`: whether the rules give the recorded session again, and what is kept of it as a fixture."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muse import app
from muse.errors import UsageError
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.options import words
from muse.ui.cli.output import Answers, answers, progress
from muse.view.amounts import plural
from muse.view.text import paint
from muse.view.visible import one_line, paragraph, visible

if TYPE_CHECKING:
    from muse.app.golden import Kept
    from muse.runtime.check.report import Divergence, Report

HANG: Final = 25
_DID: Final = {"made": "made", "same": "the same as it was", "replaced": "replaced; it was another"}

_OPTIONS: Final = (
    click.option("--verify", is_flag=True, help="Derive it again, offline, and say where it diverges (exit code 6)."),
    click.option("--golden", default="", metavar="DIR", help="With --verify: keep it as a fixture for CI."),
    click.option("--force", is_flag=True, help="With --golden: replace a fixture that is another."),
    click.option("-q", "--quiet", is_flag=True, help="With --verify: say nothing but a divergence."),
)  # fmt: skip


def verifying(command: Callable[..., int]) -> Callable[..., int]:
    """Add the flags of a verification to a command that steps through sessions; with them it verifies instead."""

    @functools.wraps(command)
    def run(*args: object, verify: bool, quiet: bool, golden: str, force: bool, **given: Any) -> int:
        if not verify:
            if quiet or golden or force:
                raise UsageError("-q, --golden and --force go with --verify", hint="muse replay --verify SESSION")
            return command(*args, **given)
        for name in ("plain", "detail", "state", "wanted"):
            if given.get(name):
                raise UsageError("--verify looks at all of a session and steps through nothing: leave the rest out")
        place = resolve(given["address"])
        fixtures = Path(golden) if golden else None
        return verify_session(
            place, fixtures, force=force, as_json=given["as_json"], quiet=quiet, colour=not given["no_color"]
        )

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def verify_session(
    place: Place, fixtures: Path | None, *, force: bool, as_json: bool, quiet: bool, colour: bool
) -> int:
    """Derive a session again and say what came of it; with `fixtures`, keep it there. The exit code."""
    if place.address.seq or place.address.agent:
        raise UsageError("--verify takes a whole session", hint="muse replay --verify SESSION")
    report = app.verify_story(place.path, lambda seq: progress(f"{seq:,} events derived again"))
    progress("")
    kept = None
    if fixtures is not None and report.divergence is None:
        from muse.app.golden import keep

        kept = keep(place.path, report, fixtures, force=force)
    with answers(colour=colour) as out:
        if as_json:
            out.json(_json(report, place.path, kept))
        elif report.divergence is not None:
            _diverged(report, report.divergence, out)
        elif not quiet:
            _same(report, out)
            if kept is not None:
                _row(out, "fixture", f"{kept.folder}: {_DID[kept.did]}")
                out.lines([f"    {visible(line)}" for line in kept.difference if kept.did == "replaced"])
    return report.exit_code


def _json(report: "Report", path: Path, kept: "Kept | None") -> str:
    fields = {"file": words(str(path)), "exit": report.exit_code, "ok": report.divergence is None}
    if kept is not None:
        fields |= {"fixture": str(kept.folder), "did": kept.did}
    plain: dict[str, object] = msgspec.to_builtins(report)
    return msgspec.json.encode(fields | plain, order="sorted").decode()


def _same(report: "Report", out: Answers) -> None:
    counts = f"{plural(report.events, 'event')}, {plural(len(report.agents), 'agent')}"
    if report.decisions and report.left:
        found = paint("nothing diverges in what was derived again, which is not all", "33", out.colour)
    elif report.decisions:
        found = paint("nothing diverges", "32", out.colour)
    else:
        found = paint("nothing of it can be derived again", "33", out.colour)
    out.line(f"{one_line(report.session)}  {counts}: {found}")
    by_type = ", ".join(f"{count} {name}" for name, count in report.decisions.items())
    _row(out, "decisions", f"{plural(sum(report.decisions.values()), 'decision')} derived again: {by_type or 'none'}")
    _row(out, "requests", f"{plural(report.requests, 'request')} built again, byte for byte")
    _row(out, "answers", f"{plural(report.answers, 'answer')} decoded again from the raw bytes")
    facts = f"{plural(report.facts, 'other event')} fit what they belong to"
    _row(out, "facts", f"{facts}; {plural(report.contents, 'content')} looked at")
    _rest(report, out)


def _rest(report: "Report", out: Answers) -> None:
    for left in report.left:
        _row(out, "not derived again", f"{left.count}, from #{left.first} on: {one_line(left.detail)}")
    if report.open:
        _row(out, "still open", f"{', '.join(report.open)}: the log ends before they do")
    if report.due:
        _row(out, "still due", f"{', '.join(report.due)}: the log ends before that is decided")


def _diverged(report: "Report", found: "Divergence", out: Answers) -> None:
    from muse.runtime.check.report import KINDS

    where = f"#{found.seq} {one_line(found.agent)} {one_line(found.type)}"
    out.line(paint(f"diverges at {where}: {found.kind.replace('_', ' ')}", "31", out.colour))
    _row(out, "what", one_line(found.what))
    _row(out, "which is", KINDS[found.kind])
    for name, text in (("expected", found.expected), ("recorded", found.recorded)):
        if text:
            _row(out, name, one_line(text))
    for line in found.difference:
        look = {"-": "31", "+": "32"}.get(line[:1], "")
        text = visible(line).replace("\n", " ")
        out.line(f"    {paint(text, look, out.colour) if look else text}")
    before = sum(report.decisions.values())
    _row(out, "before it", f"{plural(before, 'decision')} were derived again and are the same")
    _rest(report, out)
    out.line(f"muse show {one_line(report.session)}@{found.seq} shows the event; nothing after it was looked at")


def _row(out: Answers, name: str, text: str) -> None:
    out.lines(paragraph(f"  {name:<{HANG - 3}} {text}", out.width, HANG))
