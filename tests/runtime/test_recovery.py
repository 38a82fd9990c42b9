"""Every recovery class, and each verdict that it allows: what is run again, what is told, and that the log says so.

The host is taken away in the middle of a call by cancelling its tasks without a word to the log; the next one opens the
same file. Effects are counted outside.
"""

import hashlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from muse.effect.model.scripted import Step
from muse.effect.protocol import ToolCall, ToolResult, Verdict, Workspace
from muse.event.content import Observed, RecoveryClass, ToolSpec
from muse.event.envelope import Event
from muse.event.kinds import EffectReconciled, ToolFinished, ToolStarted, UserPrompted
from tests.runtime.rig import Rig, Tally

ARGS = '{"n": 1}'


class Counted(Tally):
    """A tool of a given class, whose look after a crash gives a given verdict."""

    def __init__(self, folder: Path, recovery: RecoveryClass, verdict: Verdict) -> None:
        super().__init__(folder)
        self.spec = ToolSpec(name="tally", description="", schema="{}", recovery=recovery, writes=True)
        self.verdict = verdict
        self.keys: list[str] = []
        self.attached = 0

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Any, keep_file: Any, show: Any,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        if attach:
            self.attached += 1
            return ToolResult(status="unknown" if self.verdict.verdict == "unknown" else "ok", text="taken up")
        self.keys.append(call.idempotency_key)
        return await super().run(call, observed, workspace, keep, keep_file, show, attach)

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        self.keys.append(call.idempotency_key)
        return self.verdict


def crashed_in(rig: Rig, tool: Counted) -> None:
    """A session whose host is gone in the middle of its one call."""
    rig.submit(UserPrompted(text="go"))
    tool.hold = anyio.Event()

    async def live() -> None:
        running = rig.open(tools={"tally": tool})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await tool.started.wait()
            tasks.cancel_scope.cancel()
        running.release()

    anyio.run(live)
    tool.hold = None


def resumed(rig: Rig, tool: Counted) -> list[Event]:
    running = rig.open(tools={"tally": tool})
    try:
        state = anyio.run(running.run)
    finally:
        running.release()
    assert state.outcome == "done"
    return rig.events()


def play(folder: Path, recovery: RecoveryClass, verdict: Verdict) -> tuple[Counted, list[Event]]:
    rig = Rig(folder, [Step(uses=(("tally", ARGS),)), Step(text="done")])
    tool = Counted(folder, recovery, verdict)
    crashed_in(rig, tool)
    return tool, resumed(rig, tool)


def of(events: list[Event], kind: type) -> list[Any]:
    return [event.body for event in events if isinstance(event.body, kind)]


DONE = ToolResult(status="ok", text="it had been done")
SAID = "what the tool saw"


@pytest.mark.parametrize(
    ("recovery", "given", "recorded", "starts", "status", "text"),
    [
        # a class, what its tool says → the verdict in the log, how often it was started, how its call ended
        ("pure", "unknown", "retried", 2, "ok", "tallied main/2"),
        ("reconcilable", "done", "done", 1, "ok", "it had been done"),
        ("reconcilable", "not_done", "not_done", 2, "ok", "tallied main/2"),
        ("reconcilable", "unknown", "unknown", 1, "unknown", SAID),
        ("attachable", "attached", "attached", 1, "ok", "taken up"),
        ("attachable", "not_done", "not_done", 2, "ok", "tallied main/2"),
        ("attachable", "unknown", "unknown", 1, "unknown", "taken up"),
        ("keyed", "retried", "retried", 2, "ok", "tallied main/2"),
        ("keyed", "done", "done", 1, "ok", "it had been done"),
        ("keyed", "not_done", "not_done", 2, "ok", "tallied main/2"),
        ("keyed", "unknown", "unknown", 1, "unknown", SAID),
        ("opaque", "done", "done", 1, "ok", "it had been done"),
        ("opaque", "unknown", "unknown", 1, "unknown", SAID),
        # what a class may not say is not believed, and nothing is run again
        ("reconcilable", "retried", "unknown", 1, "unknown", SAID),
        ("reconcilable", "attached", "unknown", 1, "unknown", SAID),
        ("attachable", "retried", "unknown", 1, "unknown", SAID),
        ("keyed", "attached", "unknown", 1, "unknown", SAID),
        ("opaque", "not_done", "unknown", 1, "unknown", SAID),
        ("opaque", "retried", "unknown", 1, "unknown", SAID),
        ("opaque", "attached", "unknown", 1, "unknown", SAID),
    ],
)
def test_each_verdict_of_each_class_is_an_event_and_holds(
    tmp_path: Path, recovery: Any, given: Any, recorded: str, starts: int, status: str, text: str
) -> None:
    verdict = Verdict(
        verdict=given,
        evidence=SAID,
        result=DONE if given == "done" else None,
        take_up=(recovery, given) == ("attachable", "unknown"),
    )
    tool, events = play(tmp_path, recovery, verdict)
    (reconciled,) = of(events, EffectReconciled)
    assert (reconciled.call, reconciled.verdict) == ("main/2", recorded)
    assert SAID in reconciled.evidence or recovery == "pure"
    assert tool.counts() == {"main/2": starts}
    assert [body.attempt for body in of(events, ToolStarted)] == list(range(1, starts + 1))
    (finished,) = of(events, ToolFinished)
    assert finished.status == status
    assert text in finished.text
    if text == SAID:
        assert "may or may not have happened" in finished.text
        assert "do not simply run it again" in finished.text


def test_a_keyed_call_has_one_key_whoever_sends_it(tmp_path: Path) -> None:
    """SHA-256 of session, call and the digest of the arguments as the model wrote them (decision 0014)."""
    tool, _ = play(tmp_path, "keyed", Verdict(verdict="retried", evidence="inside the window"))
    digest = hashlib.sha256(ARGS.encode()).hexdigest()
    assert tool.keys == [hashlib.sha256(f"s\nmain/2\n{digest}".encode()).hexdigest()] * 3


def test_a_model_call_in_flight_is_asked_again_under_its_key(tmp_path: Path) -> None:
    rig = Rig(tmp_path, [Step(text="done", delay_ms=60_000)])
    rig.submit(UserPrompted(text="go"))

    async def live() -> None:
        running = rig.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            while not any(event.type == "model.requested" for event in rig.seen):
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        running.release()

    anyio.run(live)
    rig.model = type(rig.model)([Step(text="done")])
    rig.run()
    asked = [event.body for event in rig.events() if event.type == "model.requested"]
    assert [(body.call, body.attempt) for body in asked] == [("main/1", 1), ("main/1", 2)]  # type: ignore[union-attr]
    assert len({body.request_sha256 for body in asked}) == 1  # type: ignore[union-attr]
    (reconciled,) = of(rig.events(), EffectReconciled)
    assert reconciled.verdict == "retried"


def test_a_recovery_that_fails_or_a_tool_that_is_gone_leaves_the_doubt_and_says_so(tmp_path: Path) -> None:
    class Failing(Counted):
        async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
            raise RuntimeError("the world is not there")

    for name, make in (("fails", Failing), ("gone", None)):
        folder = tmp_path / name
        folder.mkdir()
        rig = Rig(folder, [Step(uses=(("tally", ARGS),)), Step(text="done")])
        tool = Counted(folder, "keyed", Verdict(verdict="retried", evidence=""))
        crashed_in(rig, tool)
        if make is None:
            other = Counted(folder, "keyed", tool.verdict)
            other.spec = ToolSpec(name="other", description="", schema="{}", recovery="pure")
            running = rig.open(tools={"other": other})
            try:
                anyio.run(running.run)
            finally:
                running.release()
        else:
            resumed(rig, make(folder, "keyed", tool.verdict))
        (reconciled,) = of(rig.events(), EffectReconciled)
        assert reconciled.verdict == "unknown"
        assert "the world is not there" in reconciled.evidence or "no tool tally" in reconciled.evidence
        assert tool.counts() == {"main/2": 1}
