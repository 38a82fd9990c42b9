"""What fails is said, an older snapshot never stands in for it, and what is left behind disturbs nobody."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.effect.snapshot import SnapshotError, Snapshots, scan
from muse.effect.snapshot.place import Place
from tests.effect.snapshot.conftest import Seen, World

FILE, NONE = 0o100644, 0


def places(world: World) -> list[Path]:
    return sorted((world.muse / "snapshots").iterdir())


def test_the_folder_of_snapshots_may_be_deleted_at_any_time(world: World) -> None:
    world.write("a", "1")
    first = world.snapshots.take()
    shutil.rmtree(world.muse / "snapshots")
    world.write("a", "2")
    second = world.snapshots.take()
    with pytest.raises(SnapshotError, match="gone from the folder of snapshots; from here on it is known again"):
        world.between(first, second)
    assert world.changed(lambda: world.write("a", "3")) == {b"a": Seen(b"2", b"3", (FILE, FILE))}


def test_a_file_in_the_place_of_the_folder_of_snapshots_is_what_is_named(world: World) -> None:
    world.write("a", "1")
    world.snapshots.take()
    shutil.rmtree(world.muse / "snapshots")
    (world.muse / "snapshots").write_text("in the way")
    with pytest.raises(SnapshotError) as failed:
        world.snapshots.take()
    assert str(failed.value).startswith(f"{world.muse / 'snapshots'}")


def test_contents_may_be_deleted_while_the_index_stays(world: World) -> None:
    world.write("a", "1")
    world.write("deep/b", "1")
    first = world.snapshots.take()
    (place,) = places(world)
    for folder in (place / "objects").iterdir():
        shutil.rmtree(folder)
    world.write("a", "2")
    second = world.snapshots.take()
    with pytest.raises(SnapshotError, match="gone"):
        world.between(first, second)
    assert world.changed(lambda: world.write("deep/b", "2")) == {b"deep/b": Seen(b"1", b"2", (FILE, FILE))}


@pytest.mark.parametrize("name", ["index", "HEAD", "config"])
@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"no such thing\n"])
def test_a_damaged_file_of_an_owner_starts_it_anew(world: World, name: str, data: bytes) -> None:
    """As a power cut may leave them."""
    world.write("a", "1")
    first = world.snapshots.take()
    ((place,)) = places(world)
    (owner,) = (place / "owners").iterdir()
    (owner / name).write_bytes(data)
    world.write("a", "2")
    assert world.between(first, world.snapshots.take()) == {b"a": Seen(b"1", b"2", (FILE, FILE))}


def test_a_damaged_content_is_said(world: World) -> None:
    world.write("a", "1")
    first = world.snapshots.take()
    for path in (places(world)[0] / "objects").glob("??/*"):
        path.chmod(0o600)
        path.write_bytes(b"")
    world.write("a", "2")
    with pytest.raises(SnapshotError):
        world.between(first, world.snapshots.take())


def test_locks_that_a_killed_git_left_are_no_hindrance(world: World) -> None:
    world.write("a", "1")
    first = world.snapshots.take()
    (place,) = places(world)
    (owner,) = (place / "owners").iterdir()
    (owner / "index.lock").touch()
    (owner / "HEAD.lock").touch()
    world.write("a", "2")
    assert world.between(first, world.snapshots.take()) == {b"a": Seen(b"1", b"2", (FILE, FILE))}


def test_a_new_owner_begins_with_the_index_of_a_dead_one_and_cleans_up(world: World) -> None:
    for number in range(50):
        world.write(f"f{number}", str(number))
    first = world.snapshots.take()
    world.snapshots.close()
    (place,) = places(world)
    (old,) = (place / "owners").iterdir()
    (old / "index.lock").touch()
    held = (old / "index").stat()
    later = world.owner("later.1")
    second = later.take()
    assert (second.id, second.shared) == (first.id, False)
    (new,) = (place / "owners").iterdir()
    assert new.name == "later.1"
    assert (new / "index").stat().st_size >= held.st_size


def test_two_owners_do_not_meet(world: World) -> None:
    world.write("a", "1")
    other = world.owner("other.1")
    first, others = world.snapshots.take(), other.take()
    assert first.id == others.id
    assert other.take().shared
    assert world.snapshots.take().shared
    threads = []
    errors: list[Exception] = []

    def work(snapshots: Snapshots, name: str) -> None:
        try:
            for number in range(10):
                before = snapshots.take()
                world.write(name, str(number))
                found = world.between(before, snapshots.take(), snapshots)
                assert found[name.encode()].after == str(number).encode()
        except (AssertionError, SnapshotError) as error:
            errors.append(error)

    for snapshots, name in ((world.snapshots, "x"), (other, "y")):
        threads.append(threading.Thread(target=work, args=(snapshots, name)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert errors == []
    other.close()
    assert not world.snapshots.take().shared


def test_owners_that_come_in_at_once_let_each_other_in(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "key"
    errors: list[SnapshotError] = []
    begin = threading.Barrier(4)

    def work(name: int) -> None:
        for life in range(25):
            begin.wait()
            try:
                place = Place(folder, f"{name}.{life}")
                assert place.is_whole()
                place.close()
            except SnapshotError as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_an_owner_that_waits_while_the_folder_is_taken_away_gets_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "key"
    Place(folder, "first").close()
    gate = os.open(folder / "gate", os.O_RDWR)
    fcntl.flock(gate, fcntl.LOCK_EX)
    found: list[Place] = []
    waiting = threading.Thread(target=lambda: found.append(Place(folder, "second")))
    waiting.start()
    threading.Event().wait(0.1)
    folder.rename(folder.with_name(".gone-key"))
    os.close(gate)
    waiting.join()
    (place,) = found
    assert place.is_whole()
    place.close()


def test_the_same_owner_twice_is_refused(world: World) -> None:
    world.owner("same.1").take()
    with pytest.raises(SnapshotError, match="another process"):
        world.owner("same.1").take()


def test_a_killed_owner_leaves_nothing_that_matters(world: World) -> None:
    """A process killed in the middle of its looks, again and again, and the next one that goes on."""
    for number in range(300):
        world.write(f"d{number % 7}/f{number}", f"{number}\n" * 20)
    program = (
        "import os, sys, pathlib\n"
        "from muse.effect.snapshot import Snapshots\n"
        "s = Snapshots(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], environment=os.environ)\n"
        "print('ready', flush=True)\n"
        "n = 0\n"
        "while True:\n"
        "    n += 1\n"
        "    (pathlib.Path(sys.argv[2]) / 'd1' / 'busy').write_text(str(n))\n"
        "    s.take()\n"
    )
    for life in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(world.muse), str(world.root), f"killed.{life}"],
            stdout=subprocess.PIPE, env=world.environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        threading.Event().wait(0.01 * (1 + 5 * life))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert world.changed(lambda: world.write("d1/busy", "end"))[b"d1/busy"].after == b"end"
    expected = {str(path.relative_to(world.root)): path.read_text() for path in world.root.rglob("*") if path.is_file()}
    after = world.snapshots.take()
    assert listed(world, after.id) == expected


def listed(world: World, tree: str) -> dict[str, str]:
    """What git finds in a tree of the private folder."""
    (place,) = places(world)
    environment = world.environment | {"GIT_OBJECT_DIRECTORY": str(place / "objects")}
    owner = next(path for path in (place / "owners").iterdir() if path.name.startswith("owner"))

    def git(*arguments: str) -> bytes:
        return subprocess.run(
            ["git", f"--git-dir={owner}", *arguments], env=environment, capture_output=True, check=True
        ).stdout

    found = {}
    for line in git("ls-tree", "-r", "-z", tree).decode().split("\0"):
        if line:
            head, _, path = line.partition("\t")
            found[path] = git("cat-file", "blob", head.split()[2]).decode()
    return found


def test_files_that_come_and_go_meanwhile_are_no_failure(world: World) -> None:
    world.write("still", "1")
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            path = world.root / f"churn{number % 20}"
            try:
                path.write_bytes(os.urandom(200) * (number % 300))
                if number % 3 == 0:
                    path.unlink()
                if number % 50 == 0:
                    (world.root / "dir").mkdir(exist_ok=True)
                    (world.root / "dir" / "x").touch()
                    shutil.rmtree(world.root / "dir")
            except OSError:
                pass

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(15):
            found = world.changed(lambda number=number: world.write("still", f"{number}!"))  # type: ignore[misc]
            assert found[b"still"].after == f"{number}!".encode()
    finally:
        stop.set()
        thread.join()


def test_a_home_folder_is_not_looked_through(world: World) -> None:
    for root in (world.home, world.home.parent, Path("/")):
        with pytest.raises(SnapshotError, match="is a home folder, or holds one") as refused:
            world.owner(root=root).take()
        assert refused.value.lasting
        assert "project" in refused.value.hint
    assert not (world.muse / "snapshots").exists()


def test_without_git_it_is_said(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    snapshots = world.owner(extra={"PATH": str(tmp_path / "empty")})
    for _ in range(2):
        with pytest.raises(SnapshotError, match="git is not installed"):
            snapshots.take()


def test_a_look_that_takes_too_long_is_ended_and_not_tried_again(world: World, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    unless = "*--get?core.excludesFile|version"
    fake.write_text(f'#!/bin/sh\ncase "$*" in {unless}) exit 1;; esac\necho $$ >> {tmp_path}/pids\nexec sleep 600\n')
    fake.chmod(0o755)
    snapshots = world.owner(extra={"PATH": f"{fake.parent}:{world.environment['PATH']}"}, seconds=0.5)
    for _ in range(3):
        with pytest.raises(SnapshotError, match=r"took longer than 0\.5 s") as late:
            snapshots.take()
        assert "snapshot_timeout" in late.value.hint
    (pid,) = (tmp_path / "pids").read_text().split()
    assert not Path(f"/proc/{pid}").exists()


def test_switched_off_is_said(world: World) -> None:
    off = Snapshots(world.muse, world.root, "off.1", off=True)
    with pytest.raises(SnapshotError, match="switched off"):
        off.take()
    assert not world.muse.exists()


def test_too_much_is_refused_before_it_is_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "COPIED_BYTES_MAX", 1000)
    world.write("a", bytes(600))
    world.write("b", bytes(600))
    with pytest.raises(SnapshotError, match="have to be copied"):
        world.snapshots.take()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("check", [True, False])
def test_a_full_disk_is_said_and_nothing_is_taken_for_a_snapshot(
    world: World, small_disk: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    """Both when the space is counted beforehand, and when that count was too good."""
    if not check:
        monkeypatch.setattr(scan, "FREE_BYTES_MIN", -(1 << 40))
    world.muse = small_disk
    snapshots = world.owner()
    world.write("a", "1")
    first = snapshots.take()
    for number in range(8):
        world.write(f"big{number}", os.urandom(1 << 20))
    for _ in range(2):
        with pytest.raises(SnapshotError, match=r"space|cannot be used|write") as full:
            snapshots.take()
        assert not full.value.lasting
    for number in range(8):
        (world.root / f"big{number}").unlink()
    world.write("a", "2")
    assert world.between(first, snapshots.take(), snapshots) == {b"a": Seen(b"1", b"2", (FILE, FILE))}


UNREADABLE = """
import os, sys, pathlib
from muse.effect.snapshot import Snapshots
os.setgid(65534); os.setuid(65534)
place = pathlib.Path(sys.argv[1])
def shown(s, before, after):
    def use(prefix, differences, contents):
        for one in differences:
            ids = [name for name in (one.before_id, one.after_id) if name]
            print(prefix + one.path, one.note, dict(contents.fetch(ids)).get(one.after_id))
    s.compare(before.id, after.id, use)
s = Snapshots(place / "muse", place / "work", "nobody.1", environment={"PATH": os.environ["PATH"], "HOME": "/"})
s._environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
(place / "work" / "a").write_text("1")
first = s.take()
(place / "work" / "a").write_text("2")
secret = place / "work" / "secret"
secret.write_text("hidden")
secret.chmod(0)
shown(s, first, second := s.take())
print("again")
shown(s, second, third := s.take())
secret.chmod(0o600)
shown(s, third, s.take())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_a_file_that_may_not_be_read_is_named(world: World) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for folder in (place, place / "work", place / "muse"):
            folder.mkdir(exist_ok=True)
            os.chown(folder, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, name], capture_output=True, text=True, check=False,
            env=world.environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    if "Permission denied" in done.stderr and "import" in done.stderr:
        pytest.skip("nobody may not read this Python")
    assert done.stdout.splitlines() == [
        "b'a'  b'2'",
        "b'secret' not copied: it could not be read None",
        "again",
        "b'secret' not copied: it could not be read b'hidden'",
    ], done.stderr
