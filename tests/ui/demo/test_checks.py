"""The demo's own claims, tried with facts that are wrong."""

from typing import Any

import msgspec
import pytest

from muse.event.content import Host, Settings
from muse.event.envelope import Event
from muse.event.kinds import (
    EffectReconciled,
    ModelRequested,
    ModelResponded,
    SessionClosed,
    SessionOpened,
    ToolFinished,
    ToolStarted,
)
from muse.ui.demo.checks import Counter, Facts, Recovered, broken, counter_of, recovery_line, recovery_of

RECOVERED = Recovered(finished=frozenset({"main/1", "main/2"}), attached=(7,), crashes=1, outcome="done")
GOOD = Facts(
    slow=7, ticked=frozenset({"main/1", "main/2"}), killed=True, grown=3, recovered=RECOVERED,
    counter=Counter(starts=1, ends=1, lines=8), resume_exit=0, tests=9, tests_failing=0, changed=5, named=5,
    copy_exit=6, original_exit=0,
)  # fmt: skip


def wrong(**changes: Any) -> Facts:
    return msgspec.structs.replace(GOOD, **changes)


def recovered(**changes: Any) -> Facts:
    return wrong(recovered=msgspec.structs.replace(RECOVERED, **changes))


def test_facts_as_promised_break_nothing() -> None:
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (wrong(killed=False), "the host was not killed"),
        (wrong(grown=0), "counter.txt did not go on while no host ran"),
        (wrong(counter=Counter(starts=2, ends=1, lines=9)), "the slow command started 2 times, not once"),
        (wrong(counter=Counter(starts=1, ends=2, lines=9)), "the slow command ended 2 times, not once"),
        (wrong(counter=Counter(starts=1, ends=0, lines=9)), "the slow command ended 0 times, not once"),
        (wrong(ticked=frozenset({"main/1", "main/3"})), "1 step seen to finish, but not in the log"),
        (wrong(slow=8), "the slow command #8 was not what was re-attached"),
        (wrong(resume_exit=1), "the resumed agent ended with exit code 1"),
        (wrong(tests_failing=1), "1 of 9 tests fail"),
        (wrong(tests=0), "0 of 0 tests fail"),
        (wrong(copy_exit=0), "verify of the changed copy exits 0, not 6"),
        (wrong(named=4), "verify names #4, and #5 was changed"),
        (wrong(changed=0, named=0), "verify names #0, and #0 was changed"),
        (wrong(original_exit=6), "verify of the original exits 6, not 0"),
        (recovered(again=1), "1 finished step ran again"),
        (recovered(attached=()), "the slow command #7 was not what was re-attached"),
        (recovered(attached=(7, 7)), "the slow command #7 was not what was re-attached"),
        (recovered(unknown=(7,)), "how 1 step ended is not known"),
        (recovered(crashes=0), "the log tells of 0 crashes, not of 1"),
        (recovered(outcome="failed"), "the log says that the session ended as 'failed'"),
    ],
)
def test_each_wrong_fact_is_named(facts: Facts, sentence: str) -> None:
    assert broken(facts) == [sentence]


def test_what_was_never_found_out_is_no_success() -> None:
    assert len(broken(Facts())) > 10


def test_the_counter_counts_whole_lines_only() -> None:
    assert counter_of("start (pid 7)\ntick 1\nend\nend") == Counter(starts=1, ends=1, lines=3)
    assert counter_of("") == Counter(starts=0, ends=0, lines=0)


def event(seq: int, body: msgspec.Struct) -> Event:
    return Event(seq, f"{seq:032x}", "2025-01-01T00:00:00.000000Z", "", 1, "main", 0, 1, body)


def opened(*, crashed: bool) -> SessionOpened:
    host = Host(name="h", pid=1)
    settings = Settings(provider="scripted", dialect="scripted", model="s")
    return SessionOpened(format=1, rules=1, workspace="/w", host=host, settings=settings, crashed=crashed)


def asked(call: str) -> ModelRequested:
    return ModelRequested(
        call=call, attempt=1, provider="p", model="m", builder="b", items=1, request_sha256="", request_bytes=0
    )


def ran(call: str) -> ToolStarted:
    return ToolStarted(call=call, attempt=1, tool="shell", args="{}", recovery="attachable")


CRASH = [
    opened(crashed=False),
    asked("main/1"),
    ModelResponded(call="main/1", attempt=1, blocks=(), stop="tool_use"),
    ran("main/2"),
    opened(crashed=True),
    EffectReconciled(call="main/2", attempt=1, verdict="attached"),
    ToolFinished(call="main/2", attempt=1, status="ok"),
    SessionClosed(outcome="done"),
]


def test_a_recovery_is_counted_from_the_log() -> None:
    found = recovery_of(event(seq, body) for seq, body in enumerate(CRASH, 1))
    assert found == Recovered(finished=frozenset({"main/1"}), again=0, attached=(4,), crashes=1, outcome="done")
    facts = wrong(recovered=found)
    assert recovery_line(facts) == "re-attached to #4; 1 finished step, 0 run again; counter.txt: 1 start, 1 end"


def test_a_step_that_starts_again_after_its_result_is_counted() -> None:
    bodies = [*CRASH[:6], asked("main/1"), *CRASH[6:7], ran("main/2")]
    assert recovery_of(event(seq, body) for seq, body in enumerate(bodies, 1)).again == 2
