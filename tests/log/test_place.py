"""Folders, modes, file systems, and files that are not what they should be."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from muse.errors import Damaged, NewerLog, NotALog, StoreUnavailable, UsageError
from muse.log import place
from muse.log.protocol import Draft
from muse.log.sqlite import SqliteLog
from muse.log.verify import verify
from muse.testing.store import COMMANDS, draft, own

from .conftest import Start

# As the kernel writes it (proc(5)): optional fields before " - ", octal escapes in paths.
MOUNTS = r"""
22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:35 / /home rw,nosuid - nfs4 server:/export rw
41 40 252:0 /local /home/me/local rw shared:1 master:2 - xfs /dev/vdb rw
42 22 0:41 / /mnt/c rw - 9p drvfs rw
43 22 0:42 / /mnt/my\040disk rw - fuse.sshfs server: rw
44 22 0:43 / /cover rw - ext4 /dev/vdc rw
45 22 0:44 / /cover rw - cifs //server/share rw
""".strip()


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/homes", "ext4"),
        ("/home/me/local/deep", "xfs"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/my disk/x", "fuse.sshfs"),
        ("/cover/x", "cifs"),
    ],
)
def test_the_file_system_of_a_folder_is_the_innermost_mount(folder: str, kind: str) -> None:
    assert place.type_in(MOUNTS, folder) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "drvfs", "fuse.sshfs", "fuse"])
def test_file_systems_of_other_machines_are_remote(kind: str) -> None:
    assert place.is_remote(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "fuseblk"])
def test_file_systems_of_this_machine_are_not_remote(kind: str) -> None:
    assert not place.is_remote(kind)


def test_a_remote_file_system_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: SqliteLog, path: Path
) -> None:
    own(log)
    log.close()
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:35 / / rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(place, "_MOUNTS", mounts)
    with pytest.raises(StoreUnavailable, match="nfs4") as caught:
        SqliteLog.create(tmp_path / "new" / "s.muse", "s", commands=COMMANDS)
    assert "MUSE_HOME" in caught.value.hint
    assert not (tmp_path / "new").exists()
    with pytest.raises(StoreUnavailable, match="nfs4"):
        SqliteLog.open(path)
    with SqliteLog.open(path, read_only=True) as reader:
        assert reader.head().seq == 1


@pytest.mark.parametrize("mask", ["000", "077", "027"])
def test_files_are_private_whatever_the_umask(tmp_path: Path, start: Start, mask: str) -> None:
    path = tmp_path / "home" / "2026" / "01" / "s.muse"
    child = start("make", path, mask)
    assert child.stdout is not None
    assert child.stdout.readline() == "made\n"
    names = ["s.lock", "s.muse", "s.muse-shm", "s.muse-wal"]
    assert sorted(file.name for file in path.parent.iterdir()) == names
    assert {name: mode(path.parent / name) for name in names} == dict.fromkeys(names, 0o600)
    folders = [path.parent, path.parent.parent, tmp_path / "home"]
    assert [mode(folder) for folder in folders] == [0o700] * 3


def test_a_closed_log_is_one_file_and_its_lock(log: SqliteLog, path: Path) -> None:
    own(log)
    log.append([draft()], [], 1, 1)
    log.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["s.lock", "s.muse"]


def test_a_name_that_is_taken_is_refused(log: SqliteLog, path: Path) -> None:
    own(log)
    with pytest.raises(UsageError, match="already"):
        SqliteLog.create(path, "other", commands=COMMANDS)
    assert log.append([draft()], [], 1, 1).head.seq == 2
    assert not [file for file in path.parent.iterdir() if file.name.endswith(".new")]


def test_a_missing_log_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    for missing in (tmp_path / "no.muse", tmp_path / "no" / "no.muse"):
        with pytest.raises(UsageError):
            SqliteLog.open(missing)


def test_what_is_no_log_is_said_to_be_none_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.muse"
    with apsw.Connection(str(foreign)) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    text, empty = tmp_path / "text.muse", tmp_path / "empty.muse"
    text.write_text("not a database, but long enough to be taken for one\n" * 100)
    empty.touch()
    pipe = tmp_path / "pipe.muse"
    os.mkfifo(pipe)
    contents = {file: file.read_bytes() for file in (foreign, text, empty)}
    for file in (foreign, text, empty, tmp_path, pipe):
        for read_only in (False, True):
            with pytest.raises(NotALog):
                SqliteLog.open(file, read_only=read_only)
    assert {file: file.read_bytes() for file in contents} == contents


def test_a_log_of_a_newer_version_is_named_so(log: SqliteLog, path: Path) -> None:
    log.close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", 2)
    db.close()
    with pytest.raises(NewerLog, match="format 2"):
        SqliteLog.open(path)


def test_every_setting_holds_on_every_connection(log: SqliteLog) -> None:
    expected = {
        "journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "mmap_size": 0, "wal_autocheckpoint": 0,
        "fullfsync": 1, "checkpoint_fullfsync": 1, "trusted_schema": 0, "application_id": 0x6D757365,
        "user_version": 1,
    }  # fmt: skip
    assert {name: log._db.pragma(name) for name in expected} == expected
    log.reopen()
    assert {name: log._db.pragma(name) for name in expected} == expected


def test_a_log_opened_for_reading_cannot_be_written(log: SqliteLog, path: Path) -> None:
    own(log)
    with SqliteLog.open(path, read_only=True, commands=COMMANDS) as reader:
        assert reader.head().seq == 1
        log.append([draft()], [], 1, 1)
        assert reader.changed()
        assert [event.seq for event in reader.read()] == [1, 2]
        with pytest.raises(StoreUnavailable, match="reading only"):
            reader.submit(draft("user.prompted"))
        with pytest.raises(StoreUnavailable, match="reading only"):
            own(reader)


def test_reading_a_crashed_log_does_not_touch_its_files(log: SqliteLog, path: Path, tmp_path: Path) -> None:
    own(log)
    log.append([draft()], [], 1, 1)
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    copies = {name: crashed / name for name in ("s.muse", "s.muse-wal")}
    for name, copy in copies.items():
        subprocess.run(["cp", path.parent / name, copy], check=True)  # another process: see the module's rule
    before = {name: copy.read_bytes() for name, copy in copies.items()}
    with SqliteLog.open(crashed / "s.muse", read_only=True) as reader:
        assert reader.head().seq == 2
    assert {name: copy.read_bytes() for name, copy in copies.items()} == before


READ = """
import os, sys
from muse.errors import MuseError
from muse.log.sqlite import SqliteLog
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with SqliteLog.open(sys.argv[1], read_only=sys.argv[2] == "read") as log:
        print(len(list(log.read())))
except MuseError as error:
    print(type(error).__name__, bool(error.hint))
"""


def as_nobody(path: Path, how: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", READ, str(path), how], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the user without rights that this needs")
def test_a_log_that_cannot_be_written_can_still_be_read(log: SqliteLog, path: Path) -> None:
    own(log)
    log.append([draft()], [], 1, 1)
    log.close()
    open_to_all = Path("/tmp") / f"muse-test-{os.getpid()}"
    try:
        open_to_all.mkdir(0o755)
        copy = open_to_all / "s.muse"
        shutil.copy(path, copy)
        copy.chmod(0o444)
        assert as_nobody(copy, "read") == "2"
        assert as_nobody(copy, "write") == "StoreUnavailable True"
        assert sorted(file.name for file in open_to_all.iterdir()) == ["s.muse"]
        copy.chmod(0o600)
        assert as_nobody(copy, "read") == "StoreUnavailable True"
    finally:
        shutil.rmtree(open_to_all)


def test_an_owner_notices_that_its_file_is_gone_or_another(log: SqliteLog, path: Path) -> None:
    own(log)
    aside = path.with_name("aside")
    path.rename(aside)
    with pytest.raises(Damaged, match=r"renamed to .*aside"):
        log.append([draft()], [], 1, 1)
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="another file was put in its place"):
        log.append([draft()], [], 1, 1)
    path.unlink()
    aside.rename(path)
    assert log.append([draft()], [], 1, 1).head.seq == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the small file system that this fills")
def test_a_full_disk_loses_nothing_and_the_append_works_when_space_returns(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"mounting is not allowed here: {mount.stderr.strip()}")
    try:
        ballast = small / "ballast"
        ballast.write_bytes(bytes(1024 * 1024))
        with SqliteLog.create(small / "s.muse", "s", commands=COMMANDS) as log:
            _fill(log, ballast)
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def _append_until_refused(log: SqliteLog, acknowledged: dict[str, int]) -> tuple[Draft, StoreUnavailable]:
    while True:
        event = draft(body={"text": "x" * 20_000})
        try:
            acknowledged[event.id] = log.append([event], [], 1 + len(acknowledged), 1).head.seq
        except StoreUnavailable as error:
            return event, error


def _fill(log: SqliteLog, ballast: Path) -> None:
    own(log)
    acknowledged: dict[str, int] = {}
    event, refusal = _append_until_refused(log, acknowledged)
    head = 1 + len(acknowledged)
    assert refusal.hint
    with pytest.raises(StoreUnavailable, match="reopen"):
        log.append([draft()], [], head, 1)
    log.reopen()
    assert log.find([*acknowledged, event.id]) == acknowledged
    with pytest.raises(StoreUnavailable):
        log.append([event], [], head, 1)
    ballast.unlink()
    log.reopen()
    assert log.append([event], [], head, 1).head.seq == head + 1
    assert log.find([event.id]) == {event.id: head + 1}
    assert verify(log, jobs=1).exit_code == 0
