"""Replacing a file: exact bytes, never outside the workspace, and no doubt after a crash."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.protocol import ToolCall, Workspace
from muse.effect.tool import files
from muse.effect.tool.write import WriteTool
from muse.event.content import BlobRef, FileChange, Observed
from tests.effect.tool.conftest import Harness, blob_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def write(workspace: Workspace) -> Harness:
    return Harness(WriteTool(), workspace)


async def test_a_new_file_in_new_folders(write: Harness, root: Path) -> None:
    old_mask = os.umask(0o027)
    try:
        result = await write.do(path="src/deep/a.txt", content="one\ntwo")
    finally:
        os.umask(old_mask)
    assert (root / "src/deep/a.txt").read_bytes() == b"one\ntwo"
    assert (root / "src/deep/a.txt").stat().st_mode & 0o7777 == 0o640
    assert result.status == "ok"
    assert result.text == "created src/deep/a.txt (2 lines, 7 bytes)"
    assert result.changes == (FileChange(path="src/deep/a.txt", after=blob_of(b"one\ntwo"), after_mode=0o640),)
    assert os.listdir(root / "src/deep") == ["a.txt"]


async def test_an_existing_file_keeps_its_mode_and_the_log_gets_both_contents(write: Harness, root: Path) -> None:
    (root / "run.sh").write_bytes(b"old\r\n\xff")
    (root / "run.sh").chmod(0o751)
    call = write.call(path="run.sh", content="new\n")
    observed = await write.observe(call)
    assert observed == Observed(
        folder=str(root),
        path="run.sh",
        before_sha256=blob_of(b"old\r\n\xff").blob,
        after_sha256=blob_of(b"new\n").blob,
        before=blob_of(b"old\r\n\xff"),
        after=blob_of(b"new\n"),
        file_mode=0o751,
        summary="wrote run.sh (1 line, 4 bytes; +2 -2 lines)",
    )
    assert write.blobs[blob_of(b"old\r\n\xff").blob] == b"old\r\n\xff"
    assert (root / "run.sh").read_bytes() == b"old\r\n\xff"
    result = await write.run(call, observed)
    assert (root / "run.sh").read_bytes() == b"new\n"
    assert (root / "run.sh").stat().st_mode & 0o7777 == 0o751
    assert result.changes[0].before_mode == result.changes[0].after_mode == 0o751


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_an_existing_file_keeps_its_owner(write: Harness, root: Path) -> None:
    (root / "theirs").write_text("old")
    os.chown(root / "theirs", 4321, 8765)
    assert (await write.do(path="theirs", content="new")).status == "ok"
    found = (root / "theirs").stat()
    assert (found.st_uid, found.st_gid) == (4321, 8765)


async def test_extended_attributes_are_kept(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    try:
        os.setxattr(root / "a", "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert (await write.do(path="a", content="new")).status == "ok"
    assert os.getxattr(root / "a", "user.note") == b"mine"


@given(content=st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=30, deadline=None)
def test_any_text_is_written_byte_for_byte(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    root = tmp_path_factory.mktemp("write").resolve()
    write = Harness(WriteTool(), Workspace(root=root))

    async def do() -> None:
        await write.do(path="a", content=content)

    anyio.run(do)
    assert (root / "a").read_bytes() == content.encode()


async def test_the_same_content_again_changes_nothing(write: Harness, root: Path) -> None:
    (root / "a").write_text("same\n")
    inode = (root / "a").stat().st_ino
    result = await write.do(path="a", content="same\n")
    assert result.status == "ok"
    assert result.text == "a already has exactly this content (1 line, 5 bytes)"
    assert result.changes == ()
    assert (root / "a").stat().st_ino == inode


# ---- where it may write


@pytest.mark.parametrize("path", ["../out", "{outside}/out", "link/out", "dangling", "~/out", "a/../../out"])
async def test_nothing_is_written_outside_the_workspace(
    write: Harness, root: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    monkeypatch.setenv("HOME", str(outside))
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "out")
    path = path.format(outside=outside)
    result = await write.do(path=path, content="escaped")
    assert result.status == "error"
    assert "outside the workspace" in result.text
    assert os.listdir(outside) == []
    assert not (tmp_path / "out").exists()
    assert write.paths(path=path, content="") == (str(outside / "out" if "../out" not in path else tmp_path / "out"),)


async def test_a_path_through_a_link_is_answered_with_the_real_one(write: Harness, root: Path) -> None:
    (root / "real/deep").mkdir(parents=True)
    (root / "real/a").write_text("old")
    (root / "link").symlink_to("real")
    (root / "alias").symlink_to("real/a")
    (root / "deep").symlink_to("real/deep")
    for path, real in [
        ("link/a", "real/a"),
        ("alias", "real/a"),
        ("link/new", "real/new"),
        ("deep/../a", "real/a"),
        (f"{root}/link/../link/a", "real/a"),
    ]:
        assert write.paths(path=path, content="") == (real,)
        result = await write.do(path=path, content="new")
        assert (result.status, result.text) == (
            "error",
            f'"{path}" goes through a symlink: give the real path "{real}"',
        )
    assert (root / "real/a").read_text() == "old"
    assert (await write.do(path=f"{root}/real/./deep/../a", content="new")).text.startswith("wrote real/a")


async def test_a_folder_swapped_for_a_link_after_the_look_leads_nowhere(
    write: Harness, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "src").mkdir()
    call = write.call(path="src/a", content="escaped")
    observed = await write.observe(call)
    (root / "src").rmdir()
    (root / "src").symlink_to(outside)
    assert (await write.run(call, observed)).status == "error"
    assert os.listdir(outside) == []


async def test_git_folders_are_reported_in_every_spelling(write: Harness, root: Path) -> None:
    (root / ".git/hooks").mkdir(parents=True)
    (root / "innocent").symlink_to(".git/hooks")
    for path in (
        ".git/hooks/x",
        ".GIT/hooks/x",
        "innocent/x",
        ".g\u200cit/hooks/x",
        "git~1/hooks/x",
        "a/../.Git/hooks/x",
    ):
        assert write.paths(path=path, content="") == (".git/hooks/x",), path
    assert write.paths(path="sub/.git/config", content="") == ("sub/.git/config",)
    assert write.paths(path=".github/x", content="") == (".github/x",)


async def test_a_linked_git_folder_is_reported_as_git(write: Harness, root: Path) -> None:
    (root / "store").mkdir()
    (root / ".git").symlink_to("store")
    assert write.paths(path="store/config", content="") == (".git/config",)
    assert write.paths(path=".git/config", content="") == (".git/config",)


async def test_what_is_no_file_is_refused_without_waiting(write: Harness, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "file").write_text("")
    (root / "loop").symlink_to("loop")
    for path, says in [
        ("pipe", "is a pipe"),
        ("folder", "is a folder"),
        (".", "is a folder"),
        ("new/", "names a folder"),
        ("file/below", "a part of it is a file"),
        ("loop", "symlink"),
        ("n" * 300, "a name in it is too long"),
    ]:
        result = await write.do(path=path, content="x")
        assert result.status == "error", path
        assert says in result.text, result.text


async def test_a_file_over_the_limit_is_refused(write: Harness, root: Path) -> None:
    with open(root / "huge", "wb") as file:
        file.truncate(1 << 40)
    result = await write.do(path="huge", content="x")
    assert result.status == "error"
    assert f"at most {files.FILE_BYTES_MAX}" in result.text


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
async def test_a_read_only_file_stays(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    (root / "a").chmod(0o444)
    result = await write.do(path="a", content="new")
    assert "read-only" in result.text
    assert (root / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "missing argument path, content"),
        ({"path": "a"}, "missing argument content"),
        ({"path": 1, "content": ""}, "argument path must be a string, not a number"),
        ({"path": "a", "content": ["x"]}, "argument content must be a string, not an array"),
        ({"path": "a", "content": None}, "argument content must be a string, not null"),
        ({"path": "a\0b", "content": ""}, "NUL"),
        ({"path": "", "content": ""}, "argument path is empty"),
        ({"path": "\ud800", "content": ""}, "half a surrogate pair"),
        ({"path": "a", "content": "x\udfff"}, "half a surrogate pair at character 1"),
        ({"path": "a/" * 5_000_000, "content": ""}, "at most 4096"),
        ({"path": "a", "content": "", "y" * 10_000_000: 1}, "unknown argument"),
        ({"path": "a", "file_path": "b", "content": ""}, "given twice"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_named(
    write: Harness, root: Path, args: dict[str, object], says: str
) -> None:
    result = await write.do(**args)
    assert result.status == "error"
    assert says in result.text
    assert len(result.text) < 1000
    result.text.encode()
    write.paths(**args)
    assert os.listdir(root) == []


# ---- other writers


async def test_a_file_that_changed_since_the_intent_is_not_overwritten(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    call = write.call(path="a", content="new")
    observed = await write.observe(call)
    (root / "a").write_text("by a person")
    result = await write.run(call, observed)
    assert result.status == "error"
    assert "changed since" in result.text
    assert (root / "a").read_text() == "by a person"


async def test_a_file_that_appeared_since_the_intent_is_not_overwritten(write: Harness, root: Path) -> None:
    call = write.call(path="a", content="new")
    observed = await write.observe(call)
    (root / "a").write_text("by a person")
    assert "changed since" in (await write.run(call, observed)).text
    assert (root / "a").read_text() == "by a person"


# ---- crashes

KILL_AT: dict[str, tuple[str, str]] = {
    # where the process kills itself: what recovery must find, for an existing and for a new file
    "before anything": ("not_done", "not_done"),
    "temporary written": ("not_done", "not_done"),
    "in place": ("done", "done"),
}

KILLED_WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
import msgspec
from muse.effect.protocol import ToolCall, Workspace
from muse.effect.tool.write import WriteTool
from muse.event.content import Observed

at, root, call, observed = sys.argv[1:]

def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    def called(*args, **kwargs):
        function(*args, **kwargs)
        die()
    return called

if at == "before anything":
    os.open = die
elif at == "temporary written":
    os.rename = os.link = die
else:
    os.rename, os.link = after(os.rename), after(os.link)
run = WriteTool().run(
    msgspec.json.decode(call, type=ToolCall), msgspec.json.decode(observed, type=Observed),
    Workspace(root=Path(root)), None, None, None, False,
)
asyncio.run(run)
"""


def run_and_die(at: str, root: Path, call: ToolCall, observed: Observed) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, at, str(root), msgspec.json.encode(call), msgspec.json.encode(observed)],
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -9, ended.stderr


@pytest.mark.parametrize("at", KILL_AT)
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_writer_killed_anywhere_leaves_no_doubt_and_no_litter(
    write: Harness, root: Path, tmp_path: Path, at: str, is_new: bool
) -> None:
    (root / "src").mkdir()
    if not is_new:
        (root / "src/a").write_text("old\n")
    twin = tmp_path / "twin"
    shutil.copytree(root, twin)
    call = write.call(path="src/a", content="new\n")
    observed = await write.observe(call)
    undisturbed = await Harness(WriteTool(), Workspace(root=twin.resolve())).run(call)

    run_and_die(at, root, call, observed)
    verdict = await write.reconcile(call, observed)
    assert verdict.verdict == KILL_AT[at][is_new]
    assert os.listdir(root / "src") in (["a"], [])
    result = verdict.result if verdict.verdict == "done" else await write.run(call, observed)
    assert result == undisturbed
    assert (root / "src/a").read_text() == "new\n"
    assert (root / "src/a").stat().st_nlink == 1
    assert os.listdir(root / "src") == ["a"]


async def test_a_conflict_after_a_crash_is_told_and_nothing_is_overwritten(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    call = write.call(path="a", content="new")
    observed = await write.observe(call)
    run_and_die("temporary written", root, call, observed)
    (root / "a").write_text("by a person")
    verdict = await write.reconcile(call, observed)
    assert verdict.verdict == "unknown"
    assert blob_of(b"by a person").blob in verdict.evidence
    assert verdict.result is not None
    assert verdict.result.status == "unknown"
    assert (root / "a").read_text() == "by a person"
    assert os.listdir(root) == ["a"]


async def test_a_file_that_vanished_or_became_a_folder_after_a_crash_is_a_conflict(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    call = write.call(path="a", content="new")
    observed = await write.observe(call)
    (root / "a").unlink()
    assert (await write.reconcile(call, observed)).verdict == "unknown"
    (root / "a").mkdir()
    assert (await write.reconcile(call, observed)).verdict == "unknown"


async def test_without_a_record_of_the_file_nothing_is_written(write: Harness, root: Path) -> None:
    call = write.call(path="a", content="new")
    assert (await write.run(call, Observed())).status == "error"
    assert (await write.reconcile(call, Observed())).verdict == "not_done"
    assert os.listdir(root) == []


async def test_a_full_disk_leaves_the_old_file_and_no_litter(write: Harness, root: Path) -> None:
    (root / "a").write_text("old")
    call = write.call(path="a", content="x" * 100_000)
    observed = await write.observe(call)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        result = await write.run(call, observed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert result.status == "error"
    assert "could not be used" in result.text
    assert (root / "a").read_text() == "old"
    assert os.listdir(root) == ["a"]


def test_a_blob_reference_of_the_harness_is_the_digest() -> None:
    assert blob_of(b"") == BlobRef("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0)
