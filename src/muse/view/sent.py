"""What was sent, for a reader: in numbers, and what changed since the request before; as lines and as JSON values.

The lines are safe to show. This module must not know widths or colours, nor how a request is found in a log.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from muse.event.content import Usage
from muse.event.kinds import ModelFailed, ModelResponded
from muse.event.sent import Request, Sent
from muse.view.amounts import duration, money, plural, size
from muse.view.detail import argument_lines
from muse.view.diff import contents_diff
from muse.view.line import Line, Look
from muse.view.request import PLACES, Change, Difference, Overview, Piece, Place, difference, overview
from muse.view.visible import lines_of, one_line

PIECE_LINES_MAX: Final = 100
"""So many lines of one piece are shown; the request itself has them all."""
TOOLS_NAMED_MAX: Final = 40
_NAMES: Final[dict[Place, str]] = {
    "parameter": "parameters", "tool": "tools", "system": "system", "message": "messages",
}  # fmt: skip
_SIGNS: Final[dict[str, tuple[str, Look]]] = {
    "added": ("+", "add"),
    "removed": ("-", "remove"),
    "changed": ("~", "head"),
}


# -- in numbers --------------------------------------------------------------------------------------------------------


def summary_lines(sent: Sent) -> Iterator[Line]:
    """The request in numbers: what is in it, what became of it, what the provider's cache did, what is not in it.
    `sent.request` has bytes."""
    request, asked = sent.request, sent.request.asked
    assert request.data is not None
    assert asked is not None
    found = overview(request.data)
    attempt = f", attempt {asked.attempt}" if asked.attempt > 1 else ""
    yield Line(
        f"request #{request.seq}  {one_line(asked.call)}{attempt}  {one_line(f'{asked.provider}/{asked.model}')}",
        "head",
    )
    yield _named("bytes", f"{len(request.data):,}, built by {one_line(asked.builder)}, as recorded")
    yield _named("sha256", one_line(asked.request_sha256), "dim")
    before = sent.previous
    yield _named("before it", "nothing" if before is None else f"#{before.seq} (what changed since: --diff)")
    yield from _content_lines(found)
    yield from _answer_lines(sent)
    yield from _missing_lines(sent, found)


def _content_lines(found: Overview) -> Iterator[Line]:
    for name, value in found.parameters.items():
        yield _named(
            name if len(name) <= 10 else "parameter", one_line(value if len(name) <= 10 else f"{name} {value}")
        )
    yield _named("system", size(found.system.bytes) if found.system.count else "none")
    names = ", ".join(one.what for one in found.tools[:TOOLS_NAMED_MAX])
    more = f" and {len(found.tools) - TOOLS_NAMED_MAX} more" if len(found.tools) > TOOLS_NAMED_MAX else ""
    total = sum(one.bytes for one in found.tools)
    yield _named("tools", f"{len(found.tools)}, {size(total)}: {names}{more}" if found.tools else "none")
    yield _named("messages", f"{found.messages:,}")
    for share in found.shares:
        yield Line(f"  {share.what:<24} {share.count:>6,}  {size(share.bytes):>9}")


def _answer_lines(sent: Sent) -> Iterator[Line]:
    answer = sent.answer
    if answer is None:
        yield _named("answer", "none in the log")
    elif isinstance(answer.body, ModelResponded):
        usage = answer.body.usage
        yield _named("answer", f"#{answer.seq} after {duration(answer.body.duration_ms)}: {_counted(usage)}")
        yield _named("cache", _cached(usage))
    elif isinstance(answer.body, ModelFailed):
        yield _named("answer", f"#{answer.seq}: it failed ({answer.body.failure.replace('_', ' ')})", "bad")
    else:
        yield _named("answer", f"#{answer.seq}: hidden", "dim")


def _counted(usage: Usage) -> str:
    cost = f", {money(usage.cost_microusd)}" if usage.cost_microusd else ""
    total = usage.input + usage.cache_read + usage.cache_write
    return f"{total:,} tokens in, {usage.output:,} out{cost}" if usage != Usage() else "no tokens were counted"


def _cached(usage: Usage) -> str:
    total = usage.input + usage.cache_read + usage.cache_write
    if not total:
        return "the provider counted nothing"
    share = usage.cache_read * 100 // total
    return (
        f"{usage.cache_read:,} of {total:,} tokens were read from it ({share} %), {usage.cache_write:,} written to it"
    )


def _missing_lines(sent: Sent, found: Overview) -> Iterator[Line]:
    """What the model was not shown, and where it stands."""
    for one in sent.compacted:
        where = f"since #{one.seq}, #{one.first} to #{one.last} are told in short ({one_line(one.method)})"
        sizes = f"{plural(one.events, 'event')} of {size(one.before)} became {size(one.after)}"
        yield _named("compacted", f"{where}: {sizes}; see them: muse log --since @{one.first} --until @{one.last}")
    for cut in sent.cut:
        sizes = f"{size(cut.sent)} of {size(cut.whole)}"
        yield _named(
            "in part", f"the result of {one_line(cut.call)}: {sizes}; whole: muse show @{cut.seq} --blob output"
        )
    if found.masked:
        names = ", ".join(f"{name} ({count}×)" for name, count in found.masked.items())
        yield _named("masked", f"a placeholder stands for {names}")


def _named(name: str, value: str, look: Look = "plain") -> Line:
    return Line(f"{one_line(name):<10} {value}", look)


# -- since the one before ----------------------------------------------------------------------------------------------


def difference_lines(sent: Sent) -> Iterator[Line]:
    """What changed since the request before, place by place, with the texts; then what that means for the cache. Both
    requests have bytes."""
    request, previous = sent.request, sent.previous
    assert request.data is not None
    assert previous is not None
    assert previous.data is not None
    found = difference(previous.data, request.data)
    yield Line(f"request #{request.seq}{_call_of(request)} since #{previous.seq}{_call_of(previous)}", "head")
    for place in PLACES:
        yield _named(_NAMES[place], _counts(found, place))
        for change in found.changes[place]:
            yield from _change_lines(change)
    yield _named("cache", _prefix_words(found))
    if sent.answer is not None and isinstance(sent.answer.body, ModelResponded):
        yield _named("", _cached(sent.answer.body.usage))


def _call_of(request: Request) -> str:
    if request.asked is None:
        return ""
    attempt = f", attempt {request.asked.attempt}" if request.asked.attempt > 1 else ""
    return f" ({one_line(request.asked.call)}{attempt})"


def _counts(found: Difference, place: Place) -> str:
    changes = found.changes[place]
    parts = [f"{sum(one.what == what for one in changes):,} {what}" for what in ("added", "removed", "changed")]
    told = [part for part in parts if not part.startswith("0 ")]
    if place == "tool" and found.reordered:
        told.append("in another order")
    same = f"{found.same[place]:,} as before"
    return ", ".join([*told, same]) if told else f"the same ({found.same[place]:,})"


def _change_lines(change: Change) -> Iterator[Line]:
    sign, look = _SIGNS[change.what]
    piece = change.after or change.before
    assert piece is not None
    sizes = size(piece.size)
    if change.before is not None and change.after is not None:
        sizes = f"{size(change.before.size)} → {size(change.after.size)}"
    yield Line(f"{sign} {_title(piece)} ({sizes})", "head")
    lines = _text_diff(change.before, change.after) if change.what == "changed" else _piece_lines(piece, sign, look)
    yield from _at_most(lines)


def _title(piece: Piece) -> str:
    if piece.place != "message":
        return f"{piece.place} {piece.name}".rstrip()
    tool = f" {piece.tool}" if piece.tool else ""
    return f"message {piece.at} {piece.name} {piece.kind}{tool}{', an error' if piece.error else ''}"


def _piece_lines(piece: Piece, sign: str, look: Look) -> Iterator[Line]:
    lines = (line.text for line in argument_lines(piece.text)) if piece.kind == "tool_use" else lines_of(piece.text)
    for line in lines:
        yield Line(f"  {sign} {line}", look)


def _text_diff(before: Piece | None, after: Piece | None) -> Iterator[Line]:
    assert before is not None
    assert after is not None
    texts = (before.text, after.text) if before.text != after.text else (before.raw, after.raw)
    for line in contents_diff("", texts[0].encode(errors="replace"), texts[1].encode(errors="replace")):
        if line.text not in ("--- a/", "+++ b/"):
            yield Line(f"  {line.text}", line.look)


def _at_most(lines: Iterator[Line]) -> Iterator[Line]:
    yield from islice(lines, PIECE_LINES_MAX)
    if more := sum(1 for _ in lines):
        yield Line(f"  … {plural(more, 'more line', 'more lines')}: --request has it whole", "dim")


def _prefix_words(found: Difference) -> str:
    """Whether what a provider may have kept of the request before can be read again."""
    if "model" in {change.after.name for change in found.changes["parameter"] if change.after is not None}:
        return "another model is asked: nothing that was kept for the one before can be read"
    if found.whole:
        return (
            f"the request before stands whole at the beginning of this one: {size(found.before)} of {size(found.after)}"
            " can be read again"
        )
    assert found.broken is not None
    where = f"the two part at {_title(found.broken)}"
    return f"{where}: {size(found.prefix)} of {size(found.before)} can be read again, what comes after cannot"


# -- JSON --------------------------------------------------------------------------------------------------------------


def request_value(request: Request) -> dict[str, Any]:
    """A request as a JSON value: where it stands, what was recorded, and its exact text."""
    asked = request.asked
    value: dict[str, Any] = {"seq": request.seq, "agent": request.agent}
    if asked is not None:
        names = ("call", "attempt", "provider", "model", "builder", "items", "request_sha256", "request_bytes")
        value |= {name: getattr(asked, name) for name in names}
    if request.data is None:
        return value | {"request": None, "why": request.why}
    return value | {"request": request.data.decode(errors="replace")}


def summary_value(sent: Sent) -> dict[str, Any]:
    """The same as `summary_lines`."""
    assert sent.request.data is not None
    value = request_value(sent.request)
    del value["request"]
    value |= {"previous": None if sent.previous is None else sent.previous.seq, "content": overview(sent.request.data)}
    return value | {"answer": _answer_value(sent), "compacted": sent.compacted, "cut": sent.cut}


def _answer_value(sent: Sent) -> dict[str, Any] | None:
    answer = sent.answer
    if answer is None:
        return None
    value: dict[str, Any] = {"seq": answer.seq, "type": answer.type}
    if isinstance(answer.body, ModelResponded):
        value["usage"] = {name: getattr(answer.body.usage, name) for name in Usage.__struct_fields__}
    elif isinstance(answer.body, ModelFailed):
        value["failure"] = answer.body.failure
    return value


def difference_value(sent: Sent) -> dict[str, Any]:
    """The same as `difference_lines`."""
    assert sent.request.data is not None
    assert sent.previous is not None
    assert sent.previous.data is not None
    found = difference(sent.previous.data, sent.request.data)
    return {
        "seq": sent.request.seq,
        "since": sent.previous.seq,
        "changes": [
            {"what": change.what, "place": place, "before": change.before, "after": change.after}
            for place in PLACES
            for change in found.changes[place]
        ],
        "same": found.same,
        "reordered": found.reordered,
        "prefix": {"bytes": found.prefix, "before": found.before, "after": found.after, "whole": found.whole},
        "answer": _answer_value(sent),
    }


def encoded(value: object) -> str:
    """A JSON line with sorted keys."""
    return msgspec.json.encode(value, order="sorted").decode()
