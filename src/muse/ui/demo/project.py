"""What the demo writes into its folder: a small project with three bugs, a slow command, and the model's script.

The agent's tools really read, edit and run these files; only what the model says is fixed beforehand. This module
starts nothing.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Final

PROMPT: Final = "Make the tests pass."
TESTS: Final = "python -m unittest"
"""How the tests' command is shown; it is run with the Python that runs muse."""
SLOW: Final = "sh slow.sh"
COUNTER: Final = "counter.txt"
FAILING: Final = 3
"""How many of the project's tests fail at first."""

FILES: Final = {
    "README.md": """\
# tea

The till of a small tea shop. Prices are whole cents. The tests: python -m unittest
""",
    "tea/__init__.py": "",
    "tea/price.py": '''\
"""Prices in whole cents."""


def with_tax(cents: int, percent: int) -> int:
    """The price with tax, rounded to the nearest cent, halves up."""
    return cents * (100 + percent) // 100


def per_cup(cents: int, cups: int) -> int:
    """What one cup of a pot costs, rounded up."""
    return -(-cents // cups)
''',
    "tea/stock.py": '''\
"""What is on the shelf."""


def needs_order(left: int, minimum: int) -> bool:
    """Whether to order: at the minimum or below it."""
    return left < minimum
''',
    "tea/bill.py": '''\
"""A bill: lines of (name, count, cents)."""


def total(lines: list[tuple[str, int, int]]) -> int:
    """The sum of count times price over all lines."""
    return sum(count * cents for _, count, cents in lines[1:])
''',
    "tests.py": """\
import unittest

from tea.bill import total
from tea.price import per_cup, with_tax
from tea.stock import needs_order


class Price(unittest.TestCase):
    def test_a_whole_price_stays_whole(self):
        self.assertEqual(with_tax(200, 10), 220)

    def test_halves_are_rounded_up(self):
        self.assertEqual(with_tax(250, 7), 268)

    def test_a_cup_is_rounded_up(self):
        self.assertEqual(per_cup(500, 3), 167)


class Stock(unittest.TestCase):
    def test_a_full_shelf_needs_nothing(self):
        self.assertFalse(needs_order(9, 4))

    def test_an_empty_shelf_does(self):
        self.assertTrue(needs_order(0, 4))

    def test_so_does_one_at_the_minimum(self):
        self.assertTrue(needs_order(4, 4))


class Bill(unittest.TestCase):
    def test_no_lines_cost_nothing(self):
        self.assertEqual(total([]), 0)

    def test_every_line_counts(self):
        self.assertEqual(total([("assam", 2, 350), ("milk", 1, 50)]), 750)

    def test_none_of_a_thing_is_free(self):
        self.assertEqual(total([("mint", 0, 300), ("milk", 1, 50)]), 50)


""",
}

_SLOW: Final = """\
# A slow command: a line at its start, a line at its end, and a tick now and then in between.
echo "start (pid $$)" >> {counter}
n=0
while [ "$n" -lt {ticks} ] && [ ! -e {enough} ]; do
    sleep {seconds}
    n=$((n + 1))
    echo "tick $n" >> {counter}
done
echo "end" >> {counter}
"""

Turn = dict[str, Any]


def write_project(folder: Path) -> None:
    """The project's files, the bugs still in them."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_slow(folder: Path, *, ticks: int, seconds: float, enough: Path) -> None:
    """`slow.sh`: at most that many ticks, that many seconds apart; it ends early when the file `enough` is there."""
    text = _SLOW.format(counter=COUNTER, ticks=ticks, seconds=seconds, enough=shlex.quote(str(enough)))
    (folder / "slow.sh").write_text(text, encoding="utf-8")


def test_command() -> list[str]:
    """The project's tests with this Python. Without byte code: two edits within a second must not be taken for one."""
    return [sys.executable, "-B", "-m", "unittest"]


def write_script(path: Path, *, delay_ms: int, slow_seconds_max: int) -> None:
    """The script of the model, in the format of `muse.effect.model.scripted`."""
    steps = [turn | {"delay_ms": delay_ms} for turn in (*_before(), _slowly(slow_seconds_max), *_after())]
    path.write_text(json.dumps({"steps": steps}, indent=1), encoding="utf-8")


def _turn(text: str, *uses: tuple[str, dict[str, object]]) -> Turn:
    return {"text": text, "uses": [list(use) for use in uses]}


def _read(path: str) -> tuple[str, dict[str, object]]:
    return ("read", {"path": path})


def _edit(path: str, old: str, new: str) -> tuple[str, dict[str, object]]:
    return ("edit", {"path": path, "edits": [{"old": old, "new": new}]})


def _test() -> tuple[str, dict[str, object]]:
    return ("shell", {"command": shlex.join(test_command())})


def _before() -> list[Turn]:
    """The turns up to the slow command: two of three bugs found and mended."""
    price, fixed_price = "return cents * (100 + percent) // 100", "return (cents * (100 + percent) + 50) // 100"
    return [
        _turn("I look around first.", ("glob", {"pattern": "**/*.py"}), _read("README.md")),
        _turn("What do the tests say?", ("grep", {"pattern": "import"}), _test()),
        _turn("Three fail. I read what they are about.", _read("tests.py"), _read("tea/price.py")),
        _turn("And the rest.", _read("tea/stock.py"), _read("tea/bill.py")),
        _turn("Who uses these?", ("grep", {"pattern": "cents"}), ("grep", {"pattern": "total"})),
        _turn("The tax is rounded down, not to the nearest cent.", _edit("tea/price.py", price, fixed_price)),
        _turn("Does that hold?", _read("tea/price.py"), _test()),
        _turn("Two left. The shelf next.", ("grep", {"pattern": "left"}), _read("tea/stock.py")),
        _turn("The minimum itself counts.", _edit("tea/stock.py", "left < minimum", "left <= minimum")),
        _turn("Again.", _read("tea/stock.py"), _test()),
        _turn("One left. I keep notes.", ("write", {"path": "NOTES.md", "content": "price: mended\nstock: mended\n"})),
        _turn("Now the bill.", _read("tea/bill.py"), ("grep", {"pattern": "lines"})),
        _turn("What else is there?", ("glob", {"pattern": "*.sh"}), _read("slow.sh")),
        _turn("Once more over the tests.", _read("tests.py"), ("grep", {"pattern": "Bill"})),
    ]


def _slowly(seconds_max: int) -> Turn:
    return _turn("Before the last one, the slow job.", ("shell", {"command": SLOW, "timeout_seconds": seconds_max}))


def _after() -> list[Turn]:
    """The turns after the slow command: the third bug."""
    return [
        _turn("The slow job is done. Every line of a bill counts.", _edit("tea/bill.py", "lines[1:]", "lines")),
        _turn("All tests?", _test()),
        _turn("All tests pass: the tax rounds to the nearest cent, the minimum needs an order, and the bill is whole."),
    ]
