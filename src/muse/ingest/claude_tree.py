"""The lines of a Claude Code file before they are read: who wrote each, what answers what, and which branch is the one
that went on.

A file is a graph by `parentUuid`: parallel tool calls and people who go back branch it, compactions cut it, and there
are repeated lines and parents that are not there. One pass takes down what is needed; it must not make events.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from muse.ingest.lines import Line, Lines, Value, at, moment, objects, text

SPAWNERS: Final = frozenset({"Agent", "Task"})
"""What the tool is called that starts another agent."""


class Fact(msgspec.Struct, kw_only=True):
    """What is known of a line without reading it again. `answer` is the key of the response that it is a part of;
    `uses` and `results` are ids of tool uses; `summary`: it replaces what came before."""

    index: int
    kind: str = ""
    uuid: str = ""
    parent: str = ""
    logical: str = ""
    time: str = ""
    answer: tuple[str, str] | None = None
    uses: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    child: str = ""
    agent: str = ""
    side: bool = False
    boundary: bool = False
    summary: bool = False
    repeated: bool = False

    @property
    def speaks(self) -> bool:
        """Whether it is a part of the conversation."""
        return self.kind in ("user", "assistant")


def facts_of(lines: Lines) -> list[Fact]:
    """A fact for each line."""
    found: list[Fact] = []
    seen: set[str] = set()
    for index, line in enumerate(lines):
        fact = _fact(index, line)
        if fact.uuid:
            fact.repeated = fact.uuid in seen
            seen.add(fact.uuid)
        found.append(fact)
    return found


def _fact(index: int, line: Line) -> Fact:
    value = line.value
    if value is None:
        return Fact(index=index)
    fact = Fact(
        index=index, kind=text(value, "type"), uuid=text(value, "uuid"), parent=text(value, "parentUuid"),
        logical=text(value, "logicalParentUuid"), time=moment(at(value, "timestamp")), agent=text(value, "agentId"),
        side=at(value, "isSidechain") is True, boundary=text(value, "subtype") == "compact_boundary",
        summary=at(value, "isCompactSummary") is True,
    )  # fmt: skip
    if fact.kind == "assistant":
        _of_answer(fact, value)
    elif fact.kind == "user":
        results = [text(block, "tool_use_id") for block in result_blocks(value)]
        fact.results = tuple(results)
        fact.child = text(value, "toolUseResult", "agentId")
    return fact


def _of_answer(fact: Fact, value: Value) -> None:
    id_ = text(value, "message", "id")
    fact.answer = (id_ or fact.uuid or f"line {fact.index}", text(value, "requestId"))
    blocks = objects(value, "message", "content")
    fact.uses = tuple(text(block, "id") for block in blocks if text(block, "type") == "tool_use")


def result_blocks(value: Value) -> list[Value]:
    """The tool results in a user line."""
    return [block for block in objects(value, "message", "content") if text(block, "type") == "tool_result"]


class Tree(msgspec.Struct):
    """What the graph of one agent's lines says: the indexes of lines that were left, and those with which the
    conversation went on from an earlier line (that line's index, -1 for the beginning)."""

    left: set[int]
    back: dict[int, int]


def tree(facts: Sequence[Fact]) -> Tree:
    """The active branch is the walk back from the last line of the conversation; what hangs on it through parallel tool
    calls belongs to it, and the rest was left."""
    nodes = [fact for fact in facts if fact.uuid and not fact.repeated]
    by_uuid = {fact.uuid: at for at, fact in enumerate(nodes)}
    active = _with_parallel(nodes, _walk(nodes, by_uuid))
    left: set[int] = set()
    for place, fact in enumerate(nodes):
        parent = by_uuid.get(fact.parent)
        if place in active:
            continue
        if fact.speaks or (parent is not None and nodes[parent].index in left):
            left.add(fact.index)
    return Tree(left, _back(nodes, by_uuid, left))


def _walk(nodes: Sequence[Fact], by_uuid: dict[str, int]) -> set[int]:
    active: set[int] = set()
    spoken = [place for place, fact in enumerate(nodes) if fact.speaks]
    place = spoken[-1] if spoken else None
    while place is not None and place not in active:
        active.add(place)
        place = _parent(nodes, by_uuid, place)
    return active


def _parent(nodes: Sequence[Fact], by_uuid: dict[str, int], place: int) -> int | None:
    """The line before: the one that is named, else (it is not in the file) the one that stands before. A line that
    names none begins a conversation, unless it is a compaction's."""
    fact = nodes[place]
    named = fact.parent or fact.logical
    if not named and not fact.boundary:
        return None
    found = by_uuid.get(named)
    return found if found is not None else place - 1 if place else None


def _with_parallel(nodes: Sequence[Fact], active: set[int]) -> set[int]:
    answers = {nodes[place].answer for place in active if nodes[place].answer is not None}
    whole = set(active)
    uses: set[str] = set()
    for place, fact in enumerate(nodes):
        if fact.answer is not None and fact.answer in answers:
            whole.add(place)
            uses.update(fact.uses)
    return whole | {place for place, fact in enumerate(nodes) if fact.results and uses.issuperset(fact.results)}


def _back(nodes: Sequence[Fact], by_uuid: dict[str, int], left: set[int]) -> dict[int, int]:
    """Where the conversation returns to the active branch after one that was left."""
    found: dict[int, int] = {}
    is_away = False
    for place, fact in enumerate(nodes):
        if fact.index in left:
            is_away = is_away or fact.speaks
        elif is_away and fact.speaks:
            is_away = False
            parent = _parent(nodes, by_uuid, place)
            found[fact.index] = nodes[parent].index if parent is not None else -1
    return found


def split(facts: Sequence[Fact]) -> tuple[list[int], dict[str, list[int]]]:
    """The indexes of a file's own lines, and those of agents whose lines stand among them (`isSidechain`, as older
    versions wrote them), by agent or else by the first line of each. A file that has only such lines is an agent's
    own."""
    if all(fact.side for fact in facts if fact.speaks):
        return list(range(len(facts))), {}
    own: list[int] = []
    others: dict[str, list[int]] = {}
    chain: dict[str, str] = {}
    for fact in facts:
        if not fact.side:
            own.append(fact.index)
            continue
        name = fact.agent or chain.get(fact.parent) or fact.uuid or "side"
        chain[fact.uuid] = name
        others.setdefault(name, []).append(fact.index)
    return own, others


def outcomes(lines: Lines, wanted: Iterable[Fact]) -> dict[str, tuple[Value, Value]]:
    """For each tool use that has one, its result: the block and the whole line. The first counts."""
    found: dict[str, tuple[Value, Value]] = {}
    for fact in wanted:
        value = lines[fact.index].value
        if value is None or fact.repeated:
            continue
        for block in result_blocks(value):
            found.setdefault(text(block, "tool_use_id"), (block, value))
    return found
