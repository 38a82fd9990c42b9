"""What was seen of a run while it ran is what its replay says afterwards.

Nothing here folds or reads the log to know what to expect: the recorders are a pipe, a pseudo-terminal, another
process, the server that got the requests, and the files that the commands wrote.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import AnthropicServer, OpenAIServer, Received
from tests.e2e.recorded import Noted
from tests.e2e.rig import Rig
from tests.ui.asking import Answer, ask
from tests.ui.driving import MUSE, OnTerminal

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\r")


def asked(noted: Noted, *words: str) -> Answer:
    command, *rest = words
    answer = ask(noted.rig.muse_home, command, str(noted.log), *rest)
    assert answer.code == 0, answer.err
    return answer


def at(noted: Noted, seq: int, *words: str) -> Answer:
    return ask(noted.rig.muse_home, "show", f"{noted.log}@{seq}", *words)


# -- the lines ---------------------------------------------------------------------------------------------------------


def test_the_lines_that_a_pipe_got_of_all_lives_are_those_of_the_replay(release: Noted) -> None:
    assert asked(release, "replay", "--json").out == "".join(release.lines)
    assert asked(release, "log", "--json").out == "".join(release.lines)


def test_another_process_that_followed_the_log_saw_the_same_lines_in_the_same_order(release: Noted) -> None:
    assert release.followed == release.lines


def test_an_export_holds_the_events_that_the_pipe_saw_in_their_order(release: Noted) -> None:
    exported = [json.loads(line) for line in asked(release, "export").out.splitlines()]
    bodies = [one["body"] for one in exported if "body" in one]
    assert [json.loads(body) if isinstance(body, str) else body for body in bodies] == [
        json.loads(line)["body"] for line in release.lines
    ]


# -- what was sent -----------------------------------------------------------------------------------------------------


def live(noted: Noted, name: str) -> list[dict[str, Any]]:
    """The events of a type as the pipe saw them."""
    return [event for event in map(json.loads, noted.lines) if event["type"] == name]


def test_each_request_is_byte_for_byte_what_the_server_received(release: Noted) -> None:
    requested = live(release, "model.requested")
    assert len(requested) == len(release.requests)
    for event, received in zip(requested, release.requests, strict=True):
        assert at(release, event["seq"], "--request").data == received.body


def test_each_attempt_at_the_server_is_an_attempt_in_the_log(release: Noted) -> None:
    assert [event["body"]["attempt"] for event in live(release, "model.requested")] == [
        received.attempt for received in release.requests
    ]


# -- what the commands did ---------------------------------------------------------------------------------------------


def test_each_command_that_left_its_mark_was_started_and_no_other(release: Noted) -> None:
    marks = {"migrate": "migrated.txt", "test": "tested.txt", "upload": "uploaded.txt", "tag": "tagged.txt",
             "publish": "published.txt"}  # fmt: skip
    left = {name for name, mark in marks.items() if mark in release.left}
    words = [event["body"]["args"] for event in live(release, "tool.started") if event["body"]["tool"] == "shell"]
    started = [json.loads(args)["command"] for args in words]
    assert {f"sh {name}.sh" for name in left} == {command for command in started if command.startswith("sh ")}
    assert len(started) == len(set(started))
    assert sum(release.left[marks[name]].count("\n") for name in left) == len(left)  # each began once


def test_the_files_of_the_end_are_what_the_log_says_last_of_each(release: Noted) -> None:
    last: dict[str, tuple[int, int, bool]] = {}
    for event in live(release, "files.changed"):
        for n, change in enumerate(event["body"]["changes"]):
            last[change["path"]] = (event["seq"], n, "after" in change)
    for path, (seq, n, is_there) in last.items():
        assert is_there == (path in release.left)
        if is_there:
            assert at(release, seq, "--blob", f"changes.{n}.after").data == release.left[path].encode()


# -- a terminal --------------------------------------------------------------------------------------------------------

SAID = "I come to it slowly, word by word — 🦊 and all."
ANSWER = "It is done, and well."
PRINTS = "for n in 1 2 3; do echo line $n; done; echo ran >> ran.txt"
SLOW = [Step(text=SAID, piece_delay_ms=20, uses=(("shell", {"command": PRINTS}),)), Step(text=ANSWER)]


class Seen:
    """A run on a pseudo-terminal: what the terminal showed, and what the server got."""

    def __init__(self, rig: Rig, shown: str, requests: list[Received]) -> None:
        self.rig, self.requests = rig, requests
        self.rows = [line.rstrip() for line in CONTROL.sub("", shown).split("\n")]


@pytest.fixture(scope="module", params=[AnthropicServer, OpenAIServer], ids=["anthropic", "openai"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with request.param(SLOW) as server, Rig(tmp_path_factory.mktemp("terminal")) as rig:
        rig.provider("anthropic" if request.param is AnthropicServer else "openai", server.base_url)
        env = rig.environment | {"TERM": "xterm", "USER": "ada"}
        on = OnTerminal([MUSE, "exec", "--yolo", "do it"], env, rig.workspace)
        try:
            code, shown = on.end()
        finally:
            on.close()
        assert code == 0, shown
        yield Seen(rig, shown, server.requests)


def replayed(seen: Seen, *words: str) -> str:
    answer = ask(seen.rig.muse_home, "replay", str(seen.rig.path()), *words)
    assert answer.code == 0, answer.err
    return answer.out


def test_what_streamed_over_the_terminal_is_the_recorded_answer(seen: Seen) -> None:
    answers = seen.rig.of_type("model.responded")
    texts = [block["text"] for event in answers for block in event["body"]["blocks"] if block["kind"] == "text"]
    assert texts == [SAID, ANSWER]
    assert [row for row in seen.rows if row in texts] == texts


def test_the_rows_on_the_terminal_are_those_of_the_replay_in_the_same_order(seen: Seen) -> None:
    shown, plain = (
        [match.groups() for row in rows if (match := re.match(r"#(\d+) +(\S+) +(\S+) (\w+)", row))]
        for rows in (seen.rows, replayed(seen, "--plain").splitlines())
    )
    assert [int(seq) for seq, *_ in shown] == list(range(1, 12))
    assert shown == plain


def test_the_output_of_the_command_was_shown_live_and_is_recorded(seen: Seen) -> None:
    (finished,) = seen.rig.of_type("tool.finished")
    assert [row.strip(" │") for row in seen.rows if row.strip(" │").startswith("line ")] == [
        "line 1",
        "line 2",
        "line 3",
    ]
    assert finished["body"]["text"].startswith("line 1\nline 2\nline 3\n")
    assert (seen.rig.workspace / "ran.txt").read_text() == "ran\n"


def test_the_requests_of_the_run_on_the_terminal_are_what_the_server_got(seen: Seen) -> None:
    requested = [event["seq"] for event in seen.rig.of_type("model.requested")]
    told = [ask(seen.rig.muse_home, "show", f"{seen.rig.path()}@{seq}", "--request").data for seq in requested]
    assert told == [received.body for received in seen.requests]
