import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event.jsontext import elements, members, quote, sendable_arguments, sendable_object, strict_object
from muse.testing.validate import Fault, parsed
from tests.effect.model.samples import any_text, json_values, unhurried


@unhurried
@given(any_text)
def test_any_text_becomes_a_string_that_another_parser_reads(text: str) -> None:
    assert isinstance(msgspec.json.decode(quote(text).encode()), str)


@unhurried
@given(st.text().filter(lambda text: "\x00" not in text))
def test_text_without_surrogates_and_nuls_is_quoted_exactly(text: str) -> None:
    assert msgspec.json.decode(quote(text).encode()) == text


def test_surrogate_halves_are_joined_and_lone_ones_replaced() -> None:
    assert quote("\ud83d\ude00") == '"\U0001f600"'
    assert quote("a\ud83d") == '"a\ufffd"'
    assert quote("a\x00b") == '"a\u2400b"'


@unhurried
@given(any_text)
def test_arguments_are_always_an_object_to_a_strict_parser(text: str) -> None:
    sent = sendable_arguments(text)
    assert isinstance(msgspec.json.decode(sent.encode()), dict)
    assert isinstance(parsed(sent.encode()), dict)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1.50, "b" : [1e5, -0.0]}',
        ' {"\\u00e9":"\\ud83d\\ude00 \\\\ud800 \\/"}\n',
        '{"n": 12345678901234567890, "z": null}',
        '{"nul": "\\u0000"}',
        "{}",
    ],
)
def test_arguments_that_a_strict_parser_takes_stay_as_they_are(text: str) -> None:
    assert sendable_arguments(text) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1', "[1]", '"a"', "nothing", '{"a":1,"a":2}', '{"a":NaN}', '{"a":1e999}', '{"a":"\t"}', '{"a":01}',
        "{'a':1}", '{"a":1}{', "[" * 100_000, '{"a":' * 101 + "1" + "}" * 101, '{"a":' + "9" * 301 + "}", "\ufeff{}",
    ],
)  # fmt: skip
def test_arguments_that_are_no_object_are_wrapped_as_text(text: str) -> None:
    assert json.loads(sendable_arguments(text)) == {"invalid_arguments": text}


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert sendable_arguments(text) == "{}"


def test_a_lone_surrogate_inside_arguments_is_replaced_and_nothing_else() -> None:
    assert sendable_object('{"a": "x\\ud83d y", "b":1.0}') == '{"a": "x\\ufffd y", "b":1.0}'
    assert sendable_object('{"a": "\\uDE00\\uD83D"}') == '{"a": "\\ufffd\\ufffd"}'
    assert sendable_object('{"a": "\\\\ud83d"}') == '{"a": "\\\\ud83d"}'
    assert sendable_object('{"a": "\ud83d"}') == '{"a": "\ufffd"}'


@unhurried
@given(any_text | json_values.map(json.dumps))
def test_what_is_judged_strict_is_taken_by_two_other_parsers(text: str) -> None:
    value = strict_object(text)
    if value is not None:
        assert msgspec.json.decode(text.encode()) == value
        assert parsed(text.encode()) == value


@unhurried
@given(st.dictionaries(any_text, json_values, max_size=4), st.sampled_from([None, 1]))
def test_members_are_the_exact_text_of_each_value(value: dict[str, object], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = members(text)
    assert {key: json.loads(part) for key, part in found.items()} == value
    assert all(part in text for part in found.values())


@unhurried
@given(st.lists(json_values, max_size=4), st.sampled_from([None, 1]))
def test_elements_are_the_exact_text_of_each_value(value: list[object], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = elements(text)
    assert [json.loads(part) for part in found] == value
    assert all(part in text for part in found)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", '{"a":1} x', '{"a":1 "b":2}'])
def test_members_of_what_is_no_object_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        members(text)


@pytest.mark.parametrize("body", [b"\xff", b"[]", b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":"\\ud83d"}', b"{"])
def test_the_validator_itself_refuses_what_strict_servers_refuse(body: bytes) -> None:
    with pytest.raises(Fault):
        parsed(body)
