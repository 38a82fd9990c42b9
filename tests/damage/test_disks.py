"""Real disks that are full or become read-only under a running session: a tmpfs, mounted for the test."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.errors import StoreUnavailable
from muse.event.codec import parse_header
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, draft, own
from tests.e2e.rig import Rig

STEPS = 3


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a disk of its own needs the right to mount one")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill the disk up to its last byte, but for `leave` bytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with ballast.open("wb") as file:
        file.write(bytes(free - leave))
    return ballast


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def ids_in(log: SqliteLog) -> list[str]:
    return [parse_header(event.header).id for event in log.read(after=1)]


@pytest.mark.parametrize("leave", [0, 4_096, 8_192, 20_000, 60_000])
def test_an_append_that_finds_the_disk_full_is_refused_and_stands_once_when_there_is_space(
    disk: Path, leave: int
) -> None:
    with SqliteLog.create(disk / "s.muse", "s", commands=COMMANDS) as log:
        own(log)
        ballast = fill(disk, leave)
        drafts = [draft("a.fact", {"text": "x" * 200_000}), draft("a.decision")]
        with pytest.raises(StoreUnavailable) as refusal:
            log.append(drafts[:1], drafts[1:], 1, 1)
        assert "full" in str(refusal.value) or "I/O" in str(refusal.value)
        assert refusal.value.hint
        with pytest.raises(StoreUnavailable):
            log.append(drafts[:1], drafts[1:], 1, 1)
        ballast.unlink()
        log.reopen()
        assert log.find([one.id for one in drafts]) == {}
        assert log.append(drafts[:1], drafts[1:], 1, 1).head.seq == 3
        assert ids_in(log) == [one.id for one in drafts]
        assert verify(log, jobs=1).exit_code == 0


def test_a_checkpoint_on_a_full_disk_loses_nothing(disk: Path) -> None:
    log = SqliteLog.create(disk / "s.muse", "s", commands=COMMANDS)
    own(log)
    drafts = [draft("a.fact", {"text": "x" * 300_000}) for _ in range(3)]
    for n, one in enumerate(drafts, 1):
        log.append([one], [], n, 1)
    ballast = fill(disk)
    log.close()
    with SqliteLog.open(disk / "s.muse", read_only=True) as again:
        assert ids_in(again) == [one.id for one in drafts]
    ballast.unlink()
    with SqliteLog.open(disk / "s.muse", commands=COMMANDS) as again:
        own(again)
        assert verify(again, jobs=1).exit_code == 0


def test_a_disk_that_becomes_read_only_refuses_appends_and_still_reads(disk: Path) -> None:
    log = SqliteLog.create(disk / "s.muse", "s", commands=COMMANDS)
    own(log)
    first, second = draft("a.fact"), draft("a.fact", {"n": 2})
    log.append([first], [], 1, 1)
    log.close()
    remount(disk, "ro")
    with pytest.raises(StoreUnavailable) as refusal:
        SqliteLog.open(disk / "s.muse", commands=COMMANDS)
    assert "not writable" in refusal.value.hint
    with SqliteLog.open(disk / "s.muse", read_only=True) as log:
        assert ids_in(log) == [first.id]
        assert verify(log, jobs=1).exit_code == 0
    remount(disk, "rw")
    with SqliteLog.open(disk / "s.muse", commands=COMMANDS) as log:
        epoch = own(log).epoch
        log.append([second], [], log.head().seq, epoch)


@pytest.fixture
def rig(disk: Path, tmp_path: Path) -> Iterator[Rig]:
    """A machine whose sessions are on that disk, and nothing else."""
    made = Rig(tmp_path / "machine")
    made.muse_home = disk / "muse"
    made.environment["MUSE_HOME"] = str(made.muse_home)
    with made:
        yield made


def test_a_run_on_a_disk_that_fills_up_starts_nothing_more_says_so_and_is_resumed_b31_b32(rig: Rig, disk: Path) -> None:
    fill_it = f"dd if=/dev/zero of={disk}/ballast bs=64k 2>/dev/null"  # without a word: there is no place for one
    steps = [
        {"uses": [["shell", {"command": "echo 0 >> done.txt"}]]},
        {"uses": [["shell", {"command": f"{fill_it}; echo 1 >> done.txt"}]]},
        {"uses": [["shell", {"command": "echo 2 >> done.txt"}]]},
        {"text": "all done"},
    ]
    done = rig.muse("exec", "--yolo", "--sandbox", "off", "-m", rig.script(steps), "go")
    assert done.returncode == 1, done.stderr
    assert "full" in done.stderr
    assert "muse resume" in done.stderr
    assert "Traceback" not in done.stderr
    rig.wait_for(lambda: rig.read("done.txt").split() == ["0", "1"])  # what ran goes on to its end; no other begins
    still = rig.muse("resume")
    assert still.returncode == 1, "no space, no step: " + still.stderr
    assert "full" in still.stderr
    assert rig.read("done.txt").split() == ["0", "1"]
    (disk / "ballast").unlink()
    again = rig.muse("resume")
    assert again.returncode == 0, again.stderr
    assert rig.read("done.txt").split() == ["0", "1", "2"]
    rig.verify()


class Ext4:
    """A real file system on a loop device, which can be made to fail as the kernel does when its disk does."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "ext4"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(48 * 1024 * 1024)

    def mount(self) -> bool:
        """Whether it could be mounted."""
        command = ["mount", "-o", "loop", str(self.image), str(self.place)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fail(self) -> None:
        """What `errors=remount-ro` does: at once, whoever has files open."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.place)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.place)], check=True)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    made = Ext4(tmp_path)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed (apt-get install e2fsprogs)")
    subprocess.run(["mkfs.ext4", "-q", "-F", str(made.image)], check=True)
    if not made.mount():
        pytest.skip("a disk of its own needs the right to mount one, and a loop device")
    yield made
    made.unmount()


def test_a_disk_that_becomes_read_only_in_mid_session_stops_it_before_the_next_step(ext4: Ext4, tmp_path: Path) -> None:
    with Rig(tmp_path / "machine") as rig:
        rig.muse_home = ext4.place / "muse"
        rig.environment["MUSE_HOME"] = str(rig.muse_home)
        gate = rig.folder / "gate"
        steps = [
            {"uses": [["shell", {"command": f"echo 0 >> done.txt; until [ -e {gate} ]; do sleep 0.05; done"}]]},
            {"uses": [["shell", {"command": "echo 1 >> done.txt"}]]},
            {"text": "all done"},
        ]
        process = rig.start("exec", "--yolo", "--sandbox", "off", "-m", rig.script(steps), "go")
        rig.wait_for(lambda: (rig.workspace / "done.txt").exists())
        before = rig.events()
        ext4.fail()
        gate.touch()
        assert process.wait(60) in (1, 6), rig.said()
        assert "muse resume" in rig.said()
        assert "Traceback" not in rig.said()
        assert rig.read("done.txt").split() == ["0"]
        rig.kill_all()
        ext4.unmount()
        assert ext4.mount()
        assert rig.events()[: len(before)] == before
        again = rig.muse("resume")
        assert again.returncode == 0, again.stderr
        assert rig.read("done.txt").split() == ["0", "1"]
        rig.verify()
