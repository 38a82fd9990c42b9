"""JSON that somebody else wrote, read so that two readers cannot differ (docs/format.md §5).

What the grammar allows and readers take differently is a fault here: repeated keys, numbers that are no integers of a
body, deep nesting, white space around the object of a line. This module must not know what the values mean.
"""

import json
import re
from typing import Any, Final, NoReturn

from muse.event.codec import INTEGER_MAX

LEVELS_MAX: Final = 200
"""So many objects and arrays may be open at once in a line."""
_DIGITS_MAX: Final = len(str(-INTEGER_MAX))

_quoted: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_brackets: Final = re.compile(rb"[\[\]{}]")


class BadJson(ValueError):
    """Not what the format has. `is_cut`: no whole object stands at the beginning, as where a file breaks off."""

    def __init__(self, problem: str, *, is_cut: bool = False) -> None:
        super().__init__(problem)
        self.is_cut = is_cut


class _Reader:
    """Reads one text and keeps the first thing in it that the grammar allows and the format does not."""

    def __init__(self) -> None:
        self.problem = ""
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=self._integer, parse_float=self._float,
            parse_constant=_refuse,
        )  # fmt: skip

    def _object(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        if len(found) != len(members):
            self.problem = self.problem or "a key stands twice"
        return found

    def _integer(self, digits: str) -> int:
        if digits == "-0" or len(digits) > _DIGITS_MAX or abs(int(digits)) > INTEGER_MAX:
            self.problem = self.problem or "an integer is not one from -2^53 to 2^53 in shortest form"
            return 0
        return int(digits)

    def _float(self, digits: str) -> float:
        self.problem = self.problem or "a number has a fraction or an exponent"
        return 0.0


def read(text: str) -> Any:
    """The value of a whole text, white space around it allowed. Raises BadJson."""
    reader = _Reader()
    try:
        value = reader.decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadJson(f"no JSON: {error}") from error
    if reader.problem:
        raise BadJson(reader.problem)
    return value


def read_line(data: bytes) -> dict[str, Any]:
    """The object that a line is, given without its newline. Raises BadJson."""
    if _is_deep(data):
        raise BadJson(f"more than {LEVELS_MAX} levels")
    text, is_text = _beginning(data)
    start = len(text) - len(text.lstrip(" \t\r\ufeff"))
    reader = _Reader()
    try:
        value, end = reader.decoder.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise BadJson(f"no JSON: {error}", is_cut=True) from error
    if type(value) is not dict:
        raise BadJson("no JSON object", is_cut=True)
    if start or end != len(text) or not is_text:
        raise BadJson("something stands beside the object of a line")
    if reader.problem:
        raise BadJson(reader.problem)
    return value


def _beginning(data: bytes) -> tuple[str, bool]:
    """The text up to the first byte that is not UTF-8, and whether that is all."""
    try:
        return data.decode(), True
    except UnicodeDecodeError as error:
        return data[: error.start].decode(), False


def _is_deep(data: bytes) -> bool:
    """Whether more than LEVELS_MAX brackets are open at once outside strings; a whole object is not asked for."""
    if data.count(b"{") + data.count(b"[") <= LEVELS_MAX:
        return False
    level = 0
    for bracket in _brackets.findall(_quoted.sub(b"", data)):
        level += 1 if bracket in b"{[" else -1
        if level > LEVELS_MAX:
            return True
    return False


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
