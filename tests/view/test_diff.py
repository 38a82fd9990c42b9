"""Diffs of what changed, for a reader."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from muse.event.content import BlobRef, FileChange
from muse.view.diff import CHANGED_LINES_MAX, DIFF_BYTES_MAX, file_diff

OLD, NEW = "0a" * 32, "0b" * 32


def diff(before: bytes | None, after: bytes | None, **fields: int | str) -> list[str]:
    held = {OLD: before, NEW: after}
    change = FileChange(
        path="src/a.py",
        before=None if before is None else BlobRef(OLD, len(before)),
        after=None if after is None else BlobRef(NEW, len(after)),
        **fields,  # type: ignore[arg-type]  # modes and a note
    )
    return [line.text for line in file_diff(change, lambda ref: held[ref.blob])]


def test_a_change_is_a_unified_diff() -> None:
    assert diff(b"one\ntwo\nthree\n", b"one\n2\nthree\n") == [
        "src/a.py", "--- a/src/a.py", "+++ b/src/a.py", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three",
    ]  # fmt: skip


def test_a_new_file_and_a_deleted_one_say_so() -> None:
    assert diff(None, b"x\n") == ["new file src/a.py", "--- /dev/null", "+++ b/src/a.py", "@@ -0,0 +1 @@", "+x"]
    assert diff(b"x\n", None) == ["deleted src/a.py", "--- a/src/a.py", "+++ /dev/null", "@@ -1 +0,0 @@", "-x"]


def test_a_missing_last_newline_is_said_as_diff_says_it() -> None:
    assert diff(b"x", b"x\n")[4:] == ["-x", "\\ No newline at end of file", "+x"]


def test_a_changed_line_that_looks_like_a_heading_stays_a_line() -> None:
    assert diff(b"-- a\n", b"++ b\n")[4:] == ["--- a", "+++ b"]


def test_carriage_returns_are_seen() -> None:
    assert diff(b"x\n", b"x\r\n")[4:] == ["-x", "+x\\x0d"]


def test_binary_and_huge_contents_are_named() -> None:
    assert diff(b"\0\1", b"\0\1\2") == ["src/a.py", "binary: 2 B → 3 B"]
    assert diff(b"\xff\xfe", None) == ["deleted src/a.py", "binary: 2 B → nothing"]
    assert diff(b"", b"x" * (DIFF_BYTES_MAX + 1)) == ["src/a.py", "too large to show: 0 B → 524.3 kB"]


def test_what_is_hidden_or_was_not_recorded_says_so() -> None:
    change = FileChange(path="a", before=BlobRef(OLD, 3), after=BlobRef(NEW, 3))
    assert [line.text for line in file_diff(change, lambda ref: None)] == ["a", "content hidden by redaction"]
    assert diff(None, None, note="a secret is in it") == ["src/a.py", "content not recorded: a secret is in it"]


def test_a_change_of_permissions_is_said() -> None:
    assert diff(b"x\n", b"x\n", before_mode=0o644, after_mode=0o755) == ["src/a.py", "mode 644 → 755"]


def test_a_removed_last_line_that_looks_like_a_heading_stays_a_line() -> None:
    assert diff(b"x\n-- a", b"x\n")[3:] == ["@@ -1,2 +1 @@", " x", "--- a", "\\ No newline at end of file"]


def test_a_change_deep_in_a_file_names_its_lines() -> None:
    old = "".join(f"line {number}\n" for number in range(1, 5_001))
    new = old.replace("line 4000\n", "line 4000\nadded\n")
    assert diff(old.encode(), new.encode())[3:] == [
        "@@ -3998,6 +3998,7 @@", " line 3998", " line 3999", " line 4000", "+added", " line 4001", " line 4002",
        " line 4003",
    ]  # fmt: skip


def test_a_change_that_would_cost_the_square_is_named() -> None:
    dice = random.Random(7)
    old, new = ("".join(f"{dice.randrange(150)}\n" for _ in range(100_000)).encode() for _ in range(2))
    found = diff(old, new)
    assert len(found) == 2
    assert found[1].startswith("too much changed to compare: ")


def test_a_long_new_file_is_shown_whole() -> None:
    many = b"x\n" * (CHANGED_LINES_MAX * 2)
    assert len(diff(None, many)) == CHANGED_LINES_MAX * 2 + 4


@pytest.mark.skipif(not shutil.which("patch"), reason="patch is the judge here, and this machine has none")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(
    old=["a"] * 7 + ["b"] * 2,
    new=["a"] * 3 + ["b"] + ["a"] * 3 + ["b"] * 2,
    before=0,
    after=0,
    old_ends=False,
    new_ends=False,
)  # a change that a comparison of what is near it puts at its very end
@given(
    st.lists(st.sampled_from("abcd"), max_size=14), st.lists(st.sampled_from("abcd"), max_size=14),
    st.integers(0, 12), st.integers(0, 12), st.booleans(), st.booleans(),
)  # fmt: skip
def test_patch_makes_the_new_file_of_the_old_one(
    tmp_path: Path, old: list[str], new: list[str], before: int, after: int, old_ends: bool, new_ends: bool
) -> None:
    texts = []
    for middle, ends in ((old, old_ends), (new, new_ends)):
        lines = [*(f"start {n}" for n in range(before)), *middle, *(f"end {n}" for n in range(after)), "last"]
        texts.append("\n".join(lines) + "\n" * ends)
    file = tmp_path / "a.py"
    file.write_text(texts[0])
    lines = diff(texts[0].encode(), texts[1].encode())[1:]
    command = ["patch", "--silent", "--posix", str(file)]
    if len(lines) > 2:
        subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)
    assert file.read_text() == texts[1]
