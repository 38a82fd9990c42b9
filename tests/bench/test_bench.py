"""What must hold of speed on any machine: what is loaded, what is written, what grows how. No clock is asked."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from bench import (
    agents_view,
    appender,
    children,
    fleet,
    growth,
    replay,
    searching,
    sessions,
    signals,
    snapshots,
    starting,
    whole_log,
)
from bench.__main__ import exit_code
from bench.bodies import BODY_BYTES, BODY_LEAVES, finished, leaves_of, text_of
from bench.measure import TINY, Figure, Section, Table
from bench.page import page, section_text
from muse.event import codec
from muse.log.sqlite import SqliteLog
from muse.runtime.checkpoint import fold, next_checkpoint
from muse.runtime.seal import seal
from muse.runtime.session import claim


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: the runner's socket must fit."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_the_standard_body_is_the_one_that_the_figures_speak_of() -> None:
    body = finished("main/1", 1, text_of("400 B"))
    assert (len(codec.encode(body)), leaves_of(body)) == (BODY_BYTES, BODY_LEAVES)
    assert leaves_of(finished("main/1", 1, text_of("60 lines"))) == 65


@pytest.mark.parametrize(
    "module",
    [agents_view, appender, children, fleet, growth, searching, signals, snapshots],
    ids=lambda module: str(module.__name__),
)
def test_each_measurement_still_runs_and_makes_a_chapter(module: object, folder: Path) -> None:
    text = section_text(module.section(folder, TINY))  # type: ignore[attr-defined]
    assert text.startswith("## ")
    assert "| --- |" in text


def test_stepping_and_deriving_again_are_measured_beside_what_they_are_compared_with(folder: Path) -> None:
    once = msgspec.structs.replace(TINY, rounds=1)
    text = section_text(replay.section(folder, once)) + section_text(replay.verifying(folder, once))
    assert text.count("| 60 |") == 4
    assert "an empty screen" in text
    assert "one SHA-256 over as many bytes" in text
    assert not list(folder.glob("*.muse")), "the largest logs do not pile up"


def test_a_long_session_can_be_folded_to_its_end(tmp_path: Path) -> None:
    sessions.make(tmp_path / "s.muse", sessions.BATCH + 500)
    with SqliteLog.open(tmp_path / "s.muse", read_only=True) as log:
        state = fold(log)
        events = list(log.read())
    assert (state.seq, state.closed, state.incomplete) == (sessions.BATCH + 500, True, False)
    assert sum(sessions.NEEDLE.encode() in (event.body or b"") for event in events) == 1
    assert {event.header.split(b'"')[3].decode() for event in events} == set(sessions.LANES)


def test_a_made_log_is_a_session_of_the_size_asked_for(tmp_path: Path) -> None:
    whole_log.make(tmp_path / "s.muse", 2 * whole_log.BATCH + 6)
    with SqliteLog.open(tmp_path / "s.muse", read_only=True) as log:
        state = fold(log)
    assert state.seq == 2 * whole_log.BATCH + 6
    assert state.agents["main"].steps > whole_log.BATCH / 2


def test_logs_as_a_whole_are_measured_at_every_size(folder: Path) -> None:
    (figures,) = whole_log.section(folder, TINY).parts
    assert isinstance(figures, tuple)
    assert [figure.name for figure in figures if figure.name.startswith("open")] == [
        "open, 40 events",
        "open, 80 events",
    ]


def test_starts_are_measured_and_the_page_names_no_host(folder: Path) -> None:
    import socket

    text = page([starting.section(folder, TINY), starting.commands(folder, TINY)], folder, 0.0)
    assert "muse --help" in text
    assert "under the runner" in text
    assert socket.gethostname() not in text.split()


def test_a_figure_says_median_worst_and_whether_its_aim_is_met() -> None:
    rate = Figure(name="a", unit="/s", samples=(5, 1, 9), reference="b", reference_samples=(10, 10, 10), ratio_aim=0.7)
    assert (rate.median, rate.worst, rate.ratio, rate.worst_ratio) == (5, 1, 0.5, 0.1)
    assert rate.aim == "0.7: missed"
    wait = Figure(
        name="a", unit="ms", samples=(5, 1, 9), reference="b", reference_samples=(10, 10, 10), value_aim=6,
        more_is_better=False,
    )  # fmt: skip
    assert (wait.worst, wait.worst_ratio, wait.aim) == (9, 0.9, "6: met")


def test_an_aim_that_is_missed_is_named_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Figure(
        name="a start", unit="ms", samples=(150,), reference="b", reference_samples=(10,), value_aim=100,
        more_is_better=False,
    )  # fmt: skip
    table = Table(headings=("children", "a child", "aim 1.3"), rows=(("25", "1.00", "met"), ("200", "1.41", "missed")))
    good = Section(title="Good", before=(), parts=((msgspec.structs.replace(slow, samples=(90,)),),))
    bad = Section(title="Bad", before=(), parts=((slow,), table))
    assert exit_code([good]) == 0
    assert capsys.readouterr().err == ""
    assert exit_code([good, bad]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "bench: missed: Bad: a start: 150 ms, ratio 15, aim 100: missed",
        "bench: missed: Bad: 200 children: 1.41 (a child), aim 1.3",
    ]


@pytest.mark.parametrize(
    ("module", "aims"),
    [(children, ("aim 1.3", "aim 400 MiB")), (agents_view, ("aim 200 ms", "aim 2", "aim 400 MiB"))],
    ids=("children", "agents"),
)
def test_the_aims_of_many_agents_stand_beside_their_figures(module: ModuleType, aims: tuple[str, ...]) -> None:
    """As the issue of many agents states them."""
    assert tuple(heading for heading in module.HEADINGS if heading.startswith("aim ")) == aims


def test_what_a_model_call_adds_to_the_log_does_not_grow_with_the_session(tmp_path: Path) -> None:
    grown = [growth.run(tmp_path, calls) for calls in (20, 40, 80)]
    assert [one.events for one in grown] == [4 * calls + 2 for calls in (20, 40, 80)]
    added = [
        (later.timeless_bytes - before.timeless_bytes) / (later.calls - before.calls)
        for before, later in itertools.pairwise(grown)
    ]
    assert added[1] / added[0] == pytest.approx(1, abs=0.02)
    sent = [one.request_bytes for one in grown]
    assert sent[2] > 3 * sent[1] > 9 * sent[0] * 0.9, "while what is sent is the square"


@pytest.mark.parametrize("agents", [1, 32])
def test_a_step_of_many_agents_is_one_transaction(tmp_path: Path, agents: int) -> None:
    many = fleet.Fleet(tmp_path, agents)
    commits: list[int] = []

    def on_commit() -> bool:
        commits.append(1)
        return False

    many.log._db.set_commit_hook(on_commit)
    before = many.log.head().seq
    many.run("400 B", 8 * agents)
    after = many.log.head().seq
    many.log._db.set_commit_hook(None)
    many.close()
    assert (after - before) / len(commits) >= agents * 1.5, "outcomes and what is due after them share a commit"


def test_statements_of_an_append_do_not_depend_on_how_long_the_log_is(tmp_path: Path) -> None:
    counts = []
    for events in (50, 400):
        path = tmp_path / f"{events}.muse"
        whole_log.make(path, events)
        with SqliteLog.open(path, commands={}) as log:
            ownership = claim(log, fleet.SETTINGS, str(tmp_path), lambda _epoch: ())
            seen: list[str] = []

            def trace(_cursor: object, sql: str, _bindings: object, seen: list[str] = seen) -> bool:
                seen.append(sql)
                return True

            log._db.exec_trace = trace
            for body in list(whole_log.bodies(20))[2:6]:
                log.append([seal(body, "main", 0)], [], log.head().seq, ownership.epoch)
            log._db.exec_trace = None
            counts.append(len(seen))
    assert counts[0] == counts[1]
    assert counts[0] <= 4 * 8


def test_checkpoints_of_a_growing_log_are_as_many_as_its_doublings_and_their_sum_is_no_square() -> None:
    written, at = [], 0
    while at < 1_000_000:
        at = next_checkpoint(at)
        written.append(at)
    assert sum(written) < 12 * 1_000_000
    assert all(later - before <= max(2_000, later / 8) for before, later in itertools.pairwise(written))
