"""Long sessions as they are: several agents, prompts, answers, tools, approvals, edits and errors, in one log.

They are put together through the store without running anything, so that a million events are made in about a minute.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from bench.fleet import SETTINGS
from muse.event.content import BlobRef, Block, FileChange, Observed, Origin, ToolSpec, Usage
from muse.event.kinds import (
    COMMANDS,
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    FilesChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionClosed,
    TimerFired,
    TimerSet,
    ToolFinished,
    ToolStarted,
    UserPrompted,
)
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim

LANES = ("main", "main.1", "main.2", "main.3", "main.4")
TOOLS = tuple(
    ToolSpec(name=name, description=f"{name} something", schema='{"type":"object"}', recovery="opaque", writes=writes)
    for name, writes in (("read", False), ("shell", True), ("edit", True))
)
BATCH = 2_000
FILES = (20, 5_000)
"""At least and at most so many files are edited; between them one for every EVENTS_A_FILE events."""
EVENTS_A_FILE = 50
CALLS_A_TURN = 40
APPROVAL_EVERY, ERROR_EVERY, FAILURE_EVERY = 9, 11, 53
PERSON = Origin(pid=1, terminal="/dev/pts/1", user="ada")
NEEDLE = "a word that stands once"
"""In a result half way through the log, nowhere else."""

_OUTPUT = "".join(f"src/part_{n}/module.py:{n * 7}: in parse: token {n} expected\n" for n in range(3))

Said = tuple[msgspec.Struct, str]


def edits(log: SqliteLog, count: int = 0) -> list[FileChange]:
    """Changes of as many files as a log of `count` events has, their contents in it."""
    found = []
    for number in range(min(max(count // EVENTS_A_FILE, FILES[0]), FILES[1])):
        before = "".join(f"line {line} of file {number}\n" for line in range(30))
        after = before.replace("line 15", "line fifteen")
        pair = log.put_blobs([(text.encode(), bytes(32)) for text in (before, after)])
        refs = [BlobRef(root, length) for root, length in pair]
        found.append(FileChange(path=f"src/file_{number}.py", before=refs[0], after=refs[1]))
    return found


def story(changes: Sequence[FileChange]) -> Iterator[Said]:
    """What happens, without end: each agent's turns take turns."""
    for number, lane in enumerate(LANES):
        task = f"part {number}" if number else ""
        yield AgentSpawned(system="You write code.", tools=("read", "shell", "edit"), task=task), lane
    turns = [_turns(lane, changes) for lane in LANES]
    while True:
        for turn in turns:
            yield from next(turn)


def _turns(lane: str, changes: Sequence[FileChange]) -> Iterator[list[Said]]:
    """One agent's life, a model call with its tools at a time. Each starts at a number of its own."""
    key, call = 1, len(lane)
    while True:
        yield [(UserPrompted(text=f"Now make part {key} of {lane} work, and say what was wrong."), lane)]
        for step in range(CALLS_A_TURN):
            call += 1
            events: list[msgspec.Struct] = []
            uses = 0 if step == CALLS_A_TURN - 1 else 1 + call % 2
            key = _ask(events, lane, key, call, uses)
            for use in range(uses):
                key = _use(events, lane, key, call * 2 + use, changes)
            yield [(body, lane) for body in events]


def _ask(events: list[msgspec.Struct], lane: str, key: int, call: int, uses: int) -> int:
    name = f"{lane}/{key}"
    asked = ModelRequested(
        call=name,
        attempt=1,
        provider="scripted",
        model="large",
        builder="scripted/1",
        items=call * 2,
        request_sha256="0" * 64,
        request_bytes=4_000 + 900 * call,
    )
    events.append(asked)
    if call % FAILURE_EVERY == 0:
        failed = ModelFailed(call=name, attempt=1, failure="overloaded", message="come back later", status=529)
        timer = f"retry:{name}"
        events += [failed, TimerSet(key=timer, duration_ms=1000), TimerFired(key=timer)]
        events.append(msgspec.structs.replace(asked, attempt=2))
    blocks = [Block(kind="text", text=f"Step {call}: I look at part {call % 97} and then change what is wrong there.")]
    blocks += [_block(call * 2 + use) for use in range(uses)]
    usage = Usage(input=900, output=120, cache_read=200 * call % 90_000, cost_microusd=2_100)
    events.append(
        ModelResponded(
            call=name,
            attempt=1,
            blocks=tuple(blocks),
            stop="tool_use" if uses else "end_turn",
            usage=usage,
            duration_ms=1_800,
        )
    )
    return key + 1


def _block(use: int) -> Block:
    name = TOOLS[use % 3].name
    args = {
        "read": f'{{"path": "src/part_{use % 97}/module.py"}}',
        "shell": f'{{"command": "pytest -q tests/part_{use % 97} && git status"}}',
        "edit": f'{{"path": "src/file_{use % FILES[0]}.py", "old": "line 15", "new": "line fifteen"}}',
    }[name]
    return Block(kind="tool_use", id=f"use_{use}", name=name, args=args)


def _use(events: list[msgspec.Struct], lane: str, key: int, use: int, changes: Sequence[FileChange]) -> int:
    name, block = f"{lane}/{key}", _block(use)
    if use % APPROVAL_EVERY == 0:
        shown = ApprovalRequested(call=name, tool=block.name, shown=block.args, shown_sha256="0" * 64, rule="ask")
        events += [shown, ApprovalDecided(call=name, decision="allow", by="person", origin=PERSON)]
    events.append(
        ToolStarted(
            call=name,
            attempt=1,
            tool=block.name,
            args=block.args,
            recovery="opaque",
            allowed_by="yolo",
            observed=Observed(folder="/w"),
        )
    )
    if block.name == "edit":
        events.append(FilesChanged(changes=(changes[use % len(changes)],), calls=(name,), tree=f"{use:040x}"))
    is_bad = use % ERROR_EVERY == 0
    events.append(
        ToolFinished(
            call=name,
            attempt=1,
            status="error" if is_bad else "ok",
            text=f"{use}: {_OUTPUT}",
            exit_code=int(is_bad) if block.name == "shell" else None,
            duration_ms=40 + use % 900,
        )
    )
    return key + 1


def make(path: Path, count: int) -> None:
    """A log of `count` events, closed."""
    with SqliteLog.create(path, "s", commands=COMMANDS) as log:
        ownership = claim(log, SETTINGS, str(path.parent), lambda _epoch: TOOLS)
        told = story(edits(log, count))
        head, middle = 1, count // 2
        while head < count - 1:
            if head == middle - 1:
                said = UserPrompted(text=f"By the way: {NEEDLE}.", delivery="steer")
                drafts = [seal(said, "main", 0)]
            else:
                room = (middle if head < middle else count) - 1 - head
                part = islice(told, min(BATCH, room))
                drafts = [sealed(seq, body, lane) for seq, (body, lane) in enumerate(part, head + 1)]
            head = log.append(drafts, [], head, ownership.epoch).head.seq
            log.tidy()
        log.append([seal(SessionClosed(outcome="done"), "main", 0)], [], head, ownership.epoch)


def sealed(seq: int, body: msgspec.Struct, lane: str) -> Draft:
    """An event of a story that is going to be event `seq`."""
    if isinstance(body, ApprovalDecided):  # it answers the event before it
        body = msgspec.structs.replace(body, request=seq - 1)
    return seal(body, lane, 0)
