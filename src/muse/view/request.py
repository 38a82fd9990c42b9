"""A model request taken apart, counted and compared with the one before.

Works on the exact bytes of any dialect that muse sends: whatever is known of their JSON is named, the rest is kept as
it stands. Pieces come in the order in which a provider reads them (parameters, tools, system, messages), because a
prompt cache is read up to the first piece that differs; cache marks themselves are not compared. This module must not
know how requests are built, nor how anything is laid out.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from muse.event.jsontext import compose, elements, members
from muse.view.visible import lines_of, one_line

Place = Literal["parameter", "tool", "system", "message"]
PLACES: Final[tuple[Place, ...]] = ("parameter", "tool", "system", "message")
PLACEHOLDER: Final = re.compile(r"\[secret ([A-Za-z_][A-Za-z0-9_]*)\]")
"""What stands for a secret whose value is known (docs/permissions.md)."""

_ROLES: Final = {"said": "user", "answered": "assistant", "resulted": "tool"}
"""Items of the scripted dialect, as roles."""
_REST_LEFT_OUT: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "item", "blocks"})


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a request. `name` is that of a parameter or a tool, or a message's role; `at` the message's number
    from 1. `kind` tells pieces of a message apart (`text`, `tool_use`, `result` …), `tool` names what a use is of.
    `text` is what a person reads; `raw` the exact JSON text without a cache mark, which is what is compared."""

    place: Place
    name: str
    raw: str
    text: str
    at: int = 0
    kind: str = ""
    tool: str = ""
    error: bool = False

    @property
    def size(self) -> int:
        """Bytes of its JSON."""
        return len(self.raw.encode())


class Share(msgspec.Struct, frozen=True):
    """So many pieces of one kind, and their bytes."""

    what: str
    count: int
    bytes: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A request in numbers: its parameters as JSON texts, its tools by name, what its messages hold by role and kind,
    and how often a placeholder stands for which secret."""

    parameters: dict[str, str]
    system: Share
    tools: tuple[Share, ...]
    messages: int
    shares: tuple[Share, ...]
    masked: dict[str, int]


class Change(msgspec.Struct, frozen=True):
    """What became of one piece: `before` None for an added one, `after` None for a removed one."""

    before: Piece | None
    after: Piece | None

    @property
    def what(self) -> Literal["added", "removed", "changed"]:
        """In a word."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two requests, by place. `same` counts the pieces that did not change; `prefix` is the number
    of bytes of tools, system and messages that are the same from the beginning, out of `before` and `after`; `whole`:
    all of the earlier request's stand there. `broken` is the first piece of the earlier one that does not."""

    changes: dict[Place, tuple[Change, ...]]
    same: dict[Place, int]
    reordered: bool
    prefix: int
    before: int
    after: int
    whole: bool
    broken: Piece | None


def pieces(data: bytes) -> tuple[Piece, ...]:
    """A request in its pieces. What is no JSON object is one piece."""
    text = data.decode(errors="replace")
    try:
        found = sorted(_all(text), key=lambda piece: PLACES.index(piece.place))
    except (ValueError, RecursionError):
        found = [Piece(place="parameter", name="body", raw=text, text=text)]
    return tuple(found)


def pretty(data: bytes) -> list[str]:
    """The JSON, indented, its lines safe to show."""
    return lines_of(indented(data).decode(errors="replace"))


def indented(data: bytes) -> bytes:
    """The JSON, indented, with a newline at its end; every token as it stands."""
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        data = msgspec.json.format(data, indent=2)
    return data + b"\n"


def overview(data: bytes) -> Overview:
    """A request in numbers."""
    found = pieces(data)
    system = [piece for piece in found if piece.place == "system"]
    shares: dict[str, list[int]] = {}
    for piece in found:
        if piece.place == "message":
            shares.setdefault(f"{piece.name} {piece.kind}", []).append(piece.size)
    return Overview(
        parameters={piece.name: piece.raw for piece in found if piece.place == "parameter"},
        system=Share("system", len(system), sum(piece.size for piece in system)),
        tools=tuple(Share(piece.name, 1, piece.size) for piece in found if piece.place == "tool"),
        messages=len({piece.at for piece in found if piece.place == "message"}),
        shares=tuple(Share(what, len(sizes), sum(sizes)) for what, sizes in shares.items()),
        masked=dict(sorted(Counter(PLACEHOLDER.findall(data.decode(errors="replace"))).items())),
    )


def difference(before: bytes, after: bytes) -> Difference:
    """What changed from one request to the next."""
    old, new = pieces(before), pieces(after)
    changes: dict[Place, tuple[Change, ...]] = {}
    same: dict[Place, int] = {}
    for place in PLACES:
        was, now = [[one for one in side if one.place == place] for side in (old, new)]
        compare = _in_order if place in ("system", "message") else _by_name
        changes[place] = tuple(compare(was, now))
        same[place] = len(now) - sum(change.after is not None for change in changes[place])
    old_read, new_read = [[one for one in side if one.place != "parameter"] for side in (old, new)]
    common = _common(old_read, new_read)
    tools = [[one.name for one in side if one.place == "tool"] for side in (old, new)]
    return Difference(
        changes=changes,
        same=same,
        reordered=tools[0] != tools[1] and sorted(tools[0]) == sorted(tools[1]),
        prefix=_bytes(new_read[:common]),
        before=_bytes(old_read),
        after=_bytes(new_read),
        whole=common == len(old_read),
        broken=None if common == len(old_read) else old_read[common],
    )


def _bytes(found: Sequence[Piece]) -> int:
    return sum(piece.size for piece in found)


# -- taking apart ------------------------------------------------------------------------------------------------------


def _all(text: str) -> Iterator[Piece]:
    for name, value in members(text).items():
        if name == "tools":
            yield from map(_tool, elements(value))
        elif name == "system":
            yield from _system(value)
        elif name in ("messages", "items"):
            for at, message in enumerate(elements(value), 1):
                yield from _message(at, message)
        else:
            yield Piece(place="parameter", name=one_line(name), raw=value, text=_string(value))


def _tool(raw: str) -> Piece:
    fields = members(raw)
    inner = members(fields["function"]) if "function" in fields else fields
    schema = inner.get("input_schema") or inner.get("parameters") or inner.get("schema") or ""
    text = f"{_string(inner.get('description', ''))}\n{_indented(_string(schema))}"
    return Piece(place="tool", name=one_line(_string(inner.get("name", ""))), raw=_unmarked(raw, fields), text=text)


def _system(value: str) -> Iterator[Piece]:
    for part in elements(value) if value.startswith("[") else [value]:
        fields = members(part) if part.startswith("{") else {}
        text = _string(fields.get("text", part))
        yield Piece(place="system", name="", raw=_unmarked(part, fields), text=text, kind="text")


def _message(at: int, raw: str) -> Iterator[Piece]:
    """The pieces of a message: its content, block by block, its tool calls, and whatever else it has."""
    fields = members(raw)
    item = _string(fields.get("item", ""))
    role = one_line(_string(fields.get("role", "")) or _ROLES.get(item, item))
    content = fields.get("content", "")
    if item == "answered" or content.startswith("["):
        blocks = elements(fields.get("blocks", "[]") if item else content)
        yield from (_block(at, role, block) for block in blocks)
    elif item:
        yield from _item(at, role, raw, fields)
        return
    elif content not in ("", "null"):
        kind = "result" if role == "tool" else "text"
        raw_content = compose({"id": fields["tool_call_id"], "content": content}) if kind == "result" else content
        yield Piece(place="message", name=role, at=at, kind=kind, raw=raw_content, text=_string(content))
    for call in elements(fields.get("tool_calls", "[]")):
        yield _call(at, role, call)
    for name, value in fields.items():
        if name not in _REST_LEFT_OUT:
            yield Piece(place="message", name=role, at=at, kind=one_line(name), raw=value, text=_string(value))


def _item(at: int, role: str, raw: str, fields: dict[str, str]) -> Iterator[Piece]:
    kind = "result" if role == "tool" else one_line(_string(fields.get("source", '"text"')))
    error = fields.get("error") == "true"
    text = _string(fields.get("text", ""))
    yield Piece(place="message", name=role, at=at, kind=kind, raw=raw, text=text, error=error)


def _block(at: int, role: str, raw: str) -> Piece:
    fields = members(raw)
    kind = one_line(_string(fields.get("type") or fields.get("kind") or '"block"'))
    error = fields.get("is_error") == "true"
    unmarked = _unmarked(raw, fields)
    if kind == "tool_use":
        args = fields.get("input") or _string(fields.get("args", ""))
        tool = one_line(_string(fields.get("name", "")))
        return Piece(place="message", name=role, at=at, kind=kind, raw=unmarked, text=args, tool=tool)
    if kind == "tool_result":
        text = _string(fields.get("content", ""))
        return Piece(place="message", name=role, at=at, kind="result", raw=unmarked, text=text, error=error)
    said = fields.get("text") or fields.get("thinking")
    text = unmarked if said is None else _string(said)
    return Piece(place="message", name=role, at=at, kind=kind, raw=unmarked, text=text)


def _call(at: int, role: str, raw: str) -> Piece:
    function = members(members(raw).get("function", "{}"))
    args, tool = _string(function.get("arguments", "")), one_line(_string(function.get("name", "")))
    return Piece(place="message", name=role, at=at, kind="tool_use", raw=raw, text=args, tool=tool)


def _unmarked(raw: str, fields: dict[str, str]) -> str:
    """Without a cache mark, which moves from one request to the next, and without space between members."""
    return compose({name: value for name, value in fields.items() if name != "cache_control"}) if fields else raw


def _string(value: str) -> str:
    """What a JSON string says; any other JSON as it stands."""
    if not value.startswith('"'):
        return value
    found = json.loads(value)
    return found if isinstance(found, str) else value


def _indented(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, RecursionError):
        return text


# -- comparing ---------------------------------------------------------------------------------------------------------


def _common(old: Sequence[Piece], new: Sequence[Piece]) -> int:
    """How many pieces are the same at the beginning."""
    room = min(len(old), len(new))
    return next((at for at in range(room) if not _alike(old[at], new[at])), room)


def _alike(one: Piece, other: Piece) -> bool:
    return (one.raw, one.place, one.name, one.kind) == (other.raw, other.place, other.name, other.kind)


def _by_name(old: Sequence[Piece], new: Sequence[Piece]) -> Iterator[Change]:
    was, now = {piece.name: piece for piece in old}, {piece.name: piece for piece in new}
    for name, piece in was.items():
        if name not in now:
            yield Change(piece, None)
        elif piece.raw != now[name].raw:
            yield Change(piece, now[name])
    for name, piece in now.items():
        if name not in was:
            yield Change(None, piece)


def _in_order(old: Sequence[Piece], new: Sequence[Piece]) -> Iterator[Change]:
    """What stands between the same pieces at both ends; there, from its beginning on, a piece that became another of
    the same kind is a changed one."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    was, now = list(old[start : len(old) - end]), list(new[start : len(new) - end])
    paired = 0
    while paired < min(len(was), len(now)) and _became(was[paired], now[paired], len(was) == len(now)):
        if not _alike(was[paired], now[paired]):
            yield Change(was[paired], now[paired])
        paired += 1
    for piece in was[paired:]:
        yield Change(piece, None)
    for piece in now[paired:]:
        yield Change(None, piece)


def _became(one: Piece, other: Piece, even: bool) -> bool:
    if (one.name, one.kind, one.tool) != (other.name, other.kind, other.tool):
        return False
    return even or other.text.startswith(one.text)
