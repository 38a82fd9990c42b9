"""What the demo claims, counted: from the log, from counter.txt, from exit codes. Nothing here is known beforehand.

`recovery_of` counts the log, `counter_of` the file, `broken` says which promise a set of facts breaks. Pure, so that
wrong facts can be tried.
"""

from collections.abc import Iterable

import msgspec

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
from muse.view.amounts import plural


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says about its crash. `finished`: calls with a result when the next owner opened the session; `again`:
    calls started again after they had one; `attached`: seqs of the intents that were re-attached; `unknown`: those
    whose outcome nobody knows; `outcome` of the session."""

    finished: frozenset[str] = frozenset()
    again: int = 0
    attached: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    crashes: int = 0
    outcome: str = ""


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of counter.txt."""

    starts: int = 0
    ends: int = 0
    lines: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the demo's claims rest on. `ticked`: calls seen to finish before the kill; `slow`: seq of the slow
    command's intent; `grown`: lines that came to counter.txt while no host ran; `named`: the event that `verify` named
    first in the changed copy. What was not found out yet breaks a promise."""

    slow: int = 0
    ticked: frozenset[str] = frozenset()
    killed: bool = False
    grown: int = 0
    recovered: Recovered = Recovered()
    counter: Counter = Counter()
    resume_exit: int = -1
    tests: int = 0
    tests_failing: int = 0
    changed: int = 0
    named: int = 0
    copy_exit: int = -1
    original_exit: int = -1


def recovery_of(events: Iterable[Event]) -> Recovered:
    """Count a session's events."""
    done: set[str] = set()
    finished: frozenset[str] = frozenset()
    intents: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    again = crashes = 0
    outcome = ""
    for event in events:
        match event.body:
            case SessionOpened(crashed=True):
                crashes, finished = crashes + 1, frozenset(done)
            case ToolStarted(call=call) | ModelRequested(call=call):
                again += call in done
                intents[call] = event.seq
            case ToolFinished(call=call) | ModelResponded(call=call):
                done.add(call)
            case EffectReconciled(call=call, verdict=verdict):
                found.setdefault(verdict, []).append(intents[call])
            case SessionClosed():
                outcome = event.body.outcome
            case _:
                pass
    return Recovered(
        finished=finished, again=again, attached=tuple(found.get("attached", ())), crashes=crashes, outcome=outcome,
        unknown=tuple(found.get("unknown", ())),
    )  # fmt: skip


def counter_of(text: str) -> Counter:
    """Count the whole lines of counter.txt."""
    lines = text.split("\n")[:-1]
    starts = sum(line.startswith("start") for line in lines)
    return Counter(starts=starts, ends=sum(line == "end" for line in lines), lines=len(lines))


def recovery_line(facts: Facts) -> str:
    """The line that the demo is about."""
    found, counter = facts.recovered, facts.counter
    seqs = ", ".join(f"#{seq}" for seq in found.attached) or "nothing"
    steps = f"{plural(len(found.finished), 'finished step')}, {found.again} run again"
    return f"re-attached to {seqs}; {steps}; {counter_line(counter)}"


def counter_line(counter: Counter) -> str:
    """Starts and ends, as counted."""
    return f"counter.txt: {plural(counter.starts, 'start')}, {plural(counter.ends, 'end')}"


def broken(facts: Facts) -> list[str]:
    """The promises that do not hold, one sentence each; empty when all do."""
    return [*broken_recovery(facts), *_broken_end(facts)]


def broken_recovery(facts: Facts) -> list[str]:
    """Those about the kill and the recovery."""
    found, counter = facts.recovered, facts.counter
    lost = facts.ticked - found.finished
    held = {
        "the host was not killed": facts.killed,
        f"the log tells of {found.crashes} crashes, not of 1": found.crashes == 1,
        "counter.txt did not go on while no host ran": facts.grown > 0,
        f"{plural(len(lost), 'step')} seen to finish, but not in the log": not lost,
        "no step had finished before the kill": bool(found.finished),
        f"{plural(found.again, 'finished step')} ran again": found.again == 0,
        f"the slow command #{facts.slow} was not what was re-attached": found.attached == (facts.slow,),
        f"how {plural(len(found.unknown), 'step')} ended is not known": not found.unknown,
        f"the slow command started {counter.starts} times, not once": counter.starts == 1,
        f"the slow command ended {counter.ends} times, not once": counter.ends == 1,
    }
    return [sentence for sentence, holds in held.items() if not holds]


def _broken_end(facts: Facts) -> list[str]:
    held = {
        f"the resumed agent ended with exit code {facts.resume_exit}": facts.resume_exit == 0,
        f"the log says that the session ended as {facts.recovered.outcome!r}": facts.recovered.outcome == "done",
        f"{facts.tests_failing} of {facts.tests} tests fail": facts.tests > 0 and facts.tests_failing == 0,
        f"verify of the changed copy exits {facts.copy_exit}, not 6": facts.copy_exit == 6,
        f"verify names #{facts.named}, and #{facts.changed} was changed": facts.named == facts.changed > 0,
        f"verify of the original exits {facts.original_exit}, not 0": facts.original_exit == 0,
    }
    return [sentence for sentence, holds in held.items() if not holds]
