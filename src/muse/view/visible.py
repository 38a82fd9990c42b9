"""Foreign text made safe for a terminal, and measured in its columns.

Whatever comes from models, commands and files may hold escape sequences, bidirectional controls or characters that
cannot be seen. Here they become visible escapes, so that no text can move the cursor, hide a part of itself or change
its reading order. This module must not know where text comes from.
"""

import re
import unicodedata
from typing import Final

ELLIPSIS: Final = "…"
TAB_COLUMNS: Final = 8

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
    return _unseen.sub(_escape, text)


def lines_of(text: str) -> list[str]:
    """The lines of a text, each visible and with tabs as spaces. A carriage return before a newline is part of the end
    of line; a last line without its end counts."""
    found = [visible(line.removesuffix("\r")).expandtabs(TAB_COLUMNS) for line in text.split("\n")]
    return found[:-1] if found[-1] == "" else found


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


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, cut where the width ends (nothing is lost)."""
    if columns(text) <= width:
        return [text]
    found, begin, used = [], 0, 0
    for at, character in enumerate(text):
        size = _columns(character)
        if used + size > width and at > begin:
            found.append(text[begin:at])
            begin, used = at, 0
        used += size
    found.append(text[begin:])
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
