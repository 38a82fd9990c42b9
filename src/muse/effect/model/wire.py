"""Models over HTTP: one attempt at a time, its bytes recorded, its failure classed.

Decisions. Each attempt has a connection of its own: none is found dead because it idled while a tool ran, and
cancelling the task closes it at once. Redirects are not followed (a key must not travel on). Proxies and certificate
files of the environment are honoured (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`), but never for a loopback address;
`.netrc` is not read. Responses are asked for uncompressed, taken compressed as well, and recorded as decompressed
bytes. Keys are replaced by SECRET_SHOWN in everything that leaves this module. It must not know what is tried again.
"""

import re
import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from muse import __version__
from muse.effect.model.dialects import WIRE
from muse.effect.model.failure import by_status, excerpt, reset_ms, retry_after_ms
from muse.effect.protocol import Decoder, FailureClass, Model, ModelAnswer, ModelFailure, Show
from muse.errors import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

RAW_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one response that are taken and recorded; a longer one fails as `garbage`."""

ERROR_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one error body that are taken and recorded."""

CAUSES_MAX: Final = 100
"""So many errors behind an error are looked at."""

SECRET_CHARS_MIN: Final = 8
"""Shorter keys (placeholders such as `x` for local servers) are not looked for in what comes back."""

SECRET_SHOWN: Final = "[api key]"
"""Stands where a key stood."""

_LOOPBACK: Final = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|::1")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on one attempt, in seconds: to connect, between two reads (local models think long before the first
    byte), for sending, and for all of it."""

    connect_seconds: float = 20
    read_seconds: float = 300
    write_seconds: float = 60
    total_seconds: float = 1800


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is asked. `name` is the provider's name in settings; `api_key` may be "" for local servers."""

    name: str
    dialect: str
    base_url: str
    api_key: str = ""
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"Endpoint(name={self.name!r}, dialect={self.dialect!r}, base_url={shown_url(self.base_url)!r})"


def make_model(endpoint: Endpoint) -> Model:
    """The model client for an endpoint. Raises ConfigError if dialect, address or key cannot be used."""
    if endpoint.dialect not in WIRE:
        raise ConfigError(f"no dialect {endpoint.dialect!r}", hint=f"there are: {', '.join(sorted(WIRE))}")
    try:
        parts = urlsplit(endpoint.base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"base_url of the provider {endpoint.name} is no http(s) address: {shown_url(endpoint.base_url)}"
        )
    key = endpoint.api_key.strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError(
            f"the key for {endpoint.name} holds characters that no key has", hint="was more than the key copied?"
        )
    return WireModel(msgspec.structs.replace(endpoint, api_key=key))


class WireModel:
    """A `Model` behind an HTTP endpoint; safe to use from several tasks at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dialect = WIRE[endpoint.dialect]

    async def ask(self, request: bytes, call: str, attempt: int, show: Show) -> ModelAnswer | ModelFailure:
        """One attempt. Never raises but for cancellation, which closes the connection."""
        from anyio import move_on_after

        started = time.monotonic()
        received = _Received(self._dialect.Decoder())
        limit = self._endpoint.timeouts.total_seconds
        with move_on_after(limit) as scope:
            result = await self._guarded(request, received, show)
        if scope.cancelled_caught:
            result = received.ended("timeout", f"no whole response within {limit:g} s")
        duration_ms = int((time.monotonic() - started) * 1000)
        result = msgspec.structs.replace(result, raw=bytes(received.raw), duration_ms=duration_ms)
        return scrubbed(result, self._endpoint.api_key)

    async def _guarded(self, request: bytes, received: "_Received", show: Show) -> ModelAnswer | ModelFailure:
        import httpx2

        where = shown_url(self._endpoint.base_url)
        try:
            return await self._exchange(request, received, show)
        except httpx2.TimeoutException as error:
            return received.ended("timeout", f"{where}: {_timed_out(error, self._endpoint.timeouts)}")
        except httpx2.DecodingError as error:
            return received.ended("garbage", f"{where}: cannot decompress the response: {error}")
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            return received.ended("invalid", f"{where}: {_named(error)}")
        except httpx2.TransportError as error:
            words = _unconnected(error, self._endpoint.base_url) or f"{where}: {_named(error)}"
            return received.ended("cut" if received.begun else "network", words)
        except Exception as error:  # noqa: BLE001  # the model border: whatever goes wrong becomes a recorded failure
            received.begun = False
            return received.ended("invalid", f"{where}: {_named(error)}")

    async def _exchange(self, request: bytes, received: "_Received", show: Show) -> ModelAnswer | ModelFailure:
        async with (
            self._client() as client,
            client.stream("POST", self._dialect.url(self._endpoint.base_url), content=request) as response,
        ):
            if response.status_code != 200:
                return await self._refused(response, received)
            received.begun = True
            async with aclosing(response.aiter_bytes()) as body:
                async for data in body:
                    if not received.take(data, RAW_BYTES_MAX):
                        return received.ended("garbage", f"the response is longer than {RAW_BYTES_MAX} bytes")
                    for piece in received.decoder.feed(data):
                        show(piece)
                    if received.decoder.done():
                        break
            return received.decoder.finish()

    async def _refused(self, response: "httpx2.Response", received: "_Received") -> ModelFailure:
        async with aclosing(response.aiter_bytes()) as body:
            async for data in body:
                if not received.take(data, ERROR_BYTES_MAX):
                    break
        failure, message = by_status(response.status_code, bytes(received.raw))
        if response.is_redirect:
            message = "it redirects, which is not followed: set base_url to the right address"
        headers = {name.lower(): value for name, value in response.headers.items()}
        return ModelFailure(
            failure=failure, status=response.status_code, retry_after_ms=_wait_ms(response.status_code, headers),
            message=f"{shown_url(self._endpoint.base_url)} answered {response.status_code}: {message}",
        )  # fmt: skip

    def _client(self) -> "httpx2.AsyncClient":
        import httpx2

        endpoint, times = self._endpoint, self._endpoint.timeouts
        parts = urlsplit(endpoint.base_url)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "user-agent": f"muse/{__version__}",
        }
        options: dict[str, Any] = {"verify": _certificates() if parts.scheme == "https" else False}
        return httpx2.AsyncClient(
            headers=headers | self._dialect.headers(endpoint.api_key),
            timeout=httpx2.Timeout(times.read_seconds, connect=times.connect_seconds, write=times.write_seconds),
            trust_env=not _LOOPBACK.fullmatch(parts.hostname or ""),
            follow_redirects=False,
            **options,
        )


class _Received:
    """What one attempt has brought so far."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.raw = bytearray()
        self.begun = False

    def take(self, data: bytes, bytes_max: int) -> bool:
        """Keeps the bytes, up to the limit; False once they go beyond it."""
        self.raw += data[: bytes_max - len(self.raw)]
        return len(self.raw) < bytes_max

    def ended(self, failure: FailureClass, message: str) -> ModelAnswer | ModelFailure:
        """The attempt ended early: its answer, should that have been whole already, or the failure with the text so
        far, and with what was used for it."""
        result = self.decoder.finish() if self.begun else None
        if isinstance(result, ModelAnswer):
            return result
        found = result or ModelFailure(failure=failure, message="")
        return ModelFailure(failure=failure, message=excerpt(message), partial=found.partial, usage=found.usage)


def shown_url(url: str) -> str:
    """An address for people: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _wait_ms(status: int, headers: dict[str, str]) -> int | None:
    """How long the provider asks to wait, also where it says so in the terms of its limits only."""
    now = datetime.now(UTC)
    asked = retry_after_ms(headers, now)
    return reset_ms(headers, now) if asked is None and status == 429 else asked


def scrubbed(result: ModelAnswer | ModelFailure, secret: str) -> ModelAnswer | ModelFailure:
    """The same result with SECRET_SHOWN in place of the secret, in every text and in the raw bytes."""
    if len(secret) < SECRET_CHARS_MIN:
        return result
    found: ModelAnswer | ModelFailure = _without(result, secret)
    return found


def _without(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace(secret, SECRET_SHOWN)
    if isinstance(value, bytes):
        return value.replace(secret.encode(), SECRET_SHOWN.encode())
    if isinstance(value, tuple):
        return tuple(_without(item, secret) for item in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: _without(getattr(value, name), secret) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def _timed_out(error: "httpx2.TimeoutException", times: Timeouts) -> str:
    """Which limit was reached; the library's own error has no text."""
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {times.connect_seconds:g} s"
    if isinstance(error, httpx2.WriteTimeout):
        return f"the request could not be sent for {times.write_seconds:g} s"
    return f"nothing came for {times.read_seconds:g} s"


def _unconnected(error: Exception, base_url: str) -> str:
    """Why there was no connection, in words, "" where the system does not say: the library names none of it."""
    import socket

    parts = urlsplit(base_url)
    host = parts.hostname or ""
    place = f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"the name {host} leads nowhere: is it right, and is this machine online?"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        here = _LOOPBACK.fullmatch(host)
        return f"nothing listens on {place}; is the server running?" if here else f"{place} refuses the connection"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error with all that led to it, groups taken apart."""
    waiting, seen = [error], 0
    while waiting and seen < CAUSES_MAX:
        one = waiting.pop()
        seen += 1
        yield one
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _named(error: Exception) -> str:
    """What went wrong, with the kind of error."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@lru_cache(maxsize=1)
def _certificates() -> "SSLContext":
    """The TLS settings, read once: reading them costs tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context()
