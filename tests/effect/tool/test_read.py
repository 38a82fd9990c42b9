"""Reading lines and reading back outputs: numbered, bounded, honest about what is not plain text."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.protocol import Workspace
from muse.effect.tool import read
from muse.effect.tool.arguments import Arguments
from muse.effect.tool.kept import OutputTool
from muse.effect.tool.output import TEXT_BYTES_MAX
from muse.effect.tool.read import LINE_CHARS_MAX, LINES_MAX, ReadTool
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def reader(workspace: Workspace) -> Harness:
    return Harness(ReadTool(), workspace)


async def shown(reader: Harness, root: Path, content: bytes, **args: object) -> str:
    (root / "a").write_bytes(content)
    result = await reader.do(path="a", **args)
    assert result.status == "ok", result.text
    result.text.encode()
    return result.text


async def test_lines_come_with_their_numbers(reader: Harness, root: Path) -> None:
    assert await shown(reader, root, b"one\n\nthree\n") == "     1\tone\n     2\t\n     3\tthree"


async def test_a_part_is_read_with_offset_and_limit(reader: Harness, root: Path) -> None:
    content = b"".join(b"line %d\n" % n for n in range(1, 11))
    assert await shown(reader, root, content, offset=4, limit=2) == (
        "     4\tline 4\n     5\tline 5\n(lines 4 to 5; the file goes on: read on with offset 6)"
    )
    assert await shown(reader, root, content, offset=9, limit=2) == "     9\tline 9\n    10\tline 10"
    assert await shown(reader, root, content, offset=10.0, limit=None) == "    10\tline 10"


@given(
    content=st.text("a\r\né\x0b\x1c", max_size=40),
    offset=st.integers(1, 8),
    limit=st.integers(1, 5),
    chunk=st.integers(1, 7),
)
@settings(max_examples=300, deadline=None)
def test_any_part_is_what_splitting_at_line_feeds_gives(
    tmp_path_factory: pytest.TempPathFactory, content: str, offset: int, limit: int, chunk: int
) -> None:
    root = tmp_path_factory.getbasetemp().resolve() / "read-any"
    root.mkdir(exist_ok=True)
    (root / "a").write_bytes(content.encode())
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    numbered = [f"{n:6}\t{line.removesuffix(chr(13))}" for n, line in enumerate(lines, 1)]
    expected = numbered[offset - 1 : offset - 1 + limit]
    args = Arguments({"path": "a", "offset": offset, "limit": limit})
    if not expected and (lines or offset > 1):
        with pytest.raises(read.Refusal, match=f"has {len(lines)} lines"):
            read.read_lines(args, Workspace(root=root), chunk)
        return
    text = read.read_lines(args, Workspace(root=root), chunk)
    assert [line for line in text.split("\n") if not line.startswith("(")] == expected
    assert (f"read on with offset {offset + limit}" in text) == (len(lines) >= offset + limit)


async def test_at_most_a_named_number_of_lines_comes_at_once(reader: Harness, root: Path) -> None:
    text = await shown(reader, root, b"x\n" * 5000, limit=5000)
    assert text.count("\n") == LINES_MAX
    assert text.endswith(f"read on with offset {LINES_MAX + 1})")


async def test_at_most_a_named_amount_of_text_comes_at_once(reader: Harness, root: Path) -> None:
    text = await shown(reader, root, (b"x" * 1000 + b"\n") * 200)
    assert text.endswith("(lines 1 to 60; the file goes on: read on with offset 61)")


async def test_a_long_line_is_cut_between_characters(reader: Harness, root: Path) -> None:
    text = await shown(reader, root, "é".encode() * 3_000_000 + b"\nnext\n")
    assert text == (
        f"     1\t{'é' * LINE_CHARS_MAX} [... line goes on, only {LINE_CHARS_MAX} characters are shown]\n     2\tnext"
    )


async def test_an_empty_file_says_so(reader: Harness, root: Path) -> None:
    assert await shown(reader, root, b"") == "(a is empty)"


async def test_what_is_not_plain_to_see_is_said(reader: Harness, root: Path) -> None:
    assert "     1\tcaf\ufffd\n(not valid UTF-8" in await shown(reader, root, b"caf\xe9\n")
    assert "(" not in await shown(reader, root, "\ufffd\n".encode())
    assert "     1\ta\n     2\tb\n(line ends are CRLF" in await shown(reader, root, b"a\r\nb\r\n")
    assert "     1\ta\n(begins with a byte order mark)" in await shown(reader, root, b"\xef\xbb\xbfa")


async def test_an_offset_after_the_end_is_answered_with_the_number_of_lines(reader: Harness, root: Path) -> None:
    (root / "a").write_bytes(b"1\n2\n3")
    result = await reader.do(path="a", offset=9)
    assert result.status == "error"
    assert result.text == '"a" has 3 lines: give an offset of at most 3'


async def test_a_missing_file_is_answered_with_the_one_that_was_meant(reader: Harness, root: Path) -> None:
    (root / "src/deep").mkdir(parents=True)
    (root / "src/app.py").write_text("")
    (root / "src/deep/config.toml").write_text("")
    assert (await reader.do(path="src/ap.py")).text == 'no file "src/ap.py"; did you mean src/app.py?'
    assert (await reader.do(path="config.toml")).text == 'no file "config.toml"; did you mean src/deep/config.toml?'
    assert (await reader.do(path="zzz/qqq")).text == 'no file "zzz/qqq"; use glob to find files'


async def test_what_is_no_text_file_is_refused_without_waiting(reader: Harness, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "null").symlink_to("/dev/null")
    (root / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    for path, says in [
        ("pipe", "is a pipe"),
        ("folder", "is a folder, not a file: use glob to list it"),
        (".", "is a folder"),
        ("null", "is outside the workspace"),
        ("image", "is a binary file of 10 bytes"),
        ("/etc/passwd", "is outside the workspace"),
        ("../x", "is outside the workspace"),
        ("image/x", "a part of it is a file"),
    ]:
        result = await reader.do(path=path)
        assert result.status == "error", path
        assert says in result.text, result.text


async def test_a_huge_file_is_read_at_its_start_and_bounded_beyond(reader: Harness, root: Path) -> None:
    with open(root / "huge", "wb") as file:
        file.write(b"first\n" * 5000)
        file.truncate(1 << 40)
    assert (await reader.do(path="huge", limit=1)).text.startswith("     1\tfirst\n")
    result = await reader.do(path="huge", offset=6000)
    assert result.status == "error"
    assert f"first {read.SCANNED_BYTES_MAX} bytes" in result.text


async def test_permission_denied_is_said(reader: Harness, root: Path) -> None:
    (root / "locked").mkdir()
    (root / "locked/a").write_text("x")
    (root / "locked").chmod(0)
    try:
        result = await reader.do(path="locked/a")
    finally:
        (root / "locked").chmod(0o700)
    assert result.status == ("ok" if os.getuid() == 0 else "error")


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"path": None},
        {"path": []},
        {"path": "a\0"},
        {"path": "\ud800"},
        {"path": "x" * 10_000_000},
        {"path": "a", "offset": 0},
        {"path": "a", "offset": "1"},
        {"path": "a", "offset": True},
        {"path": "a", "offset": 1.5},
        {"path": "a", "limit": -1},
        {"path": "a", "limit": float("nan")},
        {"path": "a", "limit": float("inf")},
        {"path": "a", "lines": "1-2"},
    ],
)
async def test_arguments_that_cannot_be_meant_give_an_error(
    reader: Harness, root: Path, args: dict[str, object]
) -> None:
    (root / "a").write_text("x\n")
    result = await reader.do(**args)
    assert result.status == "error"
    assert len(result.text.encode()) < 1000
    reader.paths(**args)


async def test_a_huge_offset_is_no_problem(reader: Harness, root: Path) -> None:
    (root / "a").write_text("x\n")
    assert (await reader.do(path="a", offset=10**30)).text == '"a" has 1 lines: give an offset of at most 1'


async def test_after_a_crash_a_look_is_simply_repeated(reader: Harness) -> None:
    call = reader.call(path="a")
    assert (await reader.reconcile(call, await reader.observe(call))).verdict == "retried"


# ---- outputs of earlier calls


@pytest.fixture
def outputs(workspace: Workspace) -> Harness:
    kept = {"main/3": "é".encode() * 40_000 + b"end\n"}

    async def read_output(call: str, offset: int, limit: int) -> bytes | None:
        return kept[call][offset : offset + limit] if call in kept else None

    return Harness(OutputTool(read_output), workspace)


async def test_an_output_is_read_piece_by_piece_without_a_gap(outputs: Harness) -> None:
    read_so_far, offset = "", 0
    while True:
        result = await outputs.do(call="main/3", offset=offset, limit=30_001)
        text, _, note = result.text.rpartition("(bytes ")
        read_so_far += text.removesuffix("\n")
        if "that is its end" in note:
            break
        offset = int(note.rpartition(" ")[2].rstrip(")"))
    assert read_so_far == "é" * 40_000 + "end"


async def test_an_offset_in_the_middle_of_a_character_skips_to_the_next(outputs: Harness) -> None:
    result = await outputs.do(call="main/3", offset=79_997, limit=100)
    assert result.text == "éend\n(bytes 79998 to 80003 of the output of main/3; that is its end)"


async def test_outputs_that_are_not_there_are_named(outputs: Harness) -> None:
    assert "no output is kept" in (await outputs.do(call="main/4")).text
    assert "no output is kept" in (await outputs.do(call="\ud800")).text
    assert "ends before byte 90000" in (await outputs.do(call="main/3", offset=90_000)).text
    assert len((await outputs.do(call="main/3", limit=10**9)).text) < TEXT_BYTES_MAX + 100
    assert "must be an integer" in (await outputs.do(call="main/3", offset="1")).text
