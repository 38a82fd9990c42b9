"""What an agent changed, taken over by `apply` and shown by `diff`: what is written, what is refused, and crashes."""

import os
import shutil
from pathlib import Path

import pytest

from muse.effect.protocol import Show, ToolCall, ToolResult, Workspace
from muse.effect.tool.apply import ApplyTool
from muse.effect.tool.arguments import Refusal
from muse.effect.tool.children import LINK, ChildChanges, Children
from muse.effect.tool.diff import DiffTool
from muse.effect.tool.masking import KnownSecrets
from muse.event.content import BlobRef, FileChange, Observed

pytestmark = pytest.mark.anyio
GIT = shutil.which("git")
FILE, PROGRAM = 0o644, 0o755


class Rig:
    """A workspace, and the changes of a child `main.1` with their contents."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.workspace = Workspace(self.root.resolve())
        self.blobs: dict[str, bytes] = {}
        self.changes: list[FileChange] = []
        self.taken: dict[str, FileChange] = {}
        self.is_working = False
        self.apply = ApplyTool(
            Children(self._changes, self._content), KnownSecrets({"KEY": "hunter2-hunter2"}), git=GIT,
            refusal=lambda path: "it is kept" if path.startswith(".muse") else "",
        )  # fmt: skip
        self.diff = DiffTool(Children(self._changes, self._content))

    def child(
        self,
        path: str,
        before: bytes | None,
        after: bytes | None,
        modes: tuple[int, int] = (FILE, FILE),
        note: str = "",
    ) -> None:
        self.changes.append(
            FileChange(
                path=path, before=self._kept(before), after=self._kept(after),
                before_mode=0 if before is None else modes[0], after_mode=0 if after is None else modes[1], note=note,
            )
        )  # fmt: skip

    def put(self, **files: bytes) -> None:
        for name, data in files.items():
            (self.root / name).write_bytes(data)

    def _kept(self, data: bytes | None) -> BlobRef | None:
        if data is None:
            return None
        name = f"blob-{len(self.blobs)}"
        self.blobs[name] = data
        return BlobRef(blob=name, length=len(data))

    async def _keep(self, data: bytes) -> BlobRef:
        kept = self._kept(data)
        assert kept is not None
        return kept

    async def _changes(self, caller: str, agent: str) -> ChildChanges:
        if (caller, agent) != ("main", "main.1"):
            raise Refusal(f"there is no agent {agent} below you")
        return ChildChanges(
            agent="main.1", changes=tuple(self.changes), taken=self.taken, is_working=self.is_working
        )  # fmt: skip

    async def _content(self, ref: BlobRef) -> bytes:
        return self.blobs[ref.blob]

    def call(self, **args: object) -> ToolCall:
        given = {"agent": "main.1", **args}
        return ToolCall(call="main/7", attempt=1, name="apply", args=given, args_text=str(given))

    async def look(self, **args: object) -> Observed:
        return await self.apply.observe(self.call(**args), self.workspace, self._keep)

    async def go(self, seen: Observed | None = None, **args: object) -> ToolResult:
        seen = await self.look(**args) if seen is None else seen
        return await self.apply.run(self.call(**args), seen, self.workspace, self._keep, no_file, silent, False)

    async def show(self, **args: object) -> str:
        result = await self.diff.run(self.call(**args), Observed(), self.workspace, self._keep, no_file, silent, False)
        return result.text

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.iterdir() if path.is_file()}


def silent(text: str) -> None:
    del text


async def no_file(path: Path) -> BlobRef:
    raise AssertionError(path)


_: Show = silent


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_new_changed_and_deleted_files_programs_and_links_are_taken_over_as_they_are(rig: Rig) -> None:
    rig.put(changed=b"one\n", gone=b"x", script=b"#!\n", untouched=b"u")
    rig.child("changed", b"one\n", b"two\r\n\xff")
    rig.child("gone", b"x", None)
    rig.child("sub/new", None, b"\0bytes")
    rig.child("script", b"#!\n", b"#!\n", (FILE, PROGRAM))
    rig.child("link", None, b"sub/new", (0, LINK))
    result = await rig.go()
    assert result.status == "ok", result.text
    assert rig.files() == {"changed": b"two\r\n\xff", "script": b"#!\n", "untouched": b"u", "link": b"\0bytes"}
    assert (rig.root / "sub" / "new").read_bytes() == b"\0bytes"
    assert os.readlink(rig.root / "link") == "sub/new"
    assert (rig.root / "script").stat().st_mode & 0o111
    assert {change.path for change in result.changes} == {"changed", "gone", "sub/new", "script", "link"}


async def test_where_both_changed_other_lines_both_changes_are_there(rig: Rig) -> None:
    rig.put(text=b"mine\n2\n3\n4\n5\n")
    rig.child("text", b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\ntheirs\n")
    result = await rig.go()
    assert "text (merged)" in result.text
    assert rig.files() == {"text": b"mine\n2\n3\n4\ntheirs\n"}


async def test_of_what_was_taken_over_before_only_what_came_since_is_merged(rig: Rig) -> None:
    lines = b"1\n2\n3\n4\n5\n"
    for name in ("same", "edited", "reverted", "away"):
        rig.child(name, lines, lines.replace(b"1", b"one"))
    rig.child("emptied", b"was", None)
    rig.taken = {change.path: change for change in rig.changes}
    rig.changes.clear()
    rig.put(same=b"one\n2\n3\n4\n5\n", edited=b"one\n2\n3\n4\nmine\n", reverted=lines, away=b"one\n2\n3\n4\nmine\n")
    for name in ("same", "edited", "reverted"):
        rig.child(name, lines, lines.replace(b"1", b"uno"))
    rig.child("away", lines, None)
    rig.child("emptied", b"was", b"is")
    assert "away: it was deleted there, and is changed here" in (await rig.go()).text
    result = await rig.go(paths=["same", "edited", "reverted", "emptied"])
    assert result.status == "ok", result.text
    after = {"same": b"uno\n2\n3\n4\n5\n", "reverted": b"uno\n2\n3\n4\n5\n", "emptied": b"is"}
    assert rig.files() == {**after, "edited": b"uno\n2\n3\n4\nmine\n", "away": b"one\n2\n3\n4\nmine\n"}


async def test_a_contradiction_writes_nothing_and_names_paths_and_lines(rig: Rig) -> None:
    rig.put(text=b"mine\n", other=b"one\n", edited=b"kept")
    rig.child("other", b"one\n", b"two\n")
    rig.child("text", b"1\n", b"theirs\n")
    rig.child("edited", b"was", None)
    rig.child("away", b"was", b"changed")
    result = await rig.go()
    assert result.status == "error"
    for words in ("text: both changed the same lines", "mine", "theirs", "edited: it was deleted there, and is changed",
                  "away: it was changed there, and is deleted here"):  # fmt: skip
        assert words in result.text
    assert rig.files() == {"text": b"mine\n", "other": b"one\n", "edited": b"kept"}
    assert (await rig.go(paths=["other"])).status == "ok"
    assert rig.files()["other"] == b"two\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "why"),
    [
        ("through/x", None, b"x", "which leads to"),
        ("../x", None, b"x", "outside the workspace"),
        (".muse/x", None, b"x", "it is kept"),
        ("key", None, b"a hunter2-hunter2 b", "known secret"),
        ("folder", None, b"x", "a folder"),
    ],
)
async def test_what_may_not_be_written_is_refused_with_a_reason(
    rig: Rig, path: str, before: bytes | None, after: bytes | None, why: str
) -> None:
    (rig.root / "folder").mkdir()
    (rig.root / "through").symlink_to(rig.root.parent)
    rig.child(path, before, after)
    result = await rig.go()
    assert (result.status, rig.files()) == ("error", {})
    assert why in result.text
    assert sorted(one.name for one in rig.root.parent.iterdir()) == ["work"]


@pytest.mark.parametrize(("mode", "what"), [(FILE, "a file there"), (LINK, "a symbolic link there")])
async def test_a_folder_that_became_something_else_stays_until_who_applies_removes_it_as_told(
    rig: Rig, mode: int, what: str
) -> None:
    (rig.root / "docs").mkdir()
    rig.put(**{"docs/a": b"one"})
    rig.child("docs/a", b"one", None)
    rig.child("docs", None, b"b", modes=(FILE, mode))
    result = await rig.go()
    assert (result.status, (rig.root / "docs" / "a").read_bytes()) == ("error", b"one")
    for words in ("docs: it is a folder here", what, "rm -r", "repeat the call", "the other paths only"):
        assert words in result.text
    assert (await rig.go(paths=["docs/a"])).status == "ok"
    (rig.root / "docs").rmdir()
    assert (await rig.go()).status == "ok"
    assert (rig.root / "docs").is_symlink() == (mode == LINK)


async def test_a_content_that_the_log_does_not_hold_is_said(rig: Rig) -> None:
    rig.child("large", None, None, note="not copied: larger than 8 MiB")
    assert "larger than 8 MiB" in (await rig.go()).text
    assert "larger than 8 MiB" in await rig.show()


async def test_an_agent_that_works_or_is_not_below_the_caller_is_refused(rig: Rig) -> None:
    rig.child("a", None, b"x")
    assert "no agent main.2" in (await rig.go(agent="main.2")).text
    rig.is_working = True
    assert "has not finished" in (await rig.go()).text
    assert "has not finished" in await rig.show()
    assert rig.files() == {}


async def test_what_changed_after_the_decision_is_never_overwritten(rig: Rig) -> None:
    rig.put(a=b"one", b=b"one")
    rig.child("a", b"one", b"two")
    rig.child("b", b"one", b"two")
    seen = await rig.look()
    rig.put(b=b"somebody else")
    result = await rig.go(seen)
    assert result.status == "error"
    assert "something else changed b" in result.text
    assert rig.files() == {"a": b"one", "b": b"somebody else"}


async def test_after_a_crash_each_path_says_what_is_left_to_do(rig: Rig) -> None:
    rig.put(a=b"one", b=b"one", c=b"one")
    for name in "ab":
        rig.child(name, b"one", b"two")
    rig.child("c", b"one", None)
    seen = await rig.look()
    verdict = await rig.apply.reconcile(rig.call(), seen, rig.workspace)
    assert verdict.verdict == "not_done"
    (rig.root / "c").unlink()
    rig.put(a=b"two")
    verdict = await rig.apply.reconcile(rig.call(), seen, rig.workspace)
    assert (verdict.verdict, verdict.take_up, verdict.result) == ("done", True, None)
    assert rig.files() == {"a": b"two", "b": b"one"}
    result = await rig.go(seen)
    assert (result.status, rig.files()) == ("ok", {"a": b"two", "b": b"two"})
    assert {change.path for change in result.changes} == {"a", "b", "c"}
    rig.put(b=b"somebody else")
    verdict = await rig.apply.reconcile(rig.call(), seen, rig.workspace)
    assert verdict.verdict == "unknown"
    assert verdict.result is not None
    assert "b changed around a crash" in verdict.result.text
    assert rig.files()["b"] == b"somebody else"


async def test_applying_twice_changes_nothing_more(rig: Rig) -> None:
    rig.put(a=b"one")
    rig.child("a", b"one", b"two")
    await rig.go()
    again = await rig.go()
    assert (again.status, again.changes) == ("ok", ())
    assert "here as it left them already" in again.text


async def test_the_diff_is_a_unified_one_of_the_chosen_paths(rig: Rig) -> None:
    rig.child("a.txt", b"1\n2\n", b"1\nzwei\n")
    rig.child("dir/b", None, b"new")
    rig.child("image", b"\0", b"\0\0")
    assert await rig.show(paths=["a.txt"]) == (
        "changed a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n 1\n-2\n+zwei"
    )
    assert await rig.show(paths=["dir"]) == (
        "new file dir/b\n--- /dev/null\n+++ b/dir/b\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file"
    )
    assert await rig.show(paths=["image"]) == "changed image\n(binary: 1 bytes became 2 bytes)"
    assert "changed nothing at" in await rig.show(paths=["elsewhere"])


async def test_a_diff_that_is_too_long_names_what_it_leaves_out(rig: Rig) -> None:
    for name in "abc":
        rig.child(name, None, b"line\n" * 4000)
    shown = await rig.show()
    assert len(shown.encode()) < 70_000
    assert "not shown, there was no room" in shown
