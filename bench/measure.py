"""How a figure is taken: beside a reference operation, in alternating rounds of one run, median and worst of them.

A clock alone says little on a machine that others use as well. The ratio to an operation that does the unavoidable
part of the same work, taken in the same round, says what this program adds to it.
"""

import gc
import time
from collections.abc import Callable
from statistics import median

import msgspec

ROUNDS = 5

Work = Callable[[], object]


MISSED = "missed"
"""How a cell ends that tells of an aim which was not reached."""


def verdict(*, met: bool) -> str:
    """What stands beside a figure that has an aim."""
    return "met" if met else MISSED


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything a run does."""

    appends: int
    loop_events: int
    fleets: tuple[int, ...]
    events: tuple[int, ...]
    starts: int
    calls: tuple[int, ...]
    commands: int
    files: tuple[int, ...]
    stepped: tuple[int, ...]
    verified: tuple[tuple[int, int], ...]
    children: tuple[int, ...] = (25, 50, 100, 200)
    keys: int = 20
    watched: float = 6.0
    rounds: int = ROUNDS


FULL = Sizes(
    appends=300,
    loop_events=6_000,
    fleets=(1, 32, 256),
    events=(1_000, 10_000, 100_000),
    starts=10,
    calls=(500, 1_000, 2_000),
    commands=20,
    files=(1_000, 10_000, 50_000),
    stepped=(1_000, 100_000, 1_000_000),
    verified=((250, 1), (1_000, 1), (500, 100)),
)
"""What `make bench` does."""

TINY = Sizes(
    appends=5,
    loop_events=40,
    fleets=(1, 3),
    events=(40, 80),
    starts=1,
    calls=(10, 20),
    commands=1,
    files=(3, 60),
    stepped=(60,),
    verified=((3, 1), (2, 4)),
    children=(2, 3),
    keys=1,
    watched=0.5,
    rounds=2,
)
"""Just enough to see that everything still runs."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: what was measured, in which unit, and its reference. Samples are one a round.

    `more_is_better` says which end of the samples is the worst: rates, or times. An aim of 0 is none; the median is
    held against it.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    reference: str
    reference_samples: tuple[float, ...]
    more_is_better: bool = True
    ratio_aim: float = 0
    value_aim: float = 0

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    @property
    def worst(self) -> float:
        """The sample that a user would like least."""
        return min(self.samples) if self.more_is_better else max(self.samples)

    @property
    def aim(self) -> str:
        """What was aimed at, and whether it is met; "" without an aim."""
        if not self.ratio_aim and not self.value_aim:
            return ""
        value, aim = (self.ratio, self.ratio_aim) if self.ratio_aim else (self.median, self.value_aim)
        met = value >= aim if self.more_is_better else value <= aim
        return f"{aim:g}: {verdict(met=met)}"

    @property
    def reference_median(self) -> float:
        """The middle of the reference's samples."""
        return median(self.reference_samples)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Sample by sample, against the reference of the same round."""
        return tuple(one / other for one, other in zip(self.samples, self.reference_samples, strict=True))

    @property
    def ratio(self) -> float:
        """The middle ratio."""
        return median(self.ratios)

    @property
    def worst_ratio(self) -> float:
        """The ratio that a user would like least."""
        return min(self.ratios) if self.more_is_better else max(self.ratios)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Any other table: text cells under their headings, numbers right-aligned by the page."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One chapter of the page. `before` and `after` are paragraphs around the figures and tables."""

    title: str
    before: tuple[str, ...]
    parts: tuple[tuple[Figure, ...] | Table, ...]
    after: tuple[str, ...] = ()


def missed(section: Section) -> list[str]:
    """The aims of a chapter that were not reached, as it tells them."""
    found = []
    for part in section.parts:
        if isinstance(part, Table):
            found += [
                f"{section.title}: {row[0]} {part.headings[0]}: {row[at - 1]} ({part.headings[at - 1]}), {heading}"
                for row in part.rows
                for at, heading in enumerate(part.headings)
                if row[at].endswith(MISSED)
            ]
        else:
            found += [
                f"{section.title}: {one.name}: {one.median:.4g} {one.unit}, ratio {one.ratio:.3g}, aim {one.aim}"
                for one in part
                if one.aim.endswith(MISSED)
            ]
    return found


def rates(count: int, rounds: int, *works: Work) -> list[tuple[float, ...]]:
    """For each piece of work, which does `count` things, its rate a second in each round; the works take turns."""
    return [tuple(count / spent for spent in samples) for samples in seconds(rounds, *works)]


def seconds(rounds: int, *works: Work) -> list[tuple[float, ...]]:
    """For each piece of work the seconds that it took in each round; the works take turns within a round."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, samples in zip(works, taken, strict=True):
            gc.collect()
            begun = time.perf_counter()
            work()
            samples.append(time.perf_counter() - begun)
    return [tuple(samples) for samples in taken]
