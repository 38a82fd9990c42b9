"""Sessions longer than their model's window, with the installed command: over the wire to a server that takes no more
than so much, and with a script while the host is killed in the middle of a summary."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muse.decide.compaction import INSTRUCTION
from muse.effect.model.scripted import Script, Step
from muse.testing.wire import AnthropicServer, OpenAIServer, Received, Trouble, WireServer
from tests.e2e.rig import Rig

SIZE = 6_000
CALLS = 24


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as found:
        (found.workspace / "long.txt").write_text("a long line of text\n" * (SIZE // 20))
        yield found


def small(server: type[WireServer]) -> type[WireServer]:
    """A server that takes no request of more than 60,000 bytes."""

    class Small(server):  # type: ignore[misc, valid-type]
        refused = 0

        def trouble(self, received: Received) -> Trouble | None:
            if len(received.body) > 60_000:
                self.refused += 1
                return Trouble("status", status=400, error="invalid_request_error", message="prompt is too long")
            found: Trouble | None = super().trouble(received)
            return found

    return Small


@pytest.mark.parametrize(("dialect", "kind"), [("anthropic", AnthropicServer), ("openai", OpenAIServer)])
def test_a_server_that_takes_no_more_is_asked_for_less(rig: Rig, dialect: str, kind: type[WireServer]) -> None:
    steps = [Step(text=f"look {n} " + "so " * 400, uses=(("read", {"path": "long.txt"}),)) for n in range(CALLS)]
    script = Script(steps=(*steps, Step(text="all read")))
    summary = Step(text="The file was read again and again.")
    with small(kind)(script, long=True, asides={INSTRUCTION[:60]: summary}) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--json", "read it often")
        assert done.returncode == 0, done.stderr
        assert server.violations == []
        assert server.refused >= 1  # type: ignore[attr-defined]
    assert len(rig.of_type("tool.finished")) == CALLS
    compacted = [event["body"] for event in rig.of_type("context.compacted")]
    assert {"results", "summary"} == {one["method"] for one in compacted}
    assert all(one["bytes_after"] < one["bytes_before"] for one in compacted)
    sizes = {(event["body"]["call"], event["body"]["attempt"]) for event in rig.of_type("model.failed")}
    answered = {event["body"]["call"] for event in rig.of_type("model.responded")}
    assert {call for call, _ in sizes} <= answered  # each that was too large was asked again under its key
    rig.verify()


def test_three_compactions_and_a_host_killed_in_the_middle_of_a_summary(rig: Rig) -> None:
    steps: list[Any] = [
        {"text": f"look {n} " + "so " * 700, "uses": [["read", {"path": "long.txt"}]]} for n in range(CALLS)
    ]
    path = rig.folder / "script.json"
    summary = {"text": "What was looked at.", "delay_ms": 800}
    path.write_text(json.dumps({"steps": [*steps, {"text": "the end"}], "summary": summary}))
    rig.settings(f'compact_at = 80\n[models."scripted/{path}"]\ncontext = 12000\n')
    model = f"scripted/{path}"
    first = rig.start("exec", "look at it", "-m", model)

    def summing_up() -> bool:
        if not rig.logs():
            return False
        asked = [event for event in rig.of_type("model.requested") if event["body"].get("purpose") == "summary"]
        return len(asked) == 2 and rig.events()[-1]["seq"] == asked[-1]["seq"]

    rig.wait_for(summing_up)
    first.kill()
    first.wait()
    rig.muse("steer", "last", "and be quick about it")
    done = rig.muse("resume", "last", "--json")
    assert done.returncode == 0, done.stderr
    events = rig.events()
    compacted = [event["body"] for event in events if event["type"] == "context.compacted"]
    assert sum(one["method"] == "summary" for one in compacted) >= 3
    asked = [event["body"] for event in events if event["type"] == "model.requested"]
    again = [one for one in asked if one.get("purpose") == "summary" and one["attempt"] == 2]
    assert len(again) == 1
    (before,) = (one for one in asked if one["call"] == again[0]["call"] and one["attempt"] == 1)
    assert again[0]["request_sha256"] == before["request_sha256"]
    assert max(one["request_bytes"] for one in asked) < 12_000 * 4 * 1.25
    assert len([event for event in events if event["type"] == "tool.finished"]) == CALLS
    rig.verify()
    sent = rig.muse("show", "last", "--request").stdout
    assert "and be quick about it" in sent
    assert "look at it" in sent
    assert "What was looked at." in sent
