"""Canonical bodies and headers: what is written, and what is refused. Most cases are in docs/vectors (test_vectors)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.errors import InvalidEvent
from muse.event import codec
from tests.event import independent, strategies


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    zeta: int
    alpha: str = ""
    parts: tuple[str, ...] = ()


def test_a_struct_is_written_with_sorted_keys_and_without_defaults() -> None:
    assert codec.encode(Point(zeta=1, alpha="é")) == '{"alpha":"é","zeta":1}'.encode()
    assert codec.encode(Point(zeta=-3)) == b'{"zeta":-3}'


def test_a_tuple_is_an_array() -> None:
    assert codec.encode(Point(zeta=1, parts=("b", "a"))) == b'{"parts":["b","a"],"zeta":1}'


def test_strings_are_escaped_as_rfc_8785_says() -> None:
    # The string of RFC 8785 section 3.2.3 (its "string" member), in its own canonical spelling.
    text = '€$\u000f\nA\'B"\\\\"/'
    assert codec.encode({"string": text}) == '{"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'.encode()


@strategies.unhurried
@given(strategies.bodies())
def test_a_body_that_is_written_is_read_as_it_was(body: dict[str, Any]) -> None:
    data = codec.encode(body)
    assert codec.parse(data) == body
    assert data == independent.write(body).encode()
    assert json.loads(data) == body


@strategies.unhurried
@given(strategies.bodies(), st.data())
def test_a_changed_byte_never_reads_as_the_same_body(body: dict[str, Any], data: st.DataObject) -> None:
    canonical = codec.encode(body)
    at = data.draw(st.integers(0, len(canonical) - 1))
    changed = bytearray(canonical)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        read = codec.parse(bytes(changed))
    except InvalidEvent:
        return
    assert independent.body_of(bytes(changed)) == read
    assert codec.encode(read) == changed != canonical


@strategies.unhurried
@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_for_both_implementations_or_for_none(noise: bytes) -> None:
    for data in (noise, b'{"a":' + noise + b"}", b'{"a":"' + noise + b'"}'):
        try:
            expected = independent.body_of(data)
        except independent.Refused:
            with pytest.raises(InvalidEvent):
                codec.parse(data)
        else:
            assert codec.parse(data) == expected


@strategies.unhurried
@given(strategies.loose_json())
def test_any_json_text_is_a_body_for_both_implementations_or_for_none(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        expected = independent.body_of(data)
    except independent.Refused:
        with pytest.raises(InvalidEvent):
            codec.parse(data)
    else:
        assert codec.parse(data) == expected


@pytest.mark.parametrize(
    "body",
    [
        {"a": 1.0},
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": 2**53 + 1},
        {"a": [-(2**53) - 1]},
        {"a": 2**70},
        {"a": "\ud800"},
        {"a": ["\udfff"]},
        {"a": b"bytes"},
        {"a": object()},
        {"A": 1},
        {"": 1},
        {"a\n": 1},
        {"ключ": 1},
        {"a": {"b-c": 1}},
        {1: 2},
        {"blob": "0" * 64, "length": 1},
        {"a": {"blob": "0" * 64}},
        {"a": {"blob": "0" * 64, "length": 1, "x": 1}},
        [1],
        "text",
        None,
    ],
)
def test_what_no_body_may_hold_is_refused_by_the_writer(body: Any) -> None:
    with pytest.raises(InvalidEvent):
        codec.encode(body)


def test_a_struct_is_checked_like_any_other_body() -> None:
    with pytest.raises(InvalidEvent):
        codec.encode(Point(zeta=2**53 + 1))
    with pytest.raises(InvalidEvent):
        codec.encode(Point(zeta=1, alpha="\udc80"))


def test_a_body_that_holds_itself_is_refused() -> None:
    body: dict[str, Any] = {}
    body["a"] = body
    with pytest.raises(InvalidEvent):
        codec.encode(body)


def test_sixty_four_levels_are_written_and_one_more_is_not() -> None:
    def nested(levels: int) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for _ in range(levels - 1):
            body = {"a": body}
        return body

    assert codec.parse(codec.encode(nested(64))) == nested(64)
    with pytest.raises(InvalidEvent):
        codec.encode(nested(65))


def test_blob_references_are_found_in_document_order() -> None:
    one, two = codec.BlobRef("a" * 64, 1), codec.BlobRef("b" * 64, 2)
    body = {"z": {"blob": "a" * 64, "length": 1}, "a": [{"x": {"blob": "b" * 64, "length": 2}}, "blob"], "k": 1}
    assert codec.blob_refs(body) == [two, one]
    assert codec.blob_refs({"a": 1}) == []


def test_a_blob_reference_is_written_as_the_format_says() -> None:
    assert codec.encode({"a": codec.BlobRef("0" * 64, 5)}) == b'{"a":{"blob":"' + b"0" * 64 + b'","length":5}}'


HEADER = {
    "seq": 3,
    "id": "0" * 31 + "a",
    "time": "2026-01-02T03:04:05.000006Z",
    "type": "tool.started",
    "v": 1,
    "agent": "main.2",
    "cause": 2,
    "epoch": 0,
}


def test_a_header_has_eight_sorted_keys_and_reads_back() -> None:
    data = codec.encode_header(**HEADER)  # type: ignore[arg-type]
    assert data == (
        b'{"agent":"main.2","cause":2,"epoch":0,"id":"0000000000000000000000000000000a","seq":3,'
        b'"time":"2026-01-02T03:04:05.000006Z","type":"tool.started","v":1}'
    )
    assert codec.parse_header(data) == codec.Header(**HEADER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"seq": 0}, {"seq": True}, {"seq": 1.0}, {"cause": 3}, {"cause": None}, {"id": 5}, {"id": "A" * 32},
     {"agent": "main\n"}, {"type": "Tool.started"}, {"time": "2026-02-30T00:00:00.000000Z"}, {"v": 2**53 + 1}],
)  # fmt: skip
def test_a_header_that_is_out_of_form_is_refused_by_the_writer(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        codec.encode_header(**(HEADER | change))


@strategies.unhurried
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_never_reads_as_the_same_header(at: int, flip: int) -> None:
    canonical = codec.encode_header(**HEADER)  # type: ignore[arg-type]
    changed = bytearray(canonical)
    changed[at % len(canonical)] ^= flip
    try:
        expected = independent.header_of(bytes(changed))
    except independent.Refused:
        with pytest.raises(InvalidEvent):
            codec.parse_header(bytes(changed))
    else:
        read = codec.parse_header(bytes(changed))
        assert msgspec.to_builtins(read) == expected
        assert read != codec.parse_header(canonical)
