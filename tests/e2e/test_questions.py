"""The twenty questions of docs/questions.md, asked of a session that is recorded here, and held to what was noted
outside its log: by the server, in the workspace's files, by those who started the processes. Three are asked of a
session that was written by hand, and held to what was written."""

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.e2e import fleet
from tests.e2e import recorded as told
from tests.e2e.questions import PAGE, Question, as_shown, asked, questions, without_numbers
from tests.e2e.recorded import Noted

QUESTIONS = questions(PAGE.read_text())
Row = dict[str, str]


def rows(text: str) -> list[Row]:
    """Tab-separated lines with a header."""
    head, *lines = (line.split("\t") for line in text.rstrip("\n").split("\n"))
    return [dict(zip(head, line, strict=True)) for line in lines]


def words_in(body: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Every text of the messages of a request that the one before did not have, as the server reads them."""
    known = len(after["messages"])
    assert [{**m, "content": None} for m in body["messages"][:known]] == [
        {**m, "content": None} for m in after["messages"]
    ]
    found: list[str] = []
    for message in body["messages"][known:]:
        content = message["content"] if isinstance(message["content"], list) else [message["content"]]
        for block in content:
            match block:
                case str() as text:
                    found.append(text)
                case {"type": "text", "text": text}:
                    found.append(text)
                case {"type": "tool_use", "input": given}:
                    found += [str(value) for value in given.values()]
                case {"type": "tool_result", "content": result}:
                    found += [result] if isinstance(result, str) else [part["text"] for part in result]
    assert found
    return found


def says_new_words(noted: Noted, answer: str, number: int) -> None:
    """The words that were new in the server's request of this number (from 0) stand in the answer, and no older."""
    bodies = noted.bodies()
    new = [line for text in words_in(bodies[number], bodies[number - 1]) for line in text.splitlines()]
    shown = [line.strip()[2:].removeprefix("command: ") for line in answer.splitlines() if line.startswith("  + ")]
    assert shown == new


def migration(noted: Noted, answer: str) -> None:
    assert noted.left["migrated.txt"] == "ran\n"
    assert "sh migrate.sh" in answer.splitlines()[0]
    assert "allowed by ada" in answer.splitlines()[1]
    assert told.PROMPT in answer
    assert answer.endswith("the words of ada\n")


def people(noted: Noted, answer: str) -> None:
    found = [(row["person"], row["decision"], row["note"], row["shown"]) for row in rows(answer)]
    assert found == [
        ("ada", "allow", "", "$ sh migrate.sh"),
        ("grace", "allow", "", "$ rm old/prices.csv"),
        ("grace", "deny", told.NOTE, "$ sh publish.sh"),
    ]
    assert [row["person"] for row in rows(answer)] == ["ada", "grace", "grace"]


def process(noted: Noted, answer: str) -> None:
    assert "by grace" in answer
    assert f'"pid": {noted.pids["deletion"]},' in answer
    assert "$ rm old/prices.csv" in answer
    assert "old/prices.csv" not in noted.left


def refused(noted: Noted, answer: str) -> None:
    (line,) = answer.splitlines()
    assert "denied by grace" in line
    assert told.NOTE in line
    assert "sh publish.sh" in line
    assert "published.txt" not in noted.left


def failed(noted: Noted, answer: str) -> None:
    tests, upload = answer.splitlines()
    assert "exit 3" in told.FILES["test.sh"]
    assert "sh test.sh  exit 3" in tests
    assert noted.left["uploaded.txt"] == "begin\n"
    assert "sh upload.sh  may or may not have happened" in upload


def unasked(noted: Noted, answer: str) -> None:
    found = {row["what"]: row["allowed_by"] for row in rows(answer)}
    assert list(found) == ["README.md", "src/shop.py", "sh test.sh", "sh upload.sh", "notes.txt", "sh tag.sh"]
    by_rule = [found[what] for what in ("src/shop.py", "sh test.sh", "sh upload.sh", "sh tag.sh")]
    assert all(said.endswith(rule) for said, rule in zip(by_rule, told.RULES, strict=True))
    assert "accept-edits" in found["notes.txt"]


def first_request(noted: Noted, answer: str) -> None:
    got = noted.requests[0].body
    body = json.loads(got)
    assert f"sha256     {sha256(got).hexdigest()}\n" in answer
    assert f"bytes      {len(got):,}," in answer
    assert f"tools      {len(body['tools'])}, " in answer
    assert f": {', '.join(tool['name'] for tool in body['tools'])}\n" in answer
    assert f"max_tokens {body['max_tokens']}\n" in answer
    assert "as recorded" in answer


def busy(noted: Noted, answer: str) -> None:
    tries = [(got.step, got.attempt) for got in noted.requests]
    assert tries.count((told.BUSY, 1)) == tries.count((told.BUSY, 2)) == 1
    assert max(attempt for _, attempt in tries) == 2
    assert [(row["attempt"], row["outcome"], row["http_status"]) for row in rows(answer)] == [
        ("1", "failed", "429"), ("2", "responded", ""),
    ]  # fmt: skip


def changelog(noted: Noted, answer: str) -> None:
    assert "changelog" in told.STEERED
    head, hit = answer.splitlines()
    assert head.startswith(f"{noted.log.stem[-8:]}@46")
    assert hit.replace("«", "").replace("»", "").endswith(told.STEERED)


def files(noted: Noted, answer: str) -> None:
    before, left = told.FILES, noted.left
    changes = {path: "created" for path in left if path not in before}
    changes |= {path: "deleted" for path in before if path not in left}
    changes |= {path: "changed" for path in before if path in left and left[path] != before[path]}
    assert {row["path"]: row["change"] for row in rows(answer)} == changes
    assert noted.left["src/shop.py"] == told.AFTER
    assert {row["path"]: (row["added"], row["removed"]) for row in rows(answer)} == {
        path: lines_of(before.get(path, ""), left.get(path, "")) for path in changes
    }


def lines_of(before: str, after: str) -> tuple[str, str]:
    old, new = before.splitlines(), after.splitlines()
    return str(len([line for line in new if line not in old])), str(len([line for line in old if line not in new]))


def deleted(noted: Noted, answer: str) -> None:
    assert answer == told.OLD


def killed(noted: Noted, answer: str) -> None:
    assert noted.left["uploaded.txt"] == "begin\n"
    assert "main/14  shell sh upload.sh\n    running" in answer
    assert "mode     default" in answer
    assert "1 message for it wait" in answer
    assert re.findall(r"^  allow  (.*)$", answer, re.M) == list(told.RULES)


def doubts(noted: Noted, answer: str) -> None:
    (row,) = rows(answer)
    assert (row["command"], row["verdict"]) == ("sh upload.sh", "unknown")
    assert noted.left["uploaded.txt"] == "begin\n"


def spoken(noted: Noted, answer: str) -> None:
    assert [(row["how"], row["person"], row["text"]) for row in rows(answer)] == [
        ("prompt", "ada", told.PROMPT), ("steer", "lin", told.STEERED), ("prompt", "ada", told.SECOND),
        ("prompt", "ada", told.THIRD),
    ]  # fmt: skip


def tagging(noted: Noted, answer: str) -> None:
    assert noted.left["tagged.txt"] == "begin\n"
    assert "sh tag.sh  cancelled" in answer.splitlines()[0]
    assert f"because: {told.WHY}" in answer
    assert answer.endswith("given by grace\n")


def agent_3(noted: Noted, answer: str) -> None:
    sent = json.loads(answer)
    assert fleet.TASKS[2] in sent["system"]
    uses = [block["args"] for item in sent["items"] for block in item.get("blocks", ()) if block["kind"] == "tool_use"]
    assert [json.loads(args)["command"] for args in uses] == [fleet.LOOKS]
    (found,) = [item["text"] for item in sent["items"] if item["item"] == "resulted"]
    assert found.endswith("exit code 1")
    assert sent["items"][-1]["text"] == fleet.STEERED
    assert fleet.MESSAGE not in answer  # came later, and to another


def agent_2(noted: Noted, answer: str) -> None:
    assert f"because: {fleet.WHY}" in answer
    assert answer.endswith("given by grace\n")


def agents(noted: Noted, answer: str) -> None:
    found = {row["agent"]: row for row in rows(answer)}
    asked = {"main": 2, "main.1": 1, "main.2": 1, "main.3": 3}
    assert {name: int(row["input"]) for name, row in found.items()} == {
        name: fleet.TOKENS[name] * times for name, times in asked.items()
    }
    assert tuple(found[f"main.{n}"]["task"] for n in (1, 2, 3)) == fleet.TASKS
    assert [found[f"main.{n}"]["outcome"] for n in (1, 2, 3)] == ["done", "cancelled", "done"]


FACTS: dict[int, Callable[[Noted, str], None]] = {
    1: migration, 2: people, 3: process, 4: refused, 5: failed, 6: unasked, 7: first_request,
    8: lambda noted, answer: says_new_words(noted, answer, 2), 9: busy, 10: changelog, 11: files, 12: deleted,
    13: killed, 14: doubts, 15: lambda noted, answer: says_new_words(noted, answer, 8), 16: spoken, 17: tagging,
    18: agent_3, 19: agent_2, 20: agents,
}  # fmt: skip


@pytest.fixture(scope="module")
def release(release: Noted) -> Iterator[Noted]:
    """The recorded session, and the one that was written beside it."""
    path = fleet.write(release.rig.muse_home)
    yield release
    path.unlink()


def test_the_page_has_twenty_questions_and_each_has_its_facts() -> None:
    assert [question.number for question in QUESTIONS] == list(FACTS) == list(range(1, 21))


@pytest.mark.parametrize("question", QUESTIONS, ids=[question.title for question in QUESTIONS])
def test_the_log_answers_as_the_world_outside_knows_it(release: Noted, question: Question) -> None:
    answer = asked(release, question)
    assert answer.code == 0, answer.err
    FACTS[question.number](release, answer.out)


@pytest.mark.parametrize("question", QUESTIONS, ids=[question.title for question in QUESTIONS])
def test_the_page_shows_what_the_command_prints(release: Noted, question: Question) -> None:
    shown = as_shown(release, asked(release, question).out)
    assert without_numbers(shown) == without_numbers(question.answer)
