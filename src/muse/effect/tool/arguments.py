"""What a tool takes: the JSON Schema offered to the model and the check of what the model sent, from one description.

Both come from the same `Parameter` list, so that they cannot disagree. A message says what is wrong and what is
right, because the reader is a model that will try again. This module must not know any single tool.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

Kind = Literal["string", "integer", "boolean", "strings", "edits"]

SHOWN_CHARS_MAX: Final = 200
"""How much of a wrong value or name is quoted back."""

_KIND_NAMES: Final = {
    "string": "a string",
    "integer": "an integer",
    "boolean": "true or false",
    "strings": "an array of strings",
    "edits": "an array",
}

_EDIT_ITEM: Final = {
    "type": "object",
    "properties": {
        "old": {"type": "string", "description": "Exact text to find, indentation included."},
        "new": {"type": "string", "description": "Text to put in its place."},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
    },
    "required": ["old", "new"],
    "additionalProperties": False,
}


class Refusal(Exception):
    """A call that cannot be done. The message is for the model: what is wrong and what to do next.

    Raised and caught inside this room only; outside it is a result with status `error`.
    """


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One argument. `aliases` are other spellings that models use; they are accepted and not offered.

    Permission rules and approvals look at arguments by name, so whatever they look at has only the aliases they know.
    """

    name: str
    kind: Kind
    description: str
    required: bool = False
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    offered: bool = True


def schema_of(parameters: Sequence[Parameter]) -> str:
    """The JSON Schema text of these parameters."""
    offered = [parameter for parameter in parameters if parameter.offered]
    return json.dumps(
        {
            "type": "object",
            "properties": {parameter.name: _property(parameter) for parameter in offered},
            "required": [parameter.name for parameter in offered if parameter.required],
            "additionalProperties": False,
        },
        ensure_ascii=False,
    )


def _property(parameter: Parameter) -> dict[str, object]:
    if parameter.kind == "edits":
        return {"type": "array", "items": _EDIT_ITEM, "minItems": 1, "description": parameter.description}
    if parameter.kind == "strings":
        items = {"type": "string"}
        return {"type": "array", "items": items, "minItems": 1, "description": parameter.description}
    found: dict[str, object] = {"type": parameter.kind, "description": parameter.description}
    if parameter.choices:
        found["enum"] = list(parameter.choices)
    if parameter.minimum is not None:
        found["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        found["maximum"] = parameter.maximum
    return found


class Arguments:
    """Arguments that have been checked: asked for by name, with the type that the parameter promises. `call` is the
    key of the call that they belong to."""

    __slots__ = ("_values", "call")

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.call = ""

    @property
    def agent(self) -> str:
        """The agent whose call it is."""
        return self.call.partition("/")[0]

    def text(self, name: str, default: str = "") -> str:
        """A string, or `default` where it was left out."""
        value = self._values.get(name, default)
        assert isinstance(value, str)
        return value

    def number(self, name: str, default: int = 0) -> int:
        """An integer, or `default` where it was left out."""
        value = self._values.get(name, default)
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """A boolean, false where it was left out."""
        return self._values.get(name) is True

    def items(self, name: str) -> list[object]:
        """An array, empty where it was left out."""
        value = self._values.get(name, [])
        assert isinstance(value, list)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of strings, empty where it was left out."""
        return tuple(one for one in self.items(name) if isinstance(one, str))

    def has(self, name: str) -> bool:
        """Whether the argument was given."""
        return name in self._values


def take(tool: str, parameters: Sequence[Parameter], args: Mapping[str, object]) -> Arguments:
    """Check what a model sent. `null` for an argument that may be left out counts as left out. Raises Refusal."""
    spelling = {name: parameter for parameter in parameters for name in (parameter.name, *parameter.aliases)}
    values: dict[str, object] = {}
    for name, value in args.items():
        parameter = spelling.get(name)
        if parameter is None:
            takes = ", ".join(parameter.name for parameter in parameters if parameter.offered)
            raise Refusal(f"unknown argument {quote(name)}: {tool} takes {takes}")
        if value is None and not parameter.required:
            continue
        if parameter.name in values:
            raise Refusal(f"argument {parameter.name} is given twice (also as {name}): give it once")
        values[parameter.name] = _checked(parameter, value)
    missing = [parameter.name for parameter in parameters if parameter.required and parameter.name not in values]
    if missing:
        raise Refusal(f"missing argument {', '.join(missing)}: {tool} needs it")
    return Arguments(values)


def _checked(parameter: Parameter, value: object) -> object:
    name = parameter.name
    if isinstance(value, float) and parameter.kind == "integer" and value.is_integer():
        value = int(value)
    if not _is_kind(parameter.kind, value):
        raise Refusal(f"argument {name} must be {_KIND_NAMES[parameter.kind]}, not {name_kind(value)}")
    if parameter.choices and value not in parameter.choices:
        raise Refusal(f"argument {name} must be one of {', '.join(parameter.choices)}, not {quote(str(value))}")
    if isinstance(value, int) and not isinstance(value, bool):
        if parameter.minimum is not None and value < parameter.minimum:
            raise Refusal(f"argument {name} must be at least {parameter.minimum}")
        if parameter.maximum is not None and value > parameter.maximum:
            raise Refusal(f"argument {name} must be at most {parameter.maximum}")
    return value


def _is_kind(kind: Kind, value: object) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "strings":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "edits":
            return isinstance(value, list)


def name_kind(value: object) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def quote(text: str) -> str:
    """A short, printable form of any text for a message."""
    shown = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return ascii(shown) if not shown.isprintable() else f'"{shown}"'
