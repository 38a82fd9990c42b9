"""The owner's loop against real stores: races, lost replies, crashes, cancellation. Effects are counted outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from muse.effect.model import scripted
from muse.effect.model.scripted import Step
from muse.errors import MuseError, StoreUnavailable, UsageError
from muse.event.kinds import AgentSteered, ApprovalDecided, CancelRequested, ModelChanged, NoteAdded, UserPrompted
from muse.log.protocol import Appended, Log
from muse.runtime.checkpoint import fold
from muse.runtime.seal import seal
from tests.runtime.rig import Rig, steps


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, steps(5))


class Between:
    """A log that lets something happen just before or just after each append. Delegates everything else."""

    def __init__(self, log: Log, before: Callable[[int], None], after: Callable[[int], None]) -> None:
        self._log, self._before, self._after, self._appends = log, before, after, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *arguments: Any) -> Appended:
        self._appends += 1
        self._before(self._appends)
        done = self._log.append(*arguments)
        self._after(self._appends)
        return done


def nothing(append: int) -> None:
    """Let nothing happen."""


def test_a_session_runs_to_its_end_and_every_effect_happens_once(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))
    state = rig.run()
    assert state.closed
    assert state.outcome == "done"
    assert len(rig.tally.counts()) == 10
    assert set(rig.tally.counts().values()) == {1}


def test_what_is_shown_live_is_what_the_log_holds(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))
    rig.run()
    opened = next(event.seq for event in rig.events() if event.type == "session.opened")
    assert rig.seen == [event for event in rig.events() if event.seq >= opened]


def test_a_command_before_every_append_only_makes_decisions_be_derived_again(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))

    def interrupt(append: int) -> None:
        rig.submit(NoteAdded(text=f"before append {append}"))

    state = rig.run(lambda log: Between(log, interrupt, nothing))  # type: ignore[arg-type,return-value]
    assert state.outcome == "done"
    assert set(rig.tally.counts().values()) == {1}
    assert len(rig.tally.counts()) == 10
    assert sum(event.type == "note.added" for event in rig.events()) > 20
    assert fold(rig.handle()) == state


@pytest.mark.parametrize("lost", ["before the commit", "after the commit"])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_an_append_without_a_reply_is_looked_up_and_not_doubled(rig: Rig, lost: str, at: int) -> None:
    rig.submit(UserPrompted(text="go"))

    def fail(append: int) -> None:
        if append == at:
            raise StoreUnavailable("no reply")

    before, after = (fail, nothing) if lost == "before the commit" else (nothing, fail)
    state = rig.run(lambda log: Between(log, before, after))  # type: ignore[arg-type,return-value]
    assert state.outcome == "done"
    assert set(rig.tally.counts().values()) == {1}
    assert len(rig.tally.counts()) == 10
    ids = [event.id for event in rig.events()]
    assert len(ids) == len(set(ids))


def test_when_the_store_stays_away_nothing_more_starts_and_the_session_resumes(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))

    def full(append: int) -> None:
        if append >= 4:
            raise StoreUnavailable("disk full")

    with pytest.raises(StoreUnavailable):
        rig.run(lambda log: Between(log, full, nothing))  # type: ignore[arg-type,return-value]
    ran = rig.tally.counts()
    started = {event.body.call for event in rig.events() if event.type == "tool.started"}  # type: ignore[attr-defined]
    assert set(ran) <= started, "no effect without a durable intent"
    state = rig.run()
    assert state.outcome == "done"
    assert set(rig.tally.counts().values()) == {1}


class Cramped(Between):
    """A log whose disk is nearly full from the fourth append on."""

    def room(self) -> bool:
        return self._appends < 4


def test_without_room_nothing_more_starts_what_is_known_is_kept_and_the_session_resumes(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))
    appended: list[int] = []

    def note(append: int) -> None:
        appended.append(len(rig.events()))

    with pytest.raises(StoreUnavailable, match="nearly full") as refusal:
        rig.run(lambda log: Cramped(log, nothing, note))  # type: ignore[arg-type,return-value]
    assert "muse resume" in refusal.value.hint
    left = rig.events()
    assert len(appended) == 5
    kept = {event.type for event in left[appended[3] :]}
    assert kept
    assert kept <= {"model.finished", "tool.finished"}, "outcomes and no intent"
    assert {event.seq for event in left if event.seq >= rig.seen[0].seq} == {event.seq for event in rig.seen}
    state = rig.run()
    assert state.outcome == "done"
    assert len(rig.tally.counts()) == 10
    assert set(rig.tally.counts().values()) == {1}


def test_steering_joins_the_running_turn_at_the_next_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps(1))
    rig.submit(UserPrompted(text="go"))
    running = rig.open()

    async def play() -> None:
        rig.tally.hold = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.tally.started.wait()
            rig.submit(AgentSteered(text="and the docs"))
            while not any(event.type == "agent.steered" for event in rig.seen):
                await anyio.sleep(0.005)
            rig.tally.hold.set()

    anyio.run(play)
    running.release()
    items = running.state.agents["main"].items
    texts = [getattr(item, "text", type(item).__name__) for item in items]
    assert texts == ["go", "Answered", "tallied main/2", "tallied main/3", "and the docs", "Answered"]


def test_cancelling_the_turn_ends_what_runs_and_tells_the_model(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps(3))
    rig.submit(UserPrompted(text="go"))
    running = rig.open()

    async def play() -> None:
        rig.tally.hold = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.tally.started.wait()
            rig.submit(CancelRequested(target="turn", why="wrong branch"))

    anyio.run(play)
    running.release()
    assert running.state.outcome == "cancelled"
    ends = [event.body.status for event in rig.events() if event.type == "tool.finished"]  # type: ignore[attr-defined]
    assert ends == ["cancelled", "cancelled"]
    notice = running.state.agents["main"].items[-1]
    assert "wrong branch" in notice.text  # type: ignore[union-attr]
    rig.tally.hold = None
    assert rig.run().outcome == "cancelled", "it stays cancelled"
    assert set(rig.tally.counts().values()) == {1}


def test_an_opaque_call_in_flight_at_a_crash_is_reported_and_never_run_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps(2))
    rig.submit(UserPrompted(text="go"))
    running = rig.open()

    async def die_in_the_middle() -> None:
        rig.tally.hold = anyio.Event()
        with anyio.move_on_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.run)
                await rig.tally.started.wait()
                running._ownership.release()
                running._log.append = lambda *_: (_ for _ in ()).throw(StoreUnavailable("the host is dead"))  # type: ignore[method-assign]
                tasks.cancel_scope.cancel()

    anyio.run(die_in_the_middle)
    rig.tally.hold = None
    state = rig.run()
    assert state.outcome == "done"
    assert set(rig.tally.counts().values()) == {1}
    found: Any = rig.events()
    doubts = [event.body.call for event in found if event.type == "effect.doubted"]
    ends = [event.body for event in found if event.type == "tool.finished"]
    unknown = [body.call for body in ends if body.status == "unknown"]
    assert doubts == unknown
    assert len(doubts) == 2


def test_a_failing_provider_is_asked_again_and_each_attempt_is_an_event(tmp_path: Path) -> None:
    failing = msgspec.convert({"failure": "overloaded", "times": 2}, scripted.Failing)
    rig = Rig(tmp_path, [Step(text="there", failure=failing)])
    rig.submit(UserPrompted(text="go"))
    assert rig.run().outcome == "done"
    kinds = [event.type for event in rig.events() if event.type.startswith(("model", "timer"))]
    assert kinds == ["model.requested", "model.failed", "timer.set", "timer.fired"] * 2 + [
        "model.requested",
        "model.responded",
    ]


def test_a_provider_that_refuses_for_good_ends_the_run_and_a_resume_asks_again(tmp_path: Path) -> None:
    failing = msgspec.convert({"failure": "auth", "times": 1}, scripted.Failing)
    rig = Rig(tmp_path, [Step(text="there", failure=failing)])
    rig.submit(UserPrompted(text="go"))
    assert rig.run().outcome == "provider"
    assert rig.run().outcome == "done"


def test_an_approval_in_the_name_of_another_agent_decides_nothing_and_harms_nothing(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))

    def forge(append: int) -> None:
        for agent in ("main.7", "main.7.1"):
            body = ApprovalDecided(call="main/2", decision="deny", by="person")
            log = rig.handle()
            log.submit(seal(body, agent, 0))
            log.close()

    state = rig.run(lambda log: Between(log, nothing, forge))  # type: ignore[arg-type,return-value]
    assert state.outcome == "done"
    assert len(rig.tally.counts()) == 10
    assert rig.run().outcome == "done"


def test_a_change_to_a_provider_that_the_owner_cannot_reach_stops_nothing(rig: Rig) -> None:
    rig.submit(UserPrompted(text="go"))

    def change(append: int) -> None:
        rig.submit(ModelChanged(provider="elsewhere", dialect="telepathy", model="m"))

    state = rig.run(lambda log: Between(log, nothing, change))  # type: ignore[arg-type,return-value]
    assert state.outcome == "done"
    assert len(rig.tally.counts()) == 10


def test_a_folder_whose_name_is_no_text_is_refused_in_words(rig: Rig, tmp_path: Path) -> None:
    rig.folder = tmp_path / "caf\udce9"
    with pytest.raises(UsageError, match="UTF-8"):
        rig.open()


def test_six_hundred_tool_uses_in_one_response_all_run_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, [Step(uses=tuple(("tally", {"n": n}) for n in range(600))), Step(text="done")])
    rig.submit(UserPrompted(text="go"))
    assert rig.run().outcome == "done"
    assert len(rig.tally.counts()) == 600
    assert set(rig.tally.counts().values()) == {1}


class Untidy:
    """A log whose upkeep fails. Delegates everything else."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def tidy(self) -> bool:
        raise StoreUnavailable("no space for a checkpoint")


class Left(BaseException):
    """The front door ended the process here."""


def test_upkeep_that_fails_ends_the_host_like_any_other_store_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps(1))
    rig.submit(UserPrompted(text="go"))
    told: list[MuseError] = []

    def leave(error: MuseError) -> None:
        told.append(error)
        raise Left

    running = rig.open(Untidy, on_fatal=leave)  # type: ignore[arg-type]

    async def play() -> None:
        rig.tally.hold = anyio.Event()
        with anyio.fail_after(20):
            await running.run()

    with pytest.raises(Left):
        anyio.run(play)
    running.release()
    assert [str(error) for error in told] == ["no space for a checkpoint"]
