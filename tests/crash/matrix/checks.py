"""What may not be, counted from what the world shows and from what the log says of it. Each finding names its zero.

The counter file, the files of the workspace and the requests that the server got are the measure; the log is held
against them. Nothing here uses the runtime's own account of its recovery.
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from muse import app
from muse.testing.wire import Received
from tests.crash.matrix.cells import STEERED, Cell
from tests.crash.matrix.life import counted
from tests.e2e.rig import Rig

ZEROS: Final = ("run again", "lost", "silent", "doubts", "invalid", "unverified")
"""Finished steps run again · steps lost · doubts that nobody was told of · doubts beyond the allowed · requests that
the server refused · logs that do not verify."""

Event = dict[str, Any]
INTENTS = ("tool.started", "model.requested")
RESULTS = ("tool.finished", "model.responded", "model.failed")


class Finding(msgspec.Struct, frozen=True):
    """One thing that may not be."""

    zero: str
    text: str


@dataclass(kw_only=True)
class Seen:
    """All that is known of a session that has ended. `doubtful`: calls whose keeper was killed before it could say how
    they ended. `acted`: whether the person outside said something. `calm`: the last request of an undisturbed run."""

    cell: Cell
    rig: Rig
    path: Path
    lines: list[str]
    requests: list[Received]
    doubtful: set[str]
    keepers_killed: bool
    acted: bool = False
    calm: str = ""

    def __post_init__(self) -> None:
        self.events: list[Event] = self.rig.events(self.path.stem)
        self.results: dict[str, Event] = {}
        self.started: dict[str, Event] = {}
        for event in self.events:
            call = event["body"].get("call", "")
            if event["type"] == "tool.finished":
                self.results[call] = event["body"]
            elif event["type"] == "tool.started":
                self.started[call] = event["body"]
        self.named = {_name(body): call for call, body in self.started.items()}
        self.unknown = {call for call, body in self.results.items() if body["status"] == "unknown"}
        self.counted = counted(self.rig)


def _name(started: Event) -> str:
    try:
        args = json.loads(started["args"])
    except ValueError:
        return ""
    name = str(args.get("description") or args.get("path") or "")
    return f"{name} {args['new']}" if "new" in args else name


def all_findings(seen: Seen) -> list[Finding]:
    """Everything that is wrong with a session that has ended."""
    checks = (run_again, lost_events, unpaired, effects, files, doubts, silent, told, words, same_request)
    return [finding for check in checks for finding in check(seen)]


def unverified(rig: Rig) -> list[Finding]:
    """Logs that do not verify, as they are now, the requests built again."""
    found = []
    for path in rig.logs():
        report = app.verify_file(path)
        if report.exit_code != 0:
            found.append(Finding("unverified", f"{report}"))
    return found


def run_again(seen: Seen) -> list[Finding]:
    """Counted outside: no step begins, ends or edits twice; no request is sent more often than the log has intents."""
    found = [
        Finding("run again", f"{what} was counted {times} times") for what, times in seen.counted.items() if times > 1
    ]
    notes = Counter(seen.rig.read("notes.txt").splitlines())
    found += [Finding("run again", f"the edit {line} was made {n} times") for line, n in notes.items() if n > 1]
    asked = Counter(event["body"]["request_sha256"] for event in seen.events if event["type"] == "model.requested")
    got = Counter(hashlib.sha256(request.body).hexdigest() for request in seen.requests)
    found += [
        Finding("run again", f"the server got a request {n} times, and the log has {asked[digest]} intents")
        for digest, n in got.items()
        if n > asked[digest]
    ]
    ended: set[str] = set()
    for event in seen.events:
        call = event["body"].get("call", "")
        if event["type"] in INTENTS and call in ended:
            found.append(Finding("run again", f"#{event['seq']} begins {call}, which has a result"))
        if event["type"] in ("tool.finished", "model.responded"):
            ended.add(call)
    return found


def lost_events(seen: Seen) -> list[Finding]:
    """What was shown outside stands in the log, all of it and in that order; and it ends as it should."""
    found = []
    if [json.loads(line) for line in seen.lines] != seen.events:
        found.append(Finding("lost", "what was shown is not what the log holds"))
    last = seen.events[-1]
    outcomes = [seen.cell.outcome] + (["done"] if seen.cell.act == "cancel" and not seen.acted else [])
    if last["type"] != "session.closed" or last["body"]["outcome"] not in outcomes:
        found.append(Finding("lost", f"it ends with {last['type']} {last['body'].get('outcome', '')}"))
    return found


def unpaired(seen: Seen) -> list[Finding]:
    """Every call that was begun has exactly one result."""
    asked = {event["body"]["call"] for event in seen.events if event["type"] in INTENTS}
    ended = Counter(
        event["body"]["call"] for event in seen.events if event["type"] in ("tool.finished", "model.responded")
    )
    if seen.cell.outcome == "cancelled":  # a request that was cancelled ends in a failure, or in the verdict on it
        over = ("model.failed", "effect.reconciled")
        ended |= Counter({e["body"]["call"]: 1 for e in seen.events if e["type"] in over})
    return [Finding("lost", f"{call} has {ended[call]} results") for call in sorted(asked) if ended[call] != 1]


def effects(seen: Seen) -> list[Finding]:
    """What each command counted is what its result says."""
    found = []
    for name in seen.cell.names("shell"):
        start, end = seen.counted[f"{name} start"], seen.counted[f"{name} end"]
        call = seen.named.get(name, "")
        result = seen.results.get(call)
        if result is None:
            if name in seen.cell.denied or seen.cell.outcome == "cancelled":
                found += [Finding("silent", f"{name} ran and has no result")] if start else []
            else:
                found.append(Finding("lost", f"{name} never came to a result"))
            continue
        problem = _against(seen, name, result, start, end)
        found += [Finding(problem[0], f"{name} ({call}): {problem[1]}; its result: {result}")] if problem else []
    return found + late(seen)


def _against(seen: Seen, name: str, result: Event, start: int, end: int) -> tuple[str, str] | None:
    match result["status"]:
        case "unknown":
            return None  # judged by `doubts` and `told`
        case "ok":
            return None if start and end else ("lost", f"said to be done, counted {start} starts and {end} ends")
        case "cancelled":
            if seen.cell.outcome != "cancelled":
                return ("lost", "cancelled by nobody")
            return ("silent", "ended, and said to be cancelled") if end else None
        case _ if seen.keepers_killed and not start and "not started" in result["text"]:
            return None  # the keeper died before it accepted: nothing ran, and the model was told so
        case _ if name in seen.cell.timed_out:
            good = result.get("timed_out") and start and not end
            return None if good else ("lost", f"timed out, counted {start} starts and {end} ends")
        case _:
            return ("lost", f"failed, counted {start} starts and {end} ends")


def late(seen: Seen) -> list[Finding]:
    """A child that was left in the background gets to its end, unless the log says that it was ended."""
    found = []
    ended = any(event["type"] == "process.reaped" for event in seen.events)
    for name in seen.counted:
        if name.startswith("b") and name.endswith(" end") and not (seen.keepers_killed or ended):
            step = name.split()[0]
            if not seen.counted[f"{step} late"]:
                found.append(Finding("lost", f"the child that {step} left in the background was ended in silence"))
    return found


def files(seen: Seen) -> list[Finding]:
    """Every edit and write whose result is good stands in its file, none besides."""
    if seen.cell.outcome == "cancelled":
        return []
    edits = [str(args["new"]) for _, tool, args in seen.cell.uses() if tool == "edit"]
    notes = "# notes\n# end\n"
    for new in edits:
        notes = notes.replace("# end\n", new)
    if sorted(seen.rig.read("notes.txt").splitlines()) != sorted(notes.splitlines()):
        return [Finding("lost", f"notes.txt has {seen.rig.read('notes.txt')!r}")]
    found = []
    for name, tool, args in seen.cell.uses():
        if tool == "write" and (seen.rig.workspace / name).read_text() != args["content"]:
            found.append(Finding("lost", f"{name} has other content"))
    rests = [path.name for path in seen.rig.workspace.rglob(".muse-*.tmp")]
    return found + [Finding("lost", f"a temporary file is left: {name}") for name in rests]


def doubts(seen: Seen) -> list[Finding]:
    """Only a command whose keeper was killed too, before it wrote how it ended, may be in doubt."""
    return [
        Finding("doubts", f"{call} ({seen.started[call]['tool']}) is in doubt: {seen.results[call]['text'][-200:]}")
        for call in sorted(seen.unknown - seen.doubtful)
    ]


def silent(seen: Seen) -> list[Finding]:
    """A call that was under way when its host died is doubted and reconciled before anything else happens to it."""
    return unsettled(seen.events)


def unsettled(events: list[Event]) -> list[Finding]:
    """As `silent`, of any events."""
    found = []
    open_calls: dict[str, list[str]] = {}
    for event in events:
        kind, call = event["type"], event["body"].get("call", "")
        if kind == "session.opened":
            for steps in open_calls.values():
                steps.append("died")
        elif kind == "effect.doubted":
            open_calls.setdefault(call, []).append("doubted")
        elif kind == "effect.reconciled":
            open_calls.setdefault(call, []).append(event["body"]["verdict"])
        elif kind in INTENTS or kind in RESULTS:
            steps = open_calls.pop(call, [])
            problem = _unsettled(steps, kind)
            found += [Finding("silent", f"{call} before #{event['seq']} {kind}: {problem}")] if problem else []
            if kind in INTENTS:
                open_calls[call] = []
    return found


def _unsettled(steps: list[str], then: str) -> str:
    """What was left out before `then`; "" for nothing. After a death comes a doubt, and after that a verdict; a call
    that was attached to runs again, so that the next death begins it anew."""
    at = "running"
    for step in steps:
        if step == "died":
            at = "died" if at in ("running", "attached") else at
        elif (step == "doubted") != (at == "died"):
            return f"{step} when it was {at}"
        else:
            at = step
    if then in INTENTS:
        return "" if at in ("running", "retried", "not_done") else f"begun again when it was {at}"
    return "" if at in ("running", "attached", "done", "unknown") or then == "model.failed" else f"a result when {at}"


def told(seen: Seen) -> list[Finding]:
    """A doubt reaches the model, in the words of the result."""
    if not seen.requests or not seen.unknown or seen.cell.outcome == "cancelled":
        return []
    last = json.dumps(json.loads(seen.requests[-1].body), ensure_ascii=False)
    return [
        Finding("silent", f"the model was not told that {call} is unknown")
        for call in seen.unknown
        if json.dumps(seen.results[call]["text"], ensure_ascii=False)[1:-1] not in last
    ]


def words(seen: Seen) -> list[Finding]:
    """What a person said counts once, for what it was said of."""
    found = []
    if seen.cell.act == "steer":
        times = seen.requests[-1].body.decode().count(STEERED) if seen.requests else 0
        zero = "run again" if times > 1 else "lost"
        found += [Finding(zero, f"the steering reached the model {times} times")] if times != 1 else []
    if seen.cell.act == "answer":
        asked = Counter(e["body"]["call"] for e in seen.events if e["type"] == "approval.requested")
        found += [Finding("run again", f"{call} was asked for {n} times") for call, n in asked.items() if n != 1]
        for name in seen.cell.denied:
            if seen.counted[f"{name} start"]:
                found.append(Finding("silent", f"{name} ran although it was denied"))
        allowed = {
            e["body"]["call"]
            for e in seen.events
            if e["type"] == "approval.decided" and e["body"]["decision"] == "allow"
        }
        ran = {call for call, body in seen.started.items() if body["tool"] == "shell"}
        found += [Finding("silent", f"{call} ran without an approval of its own") for call in sorted(ran - allowed)]
    return found


def same_request(seen: Seen) -> list[Finding]:
    """Without a doubt, the model is told in the end what it is told in a run that nobody disturbs."""
    clean = all(body["status"] == "ok" or body.get("timed_out") for body in seen.results.values())
    if not (seen.calm and seen.cell.compared and seen.requests and clean):
        return []
    mine = normal(seen.requests[-1].body.decode(), seen.rig)
    if mine == seen.calm:
        return []
    at = next((i for i, (a, b) in enumerate(zip(mine, seen.calm, strict=False)) if a != b), 0)
    return [Finding("lost", f"the model was told {mine[at - 60 : at + 60]!r}, not {seen.calm[at - 60 : at + 60]!r}")]


def normal(request: str, rig: Rig) -> str:
    """A request without what differs from one run to another."""
    text = request.replace(str(rig.workspace), "WORKSPACE")
    text = re.sub(r"Date: [0-9-]{10}", "Date: DAY", text)
    text = re.sub(r"timed out after [0-9.]+ s", "timed out after T", text)
    return re.sub(r"(?<=[:,]) [0-9]+ \((?=sleep|/|bash|sh )", " PID (", text)
