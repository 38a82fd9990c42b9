import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.effect.model.sse import Event, EventParser
from tests.effect.model.samples import unhurried


def events_of(data: bytes, cuts: list[int] | None = None) -> list[Event]:
    parser = EventParser()
    found: list[Event] = []
    start = 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]:
        found.extend(parser.feed(data[start:end]))
        start = end
    return found


# Cases worked by hand from WHATWG HTML, 9.2.6 "Interpreting an event stream".
CASES = [
    (b"data: a\n\n", [Event("", b"a")]),
    (b"data:a\ndata\ndata:  b\n\n", [Event("", b"a\n\n b")]),
    (b": comment\n\nevent: x\nid: 7\nretry: 3\ndata: a\n\n", [Event("x", b"a")]),
    (b"event: lost\n\ndata: a\n\n", [Event("", b"a")]),
    (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [Event("", b"a"), Event("", b"b"), Event("", b"c")]),
    (b"\xef\xbb\xbfdata: a\n\n", [Event("", b"a")]),
    (b"data: a\n\ndata: unfinished\n", [Event("", b"a")]),
    (b"data: \xe2\x82\xac\n\n", [Event("", "€".encode())]),
    (b"nonsense\nnonsense: 1\ndata: a\n\n", [Event("", b"a")]),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_events_are_read_as_the_standard_says(data: bytes, expected: list[Event]) -> None:
    assert events_of(data) == expected


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_one_byte_at_a_time_gives_the_same_events(data: bytes, expected: list[Event]) -> None:
    assert events_of(data, list(range(len(data)))) == expected


@unhurried
@given(st.sampled_from(CASES), st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_gives_the_same_events(case: tuple[bytes, list[Event]], cuts: list[int]) -> None:
    assert events_of(case[0], cuts) == case[1]


def test_a_last_event_without_its_blank_line_is_given_at_the_end() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]") == [Event("", b"a")]
    assert parser.finish() == [Event("", b"[DONE]")]


def test_a_long_line_in_small_pieces_is_not_searched_again_and_again() -> None:
    parser = EventParser()
    piece = b"x" * 1000
    parser.feed(b"data: ")
    for _ in range(5000):
        parser.feed(piece)
        assert len(parser._buffer) - parser._searched <= len(piece) + 6
    assert parser.feed(b"\n\n") == [Event("", piece * 5000)]
