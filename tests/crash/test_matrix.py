"""A sample of the crash matrix (`make crash` plays all of it), and faults planted to see that it finds them."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.matrix.case import Case, Result, Stage, play
from tests.crash.matrix.cells import CELLS, cell_named
from tests.crash.matrix.checks import ZEROS
from tests.crash.matrix.plan import Kill, Plan, Victim, plan_of
from tests.crash.matrix.rounds import ROUND
from tests.crash.matrix.table import BEGIN, END, added_up, as_text, write_into
from tests.crash.task import seed

ROOT = Path(__file__).parents[2]
CASES_MAX = 2_000


def numbers_of(cell: str, wanted: tuple[str, ...], of_seed: int) -> list[int]:
    """For each of these columns a case, drawn from all."""
    rng = random.Random(f"{of_seed}/{cell}")
    found: dict[str, int] = {}
    while len(found) < len(wanted):
        number = rng.randrange(CASES_MAX)
        killed = plan_of(cell_named(cell), number, of_seed).killed
        if killed in wanted:
            found.setdefault(killed, number)
    return list(found.values())


@pytest.mark.long
@pytest.mark.parametrize("cell", [cell.name for cell in CELLS])
def test_a_kill_of_anything_at_any_place_leaves_every_zero_a_zero(cell: str) -> None:
    """Two columns of each cell, drawn: the host killed, and one other."""
    drawn = seed()
    others = [killed for killed in cell_named(cell).killed if killed != "host"]
    wanted = ("host", random.Random(f"{drawn}/{cell}/other").choice(others))
    with Stage() as stage:
        for number in numbers_of(cell, wanted, drawn):
            result = play(stage, cell, number, drawn)
            again = f'python -m tests.crash.matrix --seed {drawn} --cell "{cell}" --case {number}'
            assert result.findings == [], f"{plan_of(cell_named(cell), number, drawn)}\n{again}"


# -- a check that cannot fail is none ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("patch", "victim", "zero"),
    [
        ("runs_again", "host", "run again"),
        ("pure", "host", "run again"),
        ("believes", "tree", "lost"),
        ("doubts", "host", "doubts"),
        ("hides", "tree", "silent"),
        ("garbles", "host", "invalid"),
        ("miscounts", "host", "unverified"),
    ],
)
def test_a_planted_fault_is_found_and_counted_where_it_belongs(patch: str, victim: Victim, zero: str) -> None:
    """Killed when a command of half a second has begun; without the fault the same kill leaves every zero a zero. The
    keeper stands still there, so that no machine is too slow to kill the host in time."""
    kill = Kill(victim=victim, place="keeper_started", count=1)
    plan = Plan(killed=victim, dialect="anthropic", kills=(kill,), act_dead=False)
    with Stage((patch,)) as stage, Case(stage, cell_named("shell, long"), plan) as case:
        case.run()
    assert zero in {finding.zero for finding in case.findings}, case.findings


@pytest.mark.long
@pytest.mark.parametrize("victim", ["host", "tree"])
def test_without_a_planted_fault_that_kill_finds_nothing(victim: Victim) -> None:
    kill = Kill(victim=victim, place="keeper_started", count=1)
    plan = Plan(killed=victim, dialect="anthropic", kills=(kill,), act_dead=False)
    with Stage() as stage, Case(stage, cell_named("shell, long"), plan) as case:
        case.run()
    assert (case.kills, case.findings) == (1, [])


def test_the_same_seed_gives_the_same_plans_and_another_one_others() -> None:
    plans = [[str(plan_of(cell, n, of_seed)) for cell in CELLS for n in range(40)] for of_seed in (1, 1, 2)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_every_cell_has_a_case_of_every_column_within_a_round() -> None:
    for cell in CELLS:
        assert {plan_of(cell, n, 3).killed for n in range(ROUND)} == set(cell.killed)


def result_of(cell: str, **zeros: int) -> Result:
    return Result(
        cell=cell, killed="host", number=4, kills=2, allowed=0, seen=0, killed_at=["after_append:2"],
        reached={"after_append": 3}, zeros={name.replace("_", " "): n for name, n in zeros.items()},
        findings=[f"{name}: something" for name in zeros], seconds=1.0,
    )  # fmt: skip


def test_the_table_adds_up_and_names_what_failed(tmp_path: Path) -> None:
    table = added_up([result_of("edit"), result_of("edit", run_again=1), result_of("write")], 9, 60)
    assert (table.total.kills, table.total.zeros["run again"], table.rows[0].zeros["run again"]) == (6, 1, 1)
    assert table.places == {"after_append": "2/6"}
    assert table.failures == ["seed 9, cell 'edit', case 4 (host): run_again: something"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(page, table)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert as_text(table) in text
    assert all(f"| {zero} " in text for zero in ZEROS)
    assert "old" not in text


def test_a_page_without_the_markers_is_not_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no place"):
        write_into(page, added_up([result_of("edit")], 9, 60))
    assert page.read_text() == "nothing here\n"


@pytest.mark.long
def test_the_command_plays_one_case_again_and_fails_when_a_fault_is_planted() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.crash.matrix", "--seed", "1", "--cell", "edit", "--case", "0", *arguments],
            cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False,
        )  # fmt: skip

    good, bad = run(), run("--plant", "garbles")
    assert good.returncode == 0, good.stdout + good.stderr
    assert bad.returncode == 1
    assert "invalid: " in bad.stdout
    assert good.stdout.splitlines()[0] == bad.stdout.splitlines()[0]
