"""Words that begin with a slash: they are for muse, never for a model, and where an agent asks something no answer.

Another slash before one of them says that it is meant as it stands: `//help` is the text `/help`. Whatever else begins
with a slash (a path) is a text like any other where an answer is wanted. This module must not know what the words do.
"""

import re
from typing import Final

import msgspec

OURS: Final = ("/help", "/queue", "/back", "/pause", "/continue", "/quit", "/exit")
LEAVES: Final = ("/quit", "/exit")

_word: Final = re.compile(r"(/[a-z]+)( --tree)?")


class Word(msgspec.Struct, frozen=True):
    """Such a word; `tree` where `--tree` stands behind it."""

    name: str
    tree: bool = False


def word_of(text: str) -> Word | None:
    """The word that a line consists of, ours or not; None for any other text."""
    found = _word.fullmatch(text.strip())
    return Word(found[1], bool(found[2])) if found else None


def ours(text: str) -> Word | None:
    """The same where it is one of ours."""
    word = word_of(text)
    return word if word is not None and word.name in OURS else None


def meant(text: str) -> str:
    """What a text says to whom it is for: one of ours behind another slash is that word as it stands."""
    line = text.strip()
    return line[1:] if line.startswith("//") and ours(line[1:]) else text


def is_none(word: Word) -> str:
    """What to say of a word that does nothing where an answer is wanted."""
    return f"{word.name} is no answer here; to say just that: /{word.name}"
