"""Lines that others wrote, against the independent reader and by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event.strict_json import BadJson, read, read_line
from tests.event import independent, strategies

fragments = st.sampled_from(
    ['{', '}', '[', ']', ',', ':', '"', '"a"', '"b"', "\\", '\\"', "\\ud800", " ", "\t", "\r", "\f", "\ufeff", "é",
     "\0", "-0", "0", "01", "12", "1.5", "1e2", "9007199254740993", "NaN", "null", "true",
     '{"a":1}', '{"a":[{}]}', '{"a":1,"a":2}']
)  # fmt: skip
lines = st.builds(
    lambda parts, at, byte: b"".join([*parts[:at], byte, *parts[at:]]),
    st.lists(fragments.map(str.encode), max_size=12),
    st.integers(0, 12),
    st.sampled_from([b"", b"", b"\xff", b"\xe2\x82"]),
)


def judged(line: bytes) -> object:
    try:
        return read_line(line)
    except BadJson as error:
        return "cut" if error.is_cut else "damaged"


@strategies.unhurried
@given(lines | lines.map(lambda line: b'{"a":1}' + line) | lines.map(lambda line: b'{"a":' + line + b"}"))
def test_a_line_is_read_as_the_independent_reader_reads_it(line: bytes) -> None:
    try:
        expected = independent.line_of(line)
    except independent.Cut:
        expected = "cut"
    except independent.Refused:
        expected = "damaged"
    assert judged(line) == expected


@strategies.unhurried
@given(strategies.bodies(), st.data())
def test_a_part_of_a_line_is_cut(body: dict[str, object], data: st.DataObject) -> None:
    line = json.dumps(body, ensure_ascii=False).encode()
    assert judged(line) == body
    assert judged(line[: data.draw(st.integers(0, len(line) - 1))]) == "cut"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", "cut"),
        (b"{", "cut"),
        (b"[]", "cut"),
        (b'{"a":NaN}', "cut"),
        (b'{"a":"\xff"}', "cut"),
        (b"{}", {}),
        (b'{ "a" : [ 1 ] }', {"a": [1]}),
        (b" {}", "damaged"),
        (b"{} ", "damaged"),
        (b"{}\xff", "damaged"),
        (b'{"a":-0}', "damaged"),
        (b'{"a":1.0}', "damaged"),
        (b'{"a":-9007199254740993}', "damaged"),
        (b'{"a":-9007199254740992}', {"a": -(2**53)}),
        (b'{"a":1,"a":1}', "damaged"),
        (b'{"a":[{"b":1,"b":1}]}', "damaged"),
        (b"[" * 200, "cut"),
        (b"[" * 201, "damaged"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "damaged"),
        (b'{"a":"' + b"[" * 1000 + b'"}', {"a": "[" * 1000}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_line_by_hand(line: bytes, expected: object) -> None:
    assert judged(line) == expected


@pytest.mark.parametrize("text", ["", "{", "1.5", "-0", "NaN", '{"a":1,"a":1}', "[1]x", "[" * 100_000])
def test_a_whole_text_is_read_or_refused(text: str) -> None:
    assert read(" [1] ") == [1]
    with pytest.raises(BadJson):
        read(text)
