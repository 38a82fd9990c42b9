"""What a person is told, and the command that is run for it: a real one, which writes down what it was given."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import anyio
import msgspec
import pytest

from muse.app import Notice, Notices, notice_of
from muse.config import NoticeKind
from muse.event.envelope import Event
from muse.event.kinds import KINDS, ApprovalRequested, BudgetReached, QuestionAsked, SessionClosed, UserPrompted

TYPES = {kind.body: name for name, kind in KINDS.items()}
ALL = get_args(NoticeKind)
EVIL = "rm \x1b]9;4;1;50\x07 \x9b2J\nx\u202e"


def at(body: msgspec.Struct, agent: str = "main") -> Event:
    return Event(7, "0" * 32, "2026-01-02T03:04:05.000000Z", TYPES[type(body)], 1, agent, 0, 1, body)


def told(body: msgspec.Struct, agent: str = "main", answer: str = "") -> tuple[str, str] | None:
    found = notice_of(at(body, agent), "s", "4f2k", "/w", answer)
    return (found.event, found.text) if found is not None else None


ASKS = ApprovalRequested(call="main.1/2", tool="shell", shown="$ make", shown_sha256="")
NOTICE = msgspec.convert(msgspec.to_builtins(notice_of(at(ASKS), "s", "4f2k", "/w")), Notice)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (ASKS, "approval", "muse 4f2k: main.1 asks: may this run? $ make"),
        (QuestionAsked(call="main.1/2", text="Red or\nblue?"), "question", "muse 4f2k: main.1 asks: Red or blue?"),
        (BudgetReached(limit="model_calls", value=1000), "limit", "muse 4f2k: main.1: model calls reached 1,000"),
        (BudgetReached(limit="cost_microusd", value=2_500_000), "limit", "muse 4f2k: main.1: cost reached $2.50"),
        (SessionClosed(outcome="done"), "finished", "muse 4f2k: done"),
        (SessionClosed(outcome="failed", reason="cut"), "failed", "muse 4f2k: the task failed: cut"),
        (
            SessionClosed(outcome="provider", reason="auth: no"), "failed",
            "muse 4f2k: the provider refused the key: no",
        ),
    ],
)  # fmt: skip
def test_what_is_worth_telling(body: msgspec.Struct, kind: str, text: str) -> None:
    assert told(body, "main.1") == (kind, text)


@pytest.mark.parametrize(
    "body", [SessionClosed(outcome="cancelled"), SessionClosed(outcome="budget"), UserPrompted(text="go")]
)
def test_what_a_person_did_and_what_was_told_is_told_no_second_time(body: msgspec.Struct) -> None:
    assert told(body) is None


def test_the_last_words_stand_in_the_notice_of_an_end() -> None:
    assert told(SessionClosed(outcome="done"), answer="All\nis well.") == ("finished", "muse 4f2k: done: All is well.")


def test_nothing_from_a_log_can_act_on_a_terminal() -> None:
    """A notice goes between ESC ] 9 ; and BEL: it may hold no control character, and begin no other sequence."""
    for body in (QuestionAsked(call="main/2", text=EVIL * 99), msgspec.structs.replace(ASKS, shown=EVIL)):
        found = notice_of(at(body), "s", "4f2k", "/w")
        assert found is not None
        assert found.text.isprintable()
        assert len(found.text) <= 201
        assert found.text.startswith("muse 4f2k: ")


# -- the command -------------------------------------------------------------------------------------------------------


def script(folder: Path, text: str) -> str:
    path = folder / "told.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def give(notices: Notices, *given: Notice) -> None:
    for one in given:
        notices.tell(one)
    anyio.run(notices.finish)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_command_gets_the_notice_on_its_input_and_its_text_as_the_last_word(tmp_path: Path) -> None:
    command = script(tmp_path, f'cat > {tmp_path}/in; printf "%s\\n" "$@" > {tmp_path}/args; pwd > {tmp_path}/cwd')
    notices = Notices((command, "--title", "x y"), ALL)
    give(notices, NOTICE)
    assert notices.trouble() == ""
    assert (tmp_path / "args").read_text().splitlines() == ["--title", "x y", NOTICE.text]
    line = (tmp_path / "in").read_text()
    assert line.endswith("\n")
    found = json.loads(line)
    assert (found["event"], found["session"], found["address"], found["seq"]) == ("approval", "s", "4f2k@7", 7)
    assert (found["agent"], found["workspace"], found["text"]) == ("main", "/w", NOTICE.text)
    assert Path((tmp_path / "cwd").read_text().strip()) == Path.home().resolve()


def test_it_is_run_for_the_kinds_that_were_asked_for_and_in_order(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo "$1" >> {tmp_path}/args')
    kinds: list[NoticeKind] = ["approval", "question", "finished", "limit", "failed"]
    given = [msgspec.structs.replace(NOTICE, event=kind, text=kind) for kind in kinds]
    give(Notices((command,), ("finished", "failed", "approval")), *given)
    assert (tmp_path / "args").read_text().split() == ["approval", "finished", "failed"]


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    command = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    notices = Notices((command,), ALL, seconds=0.5)
    give(notices, NOTICE)
    assert "took over 0.5 s and was ended" in notices.trouble()
    pid = (tmp_path / "pid").read_text().strip()
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


@pytest.mark.parametrize(
    ("text", "says"), [("exit 3", "failed (exit 3)"), (None, "cannot be run: No such file or directory")]
)
def test_a_failure_is_said_once(tmp_path: Path, text: str | None, says: str) -> None:
    command = str(tmp_path / "nothing") if text is None else script(tmp_path, text)
    notices = Notices((command,), ALL)
    give(notices, NOTICE, NOTICE)
    assert says in notices.trouble()
    assert notices.trouble() == ""


def test_a_command_that_does_not_read_is_no_failure(tmp_path: Path) -> None:
    notices = Notices((script(tmp_path, "exec <&-"),), ALL)
    give(notices, msgspec.structs.replace(NOTICE, workspace="w" * 200_000))
    assert notices.trouble() == ""


def test_without_a_command_nothing_is_run() -> None:
    threads = threading.active_count()
    give(Notices((), ALL), NOTICE)
    assert threading.active_count() == threads
