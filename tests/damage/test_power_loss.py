"""Power loss: a log's writes recorded, and its files rebuilt as a disk could have left them, hundreds of times.

`MUSE_POWER_CASES=5000 MUSE_POWER_SEED=7 pytest tests/damage/test_power_loss.py` runs more of them, from another seed.
"""

import os
import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from muse.errors import MuseError
from muse.event.codec import parse
from muse.event.commitment import disclose, encode_disclosed
from muse.log import schema
from muse.log.protocol import Stored
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, draft, own
from muse.testing.vfs import Mark, Name, Recorder, Replay, Truncate, Write, power_loss

CASES = int(os.environ.get("MUSE_POWER_CASES", "400"))
SEED = os.environ.get("MUSE_POWER_SEED", "power")


class Acknowledged(NamedTuple):
    """An append that returned: the head then; `redacted` if that was a redaction of event 2."""

    head: int
    redacted: bool = False


class Work:
    """A log that does everything a log does, and tells the recorder what it acknowledged."""

    def __init__(self, path: Path, recorder: Recorder, chance: random.Random) -> None:
        self.path, self.recorder, self.chance = path, recorder, chance
        self.boundaries = {0}
        self.log = SqliteLog.create(path, "s", commands=COMMANDS)
        recorder.mark("created")
        self.epoch = 0
        self.head = 0

    def acknowledged(self, *, redacted: bool = False) -> None:
        self.head = self.log.head().seq
        self.boundaries.add(self.head)
        self.recorder.mark(Acknowledged(self.head, redacted))

    def claim(self) -> None:
        self.epoch = own(self.log).epoch
        self.acknowledged()

    def append(self) -> None:
        size = self.chance.choice([10, 100, 3_000, 20_000])
        body: dict[str, object] = {"text": "x" * self.chance.randrange(size)}
        if self.chance.random() < 0.25:
            content = self.chance.randbytes(self.chance.choice([0, 100, 70_000, 150_000]))
            root, length = self.log.put_blob(content, secrets.token_bytes(32))
            body["output"] = {"blob": root, "length": length}
        more = [draft() for _ in range(self.chance.randrange(3))]
        self.log.append([draft("a.fact", body)], more, self.head, self.epoch)
        self.acknowledged()

    def submit(self) -> None:
        with SqliteLog.open(self.path, commands=COMMANDS, check=False) as other:
            other.submit(draft("user.prompted"))
        self.acknowledged()

    def checkpoint(self) -> None:
        if self.chance.random() < 0.5:
            self.log.save_checkpoint(self.head, 1, self.chance.randbytes(6_000))
        else:
            self.log.tidy(pages=1)

    def reopen(self) -> None:
        self.log.close()
        self.log = SqliteLog.open(self.path, commands=COMMANDS)
        self.claim()

    def redact(self) -> None:
        event = next(self.log.read(after=1, before=3))
        assert event.body is not None
        assert event.key is not None
        leaves = encode_disclosed(disclose(parse(event.body), event.key, lambda _leaf: True))
        self.log.redact({2: leaves}, [], self.epoch)
        self.acknowledged(redacted=True)


def recorded(path: Path, chance: random.Random) -> tuple[Recorder, Work, list[Stored], list[Stored]]:
    """One workload, recorded; its events before the redaction and at the end."""
    with Recorder() as recorder:
        work = Work(path, recorder, chance)
        work.claim()
        work.append()
        steps: list[Callable[[], None]] = [work.append, work.append, work.append, work.submit, work.checkpoint]
        for _ in range(14):
            chance.choice(steps)()
        work.append()
        before = list(work.log.read())
        work.redact()
        for _ in range(4):
            chance.choice(steps)()
        work.reopen()
        for _ in range(10):
            chance.choice(steps)()
        work.log.append([], [draft("session.closed")], work.head, work.epoch)
        work.acknowledged()
        events = list(work.log.read())
        work.log.close()
    return recorder, work, before, events


def check_image(image: Path, marks: list[object], work: Work, before: list[Stored], events: list[Stored]) -> None:
    """The image opens, holds what was acknowledged, all or nothing of what was not, verifies, and goes on."""
    known = [mark for mark in marks if isinstance(mark, Acknowledged)]
    acknowledged = max((mark.head for mark in known), default=0)
    with SqliteLog.open(image, commands=COMMANDS) as log:
        found = list(log.read())
        assert len(found) >= acknowledged
        assert len(found) in work.boundaries
        for event, old, new in zip(found, [*before, *events[len(before) :]], events, strict=False):
            assert event == new if any(mark.redacted for mark in known) else event in (old, new)
        assert verify(log, jobs=1).exit_code == 0
        epoch = own(log).epoch
        assert log.append([draft()], [], len(found) + 1, epoch).head.seq == len(found) + 2


@pytest.mark.parametrize("workload", range(4))
def test_after_a_power_loss_every_acknowledged_event_is_there_and_the_rest_whole_or_not_at_all_b6(
    tmp_path: Path, workload: int
) -> None:
    print(f"MUSE_POWER_SEED={SEED} MUSE_POWER_CASES={CASES}")
    lose_power(tmp_path, random.Random(f"{SEED}-{workload}"))


def lose_power(tmp_path: Path, chance: random.Random) -> None:
    """A workload, its power lost again and again, and every image checked."""
    path = tmp_path / "s.muse"
    recorder, work, before, events = recorded(path, chance)
    created = recorder.journal.index(Mark("created"))
    stops = sorted(chance.randrange(created + 1, len(recorder.journal) + 1) for _ in range(CASES // 4))
    replay = Replay(recorder.journal)
    for case, stop in enumerate(stops):
        replay.to(stop)
        image = tmp_path / f"image{case}.muse"
        how = replay.image(path, image, chance)
        try:
            check_image(image, list(replay.marks), work, before, events)
        except BaseException:
            print(f"case {case}: power lost before operation {stop} of {len(recorder.journal)}; {how}")
            raise
        for left in tmp_path.glob("image*"):
            left.unlink()


@pytest.mark.parametrize("synchronous", [0, 1])
def test_a_log_that_acknowledges_before_it_flushes_is_found_out(
    tmp_path: Path, synchronous: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check itself: 1 is what SQLite's manual offers for a write-ahead log, "not durable across a power loss"."""
    kept = [(name, value) for name, value in schema._WRITER_PRAGMAS if name != "synchronous"]
    monkeypatch.setattr(schema, "_WRITER_PRAGMAS", (*kept, ("synchronous", synchronous)))
    with pytest.raises((AssertionError, MuseError)):
        lose_power(tmp_path, random.Random("planted"))
    assert "power lost before operation" in capsys.readouterr().out  # it is the image that is wrong, not the work


def test_a_log_gets_its_name_when_all_of_it_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "s.muse"
    with Recorder() as recorder:
        SqliteLog.create(path, "s", commands=COMMANDS).close()
    names = [at for at, one in enumerate(recorder.journal) if isinstance(one, Name) and one.path == str(path)]
    assert any(isinstance(one, Write) for one in recorder.journal[: names[0]])
    replay = Replay(recorder.journal)
    replay.to(names[0] + 1)
    for case in range(20):
        replay.image(path, tmp_path / "image.muse", random.Random(case))
        with SqliteLog.open(tmp_path / "image.muse") as log:
            assert log.head().seq == 0


def test_the_rebuilt_file_takes_from_what_was_not_synced_and_never_from_what_was() -> None:
    chance = random.Random(1)
    durable = b"a" * 10_000
    pending = [Write(1, 5_000, b"b" * 6_000), Truncate(1, 9_000), Write(1, 0, b"c" * 100)]
    seen = set()
    for _ in range(500):
        content, _ = power_loss(durable, pending, chance)
        seen.add(content)
        assert set(content[:100]) <= set(b"ac")
        assert content[100:5_000] == durable[100:5_000]
        assert set(content[5_000:9_000]) <= set(b"ab")
        assert set(content[9_000:]) <= set(b"ab\0")
        assert 9_000 <= len(content) <= 11_000
    assert durable in seen
    assert len(seen) > 50
