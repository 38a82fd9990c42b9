"""What is recorded of an attempt at a model: its answer with what it cost, or its failure with the date to wait for.

The wall clock comes in as a value, so that a test can say what time it is.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from muse.effect.protocol import ModelAnswer, ModelFailure
from muse.event.content import BlobRef, ModelRef, Settings
from muse.event.kinds import ModelFailed, ModelRequested, ModelResponded
from muse.fold.models import RETRYABLE, priced

PARTIAL_CHARACTERS_MAX: Final = 100_000


def answered(
    body: ModelRequested, answer: ModelAnswer, settings: Settings, ref: ModelRef, raw: BlobRef | None, duration_ms: int
) -> ModelResponded:
    """A whole answer. Where the provider did not say what it cost, the known prices do."""
    return ModelResponded(
        call=body.call,
        attempt=body.attempt,
        blocks=answer.blocks,
        stop=answer.stop,
        usage=priced(settings, ref, answer.usage),
        stop_raw=answer.stop_raw,
        model=answer.model,
        response_id=answer.response_id,
        raw=raw,
        duration_ms=duration_ms,
    )


def failed(
    body: ModelRequested,
    failure: ModelFailure,
    settings: Settings,
    ref: ModelRef,
    raw: BlobRef | None,
    duration_ms: int,
    *,
    now: datetime,
    jitter_permille: int,
) -> ModelFailed:
    """A failed attempt, with what had been used by then. A wait of `park_seconds_min` or more becomes a date."""
    wait = failure.retry_after_ms or 0
    is_long = failure.failure in RETRYABLE and wait >= settings.park_seconds_min * 1000
    return ModelFailed(
        call=body.call,
        attempt=body.attempt,
        failure=failure.failure,
        message=failure.message,
        status=failure.status,
        retry_after_ms=failure.retry_after_ms,
        retry_until=date_text(now + timedelta(milliseconds=wait)) if is_long else "",
        jitter_permille=jitter_permille,
        partial=failure.partial[:PARTIAL_CHARACTERS_MAX],
        raw=raw,
        usage=priced(settings, ref, failure.usage),
        duration_ms=duration_ms,
    )


def cancelled(body: ModelRequested, partial: str, duration_ms: int) -> ModelFailed:
    """An attempt that a person stopped. What it used is not known: the connection is closed at once."""
    return ModelFailed(
        call=body.call,
        attempt=body.attempt,
        failure="cancelled",
        message="cancelled",
        partial=partial[:PARTIAL_CHARACTERS_MAX],
        duration_ms=duration_ms,
    )


def date_text(when: datetime) -> str:
    """A date as events hold it: RFC 3339, UTC, microseconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
