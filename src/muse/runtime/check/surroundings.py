"""What happens around calls: file changes, processes that were left running, timers. Each must name what it belongs to.

This module must not know how calls begin and end.
"""

from collections.abc import Iterator
from typing import Final

from muse.event.calls import number_of
from muse.event.content import BlobRef, Observed
from muse.event.envelope import Event, Redacted
from muse.event.kinds import (
    FilesChanged,
    FilesUnknown,
    ProcessAdopted,
    ProcessReaped,
    ProcessStarted,
    TimerFired,
    TimerSet,
    ToolFinished,
)  # fmt: skip
from muse.fold.agents import home
from muse.fold.state import Session, ToolRun, process_key
from muse.runtime.check.report import Diverged
from muse.runtime.check.trees import Trees

CAUSES: Final = frozenset(
    {"model.responded", "approval.decided", "tool.started", "effect.doubted", "effect.reconciled", "cancel.requested"}
)
"""What leads to a look at the files: a use, the word that let it run, its start, its doubt."""


class Surroundings:
    """What is known of the surroundings of one session's calls."""

    def __init__(self) -> None:
        self._causes: dict[str, tuple[set[int], set[int]]] = {}
        self._timers: dict[int, tuple[str, str]] = {}
        self._left: set[str] = set()
        self._told: dict[str, set[tuple[str, str]]] = {}
        """By call, the paths that were told of, each with its new content ("" where none is held)."""
        self._trees = Trees()
        self._is_hidden = False
        """Whether an event about a process was redacted: then what others name may be in it."""

    def check(self, state: Session, event: Event) -> None:
        """Raises `Diverged` for a fact that belongs to nothing."""
        match event.body:
            case FilesChanged():
                self._changed(state, event, event.body)
            case FilesUnknown():
                self._looked(state, event, event.body.calls, pending=True)
            case ProcessStarted() | ProcessAdopted() | ProcessReaped():
                self._process(state, event, event.body)
            case TimerFired():
                self._fired(event, event.body)
            case _:
                self._trees.check(state, event)

    def noted(self, state: Session, event: Event) -> None:
        """Take in an event that was folded."""
        self._trees.noted(state, event)
        if event.type == "model.responded":
            before = self._causes.get(event.agent, (set(), set()))[0]
            self._causes[event.agent] = {event.seq}, before
        elif event.type in CAUSES:
            self._causes.setdefault(event.agent, (set(), set()))[0].add(event.seq)
        if isinstance(event.body, Redacted):
            self._redacted(state, event)
        elif isinstance(event.body, FilesChanged):
            for call in event.body.calls:
                told = ((change.path, change.after.blob if change.after else "") for change in event.body.changes)
                self._told.setdefault(call, set()).update(told)
        elif isinstance(event.body, ToolFinished):
            self._told.pop(event.body.call, None)
        if isinstance(event.body, ProcessStarted):
            self._left.add(event.body.call)
        elif isinstance(event.body, TimerSet):
            self._timers[event.seq] = event.body.key, event.agent
        elif event.type == "session.opened":
            self._timers = {timer.seq: (timer.key, timer.agent) for timer in state.timers.values()}

    def _redacted(self, state: Session, event: Event) -> None:
        """What no agent reads may be taken out, and the session goes on: it is taken to say what it should."""
        self._is_hidden |= event.type.startswith("process.")
        if event.type == "files.changed":
            for run in (run for agent in state.agents.values() for run in agent.batch if run.phase != "done"):
                paths = {path for path, *_ in _planned(run.observed)}
                self._told.setdefault(run.key, set()).update((path, "") for path in paths)

    def ended(self, run: ToolRun, body: ToolFinished) -> None:
        """Raises `Diverged` when a file tool has done what it does, and no event tells of a file."""
        if run.recovery != "reconcilable" or body.status != "ok":
            return
        for path, before, after, content in _planned(run.observed):
            if before == after:
                continue
            told = [blob for other, blob in self._told.get(run.key, ()) if other == path]
            if not told:
                what = f"{run.key} changed {path}, and no files.changed of it says so"
                raise Diverged("no_intent", what, f"a change of {path}", "none")
            if content is not None and not {"", content.blob}.intersection(told):
                what = f"{run.key} changed {path}, and files.changed says that it has another content since"
                raise Diverged("content", what, content.blob, ", ".join(sorted(told)))

    def _changed(self, state: Session, event: Event, body: FilesChanged) -> None:
        self._looked(state, event, body.calls, pending=False)
        if not body.calls and not body.external:
            raise Diverged("order", "files changed between calls, so that others did it", "external", "not external")
        runs = [run for call in body.calls if (run := state.run(call)) is not None and run.phase != "done"]
        late = any(0 < run.intent < state.opened for run in runs)
        exact = len(runs) == len(body.calls) == 1 and runs[0].recovery == "reconcilable"  # the tool's own word
        for run in runs:
            _require_own(run, body)
        if body.after_crash != late and not (late and exact):
            what = "files.changed says of its calls what the log does not: whether they began before a crash"
            raise Diverged("order", what, f"after_crash: {late}", f"after_crash: {body.after_crash}")

    def _looked(self, state: Session, event: Event, calls: tuple[str, ...], *, pending: bool) -> None:
        """A look at the files names the calls that were open, and stands where one of them began or ended."""
        if list(calls) != sorted(set(calls)):
            raise Diverged("order", f"{event.type} names its calls once each, in order", sorted(set(calls)), calls)
        for call in calls:
            run = state.run(call)
            if not (_is_open(run, pending) or call in self._left or self._is_hidden):
                raise Diverged("no_intent", f"{event.type} names {call}, which was not open")
            if home(state, call.partition("/")[0]) != home(state, event.agent):
                raise Diverged("cause", f"{event.type} names {call}, which works in another folder", recorded=call)
        agent = state.agents.get(event.agent)
        if agent is None or not any(event.cause in seqs for seqs in self._causes.get(event.agent, ())):
            raise Diverged(
                "cause", f"{event.type} names as its cause what leads to no look at the files", recorded=event.cause
            )
        own = next((run for run in agent.batch if run.intent == event.cause and run.phase == "running"), None)
        if own is not None and own.key not in calls:
            raise Diverged("no_intent", f"the look at the end of {own.key} leaves that call out", own.key, calls)

    def _process(self, state: Session, event: Event, body: ProcessStarted | ProcessAdopted | ProcessReaped) -> None:
        if self._is_hidden:
            return
        lane = body.call.partition("/")[0]
        agent = state.agents.get(lane)
        if agent is None or lane != event.agent or not number_of(body.call):
            raise Diverged("no_intent", f"{event.type} of {body.call}, a call that is not in this lane")
        known = state.processes.get(process_key(body.pid, body.started))
        if isinstance(body, ProcessStarted):
            run = state.run(body.call)
            causes = (0, run.intent) if run is not None and run.intent else (0,)
            if known is not None:
                raise Diverged("order", f"process {body.pid} is named twice", f"#{known.seq}", "again")
            if event.cause not in causes and not self._is_cause(event):
                raise Diverged("cause", f"{event.type} names another cause than its call's start", causes, event.cause)
            return
        if known is None or known.call != body.call:
            raise Diverged(
                "no_intent", f"{event.type} of process {body.pid}, which {body.call} is not known to have left"
            )
        _require(event, known.seq, reaped_with=isinstance(body, ProcessReaped) and self._is_cause(event))
        if isinstance(body, ProcessAdopted) and known.epoch >= state.epoch:
            raise Diverged("order", f"process {body.pid} is adopted by the owner that has it already")

    def _is_cause(self, event: Event) -> bool:
        return any(event.cause in seqs for seqs in self._causes.get(event.agent, ()))

    def _fired(self, event: Event, body: TimerFired) -> None:
        """Each timer fires once; it may do so at the very moment at which it is no longer needed."""
        timer = self._timers.pop(event.cause, None)
        if timer != (body.key, event.agent):
            found = "no timer" if timer is None else f"the timer {timer[0]} of {timer[1]}"
            raise Diverged("no_intent", f"the timer {body.key} fired, which was not set by its cause", found, body.key)


def _planned(seen: Observed) -> Iterator[tuple[str, str, str, BlobRef | None]]:
    """The files that a call was about to change: path, digests before and after, content after."""
    if seen.path:
        yield seen.path, seen.before_sha256, seen.after_sha256, seen.after
    for change in seen.changes:
        yield change.path, change.before_sha256, change.after_sha256, change.after


def _require_own(run: ToolRun, body: FilesChanged) -> None:
    """What a file tool says of its own change is what was seen before it began."""
    seen = run.observed
    expected = {seen.path: (seen.after, seen.before, seen.file_mode if seen.before_sha256 else 0, seen.file_mode)}
    expected |= {one.path: (one.after, one.before, one.before_mode, one.after_mode) for one in seen.changes}
    for change in body.changes:
        after, *rest = expected.get(change.path, (None,))
        recorded = [change.before, change.before_mode, change.after_mode]
        if after is not None and change.after == after and rest != recorded:
            raise Diverged("content", f"the change by {run.key} is not the one that it began with", rest, recorded)


def _is_open(run: ToolRun | None, pending: bool) -> bool:
    return run is not None and run.phase != "done" and (pending or run.attempt > 0)


def _require(event: Event, seq: int, *, reaped_with: bool) -> None:
    """The end of a process names the event that named it; one found together with the end of its call, that call's."""
    if event.cause != seq and not reaped_with:
        raise Diverged("cause", f"{event.type} names another cause than what named the process", seq, event.cause)
