"""The head of a Markdown file between two `---` lines: a small, strict part of YAML, read without a library.

Understood are `key: value` at the margin, values in quotes, lists in brackets or as indented items, and texts after `>`
or `|`. What is not understood is said and left out; nothing is ever evaluated, and nothing here raises.
"""

import re
from typing import Final

import msgspec

LINES_MAX: Final = 500
"""Of a head; what comes after is no head any more."""
NOTICES_MAX: Final = 20

Value = str | list[str]

_key: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(?:[ \t]+(.*)|)$")
_item: Final = re.compile(r"[ \t]*-[ \t]+(.*)$")
_block: Final = re.compile(r"([|>])[+-]?[ \t]*(?:#.*)?$")
_comment: Final = re.compile(r"(?:^|[ \t]+)#.*$")
_escape: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", " ": " "}


class FrontMatter(msgspec.Struct, frozen=True):
    """What a file's head says, its text after that, and what of the head was not understood."""

    fields: dict[str, Value]
    body: str
    notices: tuple[str, ...] = ()


def read_front_matter(text: str) -> FrontMatter:
    """The parts of a file. One that does not begin with `---`, or whose head does not end, is all text."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return FrontMatter({}, text.strip(), ("it has no head between two lines of ---",))
    end = next((at for at, line in enumerate(lines[1:LINES_MAX], 1) if line.rstrip() in ("---", "...")), 0)
    if not end:
        return FrontMatter({}, text.strip(), (f"its head does not end with a line of --- within {LINES_MAX} lines",))
    fields, notices = _fields(lines[1:end])
    return FrontMatter(fields, "\n".join(lines[end + 1 :]).strip(), tuple(notices[:NOTICES_MAX]))


def _fields(lines: list[str]) -> tuple[dict[str, Value], list[str]]:
    fields: dict[str, Value] = {}
    notices: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        found = _key.match(line)
        begin, at = at, at + 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if found is None:
            notices.append(f"line {begin + 2} is not understood")
            continue
        more, at = _indented(lines, at)
        key, given = found[1], (found[2] or "").strip()
        value = _value(given, more)
        if value is None:
            notices.append(f"the value of {key} is not understood")
        elif key in fields:
            notices.append(f"{key} is given twice: the first counts")
        else:
            fields[key] = value
    return fields, notices


def _indented(lines: list[str], at: int) -> tuple[list[str], int]:
    """The lines that belong to a key: indented ones, items of a list, empty ones between."""
    begin = at
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t" or _item.match(lines[at])):
        at += 1
    more = lines[begin:at]
    while more and not more[-1].strip():
        more.pop()
    return more, at


def _value(given: str, more: list[str]) -> Value | None:
    if (block := _block.match(given)) is not None:
        return _text(more, folded=block[1] == ">")
    given = given if given[:1] in ("'", '"') else _comment.sub("", given)
    if not given:
        return _items(more) if more else ""
    if given.startswith("["):
        whole = " ".join([given, *(_comment.sub("", line).strip() for line in more)]).strip()
        return _bracketed(whole)
    if given[0] in "{&*!%@`":
        return None
    whole = " ".join([given, *(line.strip() for line in more)])
    return _scalar(whole)


def _text(lines: list[str], *, folded: bool) -> str:
    """A block: its indentation taken away, and lines joined where it is folded."""
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    cut = min(indents, default=0)
    text = "\n".join(line[cut:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text) if folded else text


def _items(lines: list[str]) -> list[str] | None:
    found: list[str] = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _item.match(line)
        value = _scalar(_comment.sub("", item[1]).strip()) if item is not None else None
        if value is None:
            return None
        found.append(value)
    return found


def _bracketed(text: str) -> list[str] | None:
    if not text.endswith("]"):
        return None
    parts = re.findall(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,"'\[\]{}]*)\s*(,|$)""", text[1:-1])
    if "".join(part + comma for part, comma in parts).replace(" ", "") != text[1:-1].replace(" ", ""):
        return None
    values = [_scalar(part.strip()) for part, _ in parts if part.strip()]
    return None if any(value is None for value in values) else [value for value in values if value is not None]


def _scalar(text: str) -> str | None:
    if text[:1] == '"':
        whole = re.fullmatch(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?', text)
        if whole is None or any(one not in _ESCAPES for one in _escape.findall(whole[1])):
            return None
        return _escape.sub(lambda found: _ESCAPES[found[1]], whole[1])
    if text[:1] == "'":
        single = re.fullmatch(r"'((?:[^']|'')*)'\s*(?:#.*)?", text)
        return None if single is None else single[1].replace("''", "'")
    return text
