"""What is searched for, and where it stands in a text.

A query is plain text: each word has to stand in the event, somewhere in any of its texts; words in double quotes are
one phrase. Nothing else is syntax. Or it is a regular expression, which has to match within a line. `fold` makes texts
comparable in any case; it keeps every character's place. This module must not know events or files.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

import msgspec

from muse.errors import UsageError

GRAM: Final = 3
"""The index knows which events hold three characters in a row."""
GRAMS_MAX: Final = 64
"""So many of a query are looked up; the text itself decides."""
SPANS_MAX: Final = 20
"""So many places of a word are looked at."""
NEAR_CHARS: Final = 120
"""Words that stand so near are shown together."""

_ALIKE: Final = (
    "\u0131i", "\u017fs", "\u00b5\u03bc", "\u03c2\u03c3", "\u03d0\u03b2", "\u03d1\u03b8", "\u03d5\u03c6", 
    "\u03d6\u03c0",
    "\u03f0\u03ba", "\u03f1\u03c1", "\u03f5\u03b5", "\u0345\u03b9", "\u1fbe\u03b9", "\u1fd3\u0390", "\u1fe3\u03b0",
    "\u1e9b\u1e61", "\u1c80\u0432", "\u1c81\u0434", "\u1c82\u043e", "\u1c83\u0441", "\u1c84\u0442", "\u1c85\u0442",
    "\u1c86\u044a", "\u1c87\u0463", "\u1c88\ua64b", "\ufb05\ufb06",
)  # fmt: skip
"""Small letters that count as another one."""


def fold(text: str) -> str:
    """The text in small letters, character by character: the result is as long, and equal for what `re.IGNORECASE`
    takes for equal."""
    if text.isascii():
        return text.lower()
    folded = text.replace("İ", "i").lower()
    for letter, like in _ALIKE:
        if letter in folded:
            folded = folded.replace(letter, like)
    return folded


class Query(msgspec.Struct, frozen=True):
    """Words that all have to stand in an event, or else patterns of which one has to match. `exact`: as written, not in
    any case. `grams` are the alternatives that the index is asked for: of one of them all three-character pieces have
    to be there; none: anything may match."""

    words: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    exact: bool = False

    @property
    def grams(self) -> list[list[str]]:
        """See above."""
        if self.words:
            return [some([gram for word in self.words for gram in grams_of(fold(word))])]
        needed = [
            some([gram for part in _needed(pattern) for gram in grams_of(fold(part))]) for pattern in self.patterns
        ]
        return needed if all(needed) else [[]]

    @property
    def short(self) -> str:
        """Where all words are shorter than what the index knows: one of them."""
        return fold(max(self.words, key=len)) if self.words and not self.grams[0] else ""

    def spans(self, texts: Sequence[str]) -> tuple[int, list[tuple[int, int]]] | None:
        """Which of the texts to show and where matches stand in it, first the one to show; None when the event is not
        meant."""
        if self.patterns:
            return self._match(texts)
        compared = texts if self.exact else [fold(text) for text in texts]
        words = self.words if self.exact else tuple(map(fold, self.words))
        held = [[word in text for word in words] for text in compared]
        if not all(any(holds[at] for holds in held) for at in range(len(words))):
            return None
        best = max(range(len(held)), key=lambda at: (sum(held[at]), -at))
        return best, _places(compared[best], words)

    def _match(self, texts: Sequence[str]) -> tuple[int, list[tuple[int, int]]] | None:
        for at, text in enumerate(texts):
            found: list[tuple[int, int]] = []
            begin = 0
            for line in text.split("\n"):
                whole = line.removesuffix("\r")
                for pattern in self.patterns:
                    found += [(begin + one.start(), begin + one.end()) for one in _some_of(pattern.finditer(whole))]
                if found:
                    return at, sorted(set(found))[:SPANS_MAX]
                begin += len(line) + 1
        return None


def compiled(pattern: str, *, exact: bool = False) -> re.Pattern[str]:
    """A regular expression: in any case, unless it has a capital letter or `exact` asks for it as written. Raises
    UsageError for what is none."""
    letters = re.sub(r"\\.", "", pattern)
    try:
        return re.compile(pattern, 0 if exact or letters != letters.lower() else re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{pattern!r} is no regular expression: {error}", hint="without -E a text is searched for as it stands"
        ) from error


def words_of(text: str, *, whole: bool = False) -> tuple[str, ...]:
    """The words and quoted phrases of a query; with `whole` the text as it stands is one phrase. A quote that does not
    begin and end a word is a character like others. Raises UsageError for a query without words."""
    found = [text] if whole else [phrase or word for phrase, word in _words.findall(text)]
    if not text.strip():
        raise UsageError("the text to search for is empty", hint='muse search "no such file"')
    return tuple(dict.fromkeys(found))


_words: Final = re.compile(r'(?<!\S)"([^"]*[^"\s][^"]*)"(?!\S)|(\S+)')


def grams_of(text: str) -> list[str]:
    """The three-character pieces of a text."""
    return [text[at : at + GRAM] for at in range(len(text) - GRAM + 1)]


def some(grams: Iterable[str]) -> list[str]:
    """Each once, and of many some from everywhere."""
    once = list(dict.fromkeys(grams))
    return once[:: -(-len(once) // GRAMS_MAX)] if once else []


def _places(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where words stand, each span once and those that overlap joined; first the one behind which most of the words
    come soon, then the others in order."""
    found: list[tuple[int, int, int]] = []
    for number, word in enumerate(words):
        at = text.find(word)
        for _ in range(SPANS_MAX):
            if at < 0:
                break
            found.append((at, at + len(word), number))
            at = text.find(word, at + len(word))
    found.sort()
    joined: list[tuple[int, int]] = []
    for begin, end, _ in found:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))

    def soon(span: tuple[int, int]) -> int:
        return len({number for begin, _, number in found if span[0] <= begin < span[0] + NEAR_CHARS})

    best = max(joined, key=lambda span: (soon(span), -span[0]))
    return [best, *(span for span in joined if span != best)]


def _some_of(found: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    for _, match in zip(range(SPANS_MAX), found, strict=False):
        yield match


def _needed(pattern: re.Pattern[str]) -> list[str]:
    """Texts that stand in whatever the expression matches; none where that cannot be told."""
    runs: list[str] = [""]
    _gather(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE), runs)
    return [run for run in runs if len(run) >= GRAM]


def _gather(parts: Any, runs: list[str]) -> None:
    """Add the literals of a sequence to the last run; whatever is not literal begins a new one."""
    for code, value in parts:
        if code is _constants.LITERAL:
            runs[-1] += chr(value)
        elif code is _constants.SUBPATTERN:
            _gather(value[-1], runs)
        elif code in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and value[0] >= 1:
            runs.append("")
            _gather(value[2], runs)
            runs.append("")
        elif code is not _constants.AT:
            runs.append("")
