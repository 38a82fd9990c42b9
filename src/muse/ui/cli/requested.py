"""`muse show --request`: what a model was sent, byte for byte, in numbers, or as a difference to the request before."""

from pathlib import Path

import msgspec

from muse import app
from muse.errors import Incomplete, LogError, UsageError
from muse.event.sent import Request, Sent
from muse.ui.cli.files import write_file
from muse.ui.cli.output import Answers, note
from muse.view.amounts import size
from muse.view.request import indented, pretty
from muse.view.sent import difference_lines, difference_value, encoded, request_value, summary_lines, summary_value
from muse.view.text import line_text


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a request. `output` is a file's name, "" for standard output."""

    diff: bool = False
    summary: bool = False
    pretty: bool = False
    as_json: bool = False
    output: str = ""
    force: bool = False


def show_request(reading: app.Reading, seq: int, lane: str, wish: Wish, out: Answers) -> None:
    """Answer with the request at `seq`, or the last before it of its agent. Raises UsageError where there is none,
    `Incomplete` where its bytes cannot be known, and `LogError` where the log gives others than were sent."""
    if wish.diff and wish.summary:
        raise UsageError("--diff and --summary are two answers", hint="give one of them")
    if wish.output and (wish.diff or wish.summary or wish.as_json):
        raise UsageError("-o takes the request itself", hint="send other answers into a file with >")
    sent = app.request_at(reading, seq, lane)
    _require(sent.request)
    if sent.request.seq != seq and not wish.as_json:
        where = f"#{sent.request.seq}, the last request of {sent.request.agent} before #{seq}"
        note(f"muse: this is what was sent at {where}")
    if wish.diff:
        _difference(sent, wish, out)
    elif wish.summary:
        _answer(out, encoded(summary_value(sent)) if wish.as_json else "", sent)
    elif wish.as_json:
        out.json(encoded(request_value(sent.request)))
    else:
        _whole(sent.request, wish, out)


def _answer(out: Answers, json: str, sent: Sent) -> None:
    if json:
        out.json(json)
        return
    for line in summary_lines(sent):
        out.lines(line_text(line, width=out.width, colour=out.colour))


def _difference(sent: Sent, wish: Wish, out: Answers) -> None:
    if sent.previous is None:
        first = f"#{sent.request.seq} is the first request of {sent.request.agent}"
        raise UsageError(f"{first}: there is none before it", hint="--summary says what is in it")
    _require(sent.previous)
    if wish.as_json:
        out.json(encoded(difference_value(sent)))
        return
    for line in difference_lines(sent):
        out.lines(line_text(line, width=out.width, colour=out.colour))


def _whole(request: Request, wish: Wish, out: Answers) -> None:
    data = request.data
    assert data is not None
    if wish.output:
        write_file(Path(wish.output), iter([indented(data) if wish.pretty else data]), force=wish.force)
        note(f"wrote {size(Path(wish.output).stat().st_size)} to {wish.output}")
    elif wish.pretty or out.terminal:
        if not wish.pretty:
            note("muse: indented for reading; -o FILE, or a pipe, gives the exact bytes")
        out.lines(pretty(data))
    else:
        out.raw(data)


def _require(request: Request) -> None:
    """Raises when there are no bytes, or others than were recorded."""
    if request.differs:
        raise LogError(
            f"the request of #{request.seq} cannot be rebuilt: the log gives {request.differs}",
            hint="muse verify SESSION, and muse replay --verify SESSION, say what else does not hold",
        )
    if request.data is None:
        raise Incomplete(
            f"what was sent at #{request.seq} cannot be told: {request.why}",
            hint=f"muse show SESSION@{request.seq} shows what is recorded of it",
        )
