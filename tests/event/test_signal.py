"""What live signals look like on their way: a line of JSON each, and anything else is passed over."""

import json

from hypothesis import given
from hypothesis import strategies as st

from muse.event.signal import Dropped, Hello, Piece, encode, read

PIECE = Piece(kind="text", call="main.2/7", attempt=1, at=12, text="and so\n")


def test_a_piece_is_the_line_that_the_page_shows() -> None:
    line = encode(PIECE)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "type": "piece", "kind": "text", "call": "main.2/7", "attempt": 1, "at": 12, "text": "and so\n",
    }  # fmt: skip
    assert json.loads(encode(Hello(session="s", epoch=3, pid=9))) == {
        "type": "hello", "v": 1, "session": "s", "epoch": 3, "pid": 9,
    }  # fmt: skip
    assert json.loads(encode(Dropped(pieces=4))) == {"type": "dropped", "pieces": 4}


@given(st.text(), st.integers(0, 2**40))
def test_what_is_written_is_read_again(text: str, at: int) -> None:
    piece = Piece(kind="output", call="main/1", attempt=2, at=at, text=text)
    assert read(encode(piece)) == piece


@given(st.binary())
def test_what_is_no_signal_is_passed_over(line: bytes) -> None:
    assert read(line) is None


def test_a_later_version_may_say_more() -> None:
    assert read(encode(PIECE)[:-2] + b',"tokens":3}') == PIECE
    assert read(b'{"type":"progress","call":"main/1"}') is None


def test_half_a_surrogate_pair_does_not_stop_a_stream() -> None:
    found = read(encode(Piece(kind="text", call="main/1", attempt=1, at=0, text="a\ud83d")))
    assert isinstance(found, Piece)
    assert found.text == "a?"
