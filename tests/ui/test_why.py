"""Why, and filters, asked of sessions that real runs made; what to find was noted while they ran."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muse import app
from muse.view.causes import why
from muse.view.filters import TERMS
from tests.e2e.rig import Rig
from tests.e2e.test_same_lines import watched
from tests.ui.asking import Answer, ask

RULE = "shell(touch free*)"


def shell(command: str) -> list[Any]:
    return ["shell", {"command": command}]


STEPS = [
    {"text": "I begin.", "uses": [shell("touch free.txt"), shell("touch asked.txt")]},
    {"text": "I write.", "uses": [["write", {"path": "b.txt", "content": "b"}]]},
    {"text": "I stop here."},
    {"text": "Again.", "uses": [shell("touch asked.txt"), shell("cat gone.txt")]},
    {"text": "All done."},
]


class Noted(msgspec.Struct):
    """A session, and what was noted outside its log: the seqs that commands and `--json` lines gave."""

    home: Path
    path: Path
    asked: int
    allowed: int
    refused: int
    denied: int
    events: list[dict[str, Any]]

    def ask(self, *args: str) -> Answer:
        return ask(self.home, *args)

    def why(self, seq: int) -> dict[str, Any]:
        done = self.ask("why", f"{self.path}@{seq}", "--json")
        assert done.code == 0, done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    def seqs(self, *filters: str) -> list[int]:
        done = self.ask("log", str(self.path), "--json", *filters)
        assert done.code == 0, done.err
        return [json.loads(line)["seq"] for line in done.out.splitlines()]

    def one(self, name: str, **fields: object) -> int:
        """The seq of the only event of a type with these fields in its body."""
        (found,) = [
            event["seq"] for event in self.events
            if event["type"] == name and fields.items() <= event["body"].items()
        ]  # fmt: skip
        return int(found)


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noted]:
    with Rig(tmp_path_factory.mktemp("why")) as rig:
        rig.environment["USER"] = "ada"
        model = rig.script(STEPS)
        with watched(rig, "exec", "--json", "--allow", RULE, "-m", model, "do three things") as run:
            asked = run.until("approval.requested")["seq"]
            allowed = rig.muse("approve", f"last@{asked}", "--always").stdout
            refused = run.until("approval.requested")["seq"]
            denied = rig.muse("deny", f"last@{refused}", "--note", "not now").stdout
            assert run.end() == 0, run.errors
        again = rig.muse("resume", "last", "and once more")
        assert again.returncode == 0, again.stderr
        numbers = [int(text.strip().removeprefix("#")) for text in (allowed, denied)]
        yield Noted(rig.muse_home, rig.path(), asked, numbers[0], refused, numbers[1], rig.events())


def test_a_command_leads_to_who_allowed_it_and_to_the_prompt(noted: Noted) -> None:
    told = noted.why(noted.one("tool.finished", call="main/3"))
    prompt = noted.one("user.prompted", text="do three things")
    steps = told["steps"]
    assert [step["type"] for step in steps] == [
        "tool.finished", "tool.started", "model.responded", "model.requested", "user.prompted",
    ]  # fmt: skip
    assert [step["relation"] for step in steps] == [
        "", "the result of", "asked for by", "in answer to", "with the prompt",
    ]  # fmt: skip
    assert [(one["relation"], one["seq"]) for one in steps[1]["rests"]] == [("allowed by", noted.allowed)]
    assert (steps[-1]["seq"], told["end"]["kind"]) == (prompt, "person")
    assert "ada" in told["end"]["words"]
    assert steps[0]["address"].endswith(f"@{steps[0]['seq']}")


def test_a_command_that_a_rule_let_pass_leads_to_where_the_rule_was_given(noted: Noted) -> None:
    started = noted.one("tool.started", call="main/2")
    (first, *_) = noted.why(started)["steps"]
    assert first["notes"] == [f"allowed by {RULE}"]
    assert [(one["relation"], one["type"], one["seq"]) for one in first["rests"]] == [
        ("by a rule of", "session.opened", 1)
    ]


def test_what_an_earlier_always_let_pass_leads_to_who_said_it(noted: Noted) -> None:
    later = [event for event in noted.events if event["type"] == "tool.started" and event["seq"] > noted.denied]
    (again,) = [event["seq"] for event in later if "touch" in event["body"]["args"]]
    (first, *_) = noted.why(again)["steps"]
    assert [(one["relation"], one["seq"]) for one in first["rests"]] == [("remembered by", noted.allowed)]


def test_a_refused_call_leads_to_who_refused_it_with_the_words(noted: Noted) -> None:
    told = noted.why(noted.denied)["steps"]
    assert [step["seq"] for step in told[:2]] == [noted.denied, noted.refused]
    assert told[0]["notes"][0].startswith("decided by ada")
    assert told[0]["notes"][1:] == ["with the words: not now"]


def test_a_request_names_what_was_new_in_it(noted: Noted) -> None:
    second = [event["seq"] for event in noted.events if event["type"] == "model.requested"][1]
    (first, *_) = noted.why(second)["steps"]
    results = [event["seq"] for event in noted.events if event["type"] == "tool.finished" and event["seq"] < second]
    assert sorted(one["seq"] for one in first["rests"]) == results
    assert {one["relation"] for one in first["rests"]} == {"with the result"}


def test_a_later_turn_ends_at_its_own_prompt(noted: Noted) -> None:
    told = noted.why(len(noted.events))
    assert told["steps"][-1]["seq"] == noted.one("user.prompted", text="and once more")


def test_the_answer_for_people_says_the_same_and_ends_with_who(noted: Noted) -> None:
    done = noted.ask("why", f"{noted.path}@{noted.one('tool.finished', call='main/3')}")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("#")] == []
    assert sum("#" in line[:25] for line in lines) == 6
    assert f"+ allowed by       #{noted.allowed}" in done.out
    assert lines[-1].startswith("ends here:")


def test_why_of_what_is_not_there_is_a_usage_error(noted: Noted) -> None:
    assert noted.ask("why", f"{noted.path}@999").code == 2
    assert noted.ask("why", f"{noted.path}:main.7").code == 2


# -- filters on the command line ---------------------------------------------------------------------------------------


def test_filters_find_what_was_noted_while_it_ran(noted: Noted) -> None:
    assert noted.seqs("--denied") == [noted.denied]
    assert noted.seqs("--type", "approval.requested") == [noted.asked, noted.refused]
    assert noted.seqs("--failed", "--tool", "shell") == [noted.one("tool.finished", exit_code=1)]
    assert noted.seqs("--approved-by", "person", "--type", "tool.started") == [noted.one("tool.started", call="main/3")]
    assert noted.seqs("--approved-by", "ada", "--type", "approval") == [noted.allowed]
    assert noted.seqs("--approved-by", RULE, "--type", "tool.started") == [noted.one("tool.started", call="main/2")]
    assert noted.seqs("--turn", "2", "--kind", "person") == [noted.one("user.prompted", text="and once more")]
    assert noted.seqs("--since", f"@{noted.asked}", "--until", f"@{noted.asked}") == [noted.asked]
    changed = [
        event["seq"] for event in noted.events
        if "asked.txt" in [change["path"] for change in event["body"].get("changes", [])]
    ]  # fmt: skip
    assert len(changed) == 1
    assert noted.seqs("--path", "asked.txt", "--type", "files.changed") == changed
    assert noted.seqs("--grep", "NO such file") == []
    assert noted.one("tool.finished", exit_code=1) in noted.seqs("--grep", "no such file")
    assert noted.seqs("-E", "^cat:.*gone") == [noted.one("tool.finished", exit_code=1)]
    assert noted.seqs("--since", "1w") == [event["seq"] for event in noted.events]
    assert noted.seqs("--until", "2020-01-01") == []


def test_whole_calls_shows_how_a_failed_one_began(noted: Noted) -> None:
    failed = noted.one("tool.finished", exit_code=1)
    call = next(event["body"]["call"] for event in noted.events if event["seq"] == failed)
    found = noted.seqs("--failed", "--tool", "shell", "--whole-calls")
    assert found == [event["seq"] for event in noted.events if event["body"].get("call") == call]
    assert len(found) == 2
    assert noted.ask("log", str(noted.path), "-f", "--whole-calls").code == 2


def test_an_agent_of_the_address_is_a_filter_like_the_flag(noted: Noted) -> None:
    lane = [
        json.loads(line)["seq"] for line in noted.ask("log", f"{noted.path}:main", "--below", "--json").out.splitlines()
    ]
    assert lane == [event["seq"] for event in noted.events]
    assert noted.ask("log", f"{noted.path}:main", "--agent", "main.1").code == 2


def test_a_filter_also_holds_for_what_is_followed(noted: Noted) -> None:
    done = noted.ask("log", str(noted.path), "-f", "--until-closed", "--denied", "--json")
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [noted.denied]


def test_nothing_found_is_said_with_what_there_is(noted: Noted) -> None:
    done = noted.ask("log", str(noted.path), "--agent", "main.3")
    assert (done.code, done.data) == (0, b"")
    assert "there is no agent 'main.3'; there is main" in done.err
    shown = noted.ask("show", str(noted.path), "--tool", "grep", "--failed")
    assert (shown.code, shown.data) == (0, b"")
    assert "there is no call of 'grep'" in shown.err


def test_show_prints_each_event_that_is_meant_in_full(noted: Noted) -> None:
    done = noted.ask("show", str(noted.path), "--failed", "--tool", "shell", "--json")
    (line,) = done.out.splitlines()
    assert json.loads(line)["hash"]
    assert json.loads(line)["body"]["text"].startswith("cat:")
    both = noted.ask("show", str(noted.path), "--type", "approval.requested")
    assert [line.split()[0] for line in both.out.splitlines() if line.startswith("#")] == [
        f"#{noted.asked}", f"#{noted.refused}",
    ]  # fmt: skip
    assert "touch asked.txt" in both.out


def test_a_filter_that_cannot_be_meant_is_a_usage_error(noted: Noted) -> None:
    for flags in (["--since", "soon"], ["--kind", "x"], ["--turn", "x"], ["-E", "("]):
        done = noted.ask("log", str(noted.path), *flags)
        assert done.code == 2
        assert done.err


@pytest.mark.parametrize("name", ["log", "show", "replay", "search"])
def test_every_command_that_lists_events_has_every_filter(name: str) -> None:
    told = ask(Path("/nowhere"), name, "--help").out
    assert [term.name for term in TERMS if f"--{term.name}" not in told] == []


def test_every_event_of_a_log_of_the_first_version_leads_to_a_person_or_the_opening(tmp_path: Path) -> None:
    log = tmp_path / "old.muse"
    log.write_bytes((Path(__file__).parents[1] / "golden" / "0.1.0.muse").read_bytes())
    with app.read_session(log) as reading:
        requests = 0
        for event in reading.events():
            chain = why(event, reading, reading.state_after(event.seq))
            assert chain.end in ("person", "start"), event
            if event.type == "model.requested":
                sent = app.request_at(reading, event.seq)
                assert sent.request.data is not None, sent.request.why
                requests += 1
    assert requests > 5
