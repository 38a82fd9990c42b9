"""A secret is found in whatever other programs make of it; each form is made by somebody else's code."""

import base64
import html
import json
import shlex
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse.event.leaves import leaves
from muse.event.needles import Needles, forms


def bash(command: str, argument: str) -> str:
    """What bash prints."""
    done = subprocess.run(
        ["bash", "-c", command, "bash", argument], env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True
    )
    return done.stdout.decode()


SECRET = "p/ä\"s\\s&w+o=r'd"

WRITERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "json": json.dumps,
    "json in json": lambda text: json.dumps({"line": json.dumps({"a": text})}),
    "json in json in json, not ascii": lambda text: json.dumps([json.dumps([json.dumps([text], ensure_ascii=False)])]),
    "html": html.escape,
    "html, quotes by number": lambda text: escape(text, {"'": "&#39;", '"': "&#34;"}),
    "xml": lambda text: escape(text, {"'": "&apos;", '"': "&quot;"}),
    "url": urllib.parse.quote,
    "form": lambda text: urllib.parse.urlencode({"a": text}),
    "shell": shlex.quote,
    "shell, backslashes": lambda text: bash('printf %q "$1"', text),
    "hex": lambda text: text.encode().hex(),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
def test_a_secret_is_found_however_it_was_written(writer: Callable[[str], str]) -> None:
    needles = Needles([SECRET.encode()])
    assert needles.is_in(f"before {writer(SECRET)} after".encode())
    assert not needles.is_in(f"before {writer(SECRET[:-1])} after".encode())


@given(before=st.binary(max_size=7), after=st.binary(max_size=7), secret=st.binary(min_size=8, max_size=40))
def test_a_secret_is_found_wherever_it_stands_in_base64(before: bytes, after: bytes, secret: bytes) -> None:
    needles = Needles([secret])
    data = before + secret + after
    assert needles.is_in(base64.b64encode(data))
    assert needles.is_in(base64.urlsafe_b64encode(data))


def test_what_the_tools_of_the_system_write_is_found() -> None:
    needles = Needles([b"correct horse battery"])
    for command in (["base64"], ["xxd", "-p"], ["od", "-An", "-tx1", "-w1000"]):
        try:
            done = subprocess.run(command, input=b"x correct horse battery y", capture_output=True, check=True)
        except FileNotFoundError:
            continue
        assert needles.is_in(done.stdout.replace(b" ", b"")), command


def test_the_pieces_that_hold_it_are_named_and_no_others() -> None:
    needles = Needles([b"two\nlines", b"7777"])
    body = {"text": "one\nthe two\nlines end\nlast", "other": "fine", "list": ["x", "two\nlines"], "n": 177771}
    assert needles.places(leaves(body)) == {
        (("text",), 1),
        (("text",), 2),
        (("list", 1), 0),
        (("list", 1), 1),
        (("n",), 0),
    }


def test_a_secret_across_the_end_of_a_long_piece_takes_both() -> None:
    text = "x" * 4090 + "correct horse" + "y" * 5000
    found = Needles([b"correct horse"]).places(leaves({"text": text}))
    assert found == {(("text",), 0), (("text",), 1)}


@given(parts=st.lists(st.binary(max_size=5), max_size=20))
def test_in_parts_is_in_the_whole(parts: list[bytes]) -> None:
    needles = Needles([b"aba"], exact=[b"zz"])
    assert needles.is_in_parts(parts) == needles.is_in(b"".join(parts))


def test_no_form_is_so_short_that_it_stands_everywhere() -> None:
    assert min(len(form) for form in forms(b"abcd")) >= 4


def test_a_part_of_a_text_at_the_end_of_a_line_costs_what_the_line_holds_and_not_the_text() -> None:
    text = b"".join(b"%d\n" % n for n in range(40_000))
    needles, begun = Needles([text]), time.process_time()
    assert needles.is_cut_at_end(b"$ seq 40000\n0\n1\n2\n3")
    assert needles.is_cut_at_start(b"39998\n39999\nexit code 0")
    assert not needles.is_cut_at_end(b"and nothing of it")
    assert not needles.is_cut_at_start(b"0\n1\n2\n")
    assert time.process_time() - begun < 1
