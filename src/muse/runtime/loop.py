"""The owner's loop: outcomes and commands in, one durable append, effects out. The owner's only caller of `append`.

    open → fold → close what was in doubt → repeat:
        take every outcome and command that is ready → evolve → all decisions due now
        append outcomes + decisions in one transaction → react to what is now durable

The same loop runs in normal times and after a crash; there is no second start path. It decides nothing itself
(`decide.due` does) and touches nothing itself (`dispatch` does).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush

import anyio
import msgspec

from muse.decide.context import Rules, next_request
from muse.decide.decision import Due
from muse.decide.due import upcoming
from muse.errors import MuseError, StoreUnavailable
from muse.event.envelope import Event, decode
from muse.event.kinds import ModelRequested
from muse.failpoint import hit
from muse.fold.evolve import evolve
from muse.fold.state import STATE_VERSION, Session, Undo, remember, undone
from muse.log.protocol import Draft, Log, Ownership, Stored
from muse.runtime.checkpoint import next_checkpoint, write_state
from muse.runtime.dispatch import Dispatch
from muse.runtime.screening import Screen, commands, refusals, trailing
from muse.runtime.seal import seal

POLL_SECONDS = 0.02
RACES_MAX = 3
DECISIONS_MAX = 10_000
STORE_ATTEMPTS_MAX = 4
STORE_WAIT_SECONDS = 0.25
ROOM_SECONDS = 1.0
"""How often at least the space for the log is looked at, whatever runs."""


class Outcome(msgspec.Struct, frozen=True):
    """A fact that an effect brings back: `cause` is the seq of its intent."""

    agent: str
    cause: int
    body: msgspec.Struct


class _Batch(msgspec.Struct):
    """What one append is to hold: facts with their drafts, and decisions with drafts and request bytes."""

    facts: list[tuple[Outcome, Draft]]
    decisions: list[tuple[Due, Draft]]


class Loop:
    """Runs one session for its owner until it closes (or, with `stay`, until `stop`)."""

    def __init__(
        self,
        log: Log,
        ownership: Ownership,
        state: Session,
        rules: Rules,
        dispatch: Dispatch,
        on_event: Callable[[Event], None],
        *,
        stay: bool = False,
        on_fatal: Callable[[MuseError], None] | None = None,
        screen: Screen | None = None,
    ) -> None:
        """`on_fatal` is called when a step failed for good, before anything that runs is cancelled; it need not
        return. `screen` is asked about each command that came in: why it is not to be followed, "" if it is."""
        self.log = log
        self.ownership = ownership
        self.state = state
        self.rules = rules
        self.dispatch = dispatch
        self.on_event = on_event
        self.stay = stay
        self.on_fatal = on_fatal
        self.screen = screen
        self._inbox: list[Outcome] = []
        self._woken: set[str] = set(state.agents) | {"main"}
        self._wake = anyio.Event()
        self._stopping = False
        self._failed: MuseError | None = None
        self._checkpoint_at = next_checkpoint(state.seq)
        self._room_at = 0.0

    def post_bodies(self, agent: str, cause: int, *bodies: msgspec.Struct) -> None:
        """Hand in what an effect brought back; what is posted together is appended together."""
        self._inbox.extend(Outcome(agent, cause, body) for body in bodies)
        self._wake.set()

    def poke(self, agent: str = "") -> None:
        """Look again: a command was submitted, or an observation is ready."""
        if agent:
            self._woken.add(agent)
        self._wake.set()

    def fail(self, error: MuseError) -> None:
        """An effect found that the session cannot go on in this process: `run` raises it."""
        self._failed = self._failed or error
        self._wake.set()

    def stop(self) -> None:
        """Return from `run` at the next opportunity, starting nothing more."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> Session:
        """Go on until the session is closed. Raises `Fenced`, `StoreUnavailable` or `Damaged`."""
        came_before = [
            *trailing(self.log, self.state.opened), *commands(self.log, self.state.opened, self.state.seq + 1),
        ]  # fmt: skip
        self._inbox += [outcome for outcome, _ in self._refused(came_before)]
        async with anyio.create_task_group() as tasks:
            self.dispatch.begin(tasks, self)
            idle = False
            while not self._stopping:
                try:
                    if idle:
                        self.log.tidy()
                    await self._step()
                except MuseError as error:
                    if self.on_fatal is not None:
                        self.on_fatal(error)
                    raise
                if self.state.closed and not self.stay and not self._inbox:
                    break
                with anyio.move_on_after(POLL_SECONDS) as waited:
                    await self._wake.wait()
                idle = waited.cancelled_caught
            tasks.cancel_scope.cancel()
        return self.state

    async def _step(self) -> None:
        self._wake = anyio.Event()
        changed = self.log.changed()  # what befell the log is a better reason than what failed because of it
        if self._failed is not None:
            raise self._failed
        refused = self._fold_missed() if changed else []
        outcomes, self._inbox = self._inbox, []
        facts = [*refused, *map(_sealed, outcomes)]
        if facts or self._woken or time.monotonic() >= self._room_at:
            self._require_room(facts)
        if facts or self._woken:
            await self._append(facts)
        if self.state.seq >= self._checkpoint_at:
            hit("before_checkpoint")
            self.log.save_checkpoint(self.state.seq, STATE_VERSION, write_state(self.state))
            hit("after_checkpoint")
            self._checkpoint_at = next_checkpoint(self.state.seq)

    def _require_room(self, facts: list[tuple[Outcome, Draft]]) -> None:
        """Stop while there is space to do so: what is known already is kept if it still fits, nothing is decided."""
        self._room_at = time.monotonic() + ROOM_SECONDS
        if self.log.room():
            return
        if facts:
            with suppress(StoreUnavailable):  # then what they tell is asked again after a resume
                self.log.append([draft for _, draft in facts], [], self.state.seq, self.ownership.epoch)
                self._fold_missed()  # nothing is decided any more: the next owner looks who said what
        raise StoreUnavailable(
            "the disk with the log is nearly full: nothing more is started",
            hint="free some space there, then go on with `muse resume`",
        )

    async def _append(self, facts: list[tuple[Outcome, Draft]]) -> None:
        woken, self._woken = self._woken, set()
        races = failures = 0
        while True:
            undo = remember(self.state)
            try:
                if self._append_once(facts, woken, undo, locked=races >= RACES_MAX):
                    self.dispatch.observe_wanted(durable=True)
                    return
                races += 1
                self._undo(undo)
                facts = self._fold_missed()
            except StoreUnavailable as error:
                failures += 1
                self._undo(undo)
                await self._reopen_store(failures, error)
                if facts and self.log.find([facts[0][1].id]):
                    facts = []
                facts = [*facts, *self._fold_missed()]
            woken, self._woken = woken | self._woken, set()

    def _undo(self, undo: Undo) -> None:
        self.state = undone(undo, self.state)
        self.dispatch.observe_wanted(durable=False)

    def _append_once(self, facts: list[tuple[Outcome, Draft]], woken: set[str], undo: Undo, *, locked: bool) -> bool:
        """One try. False when the head had moved: the facts then stand in the log and the decisions do not."""
        expected = self.state.seq
        if locked:
            self._append_deciding(facts, woken, expected, undo)
            return True
        batch = self._derive(facts, woken, undo)
        if not batch.facts and not batch.decisions:
            return True
        drafts = [draft for _, draft in batch.decisions]
        hit("before_append")
        done = self.log.append([draft for _, draft in facts], drafts, expected, self.ownership.epoch)
        hit("after_append")
        if not done.decisions_kept or done.first != expected + 1:
            return False
        self._durable(batch, expected)
        return True

    def _derive(self, facts: Sequence[tuple[Outcome, Draft]], woken: set[str], undo: Undo | None) -> _Batch:
        """Fold the facts and every decision that is due and ready, one at a time, into the state."""
        waiting = set(woken)
        for outcome, draft in facts:
            waiting |= evolve(self.state, self._event(draft, outcome.body, self.state.seq + 1), undo)
        order = sorted(waiting)  # which is a heap: always the first agent by name, however many wait
        decisions: list[tuple[Due, Draft]] = []
        while order and len(decisions) < DECISIONS_MAX:
            agent = order[0]
            ready = next((one for one in upcoming(self.state, {agent}, self.rules) if self.dispatch.ready(one)), None)
            if ready is None:
                waiting.discard(heappop(order))
                continue
            taken = self.dispatch.observed(ready)
            draft = seal(taken.body, taken.agent, taken.cause)
            for other in evolve(self.state, self._event(draft, taken.body, self.state.seq + 1), undo) - waiting:
                waiting.add(other)
                heappush(order, other)
            decisions.append((taken, draft))
        self._woken |= waiting  # those left over for the next append, when there were too many for this one
        return _Batch(list(facts), decisions)

    def _event(self, draft: Draft, body: msgspec.Struct, seq: int) -> Event:
        epoch = self.ownership.epoch
        return Event(seq, draft.id, draft.time, draft.type, draft.v, draft.agent, draft.cause, epoch, body)

    def _durable(self, batch: _Batch, before: int) -> None:
        """Everything of the batch is on disk: show it, and start what its intents allow."""
        seq = before
        for outcome, draft in batch.facts:
            seq += 1
            self._show(seq, draft, outcome.body, b"")
        for decision, draft in batch.decisions:
            seq += 1
            self._show(seq, draft, decision.body, decision.request)

    def _show(self, seq: int, draft: Draft, body: msgspec.Struct, request: bytes) -> None:
        event = self._event(draft, body, seq)
        self.on_event(event)
        self.dispatch.react(event, self.state, request)

    def _append_deciding(self, facts: list[tuple[Outcome, Draft]], woken: set[str], expected: int, undo: Undo) -> None:
        """Fold what came in and decide inside the write transaction: nobody can get in between."""
        batch = _Batch([], [])
        missed_events: list[Event] = []

        def derive(missed: Sequence[Stored], first: int) -> Sequence[Draft]:
            agents = set(woken)
            for stored in missed:
                event = decode(stored.header, stored.body, stored.hidden)
                missed_events.append(event)
                agents |= evolve(self.state, event, undo)
            assert first == self.state.seq + 1
            refused = self._refused(missed_events)
            made = self._derive([*facts, *refused], agents, undo)
            batch.facts, batch.decisions = made.facts, made.decisions
            return [draft for _, draft in (*refused, *made.decisions)]

        hit("before_append")
        self.log.append_deciding([draft for _, draft in facts], derive, expected, self.ownership.epoch)
        hit("after_append")
        for event in missed_events:
            self.on_event(event)
            self.dispatch.react(event, self.state)
        self._durable(batch, expected + len(missed_events))

    def _fold_missed(self) -> list[tuple[Outcome, Draft]]:
        """Fold what stands in the log and was not folded yet: commands of others, and what we appended without a
        reply or in a lost race. Returns the refusals that must be recorded before anything is decided."""
        events: list[Event] = []
        for stored in self.log.missed(after=self.state.seq):
            event = decode(stored.header, stored.body, stored.hidden)
            self._woken |= evolve(self.state, event)
            self.on_event(event)
            self.dispatch.react(event, self.state, self._request_of(event))
            events.append(event)
        return self._refused(events)

    def _refused(self, events: Sequence[Event]) -> list[tuple[Outcome, Draft]]:
        return [_sealed(Outcome(event.agent, event.seq, body)) for event, body in refusals(events, self.screen)]

    def _request_of(self, event: Event) -> bytes:
        """The bytes that a `model.requested` just folded stands for, built again."""
        if not isinstance(event.body, ModelRequested):
            return b""
        built = next_request(self.state, self.state.agents[event.agent], self.rules, event.body.purpose)
        assert built.sha256 == event.body.request_sha256, f"the request of #{event.seq} cannot be rebuilt"
        return built.body

    async def _reopen_store(self, failures: int, error: StoreUnavailable) -> None:
        """An append failed: nothing of it is assumed. Open again, or give up and leave the log as it is."""
        while failures < STORE_ATTEMPTS_MAX:
            await anyio.sleep(STORE_WAIT_SECONDS * failures)
            try:
                self.log.reopen()
            except StoreUnavailable as still:
                failures, error = failures + 1, still
            else:
                return
        raise error


def _sealed(outcome: Outcome) -> tuple[Outcome, Draft]:
    return outcome, seal(outcome.body, outcome.agent, outcome.cause)
