"""Events made by hand, and bodies of every type filled with one text."""

from typing import Any

import msgspec

from muse.event.envelope import Event
from muse.event.kinds import KINDS

TYPES = {kind.body: name for name, kind in KINDS.items()}


def event(body: msgspec.Struct, seq: int = 1, *, agent: str = "main", epoch: int = 1, type_name: str = "") -> Event:
    """An event with this body."""
    name = type_name or TYPES[type(body)]
    return Event(seq, f"{seq:032x}", "2026-01-02T03:04:05.000006Z", name, 1, agent, seq - 1, epoch, body)


def filled(body: type[msgspec.Struct], text: str) -> msgspec.Struct:
    """A body in which every string that may be any text is `text`, and everything optional is there."""
    made: Any = _value(msgspec.inspect.type_info(body), text)
    return made  # type: ignore[no-any-return]


def _value(kind: msgspec.inspect.Type, text: str) -> object:
    if isinstance(kind, msgspec.inspect.StructType):
        values = {field.name: _value(field.type, text) for field in kind.fields}
        if kind.cls.__name__ == "BlobRef":
            values = {"blob": "ab" * 32, "length": 5}
        return kind.cls(**values)
    if isinstance(kind, msgspec.inspect.UnionType):
        best = next((one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)), kind.types[0])
        return _value(best, text)
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return (_value(kind.item_type, text), _value(kind.item_type, text))
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[-1]
    plain = {msgspec.inspect.StrType: text, msgspec.inspect.IntType: 7, msgspec.inspect.BoolType: True}
    return plain[type(kind)]
