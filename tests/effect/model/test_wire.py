import logging
import socket
import subprocess
import sys
from itertools import pairwise
from typing import Any

import anyio
import pytest

from muse.effect.model import anthropic, openai, wire
from muse.effect.model.scripted import Failing, Step
from muse.effect.model.wire import SECRET_SHOWN, Endpoint, Timeouts, make_model, scrubbed, shown_url
from muse.effect.protocol import ModelAnswer, ModelFailure
from muse.errors import ConfigError
from muse.event.content import Block, Usage
from muse.event.conversation import TranscriptItem
from muse.testing.wire import KEY, AnthropicServer, OpenAIServer, Trouble, WireServer
from tests.effect.model.samples import answered, ask, request, resulted, said

STEPS = [Step(text="Half of it, and more 😀.", uses=(("shell", {"command": "ls"}),)), Step(text="Done.")]
PROMPT = request(said("go"))
MODULES: dict[str, Any] = {"anthropic": anthropic, "openai": openai}
SERVERS: dict[str, type[WireServer]] = {"anthropic": AnthropicServer, "openai": OpenAIServer}


@pytest.fixture(params=["anthropic", "openai"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def endpoint(server: WireServer, dialect: str, **times: float) -> Endpoint:
    return Endpoint(
        name="test", dialect=dialect, base_url=server.base_url, api_key=server.api_key, timeouts=Timeouts(**times)
    )


def attempts(dialect: str, *troubles: Trouble, disconnects: int = 0, **times: float) -> tuple[list[Any], WireServer]:
    """What the same request gets, once for each trouble and once without. The server waits until it has seen that many
    clients go away."""
    with SERVERS[dialect](STEPS, {0: troubles}) as server:
        model = make_model(endpoint(server, dialect, **times))
        body = MODULES[dialect].build(PROMPT)
        outcomes = [ask(model, body, attempt)[1] for attempt in range(1, len(troubles) + 2)]
        assert server.wait_for_disconnects(disconnects)
    assert server.violations == []
    return outcomes, server


def test_an_answer_is_whole_and_its_bytes_are_recorded(dialect: str) -> None:
    with SERVERS[dialect](STEPS) as server:
        shown, outcome = ask(make_model(endpoint(server, dialect)), MODULES[dialect].build(PROMPT))
    # A second server, which has the same empty cache, says the same.
    expected = b"".join(SERVERS[dialect](STEPS).stream(server.requests[0]))
    assert isinstance(outcome, ModelAnswer)
    assert shown == STEPS[0].text
    assert (outcome.blocks[0].text, outcome.blocks[1].args, outcome.stop) == (shown, '{"command":"ls"}', "tool_use")
    assert outcome.raw == expected


@pytest.mark.parametrize(
    ("trouble", "failure"),
    [
        (Trouble("torn"), "cut"),
        (Trouble("cut"), "cut"),
        (Trouble("cut", at=0), "cut"),
        (Trouble("garbage"), "garbage"),
        (Trouble("html"), "garbage"),
        (Trouble("error_event", error="overloaded_error"), "overloaded"),
        (Trouble("silent"), "network"),
        (Trouble("redirect"), "invalid"),
        (Trouble("status", status=429), "rate_limited"),
        (Trouble("status", status=529), "overloaded"),
        (Trouble("status", status=500), "server"),
        (Trouble("status", status=401), "auth"),
        (Trouble("status", status=404), "invalid"),
        (Trouble("status", status=413), "too_large"),
    ],
)
def test_each_trouble_has_its_class_and_the_next_attempt_answers(dialect: str, trouble: Trouble, failure: str) -> None:
    outcomes, _ = attempts(dialect, trouble)
    assert isinstance(outcomes[0], ModelFailure)
    assert outcomes[0].failure == failure
    assert STEPS[0].text.startswith(outcomes[0].partial)
    assert outcomes[0].status == (trouble.status if trouble.kind == "status" else outcomes[0].status)
    assert isinstance(outcomes[1], ModelAnswer)


@pytest.mark.parametrize("kind", ["hang", "stall"])
def test_silence_is_a_time_out_that_closes_the_connection_and_keeps_the_text(dialect: str, kind: Any) -> None:
    outcomes, server = attempts(dialect, Trouble(kind, at=0.6), disconnects=1, read_seconds=0.2)
    assert isinstance(outcomes[0], ModelFailure)
    assert outcomes[0].failure == "timeout"
    assert (outcomes[0].partial != "") == (kind == "stall")
    assert (outcomes[0].raw != b"") == (kind == "stall")
    assert server.disconnects == 1


def test_the_total_time_is_limited_however_busy_the_stream_is(dialect: str) -> None:
    outcomes, _ = attempts(dialect, Trouble("slow", delay_ms=100), total_seconds=0.3)
    assert isinstance(outcomes[0], ModelFailure)
    assert (outcomes[0].failure, "0.3 s" in outcomes[0].message) == ("timeout", True)


@pytest.mark.parametrize("kind", ["bytes", "slow", "gzip", "crlf", "content_type"])
def test_a_good_answer_in_an_unusual_dress_is_the_same_answer(dialect: str, kind: Any) -> None:
    outcomes, _ = attempts(dialect, Trouble(kind, delay_ms=1))
    assert isinstance(outcomes[0], ModelAnswer)
    assert outcomes[0].blocks == outcomes[1].blocks


def test_a_whole_answer_counts_even_if_the_server_never_hangs_up() -> None:
    outcomes, _ = attempts("openai", Trouble("no_end"), read_seconds=0.2)
    assert isinstance(outcomes[0], ModelAnswer)


def test_nothing_is_awaited_after_the_end_of_the_answer() -> None:
    with AnthropicServer(STEPS, {0: [Trouble("stall", at=1)]}) as server:
        model = make_model(endpoint(server, "anthropic", read_seconds=600))

        async def run() -> object:
            with anyio.fail_after(60):
                return await model.ask(anthropic.build(PROMPT), "main/1", 1, lambda text: None)

        assert isinstance(anyio.run(run), ModelAnswer)
        assert server.wait_for_disconnects(1)


def test_cancelling_closes_the_connection_at_once(dialect: str) -> None:
    with SERVERS[dialect](STEPS, {0: [Trouble("hang")]}) as server:
        model = make_model(endpoint(server, dialect))

        async def run() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(model.ask, MODULES[dialect].build(PROMPT), "main/1", 1, lambda text: None)
                assert await anyio.to_thread.run_sync(server.wait_for_requests, 1)
                group.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(server.wait_for_disconnects, 1)

        anyio.run(run)


def test_a_server_that_is_not_there_is_a_network_failure(dialect: str) -> None:
    with SERVERS[dialect](STEPS) as server:
        gone = endpoint(server, dialect)
    outcome = ask(make_model(gone), MODULES[dialect].build(PROMPT))[1]
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "network"
    assert server.base_url.partition("://")[2].partition("/")[0] in outcome.message


def test_the_wait_that_a_server_asks_for_is_passed_on(dialect: str) -> None:
    outcomes, _ = attempts(
        dialect,
        Trouble("status", status=429, headers=(("Retry-After", "7"),)),
        Trouble("status", status=529, headers=(("retry-after-ms", "1500"),)),
        Trouble("status", status=503),
    )
    assert [outcome.retry_after_ms for outcome in outcomes[:3]] == [7000, 1500, None]


def test_a_response_beyond_the_limit_is_garbage_and_its_bytes_are_bounded(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "RAW_BYTES_MAX", 300)
    outcomes, _ = attempts(dialect, Trouble("bytes"))
    assert [(outcome.failure, len(outcome.raw)) for outcome in outcomes] == [("garbage", 300)] * 2


def test_the_key_is_in_nothing_that_comes_back(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = Trouble("status", status=401, message=f"Incorrect API key provided: {KEY}")
    step = Step(text=f"Your key is {KEY}.", uses=(("shell", {"command": f"echo {KEY}"}),))
    with SERVERS[dialect]([step], {0: [echo]}) as server:
        model = make_model(endpoint(server, dialect))
        outcomes = [ask(model, MODULES[dialect].build(PROMPT))[1] for _ in range(2)]
    assert isinstance(outcomes[0], ModelFailure)
    assert SECRET_SHOWN in outcomes[0].message
    assert SECRET_SHOWN.encode() in outcomes[0].raw
    assert isinstance(outcomes[1], ModelAnswer)
    assert outcomes[1].blocks[0].text == f"Your key is {SECRET_SHOWN}."
    assert KEY not in repr(outcomes)
    assert KEY not in caplog.text
    assert KEY not in repr(endpoint(server, dialect))


def test_short_placeholders_are_not_taken_out_of_texts() -> None:
    answer = ModelAnswer(blocks=(Block(kind="text", text="an x"),), usage=Usage(), stop="end_turn")
    assert scrubbed(answer, "x") == answer


def test_a_loopback_server_is_reached_past_a_configured_proxy(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    outcomes, _ = attempts(dialect)
    assert isinstance(outcomes[0], ModelAnswer)


def test_a_local_server_needs_no_key() -> None:
    with OpenAIServer(STEPS, api_key="") as server:
        outcome = ask(make_model(endpoint(server, "openai")), openai.build(PROMPT))[1]
    assert isinstance(outcome, ModelAnswer)
    assert "authorization" not in server.requests[0].headers


def test_a_wrong_key_is_refused_by_the_server_and_seen_in_its_violations(dialect: str) -> None:
    with SERVERS[dialect](STEPS) as server:
        wrong = Endpoint(name="x", dialect=dialect, base_url=server.base_url, api_key="sk-another-one")
        outcome = ask(make_model(wrong), MODULES[dialect].build(PROMPT))[1]
    assert isinstance(outcome, ModelFailure)
    assert len(server.violations) == 1


@pytest.mark.parametrize("key", ["sk-with space", "sk-é", "a\nb", "sk-\x00"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_model(Endpoint(name="test", dialect="openai", base_url="http://127.0.0.1", api_key=key))
    assert key not in f"{caught.value} {caught.value.hint}"


def test_white_space_around_a_key_is_no_part_of_it() -> None:
    with OpenAIServer(STEPS) as server:
        model = make_model(
            Endpoint(name="x", dialect="openai", base_url=server.base_url, api_key=f" {server.api_key}\n")
        )
        assert isinstance(ask(model, openai.build(PROMPT))[1], ModelAnswer)


@pytest.mark.parametrize("url", ["", "example.org", "ftp://example.org", "http://", "http://[", "http://a:port"])
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no http"):
        make_model(Endpoint(name="test", dialect="openai", base_url=url))


def test_a_dialect_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(ConfigError, match="no dialect 'morse'"):
        make_model(Endpoint(name="test", dialect="morse", base_url="http://127.0.0.1"))


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown_url("https://me:pass@example.org:8443/v1?key=secret#x") == "https://example.org:8443/v1"


def test_a_long_session_pays_for_what_is_new_and_reads_the_rest_from_the_cache() -> None:
    turns = 40
    steps = [Step(text="x" * 200, uses=(("shell", {"n": n}),)) for n in range(turns)]
    items: list[TranscriptItem] = [said("go")]
    paid: list[int] = []
    read: list[int] = []
    with AnthropicServer(steps) as server:
        model = make_model(endpoint(server, "anthropic"))
        for turn in range(turns):
            outcome = ask(model, anthropic.build(request(*items, system="s" * 2000)))[1]
            assert isinstance(outcome, ModelAnswer)
            paid.append(outcome.usage.input + outcome.usage.cache_write)
            read.append(outcome.usage.cache_read)
            items += [answered(*outcome.blocks, seq=2 * turn + 2), resulted(f"use_{turn}_0", "y" * 400)]
    assert server.violations == []
    assert max(paid[1:]) - min(paid[1:]) <= 2
    assert all(later - earlier == pytest.approx(paid[1], abs=2) for earlier, later in pairwise(read[1:]))


def test_a_script_can_fail_over_the_wire_as_it_does_in_memory(dialect: str) -> None:
    steps = [Step(text="Yes.", failure=Failing(failure="rate_limited", times=2, retry_after_ms=5))]
    with SERVERS[dialect](steps) as server:
        model = make_model(endpoint(server, dialect))
        outcomes = [ask(model, MODULES[dialect].build(PROMPT), attempt)[1] for attempt in (1, 2, 3)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, ModelFailure)]
    assert [(failure.failure, failure.retry_after_ms) for failure in failures] == [("rate_limited", 5)] * 2
    assert isinstance(outcomes[2], ModelAnswer)


def test_several_agents_ask_at_the_same_time(dialect: str) -> None:
    with SERVERS[dialect]([Step(text="Yes.", delay_ms=20)], branches=True) as server:
        model = make_model(endpoint(server, dialect))
        answers: list[object] = []

        async def one(number: int) -> None:
            body = MODULES[dialect].build(request(said(f"agent {number}")))
            answers.append(await model.ask(body, f"main.{number}/1", 1, lambda text: None))

        async def run() -> None:
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(one, number)

        anyio.run(run)
    assert server.violations == []
    assert [type(answer) for answer in answers] == [ModelAnswer] * 20


def test_nothing_heavy_is_imported_before_a_model_is_asked() -> None:
    code = (
        "import sys, muse.effect.model.wire, muse.effect.model.dialects;"
        "print(sorted({'httpx2', 'anyio', 'asyncio', 'ssl', 'socket', 'email'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_refused_connection_on_this_machine_asks_whether_the_server_runs(dialect: str) -> None:
    with socket.socket() as free:  # bound and not listening: every connection is refused
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        gone = Endpoint(name="local", dialect=dialect, base_url=f"http://127.0.0.1:{port}/v1")
        outcome = ask(make_model(gone), MODULES[dialect].build(PROMPT))[1]
    assert isinstance(outcome, ModelFailure)
    assert (outcome.failure, outcome.message) == (
        "network",
        f"nothing listens on 127.0.0.1:{port}; is the server running?",
    )


def test_a_name_that_leads_nowhere_is_named(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    nowhere = Endpoint(name="far", dialect=dialect, base_url="https://models.invalid/v1", api_key="k" * 12)
    outcome = ask(make_model(nowhere), MODULES[dialect].build(PROMPT))[1]
    assert isinstance(outcome, ModelFailure)
    assert outcome.failure == "network"
    assert "the name models.invalid leads nowhere" in outcome.message
