"""Model providers on loopback: real HTTP servers of both dialects that follow a script and misbehave on request.

    with AnthropicServer(steps, faults={1: [Trouble("status", status=529), Trouble("torn")]}) as server:
        ... server.base_url, server.api_key ...
    assert server.violations == []

Which step is due is counted from the responses that a request holds, as with the scripted model (and its lanes); the
n-th time that the very same request comes, the n-th trouble of its step happens, then the answer. Every request is
validated strictly (`muse.testing.validate`): what is wrong is answered with 400 and kept in `violations`. With `long`
conversations may be compacted: that earlier messages stay as they were is then for the test to judge, with the log at
hand (`validate.Siblings`). A request whose last message holds one of the texts `asides` gets that answer and counts as
no step, such as one for a summary. The Anthropic server
keeps a prompt cache as the provider documents it, so that usage shows what a real session would cost.
"""

import gzip
import hashlib
import json
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec

from muse.effect.model.scripted import Script, Step
from muse.effect.protocol import FailureClass
from muse.testing import emit
from muse.testing.validate import (
    Conversations,
    anthropic_faults,
    marked_units,
    openai_faults,
    steps_answered,
    units_of,
)

KEY: Final = "sk-test-0123456789abcdef"
"""The key that the servers want unless told otherwise."""

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a request that are read."""

BYTES_A_TOKEN: Final = 4
"""What the made-up token counts are made from."""

TroubleKind = Literal[
    "status", "torn", "cut", "silent", "hang", "stall", "slow", "bytes", "garbage", "html", "error_event",
    "content_type", "gzip", "crlf", "no_end", "redirect",
]  # fmt: skip


class Trouble(msgspec.Struct, frozen=True):
    """One way to answer badly.

    `status`: that HTTP status, with `headers`, error `error` and `message`. `torn`: the connection breaks after the
    share `at` of the bytes; `cut`: the response ends there in good order. `silent`: the connection closes without a
    response; `hang`: no response at all; `stall`: nothing more after the share `at`. `slow`: `delay_ms` between
    events; `bytes`: each byte by itself. `garbage`: an event that is no JSON at the share `at`; `html`: a page instead
    of a stream. `error_event`: error `error` in the stream at the share `at`. `content_type`, `gzip`, `crlf`: good
    answers in an unusual dress; `no_end`: without the closing event, left open. `redirect`: 307 to elsewhere.
    """

    kind: TroubleKind
    at: float = 0.5
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()
    error: str = "api_error"
    message: str = "made up by the test server"
    delay_ms: int = 20


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it came: `headers` with lower-case names, `step` the number of responses it holds, `attempt` how
    often the same request came, from 1."""

    path: str
    headers: dict[str, str]
    body: bytes
    step: int
    attempt: int
    violations: tuple[str, ...]


_AS_TROUBLE: Final[dict[FailureClass, Trouble]] = {
    "rate_limited": Trouble("status", status=429, error="rate_limit_error"),
    "overloaded": Trouble("status", status=529, error="overloaded_error"),
    "server": Trouble("status", status=500),
    "auth": Trouble("status", status=401, error="authentication_error"),
    "invalid": Trouble("status", status=400, error="invalid_request_error"),
    "too_large": Trouble("status", status=413, error="request_too_large"),
    "network": Trouble("silent"),
    "timeout": Trouble("hang"),
    "cut": Trouble("cut"),
    "garbage": Trouble("garbage"),
    "cancelled": Trouble("hang"),
}


class WireServer:
    """What both servers share. A context manager; usable from any thread; listens on 127.0.0.1 on a free port."""

    path = ""

    def __init__(
        self,
        script: Script | Sequence[Step],
        faults: Mapping[int, Sequence[Trouble]] | None = None,
        *,
        api_key: str = KEY,
        branches: bool = False,
        long: bool = False,
        asides: Mapping[str, Step] | None = None,
    ) -> None:
        self.script = script if isinstance(script, Script) else Script(steps=tuple(script))
        self.faults = dict(faults or {})
        self.asides = dict(asides or {})
        self.api_key = api_key
        self.base_url = ""
        self.requests: list[Received] = []
        self.violations: list[str] = []
        self.disconnects = 0
        self.closing = threading.Event()
        self._conversations = None if long else Conversations(branches)
        self._attempts: dict[bytes, int] = {}
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self._server = _Listener(self)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.break_connections()
        self._server.server_close()
        self._thread.join()

    def wait_for_requests(self, count: int, timeout_seconds: float = 30) -> bool:
        """Wait until that many requests have come; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.requests) >= count, timeout_seconds)

    def wait_for_disconnects(self, count: int, timeout_seconds: float = 30) -> bool:
        """Wait until that many clients have gone away before their answer was whole; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: self.disconnects >= count, timeout_seconds)

    def disconnected(self) -> None:
        """Called by a connection whose client went away."""
        with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        """Validate and keep a request."""
        with self._changed:
            wrong = [] if path == self.path else [f"posted to {path}, not {self.path}"]
            wrong += self.validate(headers, body)
            wrong += [] if wrong or self._conversations is None else self._conversations.faults(body)
            digest = hashlib.sha256(body).digest()
            attempt = self._attempts[digest] = self._attempts.get(digest, 0) + 1
            step = 0 if wrong else self._steps(json.loads(body)["messages"])
            received = Received(
                path=path, headers=headers, body=body, step=step, attempt=attempt, violations=tuple(wrong)
            )
            self.requests.append(received)
            self.violations.extend(f"request {len(self.requests)}: {fault}" for fault in wrong)
            self._changed.notify_all()
            return received

    def _steps(self, messages: list[dict[str, Any]]) -> int:
        return (
            steps_answered(messages) if self._conversations is None else sum(m["role"] == "assistant" for m in messages)
        )

    def step(self, received: Received) -> Step:
        """The step that a request asks for."""
        body = json.loads(received.body)
        return self.aside(body) or self.script.step(received.step, self.first_prompt(body))

    def aside(self, body: dict[str, Any]) -> Step | None:
        """The answer to a request that is no step of the script."""
        if not self.asides:
            return None
        last = json.dumps(body["messages"][-1], ensure_ascii=False)
        return next((step for text, step in self.asides.items() if text in last), None)

    def hold(self, received: Received) -> None:
        """Called in the connection's thread before a valid request is answered: a test's server may wait here."""

    def trouble(self, received: Received) -> Trouble | None:
        """What goes wrong with this attempt."""
        listed = () if self.aside(json.loads(received.body)) else self.faults.get(received.step, ())
        if received.attempt <= len(listed):
            return listed[received.attempt - 1]
        failing = self.step(received).failure
        if failing is None or received.attempt > failing.times:
            return None
        trouble = _AS_TROUBLE[failing.failure]
        wait = failing.retry_after_ms
        headers = () if wait is None else (("retry-after-ms", str(wait)),)
        return msgspec.structs.replace(trouble, headers=headers, status=failing.status or trouble.status)

    def validate(self, headers: dict[str, str], body: bytes) -> list[str]:
        """What is wrong with a request by itself."""
        raise NotImplementedError

    def first_prompt(self, body: dict[str, Any]) -> str:
        """The first text that the user says."""
        content = next(message["content"] for message in body["messages"] if message["role"] == "user")
        return content if isinstance(content, str) else next((block.get("text", "") for block in content), "")

    def stream(self, received: Received) -> list[bytes]:
        """The events of the right answer."""
        raise NotImplementedError

    def error_event(self, trouble: Trouble) -> bytes:
        """An error inside the stream."""
        raise NotImplementedError


class AnthropicServer(WireServer):
    """A Messages server."""

    path = "/v1/messages"

    def __init__(
        self,
        script: Script | Sequence[Step],
        faults: Mapping[int, Sequence[Trouble]] | None = None,
        *,
        api_key: str = KEY,
        branches: bool = False,
        long: bool = False,
        asides: Mapping[str, Step] | None = None,
    ) -> None:
        super().__init__(script, faults, api_key=api_key, branches=branches, long=long, asides=asides)
        self._cached: set[bytes] = set()

    def validate(self, headers: dict[str, str], body: bytes) -> list[str]:
        """What a strict Messages server refuses."""
        return anthropic_faults(headers, body, self.api_key)

    def stream(self, received: Received) -> list[bytes]:
        """The events of the right answer, with what it costs."""
        step = self.step(received)
        made = emit.tokens_of(step)
        read, written, plain = self._bill(received.body)
        return emit.anthropic_stream(
            step,
            received.step,
            msgspec.structs.replace(made, input=plain, cache_read=read, cache_write=written),
        )

    def error_event(self, trouble: Trouble) -> bytes:
        """An error inside the stream."""
        return emit.anthropic_error(trouble.error, trouble.message)

    def _bill(self, body: bytes) -> tuple[int, int, int]:
        """Tokens read from the cache, written to it, and paid plainly. What lies before a mark is read if an earlier
        request wrote a mark at exactly that place."""
        units, marks = units_of(body), marked_units(body)
        tools = bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("tools", b""))
        prefixes = {mark: hashlib.sha256(b"\n".join([tools, *units[:mark]])).digest() for mark in marks}
        sizes = [len(tools) + len(units[0]), *(len(unit) for unit in units[1:])]
        read_to = max((mark for mark in marks if prefixes[mark] in self._cached), default=0)
        written_to = max(marks, default=0)
        self._cached.update(prefixes.values())
        read, written = sum(sizes[:read_to]), sum(sizes[read_to:written_to])
        return read // BYTES_A_TOKEN, written // BYTES_A_TOKEN, sum(sizes[written_to:]) // BYTES_A_TOKEN


class OpenAIServer(WireServer):
    """A Chat Completions server."""

    path = "/v1/chat/completions"

    def validate(self, headers: dict[str, str], body: bytes) -> list[str]:
        """What a strict Chat Completions server refuses."""
        return openai_faults(headers, body, self.api_key)

    def stream(self, received: Received) -> list[bytes]:
        """The events of the right answer."""
        step = self.step(received)
        tokens = msgspec.structs.replace(emit.tokens_of(step), input=len(received.body) // BYTES_A_TOKEN)
        return emit.openai_stream(step, received.step, tokens)

    def error_event(self, trouble: Trouble) -> bytes:
        """An error inside the stream."""
        return emit.openai_error(trouble.error, trouble.message)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 512
    block_on_close = True

    def __init__(self, owner: WireServer) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remembers the connection, so that closing the server ends it."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets the connection and closes it."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        """Ends every connection that is open, so that no thread waits for its client."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # it may be gone already, which is all that is wanted
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is counted; a mistake of the server itself must fail the test, so it is kept."""
        error = sys.exception()
        if isinstance(error, OSError):
            self.owner.disconnected()
        else:
            self.owner.violations.append(f"the test server failed: {error!r}")


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        """One request: read, judge, answer, close."""
        self.close_connection = True
        owner = self.server.owner
        length = min(int(self.headers.get("content-length", "0")), BODY_BYTES_MAX)
        body = self.rfile.read(length)
        if len(body) < length:  # the client died while it sent: that is no request
            owner.disconnected()
            return
        received = owner.receive(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        if received.violations:
            self._respond(400, emit.error_body("invalid_request_error", "; ".join(received.violations)))
            return
        owner.hold(received)
        owner.closing.wait(owner.step(received).delay_ms / 1000)
        trouble = owner.trouble(received)
        if trouble is None:
            self._stream([b"".join(owner.stream(received))])
        elif trouble.kind in ("status", "redirect", "html", "silent", "hang"):
            self._instead(trouble)
        else:
            self._troubled(trouble, owner.stream(received))

    def _instead(self, trouble: Trouble) -> None:
        """Something else than a stream."""
        match trouble.kind:
            case "status":
                self._respond(trouble.status, emit.error_body(trouble.error, trouble.message), trouble.headers)
            case "redirect":
                self._respond(307, b"", (("location", "http://127.0.0.1:9/elsewhere"),))
            case "html":
                self._stream([b"<html><body>data is elsewhere</body></html>\n"], content_type="text/html")
            case "silent":
                pass
            case _:
                self._wait_for_client()

    def _troubled(self, trouble: Trouble, events: list[bytes]) -> None:
        """A stream with something wrong or unusual about it."""
        whole = b"".join(events)
        start = whole[: int(len(whole) * trouble.at)]
        event = max(int(len(events) * trouble.at), 1)
        match trouble.kind:
            case "torn":
                self._stream([start], end=False)
            case "cut":
                self._stream([start])
            case "stall":
                self._stream([start], end=False)
                self._wait_for_client()
            case "no_end":
                self._stream(events[:-1], end=False)
                self._wait_for_client()
            case "garbage":
                self._stream([*events[:event], b"data: {not json\n\n", *events[event:]])
            case "error_event":
                self._stream([*events[:event], self.server.owner.error_event(trouble)])
            case _:
                self._dressed(trouble, events)

    def _dressed(self, trouble: Trouble, events: list[bytes]) -> None:
        """A whole answer that looks or comes unusual."""
        whole = b"".join(events)
        match trouble.kind:
            case "slow":
                self._stream(events, delay_ms=trouble.delay_ms)
            case "bytes":
                self._stream([whole[at : at + 1] for at in range(len(whole))])
            case "content_type":
                self._stream(events, content_type="text/plain")
            case "crlf":
                self._stream([b": hello\r\n\r\n", whole.replace(b"\n", b"\r\n")])
            case _:
                self._stream([gzip.compress(whole, mtime=0)], encoding="gzip")

    def _respond(self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(
        self,
        parts: Sequence[bytes],
        *,
        content_type: str = "text/event-stream",
        encoding: str = "",
        delay_ms: int = 0,
        end: bool = True,
    ) -> None:
        """The parts, each as a chunk of its own (RFC 9112, 7.1); without `end` the body stays unfinished."""
        self.send_response(200)
        self.send_header("content-type", content_type)
        if encoding:
            self.send_header("content-encoding", encoding)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for part in parts:
            if part:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            if delay_ms and self.server.owner.closing.wait(delay_ms / 1000):
                return
        if end:
            self.wfile.write(b"0\r\n\r\n")

    def _wait_for_client(self) -> None:
        """Waits until the client goes away, or the server is closed."""
        with suppress(OSError):
            self.connection.recv(1)
        if not self.server.owner.closing.is_set():
            self.server.owner.disconnected()
