"""A session as a Markdown document for a reader: the task, what was done and why, what it cost, how it ended.

Written as a stream of lines. Foreign text stands only inside fenced blocks and code spans (CommonMark §4.5, §6.1),
each with a fence longer than any run of backticks in it, so that no content can end its block or become markup.
This module must not know where blobs are kept.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from muse.event import kinds
from muse.event.content import Usage
from muse.event.envelope import Event
from muse.view.agents_told import called_words, spawn_words, wanted_words
from muse.view.amounts import duration, money, plural
from muse.view.detail import detailed
from muse.view.diff import Contents, file_diff
from muse.view.imported import facts
from muse.view.line import Line
from muse.view.summary import (
    by_whom,
    cancel_target,
    cancelled_by,
    change,
    decision_words,
    outcome_words,
    tokens,
    who,
)  # fmt: skip
from muse.view.timeline import Context, Row, learn, row
from muse.view.titles import SHELLS, command_of
from muse.view.visible import lines_of, one_line

OUTPUT_HEAD_LINES: Final = 40
OUTPUT_TAIL_LINES: Final = 20
WORDS_LINES_MAX: Final = 2_000
DIFF_LINES_MAX: Final = 400
LINE_CHARACTERS_MAX: Final = 1_000

_ticks: Final = re.compile(r"`+")
_QUIET: Final = frozenset({"model.requested", "timer.fired"})


class Proof(msgspec.Struct, frozen=True):
    """The place in the chain up to which the document tells: a seq and its hash (hex)."""

    seq: int
    hash: str


class _Tally(msgspec.Struct):
    """What is counted on the way."""

    first: str = ""
    last: str = ""
    responses: int = 0
    failures: int = 0
    commands: int = 0
    tools: int = 0
    edits: int = 0
    doubts: int = 0
    openings: int = 0
    usage: Usage = Usage()
    ending: str = ""


def document(session: str, events: Iterable[Event], contents: Contents, proof: Proof) -> Iterator[str]:
    """The lines of the document, without their ends."""
    context, tally, reading = Context(), _Tally(), set[str]()
    yield from (f"# Session {span(session)}", "")
    for event in events:
        learn(context, event)
        _count(tally, event)
        if isinstance(event.body, kinds.ToolStarted) and event.body.recovery == "pure":
            reading.add(event.body.call)
        teller = _TELLERS.get(type(event.body))
        if teller is not None:
            yield from teller(event, event.body, row(event, context), contents)
        elif isinstance(event.body, kinds.ToolFinished):
            yield from _finished(event, event.body, row(event, context), contents, event.body.call in reading)
        elif not _is_quiet(event):
            yield from _aside(event, row(event, context))
    yield from _end(session, tally, proof)


def _is_quiet(event: Event) -> bool:
    """Whether an event tells a reader nothing that its neighbours do not."""
    if isinstance(event.body, kinds.SourceKept) and event.body.why in ("no_counterpart", "repeated"):
        return True
    return event.type in _QUIET


def span(text: str) -> str:
    """A text on one line as a code span."""
    shown = one_line(text)
    if not shown:
        return "` `"
    fence = "`" * (max((len(run) for run in _ticks.findall(shown)), default=0) + 1)
    edge = " " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def block(lines: Sequence[str], info: str = "text") -> Iterator[str]:
    """Lines as a fenced block, each cut at `LINE_CHARACTERS_MAX`."""
    cut = [_cut_line(line) for line in lines]
    longest = max((len(run) for line in cut for run in _ticks.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{info}", *cut, fence, "")


def _cut_line(line: str) -> str:
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    return f"{line[:LINE_CHARACTERS_MAX]}… {len(line) - LINE_CHARACTERS_MAX:,} more characters"


def _cut_lines(lines: list[str], head: int, tail: int, seq: int) -> list[str]:
    left_out = len(lines) - head - tail
    if left_out <= 0:
        return lines
    note = f"… {plural(left_out, 'line')} left out: muse show @{seq}"
    return [*lines[:head], note, *(lines[-tail:] if tail else [])]


def _words(text: str, seq: int) -> Iterator[str]:
    yield from block(_cut_lines(lines_of(text), WORDS_LINES_MAX, 0, seq))


def _lane(event: Event) -> str:
    return f" ({event.agent})" if event.agent != "main" else ""


# -- events ----------------------------------------------------------------------------------------------------------


def _opened(event: Event, body: kinds.SessionOpened, shown: Row, contents: Contents) -> Iterator[str]:
    settings = body.settings
    if event.epoch > 1 or event.seq > 1:
        how = "it had been left without closing" if body.crashed else "a new host"
        yield from (f"**#{event.seq} reopened** at {event.time}: {how}, muse {span(body.host.muse)}", "")
        return
    yield f"- opened at {event.time} on {span(body.host.name)} with muse {span(body.host.muse)}"
    yield f"- workspace {span(body.workspace)}"
    if body.git is not None:
        state = f"branch {span(body.git.branch or 'detached')} at {span(body.git.head or 'no commit')}"
        yield f"- git {state}, {plural(body.git.changed, 'changed path')} at the start"
    yield f"- model {span(f'{settings.provider}/{settings.model}')}"
    yield f"- permission mode {span(settings.mode)}"
    yield from (f"- {name} {span(rule)}" for name in ("allow", "ask", "deny") for rule in _rules(body, name))
    yield from (f"- instructions {span(file.path)}" for file in body.instructions)
    yield ""


def _imported(event: Event, body: kinds.LogImported, shown: Row, contents: Contents) -> Iterator[str]:
    if event.seq > 1:
        yield from _aside(event, shown)
        return
    yield f"**This log was imported** from a file of another agent; it begins at {event.time}."
    yield ""
    yield from (f"- {name} {span(value)}" for name, value in facts(body))
    yield ""


def _rules(body: kinds.SessionOpened, name: str) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(body.settings.permissions, name)
    return found


def _prompted(event: Event, body: kinds.UserPrompted, shown: Row, contents: Contents) -> Iterator[str]:
    how = {"queue": "", "steer": ", joining the running turn", "replace": ", instead of the running turn"}
    yield from (f"## Task #{event.seq}{_lane(event)}{how[body.delivery]}", "", *_words(body.text, event.seq))


def _steered(event: Event, body: kinds.AgentSteered, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} steer**{_lane(event)} by {span(who(body.origin))}:", "", *_words(body.text, event.seq))


def _wanted(event: Event, body: kinds.AgentWanted, shown: Row, contents: Contents) -> Iterator[str]:
    called = called_words(body.name, body.role)
    how = wanted_words(body).removeprefix(", ")
    what = f"{f' {span(called)}' if called else ''}{f' ({span(how)})' if how else ''}"
    yield from (f"**#{event.seq} spawn**{_lane(event)} by {span(who(body.origin))}: an agent{what}", "")
    yield from _words(body.task, event.seq)


def _cancelled(event: Event, body: kinds.CancelRequested, shown: Row, contents: Contents) -> Iterator[str]:
    why = f": {span(body.why)}" if body.why else ""
    target = f"the call {span(body.call)}" if body.target == "call" else cancel_target(body)
    yield from (f"**#{event.seq} cancel**{_lane(event)} of {target} by {span(cancelled_by(body))}{why}", "")


def _spawned(event: Event, body: kinds.AgentSpawned, shown: Row, contents: Contents) -> Iterator[str]:
    """A child, with what it is to do; of `main` its prompt says it."""
    if not body.task:
        return
    called = called_words(body.name, body.role)
    name = f"{span(event.agent)}{f' {span(called)}' if called else ''}"
    how = spawn_words(body).removeprefix(", ")
    by = f" by call {span(body.call)}" if body.call else f", as wanted at #{body.wanted}" if body.wanted else ""
    yield from (f"## Agent {name} #{event.seq}", "")
    yield from (f"Begun for {span(body.parent)}{by}{f' ({span(how)})' if how else ''}:", "")
    yield from _words(body.task, event.seq)


def _finished_agent(event: Event, body: kinds.AgentFinished, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} agent {span(event.agent)} ended**: {outcome_words(body.outcome)}", "")
    if body.text:
        yield from _words(body.text, event.seq)


def _delivered(event: Event, body: kinds.ResultDelivered, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} result**{_lane(event)} of {span(body.child)} was given to {span(event.agent)}", "")


def _messaged(event: Event, body: kinds.AgentMessaged, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} message** of {span(event.agent)} to {span(body.to)}:", "")
    yield from _words(body.text, event.seq)


def _question(event: Event, body: kinds.QuestionAsked, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} question**{_lane(event)} to a person:", "", *_words(body.text, event.seq))
    if body.options:
        yield from (f"Offered: {', '.join(map(span, body.options))}.", "")


def _answered(event: Event, body: kinds.QuestionAnswered, shown: Row, contents: Contents) -> Iterator[str]:
    by = span(who(body.origin))
    yield from (f"**#{event.seq} answer**{_lane(event)} to #{body.question} by {by}:", "")
    yield from _words(body.text, event.seq)


def _compacted(event: Event, body: kinds.ContextCompacted, shown: Row, contents: Contents) -> Iterator[str]:
    yield from _aside(event, shown)
    if body.method == "summary":
        yield from ("", *_words(body.text, event.seq))


def _responded(event: Event, body: kinds.ModelResponded, shown: Row, contents: Contents) -> Iterator[str]:
    used = tokens(body.usage)
    took = "" if shown.duration_ms is None else duration(shown.duration_ms)
    facts = "; ".join(part for part in (took, used) if part)
    yield from (f"### #{event.seq} The model{_lane(event)}", "", *((f"({facts})", "") if facts else ()))
    for one in body.blocks:
        if one.kind == "reasoning" and one.text:
            yield from ("It considered:", "", *_words(one.text, event.seq))
        elif one.kind == "text" and one.text:
            yield from _words(one.text, event.seq)
    uses = [span(one.name) for one in body.blocks if one.kind == "tool_use"]
    if uses:
        yield from (f"It asked for {', '.join(uses)}.", "")
    if body.stop not in ("end_turn", "tool_use"):
        yield from (f"It stopped: {span(body.stop_raw or body.stop)}.", "")


def _failed(event: Event, body: kinds.ModelFailed, shown: Row, contents: Contents) -> Iterator[str]:
    status = f" ({body.status})" if body.status else ""
    message = f": {span(body.message)}" if body.message else ""
    words = f"{body.failure.replace('_', ' ')}{status}, attempt {body.attempt}"
    yield from (f"**#{event.seq} the model failed**{_lane(event)}: {words}{message}", "")
    if body.partial:
        yield from ("It had begun:", "", *_words(body.partial, event.seq))


def _started(event: Event, body: kinds.ToolStarted, shown: Row, contents: Contents) -> Iterator[str]:
    if body.approval:
        allowed = f"allowed by #{body.approval}"
    else:
        allowed = f"allowed by {span(body.allowed_by.removeprefix('allowed by '))}" if body.allowed_by else ""
    again = f", attempt {body.attempt}" if body.attempt > 1 else ""
    head = f"**#{event.seq} {span(body.tool)}**{_lane(event)}{again}"
    why = f" ({allowed})" if allowed else ""
    command = command_of(body.tool, body.args)
    if command:
        yield from (f"{head}{why}", "", *block(lines_of(command), "sh"))
    else:
        yield from (f"{head} {span(shown.summary)}{why}", "")


def _finished(event: Event, body: kinds.ToolFinished, shown: Row, contents: Contents, quiet: bool) -> Iterator[str]:
    """`quiet`: a call that only reads, whose text is not repeated here unless it failed."""
    words = {"ok": "done", "error": "failed", "cancelled": "cancelled", "unknown": "may or may not have happened"}
    facts = [words[body.status]]
    if body.exit_code is not None:
        facts = [f"exit code {body.exit_code}", *([words[body.status]] if body.status not in ("ok", "error") else [])]
    if body.timed_out:
        facts.append("timed out")
    if shown.duration_ms is not None:
        facts.append(duration(shown.duration_ms))
    name = span(shown.label)
    yield from (f"**#{event.seq} {name} {', '.join(facts)}**", "")
    if quiet and body.status == "ok":
        return
    text = detailed(event, Context(), contents).detail
    if text:
        lines = _cut_lines([line.text for line in text], OUTPUT_HEAD_LINES, OUTPUT_TAIL_LINES, event.seq)
        yield from block(lines)


def _changed(event: Event, body: kinds.FilesChanged, shown: Row, contents: Contents) -> Iterator[str]:
    who_did = by_whom(body).strip()
    by = f" {span(who_did)}" if who_did else ""
    for one in body.changes:
        yield from (f"**#{event.seq} file** {span(change(one))}{by}", "")
        lines: list[Line] = list(file_diff(one, contents))[1:]
        if lines:
            texts = _cut_lines([line.text for line in lines], DIFF_LINES_MAX, 0, event.seq)
            yield from block(texts, "diff")


def _asked(event: Event, body: kinds.ApprovalRequested, shown: Row, contents: Contents) -> Iterator[str]:
    rule = f", because {span(body.rule)}" if body.rule else ""
    lines = _cut_lines(lines_of(body.shown), OUTPUT_HEAD_LINES, OUTPUT_TAIL_LINES, event.seq)
    yield from (f"**#{event.seq} approval asked**{_lane(event)}{rule}:", "", *block(lines))


def _decided(event: Event, body: kinds.ApprovalDecided, shown: Row, contents: Contents) -> Iterator[str]:
    answers = f" (answers #{body.request})" if body.request else ""
    yield from (f"**#{event.seq} approval** {span(decision_words(body))}{answers}", "")


def _doubted(event: Event, body: kinds.EffectDoubted, shown: Row, contents: Contents) -> Iterator[str]:
    yield from (f"**#{event.seq} in doubt**{_lane(event)}: {span(shown.summary)} ({span(body.call)})", "")


def _reconciled(event: Event, body: kinds.EffectReconciled, shown: Row, contents: Contents) -> Iterator[str]:
    evidence = f" Evidence: {span(body.evidence)}" if body.evidence else ""
    yield from (f"**#{event.seq} {shown.label}**{_lane(event)}: {span(shown.summary)}.{evidence}", "")


def _aside(event: Event, shown: Row) -> Iterator[str]:
    """Any other event, on one line."""
    yield from (f"- #{event.seq} {shown.mark} {span(f'{shown.label}: {shown.summary}'.rstrip(': '))}{_lane(event)}", "")


_TELLERS: Final[dict[type, Callable[[Event, Any, Row, Contents], Iterator[str]]]] = {
    kinds.SessionOpened: _opened, kinds.UserPrompted: _prompted, kinds.AgentSteered: _steered,
    kinds.AgentWanted: _wanted,
    kinds.CancelRequested: _cancelled, kinds.ModelResponded: _responded, kinds.ModelFailed: _failed,
    kinds.ToolStarted: _started, kinds.FilesChanged: _changed, kinds.ApprovalRequested: _asked,
    kinds.ApprovalDecided: _decided, kinds.EffectDoubted: _doubted, kinds.EffectReconciled: _reconciled,
    kinds.LogImported: _imported, kinds.AgentSpawned: _spawned, kinds.AgentFinished: _finished_agent,
    kinds.ResultDelivered: _delivered, kinds.AgentMessaged: _messaged, kinds.QuestionAsked: _question,
    kinds.QuestionAnswered: _answered, kinds.ContextCompacted: _compacted,
}  # fmt: skip


# -- the end ---------------------------------------------------------------------------------------------------------


def _count(tally: _Tally, event: Event) -> None:
    tally.first = tally.first or event.time
    tally.last = event.time
    body = event.body
    if not isinstance(body, kinds.NoteAdded):
        tally.ending = ""
    match body:
        case kinds.SessionOpened():
            tally.openings += 1
        case kinds.ModelResponded():
            tally.responses += 1
            tally.usage = _added(tally.usage, body.usage)
        case kinds.ModelFailed():
            tally.failures += 1
        case kinds.ToolStarted():
            tally.tools += body.attempt == 1
            tally.commands += body.attempt == 1 and body.tool in SHELLS
        case kinds.FilesChanged():
            tally.edits += len(body.changes)
        case kinds.EffectDoubted():
            tally.doubts += 1
        case kinds.SessionClosed():
            reason = f": {span(body.reason)}" if body.reason else ""
            tally.ending = (
                span(body.reason)
                if body.outcome == "unanswered" and body.reason
                else (f"{outcome_words(body.outcome)}{reason}")
            )
        case _:
            pass


def _end(session: str, tally: _Tally, proof: Proof) -> Iterator[str]:
    yield from ("## How it ended", "")
    yield f"- {tally.ending or 'it has not ended: the session is open, or its host is gone'}"
    yield f"- {plural(tally.responses, 'model response')}, {plural(tally.failures, 'failed attempt')}"
    yield f"- {plural(tally.tools, 'tool call')}, of which {plural(tally.commands, 'command')}; " + (
        f"{plural(tally.edits, 'file change')}"
    )
    if tally.openings:
        yield f"- {plural(tally.openings, 'host')}, {plural(tally.doubts, 'effect')} in doubt after a crash"
    usage = tally.usage
    cost = money(usage.cost_microusd) if usage.cost_microusd else "not known"
    yield f"- tokens: {tokens(usage) or 'not reported'}; cost: {cost}"
    yield f"- {tally.first} to {tally.last} ({_length(tally)})"
    yield from ("", "## Proof", "")
    yield f"This document was made from the log up to event {proof.seq}, whose chain value is"
    yield from ("", *block([f"{proof.seq}:{proof.hash}"]))
    yield "Kept elsewhere, it shows later whether the log was changed or cut. To check the log, or an export of it:"
    yield ""
    name, head = shlex.quote(one_line(session)), f"--head {proof.seq}:{proof.hash}"
    yield from block([f"muse verify {name} {head}", f"muse export {name} -o session.jsonl"], "sh")


def _length(tally: _Tally) -> str:
    if not tally.first:
        return "nothing happened"
    begun, ended = datetime.fromisoformat(tally.first), datetime.fromisoformat(tally.last)
    return duration(max(0, int((ended - begun).total_seconds() * 1000)))


def _added(a: Usage, b: Usage) -> Usage:
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in Usage.__struct_fields__})
