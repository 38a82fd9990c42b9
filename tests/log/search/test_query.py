"""What a query means, and that the index never leaves out what the text would have shown."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.errors import UsageError
from muse.log.search.index import Index, Reached, Said
from muse.log.search.query import Query, compiled, fold, words_of
from tests.event.strategies import unhurried

PIECES = [
    "a",
    "B",
    "ab",
    "Abc",
    " ",
    "\n",
    '"',
    "%",
    "*",
    "->",
    "_",
    "é",
    "É",
    "错误",
    "错",
    "ß",
    "İ",
    "ς",
    "Σ",
    "\0",
    "\x1b",
    "😀",
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
words = st.lists(st.sampled_from([piece for piece in PIECES if piece not in " \n\0"]), min_size=1, max_size=4).map(
    "".join
)


def index_of(folder: Path, held: list[list[str]]) -> Index:
    """An index of events with these texts."""
    said = [Said(seq, bytes(32), "2026", list(one)) for seq, one in enumerate(held, 1)]
    index = Index.create(folder / "x.index")
    index.grow(lambda _: said, Reached)
    return index


def found(held: list[list[str]], query: Query) -> set[int]:
    """The events that hold the query, by their texts alone."""
    return {seq for seq, one in enumerate(held, 1) if one and query.spans(one) is not None}


@unhurried
@given(st.lists(st.lists(texts, max_size=3), max_size=6), st.lists(words, min_size=1, max_size=3), st.booleans())
def test_the_index_names_every_event_that_holds_the_words(held: list[list[str]], asked: list[str], exact: bool) -> None:
    held = [[text for text in one if text] for one in held]
    query = Query(words=tuple(asked), exact=exact)
    with tempfile.TemporaryDirectory() as folder, index_of(Path(folder), held) as index:
        named = index.candidates(query)
    assert named is None or found(held, query) <= set(named)
    assert named is None or named == sorted(named, reverse=True)


PATTERNS = [
    "abc", "ab.c", "a|abc", "(ab)+c", "(?:ab){2}", "[ab]bc", "ab?c", "^abc", "abc$", r"\babc\b", "(?i)ABC", "Abc",
    "错误", "x*", "abc(?=d)", "(a)(b)(c)\\1", "ab(?#x)c", r"a\u0062c", "(?x) a b c", "é+ab", "ab{0}c", "(abc|abd)e?",
    "ſab", "kab",
]  # fmt: skip


@unhurried
@given(
    st.lists(
        st.lists(texts | st.sampled_from(["abc", "ABABC", "abcd xabc", "ab\nc", "sAb\r\nKab"]), max_size=2), max_size=5
    ),
    st.sampled_from(PATTERNS),
)
def test_the_index_names_every_event_with_a_line_that_an_expression_matches(
    held: list[list[str]], pattern: str
) -> None:
    held = [[text for text in one if text] for one in held]
    query = Query(patterns=(compiled(pattern),))
    flags = re.IGNORECASE if pattern == pattern.lower() or "(?i)" in pattern else 0
    by_hand = {
        seq
        for seq, one in enumerate(held, 1)
        if any(re.search(pattern, line.removesuffix("\r"), flags) for text in one for line in text.split("\n"))
    }
    assert found(held, query) == by_hand
    with tempfile.TemporaryDirectory() as folder, index_of(Path(folder), held) as index:
        named = index.candidates(query)
    assert named is None or by_hand <= set(named)


def test_folding_keeps_places_and_joins_what_expressions_take_for_equal() -> None:
    cased = [chr(c) for c in range(sys.maxunicode + 1) if chr(c).lower() != chr(c) or chr(c).upper() != chr(c)]
    assert len(cased) > 2_000
    for letter in cased:
        assert len(fold(letter)) == 1
        assert fold(f"x{letter}") == f"x{fold(letter)}"
        for other in {letter.lower(), letter.upper(), letter.title(), letter.casefold()}:
            if len(other) == 1 and re.fullmatch(re.escape(letter), other, re.IGNORECASE):
                assert fold(letter) == fold(other), (letter, other)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("one", ("one",)),
        ("two words", ("two", "words")),
        ('"two words"', ("two words",)),
        ('say "two words" now', ("say", "two words", "now")),
        ('print("x y")', ('print("x', 'y")')),
        ('a "b', ("a", '"b')),
        ('""', ('""',)),
        ("100% a*b AND (c) -d", ("100%", "a*b", "AND", "(c)", "-d")),
        ("x x", ("x",)),
        ('"over\ntwo lines"', ("over\ntwo lines",)),
    ],
)
def test_words_and_phrases(text: str, meant: tuple[str, ...]) -> None:
    assert words_of(text) == meant


def test_an_empty_query_and_a_bad_expression_cannot_be_meant() -> None:
    for text in ("", "  \n"):
        with pytest.raises(UsageError):
            words_of(text)
        with pytest.raises(UsageError):
            words_of(text, whole=True)
    with pytest.raises(UsageError, match="no regular expression"):
        compiled("(")


def test_what_is_shown_is_the_text_with_most_of_the_words() -> None:
    query = Query(words=("push", "origin"))
    assert query.spans(["push", "git PUSH origin push", "origin"]) == (1, [(4, 8), (9, 15), (16, 20)])
    assert query.spans(["push", "origin"]) == (0, [(0, 4)])
    far = "push\n" + "-" * 200 + "\ngit push the origin"
    assert query.spans([far]) == (0, [(210, 214), (0, 4), (219, 225)])
    assert query.spans(["push"]) is None
    assert Query(words=("Push",), exact=True).spans(["push"]) is None
