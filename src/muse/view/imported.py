"""What is to be said of a log that was made from another agent's file: where it comes from, and what is not in it.

Shared by the row's detail, the document and the state pane. This module must not know how it is laid out.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from muse.event.kinds import Aside, Counted, LogImported
from muse.view.amounts import plural

ASIDES: Final = {"left": "a branch that was left", "repeated": "copied from the session it was forked from"}
NAMED_MAX: Final = 40
"""Kinds of lines that are named with their number; the rest is summed up."""


def facts(body: LogImported) -> Iterator[tuple[str, str]]:
    """(name, value) for each thing that is known, in order. Values are foreign text, not safe to show."""
    yield "source", f"{body.source}, {body.format_name}, {plural(body.events, 'line')}"
    named = (
        ("written by", body.program), ("session", body.source_session), ("fork of", body.source_parent),
        ("workspace", body.workspace), ("branch", body.branch), ("model", body.model), ("title", body.name),
    )  # fmt: skip
    yield from ((name, value) for name, value in named if value)
    if body.missing:
        yield "missing", f"not recorded by the source: {', '.join(body.missing)}"
    yield from _counted("unknown", body.unknown)
    if body.unreadable:
        yield "unreadable", plural(body.unreadable, "line")
    yield from _counted("kept", body.kept)
    for aside in body.asides:
        yield "beside", f"#{aside.first} to #{aside.last}: {ASIDES[aside.what]}"
    if body.sha256:
        yield "sha256", body.sha256


def aside_of(seq: int, asides: Iterable[Aside]) -> str:
    """How an event that stands beside the conversation is labelled, "" for one that belongs to it."""
    return next((f"({ASIDES[aside.what]})" for aside in asides if aside.first <= seq <= aside.last), "")


def _counted(name: str, counted: tuple[Counted, ...]) -> Iterator[tuple[str, str]]:
    if not counted:
        return
    parts = [f"{one.count:,} × {one.what}" for one in counted[:NAMED_MAX]]
    if rest := sum(one.count for one in counted[NAMED_MAX:]):
        parts.append(f"{rest:,} × others")
    yield name, ", ".join(parts)
