"""The edit tool: exact text replaced by other text, one or several places at once, all or nothing.

Bytes that are not touched stay as they are: line ends, byte order mark, a missing last line end, bytes that are no
UTF-8. In a file whose every line ends in CRLF, line ends in `old` and `new` mean CRLF, because `read` shows lines
without them. When the text is not there, or is there more than once, the message shows where to look.
"""

import difflib
import re
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from muse.effect.protocol import Workspace
from muse.effect.tool import files
from muse.effect.tool.arguments import Arguments, Parameter, Refusal, name_kind, quote, schema_of, take
from muse.effect.tool.compare import count_changes, counted
from muse.effect.tool.paths import Location
from muse.effect.tool.replacing import PATH, Planned, ReplacingTool
from muse.effect.tool.suggest import no_such_file
from muse.event.content import ToolSpec
from muse.event.text import clean

EDITS_MAX: Final = 500
"""The most edits in one call."""

LINES_NAMED_MAX: Final = 10
"""How many places are named when a text occurs more than once, or after the edit."""

HINT_LINES_MAX: Final = 20_000
"""In how many lines of a file a text is looked for that was not found exactly."""

HINT_CHARS_MAX: Final = 300
"""The longest line that is compared or quoted in a hint."""

_PARAMETERS = (
    PATH,
    Parameter(
        name="edits",
        kind="edits",
        required=True,
        description="Replacements, made one after the other; all or none.",
    ),
)
_OLD: Final = ("old", "old_string")
_NEW: Final = ("new", "new_string")
_ALL: Final = "replace_all"
# No other spelling: a person who approves an edit is shown what stands under these names.
_BARE_LINE_END: Final = re.compile(r"(?<!\r)\n")

_DESCRIPTION = """\
Replace exact text in a file. Each old text must occur exactly once (indentation and line ends count; without the line \
numbers that read shows) unless replace_all is true. Several edits in one call are made in order, all or none."""


class Edit(msgspec.Struct, frozen=True):
    """One replacement. `label` names it in messages."""

    old: str
    new: str
    replace_all: bool
    label: str


class EditTool(ReplacingTool):
    """Replaces exact text in a file."""

    spec = ToolSpec(
        name="edit", description=_DESCRIPTION, schema=schema_of(_PARAMETERS), recovery="reconcilable", writes=True
    )
    parameters: ClassVar[tuple[Parameter, ...]] = _PARAMETERS

    def arguments(self, args: Mapping[str, object]) -> Arguments:
        """As offered, or with a single replacement at the top level, as other agents spell it."""
        return take("edit", _PARAMETERS, _with_edits(args))

    def plan(self, args: Arguments, workspace: Workspace, location: Location, before: bytes | None) -> Planned:
        """All edits applied, one after the other."""
        edits = read_edits(args.items("edits"))
        if before is None:
            raise Refusal(f"{no_such_file(workspace.root, location)} To make a new file use write")
        if files.is_binary(before):
            raise Refusal(f"{quote(location.given)} is a binary file, and edit changes text: use shell")
        restored = self._secrets.restored
        edits = [
            msgspec.structs.replace(one, old=restored(one.old, before), new=restored(one.new, before)) for one in edits
        ]
        after, count, lines = apply_edits(before, edits)
        shown = ", ".join(str(line) for line in lines[:LINES_NAMED_MAX]) + (", …" if count > LINES_NAMED_MAX else "")
        return Planned(
            after,
            f"edited {location.relative}: {counted(count, 'replacement')} "
            f"at line{'s' if count > 1 else ''} {shown} ({count_changes(before, after)})",
        )


def _with_edits(args: Mapping[str, object]) -> Mapping[str, object]:
    single = {name: value for name, value in args.items() if name in (*_OLD, *_NEW, _ALL)}
    if args.get("edits") is not None or not single:
        return args
    return {name: value for name, value in args.items() if name not in single and name != "edits"} | {"edits": [single]}


def read_edits(items: list[object]) -> list[Edit]:
    """The edits of a call. Raises Refusal that names the first wrong one."""
    if not items:
        raise Refusal("argument edits is empty: give at least one edit with old and new")
    if len(items) > EDITS_MAX:
        raise Refusal(f"{len(items)} edits, at most {EDITS_MAX} in one call: make several calls")
    return [
        _read_edit(item, "" if len(items) == 1 else f"edit {n} of {len(items)}: ") for n, item in enumerate(items, 1)
    ]


def _read_edit(item: object, label: str) -> Edit:
    if not isinstance(item, Mapping):
        raise Refusal(f"{label}must be an object with old and new, not {name_kind(item)}")
    for name in item:
        if name not in (*_OLD, *_NEW, _ALL):
            raise Refusal(f"{label}unknown argument {quote(str(name))}: an edit takes old, new, replace_all")
    old, new = _text(item, _OLD, label), _text(item, _NEW, label)
    replace_all = False if item.get(_ALL) is None else item[_ALL]
    if not isinstance(replace_all, bool):
        raise Refusal(f"{label}replace_all must be true or false, not {name_kind(replace_all)}")
    if not old:
        raise Refusal(f"{label}old is empty: give the text to replace; to make a new file use write")
    if old == new:
        raise Refusal(f"{label}old and new are the same: nothing would change")
    return Edit(old, new, replace_all, label)


def _text(item: Mapping[str, object], names: tuple[str, ...], label: str) -> str:
    given = [item[name] for name in names if name in item]
    if len(given) > 1:
        raise Refusal(f"{label}{names[0]} is given twice (also as {names[1]}): give it once")
    value = given[0] if given else None
    if value is None:
        raise Refusal(f"{label}missing argument {names[0]}: an edit needs old and new")
    if not isinstance(value, str):
        raise Refusal(f"{label}{names[0]} must be a string, not {name_kind(value)}")
    if clean(value).exact is not None:
        raise Refusal(f"{label}{names[0]} holds half a surrogate pair: give the whole character")
    return value


def apply_edits(before: bytes, edits: list[Edit]) -> tuple[bytes, int, list[int]]:
    """New content, how many replacements were made, and the lines of the first ones of each edit. Raises Refusal."""
    original = text = before.decode("utf-8", "surrogateescape")
    has_crlf = "\r\n" in text and _BARE_LINE_END.search(text) is None
    total, lines = 0, []
    for edit in edits:
        old, new = edit.old, edit.new
        if has_crlf:
            old, new = _BARE_LINE_END.sub("\r\n", old), _BARE_LINE_END.sub("\r\n", new)
        at = _places(text, old, overlapping=not edit.replace_all)
        if not at:
            raise Refusal(edit.label + _not_found(text, original, old))
        count = text.count(old)
        if len(at) > 1 and not edit.replace_all:
            raise Refusal(
                f"{edit.label}old text occurs {max(count, len(at))} times, at lines {_named(text, at)}: "
                "add lines around it until it is unique, or set replace_all"
            )
        if len(text) + count * (len(new) - len(old)) > files.FILE_BYTES_MAX:
            raise Refusal(f"{edit.label}the file would be larger than {files.FILE_BYTES_MAX} bytes")
        total += count
        lines += _line_numbers(text, at[:LINES_NAMED_MAX])
        text = text.replace(old, new)
    return text.encode("utf-8", "surrogateescape"), total, lines


def _places(text: str, old: str, *, overlapping: bool) -> list[int]:
    """Where the text begins, for one place more than are named."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) <= LINES_NAMED_MAX:
        found.append(at)
        at = text.find(old, at + (1 if overlapping else len(old)))
    return found


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers: list[int] = []
    line, start = 1, 0
    for place in places:
        line += text.count("\n", start, place)
        start = place
        numbers.append(line)
    return numbers


def _named(text: str, places: list[int]) -> str:
    numbers = _line_numbers(text, places[:LINES_NAMED_MAX])
    return ", ".join(map(str, numbers)) + (", …" if len(places) > LINES_NAMED_MAX else "")


def _not_found(text: str, original: str, old: str) -> str:
    if old in original:
        return "not found: an earlier edit of this call changed that text"
    lines = text.split("\n", HINT_LINES_MAX)[:HINT_LINES_MAX]
    wanted = [_plain(line) for line in old.strip().split("\n")]
    for number in range(len(lines) - len(wanted) + 1):
        if _plain(lines[number]) == wanted[0] and [_plain(x) for x in lines[number : number + len(wanted)]] == wanted:
            there = "\n".join(lines[number : number + len(wanted)])
            return f"not found; the file has it with other white space at line {number + 1}: {_quoted(there)}"
    return "not found" + _nearest(lines, wanted)


def _plain(line: str) -> str:
    return " ".join(line[:HINT_CHARS_MAX].split()) if len(line) <= HINT_CHARS_MAX else line


def _nearest(lines: list[str], wanted: list[str]) -> str:
    """The line that comes closest to the longest line that was looked for."""
    target = max(wanted, key=len)
    if not target or len(target) > HINT_CHARS_MAX:
        return ": read the file again and copy the text exactly"
    candidates = {
        _plain(line): number for number, line in reversed(list(enumerate(lines))) if 0 < len(line) <= HINT_CHARS_MAX
    }
    near = difflib.get_close_matches(target, list(candidates)[-HINT_LINES_MAX // 4 :], 1, 0.6)
    if not near:
        return ", and nothing like it: read the file again and copy the text exactly"
    number = candidates[near[0]]
    return (
        f"; the closest is line {number + 1}: {_quoted(lines[number])}. Read the file again and copy the text exactly"
    )


def _quoted(text: str) -> str:
    shown = text if len(text) <= HINT_CHARS_MAX else text[:HINT_CHARS_MAX] + "…"
    return repr(clean(shown).text)
