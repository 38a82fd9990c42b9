"""When the kill comes, and who is killed: drawn from the seed for each case by itself, so that each can be had again.

In the columns `host` and `tree` the first kill sweeps through every place that the cell reaches, in order; the kills
that follow are drawn. A place is a failpoint of `muse.failpoint` and the count of its hit.
"""

import random
from typing import Literal

import msgspec

from tests.crash.matrix.cells import Cell

Victim = Literal["host", "runner", "keeper", "tree"]

APPENDS_MAX = 13
"""No cell appends more often in a life that nobody disturbs."""
OF_APPENDS = ("before_append", "after_append", "before_commit")
"""Of commits the first few only: an append is one, and blobs, snapshots and fold checkpoints have theirs."""
OF_EFFECTS = ("before_effect", "after_effect")
OF_HOST = (
    "before_claim", "after_claim", "before_observe", "after_observe", "in_stream", "before_discard", "in_discard",
    "after_discard", "before_close", "in_close", "after_close", "after_commit",
)  # fmt: skip
OF_RUNNER = ("supervisor_ready", "supervisor_start", "supervisor_forked", "supervisor_accepted", "supervisor_ended")
OF_KEEPER = ("keeper_begun", "keeper_forked", "keeper_accepted", "keeper_started", "keeper_ended", "keeper_exited")
OF_RECOVERY = (
    "before_claim", "after_claim", "before_recovery", "after_recovery", "in_settle", "before_commit", "before_append",
    "after_append",
)  # fmt: skip
SHARES = {"host": 14, "host twice": 3, "in recovery": 3, "runner": 2, "keeper": 3, "tree": 4}
"""Cases of a column for each other's, while they last."""


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill. At the `count`th hit of `place`; else `pause` seconds after the `lines`th line that is shown, or, with
    `running`, after a command has begun."""

    victim: Victim
    place: str = ""
    count: int = 0
    lines: int = 0
    running: bool = False
    pause: float = 0.0

    def __str__(self) -> str:
        if self.place:
            return f"{self.victim} at {self.place}:{self.count}"
        after = "the start of a command" if self.running else f"{self.lines} lines"
        return f"{self.victim} {self.pause * 1000:.0f} ms after {after}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One case: the kills in their order, and whether the person outside acts while the host is dead."""

    killed: str
    dialect: str
    kills: tuple[Kill, ...]
    act_dead: bool

    def __str__(self) -> str:
        return f"{self.dialect}, {'; '.join(map(str, self.kills))}{'; acts while it is dead' if self.act_dead else ''}"


def column_of(cell: Cell, number: int) -> tuple[str, int]:
    """Who is killed in a cell's case of this number, and which case of that column it is."""
    order = [name for turn in range(max(SHARES.values())) for name in cell.killed if turn < SHARES[name]]
    at = number % len(order)
    column = order[at]
    return column, number // len(order) * order.count(column) + order[:at].count(column)


def places(cell: Cell) -> list[tuple[str, int]]:
    """The sweep: places that the cell may reach, the first hit of each before the second of any."""
    calls = len([1 for step in cell.steps for _ in step.uses])
    commands = len(cell.names("shell"))
    files = len(cell.names("edit") + cell.names("write"))
    most = dict.fromkeys(OF_HOST, 1) | dict.fromkeys(OF_APPENDS, APPENDS_MAX)
    most |= dict.fromkeys(OF_EFFECTS, calls + len(cell.steps)) | {"in_stream": 3 if cell.slow else 1}
    most |= dict.fromkeys(OF_RUNNER, min(commands, 2)) | dict.fromkeys(OF_KEEPER, min(commands, 2))
    most |= dict.fromkeys(cell.more_places, max(files, 1))
    most |= {"before_observe": calls, "supervisor_ready": 1, "before_commit": 4}
    return [(name, count) for count in range(1, APPENDS_MAX + 1) for name in most if count <= most[name]]


def plan_of(cell: Cell, number: int, seed: int) -> Plan:
    """The plan of one case."""
    rng = random.Random(f"{seed}/{cell.name}/{number}")
    killed, turn = column_of(cell, number)
    dialect = ("anthropic", "openai")[rng.randrange(2)]
    return Plan(killed=killed, dialect=dialect, kills=_kills(cell, killed, turn, rng), act_dead=rng.random() < 0.5)


def _kills(cell: Cell, killed: str, turn: int, rng: random.Random) -> tuple[Kill, ...]:
    sweep = places(cell)
    match killed:
        case "host" | "tree" as victim:
            name, count = sweep[(turn if victim == "host" else 5 * turn) % len(sweep)]
            first = Kill(victim=victim, place=name, count=count)
            more = 1 if victim == "host" else rng.randrange(2)
            return (first, *(_drawn(cell, victim, rng) for _ in range(more)))
        case "host twice":
            name = rng.choice(("before_append", "after_append", "before_commit"))
            return (_drawn(cell, "host", rng), Kill(victim="host", place=name, count=rng.randint(1, 4)))
        case "in recovery":
            inside = [one for one in sweep if one[0] not in (*OF_APPENDS, *OF_HOST) or one[0] == "in_stream"]
            name, count = rng.choice(inside)
            again = [Kill(victim="host", place=rng.choice(OF_RECOVERY), count=rng.randint(1, 2)) for _ in range(2)]
            return (Kill(victim="host", place=name, count=count), *again)
        case "runner":
            at = (*OF_RUNNER, *OF_KEEPER, "before_effect", "after_effect", "before_append", "after_append")
            first = Kill(victim="runner", place=at[turn % len(at)], count=1 + turn // len(at) % 3)
            return (first, Kill(victim="runner", running=True, pause=rng.uniform(0, cell.span_seconds)))
        case _:
            name = OF_KEEPER[turn % len(OF_KEEPER)] if turn % 3 else ""
            pause = 0.0 if name else rng.uniform(0, cell.span_seconds)
            return (Kill(victim="keeper", place=name, count=1 + turn % 2, running=not name, pause=pause),)


def _drawn(cell: Cell, victim: Victim, rng: random.Random) -> Kill:
    """A kill at any place or time."""
    draw = rng.random()
    if draw < 0.4:
        name, count = rng.choice(places(cell))
        return Kill(victim=victim, place=name, count=count)
    if draw < 0.6 and cell.names("shell"):
        return Kill(victim=victim, running=True, pause=rng.uniform(0, cell.span_seconds))
    if draw < 0.7:  # while the process starts
        return Kill(victim=victim, pause=rng.uniform(0.05, 0.5))
    return Kill(victim=victim, lines=rng.randint(1, 12), pause=rng.uniform(0, 0.05))
