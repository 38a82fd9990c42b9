"""Which events are meant: filters that compose, shared by log, show, search, replay and the screen.

A `Filter` comes from flags (`made`) or from one line of text (`parsed`); different ones must all hold, repeated ones
are alternatives. What an event alone does not say (its call's tool, who let the call pass, which turn it is) is read
from `Past`, which grows by `learn` as events come by in the order of the log. `TERMS` is the one table of them. This
module must not know the clock: what is relative to now, and where the reader lives, come in as values.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, get_args

import msgspec

from muse.errors import UsageError
from muse.event import kinds
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.view import timeline
from muse.view.detail import detailed
from muse.view.moments import Moment, moment
from muse.view.past import By, Passed
from muse.view.past import Past as Past
from muse.view.past import calls_of as calls_of
from muse.view.past import learn as learn
from muse.view.timeline import Row

SEARCHED_LINES_MAX: Final = 100_000
"""So many lines of an event's detail are searched."""
SEARCHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer output is searched as far as its event shows it."""

Contents = Callable[[BlobRef], bytes | None]


class Term(msgspec.Struct, frozen=True):
    """One filter: `--name VALUE` on the command line, `name:value` in a line of text (a bare word without `value`).
    `field` is the attribute of `Filter`."""

    name: str
    field: str
    value: str
    help: str


TERMS: Final = (
    Term("type", "types", "TYPE", "Only this type; tool.* or tool takes a group."),
    Term("kind", "kinds", "KIND", "Only what is about this: person, model, tool, approval, files, doubt …"),
    Term("agent", "agents", "AGENT", "Only this agent; main.2* with all below it."),
    Term("below", "below", "", "With --agent: and the agents below it."),
    Term("call", "calls", "CALL", "Only what belongs to this call, as main/7."),
    Term("tool", "tools", "TOOL", "Only calls of this tool (model: the requests to the model)."),
    Term("path", "paths", "GLOB", "Only what reads, writes or changed such a file; a folder takes all below it."),
    Term("turn", "turns", "N", "Only the Nth turn: from a person's prompt until main waits for a person again."),
    Term("since", "since", "WHEN", "From here on: @120, 2h, 10:30, 2026-11-30, or RFC 3339."),
    Term("until", "until", "WHEN", "Up to here, which is included."),
    Term("failed", "failed", "", "Only what went wrong: failed tools and models, denials, doubts, limits."),
    Term("denied", "denied", "", "Only decisions that refused a call."),
    Term("approved-by", "approved_by", "WHO", "Only decisions, and calls that were let pass, by this: "
         "a person's name, a rule's text, or person, rule, timeout."),
    Term("grep", "texts", "TEXT", "Only events that say TEXT, in their row or detail (small letters: in any case)."),
    Term("regex", "patterns", "REGEX", "The same with a regular expression."),
    Term("whole-calls", "whole_calls", "", "And all other events of the calls that are found."),
)  # fmt: skip
"""All filters, in the order of help and docs."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are meant; the empty one means all. Fields as `TERMS` tells. `whole_calls` is for whoever selects
    (see `Filter.completed`): `matches` does not look at it."""

    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    below: bool = False
    calls: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    turns: tuple[int, ...] = ()
    since: Moment = Moment()
    until: Moment = Moment()
    failed: bool = False
    denied: bool = False
    approved_by: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    whole_calls: bool = False

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return self != Filter()

    def matches(self, event: Event, past: "Past", contents: Contents | None = None, row: Row | None = None) -> bool:
        """Whether the event is meant. `past` has learned it. Only a search reads blobs (`contents`); `row` saves making
        it where the caller has it."""
        return (
            self._fits_header(event, past)
            and self._fits_outcome(event, past)
            and self._fits_call(event, past)
            and self._says(event, past, contents, row)
        )

    def completed(self, calls: Iterable[str]) -> "Callable[[Event], bool]":
        """Of the calls of all matching events: whether an event belongs to one of them (see `whole_calls`)."""
        found = frozenset(calls)
        return lambda event: not found.isdisjoint(calls_of(event))

    def _fits_header(self, event: Event, past: "Past") -> bool:
        if self.types and not any(_fits_type(event.type, pattern) for pattern in self.types):
            return False
        if self.agents and not any(_fits_agent(event.agent, pattern, self.below) for pattern in self.agents):
            return False
        if self.kinds and timeline.kind_of(event.type) not in self.kinds:
            return False
        if self.turns and past.turn not in self.turns:
            return False
        return self.since.is_at_or_before(event) and (not self.until or self.until.is_at_or_after(event))

    def _fits_outcome(self, event: Event, past: "Past") -> bool:
        if self.failed and not is_failure(event):
            return False
        if self.denied and not is_denial(event):
            return False
        if not self.approved_by:
            return True
        passed = past.passed_by(event)
        if passed is None or (not passed.allow and passed.by != "timeout" and not self.denied):
            return False
        return any(_fits_approver(passed, who) for who in self.approved_by)

    def _fits_call(self, event: Event, past: "Past") -> bool:
        if not (self.calls or self.tools or self.paths):
            return True
        calls = calls_of(event)
        if self.calls and not any(call in self.calls for call in calls):
            return False
        if self.tools:
            tools = [past.calls[call].tool for call in calls if call in past.calls]
            if not any(fnmatch.fnmatchcase(tool, pattern) for tool in tools for pattern in self.tools):
                return False
        return not self.paths or any(_fits_path(path, glob) for path in past.paths_of(event) for glob in self.paths)

    def _says(self, event: Event, past: "Past", contents: Contents | None, row: Row | None) -> bool:
        wanted = [*map(_of_text, self.texts), *map(_of_pattern, self.patterns)]
        if not wanted:
            return True
        shown = timeline.row(event, past) if row is None else row
        brief = f"{shown.label} {shown.summary} {shown.ending}"
        if any(one.search(brief) for one in wanted):
            return True
        lines = detailed(event, past, contents or _nothing, lines_max=SEARCHED_LINES_MAX).detail
        if any(one.search(line.text) for line in lines for one in wanted):
            return True
        return any(one.search(line) for line in whole_output(event, contents or _nothing) for one in wanted)


# -- what an event is --------------------------------------------------------------------------------------------------


def is_denial(event: Event) -> bool:
    """Whether the event refuses a call."""
    return isinstance(event.body, kinds.ApprovalDecided) and event.body.decision == "deny"


def is_failure(event: Event) -> bool:
    """Whether the event says that something went wrong: the `--failed` of every command."""
    body = event.body
    match body:
        case kinds.ToolFinished():
            failed = body.status in ("error", "unknown") or body.timed_out
            return failed or (body.status == "ok" and body.exit_code not in (None, 0))
        case kinds.ModelFailed():
            return body.failure != "cancelled"
        case kinds.ModelResponded():
            return body.stop in ("max_tokens", "refusal")
        case kinds.AgentFinished() | kinds.SessionClosed():
            return body.outcome in _FAILED_OUTCOMES
        case kinds.EffectReconciled():
            return body.verdict == "unknown"
        case kinds.ApprovalDecided():
            return body.decision == "deny"
        case _:
            return isinstance(body, kinds.BudgetReached | kinds.CommandRefused | kinds.FilesUnknown)


_FAILED_OUTCOMES: Final = frozenset({"failed", "provider", "unanswered", "budget"})


def _fits_type(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.partition(".")[0] == pattern


def _fits_agent(agent: str, pattern: str, below: bool) -> bool:
    """`main.2*` is main.2 and all below it, and never main.20; `main.*` is all below main."""
    if agent == pattern or (below and agent.startswith(f"{pattern}.")):
        return True
    base = pattern.removesuffix("*")
    if base == pattern or any(sign in base for sign in "*?["):
        return fnmatch.fnmatchcase(agent, pattern)
    return agent == base or agent.startswith(base if base.endswith(".") or not base else f"{base}.")


def _fits_path(path: str, glob: str) -> bool:
    """As git reads a pathspec: `*` goes over folders too, and a folder means all that is below it."""
    plain = glob.removeprefix("./").rstrip("/")
    return fnmatch.fnmatchcase(path, plain) or path.startswith(f"{plain}/") or fnmatch.fnmatchcase(path, f"{plain}/*")


def _fits_approver(passed: Passed, who: str) -> bool:
    if who in get_args(By):
        return passed.by == who
    if passed.by == "person" and fnmatch.fnmatchcase(passed.user, who):
        return True
    return bool(passed.rule) and (who in passed.rule or fnmatch.fnmatchcase(passed.rule, f"*{who}*"))


@lru_cache(maxsize=256)
def _of_text(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text), re.IGNORECASE if text == text.lower() else 0)


@lru_cache(maxsize=256)
def _of_pattern(text: str) -> re.Pattern[str]:
    """As journalctl: in any case, unless the expression has a capital letter (escapes like \\S do not count)."""
    letters = re.sub(r"\\.", "", text)
    try:
        return re.compile(text, re.IGNORECASE if letters == letters.lower() else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is no regular expression: {error}",
            hint="a text is taken as it stands by grep, and by muse search without -E",
        ) from error


def _nothing(_: BlobRef) -> None:
    return None


def whole_output(event: Event, contents: Contents) -> list[str]:
    """The lines of an output of which the event shows head and tail only. Raises what `contents` raises."""
    body = event.body
    if not isinstance(body, kinds.ToolFinished) or body.output is None or body.output.length > SEARCHED_BYTES_MAX:
        return []
    return (contents(body.output) or b"").decode(errors="replace").split("\n")


# -- from flags and from a line of text --------------------------------------------------------------------------------


def made(given: Mapping[str, Sequence[str] | str | bool], now: datetime) -> Filter:
    """The filter of these terms (by `Term.name`, their values as written). `now` is the moment that relative times
    count from, with the time zone in which times without one are read. Raises UsageError for a value that cannot be."""
    values: dict[str, Any] = {}
    for term in TERMS:
        value = given.get(term.name)
        if not value:
            continue
        if term.field in ("since", "until"):
            text = value if isinstance(value, str) else list(value)[-1] if isinstance(value, Sequence) else ""
            values[term.field] = moment(text, now, end=term.field == "until")
        elif not term.value:
            values[term.field] = bool(value)
        else:
            texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
            values[term.field] = tuple(map(_turn, texts)) if term.field == "turns" else texts
    for kind in values.get("kinds", ()):
        if kind not in get_args(timeline.Kind):
            raise UsageError(f"there is no kind {kind!r}", hint=f"one of {', '.join(get_args(timeline.Kind))}")
    for pattern in values.get("patterns", ()):
        _of_pattern(pattern)
    return Filter(**values)


def _turn(text: str) -> int:
    if not text.isdecimal() or not 1 <= len(text) <= 9:
        raise UsageError(f"{text!r} is no turn", hint="turns are numbered 1, 2, 3 …")
    return int(text)


_word: Final = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_keyed: Final = re.compile(r"(?s)([a-z][a-z-]*):(.+)")


def parsed(text: str, now: datetime) -> Filter:
    """The filter of a line: `type:tool.* agent:main.1 failed since:2h grep:"drop table"`; any other word is searched
    for. `now` as in `made`. Raises UsageError."""
    given: dict[str, list[str]] = {}
    by_name = {term.name: term for term in TERMS}
    left = _word.sub("", text).strip()
    if left:
        raise UsageError(f"a quote is not closed: {left[:20]}", hint="quote words that belong together")
    for word in _word.findall(text):
        found = _keyed.fullmatch(word)
        name, value = (found[1], _unquoted(found[2])) if found else (word, "")
        term = by_name.get(name)
        if term is not None and bool(term.value) == bool(found):
            given.setdefault(name, []).append(value or "yes")
        elif found:
            names = ", ".join(f"{term.name}:" if term.value else term.name for term in TERMS)
            raise UsageError(f"there is no filter {name}:", hint=f'one of {names}; a text goes into grep:"…"')
        else:
            given.setdefault("grep", []).append(_unquoted(word))
    return made(given, now)


def _unquoted(word: str) -> str:
    return re.sub(r""""([^"]*)"|'([^']*)'""", lambda found: found[1] or found[2] or "", word)


# -- what to say when nothing was found --------------------------------------------------------------------------------


def absent(wanted: Filter, past: Past) -> list[str]:
    """After all events were learned: which agents, types, tools and calls were asked for that the log does not have,
    and what it has."""
    found: list[str] = []
    for pattern in wanted.agents:
        if not any(_fits_agent(agent, pattern, wanted.below) for agent in past.agents):
            found.append(f"there is no agent {pattern!r}; there is {_some(past.agents)}")
    for pattern in wanted.types:
        if not any(_fits_type(name, pattern) for name in kinds.KINDS):
            found.append(f"no type {pattern!r} is known to this version; there is {_some(past.types)}")
        elif not any(_fits_type(name, pattern) for name in past.types):
            found.append(f"there is no event of type {pattern!r}; there is {_some(past.types)}")
    tools = {call.tool for call in past.calls.values()}
    for pattern in wanted.tools:
        if not any(fnmatch.fnmatchcase(tool, pattern) for tool in tools):
            found.append(f"there is no call of {pattern!r}; there are calls of {_some(tools)}")
    found += [f"there is no call {call!r}" for call in wanted.calls if call not in past.calls]
    found += [f"there is no turn {turn}; there are {past.turn}" for turn in wanted.turns if turn > past.turn]
    return found


NAMED_MAX: Final = 60
"""So many names are listed when one is not found."""


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return ", ".join(known[:NAMED_MAX]) + more if known else "none"
