from datetime import UTC, datetime

import pytest

from muse.effect.model.failure import by_error, by_status, no_stream, reset_ms, retry_after_ms

LIMIT = "anthropic-ratelimit"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (400, b'{"type":"error","error":{"type":"invalid_request_error","message":"messages: bad"}}', "invalid"),
        (400, b'{"error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens"}}', "too_large"),
        (400, b'{"error":{"code":"context_length_exceeded","message":"maximum context"}}', "too_large"),
        (
            400,
            b'{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds"}}',
            "too_large",
        ),
        (400, b'{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}', "auth"),
        (401, b'{"error":{"type":"authentication_error","message":"invalid x-api-key"}}', "auth"),
        (402, b"{}", "auth"),
        (403, b"<html>forbidden</html>", "auth"),
        (404, b'{"error":{"type":"not_found_error","message":"model: x"}}', "invalid"),
        (408, b"", "timeout"),
        (413, b"", "too_large"),
        (422, b'{"detail":"bad"}', "invalid"),
        (429, b'{"error":{"type":"rate_limit_error","message":"slow down"}}', "rate_limited"),
        (429, b'{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}', "auth"),
        (500, b"", "server"),
        (502, b"bad gateway", "server"),
        (503, b"", "overloaded"),
        (504, b"", "server"),
        (529, b'{"error":{"type":"overloaded_error","message":"Overloaded"}}', "overloaded"),
        (301, b"", "invalid"),
        (418, b"\xff\xfe", "invalid"),
    ],
)
def test_each_refusal_has_its_class(status: int, body: bytes, failure: str) -> None:
    assert by_status(status, body)[0] == failure


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"no  such\\nmodel"}}', "no such model"),
        (b'{"error":"plain"}', "plain"),
        (b'{"message":"top"}', "top"),
        (b"[1]", "[1]"),
        (b"\xff gone", "\ufffd gone"),
        (b'{"error":{"message":{"a":1}}}', '{"a": 1}'),
        (b"x" * 5000, "x" * 2000),
        (b"", ""),
    ],
)
def test_the_message_is_the_providers_own_on_one_line(body: bytes, message: str) -> None:
    assert by_status(400, body)[1] == message


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "api_error", "message": "Internal server error"}, "server"),
        ({"type": "rate_limit_error", "message": "x"}, "rate_limited"),
        ({"type": "authentication_error", "message": "x"}, "auth"),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, "too_large"),
        ({"type": "invalid_request_error", "message": "x"}, "invalid"),
        ({"code": 502, "message": "Provider returned error"}, "server"),
        ({"code": "429", "message": "x"}, "rate_limited"),
        ({"code": 5020, "message": "x"}, "server"),
        ("something broke", "server"),
        (7, "server"),
    ],
)
def test_an_error_inside_a_stream_has_its_class(error: object, failure: str) -> None:
    assert by_error(error).failure == failure


def test_a_success_that_is_no_stream_is_its_error_or_garbage() -> None:
    assert no_stream(b'{"error":{"type":"overloaded_error","message":"later"}}').failure == "overloaded"
    assert no_stream(b"<html>").failure == "garbage"
    assert no_stream(b"[" * 100_000).failure == "garbage"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "1.5"}, 1500),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 250),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7000),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT"}, 30_000),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT", "date": "Fri, 02 Jan 2026 03:04:25 GMT"}, 10_000),
        ({"retry-after": "Fri, 02 Jan 2026 03:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 99 Jan 2026"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, 2_764_800_000),
        ({"retry-after": "1e9"}, 2_764_800_000),
    ],
)
def test_the_wait_that_a_provider_asks_for(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(headers, NOW) == expected


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({f"{LIMIT}-tokens-remaining": "0", f"{LIMIT}-tokens-reset": "2026-01-02T03:05:05Z"}, 60_000),
        ({f"{LIMIT}-unified-status": "rejected", f"{LIMIT}-unified-reset": "1767326645"}, 3_600_000),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360_000),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h1.5s"}, 3_601_500),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 20),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767323105000"}, 60_000),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "6m0s"}, None),
        ({f"{LIMIT}-tokens-remaining": "0", f"{LIMIT}-tokens-reset": "soon"}, None),
        ({f"{LIMIT}-tokens-remaining": "0", f"{LIMIT}-tokens-reset": "2020-01-01T00:00:00Z"}, 0),
        ({f"{LIMIT}-tokens-remaining": "0", f"{LIMIT}-tokens-reset": "9e99"}, 2_764_800_000),
        ({}, None),
    ],
)  # fmt: skip
def test_when_a_limit_that_is_used_up_has_room_again(headers: dict[str, str], wait: int | None) -> None:
    assert reset_ms(headers, NOW) == wait


def test_of_several_limits_that_are_used_up_the_last_to_have_room_counts() -> None:
    headers = {
        "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2s",
        "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m",
    }  # fmt: skip
    assert reset_ms(headers, NOW) == 60_000
