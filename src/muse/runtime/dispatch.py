"""Starts the effects whose intents are durable, and hands what they bring back to the loop.

It reacts to events that stand in the log, never to wishes: a tool runs because of its `tool.started`, recovery because
of an `effect.doubted`. One task an effect; a cancelled step is stopped through its scope and still ends in a result.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import msgspec

from muse.decide import approval
from muse.decide.decision import Due
from muse.decide.due import spec_of
from muse.decide.paths import named_path
from muse.effect.protocol import (
    Background,
    Leftovers,
    Model,
    ModelAnswer,
    ModelFailure,
    Tool,
    ToolCall,
    ToolResult,
    Verdict,
    Workspace,
)
from muse.errors import ConfigError, Fenced, MissingKey, MuseError, StoreUnavailable
from muse.event.content import BlobRef, ModelRef, Observed
from muse.event.envelope import Event
from muse.event.kinds import (
    CancelRequested,
    EffectDoubted,
    EffectReconciled,
    FilesChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ProcessReaped,
    ProcessStarted,
    SessionClosed,
    TimerFired,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)  # fmt: skip
from muse.failpoint import hit
from muse.fold.agents import below
from muse.fold.models import session_ref
from muse.fold.state import Session, Timer, ToolRun
from muse.log.protocol import Log
from muse.runtime import asking
from muse.runtime.changes import Changes
from muse.runtime.leftovers import LeftoverWatch, started_body
from muse.runtime.places import Place, Places, TreeCare, Trees
from muse.runtime.recovery import as_far_as_known, believed, idempotency_key, unknown_result

SLICE_SECONDS = 1.0
"""So long at a time does a timer with a date sleep before it looks at the clock again."""

LOST_GROUND = (Fenced, StoreUnavailable)
"""What no effect can end in a result of its own for: the session is another's now, or nothing can be kept."""


class Outcomes(Protocol):
    """Where outcomes go: the loop."""

    state: Session

    def post_bodies(self, agent: str, cause: int, *bodies: msgspec.Struct) -> None:
        """Hand in facts that belong together."""
        ...

    def poke(self, agent: str = "") -> None:
        """Something that is due may have become ready."""
        ...

    def fail(self, error: MuseError) -> None:
        """The session cannot go on in this process."""
        ...


class Equipment(msgspec.Struct):
    """What the host has to touch the world with. `blobs` is a second handle on the log for large content, used in a
    worker thread; `settled` is told when a call's result is durable. `leftovers` finds what calls left running;
    `changes`, what becomes of the files of the workspace. `trees` makes working trees for agents that are to have one
    of their own; without it they cannot be had. `reach` gives the client of any
    model that an agent asks, `model` is the session's own; it may raise `MuseError`."""

    model: Model
    tools: Mapping[str, Tool]
    workspace: Workspace
    log: Log
    blobs: Callable[[], Log]
    settled: Callable[[str, int], None]
    on_signal: Callable[[str, str], None]
    leftovers: Leftovers | None = None
    changes: Changes | None = None
    trees: Trees | None = None
    reach: Callable[[ModelRef], Model] | None = None

    @property
    def shared(self) -> Place:
        """The place that agents share."""
        return Place(self.workspace, self.tools, self.changes)


class Dispatch:
    """Effects of one session. `begin` before anything else."""

    def __init__(self, equipment: Equipment) -> None:
        self._has = equipment
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._wanted: list[tuple[str, int, ToolStarted]] = []
        self._observing: set[tuple[str, int]] = set()
        self._observed: dict[tuple[str, int], Observed] = {}
        self._large = anyio.Lock()

    def begin(self, tasks: anyio.abc.TaskGroup, outcomes: Outcomes) -> None:
        """Use this task group for effects, and start again what an earlier owner left waiting."""
        self._tasks, self._to = tasks, outcomes
        state = outcomes.state
        self._watch = LeftoverWatch(self._has.leftovers, outcomes) if self._has.leftovers is not None else None
        if self._watch is not None:
            self._watch.begin(self._start)
        self._places = Places(self._has.shared, self._has.trees, outcomes)
        self._care = TreeCare(self._places, self._has.trees, outcomes, self._start)
        self._care.begin()
        for timer in state.timers.values():
            self._tasks.start_soon(self._guarding, self._timer, timer)
        for agent in state.agents.values():
            for run in agent.batch:
                if run.phase in ("running", "doubted", "settling") and (
                    changes := self._changes_of(agent.id, run.tool)
                ):
                    changes.started(run.key, run.observed, after_crash=True)
                if run.phase in ("doubted", "settling"):
                    self._tasks.start_soon(self._guarding, self._recover, agent.id, run.key, run.cause)
            if agent.call is not None and agent.call.phase in ("doubted", "settling"):
                self._tasks.start_soon(self._guarding, self._recover, agent.id, agent.call.key, agent.call.cause)

    @property
    def background(self) -> Background:
        """What calls left running. For tools, which run after `begin`."""
        assert self._watch is not None, "asked of a host that looks after no processes"
        return self._watch

    def _start(self, effect: Callable[..., Awaitable[None]], *args: object) -> None:
        self._tasks.start_soon(self._guarding, effect, *args)

    # -- before the intent -------------------------------------------------------------------------------------------

    def ready(self, one: Due) -> bool:
        """Whether this decision can be recorded now. The observation that it still needs is wanted: what led to it may
        not be durable yet."""
        body = one.body
        if isinstance(body, SessionClosed):
            return not self._care.is_clearing
        if not isinstance(body, ToolStarted):
            return True
        if self._care.is_busy(one.agent):
            return False
        if not self._is_to_observe(one.agent, body):
            return True
        key = (body.call, body.attempt)
        if key in self._observed:
            return True
        if key not in self._observing:
            self._wanted.append((one.agent, one.cause, body))
        return False

    def observe_wanted(self, *, durable: bool) -> None:
        """Start the observations that are wanted: what led to them is `durable`. Or forget them: other events came
        first, so that all is decided again."""
        wanted, self._wanted = self._wanted, []
        for agent, cause, body in wanted if durable else []:
            key = (body.call, body.attempt)
            if key not in self._observing:
                self._observing.add(key)
                self._tasks.start_soon(self._guarding, self._observe, agent, cause, body)

    def _is_to_observe(self, agent: str, body: ToolStarted) -> bool:
        has_tool = body.tool in self._places.of(agent).tools
        return has_tool and (_is_looked_at(body) or self._changes_of(agent, body.tool) is not None)

    def observed(self, one: Due) -> Due:
        """The decision with what was seen just before it."""
        body = one.body
        if not isinstance(body, ToolStarted):
            return one
        seen = self._observed.get((body.call, body.attempt))
        if seen is None:
            return one
        if changes := self._changes_of(one.agent, body.tool):
            seen = msgspec.structs.replace(seen, tree=changes.tree)
        return msgspec.structs.replace(one, body=msgspec.structs.replace(body, observed=seen))

    async def _observe(self, agent: str, cause: int, body: ToolStarted) -> None:
        call = self._call(body.call, body.attempt, body.tool, _text(body.args))
        place = self._places.of(agent)
        tool = place.tools[body.tool]
        try:
            hit("before_observe")
            seen = Observed()
            if _is_looked_at(body):
                seen = await tool.observe(call, place.workspace, self._keep)
            hit("after_observe")
            if elsewhere := _elsewhere(tool.paths(place.workspace, call.args), call, place.workspace):
                seen = Observed(folder=seen.folder, error=elsewhere)
        except LOST_GROUND:
            raise
        except Exception as error:  # noqa: BLE001 - the border to tools: whatever one raises becomes its result
            seen = Observed(error=f"the tool failed: {error!r}")
        if (changes := place.changes) and tool.spec.writes and not seen.error:
            await changes.before(agent, cause, body.call)
        self._observed[(body.call, body.attempt)] = seen
        self._observing.discard((body.call, body.attempt))
        self._to.poke(agent)

    # -- after the intent --------------------------------------------------------------------------------------------

    def react(self, event: Event, state: Session, request: bytes = b"") -> None:
        """Start, stop or forget effects because of an event that is now durable."""
        body = event.body
        match body:
            case ModelRequested():
                self._tasks.start_soon(self._guarding, self._ask, event, body, request)
            case ToolStarted() if body.recovery != "derived":  # such a one touches nothing but the log
                self._begin(event.agent, event.seq, body)
            case EffectDoubted():
                self._tasks.start_soon(self._guarding, self._recover, event.agent, body.call, event.seq)
            case EffectReconciled(verdict="attached"):
                if run := state.run(body.call):
                    self._tasks.start_soon(self._guarding, self._run, event.agent, run.intent, _intent_of(run), True)
            case TimerSet():
                if timer := state.timers.get(body.key):
                    self._tasks.start_soon(self._guarding, self._timer, timer)
            case ToolFinished():
                self._has.settled(body.call, body.attempt)
            case CancelRequested() | UserPrompted():
                self._cancel(state, event.agent, body)
            case _:
                self._named(body)
        self._care.befell(event)

    def _begin(self, agent: str, intent: int, body: ToolStarted) -> None:
        self._observed.pop((body.call, body.attempt), None)
        if (changes := self._changes_of(agent, body.tool)) and not body.observed.error:
            changes.started(body.call, body.observed)
        self._tasks.start_soon(self._guarding, self._run, agent, intent, body, False)

    def _cancel(self, state: Session, agent_id: str, body: CancelRequested | UserPrompted) -> None:
        tree = isinstance(body, CancelRequested) and body.target == "tree"
        for one in (agent_id, *(child.id for child in below(state, agent_id) if tree)):
            self._cancel_marked(state, one)
        self._end_marked(state, body)

    def _cancel_marked(self, state: Session, agent_id: str) -> None:
        agent = state.agents.get(agent_id)
        if agent is None:
            return
        marked = [run.key for run in agent.batch if run.cancelling and run.phase == "running"]
        if agent.call is not None and agent.call.cancelling:
            marked.append(agent.call.key)
        for key in marked:
            if scope := self._scopes.get(key):
                scope.cancel()

    def _end_marked(self, state: Session, body: CancelRequested | UserPrompted) -> None:
        if self._watch is None or not isinstance(body, CancelRequested) or body.target != "call":
            return
        if any(process.ending and process.call == body.call for process in state.processes.values()):
            self._tasks.start_soon(self._guarding, self._watch.end, body.call)

    def _named(self, body: object) -> None:
        if self._watch is not None and isinstance(body, ProcessStarted):
            self._watch.started()
        elif self._watch is not None and isinstance(body, ProcessReaped):
            self._watch.reaped(body.call)

    async def _ask(self, event: Event, body: ModelRequested, request: bytes) -> None:
        partial: list[str] = []
        begun = time.monotonic()

        def show(text: str) -> None:
            partial.append(text)
            hit("in_stream")
            self._has.on_signal(body.call, text)

        ref = self._asked(event.agent, body)
        with self._scope(body.call) as scope:
            hit("before_effect")
            answer = await self._attempt(ref, request, body, show)
            hit("after_effect")
        settings = self._to.state.settings
        assert settings is not None
        if scope.cancelled_caught:
            result: ModelFailed | ModelResponded = asking.cancelled(body, "".join(partial), _since(begun))
        else:
            raw = await self._keep(answer.raw) if answer.raw else None
            if isinstance(answer, ModelAnswer):
                result = asking.answered(body, answer, settings, ref, raw, _since(begun))
            else:
                result = asking.failed(
                    body, answer, settings, ref, raw, _since(begun), now=datetime.now(UTC),
                    jitter_permille=secrets.randbelow(1000),
                )  # fmt: skip
        self._to.post_bodies(event.agent, event.seq, result)

    def _asked(self, agent_id: str, body: ModelRequested) -> ModelRef:
        state = self._to.state
        assert state.settings is not None
        agent = state.agents.get(agent_id)
        call = agent.call if agent is not None and agent.call is not None and agent.call.key == body.call else None
        return call.ref if call is not None and call.ref is not None else session_ref(state.settings)

    async def _attempt(
        self, ref: ModelRef, request: bytes, body: ModelRequested, show: Callable[[str], None]
    ) -> ModelAnswer | ModelFailure:
        """One attempt at that model. One that cannot be reached from here (no key, no such provider) has failed."""
        try:
            model = self._has.model if self._has.reach is None else self._has.reach(ref)
        except (ConfigError, MissingKey) as error:
            return ModelFailure(failure="auth", message=f"{error} ({error.hint})" if error.hint else str(error))
        return await model.ask(request, body.call, body.attempt, show)

    async def _run(self, agent: str, intent: int, body: ToolStarted, attach: bool) -> None:
        begun = time.monotonic()
        text = _text(body.args)
        result = self._cannot_run(agent, body.tool, text)
        if result is None:
            with self._scope(body.call):
                hit("before_effect")
                result = await self._guarded(agent, body, text, attach)
                hit("after_effect")
        if result is None:
            result = ToolResult(status="cancelled", text="The call was cancelled.")
        facts = await self._ended(agent, intent, body, result, _since(begun))
        if self._watch is not None:
            self._watch.look()  # what it ended of others stands before its result
        self._to.post_bodies(agent, intent, *facts)

    async def _recover(self, agent: str, key: str, cause: int) -> None:
        """Look at what became of a call whose host died, without any effect, and record the verdict."""
        hit("before_recovery")
        run = self._to.state.run(key)
        if run is None:
            call = self._to.state.agents[agent].call
            attempt = call.attempt if call else 1
            evidence = "a model request has no side effect; it is sent again under the same key"
            body = EffectReconciled(call=key, attempt=attempt, verdict="retried", evidence=evidence)
            hit("after_recovery")
            self._to.post_bodies(agent, cause, body)
            return
        verdict = await self._verdict(agent, run)
        bodies: list[msgspec.Struct] = [
            EffectReconciled(call=key, attempt=run.attempt, verdict=verdict.verdict, evidence=verdict.evidence)
        ]
        if verdict.verdict in ("done", "unknown"):
            result = verdict.result
            if result is None and verdict.take_up:
                result = await self._guarded(agent, _intent_of(run), run.args, True)
            result = result or unknown_result(verdict.evidence)
            bodies += await self._ended(agent, cause, _intent_of(run), result, 0)
        elif verdict.verdict != "attached":
            await self._prepare_again(agent, cause, run)
        hit("after_recovery")
        self._to.post_bodies(agent, cause, *bodies)

    async def _prepare_again(self, agent: str, cause: int, run: ToolRun) -> None:
        """Look now for the next attempt, so that its intent goes into the log together with the verdict: a host that
        is killed again and again gets on if it lives for three appends."""
        if changes := self._changes_of(agent, run.tool):
            changes.forget(run.key)
        again = msgspec.structs.replace(_intent_of(run), attempt=run.attempt + 1)
        if self._is_to_observe(agent, again) and not run.cancelling:
            self._observing.add((again.call, again.attempt))
            await self._observe(agent, cause, again)

    async def _ended(
        self, agent: str, cause: int, body: ToolStarted, result: ToolResult, duration_ms: int
    ) -> list[msgspec.Struct]:
        """What is recorded of a call's end, when the files that it changed are."""
        changes = self._changes_of(agent, body.tool)
        if changes is None:
            return _facts(body.call, body.attempt, result, duration_ms)
        late = await changes.after(agent, cause, body.call, result.changes)
        if result.status == "unknown":
            told = await changes.told(body.observed.tree)
            result = msgspec.structs.replace(result, text=f"{result.text}\n{told}")
        facts = _facts(body.call, body.attempt, result, duration_ms)
        if result.changes:
            facts[0] = FilesChanged(changes=result.changes, calls=(body.call,), tree=changes.tree)
        return [*facts[:-1], *late, facts[-1]]

    def _changes_of(self, agent: str, tool: str) -> Changes | None:
        """Who records what becomes of files, for a tool that may change some; none for one that this agent was not
        given, whoever else has it: its calls change nothing."""
        place = self._places.of(agent)
        found = place.tools.get(tool)
        if found is None or not found.spec.writes or spec_of(self._to.state.agents[agent], tool) is None:
            return None
        return place.changes

    async def _verdict(self, agent: str, run: ToolRun) -> Verdict:
        if run.recovery == "pure":
            return Verdict(verdict="retried", evidence="it only reads; it is run again")
        place = self._places.of(agent)
        tool = place.tools.get(run.tool)
        if tool is None:
            return Verdict(verdict="unknown", evidence=f"this host has no tool {run.tool}")
        call = self._call(run.key, run.attempt, run.tool, run.args)
        try:
            verdict = believed(run.recovery, await tool.reconcile(call, run.observed, place.workspace))
            return as_far_as_known(run.recovery, verdict, is_lost=run.intent < self._to.state.cut)
        except LOST_GROUND:
            raise
        except Exception as error:  # noqa: BLE001 - the border to tools: a recovery that fails leaves the doubt standing, and says so
            return Verdict(verdict="unknown", evidence=f"recovery failed: {error!r}")

    async def _timer(self, timer: Timer) -> None:
        if timer.until:
            await _sleep_until(datetime.fromisoformat(timer.until))
        else:
            await anyio.sleep(timer.duration_ms / 1000)
        current = self._to.state.timers.get(timer.key)
        if current is not None and current.seq == timer.seq:
            self._to.post_bodies(timer.agent, timer.seq, TimerFired(key=timer.key))

    async def _guarding(self, effect: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run an effect. One that lost its ground is the loop's to tell: were it raised here, the task group would
        cancel its siblings, and a cancelled command is a killed one."""
        try:
            await effect(*args)
        except LOST_GROUND as error:
            self._to.fail(error)

    # -- small parts -------------------------------------------------------------------------------------------------

    def _scope(self, key: str) -> anyio.CancelScope:
        scope = self._scopes[key] = anyio.CancelScope()
        run = self._to.state.run(key)
        if run is not None and run.cancelling:
            scope.cancel()
        return scope

    async def _guarded(self, agent: str, body: ToolStarted, args: str, attach: bool) -> ToolResult:
        place, call = self._places.of(agent), self._call(body.call, body.attempt, body.tool, args)

        def show(piece: str) -> None:
            self._has.on_signal(body.call, piece)

        try:
            tool = place.tools[body.tool]
            return await tool.run(call, body.observed, place.workspace, self._keep, self._keep_file, show, attach)
        except LOST_GROUND:
            raise
        except Exception as error:  # noqa: BLE001 - the border to tools: whatever one raises becomes its result
            return ToolResult(status="error", text=f"The tool failed: {error!r}")

    def _cannot_run(self, agent: str, tool: str, args: str) -> ToolResult | None:
        """Why a call cannot run: the agent was not given such a tool, though others may have one."""
        given = {spec.name for spec in self._to.state.agents[agent].tools}
        if tool in given and approval.parsed(args) is None:
            return ToolResult(status="error", text="The arguments are no JSON object. Send the call again, whole.")
        if tool not in given or tool not in self._places.of(agent).tools:
            names = ", ".join(sorted(given))
            return ToolResult(status="error", text=f"There is no tool named {tool!r}. You have: {names}.")
        return None

    def _call(self, key: str, attempt: int, tool: str, args: str) -> ToolCall:
        settings = self._to.state.settings
        return ToolCall(
            call=key,
            attempt=attempt,
            name=tool,
            args=approval.parsed(args) or {},
            args_text=args,
            idempotency_key=idempotency_key(self._to.state.session, key, args),
            epoch=self._to.state.epoch,
            timeout_seconds=settings.shell_timeout_seconds if settings else 0,
        )

    async def _keep(self, data: bytes) -> BlobRef:
        root, length = self._has.log.put_blob(data, secrets.token_bytes(32))
        return BlobRef(blob=root, length=length)

    async def _keep_file(self, path: Path) -> BlobRef:
        async with self._large:
            return await anyio.to_thread.run_sync(_keep_file, self._has.blobs(), path)


CHUNK_BYTES = 64 * 1024


def _is_looked_at(body: ToolStarted) -> bool:
    """Whether the tool itself is to look before this intent."""
    return body.recovery in ("reconcilable", "attachable")


def _elsewhere(paths: tuple[str, ...], call: ToolCall, workspace: Workspace) -> str:
    """Why a file tool may not run: its path leads to another than the one that the rules judged. "" if it does not."""
    if not paths:
        return ""
    judged, _ = named_path(call.args, str(workspace.root))
    other = next((path for path in paths if path != judged), "")
    return f"{judged} leads to {other}, and rules judge paths as they are written: give {other}" if other else ""


def _keep_file(log: Log, path: Path) -> BlobRef:
    with path.open("rb") as file:
        root, length = log.put_blob(iter(lambda: file.read(CHUNK_BYTES), b""), secrets.token_bytes(32))
    return BlobRef(blob=root, length=length)


def _facts(call: str, attempt: int, result: ToolResult, duration_ms: int) -> list[msgspec.Struct]:
    facts: list[msgspec.Struct] = []
    if result.changes:
        facts.append(FilesChanged(changes=result.changes, calls=(call,)))
    for process in result.processes:
        facts.append(started_body(call, process))
        if process.how:
            facts.append(ProcessReaped(call=call, pid=process.pid, started=process.started, how=process.how))
    facts.append(
        ToolFinished(
            call=call,
            attempt=attempt,
            status=result.status,
            text=result.text,
            output=result.output,
            output_bytes=result.output_bytes,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            duration_ms=duration_ms if result.duration_ms is None else result.duration_ms,
        )
    )
    return facts


def _intent_of(run: ToolRun) -> ToolStarted:
    return ToolStarted(
        call=run.key,
        attempt=run.attempt,
        tool=run.tool,
        args=run.args,
        recovery=run.recovery,
        observed=run.observed,
    )


def _text(args: str | BlobRef) -> str:
    assert isinstance(args, str), "arguments stand in the event as the model sent them"
    return args


async def _sleep_until(date: datetime) -> None:
    """Until the wall clock says so: it may be set, and the machine may be suspended meanwhile."""
    while (left := (date - datetime.now(UTC)).total_seconds()) > 0:
        await anyio.sleep(min(left, SLICE_SECONDS))


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
