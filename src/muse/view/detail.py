"""What one event holds beyond its row: the words, the command and its output, the diff, the rule.

For stepping through a session and for `show`. A text is cut at `DETAIL_LINES_MAX`; the log has it whole. This module
must not know widths or colours, nor where blobs are kept.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from muse.event import kinds
from muse.event.content import BlobRef
from muse.event.envelope import Event, Redacted, Unknown
from muse.view.amounts import duration, size
from muse.view.diff import Contents, file_diff
from muse.view.imported import facts
from muse.view.line import Line, Look
from muse.view.summary import cancel_target, cancelled_by, tokens, who
from muse.view.timeline import Context, Row, row
from muse.view.titles import arguments, call_title, command_of
from muse.view.visible import each_line, lines_of, one_line

DETAIL_LINES_MAX: Final = 2_000
TEXT_BYTES_MAX: Final = 1024 * 1024
"""Texts that are blobs are read up to this size."""


def detailed(event: Event, context: Context, contents: Contents, lines_max: int = DETAIL_LINES_MAX) -> Row:
    """The row of an event with its detail, cut at `lines_max` lines."""
    lines = list(islice(_lines(event, context, contents), lines_max + 1))
    if len(lines) > lines_max:
        lines[lines_max:] = [Line(f"… more: muse show @{event.seq}", "dim")]
    return msgspec.structs.replace(row(event, context), detail=tuple(lines))


def _lines(event: Event, context: Context, contents: Contents) -> Iterator[Line]:
    body = event.body
    if isinstance(body, Redacted):
        yield Line("hidden by redaction", "dim")
    elif isinstance(body, Unknown):
        yield from _text(body.text)
    elif (detail := _DETAILS.get(type(body))) is not None:
        yield from detail(body, contents)
    else:
        yield from _words(body)


def _text(text: str, look: Look = "plain") -> Iterator[Line]:
    for line in each_line(text):
        yield Line(line, look)


def _whole(value: str | BlobRef, contents: Contents) -> Iterator[Line]:
    """A text that may be a blob."""
    if isinstance(value, str):
        yield from _text(value)
    elif value.length > TEXT_BYTES_MAX:
        yield Line(f"({size(value.length)}: see it whole with --blob)", "dim")
    elif (data := contents(value)) is None:
        yield Line("hidden by redaction", "dim")
    else:
        yield from _text(data.decode(errors="replace"))


def _words(body: Any) -> Iterator[Line]:
    """The free texts of a body that has no form of its own."""
    for name in ("text", "why", "evidence", "reason", "message"):
        value = getattr(body, name, "")
        if isinstance(value, str) and value:
            yield from _text(value)
    origin = getattr(body, "origin", None)
    if origin is not None and (origin.user or origin.terminal):
        yield Line(f"by {who(origin)}", "dim")


def _opened(body: kinds.SessionOpened, contents: Contents) -> Iterator[Line]:
    host, settings = body.host, body.settings
    yield _named("workspace", body.workspace)
    yield _named("model", f"{settings.provider}/{settings.model} ({settings.dialect})")
    yield _named("mode", settings.mode)
    for name in ("allow", "ask", "deny"):
        for rule in getattr(settings.permissions, name):
            yield _named(name, rule)
    yield _named("host", f"{host.name}, process {host.pid}, {host.system}, muse {host.muse}", "dim")
    if body.git is not None:
        git = body.git
        changed = "an unknown number" if git.changed < 0 else git.changed
        yield _named("git", f"{git.branch or 'detached'} {git.head or 'no commit'}, {changed} changed", "dim")
    for instruction in body.instructions:
        cut = ", cut" if instruction.cut else ""
        yield _named("reads", f"{instruction.path} ({size(len(instruction.text.encode()))}{cut})", "dim")
    yield _named("tools", ", ".join(tool.name for tool in body.tools), "dim")
    if body.sandbox:
        yield _named("sandbox", body.sandbox, "dim")


def _named(name: str, value: str, look: Look = "plain") -> Line:
    return Line(f"{name:<10} {one_line(value)}", look)


def _spawned(body: kinds.AgentSpawned, contents: Contents) -> Iterator[Line]:
    yield from _text(body.task)
    facts = (
        ("name", body.name), ("role", body.role), ("for", _spawned_for(body)),
        ("model", body.model), ("mode", body.mode), ("works in", body.isolation if body.parent else ""),
        ("tools", ", ".join(body.tools) if body.parent else ""),
    )  # fmt: skip
    yield from (_named(name, value, "dim") for name, value in facts if value)
    if body.background:
        yield Line("in the background: its parent goes on meanwhile", "dim")
    yield from _text(body.system, "dim")


def _spawned_for(body: kinds.AgentSpawned) -> str:
    if body.wanted:
        return f"a person, who wanted it below {body.parent} at #{body.wanted}"
    return f"{body.call} of {body.parent}" if body.call else ""


def _wanted(body: kinds.AgentWanted, contents: Contents) -> Iterator[Line]:
    yield from _text(body.task)
    facts = (
        ("name", body.name), ("role", body.role), ("model", body.model), ("mode", body.mode),
        ("works in", body.isolation), ("tools", ", ".join(body.tools or ())),
    )  # fmt: skip
    yield from (_named(name, value, "dim") for name, value in facts if value)
    yield from _words(body)


def _ended(body: kinds.AgentFinished | kinds.ResultDelivered, contents: Contents) -> Iterator[Line]:
    if isinstance(body, kinds.ResultDelivered):
        yield _named("of", body.child, "dim")
    if body.outcome:
        yield _named("outcome", body.outcome, "bad" if body.outcome == "failed" else "dim")
    yield from _text(body.text)


def _messaged(body: kinds.AgentMessaged, contents: Contents) -> Iterator[Line]:
    yield _named("to", body.to, "dim")
    yield from _text(body.text)


def _question(body: kinds.QuestionAsked, contents: Contents) -> Iterator[Line]:
    yield from _text(body.text, "head")
    yield from (_named(str(at), option) for at, option in enumerate(body.options, 1))


def _cancelled(body: kinds.CancelRequested, contents: Contents) -> Iterator[Line]:
    yield _named("ends", cancel_target(body))
    yield from _text(body.why)
    yield Line(f"by {cancelled_by(body)}", "dim")


def _prepared(body: kinds.WorktreePrepared, contents: Contents) -> Iterator[Line]:
    yield _named("path", body.path)
    yield _named("from", body.base or "the files of a folder that is no repository", "dim")
    yield from _text(body.error, "bad")


def _removed(body: kinds.WorktreeRemoved, contents: Contents) -> Iterator[Line]:
    yield _named("path", body.path)
    yield from (_named("left", path, "head") for path in body.left)
    yield from _text(body.why, "dim")


def _compacted(body: kinds.ContextCompacted, contents: Contents) -> Iterator[Line]:
    yield _named("events", f"#{body.first} to #{body.last}; the log keeps all of them", "dim")
    if body.bytes_before:
        yield _named("transcript", f"{size(body.bytes_before)} → {size(body.bytes_after)}", "dim")
    if body.calls:
        yield _named("results of", ", ".join(body.calls), "dim")
    if body.call:
        yield _named("written by", body.call, "dim")
    yield from _text(body.text)


def _requested(body: kinds.ModelRequested, contents: Contents) -> Iterator[Line]:
    items = f"{body.items} transcript items, {size(body.request_bytes)}, built by {one_line(body.builder)}"
    yield Line(items, "dim")
    yield Line(f"sha256 {one_line(body.request_sha256)}", "dim")


def _responded(body: kinds.ModelResponded, contents: Contents) -> Iterator[Line]:
    for block in body.blocks:
        if block.kind == "text":
            yield from _text(block.text)
        elif block.kind == "reasoning":
            yield from _text(block.text, "dim")
        elif block.kind == "tool_use":
            yield from use_lines(block.name, block.args)
        else:
            yield from _text(block.text or block.raw, "dim")
    if used := tokens(body.usage):
        yield Line(used, "dim")


def use_lines(tool: str, args: str) -> Iterator[Line]:
    """A tool use as the model asked for it: the command, the path, or the arguments one by one."""
    command = command_of(tool, args)
    if command:
        first, *rest = lines_of(command) or [""]
        yield Line(f"→ {one_line(tool)}: $ {first}", "head")
        for line in rest:
            yield Line(f"  {line}", "head")
        return
    yield Line(f"→ {one_line(tool)}: {call_title(tool, args)}", "head")


def _started(body: kinds.ToolStarted, contents: Contents) -> Iterator[Line]:
    command = command_of(body.tool, body.args)
    if command:
        for at, line in enumerate(lines_of(command)):
            yield Line(f"{'$' if at == 0 else ' '} {line}", "head")
    elif isinstance(body.args, str):
        yield from argument_lines(body.args)
    else:
        yield from _whole(body.args, contents)
    if body.observed.folder:
        yield Line(f"in {one_line(body.observed.folder)}", "dim")
    if body.observed.error:
        yield from _text(body.observed.error, "bad")
    by = f"#{body.approval}" if body.approval else one_line(body.allowed_by.removeprefix("allowed by "))
    if body.approval or body.allowed_by:
        yield Line(f"allowed by {by}", "dim")


def argument_lines(args: str) -> Iterator[Line]:
    """Arguments one by one, long texts over several lines; what is no object as it stands."""
    value = arguments(args)
    if value is None:
        yield from _text(args)
        return
    for name, item in value.items():
        text = item if isinstance(item, str) else msgspec.json.encode(item).decode()
        first, *rest = lines_of(text) or [""]
        yield Line(f"{one_line(name)}: {first}")
        for line in rest:
            yield Line(f"  {line}")


def _finished(body: kinds.ToolFinished, contents: Contents) -> Iterator[Line]:
    yield from _whole(body.text, contents)
    if body.output is not None:
        yield Line(f"whole output: {size(body.output.length)} (--blob output)", "dim")


def _failed(body: kinds.ModelFailed, contents: Contents) -> Iterator[Line]:
    yield from _text(body.message)
    if body.retry_after_ms is not None:
        yield Line(f"the provider says: again in {duration(body.retry_after_ms)}", "dim")
    if body.retry_until:
        yield Line(f"the provider says: not before {one_line(body.retry_until)}", "dim")
    if body.partial:
        yield Line("it had begun:", "dim")
        yield from _text(body.partial, "dim")


def _changed(body: kinds.FilesChanged, contents: Contents) -> Iterator[Line]:
    for change in body.changes:
        yield from file_diff(change, contents)


def _asked(body: kinds.ApprovalRequested, contents: Contents) -> Iterator[Line]:
    yield from _text(body.shown)
    if body.rule:
        yield Line(f"asked because: {one_line(body.rule)}", "dim")
    if body.remember:
        yield Line(f"“always” would allow: {one_line(body.remember)}", "dim")


def _decided(body: kinds.ApprovalDecided, contents: Contents) -> Iterator[Line]:
    if body.note:
        yield from _text(body.note)
    if body.rule:
        yield Line(f"rule: {one_line(body.rule)}", "dim")
    if body.remember:
        yield Line(f"allowed from now on: {one_line(body.remember)}", "dim")
    if body.request:
        yield Line(f"answers #{body.request}", "dim")
    if body.by == "person":
        yield Line(f"by {who(body.origin)}", "dim")


def _imported(body: kinds.LogImported, contents: Contents) -> Iterator[Line]:
    looks: dict[str, Look] = {"missing": "head", "unknown": "bad", "unreadable": "bad", "kept": "dim", "sha256": "dim"}
    yield from (_named(name, value, looks.get(name, "plain")) for name, value in facts(body))


def _kept(body: kinds.SourceKept, contents: Contents) -> Iterator[Line]:
    yield _named("line", f"{body.line}, {body.what} ({body.why.replace('_', ' ')})", "dim")
    if isinstance(body.raw, str) and body.raw and arguments(body.raw) is not None:
        yield from _text(msgspec.json.format(body.raw, indent=2))
    else:
        yield from _whole(body.raw, contents)


_DETAILS: Final[dict[type, Callable[[Any, Contents], Iterator[Line]]]] = {
    kinds.AgentFinished: _ended, kinds.ResultDelivered: _ended, kinds.AgentMessaged: _messaged,
    kinds.QuestionAsked: _question, kinds.CancelRequested: _cancelled, kinds.WorktreePrepared: _prepared,
    kinds.WorktreeRemoved: _removed, kinds.ContextCompacted: _compacted,
    kinds.SessionOpened: _opened, kinds.AgentSpawned: _spawned, kinds.ModelRequested: _requested,
    kinds.AgentWanted: _wanted,
    kinds.ModelResponded: _responded, kinds.ModelFailed: _failed, kinds.ToolStarted: _started,
    kinds.ToolFinished: _finished, kinds.FilesChanged: _changed, kinds.ApprovalRequested: _asked,
    kinds.ApprovalDecided: _decided, kinds.LogImported: _imported, kinds.SourceKept: _kept,
}  # fmt: skip
