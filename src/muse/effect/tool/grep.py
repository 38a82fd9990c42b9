"""The grep tool: lines that match a regular expression, by ripgrep where there is one, else by `search.py`.

Both are a process of its own with the same lines of JSON, so that what a model reads is the same, a slow pattern can
be ended, and memory stays bounded. Class `pure`.
"""

import base64
import binascii
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import ClassVar, Final, Literal

import anyio
import anyio.abc
import msgspec

from muse.effect.protocol import Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, quote, schema_of
from muse.effect.tool.environment import shell_environment
from muse.effect.tool.paths import Location, inside
from muse.effect.tool.pure import PureTool
from muse.effect.tool.suggest import no_such_file
from muse.event.content import ToolSpec
from muse.event.text import clean

SEARCH_SECONDS_MAX: Final = 60
"""How long a search may take; what was found until then is the answer."""

ROWS_MAX: Final = 1000
"""The most rows (lines, files, counts) in one answer."""

TEXT_BYTES_MAX: Final = 30_000
"""The most text in one answer."""

LINE_CHARS_MAX: Final = 500
"""How much of a matching line is shown."""

PATTERN_BYTES_MAX: Final = 4096
"""The longest pattern and glob."""

CONTEXT_MAX: Final = 50
"""The most lines around a match."""

EVENT_BYTES_MAX: Final = 4 << 20
"""A match on a longer line (as JSON) is passed over."""

_PARAMETERS: Final = (
    Parameter(name="pattern", kind="string", required=True, description="Regular expression, matched line by line."),
    Parameter(name="path", kind="string", description="File or folder to search (default: the workspace)."),
    Parameter(
        name="glob",
        kind="string",
        description="Only files whose path below the folder matches, like *.py or src/**/*.{ts,tsx}; !*.md leaves out.",
        aliases=("include",),
    ),
    Parameter(
        name="context",
        kind="integer",
        minimum=0,
        maximum=CONTEXT_MAX,
        description="Lines to show before and after each match.",
        aliases=("-C",),
    ),
    Parameter(name="ignore_case", kind="boolean", description="Take A and a for the same.", aliases=("-i",)),
    Parameter(
        name="output",
        kind="string",
        choices=("content", "files", "count"),
        description="content (default): path:line:text; files: paths; count: path:number of lines.",
        aliases=("output_mode",),
    ),
)

_DESCRIPTION = """\
Search the contents of files with a regular expression. Files that .gitignore names and binary files are left out \
(name an ignored folder as path to search it). Escape ( [ { . * + ? | ^ $ \\ to search for them as they are."""


FAILED: Final = 2
"""Exit code of a search of which a part could not be done."""

COMPLAINT_CHARS_MAX: Final = 600
"""How much is quoted of what the search said about a wrong pattern."""


class _Value(msgspec.Struct):
    text: str | None = None
    bytes: str | None = None

    def valid(self) -> str:
        """The value as valid text."""
        if self.text is not None:
            return self.text
        try:
            return clean(base64.b64decode(self.bytes or "")).text
        except (binascii.Error, ValueError):
            return ""


class _Data(msgspec.Struct):
    path: _Value | None = None
    lines: _Value | None = None
    line_number: int | None = None
    binary_offset: int | None = None


class _Event(msgspec.Struct):
    type: str
    data: _Data


class GrepTool(PureTool):
    """Searches contents. `ripgrep` is the program's absolute path, None where there is none."""

    spec = ToolSpec(name="grep", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="pure")
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def __init__(self, ripgrep: str | None) -> None:
        self._ripgrep = ripgrep

    async def answer(self, args: Arguments, workspace: Workspace) -> str:
        """Matching lines, files or counts, in order of path and line."""
        _check_text(args)
        location = inside(workspace, args.text("path", "."))
        folder, name = _target(workspace, location)
        has_groups = args.number("context") > 0
        rows = _Rows(args.text("output", "content"), _prefix(location, name), is_file=name != "", has_groups=has_groups)
        ended, said = await self._search(folder, self._command(args, name), rows)
        if said and rows.is_empty:
            raise Refusal(_complaint(said))
        hint = "" if args.flag("ignore_case") else " (a shorter pattern or ignore_case may find more)"
        return "\n".join(part for part in (rows.text() or f"no matches{hint}", _NOTES[ended]) if part)

    def _command(self, args: Arguments, name: str) -> list[str]:
        files_only = args.text("output") == "files"
        context = args.number("context") if args.text("output", "content") == "content" else 0
        if self._ripgrep is None:
            request = {
                "pattern": args.text("pattern"),
                "glob": args.text("glob"),
                "context": context,
                "ignore_case": args.flag("ignore_case"),
                "count_max": 1 if files_only else 0,
                "path": name,
            }
            search = str(Path(__file__).with_name("search.py"))
            return [sys.executable, "-I", "-S", "-B", "-X", "utf8", search, json.dumps(request)]
        # Without --max-count, also for files: a file is known not to be binary only when it was read to its end.
        command = [
            self._ripgrep, "--no-config", "--no-messages", "--json", "--crlf", "--hidden", "--sort=path", "--no-mmap",
            "--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude", f"--context={context}",
        ]  # fmt: skip
        command += ["--ignore-case"] if args.flag("ignore_case") else []
        command += [f"--glob={args.text('glob')}"] if args.text("glob") else []
        return [*command, "--glob=!.git", f"--regexp={args.text('pattern')}", "--", f"./{name}"]

    async def _search(self, folder: str, command: list[str], rows: "_Rows") -> tuple["_Ending", str]:
        """Run it; how it ended (`part`: something could not be read), and what it said about pattern or glob."""
        environment = shell_environment(os.environ)
        try:
            process = await anyio.open_process(
                command, cwd=folder, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
        except OSError as error:
            raise Refusal(files.explain(command[0], error)) from error
        async with process:
            try:
                with anyio.move_on_after(SEARCH_SECONDS_MAX):
                    return await _collect(process, rows)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
        return "time", ""


async def _collect(process: anyio.abc.Process, rows: "_Rows") -> tuple["_Ending", str]:
    assert process.stdout is not None
    assert process.stderr is not None
    async for event in _events(process.stdout):
        if not rows.take(event):
            return "limit", ""
    said = b"".join([part async for part in process.stderr])
    return "part" if await process.wait() == FAILED else "all", clean(said).text.strip()


async def _events(stream: anyio.abc.ByteReceiveStream) -> AsyncIterator[_Event]:
    decoder = msgspec.json.Decoder(_Event)
    rest = b""
    skipping = False
    async for part in stream:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if not skipping:
                with suppress(msgspec.DecodeError):  # a line that is no event says nothing
                    yield decoder.decode(line)
            skipping = False
        if len(rest) > EVENT_BYTES_MAX:
            rest, skipping = b"", True


def _check_text(args: Arguments) -> None:
    for name in ("pattern", "glob"):
        value = args.text(name)
        if "\0" in value or "\n" in value:
            raise Refusal(f"argument {name} holds a NUL or a line end: a match never goes beyond one line")
        if clean(value).exact is not None:
            raise Refusal(f"argument {name} holds half a surrogate pair: give the whole character")
        if len(value.encode()) > PATTERN_BYTES_MAX:
            raise Refusal(f"argument {name} has {len(value.encode())} bytes, at most {PATTERN_BYTES_MAX} are taken")
    if not args.text("pattern"):
        raise Refusal("argument pattern is empty: give a regular expression")


def _target(workspace: Workspace, location: Location) -> tuple[str, str]:
    """The folder to search in, and the name when it is one file. Raises Refusal."""
    try:
        with files.opened_folder(workspace.root, location.parts):
            return os.path.join(workspace.root, *location.parts), ""
    except FileNotFoundError:
        raise Refusal(no_such_file(workspace.root, location)) from None
    except NotADirectoryError:
        pass
    except OSError as error:
        raise Refusal(files.explain(location.given, error)) from error
    try:
        with files.opened_file(workspace.root, location) as file:
            start = os.pread(file, files.BINARY_BYTES_LOOKED_AT, 0)
    except OSError as error:
        raise Refusal(files.explain(location.given, error)) from error
    if files.is_binary(start) and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refusal(f"{quote(location.given)} is a binary file: use shell (grep -a, strings) to search it")
    return os.path.join(workspace.root, *location.parts[:-1]), location.parts[-1]


def _prefix(location: Location, name: str) -> str:
    """What stands before each path that the search names, to make it relative to the workspace."""
    parts = location.parts[:-1] if name else location.parts
    return "".join(f"{part}/" for part in parts)


class _Rows:
    """Turns events into rows, up to the limits. Rows of a file count once it has shown not to be binary."""

    def __init__(self, output: str, prefix: str, *, is_file: bool, has_groups: bool) -> None:
        self._output = output
        self._prefix = prefix
        self._is_file = is_file
        self._has_groups = has_groups
        self._rows: list[str] = []
        self._bytes = 0
        self._pending: list[str] = []
        self._count = 0
        self._last_line = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self._rows

    def take(self, event: _Event) -> bool:
        """Take an event; False when the answer is full."""
        match event.type:
            case "begin":
                self._pending, self._count, self._last_line = [], 0, 0
            case "match" | "context":
                self._count += event.type == "match"
                if self._output == "content":
                    self._take_line(event)
                if len(self._pending) > ROWS_MAX:
                    self._commit()
            case "end" if self._is_file or event.data.binary_offset is None:
                self._take_end(self._path(event))
            case _:
                pass
        return not self._is_full()

    def text(self) -> str:
        """What was found, at most as much as the limits allow; "" for nothing."""
        rows, size = self._rows[:ROWS_MAX], 0
        for count, row in enumerate(rows):
            size += len(row.encode()) + 1
            if size > TEXT_BYTES_MAX:
                rows = rows[:count]
                break
        return "\n".join(rows)

    def _is_full(self) -> bool:
        return len(self._rows) > ROWS_MAX or self._bytes > TEXT_BYTES_MAX

    def _take_line(self, event: _Event) -> None:
        number = event.data.line_number or 0
        text = "" if event.data.lines is None else event.data.lines.valid().removesuffix("\n").removesuffix("\r")
        if len(text) > LINE_CHARS_MAX:
            text = text[:LINE_CHARS_MAX] + " [...]"
        mark = ":" if event.type == "match" else "-"
        is_new_group = number != self._last_line + 1 if self._last_line else bool(self._rows)
        if self._has_groups and is_new_group:
            self._pending.append("--")
        self._last_line = number
        self._pending.append(f"{self._path(event)}{mark}{number}{mark}{text}")

    def _take_end(self, path: str) -> None:
        if self._output == "files" and self._count:
            self._pending = [path]
        elif self._output == "count" and self._count:
            self._pending = [f"{path}:{self._count}"]
        self._commit()

    def _commit(self) -> None:
        self._bytes += sum(len(row.encode()) + 1 for row in self._pending)
        self._rows += self._pending
        self._pending = []

    def _path(self, event: _Event) -> str:
        path = "" if event.data.path is None else event.data.path.valid()
        return self._prefix + path.removeprefix("./")


_Ending = Literal["all", "part", "limit", "time"]

_NOTES: Final[dict[_Ending, str]] = {
    "all": "",
    "part": "(some files could not be read and were not searched)",
    "limit": "(there is more: narrow it with path, glob or a longer pattern)",
    "time": f"(stopped after {SEARCH_SECONDS_MAX} s: narrow it with path or glob)",
}


def _complaint(said: str) -> str:
    """What ripgrep or the fallback said about a pattern or glob that it does not take, for a model."""
    if "glob" in said.split(":")[0]:
        return f"argument glob is not valid: {said[:COMPLAINT_CHARS_MAX]}"
    return (
        f"argument pattern is not a valid regular expression: {said[:COMPLAINT_CHARS_MAX]}\n"
        "To search for special characters as they are, escape them with a backslash"
    )
