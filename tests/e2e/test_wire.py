"""The installed command in a real repository against model servers of both dialects, good and bad ones."""

from typing import Any

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer, OpenAIServer, Trouble, WireServer
from tests.e2e.rig import KEY, Rig

SERVERS: dict[str, type[WireServer]] = {"anthropic": AnthropicServer, "openai": OpenAIServer}
TASK = [
    Step(
        text="I look around.",
        uses=(
            ("glob", {"pattern": "**/*.py"}),
            ("grep", {"pattern": "def total"}),
            ("read", {"path": "src/shop.py"}),
            ("shell", {"command": "python3 -B -m tests.check 2>&1 | tail -1; echo looked >> steps.txt"}),
        ),
    ),
    Step(
        text="One line is wrong.",
        reasoning="sum(prices) - 1 is off by one",
        uses=(
            ("edit", {"path": "src/shop.py", "edits": [{"old": "sum(prices) - 1", "new": "sum(prices)"}]}),
            ("write", {"path": "docs/notes.md", "content": "The sum was off by one. Zażółć 🦊\n"}),
        ),
    ),
    Step(uses=(("shell", {"command": "python3 -B -m tests.check; echo checked >> steps.txt"}),)),
    Step(text="The sum is right now: the check passes."),
]


@pytest.fixture(params=["anthropic", "openai"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def finished(rig: Rig) -> dict[str, dict[str, Any]]:
    """Tool results by call."""
    return {event["body"]["call"]: event["body"] for event in rig.of_type("tool.finished")}


def assert_task_done(rig: Rig) -> None:
    assert rig.read("src/shop.py") == "def total(prices):\n    return sum(prices)\n"
    assert rig.read("docs/notes.md") == "The sum was off by one. Zażółć 🦊\n"
    assert rig.read("steps.txt") == "looked\nchecked\n"
    assert rig.git("status", "--porcelain", "-uall").split("\n") == [
        " M src/shop.py", "?? docs/notes.md", "?? steps.txt", "",
    ]  # fmt: skip


def assert_no_key_in_files(rig: Rig) -> None:
    for path in rig.muse_home.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_a_real_task_runs_to_its_end_and_its_log_holds_all_of_it(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "mend the sum")
    assert (done.returncode, done.stdout) == (0, "The sum is right now: the check passes.\n"), done.stderr
    assert server.violations == []
    assert len(server.requests) == 4
    assert_task_done(rig)
    results = finished(rig)
    assert [body["status"] for body in results.values()] == ["ok"] * 7
    assert "src/shop.py" in results["main/2"]["text"]
    assert "def total" in results["main/3"]["text"]
    assert "sum(prices) - 1" in results["main/4"]["text"]
    assert "AssertionError: 2" in results["main/5"]["text"]
    assert "all good" in results["main/10"]["text"]
    answers = rig.of_type("model.responded")
    assert all(event["body"]["usage"]["output"] > 0 for event in answers)
    assert all(event["body"]["raw"]["length"] > 0 for event in answers)
    changed = [change["path"] for event in rig.of_type("files.changed") for change in event["body"]["changes"]]
    assert sorted(changed) == ["docs/notes.md", "src/shop.py", "steps.txt", "steps.txt"]  # the last by two commands
    rig.verify()
    assert_no_key_in_files(rig)


def test_the_server_is_named_on_the_command_line_alone(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK) as server:
        pairs = [f"dialect={dialect}", f"base_url={server.base_url}", "api_key_env=SHOP_KEY"]
        flags = [flag for pair in pairs for flag in ("-c", f"providers.here.{pair}")]
        done = rig.muse("exec", "--yolo", "-m", "here/x", *flags, "mend the sum")
    assert done.returncode == 0, done.stderr
    assert server.violations == []
    assert_task_done(rig)


FAULTS = {
    0: [Trouble("torn"), Trouble("silent"), Trouble("torn", at=0.0), Trouble("bytes")],
    1: [Trouble("status", status=529, error="overloaded_error"), Trouble("cut"), Trouble("html"), Trouble("gzip")],
    2: [
        Trouble("status", status=429, headers=(("retry-after", "0"),)),
        Trouble("garbage"),
        Trouble("slow", delay_ms=5),
    ],
    3: [Trouble("status"), Trouble("error_event", error="overloaded_error"), Trouble("crlf")],
}
"""What goes wrong before each step; the last of each is a good answer that comes in an unusual way."""

FAILURES = [
    "cut", "network", "cut", "overloaded", "cut", "garbage", "rate_limited", "garbage", "server", "overloaded",
]  # fmt: skip


def test_every_trouble_of_a_server_is_survived_and_nothing_is_done_twice(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK, FAULTS) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "mend the sum")
    assert done.returncode == 0, done.stderr
    assert server.violations == []
    assert_task_done(rig)
    requests = rig.of_type("model.requested")
    assert len(requests) == len(rig.of_type("model.responded", "model.failed")) == len(server.requests) == 14
    assert [event["body"]["failure"] for event in rig.of_type("model.failed")] == FAILURES
    assert [event["body"].get("retry_after_ms") for event in rig.of_type("model.failed")].count(0) == 1
    rig.verify()
    assert_no_key_in_files(rig)


def test_a_wait_that_the_server_asks_for_is_recorded_and_kept(rig: Rig, dialect: str) -> None:
    faults = {0: [Trouble("status", status=429, headers=(("retry-after", "1"),))]}
    with SERVERS[dialect]([Step(text="Hello.")], faults) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "greet me")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    (failed,), (timer,) = rig.of_type("model.failed"), rig.of_type("timer.set")
    assert failed["body"]["retry_after_ms"] == 1000
    assert timer["body"]["duration_ms"] >= 1000
    assert [event["body"]["attempt"] for event in rig.of_type("model.requested")] == [1, 2]


def test_a_refused_key_ends_at_once_with_exit_code_4_and_the_session_resumes(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "mend the sum", extra={"SHOP_KEY": "sk-wrong-wrong-wrong"})
        assert done.returncode == 4, done.stderr
        assert len(server.requests) == 1
        assert "sk-wrong" not in done.stdout + done.stderr
        server.violations.clear()
        again = rig.muse("resume", "last")
    assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert_task_done(rig)
    rig.verify()
    for path in rig.muse_home.rglob("*.muse*"):
        assert b"sk-wrong-wrong-wrong" not in path.read_bytes()
    assert_no_key_in_files(rig)


def test_a_server_that_stays_away_ends_with_exit_code_4_and_the_session_resumes(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK, {1: [Trouble("status", status=500)] * 3}) as server:
        rig.provider(dialect, server.base_url, "max_model_attempts = 3")
        done = rig.muse("exec", "--yolo", "mend the sum")
        assert done.returncode == 4, done.stderr
        assert rig.of_type("session.closed")[-1]["body"]["outcome"] == "provider"
        again = rig.muse("resume")
    assert again.returncode == 0, again.stderr
    assert server.violations == []
    assert_task_done(rig)
    rig.verify()


def test_a_server_that_falls_silent_is_asked_again_after_the_timeout_of_the_settings(rig: Rig, dialect: str) -> None:
    with SERVERS[dialect](TASK, {0: [Trouble("hang")], 1: [Trouble("stall")]}) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "-c", "providers.shop.timeout=1", "mend the sum")
        assert done.returncode == 0, done.stderr
        assert server.wait_for_disconnects(2)
    assert server.violations == []
    assert_task_done(rig)
    assert [event["body"]["failure"] for event in rig.of_type("model.failed")] == ["timeout"] * 2
    rig.verify()


def test_a_missing_key_is_said_before_a_session_is_made(rig: Rig, dialect: str) -> None:
    rig.provider(dialect, "http://127.0.0.1:9")
    del rig.environment["SHOP_KEY"]
    done = rig.muse("exec", "mend the sum")
    assert done.returncode == 4
    assert "SHOP_KEY" in done.stderr
    assert rig.logs() == []


def test_an_unreachable_server_ends_with_exit_code_4(rig: Rig, dialect: str) -> None:
    rig.provider(dialect, "http://127.0.0.1:9", "max_model_attempts = 2")
    done = rig.muse("exec", "mend the sum")
    assert done.returncode == 4, done.stderr
    assert [event["body"]["failure"] for event in rig.of_type("model.failed")] == ["network"] * 2
    rig.verify()
