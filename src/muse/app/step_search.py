"""Searching what steps show: patterns, and a look at stored bytes that tells which events need not be shown for it.

A text is found in what a row and its detail say. To make both for every event of a long log takes minutes; so where
the text has a word that views never write by themselves, only events whose stored bytes, call or blobs hold that word
are looked at more closely. This module must not know where events come from.
"""

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from time import thread_time
from types import CodeType, FunctionType, ModuleType
from typing import Final

import msgspec

from muse.errors import Damaged, UsageError
from muse.event import kinds
from muse.event.content import BlobRef
from muse.event.envelope import Event
from muse.view.diff import DIFF_BYTES_MAX
from muse.view.text import row_text
from muse.view.timeline import Row

PATTERN_CHARACTERS_MAX: Final = 1_000
WORD_LETTERS_MIN: Final = 3
LINE_CHARACTERS_MAX: Final = 16_384
OVERLAP_CHARACTERS: Final = 1_024
"""An expression sees longer lines in parts that overlap: some expressions take the square of a line's length."""
PROBE_LENGTHS: Final = (8, 12, 16, 20, 24, 28, 32, 40, 48)
PROBE_SIGNS_MAX: Final = 20
PROBE_SECONDS_MAX: Final = 0.004
BLOBS_KNOWN_MAX: Final = 100_000

Contents = Callable[[BlobRef], bytes | None]

_runs: Final = re.compile(r"[A-Za-z]+")
_hex_letters: Final = re.compile(r"[a-f]{1,8}")
_alike: Final = ("\u0130".encode(), "\u0131".encode(), "\u017f".encode(), "\u212a".encode())
"""Letters beyond ASCII that are the same as i, s or k where case does not count."""


class Pattern(msgspec.Struct, frozen=True):
    """What is searched for. `word`: in small letters, a part of it that must stand in what an event was stored as
    (bytes, call, blobs) if it is shown; "" where nothing can be said of that."""

    regex: re.Pattern[str]
    word: str = ""

    def is_in(self, shown: Row) -> bool:
        """Whether the row or a line of its detail holds it."""
        return any(map(self._is_in_line, (row_text(shown), *(line.text for line in shown.detail))))

    def _is_in_line(self, line: str) -> bool:
        if self.word or len(line) <= LINE_CHARACTERS_MAX:
            return self.regex.search(line) is not None
        step = LINE_CHARACTERS_MAX - OVERLAP_CHARACTERS
        return any(
            self.regex.search(line, begin, begin + LINE_CHARACTERS_MAX) for begin in range(0, len(line), step)
        )  # fmt: skip

    def may_be_in(self, data: bytes) -> bool:
        """Whether texts stored as these bytes may be shown with the word in them."""
        if self.word.encode() in data.lower() or b"\\u00" in data:
            return True
        return not data.isascii() and any(letter in data for letter in _alike)


def pattern(text: str, *, regex: bool = False) -> Pattern:
    """What to search for: a text, whatever its case, or a regular expression (Python's `re`; in any case unless it has
    a capital letter, as filters have it).

    Raises `UsageError` for an expression that is none, that is in every text, or whose search may never end."""
    if not text or len(text) > PATTERN_CHARACTERS_MAX:
        raise UsageError("nothing to search for" if not text else "too long to be searched for")
    if not regex:
        return Pattern(re.compile(re.escape(text), re.IGNORECASE), _word(text))
    letters = re.sub(r"\\.", "", text)
    try:
        made = re.compile(text, re.IGNORECASE if letters == letters.lower() else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{text!r} is no regular expression: {error}", hint="a text needs no expression") from error
    if made.search(""):
        raise UsageError(f"{text!r} is in every text")
    refuse_endless(text)
    return Pattern(made)


def refuse_endless(text: str) -> None:
    """Where what repeats can be read in several ways the time may double with every character: it is tried with what
    the expression says itself, each sign alone, two by two, and all of them. Raises `UsageError`. Nothing ends a search
    that has begun, and while it goes on a screen takes no key."""
    if not any(sign in text for sign in "*+{"):
        return
    made = re.compile(text, re.IGNORECASE)
    signs = list(dict.fromkeys([*re.sub(r"\\(?=\W)", "", text), "a", "0", " "]))[:PROBE_SIGNS_MAX]
    pairs = ("".join(pair) for pair in itertools.permutations(signs, 2))
    literal = "".join(re.findall(r"\w", text)) or "a"
    for unit in (*signs, *pairs, literal, literal[:-1] or "a"):
        for length in PROBE_LENGTHS:
            begun = thread_time()  # of this thread's own work: the machine may be busy with others
            made.search(f"{(unit * length)[:length]}\x00")
            if thread_time() - begun > PROBE_SECONDS_MAX:
                raise UsageError(f"searching for {text!r} may take for ever", hint="put no repeat into a repeat")


def _word(text: str) -> str:
    """The longest word of a text that no view writes by itself.

    Letters of a shown word come from one place: views put no letter directly beside what they are given, but for
    escapes of characters that cannot be seen, whose last digits may be a to f."""
    found = []
    for run in _runs.findall(text.lower()):
        start = _hex_letters.match(run)
        kept = run[start.end() :] if start else run
        if len(kept) >= WORD_LETTERS_MIN and kept not in _words_of_views():
            found.append(kept)
    return max(found, key=len, default="")


@cache
def _words_of_views() -> str:
    """Every word that views write by themselves, and its plural."""
    words: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("muse.view."):
            for constant in _constants_of(module):
                words.update(_runs.findall(constant.lower()))
    return " ".join(f"{word}s" for word in sorted(words))


def _constants_of(module: ModuleType) -> Iterator[str]:
    for value in vars(module).values():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield from _constants_in(value.__code__, value.__doc__)
        elif isinstance(value, str | dict | tuple | list | frozenset) and value is not module.__doc__:
            yield from _strings(value)


def _constants_in(code: CodeType, said_of_it: str | None = None) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _constants_in(value)
        elif value is not said_of_it:
            yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(tuple(value.items()))
    elif isinstance(value, tuple | list | frozenset):
        for one in value:
            yield from _strings(one)


class Blobs:
    """Which blobs may have the word of a pattern. What one holds never changes, so each is looked at once."""

    def __init__(self, wanted: Pattern, contents: Contents) -> None:
        self.wanted = wanted
        self._contents = contents
        self._known: dict[str, bool] = {}

    def may_be_shown_in(self, event: Event) -> bool:
        """Whether what the event shows of its blobs may have it."""
        body = event.body
        if isinstance(body, kinds.ModelResponded):
            return False  # the raw response is not shown
        if isinstance(body, kinds.ToolFinished) and isinstance(body.text, str) and body.output is not None:
            return self._may_hold(body.output)
        return not isinstance(body, kinds.FilesChanged) or any(map(self._may_hold, _sides(body)))

    def _may_hold(self, ref: BlobRef) -> bool:
        known = self._known.get(ref.blob)
        if known is None:
            try:
                data = self._contents(ref)
            except Damaged:  # which is shown
                return True
            known = data is not None and self.wanted.may_be_in(data)
            if len(self._known) < BLOBS_KNOWN_MAX:
                self._known[ref.blob] = known
        return known


def _sides(body: kinds.FilesChanged) -> Iterable[BlobRef]:
    for change in body.changes:
        for ref in (change.before, change.after):
            if ref is not None and ref.length <= DIFF_BYTES_MAX:
                yield ref
