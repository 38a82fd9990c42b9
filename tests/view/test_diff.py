"""Diffs of what changed, for a reader."""

from muse.event.content import BlobRef, FileChange
from muse.view.diff import DIFF_BYTES_MAX, file_diff

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
