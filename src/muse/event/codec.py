"""The bytes of an event: canonical bodies and headers, written and read in one place.

A body or a header has exactly one byte form (docs/format.md), so that equal events have equal bytes and a hash of the
bytes is a hash of the event. Writer and verifier refuse every other form. This module must not know what a type of
event means, nor how bytes are hashed or stored.
"""

import re
from datetime import datetime
from typing import Final

import msgspec

from muse.errors import InvalidEvent

INTEGER_MAX: Final = 2**53
"""The largest magnitude of an integer (inclusive): what every JSON reader can hold exactly."""

DEPTH_MAX: Final = 64
"""How many containers may stand inside each other; the body itself is the first."""

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder()
_key_form: Final = re.compile(r"[a-z0-9_]+")
_root_form: Final = re.compile(r"[0-9a-f]{64}")
_id_form: Final = re.compile(r"[0-9a-f]{32}")
_type_form: Final = re.compile(r"[a-z]+\.[a-z_]+")
_agent_form: Final = re.compile(r"main(\.[1-9][0-9]*)*")
_time_form: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")

# Keys seen to be well formed, so that the hot path is one set look-up; bounded because foreign logs bring their own.
_known_keys: Final[set[str]] = set()
_KNOWN_KEYS_MAX: Final = 4096

# Types with their agents likewise.
_known_names: Final[set[tuple[str, str]]] = set()

# Types that msgspec would turn into strings; left as they are, `_check` refuses them.
_kept_types: Final = (bytes, bytearray, datetime)


class BlobRef(msgspec.Struct, frozen=True):
    """A blob named inside a body: `blob` is its root (64 lower-case hex digits), `length` its size in bytes."""

    blob: str
    length: int


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of an event; the fields stand in the order of its bytes. `cause` 0 means none."""

    agent: str
    cause: int
    epoch: int
    id: str
    seq: int
    time: str
    type: str
    v: int


_header_encoder: Final = msgspec.json.Encoder()
_header_decoder: Final = msgspec.json.Decoder(Header)


def encode(body: msgspec.Struct | dict[str, object]) -> bytes:
    """The canonical bytes of a body. Raises InvalidEvent for what no body may hold."""
    return canonical(body)[0]


def canonical(body: msgspec.Struct | dict[str, object]) -> tuple[bytes, dict[str, object]]:
    """The canonical bytes of a body, and the body as plain values (what `parse` gives for those bytes).

    Raises InvalidEvent: floats, integers beyond ±2^53, text that is not Unicode, keys other than `[a-z0-9_]+`, the key
    `blob` outside a blob reference, values JSON does not have, more than 64 levels, a body that is no object.
    """
    try:
        plain = msgspec.to_builtins(body, order="sorted", builtin_types=_kept_types)
        _check_body(plain)
        return _encoder.encode(plain), plain
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidEvent(f"this body has no canonical form: {error}") from error


def parse(data: bytes) -> dict[str, object]:
    """The body that `data` spells. Raises InvalidEvent unless `data` is exactly the canonical bytes of that body."""
    try:
        body = _decoder.decode(data)
        _check_body(body)
        again = _encoder.encode(body)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidEvent(f"not a body: {error}") from error
    if again != data:
        raise InvalidEvent(f"the body is not canonical: first difference at byte {_difference(again, data)}")
    plain: dict[str, object] = body
    return plain


def encode_header(*, seq: int, id: str, time: str, type: str, v: int, agent: str, cause: int, epoch: int) -> bytes:
    """The canonical bytes of a header. Raises InvalidEvent if a field is out of its form."""
    header = Header(agent=agent, cause=cause, epoch=epoch, id=id, seq=seq, time=time, type=type, v=v)
    try:
        _check_header(header)
        return _header_encoder.encode(header)
    except (TypeError, ValueError) as error:
        raise InvalidEvent(f"this header has no canonical form: {error}") from error


def parse_header(data: bytes) -> Header:
    """The header that `data` spells. Raises InvalidEvent unless `data` is exactly its canonical bytes."""
    try:
        header = _header_decoder.decode(data)
        _check_header(header)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidEvent(f"not a header: {error}") from error
    again = _header_encoder.encode(header)
    if again != data:
        raise InvalidEvent(f"the header is not canonical: first difference at byte {_difference(again, data)}")
    return header


def is_blob_ref(value: dict[str, object]) -> bool:
    """Whether this object inside a parsed body is a blob reference (the key `blob` has no other use)."""
    return "blob" in value


def blob_refs(body: dict[str, object]) -> list[BlobRef]:
    """The blobs that a parsed body names, in document order, repeats included."""
    found: list[BlobRef] = []
    _collect_blobs(body, found)
    return found


def _collect_blobs(value: object, found: list[BlobRef]) -> None:
    if isinstance(value, dict):
        if is_blob_ref(value):
            found.append(BlobRef(value["blob"], value["length"]))
            return
        for key in sorted(value):
            _collect_blobs(value[key], found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect_blobs(item, found)


def _check_body(body: object) -> None:
    if type(body) is not dict:
        raise InvalidEvent("a body is a JSON object")
    if "blob" in body:
        raise InvalidEvent("a body cannot itself be a blob reference")
    _check_object(body, DEPTH_MAX - 1)


def _check_object(value: dict[str, object], deeper: int) -> None:
    for key, item in value.items():
        if key not in _known_keys:
            _check_key(key)
        kind = type(item)
        if kind is not str:
            _check(item, kind, deeper)


def _check(value: object, kind: type, deeper: int) -> None:
    """Refuses a value that no body may hold; strings are looked at by the encoder (it refuses lone surrogates)."""
    if kind is bool or value is None:
        return
    if kind is int:
        if not -INTEGER_MAX <= value <= INTEGER_MAX:  # type: ignore[operator]  # `kind` says that it is an int
            raise InvalidEvent("an integer is beyond ±2^53")
        return
    if deeper == 0:
        raise InvalidEvent(f"more than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        if "blob" in value:
            _check_blob(value)
        else:
            _check_object(value, deeper - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            if type(item) is not str:
                _check(item, type(item), deeper - 1)
    else:
        raise InvalidEvent(f"a body holds no {kind.__name__}")


def _check_key(key: str) -> None:
    if type(key) is not str or not _key_form.fullmatch(key):
        raise InvalidEvent("a key is not [a-z0-9_]+")
    if len(_known_keys) < _KNOWN_KEYS_MAX:
        _known_keys.add(key)


def _check_blob(value: dict[str, object]) -> None:
    root, length = value["blob"], value.get("length")
    if len(value) != 2 or type(root) is not str or not _root_form.fullmatch(root):
        raise InvalidEvent("the key `blob` stands only in a blob reference")
    if type(length) is not int or not 0 <= length <= INTEGER_MAX:
        raise InvalidEvent("the length of a blob reference is not a size")


def _check_header(header: Header) -> None:
    if (header.type, header.agent) not in _known_names:
        _check_form("type", header.type, _type_form)
        _check_form("agent", header.agent, _agent_form)
        if len(_known_names) < _KNOWN_KEYS_MAX:
            _known_names.add((header.type, header.agent))
    _check_form("id", header.id, _id_form)
    _check_form("time", header.time, _time_form)
    datetime.fromisoformat(header.time)  # a date that no calendar has would break readers later
    seq, v, cause, epoch = header.seq, header.v, header.cause, header.epoch
    if not type(seq) is type(v) is type(cause) is type(epoch) is int or max(seq, v, cause, epoch) > INTEGER_MAX:
        raise InvalidEvent("a number in the header is no integer within 2^53")
    if seq < 1 or v < 1 or epoch < 0 or not 0 <= cause < seq:
        raise InvalidEvent("a number in the header is out of its range")


def _check_form(name: str, text: str, form: re.Pattern[str]) -> None:
    if not form.fullmatch(text):
        raise InvalidEvent(f"the header's {name} is out of form")


def _difference(one: bytes, other: bytes) -> int:
    """The first index at which the two differ."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
