"""Raw bytes of a model attempt, decoded again by the dialect that they are in.

What a provider tells is a pure function of the bytes and the HTTP status; what the transport says of an attempt (cut,
timed out) is not in them. This module must not know what was recorded.
"""

from collections.abc import Callable

import msgspec

from muse.effect.model import scripted
from muse.effect.model.dialects import WIRE
from muse.effect.model.failure import by_status
from muse.effect.protocol import ModelAnswer, ModelFailure

ERRORS_FROM = 300
"""Below this an HTTP status is a success."""


class Decoded(msgspec.Struct, frozen=True):
    """What the bytes say: an answer (its fields in `model.responded`), or the failures that they may mean."""

    answer: dict[str, object] | None = None
    failures: tuple[ModelFailure, ...] = ()


def decoded(dialect: str, raw: bytes, status: int, number: Callable[[], int]) -> Decoded | None:
    """What these bytes say, None where the dialect is not known. `status` is the recorded one of a failure, else 0;
    `number` gives how many answers the agent had before (a script counts them)."""
    if dialect == "scripted":
        return _scripted(raw, number)
    if dialect not in WIRE:
        return None
    failures: list[ModelFailure] = []
    if status >= ERRORS_FROM:
        failure, message = by_status(status, raw)
        failures.append(ModelFailure(failure=failure, message="" if status < 400 else message, status=status))
    decoder = WIRE[dialect].Decoder()
    decoder.feed(raw)
    found = decoder.finish()
    if isinstance(found, ModelFailure):
        return Decoded(failures=(*failures, found))
    return Decoded(answer=_fields(found), failures=tuple(failures))


def _scripted(raw: bytes, number: Callable[[], int]) -> Decoded:
    try:
        step = msgspec.json.decode(raw, type=scripted.Step)
    except msgspec.MsgspecError:
        return Decoded()
    return Decoded(answer=_fields(scripted.answer_of(step, number())))


def _fields(answer: ModelAnswer) -> dict[str, object]:
    names = ("blocks", "usage", "stop", "stop_raw", "model", "response_id")
    return {name: getattr(answer, name) for name in names}
