"""Why an attempt failed: from a status, an error object or a header to the class that decides what happens next.

Both dialects share it, for both wrap errors as `{"error": {...}}` and gateways mix their words. This module must not
know whether anything is tried again.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from muse.effect.protocol import FailureClass, ModelFailure
from muse.event.text import clean

MESSAGE_CHARS_MAX: Final = 2000
"""Characters of a provider's message that are kept in ours; the whole stands in the raw bytes."""

RETRY_AFTER_MS_MAX: Final = 32 * 24 * 3600 * 1000
"""The longest wait that is taken from a provider: that for a quota of a month."""

_RESETS: Final = (
    *((f"anthropic-ratelimit-{what}-reset", f"anthropic-ratelimit-{what}-remaining")
      for what in ("requests", "tokens", "input-tokens", "output-tokens")),
    ("anthropic-ratelimit-unified-reset", "anthropic-ratelimit-unified-status"),
    *((f"x-ratelimit-reset-{what}", f"x-ratelimit-remaining-{what}") for what in ("requests", "tokens")),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
)  # fmt: skip
"""When a limit has room again, and beside it what says that it is used up. Anthropic gives dates (RFC 3339, or seconds
since 1970), OpenAI durations (`6m0s`), OpenRouter milliseconds since 1970."""
MILLISECONDS_FROM: Final = 1e11
"""A number above this is no count of seconds since 1970."""
_USED_UP: Final = ("0", "rejected")
_duration: Final = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9.]+)s)?(?:([0-9.]+)ms)?")

_TOO_LARGE: Final = (
    "prompt is too long", "context_length_exceeded", "maximum context length", "request_too_large",
    "exceed_context_size", "exceeds the available context size", "input is too long", "exceeds the context window",
    "context window exceeded", "too many tokens",
)  # fmt: skip
_ACCOUNT: Final = ("insufficient_quota", "credit balance is too low", "billing_error", "exceeded your current quota")
_BY_TYPE: Final[tuple[tuple[str, FailureClass], ...]] = (
    ("overloaded", "overloaded"), ("rate_limit", "rate_limited"), ("too_many_requests", "rate_limited"),
    ("authentication", "auth"), ("permission", "auth"), ("invalid_api_key", "auth"), ("not_found", "invalid"),
    ("invalid_request", "invalid"), ("timeout", "timeout"), ("unavailable", "overloaded"),
)  # fmt: skip
_BY_STATUS: Final[dict[int, FailureClass]] = {
    401: "auth", 402: "auth", 403: "auth", 408: "timeout", 409: "server", 413: "too_large", 425: "server",
    429: "rate_limited", 503: "overloaded", 529: "overloaded",
}  # fmt: skip


def by_status(status: int, body: bytes) -> tuple[FailureClass, str]:
    """Class and message of a response that is no success. `body` is its content, perhaps cut."""
    kind, message = error_in(body)
    words = f"{kind} {message}".lower()
    if any(word in words for word in _ACCOUNT):
        return "auth", message
    if status in (400, 404, 413, 422, 500) and any(word in words for word in _TOO_LARGE):
        return "too_large", message
    if status >= 500:
        return _BY_STATUS.get(status, "server"), message
    return _BY_STATUS.get(status, "invalid"), message


def by_error(error: object) -> ModelFailure:
    """The failure that an error object inside a stream means: `{"type": …, "code": …, "message": …}` or a string."""
    kind, message = _described(error)
    words = f"{kind} {message}".lower()
    failure: FailureClass
    status = _code(error)
    if any(word in words for word in _ACCOUNT):
        failure = "auth"
    elif any(word in words for word in _TOO_LARGE):
        failure = "too_large"
    elif status:
        failure, _ = by_status(status, b"")
    else:
        failure = next((found for word, found in _BY_TYPE if word in kind.lower()), "server")
    return ModelFailure(failure=failure, message=message or kind or "the provider sent an error", status=status)


def no_stream(body: bytes) -> ModelFailure:
    """What a successful response without any event means: an error object, or garbage."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("error"):
        return by_error(value["error"])
    return ModelFailure(failure="garbage", message=f"the response is no event stream: {excerpt(body)[:200]}")


def error_in(body: bytes) -> tuple[str, str]:
    """Type and message of an error body; for what is no JSON error, "" and the start of its text."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        kind, message = _described(value.get("error") or value)
        if kind or message:
            return kind, message
    return "", excerpt(body)


def excerpt(data: bytes | str) -> str:
    """The start of some text, on one line."""
    return " ".join(clean(data).text.split())[:MESSAGE_CHARS_MAX]


def retry_after_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """How long the provider asks to wait: `retry-after-ms`, else `retry-after` in seconds or as a date (RFC 9110,
    10.2.3), which counts from the response's own `date` where it has one. `headers` has lower-case names."""
    for name, unit in (("retry-after-ms", 1), ("retry-after", 1000)):
        wait = _number(headers.get(name, ""))
        if wait is not None:
            return _bounded(wait * unit)
    until = _date(headers.get("retry-after", ""))
    if until is None:
        return None
    return _bounded((until - (_date(headers.get("date", "")) or now)).total_seconds() * 1000)


def reset_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """How long until every limit that is used up has room again, as a refusal's headers tell it where it does not say
    `retry-after` (platform.claude.com/docs/en/api/rate-limits; platform.openai.com/docs/guides/rate-limits)."""
    given = [headers.get(reset, "") for reset, left in _RESETS if headers.get(left, "").strip() in _USED_UP]
    waits = [wait for text in given if (wait := _until(text.strip(), now)) is not None]
    return _bounded(max(waits)) if waits else None


def _until(text: str, now: datetime) -> float | None:
    """Milliseconds from now, of a date, of seconds or milliseconds since 1970, or of a duration."""
    if (number := _number(text)) is not None:
        since = number if number > MILLISECONDS_FROM else number * 1000
        return since - now.timestamp() * 1000
    if text and (found := _duration.fullmatch(text)):
        parts = [_number(part or "0") or 0 for part in found.groups()]
        return sum(part * unit for part, unit in zip(parts, (3_600_000, 60_000, 1000, 1), strict=True))
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000 - now.timestamp() * 1000


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _bounded(milliseconds: float) -> int:
    return math.ceil(min(max(milliseconds, 0), RETRY_AFTER_MS_MAX))


def _date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _described(error: object) -> tuple[str, str]:
    if isinstance(error, str):
        return "", excerpt(error)
    if not isinstance(error, dict):
        return "", ""
    kinds = [str(error[key]) for key in ("type", "code", "status") if error.get(key) is not None]
    message = error.get("message") or error.get("detail") or ""
    return " ".join(kinds), excerpt(message if isinstance(message, str) else json.dumps(message))


def _code(error: object) -> int:
    """An HTTP status given as an error's `code` (some gateways do), else 0."""
    code = error.get("code") if isinstance(error, dict) else None
    code = int(code) if isinstance(code, str) and code.isdecimal() and len(code) == 3 else code
    return code if type(code) is int and 400 <= code <= 599 else 0
