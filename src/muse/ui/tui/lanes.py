"""Agents as lanes beside the events, as version control draws branches: a column an agent, free again when it ended.

Pure. This module must not know how wide the screen is, nor colours.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

import msgspec

FIRST: Final = "┬"
LAST: Final = "┴"
HERE: Final = "●"
PASSING: Final = "│"
MANY: Final = "┆"
"""In the last column, where lanes stand that have no column of their own."""


class Lane(msgspec.Struct, frozen=True):
    """One agent from its first event to its last (0: it goes on), and its column."""

    agent: str
    first: int
    last: int
    column: int


def lanes_of(agents: Iterable[tuple[str, int, int]]) -> tuple[Lane, ...]:
    """Lanes for (agent, first event, last event or 0 while it goes on), ordered by first event. A column is taken by
    the next agent that begins after its last one ended."""
    found: list[Lane] = []
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    columns = 0
    for agent, first, last in sorted(agents, key=lambda one: one[1]):
        while taken and taken[0][0] < first:
            heappush(free, heappop(taken)[1])
        if free:
            column = heappop(free)
        else:
            column, columns = columns, columns + 1
        if last:
            heappush(taken, (last, column))
        found.append(Lane(agent, first, last, column))
    return tuple(found)


def cells(lanes: Iterable[Lane], seq: int, agent: str, width: int) -> str:
    """The lanes beside event `seq` of `agent`, in `width` columns; lanes beyond share the last one."""
    found = [" "] * width
    for lane in lanes:
        if lane.first > seq or (lane.last and lane.last < seq):
            continue
        column = min(lane.column, width - 1)
        mark = PASSING if lane.column < width else MANY
        if lane.agent == agent:
            mark = FIRST if lane.first == seq else LAST if lane.last == seq else HERE
        if found[column] in (" ", PASSING, MANY):
            found[column] = mark
    return "".join(found)
