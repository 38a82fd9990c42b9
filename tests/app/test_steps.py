"""Stepping through files that grow, are damaged or lose content while they are looked at."""

import json
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest

from bench import sessions
from bench.fleet import SETTINGS
from muse.app.places import read_session
from muse.app.steps import Steps, pattern
from muse.errors import Damaged, UsageError
from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.event.kinds import COMMANDS, AgentSpawned, BudgetReached, LogRedacted, ToolFinished, UserPrompted
from muse.log.sqlite import SqliteLog
from muse.runtime.seal import seal
from muse.runtime.session import claim
from muse.view.marks import Mark
from tests.property.played import rows_of, states_of
from tests.ui.tui.made import SESSION, Story

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 1_200


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "made.muse"
    sessions.make(path, EVENTS)
    return path


@pytest.fixture
def log(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "log.muse"))


def edit(path: Path, sql: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(sql)
    db.close()


def indexed(steps: Steps) -> Steps:
    while steps.index():
        pass
    return steps


def opened(path: Path) -> Steps:
    return Steps(read_session(path, check=False))


# -- damage ----------------------------------------------------------------------------------------------------------


def test_first_rows_do_not_wait_for_the_chain_and_damage_is_named_when_it_is_found(log: Path) -> None:
    edit(log, "UPDATE events SET hash = zeroblob(32) WHERE seq = 700")
    steps = opened(log)
    assert [row.seq for row in steps.rows(695, 10)] == list(range(695, 705))
    assert (steps.damage, steps.head, steps.closed) == (None, EVENTS, True)
    indexed(steps)
    assert steps.damage is not None
    assert (steps.damage.seq, steps.head, steps.indexed, steps.closed) == (700, 699, 699, False)
    assert [row.seq for row in steps.rows(695, 10)] == list(range(695, 700))
    assert steps.panel(699) is not None
    assert steps.panel(700) is None
    assert not steps.refresh()
    with pytest.raises(Damaged, match="event 700"):
        steps.event(700)
    steps.close()


def test_damage_that_opening_found_is_known_from_the_start(log: Path) -> None:
    edit(log, "UPDATE events SET root = zeroblob(32) WHERE seq = 900")
    steps = Steps(read_session(log))
    assert steps.damage is not None
    assert (steps.damage.seq, steps.head) == (900, 899)
    indexed(steps)
    assert (steps.damage.seq, steps.indexed) == (900, 899)
    steps.close()


@pytest.mark.parametrize("indexing", [True, False])
def test_a_page_that_cannot_be_read_is_named_by_its_first_event(log: Path, indexing: bool) -> None:
    edit(log, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(log.read_bytes())
    at = data.index(b'"seq":600,') // 4096 * 4096
    data[at : at + 4096] = b"\xff" * 4096
    log.write_bytes(bytes(data))
    steps = opened(log)
    if indexing:
        indexed(steps)
    else:
        steps.rows(400, 300)
    assert steps.damage is not None
    first = steps.damage.seq
    assert 560 < first <= 600
    assert steps.head == first - 1
    assert steps.event(first - 1).seq == first - 1
    assert steps.rows(first - 3, 10)[-1].seq == first - 1
    steps.close()


def test_what_is_wrong_with_the_end_is_known_at_once(log: Path) -> None:
    edit(log, "UPDATE meta SET value = 0 WHERE key = 'epoch'")
    steps = opened(log)
    assert steps.damage is not None
    assert (steps.damage.seq, steps.head) == (EVENTS, EVENTS - 1)
    steps.close()


def test_a_blob_that_is_damaged_is_named_in_the_detail(log: Path) -> None:
    edit(log, "UPDATE chunks SET data = zeroblob(9)")
    steps = indexed(opened(log))
    seq = steps.next(0, {Mark.EDIT})
    assert seq is not None
    (line,) = steps.detail(seq).detail
    assert line.look == "bad"
    assert line.text.startswith("damaged: ")
    assert steps.detail(seq).summary == steps.row(seq).summary
    assert steps.find(pattern("bad luck"), 0, budget_seconds=60.0).end, "a search goes on beyond it"
    assert (steps.damage, steps.head) == (None, EVENTS)
    steps.close()


def test_a_log_that_could_not_have_happened_is_shown_and_its_states_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "odd.muse"
    with SqliteLog.create(path, "s", commands=COMMANDS) as writer:
        epoch = claim(writer, SETTINGS, str(tmp_path), lambda _epoch: ()).epoch
        ends = ToolFinished(call="main.7/3", attempt=1, status="ok", text="out")
        writer.append([seal(ends, "main.7", 0), seal(UserPrompted(text="Go."), "main", 0)], [], 1, epoch)
        writer.append([seal(BudgetReached(limit="model_calls", value=3), "main.9", 0)], [], 3, epoch)
    steps = indexed(opened(path))
    assert [row.type for row in steps.rows(1, 9)] == [
        "session.opened", "tool.finished", "user.prompted", "budget.reached",
    ]  # fmt: skip
    assert steps.damage is None
    assert steps.panel(3) is not None
    assert steps.panel(4) is None
    assert "event 4 (budget.reached)" in steps.broken
    steps.close()


def test_a_search_finds_what_the_detail_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "long.muse"
    with closing(SqliteLog.create(path, SESSION, commands=COMMANDS)) as log:
        story = Story(log)
        story.say(UserPrompted(text="Go."))
        story.say(AgentSpawned(task="", system="You work.", tools=("edit",)))
        written = "line\n" * 3_000 + "a quince\n" + "line\n" * 3_000
        (call,) = story.answer("I write.", ("edit", json.dumps({"path": "a.py", "old": "x", "new": written})))
        started = story.start(call)
        output = story.blob("line\n" * 9_000 + "a medlar\n" + "line\n" * 9_000)
        finished = story.say(
            ToolFinished(
                call=call,
                attempt=1,
                status="ok",
                text="line\n[... cut ...]\nline\n",
                output=output,
                output_bytes=90_009,
            )
        )
    steps = indexed(opened(path))
    for sought, wanted in (("quince", started), ("medlar", finished)):
        for regex in (False, True):
            found = steps.find(pattern(sought, regex=regex), started - 1, budget_seconds=60.0)
            assert (sought, found.seq) == (sought, wanted)
    steps.close()


@pytest.mark.parametrize(
    "endless",
    [r"(y+)+z", r"(.*/)*q:", r"(.*,)*x", r"(.+\.)+y", r"(ab|a|b)+z", r"(a|b|ab)*c", r"(!|!!)+x", r"(-?\d+)*x"],
)
def test_an_expression_whose_search_doubles_with_every_character_is_refused(endless: str) -> None:
    with pytest.raises(UsageError, match="for ever"):
        pattern(endless, regex=True)


@pytest.mark.parametrize(
    "plain",
    [
        r"src/.*\.py:\d+",
        r"https?://\S+",
        r"(\w+)\.(\w+)\(",
        r"(?:[^/]+/)+x",
        r"(\w+ )+x",
        r"(\d+\.){3}\d+",
        r".*foo.*bar",
    ],
)
def test_an_expression_that_ends_is_taken(plain: str) -> None:
    assert pattern(plain, regex=True).regex.pattern == plain


# -- others write ----------------------------------------------------------------------------------------------------


def test_a_log_is_stepped_through_while_another_process_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "growing.muse"
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.app.writer", str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "1\n"
    steps, chance, head = opened(path), Random(4), 1
    for count in [*[chance.randint(1, 160) for _ in range(9)], "close"]:
        writer.stdin.write(f"{count}\n")
        writer.stdin.flush()
        assert not steps.refresh() or steps.head > head
        head = int(writer.stdout.readline())
        steps.refresh()
        assert (steps.head, steps.closed) == (head, count == "close")
        if chance.random() < 0.5:
            steps.index(0.0)
        else:
            indexed(steps)
        assert steps.rows(max(head - 3, 1), 10)[-1].seq == head
    indexed(steps)
    assert writer.communicate(timeout=60)[0] == ""
    with read_session(path) as reading:
        events = list(reading.events())
    wanted, states = rows_of(events), states_of(events)
    for seq in [1, head, *(chance.randint(1, head) for _ in range(60))]:
        assert steps.rows(seq, 5) == wanted[seq - 1 : seq + 4]
        assert steps.state(seq) == states[seq]
    steps.close()


def test_what_is_redacted_while_it_is_looked_at_is_not_shown_any_more(log: Path) -> None:
    steps = indexed(opened(log))
    chosen = next(
        seq for seq in range(1_000, EVENTS) if isinstance(body := steps.event(seq).body, ToolFinished) and body.text
    )
    assert steps.detail(chosen).detail
    with SqliteLog.open(log, commands=COMMANDS) as writer:
        stored = next(writer.read(after=chosen - 1, before=chosen + 1))
        assert stored.body is not None
        assert stored.key is not None
        hidden = encode_disclosed(disclose(parse(stored.body), stored.key, lambda path: path == ("text",)))
        epoch = writer.hold().epoch
        writer.redact({chosen: hidden}, [], epoch, [seal(LogRedacted(seqs=(chosen,)), "main", 0)])
    assert steps.refresh()
    indexed(steps)
    assert [line.text for line in steps.detail(chosen).detail] == ["hidden by redaction"]
    with read_session(log) as reading:
        events = list(reading.events())
    assert steps.row(chosen) == rows_of(events)[chosen - 1]
    states = states_of(events)
    for seq in (chosen - 1, chosen, EVENTS, EVENTS + 1):
        assert steps.state(seq) == states[seq]
    steps.close()


# -- threads ---------------------------------------------------------------------------------------------------------


def test_one_thread_looks_while_another_builds_the_index(log: Path) -> None:
    with read_session(log) as reading:
        events = list(reading.events())
    wanted, states = rows_of(events), states_of(events)
    steps = opened(log)
    worker = threading.Thread(target=indexed, args=(steps,))
    worker.start()
    chance = Random(2)
    while True:
        alive = worker.is_alive()
        seq = chance.randint(1, EVENTS)
        before = steps.indexed
        rows = steps.rows(seq, 10)
        if seq + 9 <= before:
            assert rows == wanted[seq - 1 : seq + 9]
        now = steps.panel(seq)
        assert now is not None or before < seq
        if now is not None:
            assert steps.state(seq) == states[seq]
        assert steps.minimap(1, EVENTS, 40)
        if not alive:
            break
    assert steps.indexed == EVENTS
    steps.close()


# -- growth ----------------------------------------------------------------------------------------------------------


def pages_read(path: Path) -> int:
    """How much of the file is read to open it and to show the first rows, a step and the end."""
    steps = opened(path)
    steps.rows(1, 50)
    steps.detail(100)
    steps.rows(steps.head - 49, 50)
    log = steps._reading._log
    assert isinstance(log, SqliteLog)
    read, _ = log._db.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    steps.close()
    return read


def test_first_rows_read_no_more_of_a_long_log_than_of_a_short_one(made: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.muse"
    sessions.make(short, 400)
    assert pages_read(made) <= pages_read(short) * 1.2 + 10
