"""Marks say of an event what filters and rows say of it, in one word."""

from typing import Any

import pytest

from muse.event import kinds
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import KINDS
from muse.view.filters import is_failure
from muse.view.marks import Mark, bits, mark, marks_of

TYPE_OF = {kind.body: name for name, kind in KINDS.items()}


def event(body: Any, kind: str = "") -> Event:
    return Event(1, "0" * 32, "2026-01-01T00:00:00.000000Z", kind or TYPE_OF[type(body)], 1, "main", 0, 1, body)


def ended(status: Any, **more: Any) -> kinds.ToolFinished:
    return kinds.ToolFinished(call="main/1", attempt=1, status=status, **more)


def failed(failure: Any) -> kinds.ModelFailed:
    return kinds.ModelFailed(call="main/1", attempt=1, failure=failure)


def responded(stop: Any) -> kinds.ModelResponded:
    return kinds.ModelResponded(call="main/1", attempt=1, blocks=(), stop=stop)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (ended("ok"), Mark.TOOL),
        (ended("ok", exit_code=0), Mark.TOOL),
        (ended("ok", exit_code=1), Mark.ERROR),
        (ended("error"), Mark.ERROR),
        (ended("ok", timed_out=True), Mark.ERROR),
        (ended("unknown"), Mark.DOUBT),
        (ended("cancelled"), Mark.CANCEL),
        (failed("overloaded"), Mark.ERROR),
        (failed("cancelled"), Mark.CANCEL),
        (responded("tool_use"), Mark.MODEL),
        (responded("refusal"), Mark.ERROR),
        (kinds.SessionClosed(outcome="done"), Mark.SESSION),
        (kinds.SessionClosed(outcome="provider"), Mark.ERROR),
        (kinds.SessionClosed(outcome="cancelled"), Mark.SESSION),
        (kinds.AgentFinished(outcome="failed"), Mark.ERROR),
        (kinds.AgentFinished(outcome="done"), Mark.SPAWN),
        (kinds.UserPrompted(text="go"), Mark.PERSON),
        (kinds.UserPrompted(text="and that", delivery="steer"), Mark.STEER),
        (kinds.CancelRequested(), Mark.CANCEL),
        (kinds.FilesChanged(changes=()), Mark.EDIT),
        (kinds.AgentSpawned(), Mark.SPAWN),
        (kinds.EffectDoubted(call="main/1", attempt=1, recovery="opaque"), Mark.DOUBT),
        (kinds.ApprovalDecided(call="main/1", decision="deny", by="person"), Mark.APPROVAL),
    ],
)
def test_an_event_has_the_mark_of_what_it_says(body: Any, wanted: Mark) -> None:
    assert mark(event(body)) is wanted
    if is_failure(event(body)):
        assert wanted in (Mark.ERROR, Mark.DOUBT, Mark.APPROVAL, Mark.LIMIT)
    elif wanted is Mark.ERROR:
        raise AssertionError("an error that no filter calls a failure")


@pytest.mark.parametrize("kind", [*KINDS, "later.invented", "tool.invented"])
def test_every_type_has_a_mark_even_where_its_body_is_hidden_or_unknown(kind: str) -> None:
    assert mark(event(Redacted("[]"), kind)) is mark(event(Unknown("{}"), kind))
    assert (mark(event(Redacted("[]"), kind)) is Mark.OTHER) == kind.startswith(("later", "worktree", "source"))


def test_a_set_of_marks_fits_into_one_integer() -> None:
    assert bits([Mark.OTHER, Mark.EDIT, Mark.EDIT]) == 1 | 1 << Mark.EDIT
    assert marks_of(bits(Mark)) == frozenset(Mark)
    assert max(Mark) < 64
