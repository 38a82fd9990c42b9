"""Exact replacement: any edits apply like plain Python, other bytes stay, and messages lead on."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.protocol import Workspace
from muse.effect.tool.arguments import Refusal
from muse.effect.tool.edit import EDITS_MAX, Edit, EditTool, apply_edits
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def edit(workspace: Workspace) -> Harness:
    return Harness(EditTool(), workspace)


def reference(before: bytes, edits: list[Edit]) -> bytes | None:
    """What plain Python on bytes makes of it; None when an edit must be refused."""
    for one in edits:
        old, new = one.old.encode(), one.new.encode()
        starts = [at for at in range(len(before)) if before.startswith(old, at)]
        if not starts or (len(starts) > 1 and not one.replace_all):
            return None
        before = (
            new.join(before.split(old))
            if one.replace_all
            else before[: starts[0]] + new + before[starts[0] + len(old) :]
        )
    return before


small = st.text("ab\né", max_size=4)
edits = st.lists(st.builds(Edit, small.filter(bool), small, st.booleans(), st.just("")), min_size=1, max_size=4)


@given(before=st.one_of(st.text("ab\né", max_size=30).map(str.encode), st.binary(max_size=20)), edits=edits)
@settings(max_examples=400, deadline=None)
def test_any_edits_apply_like_plain_python(before: bytes, edits: list[Edit]) -> None:
    if b"\r\n" in before:
        before = before.replace(b"\r\n", b"")
    expected = reference(before, edits)
    try:
        assert apply_edits(before, edits)[0] == expected
    except Refusal:
        assert expected is None


@given(before=st.text("ab\n", max_size=30), edits=edits)
@settings(max_examples=200, deadline=None)
def test_in_a_crlf_file_edits_mean_what_they_mean_with_plain_line_ends(before: str, edits: list[Edit]) -> None:
    expected = reference(before.encode(), edits)
    try:
        after = apply_edits(before.replace("\n", "\r\n").encode(), edits)[0]
    except Refusal:
        assert expected is None
    else:
        assert expected is not None
        if "\n" in before:
            assert after == expected.replace(b"\n", b"\r\n")
        else:
            assert after == expected


async def test_the_whole_way_with_several_edits(edit: Harness, root: Path) -> None:
    (root / "a.py").write_text("one\ntwo\nthree\ntwo\n")
    result = await edit.do(
        path="a.py", edits=[{"old": "one\n", "new": "1\n1.5\n"}, {"old": "two", "new": "2", "replace_all": True}]
    )
    assert (root / "a.py").read_text() == "1\n1.5\n2\nthree\n2\n"
    assert result.status == "ok"
    assert result.text == "edited a.py: 3 replacements at lines 1, 3, 5 (+4 -3 lines)"
    assert [change.path for change in result.changes] == ["a.py"]


@pytest.mark.parametrize(
    "args",
    [
        {"path": "a", "old": "x", "new": "y"},
        {"file_path": "a", "old_string": "x", "new_string": "y"},
        {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": False},
        {"path": "a", "edits": [{"old_string": "x", "new_string": "y", "replace_all": None}]},
    ],
)
async def test_the_spellings_of_other_agents_are_understood(edit: Harness, root: Path, args: dict[str, object]) -> None:
    (root / "a").write_text("x")
    assert edit.paths(**args) == ("a",)
    result = await edit.do(**args)
    assert result.text == "edited a: 1 replacement at line 1 (+1 -1 lines)"
    assert (root / "a").read_text() == "y"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\n", "a", "x\ny", b"x\r\ny\r\nb\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x", b"x\r\n"),
        (b"a\r\nb\n", "a\r\n", "x\n", b"x\nb\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"a\nno end", "no end", "end", b"a\nend"),
        (b"caf\xe9 a\xff", "af", "AF", b"cAF\xe9 a\xff"),
        ("naïve 😀\n".encode(), "😀", "é", "naïve é\n".encode()),
        (b"a\x0cb\x1c\x85\n", "b", "c", b"a\x0cc\x1c\x85\n"),
    ],
)
async def test_bytes_that_are_not_touched_stay(
    edit: Harness, root: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (root / "a").write_bytes(before)
    result = await edit.do(path="a", old=old, new=new)
    assert result.status == "ok", result.text
    assert (root / "a").read_bytes() == after


async def messages(edit: Harness, root: Path, content: str, *edits: dict[str, object]) -> str:
    (root / "a.py").write_text(content)
    result = await edit.do(path="a.py", edits=list(edits))
    assert result.status == "error"
    assert (root / "a.py").read_text() == content
    return result.text


async def test_a_text_that_occurs_more_than_once_is_located(edit: Harness, root: Path) -> None:
    content = "".join("hit\n" if n in (4, 19, 80) else f"{n}\n" for n in range(1, 100))
    said = await messages(edit, root, content, {"old": "hit", "new": "x"})
    assert said == (
        "old text occurs 3 times, at lines 4, 19, 80: add lines around it until it is unique, or set replace_all"
    )


async def test_a_text_with_other_white_space_is_shown_as_it_is(edit: Harness, root: Path) -> None:
    said = await messages(
        edit, root, "def f():\n\tif x:\n\t\treturn  1\n",
        {"old": "def f", "new": "def g"}, {"old": "    if x:\n        return 1\n", "new": ""}, {"old": "a", "new": "b"},
    )  # fmt: skip
    assert said == (
        "edit 2 of 3: not found; the file has it with other white space at line 2: '\\tif x:\\n\\t\\treturn  1'"
    )


async def test_the_closest_line_is_named(edit: Harness, root: Path) -> None:
    said = await messages(edit, root, "alpha = 1\nbeta = 2\n", {"old": "beta = 3", "new": "x"})
    assert said == "not found; the closest is line 2: 'beta = 2'. Read the file again and copy the text exactly"


async def test_an_earlier_edit_that_took_the_text_away_is_named(edit: Harness, root: Path) -> None:
    said = await messages(edit, root, "one two\n", {"old": "one", "new": "1"}, {"old": "one two", "new": "x"})
    assert said == "edit 2 of 2: not found: an earlier edit of this call changed that text"


async def test_overlapping_occurrences_are_not_unique(edit: Harness, root: Path) -> None:
    assert "occurs 2 times" in await messages(edit, root, "aaa\n", {"old": "aa", "new": "x"})


async def test_a_missing_file_is_answered_with_the_one_that_was_meant(edit: Harness, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/app.py").write_text("")
    result = await edit.do(path="src/ap.py", old="a", new="b")
    assert result.text.startswith('no file "src/ap.py"; did you mean src/app.py?')
    assert "write" in result.text


async def test_a_binary_file_is_refused(edit: Harness, root: Path) -> None:
    (root / "a").write_bytes(b"PNG\0\1a")
    assert "binary" in (await edit.do(path="a", old="a", new="b")).text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"path": "a"}, "missing argument edits"),
        ({"path": "a", "edits": []}, "argument edits is empty"),
        ({"path": "a", "edits": "x"}, "argument edits must be an array, not a string"),
        ({"path": "a", "edits": {"old": "x", "new": "y"}}, "argument edits must be an array, not an object"),
        ({"path": "a", "edits": [{"old": "x", "old_string": "z", "new": "y"}]}, "old is given twice"),
        ({"path": "a", "edits": [{"old": "x", "new": "y"}], "old": "z"}, 'unknown argument "old"'),
        ({"path": "a", "oldText": "x", "newText": "y"}, 'unknown argument "oldText"'),
        ({"path": "a", "edits": ["x"]}, "must be an object with old and new, not a string"),
        ({"path": "a", "edits": [{"old": "x"}]}, "missing argument new"),
        ({"path": "a", "edits": [{"old": 1, "new": "x"}]}, "old must be a string, not a number"),
        ({"path": "a", "edits": [{"old": "x", "new": "y", "all": True}]}, 'unknown argument "all"'),
        ({"path": "a", "edits": [{"old": "x", "new": "y", "replace_all": "yes"}]}, "replace_all must be true or false"),
        ({"path": "a", "edits": [{"old": "", "new": "y"}]}, "old is empty"),
        ({"path": "a", "edits": [{"old": "x", "new": "x"}]}, "old and new are the same"),
        ({"path": "a", "edits": [{"old": "x", "new": "\ud800"}]}, "new holds half a surrogate pair"),
        ({"path": "a", "edits": [{"old": "x", "new": "y"}, {"old": "\udc80", "new": "y"}]}, "edit 2 of 2: old holds"),
        ({"path": "a", "edits": [{"old": "x", "new": "y"}] * (EDITS_MAX + 1)}, f"at most {EDITS_MAX}"),
        ({"path": "a", "old": "x"}, "missing argument new"),
        ({"path": "a", "old": "x" * 10_000_000, "new": "y"}, "not found"),
        ({"path": "a", "old": "\n" * 10_000_000, "new": "y"}, "not found"),
        ({"path": "a", "old": "x", "new": "y", "\udcff": 1}, "unknown argument"),
        ({"path": "a", "edits": [{"old": "x", "new": "y", "\udcff": 1}]}, "unknown argument"),
        ({"edits": [{"old": "x", "new": "y"}]}, "missing argument path"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_named(
    edit: Harness, root: Path, args: dict[str, object], says: str
) -> None:
    (root / "a").write_text("z\n")
    result = await edit.do(**args)
    assert result.status == "error"
    assert says in result.text
    assert len(result.text.encode()) < 1000
    assert (root / "a").read_text() == "z\n"
    edit.paths(**args)


async def test_an_edit_that_would_grow_beyond_the_limit_is_refused(edit: Harness, root: Path) -> None:
    (root / "a").write_text("x" * 100_000)
    result = await edit.do(path="a", old="x", new="y" * 10_000, replace_all=True)
    assert "would be larger" in result.text


async def test_recovery_answers_what_an_undisturbed_run_would_have_answered(edit: Harness, root: Path) -> None:
    (root / "a").write_text("x y x\n")
    call = edit.call(path="a", old="x", new="z", replace_all=True)
    observed = await edit.observe(call)
    assert (await edit.reconcile(call, observed)).verdict == "not_done"
    result = await edit.run(call, observed)
    verdict = await edit.reconcile(call, observed)
    assert (verdict.verdict, verdict.result) == ("done", result)
    assert await edit.run(call, observed) == result
    assert (root / "a").read_text() == "z y z\n"
