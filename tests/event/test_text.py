"""Any bytes and any string become valid text, and nothing of them is lost."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event import codec
from muse.event.text import clean, cut
from tests.event import strategies

any_text = st.text(st.characters(codec=None))


@strategies.unhurried
@given(st.binary())
def test_any_bytes_become_text_that_carries_them_or_keeps_them(data: bytes) -> None:
    cleaned = clean(data)
    kept = cleaned.text.encode() if cleaned.exact is None else cleaned.exact
    assert kept == data
    assert (cleaned.exact is None) == (data.decode(errors="ignore").encode() == data)


@strategies.unhurried
@given(any_text)
def test_any_string_becomes_text_that_carries_it_or_keeps_it(text: str) -> None:
    cleaned = clean(text)
    kept = cleaned.text.encode() if cleaned.exact is None else cleaned.exact
    assert kept.decode("utf-8", "surrogatepass") == text
    assert codec.parse(codec.encode({"a": cleaned.text})) == {"a": cleaned.text}


@pytest.mark.parametrize(
    ("given_text", "text", "exact"),
    [
        ("plain", "plain", None),
        ("a\0b", "a\0b", None),
        ("\ufeffa\r\n", "\ufeffa\r\n", None),
        ("a\ud800b", "a\ufffdb", b"a\xed\xa0\x80b"),
        ("\udc80", "\ufffd", b"\xed\xb2\x80"),
        ("\ud83d\ude00", "😀", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("end\ud83d", "end\ufffd", b"end\xed\xa0\xbd"),
        (b"caf\xc3\xa9\x00", "café\0", None),
        (b"caf\xe9", "caf\ufffd", b"caf\xe9"),
        (b"\xef\xbb\xbfa", "\ufeffa", None),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", b"\xed\xa0\x80"),
        (b"", "", None),
    ],
)
def test_cleaning_worked_by_hand(given_text: bytes | str, text: str, exact: bytes | None) -> None:
    cleaned = clean(given_text)
    assert (cleaned.text, cleaned.exact) == (text, exact)


def test_a_file_name_that_is_no_utf_8_is_cleaned() -> None:
    name = os.fsdecode(b"caf\xe9")
    assert clean(name).text == "caf\ufffd"


def test_a_mutable_buffer_is_copied() -> None:
    data = bytearray(b"\xff")
    cleaned = clean(bytes(data))
    data[0] = 0
    assert cleaned.exact == b"\xff"


@strategies.unhurried
@given(st.text(max_size=300), st.integers(0, 100), st.integers(0, 100))
def test_a_cut_keeps_the_ends_and_says_how_much_is_gone(text: str, head: int, tail: int) -> None:
    shortened = cut(text, head, tail)
    size = len(text.encode())
    if size <= head + tail:
        assert (shortened.text, shortened.left_out_bytes) == (text, 0)
        return
    marker = f"[... {shortened.left_out_bytes} bytes left out ...]\n"
    before, after = shortened.text.split(marker)[0], shortened.text.split(marker)[-1]
    kept_before = before if text.startswith(before) else before[:-1]
    assert text.startswith(kept_before)
    assert text.endswith(after)
    assert head - 3 <= len(kept_before.encode()) <= head + 1
    assert tail - 3 <= len(after.encode()) <= tail
    assert size - head - tail <= shortened.left_out_bytes <= size - head - tail + 6


@pytest.mark.parametrize(
    ("text", "head", "tail", "expected"),
    [
        ("abcdefghij", 3, 2, "abc\n[... 5 bytes left out ...]\nij"),
        ("ab\ncdefghij", 3, 0, "ab\n[... 8 bytes left out ...]\n"),
        ("abcdefghij", 0, 2, "[... 8 bytes left out ...]\nij"),
        ("😀😀😀", 5, 5, "😀\n[... 4 bytes left out ...]\n😀"),
        ("😀", 2, 1, "[... 4 bytes left out ...]\n"),
        ("abc", 0, 0, "[... 3 bytes left out ...]\n"),
        ("", 0, 0, ""),
    ],
)
def test_cuts_worked_by_hand(text: str, head: int, tail: int, expected: str) -> None:
    assert cut(text, head, tail).text == expected
