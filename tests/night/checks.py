"""What may not be, held from outside against the log of a session with many agents. Each finding names its zero, as
those of the crash matrix do (`tests.crash.matrix.checks`)."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from muse import app
from muse.effect.model.scripted import Step
from muse.testing.validate import Siblings
from muse.testing.wire import Received
from tests.crash.matrix.checks import INTENTS, ZEROS, Finding, unsettled
from tests.e2e.rig import Event, Rig
from tests.night import work

__all__ = ["ZEROS", "Finding"]
ENDS = ("tool.finished", "model.responded")


def numbers_of(events: Sequence[Event]) -> dict[int, str]:
    """The agent of each task, by the task's number."""
    found = {}
    for event in events:
        if event["type"] == "agent.spawned" and (match := work.TASK.search(event["body"].get("task", ""))):
            found[int(match[1])] = event["agent"]
    return found


def born_and_ended_once(events: Sequence[Event], tasks: Sequence[int]) -> list[Finding]:
    """Over all lives each task has one agent, spawned before anything else of it, and one end (B10, B38, B46)."""
    spawned = Counter(event["agent"] for event in events if event["type"] == "agent.spawned")
    finished = Counter(event["agent"] for event in events if event["type"] == "agent.finished")
    found = [Finding("run again", f"{agent} was spawned {n} times") for agent, n in spawned.items() if n != 1]
    given = Counter(int(match[1]) for event in events if event["type"] == "agent.spawned"
                    if (match := work.TASK.search(event["body"].get("task", ""))))  # fmt: skip
    found += [Finding("run again" if n > 1 else "lost", f"the task {one} was given {n} times")
              for one in sorted({*given, *tasks}) if (n := given[one]) != 1]  # fmt: skip
    for agent in spawned.keys() - {"main"}:
        if finished[agent] != 1:
            found.append(Finding("run again" if finished[agent] else "lost", f"{agent} has {finished[agent]} ends"))
    first: dict[str, str] = {}
    for event in events:
        if first.setdefault(event["agent"], event["type"]) != "agent.spawned" and event["agent"] != "main":
            found.append(Finding("lost", f"{event['agent']} begins with {first[event['agent']]}"))
            first[event["agent"]] = "agent.spawned"
    return found


def calls_once(events: Sequence[Event]) -> list[Finding]:
    """Every call that was begun has one result, and is not begun after it."""
    found: list[Finding] = []
    asked: set[str] = set()
    ended: Counter[str] = Counter()
    over: set[str] = set()
    for event in events:
        call = event["body"].get("call", "")
        if event["type"] in INTENTS:
            asked.add(call)
            found += [Finding("run again", f"#{event['seq']} begins {call}, which has a result")] if ended[call] else []
        ended[call] += event["type"] in ENDS
        if event["type"] in ("model.failed", "effect.reconciled"):
            over.add(call)  # of a request that was cancelled
    found += [Finding("run again", f"{call} has {ended[call]} results") for call in asked if ended[call] > 1]
    return found + [Finding("lost", f"{call} has no result") for call in asked - over if not ended[call]]


def effects(rig: Rig, events: Sequence[Event], scripts: Mapping[int, Sequence[Step]], doubtful: set[str],
            cancelled: Collection[int] = (), isolated: Collection[int] = ()) -> list[Finding]:  # fmt: skip
    """What commands counted and edits wrote is what the results say; doubts only of what was killed with its keeper.
    Children that are `isolated` kept what their notes were in the end (`work.keep`)."""
    statuses, named = _statuses(events)
    counted = work.counted(rig)
    found = [Finding("run again", f"{what} was counted {n} times") for what, n in counted.items() if n > 1]
    for child, steps in scripts.items():
        for name in work.names(list(steps), "shell"):
            start, end = counted[f"{name} start"], counted[f"{name} end"]
            call = named.get(name, "")
            problem = _against(statuses.get(call, ""), start, end, call in doubtful, child in cancelled)
            found += [Finding(problem[0], f"{name} ({call}): {problem[1]}")] if problem else []
        found += _edits(rig, child, list(steps), statuses, named, child in isolated)
    return found


def _against(status: str, start: int, end: int, doubtful: bool, cancelled: bool) -> tuple[str, str] | None:
    counts = f"{start} starts, {end} ends"
    match status:
        case "ok":
            return None if start and end else ("lost", f"said to be done, and counted {counts}")
        case "unknown":
            return None if doubtful else ("doubts", "in doubt, and its keeper lived")
        case "cancelled" if cancelled:
            return ("silent", f"said to be cancelled, and counted {counts}") if end else None
        case "" if cancelled:
            return ("silent", f"it has no result, and counted {counts}") if start else None
        case _:
            return ("lost", f"it ended as {status or 'nothing'}, and counted {counts}")


def _edits(rig: Rig, child: int, steps: list[Step], statuses: Mapping[str, str], named: Mapping[str, str],
           isolated: bool) -> list[Finding]:  # fmt: skip
    done = [name for name in work.names(steps, "edit") if statuses.get(named.get(name, "")) == "ok"]
    wanted = [f"# notes {child}", *(f"{name} {work.secret(child)}" for name in done), "# end"]
    if not work.names(steps, "edit"):
        return []
    path = rig.home / work.COUNT / f"kept-{child}" if isolated else rig.workspace / work.notes(child)
    lines = path.read_text().splitlines() if path.exists() else []
    if lines == wanted:
        return []
    twice = [line for line, n in Counter(lines).items() if n > 1]
    return [Finding("run again" if twice else "lost", f"{work.notes(child)} has {lines}, not {wanted}")]


def _statuses(events: Sequence[Event]) -> tuple[dict[str, str], dict[str, str]]:
    statuses = {e["body"]["call"]: e["body"]["status"] for e in events if e["type"] == "tool.finished"}
    named = {}
    for event in events:
        if event["type"] == "tool.started" and (match := work.NAMED.search(event["body"]["args"])):
            named[match[0]] = event["body"]["call"]
    return statuses, named


def requests(
    events: Sequence[Event], received: Sequence[Received], words: Mapping[str, tuple[str, ...]]
) -> list[Finding]:
    """Each request has its intent; what was sent once never changes, but where the log says that the context was
    compacted; nothing of a sibling stands in it."""
    asked = Counter(event["body"]["request_sha256"] for event in events if event["type"] == "model.requested")
    bodies = {hashlib.sha256(one.body).hexdigest(): one.body for one in received}
    got = Counter(hashlib.sha256(one.body).hexdigest() for one in received)
    found = [Finding("run again", f"the server got a request {n} times, the log has {asked[digest]} intents")
             for digest, n in got.items() if n > asked[digest]]  # fmt: skip
    siblings = Siblings(words)
    compacted: set[str] = set()
    for event in events:
        body = event["body"]
        if event["type"] == "context.compacted":
            compacted.add(event["agent"])
        if event["type"] == "model.requested" and (sent := bodies.get(body["request_sha256"])) is not None:
            aside = body.get("purpose", "turn") != "turn"
            faults = siblings.faults(event["agent"], sent, compacted=event["agent"] in compacted, aside=aside)
            found += [Finding("invalid", f"#{event['seq']}: {fault}") for fault in faults]
            if not aside:
                compacted.discard(event["agent"])
    return found


def body_of(digest: str, received: Sequence[Received]) -> str:
    """The request with that digest, as it was received."""
    return next(one.body.decode() for one in received if hashlib.sha256(one.body).hexdigest() == digest)


def silent(events: Sequence[Event]) -> list[Finding]:
    """A call that was under way when its host died is doubted and reconciled before anything else befalls it; what
    touches nothing but the log is never in doubt."""
    derived = {
        event["body"]["call"]
        for event in events
        if event["type"] == "tool.started" and event["body"]["recovery"] == "derived"
    }
    doubted = [e["body"]["call"] for e in events if e["type"] == "effect.doubted" and e["body"]["call"] in derived]
    found = [Finding("doubts", f"{call} touches only the log, and was in doubt") for call in doubted]
    return found + unsettled([event for event in events if event["body"].get("call") not in derived])


def log_holds(path: Path) -> list[Finding]:
    """`verify` and `replay --verify`."""
    divergence = app.verify_story(path).divergence
    return verified(path) + ([Finding("unverified", f"{divergence}")] if divergence is not None else [])


def verified(path: Path) -> list[Finding]:
    """`verify`, the requests built again."""
    report = app.verify_file(path)
    return [] if report.exit_code == 0 else [Finding("unverified", f"{report}")]
