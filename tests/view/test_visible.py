"""Foreign text made safe: what a terminal would act on becomes visible, and nothing is lost by wrapping."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from muse.view.visible import (
    columns,
    command_line,
    command_lines,
    fit,
    headline,
    lines_of,
    middle,
    one_line,
    paragraph,
    visible,
    wrap,
)

anything = st.text(st.characters(codec=None), max_size=40)
tricky = st.text("a\x1b[31m\r\n\t\x00\u202e\u200b\u2066\u200d\U0001f469é漢\ud800\x9b", max_size=30)
unhurried = settings(deadline=None)


def test_an_escape_sequence_is_shown_and_not_sent() -> None:
    assert visible("\x1b[2J\x07") == "\\x1b[2J\\x07"


def test_bidirectional_controls_are_shown() -> None:
    assert visible("a\u202egpj.exe\u202c") == "a\\u202egpj.exe\\u202c"


def test_characters_that_cannot_be_seen_are_shown() -> None:
    assert visible("r\u200bm \U000e0041 \ufeff") == "r\\u200bm \\U000e0041 \\ufeff"


def test_a_joiner_between_ascii_letters_is_shown_and_inside_an_emoji_is_kept() -> None:
    assert visible("r\u200dm") == "r\\u200dm"
    family = "\U0001f469\u200d\U0001f467"
    assert visible(family) == family


@unhurried
@given(st.one_of(anything, tricky))
def test_no_control_and_no_direction_gets_through(text: str) -> None:
    for character in visible(text):
        assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in {
            "LRE",
            "RLE",
            "PDF",
            "LRO",
            "RLO",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        }


@unhurried
@given(st.one_of(anything, tricky))
def test_one_line_is_one_line(text: str) -> None:
    for line in (one_line(text), headline(text, 10), command_line(text)):
        assert not set("\n\r\t\x0b\x0c\x1c\x85\u2028") & set(line)


@unhurried
@given(
    st.one_of(anything, tricky).map(visible).map(lambda text: text.replace("\n", "").replace("\t", "")),
    st.integers(2, 30),
)
def test_wrapping_loses_nothing_and_keeps_the_width(text: str, width: int) -> None:
    parts = wrap(text, width)
    assert "".join(parts) == text
    assert all(columns(part.rstrip(" ")) <= width for part in parts)


def test_text_is_wrapped_between_words() -> None:
    assert wrap("the quick brown fox", 9) == ["the quick ", "brown fox"]
    assert wrap("the quick brown fox", 10) == ["the quick ", "brown fox"]
    assert wrap("a 0123456789abcdef", 8) == ["a ", "01234567", "89abcdef"]
    assert wrap("    indented line", 13) == ["    indented ", "line"]
    assert paragraph("ok  the quick brown fox jumps", 24, 4) == ["ok  the quick brown fox", "    jumps"]
    assert paragraph("the quick brown fox", None, 4) == ["the quick brown fox"]


def test_wide_characters_are_wrapped_by_their_columns_and_break_anywhere() -> None:
    assert wrap("漢字漢字漢", 4) == ["漢字", "漢字", "漢"]
    assert wrap("漢字漢字漢", 5) == ["漢字", "漢字", "漢"]
    assert wrap("ab 漢字漢字", 6) == ["ab 漢", "字漢字"]


def test_the_middle_of_a_path_gives_way() -> None:
    assert middle("/home/ada/project", 17) == "/home/ada/project"
    assert middle("/home/ada/some/deep/project", 17) == "/home/ad…/project"
    assert columns(middle("漢字" * 10, 7)) <= 7


@unhurried
@given(st.one_of(anything, tricky).map(one_line), st.integers(1, 30))
def test_fitting_keeps_the_width(text: str, width: int) -> None:
    assert columns(fit(text, width)) <= width


def test_wide_characters_take_two_columns() -> None:
    assert columns("漢字ab") == 6
    assert fit("漢字ab", 5) == "漢字…"
    assert fit("漢字ab", 4) == "漢…"


def test_lines_are_cut_at_newlines_only() -> None:
    assert lines_of("a\r\nb\x0cc\n") == ["a", "b\\x0cc"]
    assert lines_of("") == []
    assert lines_of("\n") == [""]
    assert lines_of("a\tb") == ["a       b"]


def test_a_command_of_several_lines_shows_where_they_end() -> None:
    assert command_line("cd src\n  make  test\n") == "cd src ⏎ make test"


def test_a_long_headline_says_that_it_was_cut() -> None:
    assert headline("word " * 200, 9) == "word word…"


STEER, CANCEL = 'muse steer 4f2k9a31:main.2 "…"', "muse cancel 4f2k9a31:main.2"


def test_commands_to_copy_stand_on_one_line_where_they_fit_and_else_each_on_its_own() -> None:
    assert command_lines("  do:", [STEER, CANCEL], None) == [f"  do: {STEER}   {CANCEL}"]
    assert command_lines("  do:", [STEER, CANCEL], 66) == [f"  do: {STEER}   {CANCEL}"]
    assert command_lines("  do:", [STEER, CANCEL], 65) == ["  do:", f"    {STEER}", f"    {CANCEL}"]
    assert command_lines("  ", [STEER, CANCEL], 40) == [f"  {STEER}", f"  {CANCEL}"]


def test_a_command_gives_up_its_indent_before_it_is_broken_and_is_never_broken_inside_a_word() -> None:
    assert command_lines("  do:", [STEER], 31) == ["  do:", f" {STEER}"]
    assert command_lines("  do:", [STEER], 30) == ["  do:", STEER]
    assert command_lines("  do:", [STEER], 29) == ["  do:", "muse steer 4f2k9a31:main.2", '"…"']
