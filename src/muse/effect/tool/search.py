"""The fallback of `grep` where there is no ripgrep: a program that searches and writes the same lines of JSON.

Run as `python -I -S -B search.py <JSON of the request>` in the folder to search, so that a pattern that takes for ever
can be killed and no memory of the host is used. Regular expressions are Python's. Standard library only.
"""

import base64
import codecs
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any

if __name__ == "__main__":
    # The package by its real name without running any `__init__` above it: those load what this must not need.
    _here = os.path.dirname(os.path.abspath(__file__))
    for _name, _up in (("muse.effect.tool", 0), ("muse.effect", 1), ("muse", 2)):
        _package = type(sys)(_name)
        _package.__path__ = [os.path.abspath(os.path.join(_here, *[".."] * _up))]
        sys.modules[_name] = _package

from muse.effect.tool.patterns import Rule
from muse.effect.tool.walk import walk

FILE_BYTES_MAX = 64 << 20
"""Larger files are not searched, and that is said."""

_NOT_UTF8 = re.compile("[\udc80-\udcff]")

FAILED = 2
"""Exit code, as ripgrep's: something could not be searched, or the pattern is wrong."""


def main(request: dict[str, Any]) -> int:
    """Search as asked (pattern, glob, context, ignore_case, count_max, path) and write events; the exit code."""
    try:
        regex = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        return _fail(f"regex parse error: {error}")
    failures: list[OSError] = []
    try:
        paths = [request["path"]] if request["path"] else _files(request["glob"], failures)
        for path in paths:
            try:
                _search(path, regex, request["context"], request["count_max"])
            except OSError as error:
                failures.append(error)
    except ValueError as error:
        return _fail(f"error parsing glob '{request['glob']}': {error}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    return FAILED if failures else 0


def _fail(message: str) -> int:
    sys.stderr.write(message.encode("ascii", "backslashreplace").decode() + "\n")
    return FAILED


def _files(glob: str, failures: list[OSError]) -> Iterator[str]:
    rule = Rule(glob) if glob else None

    def choose(path: str, is_folder: bool) -> bool | None:
        if rule is None:
            return None
        if rule.matches(path, is_folder):
            return not rule.negated
        return None if rule.negated or is_folder else False

    for entry in walk(os.getcwd(), choose, failures.append):
        if not entry.is_folder and not entry.is_link:
            yield entry.path


def _search(path: str, regex: re.Pattern[str], context: int, count_max: int) -> None:
    data = _content(path)
    if data is None:
        return
    matched: list[int] = []
    lines = data.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines):
        if "\0" in line:
            break
        if _is_match(regex, line.removesuffix("\r")):
            matched.append(number)
            if len(matched) == count_max:
                break
    if not matched:
        return
    _emit("begin", path)
    for number, is_match in _with_context(matched, len(lines), context):
        end = "" if number == len(lines) - 1 and not data.endswith("\n") else "\n"
        _emit("match" if is_match else "context", path, lines=_text(lines[number] + end), line_number=number + 1)
    binary = data.find("\0")
    _emit("end", path, binary_offset=binary if binary >= 0 else None)


def _is_match(regex: re.Pattern[str], line: str) -> bool:
    """Whether the line has a match, which like ripgrep's never takes in a byte that is no UTF-8."""
    if line.isprintable() or not _NOT_UTF8.search(line):
        return regex.search(line) is not None
    return any(_NOT_UTF8.search(found[0]) is None for found in regex.finditer(line))


def _content(path: str) -> str | None:
    """The text of a file; None for what is no regular file. A file in UTF-16 is recognised by its mark."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > FILE_BYTES_MAX:
            raise OSError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        data = file.read(FILE_BYTES_MAX)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _with_context(matched: list[int], count: int, context: int) -> Iterator[tuple[int, bool]]:
    hits, done = set(matched), -1
    for hit in matched:
        for number in range(max(done + 1, hit - context), min(count, hit + context + 1)):
            yield number, number in hits
            done = number


def _text(text: str) -> dict[str, str]:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"bytes": base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()}
    return {"text": text}


def _emit(kind: str, path: str, **data: object) -> None:
    event = {"type": kind, "data": {"path": _text("./" + path), **data}}
    sys.stdout.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
