"""One line for each event type: the words of the timeline.

A table from body type to a function; a test holds it complete. Texts from outside pass through `headline` or
`one_line`, which make them safe. This module must not know widths or colours.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from muse import budget
from muse.event import kinds
from muse.event.content import FileChange, Origin, Usage
from muse.event.envelope import Event
from muse.view.agents_told import brief, called_words, spawn_words, wanted_words
from muse.view.amounts import duration, money, plural, size
from muse.view.titles import kept_words
from muse.view.visible import command_line, headline, middle, one_line

Severity = Literal["quiet", "normal", "good", "bad", "attention"]
FILES_NAMED_MAX = 4
TREE = "the agent and all below it"
WORKSPACE_COLUMNS = 23
"""How much of a workspace's path stands in a row; `show` has it whole."""


class Said(msgspec.Struct, frozen=True):
    """What a row says. `ending` is kept when `summary` is cut; `timed`: the body's duration belongs to the row."""

    mark: str
    label: str
    summary: str
    severity: Severity = "normal"
    timed: bool = False
    ending: str = ""


def who(origin: Origin) -> str:
    """A person as far as a command tells: `ada on /dev/pts/3`."""
    if origin.client and not origin.pid and not origin.user:  # from another agent's file
        return f"the user, says {brief(origin.client)}"
    place = f" on {brief(origin.terminal)}" if origin.terminal else ""
    return f"{brief(origin.user)}{place}" if origin.user else "somebody with this user's rights"


def tokens(usage: Usage) -> str:
    """`1,200 in (800 cached), 300 out, $0.0042`; "" when nothing was counted."""
    if usage == Usage():
        return ""
    total = usage.input + usage.cache_read + usage.cache_write
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    cost = f", {money(usage.cost_microusd)}" if usage.cost_microusd else ""
    return f"{total:,} in{cached}, {usage.output:,} out{cost}"


def change(one: FileChange) -> str:
    """`new a.py (12 B)`, `a.py (12 B → 14 B)`, `deleted a.py`."""
    path = headline(one.path, 200)
    if one.note:
        return f"{path} ({headline(one.note, 100)})"
    mode = f"mode {one.before_mode:o} → {one.after_mode:o}" if 0 < one.before_mode != one.after_mode > 0 else ""
    if one.before is None and one.after is None:
        return f"{path} ({mode})" if mode else path
    if one.before is None and one.after is not None:
        return f"new {path} ({size(one.after.length)})"
    if one.after is None:
        return f"deleted {path}"
    assert one.before is not None
    sizes = f"{size(one.before.length)} → {size(one.after.length)}"
    return f"{path} ({sizes}, {mode})" if mode else f"{path} ({sizes})"


def _some(parts: list[str]) -> str:
    more = f" and {len(parts) - FILES_NAMED_MAX} more" if len(parts) > FILES_NAMED_MAX else ""
    return ", ".join(parts[:FILES_NAMED_MAX]) + more


def _because(text: str) -> str:
    return f": {headline(text, 300)}" if text else ""


def _attempt(number: int) -> str:
    return f"  attempt {number}" if number > 1 else ""


# -- session and people ----------------------------------------------------------------------------------------------


def _opened(body: kinds.SessionOpened, event: Event, tool: str, title: str) -> Said:
    settings = body.settings
    parts = [middle(one_line(body.workspace), WORKSPACE_COLUMNS), brief(f"{settings.provider}/{settings.model}")]
    ending = f"mode {brief(settings.mode)}"
    if body.git is not None:
        dirty = f", {plural(body.git.changed, 'changed path')}" if body.git.changed else ""
        branch = brief(body.git.branch) or "detached"
        parts.append(f"git {branch}{f' {brief(body.git.head[:8])}' if body.git.head else ''}{dirty}")
    where = "  ".join(parts)
    if body.crashed:
        return Said("→", "reopened", f"it had been left without closing  {where}", "attention", ending=ending)
    again = event.epoch > 1
    return Said("→" if again else "▶", "reopened" if again else "opened", where, ending=ending)


_ENDS: dict[str, tuple[str, str, Severity]] = {
    "done": ("✓", "done", "good"),
    "failed": ("✗", "the task failed", "bad"),
    "cancelled": ("■", "cancelled", "attention"),
    "provider": ("✗", "the model gave no answer", "bad"),
    "unanswered": ("✗", "nobody answered an approval", "bad"),
    "budget": ("✗", "a limit was reached", "bad"),
    "imported": ("⇥", "imported", "quiet"),
}


_PROVIDER_ENDS: dict[str, str] = {
    "network": "the model could not be reached", "timeout": "the model did not answer in time",
    "auth": "the provider refused the key", "invalid": "the provider refused the request",
    "too_large": "the provider refused the request", "rate_limited": "the provider limits how often it is asked",
    "overloaded": "the provider is overloaded", "server": "the provider failed",
    "cut": "the provider's answer broke off", "garbage": "the provider's answer could not be read",
}  # fmt: skip
"""Class of the last failure, which a reason begins with → how the session ended."""

_http_answer = re.compile(r"\S+ answered ([0-9]{3}): ?(.*)")


def provider_failure(reason: str) -> str:
    """The class of failure that a session's reason begins with, "" for none."""
    return reason.partition(":")[0] if reason.partition(":")[0] in _PROVIDER_ENDS else ""


def _provider_words(reason: str) -> str:
    failure = provider_failure(reason)
    if not failure:
        return _ENDS["provider"][1] + _because(reason)
    words, message = _PROVIDER_ENDS[failure], headline(reason.partition(":")[2], 300)
    if found := _http_answer.fullmatch(message):
        return f"{words} ({found[1]}: {found[2]})" if found[2] else f"{words} ({found[1]})"
    return words + _because(message)


def outcome_words(outcome: str, reason: str = "") -> str:
    """How a session ended, in words."""
    if outcome == "provider" and reason:
        return _provider_words(reason)
    if outcome == "unanswered" and reason:  # the reason says it, with the number of the request
        return headline(reason, 300)
    return (_ENDS[outcome][1] if outcome in _ENDS else brief(outcome)) + _because(reason)


def _closed(body: kinds.SessionClosed, event: Event, tool: str, title: str) -> Said:
    mark, _, severity = _ENDS[body.outcome]
    if body.outcome == "imported":
        return Said(mark, "frozen", "the imported file ends here", severity)
    words = outcome_words(body.outcome, body.reason)
    if body.outcome == "provider" and provider_failure(body.reason):
        words = _PROVIDER_ENDS[provider_failure(body.reason)]  # the event before it is the failure, with its text
    return Said(mark, "closed", words, severity)


def _refused_command(body: kinds.CommandRefused, event: Event, tool: str, title: str) -> Said:
    return Said("✗", "refused", f"command #{body.command} is not followed: {refusal_words(body)}", "attention")


def refusal_words(body: kinds.CommandRefused) -> str:
    """Why a command is not followed."""
    why = {
        "below_runner": "it came from a process that the agent started",
        "no_origin": "it does not say where it came from",
        "impossible": headline(body.text, 300) or "it cannot be",
    }
    return why[body.why]


def _note(body: kinds.NoteAdded, event: Event, tool: str, title: str) -> Said:
    return Said("✎", "note", headline(body.text))


def _prompted(body: kinds.UserPrompted, event: Event, tool: str, title: str) -> Said:
    how = {"queue": "", "steer": "(joins the running turn) ", "replace": "(instead of the running turn) "}
    return Said("›", "prompt", how[body.delivery] + headline(body.text), "attention")


def _steered(body: kinds.AgentSteered, event: Event, tool: str, title: str) -> Said:
    return Said("›", "steer", headline(body.text), "attention")


def _wanted(body: kinds.AgentWanted, event: Event, tool: str, title: str) -> Said:
    called = f" {called_words(body.name, body.role)}".rstrip()
    return Said("›", "spawn", f"an agent{called}{wanted_words(body)}: {headline(body.task)}", "attention")


def _asked(body: kinds.QuestionAsked, event: Event, tool: str, title: str) -> Said:
    options = f"  [{_some([brief(option) for option in body.options])}]" if body.options else ""
    return Said("?", "question", headline(body.text) + options, "attention")


def _answered(body: kinds.QuestionAnswered, event: Event, tool: str, title: str) -> Said:
    return Said("›", "answer", f"to #{body.question}: {headline(body.text)}", "attention")


def cancel_target(body: kinds.CancelRequested) -> str:
    """What is to end, in words; of a call only that it is one."""
    what = {"turn": "the turn", "agent": "the agent", "tree": TREE, "call": "the call"}
    return f"the prompt #{body.prompt}, which waits" if body.target == "prompt" else what[body.target]


def cancelled_by(body: kinds.CancelRequested) -> str:
    """Who wants it: a person, or an agent by a call of its."""
    return brief(body.by) if body.by else who(body.origin)


def _cancel(body: kinds.CancelRequested, event: Event, tool: str, title: str) -> Said:
    target = (brief(f"{tool} {title}".strip()) if body.target == "call" else "") or cancel_target(body)
    return Said("■", "cancel", f"{target}{_because(body.why)}  by {cancelled_by(body)}", "attention")


def _paused(body: kinds.AgentPaused, event: Event, tool: str, title: str) -> Said:
    where = f" in {TREE}" if body.target == "tree" else ""
    return Said("■", "pause", f"nothing new starts{where}{_because(body.why)}", "attention")


def _continued(body: kinds.AgentContinued, event: Event, tool: str, title: str) -> Said:
    goes = f"{TREE} go on" if body.target == "tree" else "goes on"
    return Said("▶", "continue", f"{goes} after the pause")


def _rewound(body: kinds.SessionRewound, event: Event, tool: str, title: str) -> Said:
    return Said("↶", "rewind", f"the conversation goes on from #{body.to}", "attention")


def _forked(body: kinds.SessionForked, event: Event, tool: str, title: str) -> Said:
    at = f"#{body.at} of " if body.at else ""
    return Said("⑂", "fork", f"goes on from {at}{brief(body.parent)}")


# -- agents ----------------------------------------------------------------------------------------------------------


def _spawned(body: kinds.AgentSpawned, event: Event, tool: str, title: str) -> Said:
    parent = f" for {brief(body.parent)}" if body.parent else ""
    task = f": {headline(body.task)}" if body.task else ""
    tools = f", {plural(len(body.tools), 'tool')}" if body.tools or event.epoch else ""
    called = f" {called_words(body.name, body.role)}".rstrip()
    return Said("+", "agent", f"{event.agent}{called} begins{parent}{tools}{spawn_words(body)}{task}", "quiet")


def _messaged(body: kinds.AgentMessaged, event: Event, tool: str, title: str) -> Said:
    return Said("→", "message", f"to {brief(body.to)}: {headline(body.text)}")


def _delivered(body: kinds.ResultDelivered, event: Event, tool: str, title: str) -> Said:
    ended = f", {_ENDS[body.outcome][1]}" if body.outcome else ""
    severity: Severity = "bad" if body.outcome == "failed" else "normal"
    return Said("→", "result", f"of {brief(body.child)}{ended}: {headline(body.text)}", severity)


def _finished_agent(body: kinds.AgentFinished, event: Event, tool: str, title: str) -> Said:
    mark, words, severity = _ENDS[body.outcome]
    return Said(mark, "agent", f"{event.agent} ended: {words}{_because(body.text)}", severity)


# -- the model -------------------------------------------------------------------------------------------------------


def _requested(body: kinds.ModelRequested, event: Event, tool: str, title: str) -> Said:
    asked = brief(f"asks {body.provider}/{body.model}")
    summary = " for a summary" if body.purpose == "summary" else ""
    return Said("…", "model", f"{asked}{summary}  {size(body.request_bytes)}{_attempt(body.attempt)}", "quiet")


def _responded(body: kinds.ModelResponded, event: Event, tool: str, title: str) -> Said:
    text = next((headline(block.text) for block in body.blocks if block.kind == "text" and block.text.strip()), "")
    uses = _some([brief(block.name) for block in body.blocks if block.kind == "tool_use"])
    stop = {
        "max_tokens": "(cut at its output limit)",
        "refusal": "(declined)",
        "other": brief(f"({body.stop_raw})") if body.stop_raw else "",
    }
    parts = [f"“{text}”" if text else "", f"→ {uses}" if uses else "", stop.get(body.stop, "")]
    words = " ".join(part for part in parts if part) or "(no words)"
    used = tokens(body.usage)
    bad = body.stop in ("max_tokens", "refusal")
    return Said("✗" if bad else "✓", "model", words + (f"  {used}" if used else ""), "bad" if bad else "normal", True)


def _failed(body: kinds.ModelFailed, event: Event, tool: str, title: str) -> Said:
    if body.failure == "cancelled":
        return Said("■", "model", "the request was cancelled", "attention", timed=True)
    status = f" ({body.status})" if body.status else ""
    words = body.failure.replace("_", " ")
    until = f"  not before {brief(body.retry_until)}" if body.retry_until else ""
    said = f"{words}{status}{_because(body.message)}{until}{_attempt(body.attempt)}"
    return Said("✗", "model", said, "bad", timed=True)


def _model_changed(body: kinds.ModelChanged, event: Event, tool: str, title: str) -> Said:
    back = "falls back: " if body.reason == "fallback" else ""
    return Said("·", "model", brief(f"{back}from now on {body.provider}/{body.model}"), "attention")


def _compacted(body: kinds.ContextCompacted, event: Event, tool: str, title: str) -> Said:
    sizes = f", {size(body.bytes_before)} → {size(body.bytes_after)}" if body.bytes_before else ""
    if body.method == "results":
        return Said("⇲", "context", f"{plural(len(body.calls), 'result')} up to #{body.last} left out of it{sizes}")
    words = f"#{body.first} to #{body.last} are now told in short ({brief(body.method)}{sizes}): {headline(body.text)}"
    return Said("⇲", "context", words)


# -- tools and doubt -------------------------------------------------------------------------------------------------


def _started(body: kinds.ToolStarted, event: Event, tool: str, title: str) -> Said:
    refused = f"  cannot be done: {headline(body.observed.error)}" if body.observed.error else ""
    return Said("…", brief(body.tool), f"{title}{_attempt(body.attempt)}{refused}", "quiet")


_RESULTS: dict[str, tuple[str, str, Severity]] = {
    "ok": ("✓", "", "good"),
    "error": ("✗", "", "bad"),
    "cancelled": ("■", "cancelled", "attention"),
    "unknown": ("!", "may or may not have happened", "attention"),
}


def _finished(body: kinds.ToolFinished, event: Event, tool: str, title: str) -> Said:
    mark, words, severity = _RESULTS[body.status]
    parts = [
        f"exit {body.exit_code}" if body.exit_code is not None else "",
        "timed out" if body.timed_out else "",
        words,
    ]
    ending = "  ".join(part for part in parts if part)
    summary = title
    if body.status == "error" and not ending and isinstance(body.text, str):
        summary = f"{title}  {headline(body.text, 200)}".lstrip()
    return Said(mark, brief(tool) or "tool", summary, severity, timed=True, ending=ending)


def _process_started(body: kinds.ProcessStarted, event: Event, tool: str, title: str) -> Said:
    return Said("·", "process", f"{body.pid} is left running{_because(command_line(body.command))}", "attention")


def _process_adopted(body: kinds.ProcessAdopted, event: Event, tool: str, title: str) -> Said:
    return Said("→", "process", f"{body.pid} still runs and is kept")


def _process_reaped(body: kinds.ProcessReaped, event: Event, tool: str, title: str) -> Said:
    return Said("·", "process", f"{body.pid} is gone{_because(body.how)}")


def _doubted(body: kinds.EffectDoubted, event: Event, tool: str, title: str) -> Said:
    what = f"{tool} {title}".strip() or "an effect"
    return Said("!", "in doubt", f"{what}; its host is gone", "attention")


def _reconciled(body: kinds.EffectReconciled, event: Event, tool: str, title: str) -> Said:
    what = f"{tool} {title}".strip()
    found: dict[str, tuple[str, str, str, Severity]] = {
        "attached": ("→", "re-attached", headline(body.evidence, 120) or "it was taken up again", "good"),
        "done": ("✓", "settled", "it had been done before its host was gone", "good"),
        "not_done": ("→", "settled", "it had not been done, and may start again", "good"),
        "retried": ("→", "asked again", "it has no side effect", "good"),
        "unknown": ("!", "unknown", "it may or may not have happened", "attention"),
    }
    mark, label, words, severity = found[body.verdict]
    return Said(mark, label, f"{words}: {what}" if what else words, severity)


# -- approvals and limits --------------------------------------------------------------------------------------------


def _approval_requested(body: kinds.ApprovalRequested, event: Event, tool: str, title: str) -> Said:
    rule = f"  ({headline(body.rule, 120)})" if body.rule else ""
    return Said("?", "approval", f"asked: {brief(body.tool)} {title}{rule}", "attention")


def decision_words(body: kinds.ApprovalDecided) -> str:
    """Who decided and why, in words."""
    verb = "allowed" if body.decision == "allow" else "denied"
    if body.by == "timeout":
        return "denied: nobody answered in time"
    if body.by == "rule":
        return f"{verb} by rule{_because(body.rule)}"
    always = f", always for {brief(body.remember)}" if body.remember else ""
    note = f"  “{headline(body.note)}”" if body.note else ""
    return f"{verb} by {who(body.origin)}{always}{note}"


def _approval_decided(body: kinds.ApprovalDecided, event: Event, tool: str, title: str) -> Said:
    what = f"  {tool} {title}".rstrip() if tool else ""
    if body.decision == "allow":
        return Said("✓", "approval", decision_words(body) + what, "good")
    return Said("✗", "approval", decision_words(body) + what, "bad")


def _policy(body: kinds.PolicyChanged, event: Event, tool: str, title: str) -> Said:
    parts = [f"mode {brief(body.mode)}"] if body.mode else []
    for name in ("allow", "ask", "deny"):
        if rules := getattr(body, name):
            parts.append(f"{name} {_some([brief(rule) for rule in rules])}")
    by = f"  by {who(body.origin)}" if event.epoch else ""  # an imported file does not say who changed it
    return Said("·", "policy", f"{'; '.join(parts) or 'nothing changed'}{by}", "attention")


def _budget_reached(body: kinds.BudgetReached, event: Event, tool: str, title: str) -> Said:
    return Said("✗", "limit", f"{limit_words(body.limit, body.value, 'reached')}{_SCOPES[body.scope]}", "bad")


def _budget_raised(body: kinds.BudgetRaised, event: Event, tool: str, title: str) -> Said:
    raised = limit_words(body.limit, body.value, "raised to")
    return Said("›", "limit", f"{raised}{_SCOPES[body.scope]}  by {who(body.origin)}", "attention")


def limit_words(limit: str, value: int, what: str) -> str:
    """`tokens reached 12,000`, `cost raised to $2.00`, `time reached 1h30m`."""
    name, amount = budget.said(limit, value)
    return f"{brief(name)} {what} {amount}"


_SCOPES = {"agent": "", "session": ", of the session", "tree": f", of {TREE}"}


def _timer_set(body: kinds.TimerSet, event: Event, tool: str, title: str) -> Said:
    what, _, key = body.key.partition(":")
    length = f"until {brief(body.until)}" if body.until else duration(body.duration_ms)
    words = {
        "retry": f"parked {length}: the provider wants no request before" if body.until else f"asks again in {length}",
        "approval": f"waits {length} for an answer",
        "question": f"waits {length} for an answer",
        "wait": f"waits {length} for agents",
        "budget": f"{length} are counted towards a budget of time",
    }
    return Said("…", "wait", words.get(what, f"{brief(body.key)} {length}") + _for(words, what, key), "quiet")


def _timer_fired(body: kinds.TimerFired, event: Event, tool: str, title: str) -> Said:
    what, _, key = body.key.partition(":")
    late = "nobody answered in time"
    words = {"retry": "the wait is over", "approval": late, "question": late, "wait": "waited long enough for agents"}
    said = words.get(what, f"{brief(body.key)} is over") + _for(words, what, key)
    return Said("·", "wait", said, "attention" if what in ("approval", "question") else "quiet")


def _for(words: dict[str, str], what: str, key: str) -> str:
    return f"  {brief(key)}" if what in words and key and what != "budget" else ""


# -- files -----------------------------------------------------------------------------------------------------------


def _files_changed(body: kinds.FilesChanged, event: Event, tool: str, title: str) -> Said:
    return Said("±", "files", f"{_some([change(one) for one in body.changes])}{by_whom(body)}")


def by_whom(body: kinds.FilesChanged) -> str:
    """Who may have made these changes, with two spaces before it: `  by main/2, or others meanwhile`."""
    late = ", or later" if body.after_crash else ""
    if not body.calls:
        return f"  by others{late}" if body.external else ""
    others = ", or others meanwhile" if body.external else ""
    return f"  by {_some([brief(call) for call in body.calls])}{others}{late}"


def _files_unknown(body: kinds.FilesUnknown, event: Event, tool: str, title: str) -> Said:
    return Said("!", "files", f"what changed is not known{_because(body.why)}", "attention")


def _worktree_prepared(body: kinds.WorktreePrepared, event: Event, tool: str, title: str) -> Said:
    if body.error:
        return Said("✗", "worktree", f"there is none{_because(body.error)}", "bad")
    base = f"from {brief(body.base[:8])}" if body.base else "as a copy"
    return Said("+", "worktree", f"made {base}  {brief(body.path)}")


def _worktree_removed(body: kinds.WorktreeRemoved, event: Event, tool: str, title: str) -> Said:
    if not body.left:
        return Said("·", "worktree", f"is gone{_because(body.why)}  {brief(body.path)}")
    left = _some([brief(path) for path in body.left])
    return Said("·", "worktree", f"is kept for {left}{_because(body.why)}  {brief(body.path)}", "attention")


def _restored(body: kinds.WorkspaceRestored, event: Event, tool: str, title: str) -> Said:
    counts = (("put back", body.restored), ("deleted", body.deleted), ("kept", body.kept))
    words = ", ".join(f"{len(paths)} {what}" for what, paths in counts if paths) or "nothing to do"
    return Said("↶", "files", f"as they were at #{body.to}: {words}", "attention")


# -- the log ---------------------------------------------------------------------------------------------------------


def _imported(body: kinds.LogImported, event: Event, tool: str, title: str) -> Said:
    lost = f"; it did not record {', '.join(brief(part) for part in body.missing)}" if body.missing else ""
    unknown = sum(one.count for one in body.unknown)
    odd = f"; {plural(unknown, 'part')} of an unknown kind" if unknown else ""
    odd += f"; {plural(body.unreadable, 'unreadable line')}" if body.unreadable else ""
    source = brief(f"{body.source} ({body.program or body.format_name})")
    return Said(
        "⇥",
        "imported",
        f"{plural(body.events, 'line')} of {source}{odd}{lost}",
        "attention" if event.seq == 1 else "quiet",
    )


def _kept(body: kinds.SourceKept, event: Event, tool: str, title: str) -> Said:
    why = {
        "no_counterpart": "",
        "unknown": "of an unknown kind: ",
        "unreadable": "no JSON object: ",
        "repeated": "said before: ",
        "misplaced": "it does not fit here: ",
    }
    words = kept_words(body.raw) if isinstance(body.raw, str) else f"({size(body.raw.length)})"
    odd = body.why in ("unknown", "unreadable", "misplaced")
    summary = f"{why[body.why]}{brief(body.what)}  {words}".rstrip()
    return Said("?" if odd else "·", "kept", summary, "attention" if odd else "quiet", ending=f"line {body.line}")


def _redacted(body: kinds.LogRedacted, event: Event, tool: str, title: str) -> Said:
    seqs = _some([f"#{seq}" for seq in body.seqs])
    return Said("▒", "redact", f"content of {seqs} was taken out{_because(body.reason)}", "attention")


def _recovered(body: kinds.LogRecovered, event: Event, tool: str, title: str) -> Said:
    """A gap is told once, at its first event; each of its events says that it is lost."""
    source = brief(body.source) or "a damaged log"
    if body.cut:
        many = f"#{body.first_lost} to #{body.last_lost} of {source} are left out: damaged, or after the damage"
        return Said("!", "recover", many, "attention")
    if not body.first_lost:
        lost = f"{plural(body.lost, 'event')} lost" if body.lost else "nothing lost"
        blobs = f", {plural(len(body.blobs), 'blob')} lost or in part" if body.blobs else ""
        return Said("!", "recover", f"saved from {source}: {lost}{blobs}", "attention")
    what = f"#{event.seq} of {source} is lost"
    if body.first_lost == event.seq < body.last_lost:
        what = f"#{body.first_lost} to #{body.last_lost} of {source} are lost"
    left = f"; {size(body.remains.length)} of it remain" if body.remains is not None else ""
    return Said("!", "recover", f"{what}{left}", "attention")


def _signed(body: kinds.HeadSigned, event: Event, tool: str, title: str) -> Said:
    return Said("✓", "signature", f"#{body.seq} {brief(body.hash[:16])}… by {brief(body.signer)}", "good")


def _taken(body: kinds.OwnershipTaken, event: Event, tool: str, title: str) -> Said:
    forced = ", by force: one effect may start twice" if body.forced else ""
    words = f"taken over from process {body.previous_pid}{forced}{_because(body.evidence)}"
    return Said("!", "owner", words, "attention")


SUMMARIES: dict[type, Callable[[Any, Event, str, str], Said]] = {
    kinds.SessionOpened: _opened, kinds.SessionClosed: _closed, kinds.NoteAdded: _note,
    kinds.CommandRefused: _refused_command, kinds.UserPrompted: _prompted, kinds.AgentWanted: _wanted,
    kinds.AgentSteered: _steered, kinds.QuestionAsked: _asked, kinds.QuestionAnswered: _answered,
    kinds.CancelRequested: _cancel, kinds.AgentPaused: _paused, kinds.AgentContinued: _continued,
    kinds.AgentSpawned: _spawned, kinds.AgentMessaged: _messaged, kinds.ResultDelivered: _delivered,
    kinds.AgentFinished: _finished_agent, kinds.ModelRequested: _requested, kinds.ModelResponded: _responded,
    kinds.ModelFailed: _failed, kinds.ModelChanged: _model_changed, kinds.ToolStarted: _started,
    kinds.ToolFinished: _finished, kinds.ProcessStarted: _process_started, kinds.ProcessAdopted: _process_adopted,
    kinds.ProcessReaped: _process_reaped, kinds.ApprovalRequested: _approval_requested,
    kinds.ApprovalDecided: _approval_decided, kinds.PolicyChanged: _policy, kinds.FilesChanged: _files_changed,
    kinds.FilesUnknown: _files_unknown, kinds.WorktreePrepared: _worktree_prepared,
    kinds.WorktreeRemoved: _worktree_removed, kinds.SessionRewound: _rewound, kinds.WorkspaceRestored: _restored,
    kinds.EffectDoubted: _doubted, kinds.EffectReconciled: _reconciled, kinds.BudgetReached: _budget_reached,
    kinds.BudgetRaised: _budget_raised, kinds.TimerSet: _timer_set, kinds.TimerFired: _timer_fired,
    kinds.ContextCompacted: _compacted, kinds.LogImported: _imported, kinds.LogRedacted: _redacted,
    kinds.LogRecovered: _recovered, kinds.SourceKept: _kept, kinds.SessionForked: _forked, kinds.HeadSigned: _signed,
    kinds.OwnershipTaken: _taken,
}  # fmt: skip
"""Body type → its words: (body, event, the call's tool, the call's title)."""
