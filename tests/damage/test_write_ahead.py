"""The write-ahead log cut at every byte and flipped all over: acknowledged events are there, or their loss is named."""

import random
import subprocess
from pathlib import Path

import pytest

from muse.errors import Damaged
from muse.log.protocol import Stored
from muse.log.recover import recover
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, draft, own

FRAME = 24 + 4096
START = 32


class Copy:
    """The files of a log whose owner was killed, and what it had acknowledged: events, and after each append the length
    of the write-ahead log."""

    def __init__(self, folder: Path) -> None:
        path = folder / "live.muse"
        with SqliteLog.create(path, "s", commands=COMMANDS) as log:
            own(log)
            self.ends = [(1, _size(path))]
            for n in range(2, 9):
                head = log.append(
                    [draft(body={"n": n, "text": "x" * (20_000 if n == 2 else 300 * n)})], [], n - 1, 1
                ).head.seq
                self.ends.append((head, _size(path)))
            self.events = list(log.read())
            self.main, self.wal = (_bytes(f"{path}{suffix}") for suffix in ("", "-wal"))

    def put(self, path: Path, wal: bytes) -> Path:
        """The same files elsewhere, with this write-ahead log."""
        path.write_bytes(self.main)
        Path(f"{path}-wal").write_bytes(wal)
        Path(f"{path}-shm").unlink(missing_ok=True)
        return path


def _size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def _bytes(path: str) -> bytes:
    """What a file holds, read by another process: this one has it open."""
    return subprocess.run(["cat", path], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


def read(path: Path) -> tuple[list[Stored], bool]:
    """All events, and whether the log says that an append at its end is not whole."""
    with SqliteLog.open(path, read_only=True) as log:
        return list(log.read()), log.tail.unfinished


def test_a_cut_at_every_byte_of_the_last_record_keeps_all_earlier_ones_and_is_named_b1(
    copy: Copy, tmp_path: Path
) -> None:
    (before, start), (_, end) = copy.ends[-2:]
    path = tmp_path / "cut.muse"
    frames = range(start, end + 1, FRAME)
    for size in sorted({*frames, *(at + shift for at in frames for shift in (1, 23, 24, 25)), *range(start, end, 97)}):
        if size > end:
            continue
        events, unfinished = read(copy.put(path, copy.wal[:size]))
        assert events == copy.events[: before + (size == end)]
        assert unfinished == (start < size < end)


def test_after_a_cut_the_next_append_follows_the_last_whole_record_and_the_rest_is_gone_b3(
    copy: Copy, tmp_path: Path
) -> None:
    (before, start), (_, end) = copy.ends[-2:]
    for size in (start + 1, start + FRAME, end - 1):
        path = copy.put(tmp_path / f"cut{size}.muse", copy.wal[:size])
        with SqliteLog.open(path, read_only=True) as log:
            (tail,) = [row for row in verify(log, jobs=1).rows if row.what == "tail"]
            assert (tail.state, "not whole" in tail.detail) == ("not proven", True)
        with SqliteLog.open(path, commands=COMMANDS) as log:
            assert Path(f"{path}-wal").stat().st_size == 0
            own(log)
            assert log.append([draft()], [], before + 1, 2).head.seq == before + 2
        events, unfinished = read(path)
        assert events[:before] == copy.events[:before]
        assert (len(events), unfinished) == (before + 2, False)


def test_a_cut_before_the_last_record_shows_the_events_up_to_it(copy: Copy, tmp_path: Path) -> None:
    chance = random.Random("cut")
    ends = [end for _, end in copy.ends[1:]]
    for size in [*ends, *(chance.randrange(len(copy.wal)) for _ in range(60))]:
        events, unfinished = read(copy.put(tmp_path / "cut.muse", copy.wal[:size]))
        known = max((seq for seq, end in copy.ends[1:] if end <= size), default=1)
        assert events == copy.events[:known]
        assert unfinished == (size not in [0, START, *ends])


def test_a_flipped_byte_in_the_write_ahead_log_is_never_silent_and_costs_no_event_but_its_own(
    copy: Copy, tmp_path: Path
) -> None:
    chance = random.Random("flip")
    whole = len(copy.wal)
    places = [*range(START), *(at + shift for at in range(START, whole, FRAME) for shift in range(24))]
    places += [chance.randrange(START, whole) for _ in range(150)]
    found, hints = 0, set[str]()
    for case, at in enumerate(places):
        wal = bytearray(copy.wal)
        wal[at] ^= 1 << chance.randrange(8)
        path = copy.put(tmp_path / f"flip{case}.muse", bytes(wal))
        try:
            events, unfinished = read(path)
        except Damaged as error:
            found += 1
            hints.add(error.hint)
            if case % 9 == 0:
                _recovered(copy, path, tmp_path)
            continue
        assert events == copy.events or (unfinished and events == copy.events[:-1])
    assert found > len(places) // 2
    assert all("muse recover" in hint for hint in hints)


def _recovered(copy: Copy, path: Path, folder: Path) -> None:
    main, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    target = folder / f"recovered-{path.name}"
    done = recover(path, target, "r")
    assert done.saved >= len(copy.events) - 1
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == (main, wal)
    with SqliteLog.open(target, read_only=True) as log:
        assert verify(log, jobs=1).exit_code == 0
        saved = {event.seq: event for event in log.read()}
    lost = {seq for first, last in done.lost for seq in range(first, last + 1)}
    for event in copy.events:
        if event.seq not in lost:
            new = saved[event.seq]
            assert (new.header, new.body, new.key, new.root) == (event.header, event.body, event.key, event.root)


def test_a_damaged_write_ahead_log_is_not_touched_by_whoever_opens_it_for_writing(copy: Copy, tmp_path: Path) -> None:
    wal = bytearray(copy.wal)
    wal[copy.ends[3][1] - 2_000] ^= 1
    path = copy.put(tmp_path / "middle.muse", bytes(wal))
    with pytest.raises(Damaged, match="behind the damage") as caught:
        SqliteLog.open(path, commands=COMMANDS)
    assert caught.value.seq == copy.ends[3][0]
    with SqliteLog.open(path, read_only=True, check=False) as log:
        report = verify(log, jobs=1)
    assert (report.exit_code, report.events) == (6, copy.ends[3][0] - 1)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == (copy.main, bytes(wal))
