"""What was sent, asked of a log, against what a server received: byte for byte, in both wire dialects."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muse.effect.model.scripted import Step
from muse.errors import LogError
from muse.event.kinds import LogImported, ModelRequested, UserPrompted
from muse.runtime.reading import Reading
from muse.testing.wire import AnthropicServer, OpenAIServer, Trouble, WireServer
from muse.ui.cli.output import answers
from muse.ui.cli.requested import Wish, show_request
from tests.e2e.rig import Rig
from tests.runtime.retold import changed
from tests.runtime.rig import Rig as Scripted
from tests.runtime.rig import steps
from tests.ui.asking import Answer, ask
from tests.ui.driving import MUSE, OnTerminal
from tests.ui.told import told

SERVERS: dict[str, type[WireServer]] = {"anthropic": AnthropicServer, "openai": OpenAIServer}
TASK = [
    Step(text="I look.", uses=(("shell", {"command": "seq 1 20000"}), ("read", {"path": "src/shop.py"}))),
    Step(
        text="I mend.",
        uses=(("edit", {"path": "src/shop.py", "edits": [{"old": "sum(prices) - 1", "new": "sum(prices)"}]}),),
    ),
    Step(text="It is mended."),
]
BUSY = {1: [Trouble("status", status=503, message="busy")]}
"""The second request has to be sent twice."""


class Recorded(msgspec.Struct):
    """A session that has ended, and what a server received meanwhile."""

    home: Path
    path: Path
    bodies: list[bytes]
    events: list[dict[str, Any]]

    def ask(self, *args: str) -> Answer:
        return ask(self.home, *args)

    def at(self, seq: int) -> str:
        return f"{self.path}@{seq}"

    def of_type(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == name]


@pytest.fixture(scope="module", params=["anthropic", "openai"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    dialect: str = request.param
    with Rig(tmp_path_factory.mktemp(dialect)) as rig, SERVERS[dialect](TASK, BUSY) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "mend the sum")
        assert done.returncode == 0, done.stderr
        yield Recorded(rig.muse_home, rig.path(), [one.body for one in server.requests], rig.events())


def test_the_bytes_of_every_request_are_those_that_the_server_received(recorded: Recorded) -> None:
    requests = recorded.of_type("model.requested")
    assert len(requests) == len(recorded.bodies) == 4
    for event, body in zip(requests, recorded.bodies, strict=True):
        assert recorded.ask("show", recorded.at(event["seq"]), "--request").data == body


def test_any_other_event_means_the_last_request_before_it(recorded: Recorded, tmp_path: Path) -> None:
    last = recorded.of_type("model.requested")[-1]["seq"]
    asked = recorded.ask("show", str(recorded.path), "--request", "-o", str(tmp_path / "body"))
    assert (asked.code, asked.data) == (0, b"")
    assert f"at #{last}, the last request of main before #{len(recorded.events)}" in asked.err
    assert (tmp_path / "body").read_bytes() == recorded.bodies[-1]
    again = recorded.ask("show", str(recorded.path), "--request", "-o", str(tmp_path / "body"))
    assert again.code != 0
    assert (tmp_path / "body").read_bytes() == recorded.bodies[-1]


def test_before_the_first_request_there_is_none(recorded: Recorded) -> None:
    done = recorded.ask("show", recorded.at(2), "--request")
    assert (done.code, done.data) == (2, b"")
    assert "nothing was sent for main" in done.err
    first = recorded.of_type("model.requested")[0]["seq"]
    assert recorded.ask("show", recorded.at(first), "--diff").code == 2
    assert recorded.ask("show", recorded.at(first), "--summary").code == 0


def test_pretty_is_the_same_json_and_a_pipe_gets_exact_bytes(recorded: Recorded, tmp_path: Path) -> None:
    shown = recorded.ask("show", str(recorded.path), "--request", "--pretty")
    assert json.loads(shown.out) == json.loads(recorded.bodies[-1])
    assert shown.data != recorded.bodies[-1]
    whole = json.loads(recorded.ask("show", str(recorded.path), "--request", "--json").out)
    assert whole["request"].encode() == recorded.bodies[-1]
    assert whole["request_sha256"] == hashlib.sha256(recorded.bodies[-1]).hexdigest()


def test_the_difference_holds_what_the_earlier_body_does_not(recorded: Recorded) -> None:
    """Facts from the bodies themselves: the later one holds the earlier one's messages, and these texts beside."""
    _, _, third, last = recorded.of_type("model.requested")
    value = json.loads(recorded.ask("show", recorded.at(last["seq"]), "--diff", "--json").out)
    assert value["since"] == third["seq"]
    added = [change["after"]["text"] for change in value["changes"]]
    assert [change["what"] for change in value["changes"]] == ["added"] * 3
    assert added[0] == "I mend."
    assert json.loads(added[1])["path"] == "src/shop.py"
    assert added[2].startswith("edited src/shop.py")
    assert all(json.dumps(text).encode()[1:-1] in recorded.bodies[3] for text in added[:1])
    assert not any(b"I mend." in body for body in recorded.bodies[:3])
    assert value["prefix"]["whole"]


def test_a_second_attempt_sent_the_same_bytes(recorded: Recorded) -> None:
    second = recorded.of_type("model.requested")[2]
    assert second["body"]["attempt"] == 2
    assert recorded.bodies[1] == recorded.bodies[2]
    value = json.loads(recorded.ask("show", recorded.at(second["seq"]), "--diff", "--json").out)
    assert value["changes"] == []
    told = recorded.ask("show", recorded.at(second["seq"]), "--diff").out
    assert ", attempt 2) since" in told


def test_the_summary_tells_what_the_provider_counted_and_what_was_left_out(recorded: Recorded) -> None:
    usage = recorded.of_type("model.responded")[-1]["body"]["usage"]
    total = usage.get("input", 0) + usage.get("cache_read", 0) + usage.get("cache_write", 0)
    told = recorded.ask("show", str(recorded.path), "--summary").out
    assert f"{usage.get('cache_read', 0):,} of {total:,} tokens were read from it" in told
    cut = next(event for event in recorded.of_type("tool.finished") if "output" in event["body"])
    assert f"whole: muse show @{cut['seq']} --blob output" in told
    assert f"of {108894 / 1000:.1f} kB" in told  # the length of `seq 1 20000`
    whole = recorded.ask("show", recorded.at(cut["seq"]), "--blob", "output").data
    assert whole == "".join(f"{n}\n" for n in range(1, 20_001)).encode()
    assert f"{len(recorded.bodies[-1]):,}, built by" in told


def test_two_answers_at_once_and_filters_with_one_event_are_refused(recorded: Recorded) -> None:
    for flags in (["--diff", "--summary"], ["--request", "--blob", "raw"], ["--request", "--failed"],
                  ["--diff", "-o", "x"]):  # fmt: skip
        assert recorded.ask("show", str(recorded.path), *flags).code == 2


def test_on_a_terminal_it_is_indented_and_that_is_said(recorded: Recorded, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MUSE_HOME": str(recorded.home), "TERM": "xterm"}
    shown = OnTerminal([MUSE, "show", str(recorded.path), "--request"], env | {"LANG": "C.UTF-8"}, tmp_path)
    try:
        code, seen = shown.end()
    finally:
        shown.close()
    assert code == 0
    assert "the exact bytes" in seen
    text = seen[seen.index("{\r\n") :].replace("\r\n", "\n")
    assert json.loads(text) == json.loads(recorded.bodies[-1])


def test_what_was_redacted_is_not_told_and_the_answer_says_why(recorded: Recorded, tmp_path: Path) -> None:
    home = tmp_path / "muse"
    shutil.copytree(recorded.home, home, ignore=shutil.ignore_patterns("run"))
    path = home / recorded.path.relative_to(recorded.home)
    prompt = recorded.of_type("user.prompted")[0]["seq"]
    done = ask(home, "redact", f"{path}@{prompt}", "-y")
    assert done.code == 0, done.err
    for flag in ("--request", "--diff", "--summary", "--pretty"):
        asked = ask(home, "show", str(path), flag)
        assert (asked.code, asked.data) == (8, b"")
        assert f"user.prompted (#{prompt}) is redacted" in asked.err
    told = json.loads(ask(home, "why", f"{path}@{len(recorded.events)}", "--json").out)
    assert (told["steps"][-1]["seq"], told["end"]["kind"]) == (prompt, "redacted")
    assert all(one["seq"] > two["seq"] for one, two in pairwise(told["steps"]))


def test_other_bytes_than_were_recorded_are_never_given_out(tmp_path: Path) -> None:
    """A log whose prompt was changed and its chain built again: the digest of the request tells."""
    rig = Scripted(tmp_path, steps(1))
    rig.submit(UserPrompted(text="go there"))
    rig.run()
    with rig.handle() as log, answers() as out:
        reading = Reading(changed(log, "user.prompted", b"go there", b"go elsewhere"))
        for wish in (Wish(), Wish(diff=True), Wish(summary=True), Wish(pretty=True), Wish(as_json=True)):
            with pytest.raises(LogError, match=r"cannot be rebuilt: the log gives .* bytes, recorded are") as caught:
                show_request(reading, log.head().seq, "", wish, out)
            assert caught.value.exit_code == 6


def test_a_request_in_an_imported_log_is_answered_with_why_there_is_none(tmp_path: Path) -> None:
    asked = ModelRequested(
        call="main/1", attempt=1, provider="scripted", model="-", builder="scripted/1", items=1,
        request_sha256="0" * 64, request_bytes=1,
    )  # fmt: skip
    path = told(tmp_path, LogImported(source="other.jsonl", format_name="claude-code", events=3), asked)
    for wish in ("--request", "--diff", "--summary"):
        done = ask(tmp_path, "show", f"{path}@3", wish)
        assert done.code == 8, wish
        assert "imported from claude-code" in done.out + done.err, wish
