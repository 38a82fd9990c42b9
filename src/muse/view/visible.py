"""Foreign text made safe for a terminal, and measured in its columns.

Whatever comes from models, commands and files may hold escape sequences, bidirectional controls or characters that
cannot be seen. Here they become visible escapes, so that no text can move the cursor, hide a part of itself or change
its reading order. This module must not know where text comes from.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

ELLIPSIS: Final = "…"
TAB_COLUMNS: Final = 8
WRAP_MIN: Final = 20
"""No paragraph is wrapped to less than this."""
HANG: Final = 6
"""How far to the right the second line of a note stands."""

# Controls but tab and newline; format, joining and filler characters; separators; surrogates; tags and the selectors
# of the supplementary plane. (The joiners U+200C and U+200D stay between characters beyond ASCII: scripts and emoji
# need them there.)
_unseen: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
_space: Final = re.compile(r"[ \t\r\n\x0b\x0c\u0085\u2028\u2029]+")


def visible(text: str) -> str:
    """The text with every character that a terminal would act on, or not show, as an escape; newlines and tabs stay."""
    if text.isascii() and text.isprintable():  # as most is, and then there is nothing to look for
        return text
    return _unseen.sub(_escape, text)


def lines_of(text: str) -> list[str]:
    """The lines of a text, each visible and with tabs as spaces. A carriage return before a newline is part of the end
    of line; a last line without its end counts."""
    return list(each_line(text))


def each_line(text: str) -> Iterator[str]:
    """The same, one after another: who wants the first lines of a long text does not wait for the rest."""
    lines = text.split("\n")
    if lines[-1] in ("", "\r"):
        lines.pop()
    for line in lines:
        yield visible(line.removesuffix("\r")).expandtabs(TAB_COLUMNS)


def one_line(text: str) -> str:
    """The text on one line: runs of white space become one space."""
    return visible(_space.sub(" ", text).strip(" "))


def headline(text: str, characters: int = 400) -> str:
    """The beginning of a text on one line, with an ellipsis where it was cut."""
    start = text.lstrip()
    line = one_line(start[: characters + 1])
    return line if len(start) <= characters else f"{line[:characters].rstrip()}{ELLIPSIS}"


def command_line(text: str, characters: int = 400) -> str:
    """A command on one line; its line ends are shown."""
    lines = [line for line in text.strip()[: characters + 1].split("\n") if line.strip()]
    line = " ⏎ ".join(one_line(part) for part in lines)
    return line if len(text.strip()) <= characters else f"{line}{ELLIPSIS}"


def columns(text: str) -> int:
    """How many columns of a terminal the (visible) text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def fit(text: str, width: int) -> str:
    """The text in at most `width` columns, ending in an ellipsis where it was cut."""
    if columns(text) <= width:
        return text
    if width <= 0:
        return ""
    room, end = width - 1, 0
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        end += 1
    return f"{text[:end].rstrip()}{ELLIPSIS}"


def middle(text: str, width: int) -> str:
    """The text in at most `width` columns, its middle left out: of a path both ends tell most."""
    if columns(text) <= width:
        return text
    head = _taken(text, (width - 1) // 2)
    tail = _taken(text[::-1], width - 1 - columns(head))[::-1]
    return f"{head}{ELLIPSIS}{tail}"


def _taken(text: str, width: int) -> str:
    end = 0
    for character in text:
        width -= _columns(character)
        if width < 0:
            break
        end += 1
    return text[:end]


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, blanks at their ends not counted: broken between words (beside a
    wide character anywhere), within a word only where it fits on no line. Nothing is lost."""
    if columns(text) <= width:
        return [text]
    found, begin, used, split, words = [], 0, 0, 0, False
    for at, character in enumerate(text):
        size = _columns(character)
        if character != " ":
            if words and (text[at - 1] == " " or (size and 2 in (size, _columns(text[at - 1])))):
                split = at
            if used + size > width and at > begin:
                cut = split if split > begin else at
                found.append(text[begin:cut])
                begin, used = cut, columns(text[cut:at])
            words = True
        used += size
    found.append(text[begin:])
    return found


def paragraph(text: str, width: int | None, hang: int = 0) -> list[str]:
    """The text wrapped to `width` columns (None: whole), each line but the first `hang` columns to the right."""
    if width is None or columns(text) <= width:
        return [text]
    first = wrap(text, width)[0]
    room = max(width - hang, WRAP_MIN)
    return [first.rstrip(), *(f"{' ' * hang}{part.rstrip()}" for part in wrap(text[len(first) :], room))]


def command_lines(lead: str, commands: Sequence[str], width: int | None) -> list[str]:
    """Commands that a person may copy, after a `lead`: on its line where all of it fits (and with a `width` of None),
    else each on a line of its own below it, moved to the left where it only fits so. One that is wider than that is
    broken between words."""
    together = "   ".join(commands)
    line = f"{lead} {together}" if lead.strip() else f"{lead}{together}"
    if width is None or columns(line) <= width:
        return [line]
    found = [*paragraph(lead, width, HANG)] if lead.strip() else []
    indent = len(lead) - len(lead.lstrip(" ")) + (2 if found else 0)
    for command in commands:
        room = max(min(indent, width - columns(command)), 0)
        found += [f"{' ' * room}{part.rstrip()}" for part in wrap(command, width - room)]
    return found


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200c\u200d" or "\ufe00" <= character <= "\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
