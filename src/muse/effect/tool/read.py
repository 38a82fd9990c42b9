"""The read tool: lines of a text file, numbered, at most a named amount at once.

A line is what `\\n` ends, so that numbers and text agree with what edit and grep count. Only as much of a file is read
as the asked lines need, and never more than a limit. Class `pure`.
"""

import os
from typing import ClassVar, Final

import anyio.to_thread
import msgspec

from muse.effect.protocol import Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, quote, schema_of
from muse.effect.tool.paths import Location, inside
from muse.effect.tool.pure import PureTool
from muse.effect.tool.replacing import PATH
from muse.effect.tool.suggest import no_such_file
from muse.event.content import ToolSpec

LINES_MAX: Final = 2000
"""The most lines in one answer."""

LINE_CHARS_MAX: Final = 2000
"""How much of one line is shown."""

TEXT_CHARS_MAX: Final = 60_000
"""The most text in one answer; no further line is begun after it."""

SCANNED_BYTES_MAX: Final = 256 << 20
"""How far into a file lines are looked for."""

CHUNK_BYTES: Final = 1 << 20
"""How much of a file is in memory at once."""

_BOM: Final = b"\xef\xbb\xbf"

_PARAMETERS: Final = (
    PATH,
    Parameter(name="offset", kind="integer", minimum=1, description="First line to read, from 1.", aliases=("start",)),
    Parameter(
        name="limit",
        kind="integer",
        minimum=1,
        description=f"How many lines (default and most: {LINES_MAX}).",
    ),
)

_DESCRIPTION = f"""\
Read a text file of the workspace. Each line comes as its number, a tab, and the line. At most {LINES_MAX} lines at \
once; for more, read on with offset."""


class _Page(msgspec.Struct):
    """What a scan of a file collected."""

    lines: list[bytes]
    first: int
    last: int = 0
    more: bool = False
    total: int = 0
    has_crlf: bool = False
    has_bom: bool = False
    scanned_all: bool = True


class ReadTool(PureTool):
    """Shows numbered lines of a file."""

    spec = ToolSpec(name="read", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """The asked lines, with notes about what is not plain to see."""
        return await anyio.to_thread.run_sync(read_lines, args, workspace)


def read_lines(args: Arguments, workspace: Workspace, chunk_bytes: int = CHUNK_BYTES) -> str:
    """The text of the answer. Raises Refusal."""
    location = inside(workspace, args.text("path"))
    first = args.number("offset", 1)
    limit = min(args.number("limit", LINES_MAX), LINES_MAX)
    try:
        with files.opened_file(workspace.root, location) as file:
            page = _scan(file, location, first, limit, chunk_bytes)
    except FileNotFoundError:
        raise Refusal(no_such_file(workspace.root, location)) from None
    except OSError as error:
        raise Refusal(files.explain(location.given, error)) from error
    if not page.lines:
        if page.total == 0 and first == 1:
            return f"({location.relative} is empty)"
        if page.scanned_all:
            raise Refusal(f"{quote(location.given)} has {page.total} lines: give an offset of at most {page.total}")
    return _shown(page, location)


def _scan(file: int, location: Location, first: int, limit: int, chunk_bytes: int) -> _Page:
    """Read chunk by chunk until the asked lines are there. Lines are kept up to what is shown of them."""
    page = _Page([], first)
    start = os.pread(file, files.BINARY_BYTES_LOOKED_AT, 0)
    if files.is_binary(start):
        size = os.fstat(file).st_size
        raise Refusal(
            f"{quote(location.given)} is a binary file of {size} bytes: use shell (file, strings, xxd) to look at it"
        )
    page.has_bom = start.startswith(_BOM)
    collector = _Collector(page, limit)
    scanned = 0
    while chunk := os.read(file, chunk_bytes):
        scanned += len(chunk)
        if not collector.take(chunk):
            page.more = True
            return page
        if scanned >= SCANNED_BYTES_MAX:
            page.scanned_all = os.fstat(file).st_size <= scanned
            break
    collector.end()
    if not page.scanned_all and not page.lines:
        raise Refusal(
            f"{quote(location.given)} is too large: lines are looked for in its first {SCANNED_BYTES_MAX} bytes. "
            "Use shell (tail, sed -n, split) for what comes later"
        )
    return page


class _Collector:
    """Cuts chunks into lines and keeps those that were asked for."""

    def __init__(self, page: _Page, limit: int) -> None:
        self._page = page
        self._limit = limit
        self._chars = 0
        self._number = 1
        self._line = bytearray()
        self._line_bytes = 0

    def take(self, chunk: bytes) -> bool:
        """Take a chunk; False when what comes after it is not needed."""
        page, at = self._page, 0
        page.has_crlf = page.has_crlf or b"\r\n" in chunk
        while at < len(chunk):
            if self._number < page.first:
                at = self._skip(chunk, at)
                continue
            if self._is_full():
                return False
            end = chunk.find(b"\n", at)
            stop = len(chunk) if end < 0 else end
            self._grow(chunk, at, stop)
            if end >= 0:
                self._finish()
            at = stop + 1
        return True

    def _skip(self, chunk: bytes, at: int) -> int:
        end = chunk.find(b"\n", at)
        if end < 0:
            self._line_bytes += len(chunk) - at
            return len(chunk)
        self._number += 1
        self._line_bytes = 0
        self._page.total += 1
        return end + 1

    def end(self) -> None:
        """The file has ended: a last line without its end is a line."""
        if self._line_bytes:
            if self._number >= self._page.first:
                self._finish()
            else:
                self._page.total += 1

    def _is_full(self) -> bool:
        return len(self._page.lines) >= self._limit or self._chars >= TEXT_CHARS_MAX

    def _grow(self, chunk: bytes, at: int, stop: int) -> None:
        room = 4 * LINE_CHARS_MAX + 4 - len(self._line)
        self._line += chunk[at : min(stop, at + max(0, room))]
        self._line_bytes += stop - at

    def _finish(self) -> None:
        page = self._page
        line = bytes(self._line)
        if self._line_bytes == len(self._line):
            line = line.removesuffix(b"\r")
        page.lines.append(line)
        page.last = self._number
        page.total += 1
        self._chars += min(len(line), LINE_CHARS_MAX)
        self._number += 1
        self._line.clear()
        self._line_bytes = 0


def _shown(page: _Page, location: Location) -> str:
    shown: list[str] = []
    is_valid = True
    for number, line in enumerate(page.lines, page.first):
        text, valid = _decoded(line.removeprefix(_BOM) if number == 1 else line)
        is_valid = is_valid and valid
        shown.append(f"{number:6}\t{text}")
    notes = []
    if page.more or not page.scanned_all:
        notes.append(f"lines {page.first} to {page.last}; the file goes on: read on with offset {page.last + 1}")
    if not is_valid:
        notes.append("not valid UTF-8: bytes that are none are shown as \ufffd, edit keeps them as they are")
    if page.has_crlf:
        notes.append("line ends are CRLF: edit sees to them, write must give them")
    if page.has_bom:
        notes.append("begins with a byte order mark")
    return "\n".join(shown + [f"({note})" for note in notes])


def _decoded(line: bytes) -> tuple[str, bool]:
    """The visible part of a line, and whether all of it is valid UTF-8."""
    text = line.decode("utf-8", "replace")
    visible = text[:LINE_CHARS_MAX]
    is_valid = "\ufffd" not in visible or "\ufffd".encode() in line
    if len(visible) == len(text):
        return text, is_valid
    return f"{visible} [... line goes on, only {LINE_CHARS_MAX} characters are shown]", is_valid
