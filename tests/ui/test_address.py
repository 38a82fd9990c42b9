"""Addresses: what a person types, and files whose names look like addresses."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.errors import UsageError
from muse.ui.cli.address import Address, parse, resolve

unhurried = settings(deadline=None)
agents = st.one_of(
    st.just(""), st.lists(st.integers(1, 99), max_size=3).map(lambda parts: ".".join(["main", *map(str, parts)]))
)
seqs = st.integers(0, 2**53)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
tricky = st.text("ab:@/.1main", min_size=1, max_size=16)
ids = st.text("0123456789abcdef-", min_size=1, max_size=12)


def no_file(text: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", Address()),
        ("last", Address()),
        ("4f2k", Address("4f2k")),
        ("4f2k@41", Address("4f2k", "", 41)),
        ("4f2k:main.2.1@41", Address("4f2k", "main.2.1", 41)),
        ("@41", Address("", "", 41)),
        (":main.1", Address("", "main.1")),
        (":main@7", Address("", "main", 7)),
        ("last:main.1@3", Address("", "main.1", 3)),
        ("./odd/x.muse@5", Address("./odd/x.muse", "", 5)),
    ],
)
def test_an_address_is_taken_apart(text: str, address: Address) -> None:
    assert parse(text, no_file) == address


@unhurried
@given(ids, agents, seqs)
def test_what_is_written_is_read_again(session: str, agent: str, seq: int) -> None:
    address = Address(session, agent, seq)
    assert parse(str(address), no_file) == address


@unhurried
@given(st.one_of(names, tricky), agents, seqs)
def test_a_file_stands_whole_whatever_its_name_is(file: str, agent: str, seq: int) -> None:
    address = Address(file, agent, seq)
    found = parse(str(address), lambda text: text == file)
    assert found == (Address() if file == "last" and not agent and not seq else address) or file == "last"


@unhurried
@given(st.text(max_size=20))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert isinstance(parse(text, no_file), Address)


@pytest.mark.parametrize("text", ["a@0", "a@99999999999999999999", "a:lane", "a:main.0", "a@x", "a@", ":", "@"])
def test_what_cannot_be_meant_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, no_file)
    assert caught.value.hint


def test_a_file_is_found_before_it_is_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path / "home"))
    file = tmp_path / "a:main@3.muse@4"
    file.write_bytes(b"x")
    assert resolve(str(file)).path == file
    assert resolve(f"{file}:main@9").address == Address(str(file), "main", 9)


def test_an_unknown_session_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSE_HOME", str(tmp_path))
    for text in ("nothing", "nothing@3", "", os.fspath(tmp_path / "nothing.muse"), "x" * 5_000, "a\0b"):
        with pytest.raises(UsageError) as caught:
            resolve(text)
        assert caught.value.hint
